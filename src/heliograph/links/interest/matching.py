"""Whether a channel of one station matches the same channel of another, and if not, why.

Both stations know both sides: a channel is told with its quality of service, its formats, and the fields that
a reader can do without. So both come to the same answer, the source sends nothing that would be dropped on
arrival, and each of them tells its own user why (`NotMatched`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.errors import NotMatched
from heliograph.model.compatibility import compare
from heliograph.qos.matching import mismatches, smallest_change

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links.session.messages import ChannelState, Want
    from heliograph.model.formats import Format
    from heliograph.qos.policies import QoS


def unmet(qos: QoS, asked: ChannelState, *, acks: bool) -> str:
    """Why a channel that is offered like this is not what a station asks for; empty when it is."""
    apart = mismatches(qos, asked.qos)
    if apart:
        return "; ".join(map(str, apart))
    if acks and not asked.acks:
        return "ack: offered 'delivered', but nobody acknowledges where it is not opened with ack='delivered'"
    return ""


def unreadable(written: Format, want: Want, format_of: Callable[[bytes], Format | None]) -> str:
    """Why events of a format cannot be read by who wants their type; empty when they can."""
    if want.any_version:
        return ""
    wanted = None if want.format_id == written.id else format_of(want.format_id)
    return "" if wanted is None else "; ".join(compare(written, wanted, has_default=want.defaults).problems)


def not_coming(
    station: str,
    offered: ChannelState,
    own: ChannelState,
    own_format: Callable[[bytes], Format | None],
    their_format: Callable[[bytes], Format | None],
) -> list[NotMatched]:
    """What receivers here want of a channel and do not get of a station that has it.

    Of a history every event comes in the version in which it was pushed, whatever class its keeper has: who
    cannot read one is told when it comes to it.
    """
    if not own.wants or (offered.durability == "persistent" and offered.keeper is None):
        return []
    reason = unmet(offered.qos, own, acks=offered.acks)
    if reason:
        change = smallest_change(offered.qos, own.qos)
        return [NotMatched(own.name, station, False, "", reason, change)]
    if offered.keeper is not None:
        return []
    wants = {want.type: want for want in own.wants}
    formats = [fmt for fmt in map(their_format, offered.formats) if fmt is not None and fmt.name in wants]
    reasons = [(fmt.name, unreadable(fmt, wants[fmt.name], own_format)) for fmt in formats]
    return [NotMatched(own.name, station, False, *found) for found in reasons if found[1]]

"""Chooses what carries the events of a channel to stations of the host: which ring, or their links.

A lane is a ring of a station: a full one, or one that is read slowly, does not hold up another. Each is made
when a channel first needs it.

    NORMAL        channels that lose nothing
    HIGH          those of them whose events are of a high priority unless they say another
    BEST_EFFORT   channels that may lose events: nobody holds the writer up, and whoever falls behind knows
                  what it missed; see `heliograph.links.broadcast.best_effort_reader`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from heliograph.channel.channel import Channel

NORMAL: Final = 1
"""The first one."""
HIGH: Final = 2
BEST_EFFORT: Final = 3
HIGH_PRIORITY: Final = 4
"""From which priority of a channel on its events go in the lane of their own."""


def why_by_link(channel: Channel[Any]) -> str:
    """Why the events of a channel go by links instead of a ring; empty when they are broadcast."""
    if channel.store is not None or channel.qos.durability != "volatile":
        return "its events are kept"
    if channel.monitor is not None:
        return "its receivers acknowledge"
    if channel.qos.overflow_policy == "coalesce":
        return "of each key only the newest event waits"
    if channel.qos.reliability == "reliable" and channel.qos.overflow_policy != "block":
        return "it is reliable and may lose events, and then every station loses others"
    return ""


def lane_of(channel: Channel[Any]) -> int:
    """Which ring carries the events of a channel that is broadcast."""
    if channel.qos.reliability == "best-effort":
        return BEST_EFFORT
    return HIGH if channel.qos.priority >= HIGH_PRIORITY else NORMAL

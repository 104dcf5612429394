"""What a station advertises of itself and of its channels: formats, policies, interest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.links.interest.filter_wire import to_data
from heliograph.links.session import messages as m
from heliograph.model.compatibility import defaults_of
from heliograph.model.event import info_of
from heliograph.qos.policies import policies_of

if TYPE_CHECKING:
    from heliograph.channel.channel import Channel
    from heliograph.model.event import Event


class RemoteStation(msgspec.Struct, frozen=True):
    """Another station of the domain, as it describes itself."""

    station: int
    name: str
    pid: int
    channels: tuple[m.ChannelState, ...]


def describe(
    channel: Channel[Any], apart_from: object | None = None, *, is_derived_here: bool = False
) -> m.ChannelState:
    """What to tell others of a channel: what receivers here want, and workers to which it is handed on.

    What a worker itself is told is without what that one wants. A station that derives nothing is told what
    is derived here, too.
    """
    wants: dict[bytes, m.Want] = {}
    relayed = [relay.relayed for relay in channel.neighbours.relays(apart_from)]
    behind: list[m.ChannelState] = [state for state in relayed if state is not None]
    receivers = channel.neighbours.local_receivers()
    if is_derived_here:
        receivers += channel.neighbours.asked_taps()
    store = channel.store
    for receiver in receivers:
        selection = receiver.selection
        tree = None if selection.tree is None else to_data(selection.tree.tree)
        sources = None if selection.sources is None else tuple(sorted(selection.sources))
        for cls in selection.conditions:
            info = info_of(cls)
            defaults = () if channel.qos.missing == "refuse" else tuple(sorted(defaults_of(cls)))
            want = m.Want(info.name, info.format.id, tree, sources, defaults, _is_made(cls))
            # Twenty consumers that want the same are one want.
            wants[m.encode(want)] = want
    wants.update({m.encode(want): want for state in behind for want in state.wants})
    return m.ChannelState(
        channel.name,
        tuple(info_of(cls).format.id for cls in channel.types),
        channel.qos.reliability,
        channel.qos.durability,
        len(receivers) + sum(state.consumers for state in behind),
        tuple(wants.values()),
        store.partition if store is not None and store.kept_here else None,
        channel.monitor is not None,
        suspended=getattr(channel.suspended_by(""), "owner", None),
        policies=policies_of(channel.qos) if store is not None and store.kept_here else None,
        groups=tuple(sorted({*channel.neighbours.groups(), *(g for state in behind for g in state.groups)})),
        discovered=channel.discovered,
        answerers=channel.answerers,
        offered_state=0 if channel.offered_state is None else channel.offered_state.number,
        derived=_derived(channel),
        admitted=_admitted(channel),
        parameters=channel.declared_parameters,
    )


def _derived(channel: Channel[Any]) -> m.Derived | None:
    derives = channel.derives
    return None if derives is None else m.Derived(derives.derivation.as_data(), derives.is_asked)


def _admitted(channel: Channel[Any]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """What the manager of this station says, and no other: each says it itself."""
    admission = channel.neighbours.own_admission
    if admission is None:
        return None
    return tuple(sorted(admission.suppliers)), tuple(sorted(admission.groups))


def _is_made(cls: type[Event]) -> bool:
    from heliograph.codec.dynamic.classes import is_made  # noqa: PLC0415 - most programs have the classes of their events

    return is_made(cls)


def nothing_of(channel: Channel[Any]) -> m.ChannelState:
    """What a station tells that wants nothing of a channel."""
    return m.ChannelState(channel.name, (), channel.qos.reliability, channel.qos.durability, 0, ())


def as_of_now(state: m.ChannelState, channel: Channel[Any]) -> m.ChannelState:
    """With how far the partition that is kept here is at this moment."""
    if state.keeper is None or channel.store is None:
        return state
    return msgspec.structs.replace(state, watermark=channel.store.watermark, epochs=channel.store.epochs)

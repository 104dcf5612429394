"""What the channels of one station share: clock, dispatch pools, timers, store factories, hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.configuration import Filters

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from heliograph.channel.ack_protocol import OpenCoordinator
    from heliograph.channel.channel import Channel
    from heliograph.channel.dispatch.station_pools import Pools
    from heliograph.channel.explain import Why
    from heliograph.channel.history.operations import RemoteOperations
    from heliograph.channel.history.store import HistoryStore, OnDurable
    from heliograph.channel.observer import Recording
    from heliograph.channel.parameters import RemoteParameters
    from heliograph.channel.publish.acks import AckMonitor
    from heliograph.channel.publish.delayed import LaterStore
    from heliograph.channel.publish.worker_acks import WorkerAcks
    from heliograph.channel.queueing.history_merge import LateJoin
    from heliograph.channel.request_reply import RemoteAnswerers
    from heliograph.channel.resync.subscription import RemoteStates
    from heliograph.model.event import Event, Header
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Ports
    from heliograph.runtime.timers import Timers


class ChannelContext(msgspec.Struct, frozen=True):
    """See the module."""

    ports: Ports
    pools: Pools
    timers: Timers
    next_station_seq: Callable[[], int]
    new_supplier_name: Callable[[], str]
    loop: Callable[[], asyncio.AbstractEventLoop]
    on_error: Callable[[str, Header | None, BaseException], None]
    open_store: Callable[[str, Callable[[], tuple[type[Event], ...]], OnDurable, QoS], HistoryStore] | None
    """Opens the store of a journalled channel: (name, types, what to tell, QoS); None without a folder."""
    open_desk: OpenCoordinator
    open_monitor: Callable[[str, QoS, Callable[..., object], Callable[..., object]], AckMonitor]
    """Makes the monitor of a channel: (channel, its QoS, how to send again, what to do when it gives up)."""
    open_channel: Callable[[str, tuple[type[Event], ...], QoS], Channel[Any]]
    """Opens another channel of the station; what is open keeps its quality of service."""
    changed: Callable[[Channel[Any]], object] = lambda _: None
    """Told, without any lock, when what a channel's receivers want or the types that it carries changed."""
    closed: Callable[[Channel[Any]], object] = lambda _: None
    """Told, without any lock, when a channel has been closed: its name is free."""
    fetch_kept: Callable[[Channel[Any], LateJoin], object] | None = None
    """Fetches what other stations have kept in memory for a receiver that joined late; None without any."""
    meet_stations: Callable[[], object] = lambda: None
    """Waits, for a while, until the stations of the domain that are there have said what they keep."""
    forget_dead: Callable[[frozenset[str]], frozenset[str]] = lambda _: frozenset()
    """Lets go of linked stations whose process has ended; which of the given stations those are."""
    open_kept: Callable[[str, tuple[type[Event], ...]], Channel[Any] | None] = lambda _, __: None
    """Opens a channel that is there or has a history; None when there is none of that name."""
    open_later: Callable[[str, tuple[type[Event], ...], bool], LaterStore | None] | None = None
    """Opens where events wait that are delivered later: (channel, types, whether to make it)."""
    priority: int | None = None
    """Of receivers that name none; None: events have their own."""
    filtering: bool = True
    filters: Callable[[str], Filters] = lambda _: Filters()
    """What the station's configuration lets into a channel of that name, and out of it."""
    settling: Callable[[QoS], WorkerAcks | None] = lambda _: None
    """Finds out which events of another station all receivers of a channel here are done with."""
    suspended: Callable[[str], str | None] = lambda _: None
    """The owner who suspended a persistent channel in an earlier life."""
    remote_answerers: RemoteAnswerers | None = None
    """The answerers of linked stations; None without any."""
    remote_states: RemoteStates | None = None
    """The states that linked stations offer; None without any."""
    remote_parameters: RemoteParameters | None = None
    """The parameters that linked stations declare; None without any."""
    remote_operations: RemoteOperations | None = None
    """The keepers of linked stations; None without any."""
    station: str = ""
    """Which station this is, for people."""
    why: Callable[[Channel[Any], Any, str], Why] | None = None
    """Why a receiver, given its name, got an event or did not."""
    observe: Callable[[str, QoS], Recording | None] = lambda _, __: None
    """What is told the outcome of each of a channel's events; None: nothing is."""
    derive: Callable[..., Any] | None = None
    """Opens what is derived of a channel; see `heliograph.derived.derivations`."""

"""A snapshot of a station: its channels, receivers, suppliers, links, journal and durable consumers.

    snapshot = station.snapshot()
    snapshot.channels[0].pushed, snapshot.channels[0].receivers[0].pending

Other stations of the domain answer with theirs (`ask_all`), so one face shows a whole domain. Counters count
up from when a channel was opened; `heliograph.monitoring.rates` makes rates of two snapshots.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph._version import __version__
from heliograph.channel.derived_channel import stats_of
from heliograph.channel.receive.consumer import Consumer, GroupReceiver
from heliograph.channel.receive.subscription import (
    AsyncSubscription,
    InlineSubscription,
    QueuedReceiver,
    Receiver,
)
from heliograph.delivery.latency_histogram import LatencyCounts  # noqa: TC001 - msgspec reads it
from heliograph.derived.tap import Tap
from heliograph.errors import QueryFailed
from heliograph.journal.consumers.lag import OUTSIDE
from heliograph.journal.consumers.outside_readers import noted
from heliograph.journal.names import GROUP_PLACE
from heliograph.journal.store import JournalStore
from heliograph.journal.writing.producer_leases import PREFIX
from heliograph.links.session.gateway import PeerGateway
from heliograph.model.event import info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.channel.derived_channel import DerivedStats, Derives
    from heliograph.channel.ledger import QueueCounts
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.runtime.ports import Disk, Ports

TOPIC: Final = "monitoring.snapshot"
WHY: Final = "monitoring.why"
"""Questions that `heliograph.monitoring.why` answers."""
MAX_CHANNELS: Final = 2_000
"""Channels of a snapshot; `channels_left_out` says how many more there are."""
MAX_RECEIVERS: Final = 200
"""Receivers, suppliers and durable consumers that a snapshot lists of each channel."""
MAX_WHERE: Final = 500
"""Characters of a filter in a snapshot."""
MAX_ROWS: Final = 20_000
"""Receivers of all channels together, about 6 MB; further channels list none."""
DEAD: Final = (".dead", ".dead_letters", ".dead-letters")
"""Ends of names by which channels of dead letters are known before one is added."""
ASK_LIMIT: Final = 5.0
"""Seconds that the other stations of a domain have to answer."""


class ReceiverSnapshot(msgspec.Struct, frozen=True):
    """One receiver, or the gateway to another station, and what became of the events that matched."""

    name: str
    kind: str
    """inline, callback, async, durable, consumer, group, gateway, or tap of a derived channel."""
    group: str | None
    where: str | None
    types: tuple[str, ...]
    delivered: int
    failed: int
    expired: int
    dropped: dict[str, int]
    """By reason, as in `heliograph.channel.ledger.QueueCounts`."""
    pending: int
    waiting_bytes: int
    limit: int | None
    """Events that its queue holds; None where there is no such bound."""
    suspended: bool = False
    """Whether its callback has taken nothing for so long that events for it are dropped."""
    saved_bytes: int = 0
    """Of a derived channel: what it was spared."""


class DerivedSnapshot(msgspec.Struct, frozen=True):
    """What a derived channel is derived from, and what that has saved in this station."""

    original: str
    select: str
    where: str | None
    derived: int
    """Events that were derived here, once for all receivers."""
    saved_events: int
    """Events that the filter left out."""
    saved_bytes: int
    """Of those, and of columns that were left out, as `heliograph.codec.sizes` estimates it: for each
    receiver that gets all of it."""


class SupplierSnapshot(msgspec.Struct, frozen=True):
    name: str
    pushed: int
    is_remote: bool
    """Whether it stands for a station that sends its events here."""


class JournalSnapshot(msgspec.Struct, frozen=True):
    """The partition of a channel's history that its station keeps."""

    partition: str
    earliest: int
    end: int
    """The offset behind the last durable event."""
    bytes: int
    heads: int
    segments: int
    waiting_bytes: int
    """In line for the disk."""
    failed: int
    damaged: int
    dropped_events: int
    """By retention."""
    keeper_failures: int


class DurableSnapshot(msgspec.Struct, frozen=True):
    """How far a durable consumer, or a group, is in the partition that this station keeps."""

    name: str
    is_group: bool
    acknowledged: int
    lag: int
    """Events that it has not acknowledged, whether its filter wants them or not."""
    owner: str
    """Or that it is a reader outside of the station, as a query of Spark is."""
    seen_ts: int
    """When its owner was last heard of, in ns since 1970."""


class ChannelSnapshot(msgspec.Struct, frozen=True):
    name: str
    types: tuple[str, ...]
    durability: str
    reliability: str
    pushed: int
    matched: int
    departed_delivered: int
    departed_dropped: dict[str, int]
    """What receivers that have been closed had counted."""
    delayed: int
    kept: int
    suspended: bool
    remote_consumers: int
    unmatched: dict[str, tuple[str, ...]]
    """Stations to or from which events do not go, and why."""
    groups_apart: dict[str, tuple[str, ...]]
    suppliers: tuple[SupplierSnapshot, ...]
    receivers: tuple[ReceiverSnapshot, ...]
    receivers_left_out: int = 0
    journal: JournalSnapshot | None = None
    durable: tuple[DurableSnapshot, ...] = ()
    lifespan: float | None = None
    latency: float | None = None
    """Within how many seconds its events are to be delivered, where the channel says so."""
    latencies: LatencyCounts | None = None
    """How long events waited to be delivered, where the channel records deliveries."""
    holds_dead_letters: bool = False
    """Whether events go into it that could not be delivered in another channel."""
    derived: DerivedSnapshot | None = None
    """Of a derived channel."""
    parameters: dict[str, bool | int | float | str] = {}
    """Those that are declared here, with the values that hold."""

    @property
    def delivered(self) -> int:
        return self.departed_delivered + sum(one.delivered for one in self.receivers)

    @property
    def pending(self) -> int:
        return sum(one.pending for one in self.receivers)

    @property
    def dropped(self) -> dict[str, int]:
        """By reason, of all receivers that it has or had."""
        found = dict(self.departed_dropped)
        for one in self.receivers:
            for reason, n in one.dropped.items():
                found[reason] = found.get(reason, 0) + n
        return found

    @property
    def failed(self) -> int:
        return sum(one.failed for one in self.receivers)

    @property
    def expired(self) -> int:
        return sum(one.expired for one in self.receivers)

    @property
    def lag(self) -> int:
        """Of the durable consumer that is furthest behind."""
        return max((one.lag for one in self.durable), default=0)


class LinkSnapshot(msgspec.Struct, frozen=True):
    """The link to one other station."""

    peer: str
    name: str
    connected: bool
    carrier: str
    carrier_reason: str
    events_sent: int
    bytes_sent: int
    bytes_received: int
    resent: int
    unacknowledged: int
    lost: int
    missed: int
    overtaken: int
    suspected: bool


class StationSnapshot(msgspec.Struct, frozen=True):
    """One station at one instant."""

    station: str
    name: str
    domain: str | None
    pid: int
    version: str
    time_ns: int
    """When, by its own wall clock."""
    monotonic_ns: int
    """The same by a clock that never goes back; rates are made of it."""
    uptime_s: float
    channels: tuple[ChannelSnapshot, ...]
    channels_left_out: int = 0
    links: tuple[LinkSnapshot, ...] = ()
    stalls: dict[str, int] = {}
    """What could not be done at once because the host had no thread or descriptor left."""
    busy_s: float = 0.0
    """For how long the queued callback has been running that runs longest."""
    free_bytes: int | None = None
    """On the disk of its folder."""
    folder: str | None = None

    def channel(self, name: str) -> ChannelSnapshot | None:
        return next((one for one in self.channels if one.name == name), None)


class StationParts(msgspec.Struct, frozen=True):
    """What a snapshot is taken of: the parts of a station that know the numbers."""

    id: int
    name: str
    domain: str | None
    folder: str | None
    opened_ns: int
    ports: Ports
    mesh: Mesh | None
    channels: Callable[[], Iterable[Channel[Any]]]
    busy: Callable[[], float]
    stalls: Callable[[], dict[str, int]]
    latencies: Callable[[str], LatencyCounts | None]


def take(station: StationParts, only: str | None = None) -> StationSnapshot:
    """The snapshot of a station, of one channel and what is derived from it if it is named."""
    ports = station.ports
    channels = [one for one in station.channels() if only is None or only in (one.name, _original(one))]
    found: list[ChannelSnapshot] = []
    room = MAX_ROWS
    for one in channels[:MAX_CHANNELS]:
        told = _channel(one, min(room, MAX_RECEIVERS), station)
        if told is not None:
            found.append(told)
            room -= len(told.receivers)
    now = ports.clock.monotonic_ns()
    return StationSnapshot(
        station=f"{station.id:016x}",
        name=station.name,
        domain=station.domain,
        pid=os.getpid(),
        version=__version__,
        time_ns=ports.clock.time_ns(),
        monotonic_ns=now,
        uptime_s=(now - station.opened_ns) / 1e9,
        channels=tuple(sorted(found, key=lambda one: one.name)),
        channels_left_out=max(0, len(channels) - MAX_CHANNELS),
        links=() if station.mesh is None else tuple(_links(station.mesh)),
        stalls=station.stalls(),
        busy_s=station.busy(),
        free_bytes=None if ports.disk is None else ports.disk.free(),
        folder=station.folder,
    )


def _original(channel: Channel[Any]) -> str | None:
    return None if channel.derives is None else channel.derives.derivation.channel


def answer_others(station: StationParts) -> None:
    """Tell other stations of the domain when they ask."""
    from heliograph.links.session.rpc import reply_apart  # noqa: PLC0415 - only stations of a domain are asked

    assert station.mesh is not None
    tasks = station.ports.tasks

    def asked(_: int, body: msgspec.Raw, reply: Callable[[Any], None]) -> None:
        only = msgspec.msgpack.decode(body, type=str | None)

        reply_apart(tasks, "tells of this station", reply, partial(take, station, only))

    station.mesh.answer(TOPIC, asked)


def ask_all(
    mesh: Mesh | None, only: str | None = None, limit: float = ASK_LIMIT
) -> tuple[list[StationSnapshot], list[str]]:
    """The snapshots of the other stations of a domain, and the names of those that do not answer."""
    found: list[StationSnapshot] = []
    silent: list[str] = []
    for other in () if mesh is None else mesh.stations():
        try:
            told = mesh.ask(other.station, TOPIC, only, limit)  # type: ignore[union-attr]  # there are none without
            found.append(msgspec.msgpack.decode(told, type=StationSnapshot))
        except (QueryFailed, msgspec.DecodeError):
            silent.append(other.name or f"{other.station:016x}")
    return found, silent


def _channel(channel: Channel[Any], most: int, station: StationParts) -> ChannelSnapshot | None:
    """None for one that is just being closed."""
    if channel.closed:
        return None
    stats = channel.stats()
    receivers = {one.name: one for one in channel.receivers()}
    store = channel.store
    durable: tuple[DurableSnapshot, ...] = ()
    if isinstance(store, JournalStore):
        durable = (*_durable(store), *_outside(store, channel.name, station.ports.disk))[:MAX_RECEIVERS]
    raised = channel.raised()
    derived = None if channel.derives is None else (channel.derives, stats_of(channel, channel.derives))
    saved = {} if derived is None else {name: one.bytes for name, one in derived[1].receivers.items()}
    listed = [
        msgspec.structs.replace(
            _receiver(receivers[name], counts, frozenset(one.name for one in durable), raised),
            saved_bytes=saved.get(name, 0),
        )
        for name, counts in list(stats.consumers.items())[:most]
        if name in receivers
    ]
    return ChannelSnapshot(
        name=channel.name,
        types=channel.type_names,
        durability=channel.qos.durability,
        reliability=channel.qos.reliability,
        pushed=stats.pushed,
        matched=stats.matched,
        departed_delivered=stats.departed.delivered,
        departed_dropped=dict(stats.departed.dropped),
        delayed=stats.delayed,
        kept=stats.kept,
        suspended=channel.suspended is not None,
        remote_consumers=channel.neighbours.remote_consumers(),
        unmatched=dict(stats.unmatched),
        groups_apart=dict(stats.groups_apart),
        suppliers=tuple(
            SupplierSnapshot(name, pushed, is_remote)
            for name, pushed, is_remote in channel.neighbours.suppliers()[:MAX_RECEIVERS]
        ),
        receivers=tuple(sorted(listed, key=lambda one: (one.kind == "gateway", one.name))),
        receivers_left_out=max(0, len(stats.consumers) - most),
        journal=_journal(store) if isinstance(store, JournalStore) else None,
        durable=durable,
        lifespan=channel.qos.lifespan,
        latency=channel.qos.latency,
        latencies=station.latencies(channel.name),
        holds_dead_letters=channel.holds_dead_letters or channel.name.endswith(DEAD),
        derived=_derived(derived),
        parameters=_parameters(channel),
    )


def _derived(stats: tuple[Derives, DerivedStats] | None) -> DerivedSnapshot | None:
    if stats is None:
        return None
    derives, found = stats
    derivation = derives.derivation
    return DerivedSnapshot(
        original=derivation.channel,
        select=derivation.projection.text.text[:MAX_WHERE],
        where=None if derivation.where is None else str(derivation.where)[:MAX_WHERE],
        derived=found.counts.derived,
        saved_events=found.saved.events,
        saved_bytes=found.saved.bytes,
    )


def _parameters(channel: Channel[Any]) -> dict[str, bool | int | float | str]:
    if not channel.declared_parameters:
        return {}
    return {name: state.value for name, state in channel.parameters.states().items()}


def _receiver(
    receiver: Receiver, counts: QueueCounts, durable: frozenset[str], raised: Mapping[str, int]
) -> ReceiverSnapshot:
    queue = receiver.queue if isinstance(receiver, QueuedReceiver) else None
    tree = receiver.selection.tree
    return ReceiverSnapshot(
        name=receiver.name,
        kind=_kind(receiver, durable),
        group=receiver.group,
        where=None if tree is None else str(tree)[:MAX_WHERE],
        types=tuple(sorted({info_of(cls).name for cls in receiver.selection.conditions})),
        delivered=counts.delivered,
        failed=max(counts.failed, raised.get(receiver.name, 0)),
        expired=counts.expired,
        dropped=dict(counts.dropped),
        pending=counts.pending,
        waiting_bytes=counts.waiting_bytes,
        limit=None if queue is None else queue.limit,
        suspended=queue is not None and queue.suspended,
    )


def _kind(receiver: Receiver, durable: frozenset[str]) -> str:
    if isinstance(receiver, Tap):
        return "tap"
    if isinstance(receiver, PeerGateway):
        return "gateway"
    if isinstance(receiver, InlineSubscription):
        return "inline"
    if receiver.group is not None or isinstance(receiver, GroupReceiver):
        return "group"
    if receiver.name in durable:
        return "durable"
    if isinstance(receiver, AsyncSubscription):
        return "async"
    return "consumer" if isinstance(receiver, Consumer) else "callback"


def _journal(store: JournalStore) -> JournalSnapshot:
    stats = store.stats()
    return JournalSnapshot(
        partition=store.partition,
        earliest=stats.earliest,
        end=stats.watermark,
        bytes=stats.bytes,
        heads=stats.heads,
        segments=stats.segments,
        waiting_bytes=stats.waiting,
        failed=stats.failed,
        damaged=stats.damaged,
        dropped_events=stats.dropped_events,
        keeper_failures=stats.keeper_failures,
    )


def _durable(store: JournalStore) -> Iterator[DurableSnapshot]:
    earliest = store.earliest
    for state in store.cursor_states():
        position = state.positions.get(store.partition)
        if position is None or state.name.startswith(PREFIX):
            continue
        end, begin = store.watermark, max(position.low, earliest)
        beyond = sum(begin <= offset < end for offset in position.acks)
        yield DurableSnapshot(
            name=state.name.removeprefix(GROUP_PLACE),
            is_group=state.name.startswith(GROUP_PLACE),
            acknowledged=position.low,
            lag=max(0, end - begin - beyond),
            owner=state.owner,
            seen_ts=state.seen_ts,
        )


def _outside(store: JournalStore, channel: str, disk: Disk | None) -> Iterator[DurableSnapshot]:
    """Readers that no station knows, such as queries of Spark, as they have said of themselves."""
    for one in () if disk is None else noted(disk, channel):
        position = one.positions.get(store.partition)
        if position is not None:
            lag = max(0, store.watermark - max(position, store.earliest))
            yield DurableSnapshot(one.name, False, position, lag, OUTSIDE, one.seen_ts)


def _links(mesh: Mesh) -> Iterator[LinkSnapshot]:
    names = {f"{other.station:016x}": other.name for other in mesh.stations()}
    suspected = {f"{station:016x}" for station in mesh.suspected}
    for link in mesh.stats():
        yield LinkSnapshot(
            peer=link.peer,
            name=names.get(link.peer, ""),
            connected=link.connected,
            carrier=link.carrier,
            carrier_reason=link.carrier_reason,
            events_sent=link.events_sent,
            bytes_sent=link.bytes_sent,
            bytes_received=link.bytes_received,
            resent=link.resent,
            unacknowledged=link.unacknowledged,
            lost=link.lost,
            missed=sum(link.missed.values()),
            overtaken=sum(link.overtaken.values()),
            suspected=link.peer in suspected,
        )

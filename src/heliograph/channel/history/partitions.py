"""The history of a persistent channel: its partitions, and the position where each receiver begins."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import msgspec

from heliograph.channel.history.feed import Feed, JournalQueue
from heliograph.channel.history.positions import Cursors, PartitionPosition
from heliograph.channel.selection import NOW, OffsetRange, Point, for_version
from heliograph.errors import NotPossible, QueryFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from heliograph.channel.history.store import HistoryPartition, HistoryStore, OnDurable, SupplierLease
    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.channel.selection import Selection
    from heliograph.model.event import Event, Header
    from heliograph.qos.dispatch_order import Ranking
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Ports


class Lease:
    """A named supplier, leased in several partitions; see
    `heliograph.channel.history.store.SupplierLease`."""

    def __init__(self, epoch: int, leases: tuple[SupplierLease, ...]) -> None:
        self.epoch = epoch
        self.last_sequence = max(lease.last_sequence for lease in leases)
        self._leases = leases

    def close(self) -> None:
        for lease in self._leases:
            lease.close()


class JournalServices(Protocol):
    """What the histories of a station share."""

    @property
    def ports(self) -> Ports: ...
    @property
    def on_error(self) -> Callable[[str, Header | None, BaseException], None]: ...
    @property
    def meet_stations(self) -> Callable[[], object]: ...
    @property
    def open_store(
        self,
    ) -> Callable[[str, Callable[[], tuple[type[Event], ...]], OnDurable, QoS], HistoryStore] | None: ...


class Journalled:
    """See the module."""

    def __init__(
        self, channel: str, qos: QoS, services: JournalServices, types: Callable[[], tuple[type[Event], ...]]
    ) -> None:
        assert services.open_store is not None, "the station refuses persistent channels without a folder"
        self._channel = channel
        self._qos = qos
        self._services = services
        self.feed = Feed(services.ports.tasks)
        self._leases: WeakSet[Lease] = WeakSet()
        self.store: HistoryStore = services.open_store(channel, types, self.feed.durable, qos)
        self.feed.begin(self.store)

    def place(self, selection: Selection, start: Point, until: Point) -> Selection:
        """A selection with the offsets at which it begins and ends in each partition."""
        start = "earliest" if start is None else start
        partitions = self._within_reach()
        self._check_point(start, partitions)
        self._check_point(until, partitions)
        ends = None
        if until is not None:
            ends = {p.partition: self._offset(p, until) for p in partitions if _speaks_of(until, p)}
            partitions = [p for p in partitions if p.partition in ends]
        begins = self._begins(partitions, start, all_of_them=ends is not None)
        later = None if ends is not None else partial(self._begin, start)
        return msgspec.structs.replace(selection, span=OffsetRange(start, begins, ends, later))

    def meet_keepers(self) -> None:
        """Before a name is taken that is exclusive: of two keepers that take it at once, one knows the other.

        Each has said that it keeps the channel before it asks what the others keep.
        """
        self._services.meet_stations()

    def resume(self, selection: Selection, name: str) -> tuple[Selection, Cursors]:
        """The cursors of a durable consumer, and a selection that goes on where it was."""
        span = selection.span
        cursors = Cursors(name, lambda partition, met: self._first_begin(span, partition, met, cursors))
        begins: dict[str, int] = {}
        # In an order that all stations agree on: of two who try at once one has it.
        wanted = [p for p in self.hosts() if span.ends is None or p.partition in span.ends]

        def unless_away(partition: HistoryPartition) -> AbstractContextManager[None]:
            can_wait = span.ends is None and partition is not self.store
            return suppress(QueryFailed) if can_wait else nullcontext()

        held: list[HistoryPartition] = []
        try:
            # All are held before it begins in any: where depends on whether it was in one of them.
            for partition in wanted:
                with unless_away(partition):
                    cursors.hold(partition)
                    held.append(partition)
            for partition in held:
                with unless_away(partition):
                    begins[partition.partition] = cursors.open(partition, partition.watermark)
        except BaseException:
            cursors.close()
            raise
        later = None if span.ends is not None else cursors.open
        return msgspec.structs.replace(
            selection, span=OffsetRange(span.start, begins, span.ends, later)
        ), cursors

    def supplier(self, name: str) -> Lease:
        """The lease of a named supplier: wherever it pushed before, it goes on behind its last event.

        It is leased in all partitions within reach, in one order, so that of two who try one has it.
        """
        leases: dict[str, SupplierLease] = {}
        try:
            for partition in self.hosts():
                leases[partition.partition] = partition.supplier(name)
            if self.store.partition not in leases:
                leases[self.store.partition] = self.store.supplier(name)
        except BaseException:
            for lease in leases.values():
                lease.close()
            raise
        lease = Lease(leases[self.store.partition].epoch, tuple(leases.values()))
        self._leases.add(lease)
        return lease

    def hosts(self) -> list[HistoryPartition]:
        """Those within reach, any of which may hand out to a group: in an order that all agree on."""
        return sorted(self._within_reach(), key=lambda p: p.partition)

    def close(self) -> None:
        """Free the names that are held, and let go of the store."""
        for lease in tuple(self._leases):
            lease.close()
        self.store.close()

    def queue(
        self, name: str, selection: Selection, on_ready: Callable[[EventQueue], None], ranking: Ranking | None
    ) -> JournalQueue:
        """A receiver's queue. Without a span, a gateway's, it has what is kept here, from now on."""
        span = selection.span
        places = [self._place(partition, span) for partition in self.feed.partitions.values()]
        return JournalQueue(
            name,
            places=[place for place in places if place is not None],
            ends=span.ends is not None,
            feed=self.feed,
            conditions=selection.conditions,
            begin=span.later,
            of_version=partial(for_version, selection),
            on_gap=lambda gap: self._services.on_error(name, None, gap),
            clock=self._services.ports.clock,
            tasks=self._services.ports.tasks,
            limit=selection.queue or self._qos.queue,
            byte_limit=selection.queue_bytes or self._qos.queue_bytes,
            types=selection.conditions,
            priority=selection.priority,
            ranking=ranking,
            on_ready=on_ready,
        )

    def _place(self, partition: HistoryPartition, span: OffsetRange) -> PartitionPosition | None:
        """Where a queue is in a partition; None: it does not want it, or finds out when it has met it."""
        name = partition.partition
        if span.ends is not None and name not in span.ends:
            return None
        until = None if span.ends is None else span.ends[name]
        if name in span.begins:
            return PartitionPosition(partition, span.begins[name], behind=True, until=until)
        return (
            PartitionPosition(partition, until=until)
            if partition is self.store and span.start in NOW
            else None
        )

    def _begins(
        self, partitions: Iterable[HistoryPartition], start: Point, *, all_of_them: bool
    ) -> dict[str, int]:
        """The first offset wanted, per partition. One whose keeper does not answer is asked again later."""
        begins: dict[str, int] = {}
        for partition in partitions:
            if start in NOW and partition is self.store and self.store.kept_here and not all_of_them:
                continue  # its next event is the first
            try:
                begins[partition.partition] = self._offset(partition, start)
            except QueryFailed:
                if all_of_them or partition is self.store:
                    raise
        return begins

    def _begin(self, start: Point, partition: HistoryPartition, met: int) -> int:
        """Where a receiver begins in a partition that it meets later."""
        if start in NOW:
            return met
        # An offset was one of the partition that was known then.
        return self._offset(partition, "earliest" if type(start) is int else start)

    def _first_begin(self, span: OffsetRange, partition: HistoryPartition, met: int, cursors: Cursors) -> int:
        """Where a durable consumer begins that has never been in a partition.

        If it was in others before, its "now" is long past, and what was kept here since then is for it.
        """
        if span.start in NOW and cursors.goes_on:
            return partition.earliest
        begin = span.begins.get(partition.partition)
        return self._begin(span.start, partition, met) if begin is None else begin

    def _within_reach(self) -> list[HistoryPartition]:
        """The partitions whose keepers are there; without any, the one whose keeper is asked for."""
        return [p for p in self.feed.partitions.values() if p.reachable] or [self.store]

    def _check_point(self, point: Any, partitions: list[HistoryPartition]) -> None:
        match point:
            case None | "earliest" | "now" | "latest":
                return
            case int() if point >= 0 and not isinstance(point, bool):
                if len(partitions) > 1:
                    names = ", ".join(p.partition for p in partitions)
                    raise NotPossible(
                        self._channel,
                        f"{point} is an offset, and its history has several partitions: say "
                        f"{{partition: offset}} of {names}",
                    )
                return
            case datetime() if point.tzinfo is not None:
                return
            case Mapping() if all(type(n) is str and type(o) is int and o >= 0 for n, o in point.items()):
                unknown = sorted(point.keys() - self.feed.partitions.keys())
                if not unknown:
                    return
                raise NotPossible(
                    self._channel,
                    f"{unknown[0]!r} is no partition of its history that is known here: "
                    f"{', '.join(self.feed.partitions)} are",
                )
        raise NotPossible(
            self._channel,
            f"{point!r} is no place in its history: 'earliest', 'now', 'latest', an offset, an aware "
            "datetime and {partition: offset} are",
        )

    def _offset(self, partition: HistoryPartition, point: Any) -> int:
        if isinstance(point, Mapping):
            point = point.get(partition.partition, "earliest")
        if point == "earliest":
            return partition.earliest
        if point in NOW:
            return partition.watermark
        if isinstance(point, datetime):
            return partition.offset_at(round(point.timestamp() * 1e6) * 1000)
        offset: int = point
        return offset


def _speaks_of(until: Point, partition: HistoryPartition) -> bool:
    """Whether an end says anything of a partition; one that names others leaves it out."""
    return not isinstance(until, Mapping) or partition.partition in until

"""The queue of a channel in front of the ring: batches of suppliers, or events that wait for room.

Either there are rows, which the next thread that may write turns into one record, or events wait as in any
gateway's queue: while the ring is full or a station has paused the channel, and for events that say something
of their own. Before anything is queued, rows become items and are queued too (`spill`), so that a supplier's
events stay in order.

Rows are added under the lock of the channel's entry, and leave under that of the queue.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from heliograph.channel.publish.fast_path import ROW
from heliograph.codec.sizes import size_of
from heliograph.links.session.gateway import GatewayQueue
from heliograph.links.session.messages import UNIFORM, run_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.channel import Channel
    from heliograph.channel.ledger import QueueCounts
    from heliograph.channel.publish.fast_path import MakeHeader
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.links.session.wire_events import EventWriter, Said
    from heliograph.model.event import Event

OVERTAKEN: Final = "overtaken"
"""The reason of events that a station did not get because it stood still."""
MOST_ROWS: Final = 256
"""Rows of all suppliers from which on they are queued, and queues from which on there are rows at all."""


class RowGateway(Protocol):
    """What a queue with rows belongs to."""

    channel: Channel[Any]
    paused: bool
    made: int
    """Events of records that were made, but for those that pushing threads wrote from rows."""

    @property
    def queue(self) -> EventQueue: ...

    heads: dict[type[Event], tuple[bytes, int]]
    """How a lone event of a class begins, and the stream of its class, once all readers know it."""

    def held_up_by(self) -> set[int]:
        """The stations that events wait for now."""
        ...


class RowWriter(Protocol):
    """What rows are written by: a line of `heliograph.channel.publish.fast_path`."""

    due_ns: int

    def send_rows(self, of: PendingBatch) -> bool:
        """Write what a supplier has waiting; False when that cannot be now."""
        ...

    def arm_rows(self, of: PendingBatch) -> None:
        """Write it soon."""
        ...


class PendingBatch:
    """See `heliograph.channel.publish.fast_path.PendingRows`."""

    __slots__ = (
        "_arm_rows",
        "armed",
        "cls",
        "epoch",
        "gateway",
        "head",
        "make_header",
        "ones",
        "priority",
        "queue",
        "rows",
        "spills",
        "supplier",
        "write",
        "write_one",
    )

    def __init__(
        self, queue: BroadcastQueue, supplier: str, epoch: int, cls: type[Event], make_header: MakeHeader
    ) -> None:
        self.queue = queue
        self.gateway = queue.gateway
        self.supplier = supplier
        self.epoch = epoch
        self.priority = queue.default_priority
        self.cls = cls
        self.make_header = make_header
        self.rows: list[Any] = []
        self.armed = False
        self.spills = False
        """Whether its rows are just being queued, by who holds the lock of the channel's entry."""
        self.ones = 0
        """Events that were written by `write_one`."""
        self.head: tuple[bytes, int] | None = None
        """As in `RowGateway.heads`, once it is there."""
        self.write = queue.write_rows
        self.write_one: Callable[[Any, int, int, int], bool] = _not_yet
        self._arm_rows = queue.line.arm_rows

    def calls(self) -> tuple[Callable[[PendingBatch], bool], Callable[[], None], Callable[[], None]]:
        return self.write, self.left, self.arm

    def left(self) -> None:
        """The last row could not be written: it stays, or is queued where many of its size were too much."""
        last = self.rows[-ROW:]  # none when the broadcast's own task was faster
        if last and size_of(last[0]) * MOST_ROWS >= self.queue.byte_limit:
            self.queue.spill()
        elif not self.armed or self.queue.has_many_rows(len(self.rows) // ROW):
            self.arm()

    def arm(self) -> None:
        # A channel that is paused has its events in the queue, which has a limit for all suppliers together.
        if self.gateway.paused or self.queue.has_many_rows(len(self.rows) // ROW):
            self.queue.spill()
        else:
            self.armed = True
            self._arm_rows(self)

    def count_written(self) -> None:
        """All rows were written, by the thread that holds the lock of the channel's entry."""
        rows, queue = self.rows, self.queue
        events = len(rows) // ROW
        # One step: CPython looks for signals after calls only, and the one call is the last.
        queue.written += events
        rows.clear()

    def said(self, sequence: int, source_ts: int, place: int) -> Said:
        """What is said of the event of a row."""
        return self.supplier, self.epoch, sequence, source_ts, self.priority, place, None, None

    def lots(self, writer: EventWriter, rows: list[Any]) -> list[list[Any]]:
        """Rows as they become records: together, or one by one where the first is a large event."""
        if not writer.is_large(rows[0]):
            return [rows]
        return [rows[start : start + ROW] for start in range(0, len(rows), ROW)]

    def record(self, writer: EventWriter, head: tuple[bytes, int], rows: list[Any]) -> bytes:
        """Rows as one record."""
        if len(rows) == ROW:
            return b"".join(writer.lone(*head, rows[0], self.said(*rows[1:])))
        records = writer.rows(self.supplier, self.epoch, self.priority, rows)
        return run_bytes(UNIFORM, head[1], len(rows) // ROW, records)

    def as_items(self, rows: list[Any]) -> list[Item]:
        make, supplier, epoch = self.make_header, self.supplier, self.epoch
        by_row = zip(*(rows[place::ROW] for place in range(ROW)), strict=True)
        return [(event, make(event, supplier, epoch, *said), 0) for event, *said in by_row]


def _not_yet(_event: Any, _sequence: int, _source_ts: int, _place: int) -> bool:
    """Readers do not know the stream yet."""
    return False


class BroadcastQueue(GatewayQueue):
    """See the module."""

    line: RowWriter
    gateway: RowGateway
    default_priority: int
    """Of events that do not say another."""
    _rows_awaited = 0

    def __init__(self, name: str, **queue: Any) -> None:
        super().__init__(name, **queue)
        self._suppliers: dict[tuple[str, int], PendingBatch] = {}
        self.written = 0
        """Events that pushing threads wrote, each under the lock of the channel's entry."""
        self._missed: Counter[str] = Counter()
        self.left: list[Item] = []
        """What waited when it was closed."""
        self.takes_rows = self.limit >= MOST_ROWS

    def rows_of(self, supplier: str, epoch: int, cls: type[Event], make_header: MakeHeader) -> PendingBatch:
        key = (supplier, epoch)
        found = self._suppliers.get(key)
        if found is None:
            found = self._suppliers[key] = PendingBatch(self, supplier, epoch, cls, make_header)
        return found

    def supplier_left(self, supplier: str, epoch: int) -> None:
        self.spill()
        self._suppliers.pop((supplier, epoch), None)

    def write_rows(self, of: PendingBatch) -> bool:
        """Write what a supplier has waiting, in its pushing thread; False when that cannot be now.

        And what the others have, once that is much: each would wait for a push of its own that finds its time
        come, or for the line's own task, which a busy thread keeps from the interpreter.
        """
        send = self.line.send_rows
        if not send(of):
            return False
        if len(self._suppliers) > 1 and self._count_rows() >= MOST_ROWS:
            for other in self.waiting_rows():
                send(other)
        return True

    def waiting_rows(self) -> list[PendingBatch]:
        """Those of suppliers that have any."""
        return [of for of in self._suppliers.values() if of.rows]

    def peek(self) -> list[Item]:
        """What waits, rows too; all of it if the channel is still."""
        with self._lock:
            waiting = [item for band in self._bands.values() for item in band]
            return waiting + [item for of in self.waiting_rows() for item in of.as_items(of.rows[:])]

    def has_many_rows(self, own: int) -> bool:
        """Whether so many wait, of all suppliers, that they belong into the queue.

        Args:
            own: those of the supplier that asks. While they are less than its share the others are not
                counted, which each push would pay for; so there are never twice as many.
        """
        return own * len(self._suppliers) >= MOST_ROWS and self._count_rows() >= MOST_ROWS

    def take_rows(self, of: PendingBatch) -> list[Any]:
        """What a supplier has waiting, to be written before anything else; it counts as delivered."""
        with self._lock:
            rows = [] if of.spills else of.rows[:]
            # Not all: one may have been added since, which only takes the lock of the entry.
            del of.rows[: len(rows)]
            self._delivered += len(rows) // ROW
            self._quiet.notify_all()
        return rows

    def tell_quiet(self) -> None:
        """Rows were written: whoever waits until none is left looks again."""
        if self._rows_awaited:
            with self._lock:
                self._quiet.notify_all()

    def count_one_written(self) -> None:
        """The thread that holds the lock of the channel's entry wrote an event that was no row."""
        self.written += 1

    def count_overtaken(self, events: int, reason: str = OVERTAKEN) -> None:
        """Of what was written, or will be, a station did not get so many: it stood still, or was killed.

        They are told apart when they are asked for: pushing threads count what is delivered without the
        queue's lock.
        """
        with self._lock:
            self._missed[reason] += events

    @property
    def missed(self) -> int:
        """Events that were written, and that some station did not get."""
        return min(self._missed.total(), self._delivered + self.written + self.direct.done)

    def spill(self) -> None:
        """Let rows wait as items, before those that come now. Under the lock of the channel's entry."""
        for of in self.waiting_rows():
            items: list[Item] = []
            done = 0
            try:
                with self._lock:
                    of.spills = True
                    items = of.as_items(of.rows)
                if items:  # the broadcast's own task may have been faster
                    super().put_many(items)
                done = len(items)
            finally:  # what waits now is no row any more; after an interrupt that may be some of them
                last = self.last
                queued = done or max((n for n, item in enumerate(items, 1) if item[1] is last), default=0)
                del of.rows[: ROW * queued]
                of.spills = False

    def who_is_full(self) -> str:
        stations = sorted(self.gateway.held_up_by())
        return " and ".join(f"link to {station:016x}" for station in stations) or self.name

    def put(self, item: Item) -> None:
        self.spill()
        super().put(item)

    def put_many(self, items: Sequence[Item], *, largest: int | None = None) -> None:
        self.spill()
        super().put_many(items, largest=largest)

    def put_bulk(self, bulk: OutgoingBatch) -> None:
        for of in self.waiting_rows():
            of.write(of)
        self.spill()
        super().put_bulk(bulk)

    def put_extra(self, item: Item) -> None:
        self.spill()
        super().put_extra(item)

    def close(self, reason: str = "closed") -> None:
        self.spill()
        self.left = self.peek()
        super().close(reason)

    def wait_empty(self, timeout: float | None) -> bool:
        with self._lock:
            self._rows_awaited += 1
            try:
                return self._quiet.wait_for(
                    lambda: not self.waiting and not self._watched and not self._count_rows(), timeout
                )
            finally:
                self._rows_awaited -= 1

    def _counts(self, from_history: int = 0) -> QueueCounts:
        counts = super()._counts(from_history)
        delivered = counts.delivered + self.written
        pending, dropped = counts.pending + self._count_rows(), dict(counts.dropped)
        for reason, events in self._missed.items():
            # Some of them may still wait to be written for the others.
            some = min(events, delivered)
            delivered -= some
            if some:
                dropped[reason] = dropped.get(reason, 0) + some
        return msgspec.structs.replace(counts, delivered=delivered, pending=pending, dropped=dropped)

    def _count_rows(self) -> int:
        return sum([len(of.rows) for of in self._suppliers.values()]) // ROW

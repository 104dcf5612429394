"""The position of a receiver in a channel's history: one offset in each partition.

A partition is what one station keeps. Its keeper also keeps how far each durable consumer has come in it, so
a consumer that moves to another station goes on there, and retention knows what is still to be read.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from heliograph.errors import NotPossible, QueryFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from heliograph.channel.history.store import HistoryCursor, HistoryPartition
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.selection import Begin, Point


class PartitionPosition:
    """Where a queue is in one partition.

    Args:
        partition: what is read.
        position: the first offset that it wants; None: to be found by whoever takes, in the past of `met`.
        behind: whether it reads from there, or takes what the feed offers.
        until: the offset at which it ends; None: it does not.
        met: the partition's watermark when it was met.
    """

    __slots__ = (
        "behind",
        "failing",
        "held",
        "met",
        "partition",
        "pausing",
        "position",
        "slow",
        "taken",
        "until",
    )

    def __init__(
        self,
        partition: HistoryPartition,
        position: int | None = 0,
        *,
        behind: bool = False,
        until: int | None = None,
        met: int = 0,
    ) -> None:
        self.partition = partition
        self.position = position
        self.behind = behind
        self.until = until
        self.met = met
        self.taken = 0
        """The offset behind the last event that it took from the feed."""
        self.pausing = False
        """Whether somebody reads it, or waits to do so, elsewhere."""
        self.held = False
        """Whether its taker wants no more of it for now."""
        self.failing = self.slow = False

    @property
    def ended(self) -> bool:
        return self.until is not None and self.position is not None and self.position >= self.until

    @property
    def reads(self) -> bool:
        """Whether there may be something to read now."""
        return self.behind and not self.pausing and not self.held and not self.ended


class FairQueue:
    """Waiting events of one priority and several partitions: each in its order, and all in turns."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._queues: dict[str | None, deque[Item]] = {}
        self._turns: deque[deque[Item]] = deque()
        self._size = 0
        self.extend(items)

    def __len__(self) -> int:
        return self._size

    def append(self, item: Item) -> None:
        queue = self._queues.get(item[1].partition)
        if queue is None:
            queue = self._queues[item[1].partition] = deque()
        if not queue:
            self._turns.append(queue)
        queue.append(item)
        self._size += 1

    def appendleft(self, item: Item) -> None:
        """Give one back that was popped."""
        queue = self._queues.setdefault(item[1].partition, deque())
        if not queue:
            self._turns.appendleft(queue)
        queue.appendleft(item)
        self._size += 1

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self._queues.values())

    @property
    def head(self) -> Item:
        """What would be popped next; there is something."""
        return self._turns[0][0]

    def extend(self, items: Iterable[Item]) -> None:
        for item in items:
            self.append(item)

    def pop(self, most: int) -> list[Item]:
        items: list[Item] = []
        turns = self._turns
        while turns and len(items) < most:
            queue = turns.popleft()
            items.append(queue.popleft())
            if queue:
                turns.append(queue)
        self._size -= len(items)
        return items

    def first(self, partition: str) -> int | None:
        """The first offset that waits of a partition."""
        queue = self._queues.get(partition)
        return queue[0][1].offset if queue else None


class InTurns:
    """The storage (`heliograph.channel.queueing.storage`) of queues that read several partitions."""

    is_plain = True
    oldest_first = False

    def new_band(self) -> Any:
        return FairQueue()

    def swap(self, band: Any | None, held: Any) -> None:  # noqa: ARG002 - none takes another's place
        return None

    def add(self, band: Any, held: Any) -> None:
        band.append(held)

    def add_first(self, band: Any, held: Any) -> None:
        band.appendleft(held)

    def head(self, band: Any) -> Any:
        return band.head

    def items(self, band: Any) -> Iterable[Any]:
        return band  # type: ignore[no-any-return]  # a FairQueue

    def pop(self, band: Any, most: int) -> list[Any]:
        return band.pop(most)  # type: ignore[no-any-return]


TURNS: Final = InTurns()


class Cursors:
    """How far a durable consumer has come, in every partition that was met."""

    def __init__(self, name: str, begin: Begin) -> None:
        self._name = name
        self._begin = begin
        self._held: dict[str, HistoryCursor] = {}
        self._open: dict[str, HistoryCursor] = {}
        self._partitions: dict[str, HistoryPartition] = {}
        self.goes_on = False
        """Whether it had a place in any of the partitions before they were opened here."""

    def hold(self, partition: HistoryPartition) -> None:
        """Keep others from its place in a partition until it is opened; CursorHeld if it is another's."""
        cursor = self._held[partition.partition] = partition.cursor(self._name)
        self.goes_on = self.goes_on or cursor.position is not None

    def open(self, partition: HistoryPartition, met: int) -> int:
        """Take its place in a partition: where it was, or where it begins; CursorHeld if it is another's."""
        if partition.partition not in self._held:
            self.hold(partition)
        cursor = self._held.pop(partition.partition)
        try:
            position = cursor.position
            if position is None:
                # It begins here, also if it is opened again only much later, and retention knows of it.
                position = self._begin(partition, met)
                telling = cursor.commit(position)
                if telling is not None:
                    telling.result()
        except BaseException:
            cursor.close()
            raise
        self._open[partition.partition] = cursor
        self._partitions[partition.partition] = partition
        return position

    def renew(self, partition: str, met: int) -> int:
        """Take its place anew in a history that went back in time: its keeper has an earlier one."""
        before = self._open[partition]
        position = self.open(self._partitions[partition], met)
        before.forsake()
        return position

    def of(self, partition: str) -> HistoryCursor | None:
        """None for one that was never met."""
        return self._open.get(partition)

    def names(self) -> tuple[str, ...]:
        """The partitions that were met."""
        return tuple(self._open)

    def close(self) -> None:
        """Give all of them back, so that somebody else can go on; keepers are waited for together."""
        leaving = [cursor.close() for cursor in (*self._held.values(), *self._open.values())]
        for telling in leaving:
            if telling is not None:
                with suppress(QueryFailed):  # a keeper that is away lets go of it by itself
                    telling.result()


def check_without_history(channel: str, start: Point, until: Point) -> None:
    """NotPossible for places that only a journal knows."""
    if start not in (None, "now", "latest", "earliest") or until not in (None, "now", "latest"):
        raise NotPossible(
            channel,
            f"start={start!r}, until={until!r}: only a persistent channel knows more than "
            "start='earliest' or 'now' and until='now'",
        )

"""The feed and its queues: when they are rung, and what a queue reads for itself."""

from __future__ import annotations

import time
from queue import SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import heliograph as hg
from heliograph.channel.batch import OutgoingBatch
from heliograph.channel.history import feed
from heliograph.channel.history.feed import Feed, JournalQueue
from heliograph.channel.history.positions import PartitionPosition
from heliograph.channel.routing.compiler import MatchedQueues
from heliograph.channel.routing.conditions import ReceiverCondition
from heliograph.errors import DiskError, NoSuchFile, QueryFailed
from heliograph.model.event import Header
from heliograph.runtime.ports import SystemClock, ThreadTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.model.history_epochs import Epoch

LIMIT = 10.0


class Reading(hg.Event):
    value: int


def item(offset: int) -> Item:
    return (
        Reading(offset),
        Header("c", "Reading", "s", 1, offset + 1, 0, b"", partition="p", offset=offset),
        0,
    )


class Kept:
    """A partition in memory, and a feed of it."""

    partition = "p"
    kept_here = True
    watermark = 0
    epochs: tuple[Epoch, ...] = ()

    def met_again(self, epochs: tuple[Epoch, ...]) -> None:
        self.epochs = epochs

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.notices: list[Exception] = []
        self.faults: list[Exception] = []
        self.queues: list[JournalQueue] = []
        self.feed = Feed(ThreadTasks())
        self.feed.begin(cast("Any", self))
        self.use(lambda *_: tuple(self.queues))

    def use(self, find: Callable[[Reading, Header], Sequence[EventQueue]]) -> Any:
        """Have the feed go by a route whose filters are this function."""
        route = SimpleNamespace(
            has_queue=True, crowd=None, always=None, find=find, entered=lambda queues, *_: queues
        )
        routes = {Reading: route}
        self.feed.use(cast("Any", routes), cast("Any", routes))
        return routes

    def read(
        self,
        start: int,
        most: int,
        below: int | None = None,
        *,
        as_kept: bool = False,
        only: Collection[str] | None = None,
    ) -> tuple[list[Item], int]:
        assert not as_kept, "for other stations only"
        if self.faults:
            raise self.faults.pop(0)
        end = min(len(self.items), start + most, len(self.items) if below is None else below)
        return self.items[start:end], end

    def queue(
        self, on_ready: Callable[[EventQueue], object] = lambda _: None, *, limit: int = 10, **where: Any
    ) -> JournalQueue:
        queue = JournalQueue(
            f"queue {len(self.queues)}",
            places=[self.place(**where)],
            ends="until" in where,
            feed=self.feed,
            conditions={Reading: ReceiverCondition()},
            on_gap=self.notices.append,
            clock=SystemClock(),
            tasks=ThreadTasks(),
            limit=limit,
            on_ready=cast("Any", on_ready),
        )
        queue.joined()
        self.queues.append(queue)
        return queue

    def place(self, position: int | None = None, until: int | None = None) -> PartitionPosition:
        return PartitionPosition(cast("Any", self), position or 0, behind=position is not None, until=until)

    def append(self, count: int, *, elsewhere: bool = False) -> None:
        """Keep events, which came through this process or from elsewhere."""
        new = [item(len(self.items) + n) for n in range(count)]
        self.items += new
        self.feed.durable("p", None if elsewhere else [OutgoingBatch.of(new)], len(self.items))


def taken(queue: EventQueue) -> list[int]:
    """All that it has, as a consumer takes it."""
    found: list[int] = []
    while items := queue.take():
        found += [cast("Reading", event).value for event, _, _ in items]
    return found


def test_who_is_rung_can_take_at_once_whatever_it_was_rung_for() -> None:
    kept = Kept()
    found: list[int] = []

    def take(queue: EventQueue) -> None:
        assert kept.feed.lock.acquire(blocking=False), "rung while the feed is held still"
        kept.feed.lock.release()
        found.extend(taken(queue))

    bounded = kept.queue(take, until=7)
    kept.feed.watch(bounded, "p")
    kept.append(2)
    assert found == [0, 1]
    kept.append(3, elsewhere=True)
    assert found == [0, 1, 2, 3, 4]
    kept.append(1)
    kept.feed.use({}, {})
    kept.append(1)
    assert found == [0, 1, 2, 3, 4, 5]
    assert bounded.ended


def test_a_read_that_fails_for_now_is_tried_again_and_nothing_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "READ_AGAIN", 0.2)
    kept = Kept()
    rings: SimpleQueue[EventQueue] = SimpleQueue()
    queue = kept.queue(rings.put, position=0)
    queue.start()
    kept.append(3)
    for fault in (DiskError("read", "head", "no descriptors"), QueryFailed("keeper", "has not answered")):
        kept.faults.append(fault)
        assert taken(rings.get(timeout=LIMIT)) == []
        assert not queue.closed
    assert taken(rings.get(timeout=LIMIT)) == [0, 1, 2]
    kept.append(1)
    assert taken(rings.get(timeout=LIMIT)) == [3]
    assert kept.notices == []


def test_a_read_that_fails_for_good_ends_the_queue_with_a_notice() -> None:
    kept = Kept()
    queue = kept.queue(position=0)
    kept.append(1)
    gone = NoSuchFile("read", "head", "it is not there")
    kept.faults.append(gone)
    assert taken(queue) == []
    assert queue.closed
    assert queue.failure is gone
    assert kept.notices == [gone]


def test_what_goes_wrong_with_one_event_costs_nobody_any() -> None:
    kept = Kept()
    first, second = kept.queue(), kept.queue()

    def fails(passed: Item, _: list[str]) -> None:
        if passed[1].offset == 3:
            kept.feed.passing = None
            raise RuntimeError("whatever")

    kept.feed.passing = fails
    with pytest.raises(RuntimeError):
        kept.append(6)
    kept.append(2)
    assert taken(first) == taken(second) == list(range(8))


def test_who_cannot_be_rung_keeps_nobody_else_from_being_rung(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    rings: list[EventQueue] = []

    def fails(_: EventQueue) -> None:
        raise RuntimeError("whatever")

    kept.queue(fails)
    other = kept.queue(rings.append)
    kept.append(2)
    assert rings == [other]
    assert taken(other) == [0, 1]
    assert "could not be told" in caplog.text


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_queue_that_falls_behind_in_the_batch_that_passes_its_end_reads_up_to_it(
    *, elsewhere: bool
) -> None:
    kept = Kept()
    queue = kept.queue(limit=1, until=4)
    kept.feed.watch(queue, "p")
    kept.append(5, elsewhere=elsewhere)
    assert taken(queue) == [0, 1, 2, 3]
    assert queue.ended


class Other(Kept):
    """Another partition of the same history, which a further station keeps."""

    partition = "q"
    kept_here = False


def of_other(offset: int) -> Item:
    header = Header("c", "Reading", "t", 1, offset + 1, 0, b"", partition="q", offset=offset)
    return Reading(9_000 + offset), header, 0


def test_a_partition_that_is_behind_is_read_though_another_keeps_the_queue_busy() -> None:
    kept, other = Kept(), Other()
    queue = kept.queue(position=0, limit=10_000)
    assert taken(queue) == [], "it is live where its own events are"
    other.items = [of_other(n) for n in range(3)]
    queue._begin = lambda _partition, _met: 0
    rings: list[JournalQueue] = []
    assert kept.feed.meet(cast("Any", other), 3, rings)
    assert rings == [queue]
    found: list[int] = []
    for _ in range(40):
        kept.append(64)
        found += [cast("Reading", event).value for event, _, _ in queue.take()]
    assert [value for value in found if value >= 9_000] == [9_000, 9_001, 9_002]
    found += taken(queue)
    assert [value for value in found if value < 9_000] == list(range(2_560))


def test_what_was_met_again_is_read_from_the_last_that_came() -> None:
    kept, other = Kept(), Other()
    queue = kept.queue(limit=100)
    queue._begin = lambda _partition, met: met
    kept.feed.meet(cast("Any", other), 2, [])
    other.items = [of_other(n) for n in range(4)]
    assert taken(queue) == [9_002, 9_003], "from where it was met"
    kept.feed.durable("q", [OutgoingBatch.of([of_other(4)])], 5)
    other.items += [of_other(n) for n in range(4, 7)]
    rings: list[JournalQueue] = []
    assert not kept.feed.meet(cast("Any", other), 7, rings)
    assert taken(queue) == [9_004, 9_005, 9_006]


def test_nobody_waits_for_the_feed_while_a_filter_is_asked_about_what_came_from_elsewhere() -> None:
    kept = Kept()
    queue = kept.queue()
    asked: list[int] = []

    def find(event: Reading, _: Header) -> list[EventQueue]:
        assert kept.feed.lock.acquire(blocking=False), "asked while the feed is held"
        kept.feed.lock.release()
        asked.append(event.value)
        return [queue] if event.value % 2 else []

    kept.use(find)
    kept.append(4)
    assert asked == [0, 1, 2, 3]
    assert taken(queue) == [1, 3]


def test_what_its_supplier_asked_is_asked_again_only_if_there_are_other_routes_by_now() -> None:
    kept = Kept()
    queue = kept.queue()
    asked: list[int] = []

    def find(event: Reading, _: Header) -> list[EventQueue]:
        asked.append(event.value)
        return [queue]

    before, now = kept.use(find), kept.use(find)
    kept.items += [item(n) for n in range(5)]
    pushes = [OutgoingBatch.of(kept.items[a:b]) for a, b in ((0, 1), (1, 3), (3, 5))]
    pushes[0].matches, pushes[1].matches = (
        MatchedQueues(before, 0, [[]]),
        MatchedQueues(now, 0, [[queue], []]),
    )
    kept.feed.durable("p", pushes, 5)
    assert asked == [0, 3, 4]
    assert taken(queue) == [0, 1, 3, 4]


def test_what_comes_again_or_late_takes_nobody_back() -> None:
    """Else a queue that has read up to there would be live, and miss what was offered meanwhile."""
    kept = Kept()
    kept.queue()
    kept.append(4)
    kept.feed.durable("p", [OutgoingBatch.of(kept.items[1:3])], 3)
    assert kept.feed.next_offset("p") == 4
    kept.use(lambda *_: cast("Any", 1 / 0))
    with pytest.raises(ZeroDivisionError):
        kept.feed.durable("p", [OutgoingBatch.of(kept.items[1:3])], 3)
    assert kept.feed.next_offset("p") == 4


def test_a_filter_that_cannot_be_asked_costs_no_event() -> None:
    """It never should: whatever is wrong there, each queue reads for itself."""
    kept = Kept()
    queue = kept.queue()

    def find(*_: Any) -> list[EventQueue]:
        raise MemoryError

    kept.use(find)
    with pytest.raises(MemoryError):
        kept.append(2)
    assert taken(queue) == [0, 1]


def test_a_partition_that_cannot_be_read_for_now_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "READ_AGAIN", 0.0)
    kept, other = Kept(), Other()
    queue = kept.queue(position=0, limit=100)
    queue._begin = lambda _partition, _met: 0
    other.items, other.faults = [of_other(0)], [QueryFailed("keeper", "is away") for _ in range(3)]
    kept.feed.meet(cast("Any", other), 1, [])
    kept.append(2)
    found: list[int] = []
    while len(found) < 3:
        found += taken(queue)
    assert found[-1] == 9_000
    assert sorted(found) == [0, 1, 9_000]


def test_the_pages_of_a_history_elsewhere_are_read_by_tasks_that_are_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    spawn = ThreadTasks.spawn

    def counting(tasks: ThreadTasks, name: str, run: Callable[[], object]) -> Any:
        started.append(name)
        return spawn(tasks, name, run)

    monkeypatch.setattr(ThreadTasks, "spawn", counting)
    other = Other()
    other.items = [of_other(n) for n in range(40 * feed.READ_AHEAD)]
    queue = other.queue(position=0, limit=100_000)
    found: list[int] = []
    end = time.monotonic() + 60.0
    while len(found) < len(other.items) and time.monotonic() < end:
        found += taken(queue)
    assert found == [9_000 + n for n in range(len(other.items))]
    # On a busy machine a page may be asked for before the task of the last one has come to rest.
    assert 1 <= len(started) <= 20, "not one for each of 40 pages"

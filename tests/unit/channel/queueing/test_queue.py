"""One consumer's queue: order, limits, policies and counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.queueing.coalesce import LatestByKey
from heliograph.channel.queueing.queue import FIFO, EventQueue, Item, QueuePolicy
from heliograph.model.event import Header
from heliograph.qos.dispatch_order import Aged, Ranked, Ranking
from heliograph.runtime.ports import SystemClock, ThreadTasks
from tests.support import examples


class Reading(hg.Event, key="sensor"):
    sensor: int
    value: int


def item(sensor: int, value: int = 0, *, priority: int = 3, deadline: int = 0) -> Item:
    header = Header("c", "Reading", "s", 1, value, 0, b"", priority, (sensor,))
    return Reading(sensor, value), header, deadline


def new_queue(
    policy: QueuePolicy = "block", limit: int = 4, rings: list[EventQueue] | None = None
) -> EventQueue:
    return EventQueue(
        "test",
        clock=SystemClock(),
        tasks=ThreadTasks(),
        limit=limit,
        policy=policy,
        storage=LatestByKey() if policy == "coalesce" else FIFO,
        on_ready=(lambda _: None) if rings is None else rings.append,
    )


def put(target: EventQueue, *items: Item) -> None:
    for one in items:
        assert target.waiting < target.blocks_at
        target.put(one)


def taken(target: EventQueue, most: int = 64) -> list[tuple[int, int]]:
    return [(event.sensor, event.value) for event, _, _ in target.take(most) if isinstance(event, Reading)]


def test_events_come_out_in_the_order_they_went_in() -> None:
    queue = new_queue()
    put(queue, item(1, 1), item(2, 2), item(3, 3))
    assert taken(queue) == [(1, 1), (2, 2), (3, 3)]


def test_a_higher_priority_overtakes_and_equal_ones_keep_their_order() -> None:
    queue = new_queue(limit=10)
    put(queue, item(1, 1), item(2, 2, priority=5), item(3, 3), item(4, 4, priority=5))
    assert [taken(queue), taken(queue), taken(queue)] == [[(2, 2), (4, 4)], [(1, 1), (3, 3)], []]


def test_a_full_blocking_queue_has_no_room_until_something_is_taken() -> None:
    queue = new_queue(limit=2)
    put(queue, item(1), item(2))
    assert queue.waiting == queue.blocks_at
    assert not queue.wait_for_room(0.0)
    queue.take(1)
    assert queue.wait_for_room(0.0)
    assert queue.waiting < queue.blocks_at


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "coalesce"])
def test_only_a_blocking_queue_makes_suppliers_wait(policy: QueuePolicy) -> None:
    queue = new_queue(policy, limit=1)
    put(queue, item(1), item(2), item(3))
    assert queue.wait_for_room(0.0)


@pytest.mark.parametrize("policy", ["block", "drop_oldest", "drop_newest", "coalesce"])
@settings(max_examples=examples(100))
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), max_size=6),
    st.integers(0, 8),
    st.booleans(),
)
def test_many_at_once_are_as_many_one_by_one(
    policy: QueuePolicy, lots: list[list[int]], most: int, closes: bool
) -> None:
    limit = 30 if policy == "block" else 3
    rings: list[EventQueue] = []
    ones, manys = new_queue(policy, limit, rings), new_queue(policy, limit, rings)
    for lot in lots:
        items = [item(sensor, value) for value, sensor in enumerate(lot)]
        put(ones, *items)
        manys.put_many(items)
        assert rings.count(ones) == rings.count(manys)
        assert taken(ones, most) == taken(manys, most)
        assert ones.counts() == manys.counts()
        for queue in (ones, manys):
            queue.settle()
    if closes:
        ones.close()
        manys.close()
        put(ones, item(1), item(2))
        manys.put_many([item(1), item(2)])
    assert ones.counts() == manys.counts()


def test_drop_oldest_keeps_the_newest_and_counts() -> None:
    queue = new_queue("drop_oldest", limit=2)
    put(queue, item(1), item(2), item(3))
    assert taken(queue) == [(2, 0), (3, 0)]
    assert queue.counts().dropped == {"oldest": 1}


def test_drop_oldest_sacrifices_the_lowest_priority_first() -> None:
    queue = new_queue("drop_oldest", limit=2)
    put(queue, item(1, priority=5), item(2, priority=1), item(3, priority=5))
    assert taken(queue) == [(1, 0), (3, 0)]


def test_drop_newest_keeps_what_waits_and_counts() -> None:
    queue = new_queue("drop_newest", limit=2)
    put(queue, item(1), item(2), item(3))
    assert taken(queue) == [(1, 0), (2, 0)]
    assert queue.counts().dropped == {"newest": 1}


def test_coalescing_keeps_the_latest_of_a_key_in_the_place_of_the_first() -> None:
    queue = new_queue("coalesce")
    put(queue, item(1, 10), item(2, 20), item(1, 11), item(1, 12))
    assert taken(queue) == [(1, 12), (2, 20)]
    assert queue.counts().dropped == {"coalesced": 2}


def test_a_full_coalescing_queue_drops_its_oldest_key() -> None:
    queue = new_queue("coalesce", limit=2)
    put(queue, item(1), item(2), item(3))
    assert taken(queue) == [(2, 0), (3, 0)]


def test_an_event_whose_lifespan_is_over_is_counted_and_not_delivered() -> None:
    queue = new_queue()
    put(queue, item(1, deadline=1), item(2, deadline=SystemClock.monotonic_ns() + 10**12))
    assert taken(queue) == [(2, 0)]
    assert queue.counts().expired == 1


def test_ready_rings_once_until_the_taker_found_it_empty() -> None:
    rings: list[EventQueue] = []
    queue = new_queue(rings=rings)
    put(queue, item(1), item(2))
    assert len(rings) == 1
    queue.take()
    put(queue, item(3))
    assert len(rings) == 1, "the taker has not been told that the queue is empty, so it will look again"
    queue.take()
    assert queue.take() == []
    put(queue, item(4))
    assert len(rings) == 2


def test_counts_add_up_at_every_step() -> None:
    queue = new_queue(limit=10)
    put(queue, *(item(n) for n in range(5)))
    assert queue.counts().pending == 5
    queue.take(3)
    assert queue.counts().pending == 5
    queue.done += 1
    assert (queue.counts().delivered, queue.counts().pending) == (1, 4)
    queue.failed_one()
    assert (queue.counts().failed, queue.counts().pending) == (1, 3)
    queue.settle()
    assert queue.counts().pending == 3, "one of the three was neither delivered nor failed: it waits again"
    assert len(queue) == 3
    queue.close()
    counts = queue.counts()
    assert (counts.delivered, counts.failed, counts.pending, counts.total) == (1, 1, 0, 5)
    assert counts.dropped == {"closed": 3}


def test_a_closed_queue_takes_nothing_in_and_lets_waiters_go() -> None:
    queue = new_queue(limit=1)
    put(queue, item(1))
    queue.close()
    assert queue.wait_for_room(0.0)
    put(queue, item(2))
    assert len(queue) == 0
    assert queue.counts().dropped == {"closed": 2}


def test_handing_over_gives_what_waits_without_counting_it() -> None:
    queue = new_queue()
    put(queue, item(1), item(2))
    assert len(queue.hand_over()) == 2
    assert queue.counts().total == 0


def ranking() -> Ranking:
    return Ranking(Ranked(), SystemClock().monotonic_ns)


@pytest.mark.parametrize("policy", ["block", "coalesce"])
def test_what_a_halted_batch_gives_back_keeps_its_order_through_swaps(policy: QueuePolicy) -> None:
    queue = new_queue(policy, limit=10)
    put(queue, *(item(n, n) for n in range(1, 6)))
    queue.take(4)
    queue.use(ranking())
    put(queue, item(6, 6))
    queue.done += 1
    queue.settle()
    queue.use(None)
    assert taken(queue) == [(n, n) for n in range(2, 7)]


def test_what_an_order_chose_and_comes_back_is_handed_over_first_and_is_as_old_as_it_was() -> None:
    queue = new_queue(limit=10)
    queue.use(Ranking(Aged(), SystemClock().monotonic_ns))
    put(queue, item(1, 1), item(2, 2))
    before = queue.head()
    queue.take()
    queue.settle()
    assert queue.head() == before
    assert [event.value for event, _, _ in queue.hand_over() if isinstance(event, Reading)] == [1, 2]


def test_a_place_is_kept_by_the_orders_that_come_after_it() -> None:
    queue = new_queue(limit=10)
    queue.use(ranking())
    queue.place(4, 7)
    put(queue, item(1, 1))
    for order in (None, ranking(), ranking()):
        queue.use(order)
    head = queue.head()
    assert head is not None
    assert (head.priority, head.sub_priority) == (4, 7)

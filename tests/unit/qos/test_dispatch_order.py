"""Dispatch orders, each against a model that looks at everything that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.queueing.coalesce import LatestByKey
from heliograph.channel.queueing.queue import FIFO, EventQueue, QueuePolicy
from heliograph.model.event import LATENCY, SUB_PRIORITY, Header
from heliograph.qos.dispatch_order import FACTS, NEVER, SLACK, Ranking, Waiting, order_named
from heliograph.runtime.ports import ThreadTasks
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.queueing.queue import Item
    from heliograph.qos.dispatch_order import Order, OrderName


class Reading(hg.Event, key="sensor"):
    number: int
    sensor: int = 0


class HandClock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now


class Newest:
    """An order of a user's own: the last to come, of all suppliers."""

    by = ("supplier",)

    def first(self, heads: Sequence[Waiting], now_ns: int) -> int:
        del now_ns
        return len(heads) - 1


def item(number: int, said: dict[str, Any], expires: int = 0) -> Item:
    names = {"sub_priority": SUB_PRIORITY, "latency": LATENCY}
    headers = {names[name]: str(said[name]) for name in names if said.get(name) is not None}
    header = Header("c", "Reading", said.get("supplier", "s"), 1, number, 0, b"", said.get("priority", 3))
    sensor = said.get("sensor", 0)
    header = msgspec.structs.replace(header, headers=headers or None, key=(sensor,))
    return Reading(number, sensor), header, expires


def new_queue(
    order: OrderName | Order,
    clock: HandClock,
    *,
    policy: QueuePolicy = "block",
    limit: int = 1000,
    **own: Any,
) -> EventQueue:
    chosen = order_named(order)
    ranking = None if chosen is None else Ranking(chosen, clock.monotonic_ns, **own)
    return EventQueue(
        "test",
        clock=clock,
        tasks=ThreadTasks(),
        limit=limit,
        policy=policy,
        ranking=ranking,
        storage=LatestByKey() if policy == "coalesce" else FIFO,
        on_ready=lambda _: None,
    )


def numbers(queue: EventQueue, most: int = 64) -> list[int]:
    return [event.number for event, _, _ in queue.take(most) if isinstance(event, Reading)]


class Model:
    """Everything that waits, in a list; the next is the greatest by a key, of equals the first to come."""

    def __init__(self, key: Callable[[dict[str, Any], int], Any]) -> None:
        self._key = key
        self._waiting: list[dict[str, Any]] = []

    def put(self, number: int, said: dict[str, Any], now: int) -> None:
        self._waiting.append({"priority": 3, "sub_priority": 0, **said, "number": number, "since": now})

    def next(self, now: int) -> list[int]:
        if not self._waiting:
            return []
        best = max(self._waiting, key=lambda one: (self._key(one, now), -one["number"]))
        self._waiting.remove(best)
        return [best["number"]]


def due(one: dict[str, Any]) -> int:
    latency: int | None = one.get("latency")
    return NEVER if latency is None else int(one["since"]) + latency


MODELS: dict[str, Callable[[dict[str, Any], int], Any]] = {
    "strict": lambda one, _: one["priority"],
    "ranked": lambda one, _: (one["priority"], one["sub_priority"]),
    "aged": lambda one, now: (one["priority"] * (now - one["since"]), one["priority"]),
    "deadline": lambda one, _: (-due(one), one["priority"]),
}

SAID = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.integers(1, 5),
        "sub_priority": st.sampled_from([0, 1, 7, 255]),
        "latency": st.one_of(st.none(), st.integers(0, 50)),
        "supplier": st.sampled_from(["a", "b"]),
    },
)
STEPS = st.lists(st.one_of(SAID, st.integers(1, 20), st.just("take")), max_size=60)


@pytest.mark.parametrize("order", MODELS)
@settings(max_examples=examples(150))
@given(STEPS)
def test_the_next_is_what_the_order_says_of_all_that_waits(order: OrderName, steps: list[Any]) -> None:
    """Steps are events that come, nanoseconds that pass, and takes."""
    clock, model = HandClock(), Model(MODELS[order])
    queue = new_queue(order, clock)
    for number, step in enumerate([*steps, *["take"] * len(steps)]):
        if step == "take":
            assert numbers(queue, 1) == model.next(clock.now)
        elif isinstance(step, int):
            clock.now += step
        else:
            queue.put(item(number, step))
            model.put(number, step, clock.now)
    assert len(queue) == 0


@pytest.mark.parametrize("order", [*MODELS, Newest()])
@settings(max_examples=examples(60))
@given(st.lists(st.one_of(SAID, st.just("take")), max_size=60))
def test_events_of_one_supplier_that_are_alike_keep_their_order(
    order: OrderName | Order, steps: list[Any]
) -> None:
    clock = HandClock()
    queue = new_queue(order, clock)
    seen: dict[Any, list[int]] = {}
    for number, step in enumerate([*steps, *["take"] * len(steps)]):
        clock.now += 1
        if step != "take":
            queue.put(item(number, step))
            continue
        for event, header, _ in queue.take(3):
            assert isinstance(event, Reading)
            alike = (header.supplier, header.priority, tuple(sorted((header.headers or {}).items())))
            seen.setdefault(alike, []).append(event.number)
    assert all(line == sorted(line) for line in seen.values())
    assert sum(map(len, seen.values())) == sum(step != "take" for step in steps)


ALIKE = st.builds(lambda latency: {"latency": latency}, st.sampled_from([5, 10]))
"""Few lines, so that several events wait in each."""
MORE_STEPS = st.lists(
    st.one_of(
        SAID,
        ALIKE,
        ALIKE,
        st.integers(1, 5),
        st.sampled_from(["take", "take and give back", "look"]),
        st.tuples(st.integers(1, 5), st.sampled_from([0, 1, 7])),
    ),
    max_size=60,
)
POLICIES: tuple[QueuePolicy, ...] = ("block", "drop_oldest", "drop_soonest", "drop_newest", "coalesce")


@pytest.mark.parametrize("order", ["ranked", "deadline"])
@settings(max_examples=examples(150))
@given(MORE_STEPS, st.sampled_from(POLICIES), st.integers(1, 8))
def test_a_heap_of_heads_chooses_what_a_look_at_all_of_them_chooses(
    order: OrderName, steps: list[Any], policy: QueuePolicy, limit: int
) -> None:
    """Steps are events, nanoseconds, takes, and another priority and sub-priority of the consumer."""

    def run(*, heap: bool) -> list[Any]:
        clock = HandClock()
        queue = new_queue(order, clock, policy=policy, limit=limit)
        assert queue._ranking is not None
        if not heap:
            queue._ranking.heads = None
        seen: list[Any] = []
        for number, step in enumerate([*steps, *["take"] * len(steps)]):
            match step:
                case "take":
                    seen.append(numbers(queue, 1))
                    queue.done = len(seen[-1])
                    queue.settle()
                case "take and give back":
                    queue.take(1)
                    queue.head()
                    queue.settle()
                case "look":
                    head = queue.head()
                    seen.append(None if head is None else head.header.sequence)
                case int():
                    clock.now += step
                case tuple():
                    queue.place(*step)
                case _:
                    queue.put(item(number, {**step, "sensor": number % 5}))
        return [*seen, queue.counts(), len(queue)]

    assert run(heap=True) == run(heap=False)


def test_what_is_given_back_goes_before_what_was_next_meanwhile() -> None:
    clock = HandClock()
    queue = new_queue("deadline", clock)
    for number, (now, latency) in enumerate([(0, 10), (6, 5), (8, 10)]):  # due at 10, 11 and 18
        clock.now = now
        queue.put(item(number, {"latency": latency}))
    queue.take(1)
    assert (head := queue.head()) is not None
    assert head.due_ns == 11
    queue.settle()
    assert [numbers(queue, 1) for _ in range(3)] == [[0], [1], [2]]


def test_a_heap_of_heads_holds_little_more_than_there_are_lines() -> None:
    """Though each event has a latency of its own, and goes before its line was ever the least."""
    clock = HandClock()
    queue = new_queue("deadline", clock, policy="drop_oldest", limit=10)
    queue.put(item(0, {"latency": 1, "priority": 5}))
    for number in range(1, 2_000):
        queue.put(item(number, {"latency": 10**9 + number}))
    assert queue._ranking is not None
    assert queue._ranking.heads is not None
    assert len(queue._ranking.heads) <= 2 * 10 + SLACK
    assert numbers(queue, 1) == [0]


def test_aged_lets_the_high_go_first_on_arrival_and_the_low_never_starve() -> None:
    clock = HandClock()
    queue = new_queue("aged", clock)
    queue.put(item(0, {"priority": 1}))
    queue.put(item(1, {"priority": 5}))
    assert numbers(queue) == [1]
    for number in range(2, 100):
        queue.put(item(number, {"priority": 5}))
        clock.now += 10
        if numbers(queue) == [0]:
            break
    # Each high one has waited 10 when its turn comes: five times as long is enough for the low one.
    assert clock.now == 60


def test_what_a_consumer_says_takes_the_place_of_what_the_event_says() -> None:
    clock = HandClock()
    queue = new_queue("deadline", clock, priority=2, sub_priority=9, latency_ns=50, default_latency_ns=70)
    queue.put(item(0, {"priority": 5, "sub_priority": 1, "latency": 3}))
    head = queue.head()
    assert head is not None
    assert (head.priority, head.sub_priority, head.latency_ns, head.due_ns) == (2, 9, 50, 50)


def test_without_a_latency_of_its_own_an_event_has_the_channels() -> None:
    queue = new_queue("deadline", HandClock(), default_latency_ns=70)
    queue.put(item(0, {}))
    queue.put(item(1, {"latency": 60}))
    assert numbers(queue) == [1]


@pytest.mark.parametrize("text", ["", "-1", "x", "9" * 5000, "1e3", "٣"])
def test_numbers_that_a_header_cannot_mean_are_passed_over(text: str) -> None:
    event, header, _ = item(0, {"latency": text, "sub_priority": text})
    queue = new_queue("deadline", HandClock())
    queue.put((event, header, 0))
    head = queue.head()
    assert head is not None
    assert head.latency_ns is None
    assert 0 <= head.sub_priority <= 255


def test_an_expired_head_is_passed_over_and_counted() -> None:
    clock = HandClock()
    queue = new_queue("deadline", clock)
    queue.put(item(0, {"latency": 1}, expires=5))
    queue.put(item(1, {"latency": 9}))
    clock.now = 6
    assert numbers(queue) == [1]
    assert queue.counts().expired == 1


def test_a_full_queue_drops_the_oldest_of_the_lowest_priority() -> None:
    queue = new_queue("aged", HandClock(), policy="drop_oldest", limit=2)
    for number, priority in enumerate([5, 1, 5]):
        queue.put(item(number, {"priority": priority}))
    assert [numbers(queue), numbers(queue), numbers(queue)] == [[0], [2], []]
    assert queue.counts().dropped == {"oldest": 1}


def test_what_is_due_first_makes_room_where_that_is_asked_for() -> None:
    queue = new_queue("deadline", HandClock(), policy="drop_soonest", limit=3)
    for number, latency in enumerate([5, 9, None, 7, 1]):
        queue.put(item(number, {"latency": latency}))
    assert [numbers(queue), numbers(queue), numbers(queue)] == [[4], [1], [2]]
    assert queue.counts().dropped == {"soonest": 2}


def test_only_deadlines_say_what_is_due_first() -> None:
    with hg.Station() as station:
        channel = station.channel("c", Reading)
        with pytest.raises(hg.NotPossible, match="add dispatch='deadline'"):
            channel.consumer(overflow="drop_soonest")
        with channel.consumer(overflow="drop_soonest", dispatch="deadline", queue=1) as consumer:
            channel.reconfigure(dispatch="aged")  # which is not what this one goes by
            channel.push(Reading(1), latency=0.1)
            channel.push(Reading(2))
            assert consumer.pull(5.0) == Reading(2)


def test_a_coalesced_event_is_as_old_as_the_one_whose_place_it_takes() -> None:
    clock = HandClock()
    queue = new_queue("aged", clock, policy="coalesce")
    queue.put(item(0, {"priority": 2}))
    clock.now = 10
    queue.put(item(1, {"priority": 2}))
    clock.now = 11
    head = queue.head()
    assert head is not None
    assert (head.since_ns, len(queue)) == (0, 1)
    assert numbers(queue) == [1]


@pytest.mark.parametrize("answer", [RuntimeError("lost"), -1, 2, None, True])
def test_an_order_that_cannot_say_lets_the_oldest_go_on(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    class Lost:
        by = ("priority",)

        def first(self, heads: Sequence[Waiting], now_ns: int) -> Any:
            del heads, now_ns
            if isinstance(answer, Exception):
                raise answer
            return answer

    queue = new_queue(Lost(), HandClock())
    queue.put(item(0, {"priority": 1}))
    queue.put(item(1, {"priority": 5}))
    assert numbers(queue) == [0]
    assert "the oldest goes on" in caplog.text


def test_no_lock_is_held_while_an_order_chooses() -> None:
    class Looking:
        by = ("priority",)

        def first(self, heads: Sequence[Waiting], now_ns: int) -> int:
            del now_ns
            queue.counts()  # takes the lock
            queue.put(item(9, {"priority": 5}))
            return len(heads) - 1

    queue = new_queue(Looking(), HandClock())
    queue.put(item(0, {"priority": 1}))
    queue.put(item(1, {"priority": 2}))
    assert numbers(queue) == [1]
    assert len(queue) == 2


def test_every_fact_can_make_lines() -> None:
    class ByAll:
        by = FACTS

        def first(self, heads: Sequence[Waiting], now_ns: int) -> int:
            del heads, now_ns
            return 0

    queue = new_queue(ByAll(), HandClock())
    queue.put(item(0, {}))
    queue.put(item(1, {"supplier": "b", "latency": 4}))
    assert [numbers(queue), numbers(queue)] == [[0], [1]]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("fifo", "one of strict, ranked, aged, deadline"),
        (Newest, "not a class"),
        (object(), "a method first"),
        (type("NoBy", (), {"first": lambda *_: 0})(), "tuple of any of priority"),
        (type("BadBy", (), {"first": lambda *_: 0, "by": ("speed",)})(), "tuple of any of priority"),
    ],
)
def test_what_is_no_order_is_refused_where_it_is_written(wrong: Any, sentence: str) -> None:
    with pytest.raises(hg.InvalidQoS, match=sentence):
        hg.QoS(dispatch=wrong)
    with hg.Station() as station, pytest.raises(hg.NotPossible, match=sentence):
        station.channel("c", Reading).subscribe(print, dispatch=wrong)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sub_priority": 3}, "add dispatch='ranked'"),
        ({"latency": 0.1}, "add dispatch='deadline'"),
        ({"dispatch": "ranked", "sub_priority": 256}, "0 .low. to 255"),
        ({"dispatch": "deadline", "latency": -1.0}, "seconds from 0"),
        ({"dispatch": "aged", "latency": 0.1}, "add dispatch='deadline'"),
    ],
)
def test_what_an_order_would_pass_over_is_refused(options: dict[str, Any], sentence: str) -> None:
    with hg.Station() as station, pytest.raises(hg.NotPossible, match=sentence):
        station.channel("c", Reading).subscribe(print, **options)


def test_a_latency_of_a_channel_needs_an_order_that_goes_by_it() -> None:
    assert hg.QoS(dispatch="deadline", latency=0.1).latency == 0.1
    with pytest.raises(hg.InvalidQoS, match="None unless dispatch='deadline'"):
        hg.QoS(latency=0.1)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"sub_priority": 256}, "sub_priority is a whole number from 0 .low. to 255"),
        ({"latency": float("nan")}, "latency is seconds from 0"),
        ({"headers": {"latency-ns": "1"}}, "say latency="),
    ],
)
def test_a_push_that_says_what_cannot_be_is_refused(said: dict[str, Any], sentence: str) -> None:
    with hg.Station() as station, pytest.raises(hg.InvalidEvent, match=sentence):
        station.channel("c", Reading).push(Reading(1), **said)

"""Swapping orders and threads of a channel while eight suppliers push."""

from __future__ import annotations

import threading
from collections import defaultdict
from itertools import islice, permutations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.qos.dispatch_order import Waiting

LIMIT = 30.0
SUPPLIERS = 8
SWAPS = min(1000, examples(84))
"""Pairs of strategies, each of which is two swaps: all of them twice over; `make swaps` takes a thousand."""


class Reading(hg.Event, key="supplier"):
    supplier: int
    number: int


class LastCome:
    by = ("supplier", "priority")

    def first(self, heads: Sequence[Waiting], now_ns: int) -> int:
        del now_ns
        return len(heads) - 1


STRATEGIES: tuple[dict[str, Any], ...] = (
    {"dispatch": "strict", "threads": hg.Threads("pool")},
    {"dispatch": "strict", "threads": hg.Threads("pool", workers=4)},
    {"dispatch": "strict", "threads": hg.Threads("bands")},
    {"dispatch": "ranked", "threads": hg.Threads("pool")},
    {"dispatch": "aged", "threads": hg.Threads("pool", workers=1)},
    {"dispatch": "deadline", "latency": 0.5, "threads": hg.Threads("pool")},
    {"dispatch": LastCome(), "threads": hg.Threads("pool")},
)


class Seen:
    """What one receiver was given: an order that was broken, or two calls at a time, are noted at once."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.numbers: defaultdict[int, list[int]] = defaultdict(list)
        self._last: dict[tuple[int, int], int] = {}
        self._inside = threading.Lock()

    def take(self, reading: Reading, header: hg.Header) -> None:
        if not self._inside.acquire(blocking=False):
            self.wrong.append("called twice at a time")
            return
        line = (reading.supplier, header.priority)
        if reading.number <= self._last.get(line, -1):
            self.wrong.append(f"{line}: {reading.number} after {self._last[line]}")
        self._last[line] = reading.number
        self.numbers[reading.supplier].append(reading.number)
        self._inside.release()


def supply(
    channel: hg.Channel[Reading], supplier: int, stop: threading.Event, pushed: dict[int, int]
) -> None:
    source = channel.supplier()
    number = 0
    while not stop.is_set():
        # Half of them with changing priorities.
        priority = 1 + number % 5 if supplier % 2 else None
        source.push(Reading(supplier, number), priority=priority)
        number += 1
        stop.wait(0.0002)
    pushed[supplier] = number


def test_every_event_comes_once_and_in_the_order_of_its_supplier_through_all_swaps() -> None:
    stop = threading.Event()
    pushed: dict[int, int] = {}
    receivers = [Seen() for _ in range(3)]
    with hg.Station() as station:
        channel = station.channel("c", Reading, qos=hg.QoS(max_blocking=LIMIT))
        for seen in receivers:
            channel.subscribe(seen.take)
        channel.subscribe(receivers[-1].take, where="number < 0")  # a filter beside them
        consumer = channel.consumer()
        threads = [threading.Thread(target=supply, args=(channel, n, stop, pushed)) for n in range(SUPPLIERS)]
        for thread in threads:
            thread.start()
        try:
            for before, after in islice(_pairs(), SWAPS):
                channel.reconfigure(**before)
                assert channel.stats().balanced
                channel.reconfigure(**after)
                assert channel.stats().balanced
        finally:
            stop.set()
            for thread in threads:
                thread.join(LIMIT)
        assert channel.settle(LIMIT)
        assert channel.stats().balanced
        asked = consumer.read(max=sum(pushed.values()), timeout=LIMIT)
    print(f"{2 * SWAPS:,} swaps, {sum(pushed.values()):,} events of {SUPPLIERS} suppliers")
    assert [seen.wrong for seen in receivers] == [[], [], []]
    for seen in receivers:
        assert {n: sorted(numbers) for n, numbers in seen.numbers.items()} == {
            n: list(range(count)) for n, count in pushed.items()
        }
    assert sorted((r.supplier, r.number) for r in asked) == sorted(
        (n, number) for n, count in pushed.items() for number in range(count)
    )


def _pairs() -> Any:
    while True:
        yield from permutations(STRATEGIES, 2)


def consumer_texts(channel: hg.Channel[Reading]) -> Callable[[], list[int]]:
    consumer = channel.consumer()
    return lambda: [reading.number for reading in consumer.read(timeout=LIMIT)]


def test_what_waits_is_taken_along_and_what_comes_next_goes_by_the_new_order() -> None:
    with hg.Station() as station:
        channel = station.channel("c", Reading)
        read = consumer_texts(channel)
        channel.push(Reading(0, 0))
        channel.push(Reading(0, 1), latency=0.5)
        channel.reconfigure(dispatch="deadline", latency=5.0)
        channel.push(Reading(0, 2), latency=0.001)
        channel.push(Reading(0, 3))
        assert read() == [2, 1, 0, 3]
        assert channel.qos.dispatch == "deadline"


def test_from_any_order_what_waits_comes_back_to_the_order_of_its_arrival() -> None:
    with hg.Station() as station:
        channel = station.channel("c", Reading, qos=hg.QoS(dispatch="deadline", latency=5.0))
        read = consumer_texts(channel)
        for number, latency in enumerate((9.0, 0.1, None, 0.1)):
            channel.push(Reading(0, number), latency=latency)
        channel.reconfigure(dispatch="strict")
        assert read() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({}, "name one"),
        ({"durability": "persistent"}, "no option 'durability'; it has dispatch, latency, threads"),
        ({"dispatch": "fifo"}, "one of strict, ranked"),
        ({"dispatch": "aged", "latency": 1.0}, "None unless dispatch='deadline'"),
        ({"threads": hg.Threads("inline")}, "decided when it subscribes"),
        ({"dispatch": "aged"}, "sub_priority= says nothing to 'aged'"),
    ],
)
def test_what_cannot_be_is_refused_whole(wanted: dict[str, Any], sentence: str) -> None:
    with hg.Station() as station:
        qos = hg.QoS(dispatch="ranked")
        channel = station.channel("c", Reading, qos=qos)
        channel.subscribe(lambda _: None)
        channel.subscribe(lambda _: None, sub_priority=3)
        with pytest.raises(hg.HeliographError, match=sentence):
            channel.reconfigure(**wanted)
        assert channel.qos == qos
        assert channel.push(Reading(0, 0))
        assert channel.settle(LIMIT)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 4), st.sampled_from(STRATEGIES), st.integers(1, 4), st.sampled_from(STRATEGIES)
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_a_halted_batch_gives_back_keeps_its_order_through_swaps(rounds: list[Any]) -> None:
    """Something higher halts the batch in a consumer's hand: the rest goes back into another order."""
    got: dict[int, list[int]] = defaultdict(list)
    pushed: dict[int, list[int]] = defaultdict(list)
    with hg.Station() as station:
        channel = station.channel("c", Reading)
        consumer = channel.consumer()

        def push(priority: int) -> None:
            number = len(pushed[priority])
            channel.push(Reading(priority, number), priority=priority)
            pushed[priority].append(number)

        def read(most: int) -> None:
            for reading in consumer.read(max=most, timeout=0):
                got[reading.supplier].append(reading.number)

        for low, first, some, second in rounds:
            for _ in range(4):
                push(low)
            read(1)
            push(5)
            channel.reconfigure(**first)
            read(some)
            channel.reconfigure(**second)
        read(100)
    assert got == pushed

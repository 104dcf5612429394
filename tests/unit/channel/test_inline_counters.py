"""What inline callbacks did is counted exactly, however many outcomes there are."""

from __future__ import annotations

import sys
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel import inline_counters as accounts
from heliograph.channel.inline_counters import InlineTally, count_of, take_numbers
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.station import Station

LIMIT = 60.0


class Number(hg.Event):
    value: int


def news(tally: InlineTally) -> dict[int, int]:
    return dict(tally.news())


def test_each_outcome_is_counted_once() -> None:
    tally = InlineTally(("a", "b"))  # type: ignore[arg-type]  # only how many there are matters
    both = tally.outcome(0) | tally.outcome(1, raised=True)
    for _ in range(3):
        (tally.known(both) or tally.tick(both))()
    tally.tick(tally.outcome(1))()
    assert news(tally) == {both: 3, tally.outcome(1): 1}
    assert news(tally) == {}
    tally.tick(both)()
    assert news(tally) == {both: 1}


def test_outcomes_beyond_the_limit_are_counted_callback_by_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MOST_OUTCOMES", 1)
    tally = InlineTally(("a", "b", "c"))  # type: ignore[arg-type]  # as above
    first = tally.outcome(0)
    tally.tick(first)()
    more = tally.outcome(0) | tally.outcome(2, raised=True)
    tally.tick(more)()
    assert news(tally) == {first: 2, tally.outcome(2, raised=True): 1}


@settings(max_examples=examples(100))
@given(st.integers(0, 2**64), st.lists(st.integers(0, 600)))
def test_numbers_taken_together_are_those_that_calls_would_give(first: int, takes: list[int]) -> None:
    tick = count(first).__next__
    taken: list[int] = []
    for times in takes:
        taken += take_numbers(tick, times) if times else [tick()]
    assert taken == list(range(first, first + len(taken)))
    assert count_of(tick) == first + len(taken)


def test_callbacks_with_filters_some_of_which_raise_have_their_own_counts(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "MOST_OUTCOMES", 5)
    channel = station.channel("numbers", Number)
    bits = range(6)
    for bit in bits:
        channel.subscribe(
            lambda number: 1 // (number.value % 3),
            where=f"value % {2 << bit} >= {1 << bit}",
            name=f"bit {bit}",
            inline=True,
        )
    for value in range(64):
        channel.push(Number(value))
    stats = channel.stats()
    assert stats.balanced
    for bit in bits:
        wanted = [value for value in range(64) if value >> bit & 1]
        counts = stats.consumers[f"bit {bit}"]
        assert counts.failed == sum(value % 3 == 0 for value in wanted)
        assert counts.delivered == len(wanted) - counts.failed


def test_threads_that_push_at_once_lose_no_count(station: Station) -> None:
    channel = station.channel("numbers", Number)
    channel.subscribe(lambda _: None, name="all", inline=True)
    channel.subscribe(lambda _: None, name="even", where="value % 2 = 0", inline=True)
    pushes, threads = 2_000, 4
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        running = [
            threading.Thread(target=lambda: [channel.push(Number(n)) for n in range(pushes)])
            for _ in range(threads)
        ]
        for thread in running:
            thread.start()
        while any(thread.is_alive() for thread in running):
            assert channel.stats().balanced
        for thread in running:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    counts = channel.stats().consumers
    assert counts["all"].delivered == threads * pushes
    assert counts["even"].delivered == threads * pushes // 2


def test_a_call_that_outlives_its_routes_is_still_counted(station: Station) -> None:
    channel = station.channel("numbers", Number)

    def change_routes(_: Any) -> None:
        channel.subscribe(lambda _: None, name="later", inline=True)

    channel.subscribe(change_routes, name="first", inline=True)
    channel.push(Number(1))
    assert channel.stats().consumers["first"].delivered == 1
    assert channel.stats().matched == 1


@pytest.mark.parametrize("where", [None, "value > 0"])
@pytest.mark.parametrize("callbacks", [1, 2])
def test_a_call_that_outlives_its_routes_is_counted_however_often_is_looked_meanwhile(
    station: Station, callbacks: int, where: str | None
) -> None:
    channel = station.channel("numbers", Number)
    inside, go_on = threading.Semaphore(0), threading.Event()

    def slow(_: Any) -> None:
        inside.release()
        assert go_on.wait(LIMIT)

    for place in range(callbacks):
        channel.subscribe(slow, name=f"slow {place}", where=where, inline=True)
    pushing = threading.Thread(target=channel.push, args=(Number(1),))
    pushing.start()
    assert inside.acquire(timeout=LIMIT)
    for _ in range(3):
        channel.subscribe(lambda _: None, inline=True).close()
        assert channel.stats().matched == 0
    go_on.set()
    pushing.join(LIMIT)
    stats = channel.stats()
    assert [stats.consumers[f"slow {place}"].delivered for place in range(callbacks)] == [1] * callbacks
    assert stats.matched == callbacks
    assert channel._accounts._retired == [], "nobody can count there any more"

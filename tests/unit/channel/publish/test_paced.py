"""Suppliers whose pushes wait for their turn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.publish.paced import TokenBucket
from tests.support import examples


class Tick(hg.Event):
    number: int


@given(
    st.integers(1, 1_000),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 20)), min_size=1, max_size=30),
)
@settings(max_examples=examples(100), deadline=None)
def test_in_no_span_of_time_there_are_more_than_its_rate_and_one_burst(
    rate: int, burst: int, takes: list[tuple[int, int]]
) -> None:
    now = 0
    bucket = TokenBucket(rate, burst, now)
    taken: list[tuple[int, int]] = []
    for passed, number in takes:
        now += passed
        now += bucket.take(now, number)
        taken.append((now, number))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            number = sum(n for _, n in taken[first : last + 1])
            seconds = (taken[last][0] - taken[first][0]) / 1e9
            assert number <= rate * seconds + burst + taken[first][1] + 1e-3


def test_all_is_pushed_in_order_and_not_faster_than_the_rate() -> None:
    with hg.Station() as station:
        ticks = station.channel("ticks", Tick)
        got: list[int] = []
        ticks.subscribe(lambda tick: got.append(tick.number), inline=True)
        begun = station.ports.clock.monotonic_ns()
        with ticks.paced(1_000.0, burst=10) as paced:
            paced.push(Tick(0))
            paced.push_many([Tick(i) for i in range(1, 61)])
        assert got == list(range(61))
        assert station.ports.clock.monotonic_ns() - begun >= 0.05e9


def test_what_is_no_rate_is_refused_and_a_bad_event_waits_for_nothing() -> None:
    with hg.Station() as station:
        ticks = station.channel("ticks", Tick)
        with pytest.raises(hg.NotPossible, match="events a second"):
            ticks.paced(0)
        with pytest.raises(hg.NotPossible, match="burst=0"):
            ticks.paced(1.0, burst=0)
        paced = ticks.paced(0.001)
        with pytest.raises(hg.InvalidEvent):
            paced.push(Tick("x"))  # type: ignore[arg-type]  # that is the point

"""Rates are differences of counters by seconds, and never negative."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.monitoring.rates import SHORTEST_NS, Rates, RateWindow
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.monitoring.snapshot import ChannelSnapshot, StationSnapshot

SECOND = 1_000_000_000


class Ping(hg.Event):
    n: int


def empty() -> StationSnapshot:
    with hg.Station() as station:
        station.channel("a", Ping)
        return station.snapshot()


EMPTY = empty()


def at(seconds: float, pushed: int, delivered: int = 0, dropped: int = 0) -> StationSnapshot:
    channel: ChannelSnapshot = msgspec.structs.replace(
        EMPTY.channels[0], pushed=pushed, departed_delivered=delivered, departed_dropped={"oldest": dropped}
    )
    return msgspec.structs.replace(EMPTY, monotonic_ns=round(seconds * SECOND), channels=(channel,))


def test_a_rate_is_a_difference_by_its_seconds() -> None:
    window = RateWindow()
    assert window.rates() == {}
    window.add(at(0, 100))
    assert window.rates() == {"a": Rates()}
    window.add(at(2, 300, 50, 10))
    assert window.rates()["a"] == Rates(pushed=100, delivered=25, dropped=5, wait_s=0.0)


def test_snapshots_that_are_too_close_are_left_out() -> None:
    window = RateWindow()
    assert window.add(at(1, 1))
    assert not window.add(at(1 + (SHORTEST_NS - 1) / SECOND, 100))
    assert window.add(at(2, 3))
    assert window.rates()["a"].pushed == 2


def test_a_channel_that_was_opened_anew_has_no_rate_instead_of_a_negative_one() -> None:
    window = RateWindow()
    window.add(at(0, 1_000))
    window.add(at(1, 10))
    assert window.rates()["a"] == Rates()
    assert [rates for _, rates in window.series("a")] == [None]
    assert [rates for _, rates in window.series("unknown")] == [None]


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.integers(0, 1_000), min_size=2, max_size=30))
def test_rates_over_a_window_add_up_to_what_was_pushed(steps: list[int]) -> None:
    window, total = RateWindow(longest=10), 0
    for second, step in enumerate(steps):
        total += step
        window.add(at(second, total))
    rates = [one.pushed for _, one in window.series("a") if one is not None]
    assert rates == [float(step) for step in steps[1:]][-9:]

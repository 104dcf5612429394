"""Events that other stations pushed, where this station's receivers are slow or inline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.batch import IncomingBatch
from heliograph.channel.publish.remote_supplier import MOST_CALLS, RemoteSupplier
from heliograph.links.broadcast.reader_admission import LEASE
from heliograph.model.event import Header, info_of
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.channel import Channel
    from heliograph.channel.queueing.queue import Item

SLOW_NS = 500_000_000
UNTIL_NS = SLOW_NS


class Reading(hg.Event, name="reading"):
    value: int


class Uncopied(list[Any]):
    """What came over a link; a part of it must not be copied for every event in it."""

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        assert not isinstance(index, slice), "copied"
        return super().__getitem__(index)


def arrived(*values: int) -> Uncopied:
    format_id = info_of(Reading).format.id
    headers = [Header("c", "reading", "there", 1, value, 0, format_id) for value in values]
    items: list[Item] = [(Reading(value), header, 0) for value, header in zip(values, headers, strict=True)]
    return Uncopied(items)


def test_what_is_left_of_a_run_is_not_copied_for_each_event(station: hg.Station) -> None:
    channel = station.channel("c", Reading)
    seen: list[int] = []
    channel.subscribe(lambda reading: seen.append(reading.value), inline=True)
    with channel.consumer() as consumer:
        assert channel.neighbours.intake("there").take_in(arrived(1, 2, 3)) == 3
        assert [reading.value for reading in consumer.read(max=3)] == seen == [1, 2, 3]


class HandClock:
    """A clock that stands still until somebody sets it."""

    def __init__(self) -> None:
        self.ns = 0

    def monotonic_ns(self) -> int:
        return self.ns


def lot_of(values: list[int]) -> IncomingBatch:
    items = arrived(*values)
    return IncomingBatch([event for event, _, _ in items], items[0][1], lambda: list(items))


@pytest.fixture(scope="module")
def shared() -> Iterator[Channel[Reading]]:
    with hg.Station() as station:
        yield station.channel("shared", Reading)


def intake_by(clock: Any, channel: Channel[Reading]) -> RemoteSupplier:
    intake = channel.neighbours.intake("there")
    assert isinstance(intake, RemoteSupplier)
    intake._clock = clock
    return intake


def called_in_turns(values: list[int], slow: set[int]) -> list[int]:
    """What is called if the clock is looked at before 1 call, then before 4, then before 16 each."""
    called: list[int] = []
    ns, some = 0, 1
    while values and ns < UNTIL_NS:
        called += values[:some]
        ns += SLOW_NS * len(slow.intersection(values[:some]))
        values, some = values[some:], min(4 * some, MOST_CALLS)
    return called


@settings(max_examples=examples(60))
@given(
    st.integers(1, 100),
    st.sets(st.integers(0, 99)),
    st.sampled_from(["", "value % 3 <> 1"]),
    st.booleans(),
)
def test_callbacks_that_become_slow_are_stopped_in_time(
    shared: Channel[Reading], many: int, slow: set[int], where: str, limited: bool
) -> None:
    clock, seen, values = HandClock(), [], list(range(many))

    def callback(reading: Reading) -> None:
        seen.append(reading.value)
        clock.ns += SLOW_NS * (reading.value in slow)

    wanted = {value for value in values if not where or value % 3 != 1}
    expected = called_in_turns(values, slow & wanted) if limited else values
    intake = intake_by(clock, shared)
    with shared.subscribe(callback, where=where or None, inline=True) as subscription:
        assert intake.take_in(lot_of(values), until=UNTIL_NS if limited else 0) == len(expected)
        assert seen == [value for value in expected if value in wanted]
        assert intake.pushed == len(expected)
        assert shared.stats().consumers[subscription.name].delivered == len(seen)
    intake.close()


def test_calls_between_two_looks_at_the_clock_stay_within_the_lease_of_a_reader() -> None:
    assert MOST_CALLS * SLOW_NS / 1e9 < LEASE


def test_a_callback_that_leaves_amid_a_run_is_called_no_more(station: hg.Station) -> None:
    channel = station.channel("c", Reading)
    left: list[int] = []
    stayed: list[int] = []

    def leaving(reading: Reading) -> None:
        left.append(reading.value)
        if reading.value == 40:
            channel.unsubscribe(leaving)

    channel.subscribe(leaving, inline=True)
    channel.subscribe(lambda reading: stayed.append(reading.value), inline=True)
    assert channel.neighbours.intake("there").take_in(lot_of(list(range(100)))) == 100
    assert stayed == list(range(100))
    assert left == list(range(41))


def test_a_callback_that_raises_amid_a_run_is_reported_with_the_header_of_its_event() -> None:
    told: list[int] = []

    def on_error(_: str, header: Header | None, __: BaseException) -> None:
        assert header is not None
        told.append(header.sequence)

    with hg.Station(on_error=on_error) as station:
        channel = station.channel("c", Reading)
        failing = channel.subscribe(lambda reading: 1 // (reading.value % 30), inline=True)
        assert channel.neighbours.intake("there").take_in(lot_of(list(range(100)))) == 100
        counts = channel.stats().consumers[failing.name]
    assert told == [0, 30, 60, 90]
    assert (counts.delivered, counts.failed) == (96, 4)

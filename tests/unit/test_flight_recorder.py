"""A flight recorder: what is around triggers is kept, once, within its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.errors import ExpressionError, NotPossible
from heliograph.flight_recorder import Ring
from heliograph.testing import Rig, rig
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class Note(hg.Event, name="air.note"):
    text: str


class Storm(hg.Event, name="air.storm"):
    id: int


steps = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["event", "event", "event", "trigger"])), max_size=60
)


@given(steps=steps, before=st.integers(0, 6), after=st.integers(0, 6))
@settings(max_examples=examples(200))
def test_a_ring_keeps_exactly_what_is_within_the_windows_of_triggers_and_numbers_cut_outs(
    steps: list[tuple[int, str]], before: int, after: int
) -> None:
    """Beside a loop over all pairs of events and triggers."""
    ring = Ring(before, after, 1_000, 1_000_000, None)
    now = 0
    kept: dict[int, int] = {}
    events: list[int] = []
    triggers: list[tuple[int, int]] = []
    for passed, what in steps:
        now += passed
        if what == "event":
            name = ring.take(now, len(events), 1, None)
            if name is not None:
                kept[len(events)] = name
            events.append(now)
        else:
            triggers.append((now, len(events)))
            for item in ring.trigger(now, len(triggers)):
                assert ring.cut is not None
                kept[item] = ring.cut.name
    # Of one instant an event that comes behind a trigger is after it, one that comes before it is before it.
    expected = {
        number
        for number, at in enumerate(events)
        if any(
            (number < seen and at >= t - before) or (number >= seen and at <= t + after)
            for t, seen in triggers
        )
    }
    assert set(kept) == expected
    ring.end()
    assert sum(cut.events for cut in ring.ended) == len(kept)
    joined = sum(
        not any(u < t or (u == t and m < n) for m, (u, _) in enumerate(triggers) if t - u <= before + after)
        for n, (t, _) in enumerate(triggers)
    )
    assert len(ring.ended) == joined


def test_a_ring_is_bounded_in_events_and_bytes_and_says_what_is_missing() -> None:
    ring = Ring(100, 10, 5, 1_000, None)
    for n in range(8):
        ring.take(n, n, 10, None)
    assert (len(ring), ring.bytes) == (5, 50)
    assert ring.trigger(8, 1) == [3, 4, 5, 6, 7]
    assert ring.cut is not None
    assert ring.cut.missing == 3
    big = Ring(100, 10, 5, 1_000, None)
    for n in range(3):
        big.take(n, n, 600, None)
    assert (len(big), big.bytes) == (1, 600)


def test_a_thinned_event_of_each_key_is_kept_and_not_again_in_a_cut_out() -> None:
    ring = Ring(100, 10, 50, 1_000, 5)
    found = [ring.take(n, n, 1, n % 2) for n in range(12)]
    assert [n for n, cut in enumerate(found) if cut == 0] == [0, 1, 6, 7]
    assert ring.trigger(12, 1) == [2, 3, 4, 5, 8, 9, 10, 11]


@pytest.fixture
def helio() -> Iterator[Rig]:
    with rig() as made:
        yield made


def channels(helio: Rig) -> tuple[hg.Channel[Track], hg.Channel[Track]]:
    station = helio.station
    return station.channel("air.tracks", Track), station.channel("kept.tracks", Track, qos=PERSISTENT)


def kept(channel: hg.Channel[Any]) -> list[tuple[Any, dict[str, str]]]:
    with channel.consumer(start="earliest", until="now") as consumer:
        return [(one.event, dict(one.header.headers or {})) for one in consumer.deliveries()]


def told(helio: Rig) -> list[tuple[str, int, int]]:
    cuts = helio.station.channel("kept.tracks.cuts", hg.CutOut, qos=PERSISTENT)
    return [(one.state, one.triggers, one.events) for one, _ in kept(cuts)]


def play(helio: Rig, tracks: hg.Channel[Track], seconds: range, fast: set[int]) -> None:
    for second in seconds:
        tracks.push(Track(second, 999.0 if second in fast else 1.0), headers={"site": "a"})
        helio.settle()
        helio.clock.advance(1.0)


def test_what_is_around_triggers_is_kept_with_its_headers_and_overlapping_cut_outs_are_one(
    helio: Rig,
) -> None:
    tracks, target = channels(helio)
    with hg.FlightRecorder(
        helio.station, tracks, target, when="speed > :most", params={"most": 900}, before=4, after=2
    ) as recorder:
        play(helio, tracks, range(60), {1, 20, 23, 50})
        stats = recorder.stats()
    found = kept(target)
    assert [event.id for event, _ in found] == [*range(4), *range(16, 26), *range(46, 53)]
    assert len({headers["cut"] for _, headers in found}) == 3
    assert {headers["site"] for _, headers in found} == {"a"}
    assert (stats.cuts, stats.kept, stats.seen) == (3, 21, 60)
    assert told(helio) == [
        ("begun", 1, 2), ("ended", 1, 4), ("begun", 1, 5), ("ended", 2, 10), ("begun", 1, 5), ("ended", 1, 7),
    ]  # fmt: skip


def test_a_cut_out_ends_though_nothing_comes_any_more(helio: Rig) -> None:
    tracks, target = channels(helio)
    with hg.FlightRecorder(helio.station, tracks, target, when="speed > 900", before=4, after=2) as recorder:
        play(helio, tracks, range(3), {2})
        helio.clock.advance(10.0)
        recorder.settle()
        assert [state for state, _, _ in told(helio)] == ["begun", "ended"]


def test_a_pattern_or_a_call_triggers_too_and_types_that_a_filter_does_not_fit_do_not(helio: Rig) -> None:
    station = helio.station
    tracks = station.channel("air.tracks", Track, Note)
    storms = station.channel("air.storms", Storm)
    target = station.channel("kept.tracks", Track, Note, qos=PERSISTENT)
    both = hg.all_of(t=tracks.where("speed > 900"), s=storms, within=60.0)
    with hg.FlightRecorder(station, tracks, target, when=both, before=4, after=2) as recorder:
        tracks.push(Track(1))
        tracks.push(Note("hello"))
        tracks.push(Track(2, 999.0))
        helio.settle()
        storms.push(Storm(1))
        helio.settle()
        recorder.settle()
        assert [type(event) for event, _ in kept(target)] == [Track, Note, Track]
        helio.clock.advance(20.0)
        tracks.push(Track(3))
        helio.settle()
        name = recorder.trigger()
        recorder.settle()
        assert [headers["cut"] for _, headers in kept(target)[3:]] == [str(name)]
    with hg.FlightRecorder(station, tracks, target, when="speed > 900"):
        tracks.push(Note("no track"))
        tracks.push(Track(4, 999.0))
        helio.settle()
    assert len(kept(target)) == 6


def test_what_cannot_be_recorded_is_refused_with_the_reason(helio: Rig) -> None:
    tracks, target = channels(helio)
    other = helio.station.channel("other", Note, qos=PERSISTENT)
    volatile = helio.station.channel("volatile", Track)
    for to, options, problem in (
        (volatile, {}, "durability='persistent'"),
        (other, {}, "it does not carry air.track"),
        (tracks, {}, "the channel that it watches"),
        (target, {"before": -1}, "before=-1: a number from 0"),
        (target, {"events": 0}, "events=0: a number from 1"),
    ):
        asked: Any = options
        with pytest.raises(NotPossible, match=problem):
            hg.FlightRecorder(helio.station, tracks, to, **asked)
    with pytest.raises(ExpressionError):
        hg.FlightRecorder(helio.station, tracks, target, when="height > 3")

"""Subscriptions to patterns of events, on real channels."""

from __future__ import annotations

import queue
import threading
from functools import partial
from typing import Any

import pytest

import heliograph as hg
from heliograph.channel.dispatch import pool as dispatch
from heliograph.errors import ExpressionError, InvalidPattern, NotPossible
from heliograph.testing import Rig, rig

LIMIT = 10.0


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str = "north"


class Weather(hg.Event, name="air.weather"):
    region: str
    wind: float = 0.0


class Shape(hg.Event, name="air.shape"):
    points: list[int]


def test_events_of_two_channels_meet_in_one_match(helio: Rig) -> None:
    tracks = helio.station.channel("air.tracks", Track)
    weather = helio.station.channel("air.weather", Weather)
    seen: list[Any] = []
    match = hg.all_of(t=tracks.where("speed > :limit", {"limit": 300}), w=weather, within=1.0, by="region")
    helio.station.subscribe(match, seen.append)
    tracks.push(Track(1, 410.0, "north"))
    tracks.push(Track(2, 410.0, "south"))
    tracks.push(Track(3, 100.0, "west"))
    helio.settle()
    weather.push_many([Weather("south", 3.0), Weather("west", 1.0)])
    helio.settle()
    (found,) = seen
    assert (found.t, found.w, found.key) == (Track(2, 410.0, "south"), Weather("south", 3.0), "south")
    assert found.at == helio.clock.time_ns()
    assert found.missing == ()


def test_a_window_is_measured_by_the_station_s_clock(helio: Rig) -> None:
    tracks, weather = helio.station.channel("t", Track), helio.station.channel("w", Weather)
    seen: list[Any] = []
    together = helio.station.subscribe(hg.all_of(t=tracks, w=weather, within=1.0), seen.append)
    tracks.push(Track(1))
    helio.settle()
    helio.clock.advance(1.5)
    weather.push(Weather("north"))
    helio.settle()
    assert seen == []
    assert together.stats().expired == 1


def test_a_watchdog_rings_by_itself_and_names_what_is_missing(helio: Rig) -> None:
    tracks, weather = helio.station.channel("t", Track), helio.station.channel("w", Weather)
    seen: list[Any] = []
    helio.station.subscribe(hg.all_of(t=tracks, w=weather, watchdog=5.0), seen.append)
    tracks.push(Track(1))
    helio.settle()
    helio.clock.advance(5)
    helio.settle()
    assert [(m.missing, m.t, m.w) for m in seen] == [(("w",), Track(1), None)]


def test_an_absence_and_an_interval_need_no_event_to_ring(helio: Rig) -> None:
    beats = helio.station.channel("t", Track)
    seen: list[str] = []
    start = helio.clock.time_ns()
    helio.station.subscribe(hg.none_of(beat=beats, within=2.0), lambda m: seen.append(m.missing[0]))
    helio.station.subscribe(hg.every(1.0), lambda m: seen.append(f"tick {m.tick - start}"))
    for _ in range(3):
        helio.clock.advance(1)
        helio.settle()
    assert sorted(seen) == ["beat", "tick 1000000000", "tick 2000000000", "tick 3000000000"]


@pytest.mark.parametrize("priorities", [(1, 3, 5), (5, 3, 1), (3, 5, 1)])
def test_of_timeouts_at_one_instant_the_higher_priority_is_told_first(
    priorities: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Always: a single worker is busy when the instant comes, ten times over."""
    monkeypatch.setattr(dispatch, "WORKERS", 1)
    monkeypatch.setattr(dispatch, "WATCH_EVERY", 60.0)
    told: list[int] = []
    entered, free = threading.Semaphore(0), threading.Semaphore(0)

    def hold(_: Track) -> None:
        entered.release()
        assert free.acquire(timeout=LIMIT)

    def note(priority: int, _: Any) -> None:
        told.append(priority)

    with rig() as helio:
        tracks = helio.station.channel("t", Track)
        tracks.subscribe(hold)
        for priority in priorities:
            helio.station.subscribe(hg.every(0.1), partial(note, priority), priority=priority)
        for _ in range(10):
            tracks.push(Track(1))
            assert entered.acquire(timeout=LIMIT)
            helio.clock.advance(0.1)
            free.release()
            helio.settle()
    assert told == [5, 3, 1] * 10


def test_nested_patterns_are_objects_inside_the_match(helio: Rig) -> None:
    tracks, weather = helio.station.channel("t", Track), helio.station.channel("w", Weather)
    seen: list[Any] = []
    match = hg.all_of(x=hg.any_of(a=tracks.where("speed > 10"), b=weather), late=hg.after(3.0))
    helio.station.subscribe(match, seen.append)
    weather.push(Weather("east"))
    helio.settle()
    helio.clock.advance(3)
    helio.settle()
    assert (seen[0].x.a, seen[0].x.b) == (None, Weather("east"))
    assert seen[0].late == helio.clock.time_ns()


def test_an_async_callback_is_awaited_one_match_after_the_other(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    seen: queue.Queue[int] = queue.Queue()

    async def take(match: Any) -> None:
        seen.put(match.t.id)

    helio.station.subscribe(hg.any_of(t=tracks), take)
    tracks.push_many([Track(n) for n in range(5)])
    assert [seen.get(timeout=LIMIT) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_a_callback_that_raises_is_reported_and_the_next_match_comes() -> None:
    errors: list[tuple[str, str]] = []
    seen: list[int] = []

    def take(match: Any) -> None:
        seen.append(match.t.id)
        if match.t.id == 0:
            raise ValueError("no")

    with hg.Station(on_error=lambda name, _, error: errors.append((name, str(error)))) as station:
        tracks = station.channel("t", Track)
        together = station.subscribe(hg.any_of(t=tracks), take)
        tracks.push_many([Track(0), Track(1)])
        tracks.settle(LIMIT)
        assert together.queue.wait_empty(LIMIT)
        counts = together.stats().matches
    assert seen == [0, 1]
    assert errors == [("take", "no")]
    assert (counts.delivered, counts.failed) == (1, 1)


def test_a_closed_pattern_gets_nothing_more_and_leaves_the_channels_alone(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    seen: list[Any] = []
    with helio.station.subscribe(hg.any_of(t=tracks), seen.append):
        tracks.push(Track(1))
        helio.settle()
    tracks.push(Track(2))
    helio.settle()
    assert [m.t.id for m in seen] == [1]
    assert tracks.stats().consumers == {}


def test_leaving_a_station_delivers_the_matches_that_wait() -> None:
    seen: list[int] = []
    with hg.Station() as station:
        tracks = station.channel("t", Track)
        station.subscribe(hg.any_of(t=tracks), lambda m: seen.append(m.t.id))
        tracks.push_many([Track(n) for n in range(1000)])
    assert seen == list(range(1000))


def test_persistent_channels_take_part(helio: Rig) -> None:
    kept = helio.station.channel("kept", Track, qos=hg.QoS(durability="persistent"))
    seen: list[Any] = []
    helio.station.subscribe(hg.any_of(t=kept.where("speed > 1")), seen.append)
    kept.push(Track(1, 5.0))
    helio.settle()
    assert [m.t.id for m in seen] == [1]


@pytest.mark.parametrize("durability", ["transient-local", "transient", "persistent"])
def test_what_channels_have_kept_makes_no_match(helio: Rig, durability: Any) -> None:
    qos = hg.QoS(durability=durability)
    tracks = helio.station.channel("t", Track, qos=qos)
    weather = helio.station.channel("w", Weather, qos=qos)
    tracks.push(Track(1))
    helio.clock.advance(1.5)
    weather.push(Weather("north"))
    seen: list[Any] = []
    helio.station.subscribe(hg.all_of(t=tracks, w=weather, within=1.0, by="region"), seen.append)
    helio.settle()
    assert seen == []
    tracks.push(Track(2))
    weather.push(Weather("north"))
    helio.settle()
    assert [m.t.id for m in seen] == [2]


def two_arguments(event: Any, header: Any) -> None:
    """As a channel's callbacks may be."""


def test_what_makes_no_sense_is_refused_where_it_is_written(helio: Rig) -> None:
    tracks, weather = helio.station.channel("t", Track), helio.station.channel("w", Weather)
    shapes = helio.station.channel("s", Shape)
    with pytest.raises(InvalidPattern, match=r"w carries air\.weather, which has no field 'speed'"):
        helio.station.subscribe(hg.all_of(t=tracks, w=weather, by="speed"), print)
    with pytest.raises(InvalidPattern, match="a key is a plain value"):
        helio.station.subscribe(hg.all_of(s=shapes, by="points"), print)
    with pytest.raises(ExpressionError, match="sped"):
        tracks.where("sped > 3")
    with pytest.raises(TypeError, match="cannot be called"):
        helio.station.subscribe(hg.any_of(t=tracks), "print")  # type: ignore[call-overload]  # the test
    with pytest.raises(TypeError, match="must take one argument: the match"):
        helio.station.subscribe(hg.any_of(t=tracks), two_arguments)  # type: ignore[arg-type]  # the test
    with pytest.raises(NotPossible, match="where= is not for a pattern of events"):
        helio.station.subscribe(hg.any_of(t=tracks), print, where="speed > 3")  # type: ignore[call-overload]  # the test
    with pytest.raises(InvalidPattern, match="is all_of, any_of"):
        helio.station.subscribe(tracks, print)  # type: ignore[call-overload]  # the test
    assert tracks.stats().consumers == {}


def test_a_watchdog_waits_anew_after_a_restart() -> None:
    barks: list[Any] = []
    rig = Rig()
    for life in range(3):
        tracks = rig.station.channel("t", Track, qos=hg.QoS(durability="persistent"))
        rig.station.subscribe(hg.all_of(t=tracks.where("id < 0"), watchdog=5.0), barks.append)
        rig.clock.advance(4)
        rig.settle()
        assert barks == []
        if life < 2:
            rig.station.close()
            rig = Rig(disk=rig.disk, seed=life + 1)
    rig.clock.advance(1)
    rig.settle()
    assert [bark.missing for bark in barks] == [("t",)]
    rig.station.close()

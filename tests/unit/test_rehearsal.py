"""Histories pushed again under a clock that stands still."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import NoHistory, NotPossible
from tests.support import examples

if TYPE_CHECKING:
    from pathlib import Path

DURABLE = hg.QoS(durability="persistent")
LIMIT = 60.0


class Track(hg.Event, name="rehearsal.track"):
    id: int
    region: str = "north"


class Weather(hg.Event, name="rehearsal.weather"):
    region: str


class Other(hg.Event, name="rehearsal.other"):
    id: int


def kept(folder: Path, *events: hg.Event) -> None:
    """A history of tracks and weather, in that order."""
    with hg.Station(folder) as station:
        tracks, weather = channels(station)
        for event in events:
            if isinstance(event, Track):
                tracks.push(event)
            elif isinstance(event, Weather):
                weather.push(event)


def channels(station: hg.Station) -> tuple[hg.Channel[Track], hg.Channel[Weather]]:
    return (
        station.channel("air.tracks", Track, qos=DURABLE),
        station.channel("air.weather", Weather, qos=DURABLE),
    )


def test_events_come_in_the_order_they_were_taken_in_at_the_instants_they_were_appended(
    tmp_path: Path,
) -> None:
    kept(tmp_path, Track(1), Weather("north"), Track(2), Track(3), Weather("south"))
    expected = sorted(
        (row["append_ts"], row["station_seq"])
        for name in ("air.tracks", "air.weather")
        for row in hg.history(tmp_path, name).arrow().column("header").to_pylist()
    )
    seen: list[tuple[hg.Event, int]] = []
    with hg.rehearse(tmp_path, {"air.weather": Weather, "air.tracks": Track}) as rehearsal:
        for channel in rehearsal.channels.values():
            channel.subscribe(lambda event: seen.append((event, rehearsal.now_ns)))
        done = rehearsal.run()
    assert [event for event, _ in seen] == [Track(1), Weather("north"), Track(2), Track(3), Weather("south")]
    assert done.events == 5
    assert len(expected) == 5
    assert [at for _, at in seen] == sorted(at for _, at in seen)


def test_what_a_push_said_is_said_again(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        channels(station)[0].push(
            Track(1), priority=5, source_ts=123, correlation_id="c", headers={"a": "b"}, latency=0.5
        )
    with hg.rehearse(tmp_path, {"air.tracks": Track}) as rehearsal:
        (tracks,) = rehearsal.channels.values()
        with tracks.consumer() as consumer:
            rehearsal.run()
            (delivery,) = [next(iter(consumer.deliveries(LIMIT)))]
    header = delivery.header
    assert (header.priority, header.source_ts, header.correlation_id) == (5, 123, "c")
    assert header.headers == {"a": "b", "latency-ns": "500000000"}


def test_a_timer_is_due_between_the_events_where_it_would_have_been(tmp_path: Path) -> None:
    kept(tmp_path, Track(1), Track(2))
    with hg.rehearse(tmp_path, {"air.tracks": Track}) as rehearsal:
        (tracks,) = rehearsal.channels.values()
        seen: list[Any] = []
        tracks.subscribe(lambda track: seen.append(track.id))
        rehearsal.station.timers.after(1e-9, lambda: seen.append("timer"))
        rehearsal.station.timers.every(1.0, lambda: seen.append("tick"))
        done = rehearsal.run(seconds_after=3.0)
        assert seen[:3] == [1, "timer", 2]
        assert seen.count("tick") >= 3
        assert done.timers == 1 + seen.count("tick")


def test_an_event_that_waits_for_a_later_instant_comes_then(tmp_path: Path) -> None:
    kept(tmp_path, Track(1))
    with hg.rehearse(tmp_path, {"air.tracks": Track}) as rehearsal:
        (tracks,) = rehearsal.channels.values()
        seen: list[tuple[int, float]] = []
        began = rehearsal.now_ns
        tracks.subscribe(lambda track: seen.append((track.id, (rehearsal.now_ns - began) / 1e9)))
        rehearsal.step()
        tracks.push(Track(2), deliver_after=3_600.0)
        rehearsal.run(seconds_after=7_200.0)
        assert seen == [(1, 0.0), (2, 3_600.0)]


@pytest.mark.parametrize("seed", range(examples(3)))
def test_a_pattern_finds_in_a_rehearsal_what_it_found_live(tmp_path: Path, seed: int) -> None:
    """Of each key the same matches in the same order, those of the watchdog included."""
    rng = random.Random(seed)
    live: list[tuple[Any, Any]] = []

    def pattern(tracks: hg.Channel[Track], weather: hg.Channel[Weather]) -> Any:
        return hg.all_of(t=tracks, w=weather, within=0.02, by="region")

    with hg.Station(tmp_path) as station:
        tracks, weather = channels(station)
        station.subscribe(
            pattern(tracks, weather), lambda m: live.append((m.key, m.t.id)), name="storms", replayable=True
        )
        for n in range(60):
            region = rng.choice(("north", "south"))
            if rng.random() < 0.5:
                tracks.push(Track(n, region))
            else:
                weather.push(Weather(region))
            if rng.random() < 0.2:
                tracks.settle(LIMIT)
    again: list[tuple[Any, Any]] = []
    with hg.rehearse(tmp_path, {"air.tracks": Track, "air.weather": Weather}, qos=DURABLE) as rehearsal:
        found = rehearsal.channels
        rehearsal.station.subscribe(
            pattern(found["air.tracks"], found["air.weather"]),
            lambda m: again.append((m.key, m.t.id)),
            name="storms",
            replayable=True,
        )
        rehearsal.run()
        assert not rehearsal.errors
    assert live
    assert sorted(key for key, _ in live) == sorted(key for key, _ in again)
    for key in {key for key, _ in live}:
        assert [one for one in live if one[0] == key] == [one for one in again if one[0] == key]


def test_a_filter_start_and_end_choose_what_is_rehearsed(tmp_path: Path) -> None:
    kept(tmp_path, *(Track(n) for n in range(10)))
    for options, expected in (
        ({"where": {"air.tracks": "id > 7"}}, [8, 9]),
        ({"start": 4, "until": 6}, [4, 5]),
    ):
        with hg.rehearse(tmp_path, {"air.tracks": Track}, **options) as rehearsal:
            seen: list[int] = []
            rehearsal.channels["air.tracks"].subscribe(lambda track: seen.append(track.id))  # noqa: B023
            rehearsal.run()
            assert seen == expected


def test_a_station_that_runs_may_be_rehearsed(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        channels(station)[0].push(Track(1))
        with hg.rehearse(tmp_path, {"air.tracks": Track}) as rehearsal:
            assert rehearsal.run().events == 1
            assert not rehearsal.step()


def test_what_cannot_be_rehearsed_is_refused(tmp_path: Path) -> None:
    kept(tmp_path, Track(1))
    with pytest.raises(ValueError, match=r"no channel is named"):
        hg.rehearse(tmp_path, {})
    with pytest.raises(NotPossible, match=r"not among air\.tracks"):
        hg.rehearse(tmp_path, {"air.tracks": Track}, where={"air.trucks": "id > 1"})
    with pytest.raises(NoHistory):
        hg.rehearse(tmp_path, {"air.trucks": Track})
    with (
        hg.rehearse(tmp_path, {"air.tracks": Other}) as rehearsal,
        pytest.raises(NotPossible, match="no class"),
    ):
        rehearsal.run()


def test_a_callback_that_raises_is_noted_and_the_rehearsal_goes_on(tmp_path: Path) -> None:
    kept(tmp_path, Track(1), Track(2))
    with hg.rehearse(tmp_path, {"air.tracks": Track}, on_error=lambda *_: None) as rehearsal:
        rehearsal.channels["air.tracks"].subscribe(lambda track: 1 // (track.id - 1))
        assert rehearsal.run().events == 2
        assert [type(error) for _, error in rehearsal.errors] == [ZeroDivisionError]

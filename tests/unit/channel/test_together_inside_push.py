"""Patterns in a configuration without dispatching: matches are called by the thread that completes them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph import testing
from heliograph.errors import NotPossible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 10.0


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class Weather(hg.Event, name="air.weather"):
    wind: float = 0.0


@pytest.fixture
def efd(tmp_path: Path) -> Iterator[testing.Rig]:
    file = tmp_path / "helio.toml"
    file.write_text("configuration = 'efd'")
    with testing.rig(config=file) as rig:
        yield rig


def opened(rig: testing.Rig) -> tuple[hg.Channel[Track], hg.Channel[Weather]]:
    return rig.station.channel("t", Track), rig.station.channel("w", Weather)


def test_the_push_that_completes_a_match_calls_the_callback(efd: testing.Rig) -> None:
    tracks, weather = opened(efd)
    seen: list[Any] = []
    efd.station.subscribe(hg.all_of(t=tracks.where("speed > 300"), w=weather), lambda m: seen.append(m.t.id))
    tracks.push(Track(1, 100.0))
    weather.push(Weather())
    assert seen == []
    tracks.push(Track(2, 400.0))
    assert seen == [2]


def test_the_clock_completes_matches_too(efd: testing.Rig) -> None:
    tracks, weather = opened(efd)
    missing: list[Any] = []
    efd.station.subscribe(hg.all_of(t=tracks, w=weather, watchdog=2.0), lambda m: missing.append(m.missing))
    tracks.push(Track(1))
    efd.clock.advance(2.0)
    efd.settle()
    assert missing == [("w",)]


def test_what_a_callback_completes_comes_after_it_and_no_call_runs_inside_another(efd: testing.Rig) -> None:
    tracks, _ = opened(efd)
    steps: list[Any] = []

    def again(match: Any) -> None:
        steps.append(("begin", match.t.id))
        if match.t.id < 3:
            tracks.push(Track(match.t.id + 1))
        steps.append(("end", match.t.id))

    efd.station.subscribe(hg.any_of(t=tracks), again)
    tracks.push(Track(1))
    assert steps == [(what, n) for n in (1, 2, 3) for what in ("begin", "end")]


def test_a_callback_that_raises_is_counted_and_the_next_match_comes(efd: testing.Rig) -> None:
    tracks, _ = opened(efd)
    seen: list[int] = []

    def picky(match: Any) -> None:
        seen.append(match.t.id)
        if match.t.id == 1:
            raise ValueError("one")

    together = efd.station.subscribe(hg.any_of(t=tracks), picky)
    tracks.push_many([Track(1), Track(2)])
    assert seen == [1, 2]
    assert (together.stats().matches.delivered, together.stats().matches.failed) == (1, 1)


def test_ctrl_c_inside_a_callback_leaves_the_push_and_the_pattern_goes_on(efd: testing.Rig) -> None:
    tracks, _ = opened(efd)
    seen: list[int] = []

    def interrupted(match: Any) -> None:
        seen.append(match.t.id)
        if match.t.id == 1:
            raise KeyboardInterrupt

    efd.station.subscribe(hg.any_of(t=tracks), interrupted)
    with pytest.raises(KeyboardInterrupt):
        tracks.push(Track(1))
    tracks.push(Track(2))
    assert seen == [1, 2]


def test_suppliers_in_many_threads_complete_each_match_once_and_one_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "helio.toml"
    file.write_text("configuration = 'efd'")
    inside, overlaps, seen = [0], [0], []

    def count(match: Any) -> None:
        inside[0] += 1
        overlaps[0] += inside[0] != 1
        seen.append(match.t.id)
        inside[0] -= 1

    with hg.Station(config=file) as station:
        tracks = station.channel("t", Track)
        together = station.subscribe(hg.any_of(t=tracks), count)

        def push(first: int) -> None:
            for number in range(first, first + 500):
                tracks.push(Track(number))

        threads = [threading.Thread(target=push, args=(500 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert together.settle(LIMIT)
    assert sorted(seen) == list(range(2000))
    assert overlaps == [0]


def test_what_cannot_run_inside_push_is_refused_and_leaves_nothing_behind(efd: testing.Rig) -> None:
    tracks, _ = opened(efd)
    kept = efd.station.channel("kept", Weather, qos=hg.QoS(durability="persistent"))

    async def later(match: Any) -> None: ...

    with pytest.raises(NotPossible, match="async def cannot run inside push"):
        efd.station.subscribe(hg.any_of(t=tracks), later)
    with pytest.raises(NotPossible, match="needs dispatching"):
        efd.station.subscribe(hg.any_of(w=kept), print, name="w", replayable=True)
    with pytest.raises(NotPossible, match="has no dispatching"):
        efd.station.subscribe(hg.all_of(t=tracks, w=kept), print)
    assert tracks.stats().consumers == {}
    assert efd.station.patterns() == ()

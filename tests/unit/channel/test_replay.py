"""Replay: what came comes again, in its order and at its pace."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.replay import Replay
from heliograph.cli import run
from heliograph.errors import NotPossible, UnknownOption

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEPT = hg.QoS(durability="persistent")
SECOND = 1_000_000_000


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


def seen(channel: Any) -> list[tuple[Any, ...]]:
    with channel.consumer(start="earliest", until="now", priority=3) as consumer:
        return [
            (d.event.id, d.header.source_ts, d.header.priority, d.header.correlation_id)
            for d in consumer.deliveries()
        ]


def test_events_come_again_in_order_with_their_source_times_priorities_and_headers(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=KEPT)
        again = station.channel("again", Track, qos=KEPT)
        for n in range(50):
            said: dict[str, Any] = {
                "priority": 1 + n % 5,
                "correlation_id": f"c{n}",
                "headers": {"n": str(n)},
            }
            tracks.push(Track(n), source_ts=1000 - n, id=f"first-{n}", sub_priority=3, **said)
        done = tracks.replay(again, speed=None)
        assert done.events == 50
        assert seen(again) == seen(tracks)
        with again.consumer(start="earliest", until="now", priority=3) as consumer:
            headers = [d.header.headers for d in consumer.deliveries()]
        assert headers == [{"n": str(n), "sub-priority": "3"} for n in range(50)]
        some = station.channel("some", Track, qos=KEPT)
        assert tracks.replay(some, speed=None, where="id >= :n", params={"n": 40}, until=45).events == 5
        live = station.channel("live", Track)
        got: list[int] = []
        live.subscribe(lambda track: got.append(track.id), inline=True)
        assert tracks.replay(live, speed=None).events == 50
        assert got == list(range(50))


class Clock:
    """Time passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 5 * SECOND

    def monotonic_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> bool:
        self.now += round(seconds * SECOND)
        return False


@pytest.mark.parametrize(("speed", "step"), [(1.0, 10 * SECOND), (10.0, SECOND), (0.5, 20 * SECOND)])
def test_the_pace_is_that_of_the_source_scaled(speed: float, step: int, tmp_path: Path) -> None:
    clock, at = Clock(), []
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=KEPT)
        for n in range(10):
            tracks.push(Track(n), source_ts=SECOND + 10 * n * SECOND)
        again = station.channel("again", Track)
        again.subscribe(lambda _: at.append(clock.now), inline=True)
        replay = Replay(tracks, again, speed=speed, by="source", name=None, progress=None)
        replay._clock, replay._sleep = clock, clock.sleep  # type: ignore[assignment]  # as much of it as is asked
        done = replay.run(until="now", start="earliest")
    assert at == [5 * SECOND + n * step for n in range(10)]
    assert (done.events, done.seconds, done.late_max) == (10, 9 * step / SECOND, 0.0)


def test_how_late_events_were_is_told_from_a_memory_that_does_not_grow_with_them(tmp_path: Path) -> None:
    clock = Clock()
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=KEPT)
        for n in range(3000):
            tracks.push(Track(n), source_ts=SECOND)  # all at once: each is as late as those before it took
        again = station.channel("again", Track)
        took = 1_000_000
        again.subscribe(lambda _: clock.sleep(took / SECOND), inline=True)
        replay = Replay(tracks, again, speed=1.0, by="source", name=None, progress=None)
        replay._clock, replay._sleep = clock, clock.sleep  # type: ignore[assignment]  # as much of it as is asked
        done = replay.run(until="now", start="earliest")
    assert done.events == 3000
    assert done.late_max == 2999 * took / SECOND
    assert 1499 * took / SECOND <= done.late_median <= 1499 * took / SECOND * 1.016
    assert replay._late.count == 3000
    assert len(replay._late._buckets) < 800


def test_a_replay_with_a_name_goes_on_where_it_was_killed_and_pushes_none_twice(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=KEPT)
        tracks.push_many([Track(n) for n in range(3000)])
    program = (
        "import os, signal, sys, heliograph as hg\n"
        "from tests.unit.channel.test_replay import Track, KEPT\n"
        "def progress(done):\n"
        "    if done.events == int(sys.argv[2]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "with hg.Station(sys.argv[1]) as station:\n"
        "    tracks, again = (station.channel(name, Track, qos=KEPT) for name in ('air.tracks', 'again'))\n"
        "    tracks.replay(again, speed=None, name='rehearsal', progress=progress)\n"
    )
    codes = []
    for kill_at in (1, 700, 1234, 9999):
        command = [sys.executable, "-c", program, str(tmp_path), str(kill_at)]
        codes.append(subprocess.run(command, timeout=120).returncode)
    assert codes == [-9, -9, -9, 0]
    with hg.Station(tmp_path) as station:
        again = station.channel("again", Track, qos=KEPT)
        assert [row[0] for row in seen(again)] == list(range(3000))
        tracks = station.channel("air.tracks", Track, qos=KEPT)
        assert tracks.replay(again, speed=None, name="rehearsal").events == 0


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=KEPT)
        live = station.channel("live", Track)
        calls: tuple[Callable[[], object], ...] = (
            lambda: tracks.replay(tracks),
            lambda: tracks.replay(live, speed=0),
            lambda: tracks.replay(live, by="time"),  # type: ignore[arg-type]  # a mistake on purpose
            lambda: tracks.replay(live, name="twice"),
            lambda: live.replay(tracks),
        )
        for call in calls:
            with pytest.raises(NotPossible):
                call()
        with pytest.raises(UnknownOption):
            tracks.replay(live, sped=3)  # type: ignore[call-arg]  # likewise


def test_the_command_replays_a_history_without_its_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = str(tmp_path / "data")
    with hg.Station(folder) as station:
        station.channel("air.tracks", Track, qos=KEPT).push_many([Track(n, n / 2) for n in range(20)])
    assert (
        run(["replay", folder, "air.tracks", "again", "--speed", "max", "--where", "id < 15", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["events"] == 15
    for events in (20, 0):
        assert (
            run(["replay", folder, "air.tracks", "named", "--speed", "max", "--name", "one", "--json"]) == 0
        )
        assert json.loads(capsys.readouterr().out)["events"] == events
    assert run(["replay", folder, "air.tracks", "fast", "--speed", "1000"]) == 0
    assert capsys.readouterr().out.startswith("20 events of air.tracks replayed into fast in ")
    with hg.Station(folder) as station:
        assert [row[0] for row in seen(station.channel("again", Track, qos=KEPT))] == list(range(15))
    for wrong in (["--speed", "fast"], ["--by", "time"], ["--start", "yesterday"]):
        assert run(["replay", folder, "air.tracks", "again", *wrong]) == 2
    assert run(["replay", folder, "air.trucks", "again"]) == 2
    assert run(["replay", folder, "air.tracks", "air.tracks"]) == 2

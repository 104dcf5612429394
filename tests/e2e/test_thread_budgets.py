"""How many threads a process has at rest: few of its own, and two for each peer."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.dispatch import pool
from heliograph.runtime.ports import ThreadTasks
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until
from tests.ring_support import needs_rings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def before() -> set[threading.Thread]:
    ThreadTasks().prepare()  # a process has this thread for good, from its first task on
    return set(threading.enumerate())


def more(before: set[threading.Thread]) -> list[str]:
    return sorted(thread.name for thread in set(threading.enumerate()) - before)


def test_a_station_that_only_pushes_and_pulls_has_no_thread(before: set[threading.Thread]) -> None:
    with hg.Station() as station, station.channel("x", Track).consumer() as consumer:
        station.channel("x", Track).push(Track(1))
        assert consumer.pull(LIMIT) == Track(1)
        assert more(before) == []


def test_a_thousand_subscriptions_have_three_threads(before: set[threading.Thread]) -> None:
    got: list[int] = []
    with hg.Station() as station:
        channels = [station.channel(f"n{n}", Track) for n in range(100)]
        for channel in channels:
            for _ in range(10):
                channel.subscribe(lambda track: got.append(track.id))
        for n, channel in enumerate(channels):
            channel.push(Track(n))
        assert wait_until(lambda: len(got) == 1000)
        assert wait_until(lambda: len(more(before)) <= 3), more(before)
    assert wait_until(lambda: more(before) == [])


def test_a_hundred_durable_functions_and_a_hundred_of_groups_share_at_most_twelve_threads(
    before: set[threading.Thread], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "LINGER", 0.05)  # seconds that an extra thread stays
    got: list[int] = []
    called_in: set[str] = set()

    def take(track: Track) -> None:
        called_in.add(threading.current_thread().name)
        got.append(track.id)

    with hg.Station(tmp_path) as station:
        persistent = hg.QoS(durability="persistent", ack="memory")
        channels = [station.channel(f"n{n}", Track, qos=persistent) for n in range(100)]
        for channel in channels:
            channel.subscribe(take, name="mailer")
        for _ in range(100):
            channels[0].subscribe(take, group="g")
        for n, channel in enumerate(channels):
            channel.push(Track(n))
        assert wait_until(lambda: sorted(got) == sorted([*range(100), 0]))
        assert wait_until(lambda: len(more(before)) <= 12), more(before)
        assert all(name.startswith("acknowledging") for name in called_in), called_in
    assert wait_until(lambda: more(before) == [])


@pytest.mark.parametrize("transport", ["socket", pytest.param("ring", marks=needs_rings)])
def test_a_station_has_six_threads_and_two_for_each_peer(
    before: set[threading.Thread], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, transport: Any
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    stations = 4
    with ExitStack() as stack:
        opened = [
            stack.enter_context(hg.Station(domain="budget", transport=transport)) for _ in range(stations)
        ]
        channels = [station.channel("x", Track) for station in opened]
        consumers = [stack.enter_context(channel.consumer()) for channel in channels]
        for channel in channels:
            assert channel.wait_matched(stations, LIMIT)
        for n, channel in enumerate(channels):
            channel.push(Track(n))
        for consumer in consumers:
            got = [consumer.pull(LIMIT) for _ in range(stations)]
            assert sorted(track.id for track in got if track is not None) == [0, 1, 2, 3]
        # Accepting, looking out, silence, answers, one or two for broadcasts; a writer and a reader per peer,
        # and per peer that broadcasts one that listens.
        listening = (stations - 1) * (transport == "ring")
        most = stations * (6 + 2 * (stations - 1) + listening)
        assert wait_until(lambda: len(more(before)) <= most), more(before)
    assert wait_until(lambda: more(before) == [])

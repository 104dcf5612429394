"""SIGKILL and SIGSTOP of either side of a link: no gap, no repetition, nobody held up."""

from __future__ import annotations

import signal
from contextlib import suppress
from functools import partial
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, TRANSPORT, Track, own_meeting_folder, transport, wait_until
from tests.ring_support import needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=["socket", pytest.param("ring", marks=needs_rings)])
def run(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Program]]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(TRANSPORT, request.param)
    programs: list[Program] = []

    def start(*arguments: str) -> Program:
        programs.append(Program(*arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.clean_up()


def has_begun(seen: list[tuple[int, int]]) -> bool:
    return len(seen) >= 500


def test_what_came_of_a_supplier_killed_amid_batches_is_a_beginning_of_what_it_pushed(
    run: Callable[..., Program],
) -> None:
    chance = Random(3)
    with hg.Station(domain="e2e", transport=transport()) as station:
        tracks = station.channel("air.tracks", Track)
        for _ in range(examples(3)):
            seen: list[tuple[int, int]] = []
            subscription = tracks.subscribe(
                lambda track, header, seen=seen: seen.append((track.id, header.sequence))
            )
            supplier = run("supply_batches", "air.tracks")
            # What it has pushed may wait in its own queue and die with it: what was heard counts.
            assert wait_until(partial(has_begun, seen))
            Event().wait(chance.uniform(0, 0.05))
            supplier.kill()
            assert station.mesh is not None
            assert station.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)
            assert tracks.settle(LIMIT)
            subscription.close()
            assert seen == [(i, i + 1) for i in range(len(seen))]


def test_a_consumer_killed_amid_batches_harms_no_other(run: Callable[..., Program]) -> None:
    with (
        hg.Station(domain="e2e", transport=transport()) as station,
        hg.Station(domain="e2e", transport=transport()) as other,
    ):
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(max_blocking=60.0))
        seen: list[int] = []
        other.channel("air.tracks", Track, qos=hg.QoS(max_blocking=60.0)).subscribe(
            lambda track: seen.append(track.id)
        )
        victim = run("consume", "air.tracks", "1000000")
        assert tracks.wait_matched(2, LIMIT)
        pushed = 0
        while not victim.said or not victim.said[-1].startswith("got"):
            tracks.push_many([Track(pushed + i) for i in range(500)])
            pushed += 500
        victim.kill()
        for _ in range(20):
            tracks.push_many([Track(pushed + i) for i in range(500)])
            pushed += 500
        assert wait_until(lambda: len(seen) == pushed)
        assert seen == list(range(pushed))
        assert tracks.stats().balanced


def test_who_was_killed_is_not_counted_any_more(run: Callable[..., Program]) -> None:
    """Though the link to it may stand for a moment."""
    with hg.Station(domain="e2e") as station:
        tracks = station.channel("air.tracks", Track)
        for _ in range(examples(5)):
            consumer = run("consume", "air.tracks", "1000000")
            assert tracks.wait_matched(1, LIMIT)
            consumer.kill()
            assert not tracks.wait_matched(1, 0)


def test_who_was_killed_is_not_counted_while_another_thread_lets_go_of_it(
    run: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    with hg.Station(domain="e2e", transport=transport()) as station:
        tracks = station.channel("air.tracks", Track)
        consumer = run("consume", "air.tracks", "1000000")
        assert tracks.wait_matched(1, LIMIT)
        assert station.mesh is not None
        leave, may_go_on = station.mesh.gates.leave, Event()

        def leave_late(*args: Any) -> None:
            assert may_go_on.wait(LIMIT)
            leave(*args)

        monkeypatch.setattr(station.mesh.gates, "leave", leave_late)
        try:
            consumer.kill()
            assert station.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)
            assert not tracks.wait_matched(1, 0)
        finally:
            may_go_on.set()


def test_a_shorter_limit_suspects_a_station_that_is_stopped_sooner(
    run: Callable[..., Program],
) -> None:
    with hg.Station(domain="e2e", transport=transport(), peer_limit=1.0) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(queue=100, max_blocking=0.05))
        other = run("consume", "air.tracks", "1000000")
        assert tracks.wait_matched(1, LIMIT)
        other.process.send_signal(signal.SIGSTOP)
        tracks.push(Track(0))
        assert wait_until(lambda: not tracks.stats().consumers)
        assert all(tracks.push(Track(i)) for i in range(1_000))
        other.process.send_signal(signal.SIGCONT)
        assert tracks.wait_matched(1, LIMIT)
        heard = len(other.said)

        def hears_on() -> bool:
            with suppress(hg.QueueFull):  # it may be slow
                tracks.push(Track(0))
            return len(other.said) > heard

        assert wait_until(hears_on)

"""Stations in processes of their own: killed, started again, and none of the others harmed."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.e2e.link_programs import Program
from tests.e2e.link_support import (
    LIMIT,
    TRANSPORT,
    Track,
    own_meeting_folder,
    push_until_full,
    transport,
    wait_until,
)
from tests.ring_support import needs_rings

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


def test_events_go_from_process_to_process_in_order(run: Callable[..., Program]) -> None:
    consumer = run("consume", "air.tracks", "20000")
    supplier = run("supply", "air.tracks", "20000")
    assert consumer.says("done") == "done True 0 19999"
    assert supplier.end() == 0
    assert consumer.end() == 0


def test_two_consumers_with_different_filters_get_what_each_asked_for(run: Callable[..., Program]) -> None:
    low = run("consume", "air.tracks", "100", "speed < 10")
    high = run("consume", "air.tracks", "50", "speed >= 995")
    low.says("ready")
    high.says("ready")
    with hg.Station(domain="e2e", transport=transport()) as station:
        tracks = station.channel("air.tracks", Track)
        assert tracks.wait_matched(2, LIMIT)
        for i in range(10_000):
            tracks.push(Track(i, float(i % 1_000)))
        assert low.says("done") == "done True 0 9009"
        assert high.says("done") == "done True 995 9999"


def test_a_consumer_killed_and_started_again_receives_again(run: Callable[..., Program]) -> None:
    with hg.Station(domain="e2e", transport=transport()) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(max_blocking=60.0))
        first = run("consume", "air.tracks", "1000000")
        assert tracks.wait_matched(1, LIMIT)
        pushed = 0
        while not first.said or not first.said[-1].startswith("got"):
            tracks.push(Track(pushed))
            pushed += 1
        first.kill()
        for _ in range(10_000):  # nobody is there, or only half there: no push may hang or fail
            tracks.push(Track(pushed))
            pushed += 1
        assert wait_until(lambda: not tracks.stats().consumers)
        second = run("consume", "air.tracks", "1000")
        second.says("ready")
        assert tracks.wait_matched(1, LIMIT)
        begin = pushed
        for _ in range(1_000):
            tracks.push(Track(pushed))
            pushed += 1
        assert second.says("done") == f"done True {begin} {begin + 999}"
        assert tracks.stats().balanced


def test_a_supplier_killed_and_started_again_is_heard_again(run: Callable[..., Program]) -> None:
    with hg.Station(domain="e2e", transport=transport()) as station:
        tracks = station.channel("air.tracks", Track)
        by_supplier: dict[str, list[int]] = {}
        tracks.subscribe(lambda track, header: by_supplier.setdefault(header.supplier, []).append(track.id))
        assert station.mesh is not None

        def are_heard(suppliers: int) -> bool:
            heard = list(by_supplier.values())
            return len(heard) == suppliers and all(len(ids) > 1_000 for ids in heard)

        for suppliers in (1, 2):
            supplier = run("supply_forever", "air.tracks")
            # What it has pushed may wait in its own queue and die with it: what was heard counts.
            assert wait_until(partial(are_heard, suppliers))
            supplier.kill()
            assert station.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)
        assert all(ids == list(range(len(ids))) for ids in by_supplier.values())


def test_a_station_that_is_stopped_holds_nobody_up_for_ever(run: Callable[..., Program]) -> None:
    with hg.Station(domain="e2e", transport=transport()) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(queue=100, max_blocking=0.05))
        other = run("consume", "air.tracks", "1000000")
        assert tracks.wait_matched(1, LIMIT)
        other.process.send_signal(signal.SIGSTOP)
        push_until_full(tracks)
        began = time.monotonic()
        other.kill()
        assert wait_until(lambda: not tracks.stats().consumers)
        tracks.push(Track(0))
        assert time.monotonic() - began < LIMIT


def test_after_a_fork_the_parent_stays_linked(run: Callable[..., Program]) -> None:
    other = run("consume", "air.tracks", "10")
    with hg.Station(domain="e2e", transport=transport()) as station:
        tracks = station.channel("air.tracks", Track)
        assert tracks.wait_matched(1, LIMIT)
        child = os.fork()
        if not child:
            code = 1
            try:
                tracks.push(Track(1))
            except hg.ForkedStation:
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for i in range(10):
            tracks.push(Track(i))
        assert other.says("done") == "done True 0 9"

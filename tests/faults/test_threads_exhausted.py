"""No thread is left for a moment, at any instant: nothing that was acknowledged is lost, and all goes on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest

import heliograph as hg
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.seal import seal
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.links.transports.memory import MemoryNetwork
from heliograph.runtime.ports import system_ports
from heliograph.sim import SimDisk, Simulation
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, wait_until
from tests.support import ScarceTasks, examples
from tests.unit.journal.helpers import FOLDER, FORMATS, history, track

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

PERSISTENT = hg.QoS(durability="persistent")
EVENTS = 6


class Note(hg.Event, name="exhausted.note", key="n"):
    n: int


def again(call: Callable[[], T]) -> T:
    """What it returns in the end: it may be refused for want of a thread, and then has begun nothing."""
    while True:
        try:
            return call()
        except hg.NoThreadLeft:
            continue


class Day:
    """One station's day in a simulation, in which so many attempts to start a task are refused."""

    def __init__(self, refused: range, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.simulation.tasks.refused = refused
        self.told: list[BaseException] = []
        self.called: dict[str, list[int]] = {"live": [], "kept": [], "group": [], "later": [], "all": []}
        self.left: dict[str, int] = {}

    def run(self) -> int:
        """How many attempts there were."""
        self.simulation.run(self._main)
        return self.simulation.tasks.attempts

    def _main(self) -> None:
        station = again(
            lambda: hg.Station(
                ports=self.simulation.ports, on_error=lambda _, __, error: self.told.append(error)
            )
        )
        live = again(partial(station.channel, "live", Note))
        kept = again(partial(station.channel, "kept", Note, qos=PERSISTENT))
        seen = again(partial(station.channel, "seen", Note, qos=hg.QoS(ack="delivered")))
        again(lambda: live.subscribe(self._call("live")))
        again(lambda: live.subscribe(self._call("later"), where="n >= 100"))
        again(lambda: kept.subscribe(self._call("kept")))
        again(lambda: kept.subscribe(self._call("group"), group="g"))
        again(lambda: seen.subscribe(self._call("all")))
        for n in range(EVENTS):
            live.push(Note(n))
            kept.push(Note(n))
            seen.push(Note(n))
        live.push(Note(100), deliver_after=5.0)
        assert wait_in(self.simulation, self._is_done)
        self.balanced = [channel.stats().balanced for channel in (live, kept, seen)]
        self.left = station.close(LIMIT)
        self.stalls = station.stalls()

    def _call(self, name: str) -> Callable[[Note], object]:
        return lambda note: self.called[name].append(note.n)

    def _is_done(self) -> bool:
        return len(self.called["group"]) == EVENTS and bool(self.called["later"])


def wait_in(simulation: Simulation, holds: Callable[[], bool]) -> bool:
    """Wait for a minute of simulated time at most."""
    for _ in range(600):
        if holds():
            return True
        simulation.tasks.sleep(0.1)
    return holds()


def check(day: Day) -> None:
    everything = list(range(EVENTS))
    assert day.called == {
        "live": [*everything, 100],
        "kept": everything,
        "group": everything,
        "later": [100],
        "all": everything,
    }
    assert day.balanced == [True] * 3
    assert day.left == {}
    assert all(isinstance(error, hg.NoThreadLeft) for error in day.told), day.told
    assert bool(day.stalls) == bool(day.told)


def test_wherever_a_station_has_no_thread_left_for_a_moment_everything_is_delivered_once() -> None:
    attempts = Day(range(0), seed=1).run()
    assert attempts > 8, "inbox, committer, workers, watch, timers, monitor, group, ..."
    stalled = 0
    for first in range(1, attempts + 1):
        for length in (1, 3, 12)[: 1 + examples(2)]:
            day = Day(range(first, first + length), seed=first)
            day.run()
            check(day)
            stalled += bool(day.stalls)
    assert stalled


def test_wherever_the_journal_has_no_thread_left_every_append_is_durable_or_refused() -> None:
    """With small heads, so that maintenance is wanted all the time."""

    def run(refused: range, seed: int) -> tuple[int, int]:
        simulation = Simulation(seed)
        simulation.tasks.refused = refused

        def main() -> None:
            with again(
                lambda: PartitionWriter(
                    simulation.ports, FOLDER, FORMATS, limits=Limits(head_events=3), sealer=seal
                )
            ) as writer:
                for n in range(20):
                    assert writer.append([track(n)]).result(LIMIT) == n
                assert wait_in(simulation, lambda: writer.stats().segments > 0)

        simulation.run(main)
        assert isinstance(simulation.ports.disk, SimDisk)
        return simulation.tasks.attempts, len(history(simulation.ports.disk))

    attempts, kept = run(range(0), seed=1)
    assert kept == 20
    for first in range(1, attempts + 1):
        for length in (1, 5, 40):
            assert run(range(first, first + length), seed=first)[1] == 20


def test_wherever_two_linked_stations_have_no_thread_left_they_meet_and_every_event_arrives_once() -> None:
    def run(refused: range, seed: int) -> tuple[int, list[int]]:
        simulation = Simulation(seed)
        ports = replace(simulation.ports, disk=None)
        network = MemoryNetwork(ports)
        simulation.tasks.refused = refused
        got: list[int] = []

        def main() -> None:
            ours, theirs = (
                again(lambda: hg.Station(domain="sim", ports=ports, transport=network.transport))
                for _ in range(2)
            )
            pushed, taken = ours.channel("x", Note), theirs.channel("x", Note)
            again(lambda: taken.subscribe(lambda note: got.append(note.n)))
            assert pushed.wait_matched(1, LIMIT)
            for n in range(EVENTS):
                pushed.push(Note(n))
            assert wait_in(simulation, lambda: len(got) >= EVENTS)
            for station in (ours, theirs):
                station.close(LIMIT)

        simulation.run(main)
        return simulation.tasks.attempts, got

    attempts, _ = run(range(0), seed=1)
    for first in range(1, attempts + 1):
        for length in (1, 3, 10):
            assert run(range(first, first + length), seed=first)[1] == list(range(EVENTS)), (first, length)


def test_workers_and_the_watch_are_started_when_there_is_a_thread_and_events_wait_meanwhile() -> None:
    scarce = ScarceTasks()
    told: list[BaseException] = []
    called: list[int] = []
    with hg.Station(
        ports=replace(system_ports(), tasks=scarce), on_error=lambda _, __, error: told.append(error)
    ) as station:
        notes = station.channel("x", Note)
        notes.subscribe(lambda note: called.append(note.n))
        scarce.left = 0
        for n in range(100):
            assert notes.push(Note(n))
        assert not called
        assert notes.stats().balanced
        scarce.left = 3
        assert wait_until(lambda: len(called) == 100)
        assert called == list(range(100))
        assert {"dispatch-1", "dispatch-watch"} <= set(station.stalls())
        assert wait_until(lambda: len(told) == 1)
    assert isinstance(told[0], hg.NoThreadLeft)


@pytest.mark.parametrize("what", ["threads", "descriptors"])
def test_a_process_that_had_none_left_for_a_moment_has_lost_nothing(tmp_path: Path, what: str) -> None:
    """A real limit of the operating system, while events are pushed, kept, delayed and delivered."""
    program = Program(str(tmp_path), what, module="tests.faults.exhausted_process")
    try:
        assert program.says("refused").split()[1] != "0"
        assert program.says("live") == "live exact"
        assert program.says("kept") == "kept exact"
        assert program.says("balanced") == "balanced True"
        assert program.says("read again") == "read again exact"
    finally:
        program.clean_up()

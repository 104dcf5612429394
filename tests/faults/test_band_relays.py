"""What other stations push for a band worker comes by way of its station, and nothing of it is missing."""

from __future__ import annotations

import os
import signal
from random import Random
from typing import TYPE_CHECKING, Literal

import pytest

import heliograph as hg
from heliograph.errors import WorkerDied
from tests.e2e import band_setups
from tests.e2e.band_setups import Done, Job
from tests.e2e.link_support import LIMIT, wait_until
from tests.e2e.test_band_supervision import Done as Written
from tests.e2e.test_band_supervision import done, numbers, settled
from tests.e2e.test_band_workers import Plant, plant
from tests.ring_support import needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.workers.supervisor import BandWorker

pytestmark = needs_rings
__all__ = ["done", "plant"]  # fixtures

EVENTS = 2_000


@pytest.fixture
def other(plant: Plant, request: pytest.FixtureRequest) -> Iterator[hg.Station]:
    """Another station of the domain, which broadcasts unless the test says otherwise."""
    transport: Literal["ring", "socket"] = getattr(request, "param", "ring")
    with hg.Station(domain=plant.domain, transport=transport) as station:
        yield station


def push(jobs: hg.Channel[Job], last: int) -> None:
    """Those up to this number that have not been pushed yet."""
    for n in range(jobs.stats().pushed + 1, last + 1):
        jobs.push(Job(n))


def has_done(done: Written, most: int) -> bool:
    return wait_until(lambda: len(done()) >= most)


def has_begun_again(worker: BandWorker, times: int) -> bool:
    return wait_until(lambda: worker.stats().restarts == times) and worker.wait_ready(LIMIT)


def kill(worker: BandWorker) -> int:
    process = worker.stats().process
    os.kill(process, signal.SIGKILL)
    return process


@pytest.mark.parametrize("other", ["ring", "socket"], indirect=True)
@pytest.mark.parametrize("seed", range(examples(1)))
def test_nothing_that_another_station_pushes_is_missing_when_workers_are_killed(
    plant: Plant, other: hg.Station, done: Written, seed: int
) -> None:
    worker = plant.station.band_worker(band_setups.brisk, priority=5)
    jobs = other.channel("jobs", Job)
    assert jobs.wait_matched(1, LIMIT)
    chance, killed = Random(seed), list[int]()
    for restarts in (1, 2):
        last = restarts * EVENTS // 2
        fatal = chance.randrange(last - EVENTS // 2 + 1, last)
        push(jobs, fatal)
        assert has_done(done, chance.randrange(fatal))
        killed.append(kill(worker))
        push(jobs, last)
        assert has_begun_again(worker, restarts)
    assert wait_until(lambda: len(set(numbers(done()))) == EVENTS)
    assert settled(worker)
    before: set[int] = set()
    for process in (*killed, worker.stats().process):
        work = [one for one in done() if one.process == process]
        assert numbers(work) == sorted(set(numbers(work)))  # in order, and each once
        assert all(one.redelivered for one in work if one.n in before)
        before.update(numbers(work))
    assert before == set(range(1, EVENTS + 1))
    assert worker.stats().lost == 0
    assert [type(error) for error in plant.errors] == [WorkerDied] * 2
    assert plant.jobs.stats().balanced
    assert (jobs.stats().balanced, jobs.stats().matched) == (True, EVENTS)  # none went to the worker besides


def test_only_what_a_worker_wants_comes_by_its_station_and_what_it_pushes_goes_everywhere(
    plant: Plant, other: hg.Station, done: Written
) -> None:
    """One worker answers even jobs, another one writes down the answers."""
    clerk = plant.station.band_worker(band_setups.clerk, priority=2)
    worker = plant.station.band_worker(band_setups.answer, priority=4)
    jobs, answers = other.channel("jobs", Job), other.channel("done", Done).consumer()
    assert jobs.wait_matched(1, LIMIT)
    assert other.mesh is not None
    assert other.mesh.meet_all(LIMIT), "so that the worker knows who wants answers"
    assert wait_until(lambda: consumers_of(plant.station, clerk) == 1)
    for n in range(1, 11):
        jobs.push(Job(n))
    even = [2, 4, 6, 8, 10]
    for consumer in (answers, plant.done):
        got = consumer.read(max=5, timeout=LIMIT)
        while len(got) < 5 and (more := consumer.read(max=5, timeout=LIMIT)):
            got += more
        assert [(one.n, one.process) for one in got] == [(n, worker.stats().process) for n in even]
    assert wait_until(lambda: len(done()) == 5)
    assert numbers(done()) == even
    assert jobs.stats().matched == 5
    assert plant.station.mesh is not None
    assert settled(worker)
    assert settled(clerk)


def consumers_of(station: hg.Station, worker: BandWorker) -> int:
    """How many receivers a worker has of the answers, as far as its station knows."""
    assert station.mesh is not None
    found = [one for one in station.mesh.stations() if f"{one.station:016x}" == worker.stats().station]
    return sum(state.consumers for one in found for state in one.channels if state.name == "done")


def test_a_worker_whose_link_begins_anew_gets_what_is_pushed_meanwhile(
    plant: Plant, other: hg.Station, done: Written
) -> None:
    worker = plant.station.band_worker(band_setups.brisk, priority=5)
    jobs = other.channel("jobs", Job)
    assert jobs.wait_matched(1, LIMIT)
    assert plant.station.mesh is not None
    for n in range(1, 301):
        jobs.push(Job(n))
        if n == 100:
            plant.station.mesh._peers[int(worker.stats().station, 16)].link.begin_anew()
    assert wait_until(lambda: set(numbers(done())) == set(range(1, 301)))
    assert settled(worker)
    assert (worker.stats().restarts, worker.stats().lost) == (0, 0)


def test_what_a_station_opens_after_its_worker_did_reaches_the_worker_once(
    plant: Plant, other: hg.Station, done: Written, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the others send to the worker themselves, and its station says so."""
    plant.jobs.close()
    worker = plant.station.band_worker(band_setups.careful, priority=5)
    here, there = plant.station.channel("jobs", Job), other.channel("jobs", Job)
    assert here.wait_matched(1, LIMIT)
    assert there.wait_matched(1, LIMIT)
    here.push(Job(1))
    there.push(Job(2))
    assert wait_until(lambda: len(done()) == 2)
    assert settled(worker)
    assert sorted(numbers(done())) == [1, 2]
    assert caplog.text.count("before the worker is started") == 1


def test_what_a_channel_that_keeps_its_last_event_had_handed_over_is_not_missing(
    plant: Plant, done: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process joins late; what waits for it comes all the same, and nothing before its turn."""
    monkeypatch.setenv("HELIO_TEST_STUCK_AT", "2")
    qos = hg.QoS(durability="transient-local", history=1)
    states = plant.station.channel("states", Job, qos=qos)
    worker = plant.station.band_worker(band_setups.keeping, priority=5)
    for n in range(1, 6):
        states.push(Job(n))
    assert has_done(done, 1)
    assert wait_until(lambda: worker.stats().unacknowledged == 4)
    first = kill(worker)
    for n in range(6, 9):
        states.push(Job(n))
    assert has_begun_again(worker, 1)
    assert wait_until(lambda: len(done()) == 8)
    assert [(one.n, one.process == first) for one in done()] == [(n, n == 1) for n in range(1, 9)]
    assert settled(worker)
    assert states.stats().balanced

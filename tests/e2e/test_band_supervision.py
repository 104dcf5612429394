"""Workers that are killed with work in hand, stop, or hang: what is noticed, and what comes again."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

import heliograph as hg
from heliograph.errors import GivenUp, WorkerDied, WorkerHung
from heliograph.links.mesh.worker_redelivery import MOST_HANDED
from tests.e2e import band_setups
from tests.e2e.band_setups import Job
from tests.e2e.link_support import LIMIT, wait_until
from tests.e2e.test_band_workers import Plant, plant
from tests.ring_support import needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from heliograph.workers.supervisor import BandWorker

pytestmark = needs_rings
__all__ = ["plant"]  # a fixture

JOBS = 200
Done: TypeAlias = "Callable[[], list[Work]]"


def errors(plant: Plant, kind: type[BaseException]) -> list[Any]:
    return [error for error in plant.errors if isinstance(error, kind)]


class Work(NamedTuple):
    n: int
    process: int
    redelivered: bool


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], list[Work]]:
    """What all processes have written down so far."""
    mark = tmp_path / "done"
    mark.touch()
    monkeypatch.setenv("HELIO_TEST_MARK", str(mark))

    def read() -> list[Work]:
        whole, _, _ = mark.read_text().rpartition("\n")
        rows = [tuple(map(int, line.split())) for line in whole.splitlines()]
        return [Work(n, process, bool(again)) for n, process, again in rows]

    return read


def numbers(work: Iterable[Work]) -> list[int]:
    return [one.n for one in work]


def settled(worker: BandWorker) -> bool:
    return wait_until(lambda: worker.stats().unacknowledged == 0)


def test_what_a_worker_has_settled_is_acknowledged(plant: Plant, done: Done) -> None:
    worker = plant.station.band_worker(band_setups.careful, priority=5)
    plant.jobs.push_many([Job(100 + n) for n in range(JOBS)])
    assert settled(worker)
    assert numbers(done()) == list(range(100, 100 + JOBS))
    assert (worker.stats().redelivered, worker.stats().lost) == (0, 0)
    assert plant.jobs.stats().balanced


@pytest.mark.parametrize("after", [1 + 37 * n for n in range(examples(2))])
def test_no_event_is_missing_when_a_worker_is_killed_with_work_in_hand(
    plant: Plant, done: Done, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed by SIGKILL after so many; what is pushed while nobody is there waits, and nothing overtakes."""
    # However late it is killed, it is not through with all of them.
    monkeypatch.setenv("HELIO_TEST_STUCK_AT", str(100 + JOBS - 1))
    worker = plant.station.band_worker(band_setups.careful, priority=5)
    first = worker.stats().process
    plant.jobs.push_many([Job(100 + n) for n in range(JOBS)])
    assert wait_until(lambda: len(done()) >= after % JOBS)
    os.kill(first, signal.SIGKILL)
    for n in range(JOBS, 2 * JOBS):
        plant.jobs.push(Job(100 + n))
    assert wait_until(lambda: worker.stats().restarts == 1)
    assert worker.wait_ready(LIMIT)
    assert settled(worker)
    by_first = {work.n for work in done() if work.process == first}
    by_second = [work for work in done() if work.process != first]
    assert by_first | set(numbers(by_second)) == set(range(100, 100 + 2 * JOBS))
    assert numbers(by_second) == sorted(set(numbers(by_second)))  # in order, and each once
    assert all(work.redelivered for work in by_second if work.n in by_first)
    assert worker.stats().redelivered == sum(work.redelivered for work in by_second) > 0
    assert worker.stats().lost == 0
    assert plant.jobs.stats().balanced
    assert [type(error) for error in plant.errors] == [WorkerDied]


def test_an_event_that_kills_every_process_is_given_up_and_the_others_are_not(
    plant: Plant, done: Done
) -> None:
    worker = plant.station.band_worker(band_setups.careful, priority=5)
    plant.jobs.push_many([Job(1), Job(13), Job(2), Job(3)])
    assert wait_until(lambda: bool(errors(plant, GivenUp)))
    (given_up,) = errors(plant, GivenUp)
    assert given_up.attempts == MOST_HANDED
    assert settled(worker)
    assert set(numbers(done())) == {1, 2, 3}
    assert (worker.stats().restarts, worker.stats().lost) == (MOST_HANDED, 1)
    assert plant.jobs.stats().balanced


def test_what_a_best_effort_channel_had_sent_is_counted_as_lost(plant: Plant, done: Done) -> None:
    hints = plant.station.channel("hints", Job, qos=hg.QoS(reliability="best-effort"))
    worker = plant.station.band_worker(band_setups.careless, priority=5)
    hints.push_many([Job(13), Job(1), Job(2)])
    assert wait_until(lambda: worker.stats().restarts == 1)
    assert worker.wait_ready(LIMIT)
    hints.push(Job(4))
    assert settled(worker)
    assert numbers(done()) == [4]
    assert (worker.stats().redelivered, worker.stats().lost) == (0, 3)
    assert hints.stats().balanced


@pytest.mark.usefixtures("done")
def test_what_a_worker_that_is_given_up_had_is_lost_and_nobody_waits_for_it(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.workers.supervisor.MOST_DEATHS", 1)
    worker = plant.station.band_worker(band_setups.careful, priority=5)
    plant.jobs.push_many([Job(13), Job(1)])
    assert wait_until(lambda: worker.stats().state == "given up")
    assert wait_until(lambda: not plant.jobs.stats().consumers)
    assert (worker.stats().lost, worker.stats().unacknowledged) == (2, 0)
    assert plant.jobs.push(Job(2))
    assert plant.jobs.stats().balanced


def test_a_process_that_is_stopped_is_reported_and_goes_on(plant: Plant, done: Done) -> None:
    worker = plant.station.band_worker(band_setups.careful, priority=5, hang_after=2.0)
    process = worker.stats().process
    os.kill(process, signal.SIGSTOP)
    assert wait_until(lambda: worker.stats().state == "hung")
    assert wait_until(lambda: bool(errors(plant, WorkerHung)))
    (hung,) = errors(plant, WorkerHung)
    assert (hung.process, hung.is_killed) == (process, False)
    plant.jobs.push(Job(1))
    os.kill(process, signal.SIGCONT)
    assert settled(worker)
    assert done() == [Work(1, process, False)]
    assert wait_until(lambda: worker.stats().state == "running")
    assert worker.stats().restarts == 0


@pytest.mark.parametrize("how", ["stopped", "never returns"])
def test_a_process_that_hangs_is_killed_on_request_and_the_next_one_does_its_work(
    plant: Plant, done: Done, how: str
) -> None:
    worker = plant.station.band_worker(band_setups.careful, priority=5, hang_after=3.0, on_hang="restart")
    first = worker.stats().process
    if how == "stopped":
        os.kill(first, signal.SIGSTOP)
    plant.jobs.push_many([Job(14), Job(1), Job(2)])
    assert wait_until(lambda: len(done()) == 3)
    assert settled(worker)
    assert done() == [Work(n, worker.stats().process, True) for n in (14, 1, 2)]
    assert worker.stats().process != first
    assert [hung.is_killed for hung in errors(plant, WorkerHung)] == [True]
    (died,) = errors(plant, WorkerDied)
    assert "hung for" in str(died)
    assert plant.jobs.stats().balanced


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hang_after": 0}, "from 0.01"),
        ({"on_hang": "ignore"}, "report, restart"),
        ({"hung_after": 1.0}, "hung_after"),
    ],
)
def test_limits_that_cannot_be_are_refused_before_anything_is_started(
    plant: Plant, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(hg.HeliographError, match=sentence):
        plant.station.band_worker(band_setups.careful, priority=5, **options)
    assert plant.station.band_workers() == ()

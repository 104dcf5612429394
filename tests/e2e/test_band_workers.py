"""Consumers in processes of their own: killed, started again, given up, and closed with their station."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import WorkerDied, WorkerFailed
from heliograph.ring import RingFolder
from tests.e2e import band_setups
from tests.e2e.band_setups import Done, Job
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until
from tests.ring_support import PORTS, needs_rings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs_rings


class Plant:
    """A station whose jobs are done elsewhere."""

    def __init__(self, **options: Any) -> None:
        self.domain = f"test-{PORTS.random.id64():016x}"
        self.errors: list[BaseException] = []
        self.station = hg.Station(
            domain=self.domain,
            transport="ring",
            on_error=lambda _, __, error: self.errors.append(error),
            **options,
        )
        self.jobs = self.station.channel("jobs", Job)
        self.done = self.station.channel("done", Done).consumer()

    def does(self, n: int) -> Done:
        self.jobs.push(Job(n))
        done = self.done.pull(LIMIT)
        assert done is not None
        assert done.n == n
        return done


def alone_and_patient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    # A process takes half a second of a core to start, which others may want more urgently.
    monkeypatch.setattr("heliograph.workers.supervisor.START_LIMIT", 3 * LIMIT)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Plant]:
    alone_and_patient(monkeypatch, tmp_path)
    monkeypatch.setattr("heliograph.runtime.error_reporting.REPORT_LIMIT", LIMIT)
    made = Plant(**getattr(request, "param", {}))
    yield made
    made.station.close(LIMIT)
    rings = RingFolder(made.domain)
    rings.rings()
    rings.leave()
    assert not rings.path.exists()


def lives(process: int) -> bool:
    """Whether a process runs; one that has ended and is not waited for yet does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_band_is_served_by_another_process(plant: Plant) -> None:
    worker = plant.station.band_worker(band_setups.answer, priority=4)
    assert plant.jobs.stats().consumers  # known here as soon as the call returns
    plant.jobs.push(Job(1))  # nobody there wants it
    done = plant.does(2)
    assert (done.process, done.priority) == (worker.stats().process, 4)
    assert done.process != os.getpid()
    assert plant.station.mesh is not None
    (link,) = plant.station.mesh.stats()
    assert link.peer == worker.stats().station
    assert plant.station.band_workers() == (worker,)
    no_seconds: Any = "1"
    for wait in (worker.wait_ready, worker.close):
        with pytest.raises(hg.NotPossible, match="timeout='1': seconds"):
            wait(no_seconds)
    worker.close()
    assert not lives(done.process)
    assert (worker.stats().state, plant.station.band_workers()) == ("closed", ())
    assert plant.errors == []


def test_a_worker_that_is_killed_is_reported_and_started_again(plant: Plant) -> None:
    worker = plant.station.band_worker("tests.e2e.band_setups:answer", priority=5, name="alarms")
    first = plant.does(2).process
    assert wait_until(lambda: worker.stats().unacknowledged == 0)
    os.kill(first, 9)
    assert wait_until(lambda: worker.stats().restarts == 1)
    assert worker.wait_ready(LIMIT)
    assert plant.does(4).process == worker.stats().process != first
    (error,) = plant.errors
    assert isinstance(error, WorkerDied)
    assert (error.worker, error.process, error.is_given_up) == ("alarms", first, False)
    assert "SIGKILL" in str(error)


def test_a_worker_that_dies_again_and_again_is_given_up(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.workers.supervisor.MOST_DEATHS", 2)
    worker = plant.station.band_worker(band_setups.die_of_thirteen, priority=5, redeliver=False)
    plant.jobs.push(Job(13))
    assert wait_until(lambda: worker.stats().restarts == 1)
    assert worker.wait_ready(LIMIT)
    plant.does(2)
    plant.jobs.push(Job(13))
    assert wait_until(lambda: worker.stats().state == "given up")
    assert [error.is_given_up for error in plant.errors if isinstance(error, WorkerDied)] == [False, True]
    assert wait_until(lambda: not plant.jobs.stats().consumers)


def test_what_goes_wrong_in_the_worker_is_raised_here(plant: Plant) -> None:
    for setup, what in (
        ("tests.e2e.band_setups:broken", "ValueError: the plant is closed"),
        ("tests.e2e.band_setups:long_winded", "ValueError: "),
        ("tests.e2e.band_setups:not_a_function", "is no function"),
        ("tests.e2e.band_setups:missing", "AttributeError"),
        ("no.such.module:listen", "ModuleNotFoundError"),
    ):
        with pytest.raises(WorkerFailed, match=what):
            plant.station.band_worker(setup, priority=3)
    assert plant.station.band_workers() == ()
    assert plant.errors == []


def test_a_worker_that_hangs_when_it_is_started_again_is_killed_and_reported(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HELIO_TEST_MARK", str(tmp_path / "started"))
    monkeypatch.setattr("heliograph.workers.supervisor.MOST_DEATHS", 2)
    worker = plant.station.band_worker(band_setups.hang_the_second_time, priority=5)
    monkeypatch.setattr(worker, "_start_limit", 1.0)
    os.kill(plant.does(2).process, 9)
    assert wait_until(lambda: worker.stats().state == "given up")
    _, second = plant.errors
    assert "not ready after 1.0 seconds" in str(second)
    assert not lives(worker.stats().process)


def test_an_on_error_that_raises_stops_neither_the_worker_nor_the_closing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone_and_patient(monkeypatch, tmp_path)

    def on_error(*_: object) -> None:
        raise RuntimeError("on_error raises")

    domain = f"test-{PORTS.random.id64():016x}"
    with hg.Station(tmp_path / "data", domain=domain, on_error=on_error) as station:
        worker = station.band_worker(band_setups.answer, priority=5)
        os.kill(worker.stats().process, 9)
        assert wait_until(lambda: worker.stats().restarts == 1)
        assert worker.wait_ready(LIMIT)
    hg.Station(tmp_path / "data").close()  # the folder is free


def test_a_worker_for_which_there_is_no_process_is_refused_at_first_and_later_waits_for_one(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    with monkeypatch.context() as full:
        full.setattr("heliograph.workers.supervisor.subprocess.Popen", refused)
        with pytest.raises(WorkerFailed, match="no more processes"):
            plant.station.band_worker(band_setups.answer, priority=5)
    worker = plant.station.band_worker(band_setups.answer, priority=5)
    with monkeypatch.context() as full:
        full.setattr("heliograph.workers.supervisor.subprocess.Popen", refused)
        process = plant.does(2).process
        assert wait_until(lambda: worker.stats().unacknowledged == 0)
        os.kill(process, 9)
        assert wait_until(lambda: [type(error) for error in plant.errors] == [WorkerDied, WorkerFailed])
        assert worker.stats().state == "starting"
        assert worker.stats().restarts == 0
    assert wait_until(lambda: worker.stats().restarts == 1)
    assert worker.wait_ready(LIMIT)
    assert plant.does(4).process == worker.stats().process
    assert len(plant.errors) == 2, "told once"


def test_closing_the_station_lets_a_worker_finish_what_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone_and_patient(monkeypatch, tmp_path)
    domain = f"test-{PORTS.random.id64():016x}"
    with hg.Station(domain=domain) as other:
        done = other.channel("done", Done).consumer()
        with hg.Station(domain=domain) as station:
            jobs = station.channel("jobs", Job)
            worker = station.band_worker(band_setups.slow, priority=2)
            for n in range(20):
                jobs.push(Job(n))
            process = worker.stats().process
        for n in range(20):
            assert getattr(done.pull(LIMIT), "n", None) == n
        assert not lives(process)


def test_a_worker_ends_with_its_station_though_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, heliograph as hg\n"
        "from tests.e2e import band_setups\n"
        "station = hg.Station(domain='killed')\n"
        "print(station.band_worker(band_setups.answer, priority=5).stats().process, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    ) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        assert lives(process)
        parent.kill()
    assert wait_until(lambda: not lives(process))


def may_use_fifo() -> bool:
    program = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0


def test_a_core_and_a_real_time_priority_are_taken_on_request(plant: Plant) -> None:
    core = max(os.sched_getaffinity(0))
    plant.station.band_worker(band_setups.placed, priority=5, core=core)
    done = plant.does(1)
    assert (done.process, done.priority) == (core, os.SCHED_OTHER)


def test_a_real_time_priority_that_is_not_allowed_says_what_to_do(plant: Plant) -> None:
    core = max(os.sched_getaffinity(0))
    if may_use_fifo():
        plant.station.band_worker(band_setups.placed, priority=5, core=core, fifo=10)
        assert plant.does(1).priority == os.SCHED_FIFO * 100 + 10
    else:
        with pytest.raises(WorkerFailed, match="ulimit -r"):
            plant.station.band_worker(band_setups.placed, priority=5, core=core, fifo=10)

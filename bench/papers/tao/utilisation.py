"""Figures 13 and 14: the laxity of a high- and a low-priority task while the processor fills up.

Two consumers, one of high and one of low priority, share one core. A supplier releases the one every 20 ms
and the other every 40 ms, at exact instants. The low one works for 8 ms each time; the work of the high one
is raised point by point.

    utilisation   the work of both, in processor time, by their periods; what the service itself takes on that
                  core comes on top, so 100 % cannot be reached
    laxity        what is left of the period when a job has ended, counted from its exact instant, in per cent
                  of the period; below zero it has missed its deadline
    reached       the highest utilisation up to which, at this and every lower point, the high-priority task
                  missed no deadline at all; asked for are 95 % with threads and 97 % with band workers
    host took     what a virtual machine was not given of its processors during the point. No priority helps
                  against that, so such a point is measured again, up to `MOST_TRIES` times; missed or not,
                  the first try without it counts, or the last

The consumers are arranged in two ways:

    workers   each is a band worker, a process of its own, pinned to the core; the supplier is this process,
              pinned to another core, with all its threads under SCHED_FIFO: one of them that waits for a core
              while it holds the interpreter's lock would hold up the others
    threads   each is called by a thread of its band, `Threads("bands", os_priorities=True, background=True)`:
              SCHED_FIFO, one core and a switch interval of 0.1 ms for the whole process. The supplier is a
              thread above the bands, on that core as well

In both the low one is an ordinary process or thread, because the kernel keeps 5 % of a core from real-time
ones, and takes it from all of them at once. All go by TAO's ERD configuration, as in the paper: nothing is
filtered, each task has a channel of its own, and stations are opened with `erd.toml`. For figure 14 a third
process of its own releases both workers as often again, over a link, for no work. Where SCHED_FIFO is not
allowed all of them are ordinary, which the note then says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment
from bench.papers.figure import Series, chart
from bench.papers.tao.erd import CONFIG
from heliograph.errors import RealTimeRefused, WorkerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

HIGH, LOW = 0.020, 0.040
"""Periods in seconds."""
LOW_WORK = 0.008
POINTS = (0.86, 0.88, 0.90, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.00, 1.02)
SECONDS = 4.0
"""For each point."""
MOST_TRIES = 8
SPIN = 0.0002
SUPPLIER = 60
"""The real-time priority of the supplier, above that of the consumers."""
LIMIT = 30.0
JOBS = {True: "tao.jobs.high", False: "tao.jobs.low"}
"""The channel of each of the two."""


class Job(hg.Event, name="tao.job"):
    high: bool
    due_ns: int
    """The instant of its release, on the clock that all processes of a host share."""
    work_ns: int
    last: bool = False


class Laxity(hg.Event, name="tao.laxity"):
    """What a worker saw between two points, in per cent of its period."""

    high: bool
    jobs: int
    missed: int
    least: float
    mean: float
    most: float


def work_high(station: hg.Station) -> None:
    """In the process of the high-priority worker."""
    _work(station, JOBS[True], HIGH)


def work_low(station: hg.Station) -> None:
    _work(station, JOBS[False], LOW)


def _work(station: hg.Station, jobs: str, period: float) -> None:
    told = station.channel("tao.laxities", Laxity)
    seen: list[float] = []

    def job(job: Job) -> None:
        if job.last:
            told.push(_seen(job.high, seen))
            seen.clear()
        elif job.work_ns:
            _spin(job.work_ns)
            seen.append(_laxity(job, period))

    station.channel(jobs, Job).subscribe(job)


def _spin(work_ns: int) -> None:
    end = time.thread_time_ns() + work_ns
    while time.thread_time_ns() < end:
        pass


def _laxity(job: Job, period: float) -> float:
    return 100 * (1 - (time.monotonic_ns() - job.due_ns) / 1e9 / period)


def _seen(high: bool, laxities: list[float]) -> Laxity:
    values = laxities or [0.0]
    missed = sum(value < 0 for value in laxities)
    return Laxity(high, len(laxities), missed, min(values), sum(values) / len(values), max(values))


def releases(seconds: float, high_work: float, low_work: float) -> Iterator[Job]:
    """Jobs in the order of their instants, as if they had begun now."""
    begin = time.monotonic_ns() + 50_000_000
    for n in range(round(seconds / HIGH)):
        due = begin + round(n * HIGH * 1e9)
        yield Job(True, due, round(high_work * 1e9))
        if n % round(LOW / HIGH) == 0:
            yield Job(False, due, round(low_work * 1e9))


def release(jobs: Jobs, job: Job, spin: float = SPIN) -> None:
    """Push a job at its instant."""
    if (left := (job.due_ns - time.monotonic_ns()) / 1e9 - spin) > 0:
        time.sleep(left)
    while time.monotonic_ns() < job.due_ns:
        pass
    jobs[job.high].push(job)


def _opened(station: hg.Station, qos: hg.QoS | None = None) -> Jobs:
    """A channel for each of the two: no filter has to tell them apart, as in the ERD configuration."""
    return {high: station.channel(name, Job, qos=qos) for high, name in JOBS.items()}


def other_station(domain: str) -> None:
    """Release both consumers again and again, for no work, until the end of the input."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with hg.Station(domain=domain, transport="ring", config=CONFIG) as station:
        jobs = _opened(station)
        for channel in jobs.values():
            channel.wait_matched(1, LIMIT)
        os.set_blocking(sys.stdin.fileno(), False)
        while sys.stdin.read(1) is None:
            for job in releases(1.0, 0.0, 0.0):
                release(jobs, job, spin=0.0)


Jobs: TypeAlias = "dict[bool, hg.Channel[Job]]"
Point: TypeAlias = "Callable[[float, float], list[Laxity]]"
"""Runs one point, given its utilisation and how many seconds: what the high and the low one saw."""


@contextmanager
def workers(*, federated: bool) -> Iterator[tuple[Point, str]]:
    """Two band workers and this process as their supplier; how a point is run, and how they are scheduled."""
    cores = sorted(os.sched_getaffinity(0))
    domain = f"tao-{os.getpid()}-{int(federated)}"
    with hg.Station(domain=domain, transport="ring", config=CONFIG) as station:
        jobs = _opened(station)
        told = station.channel("tao.laxities", Laxity).consumer()
        how = "Two band workers on one core, the high one under SCHED_FIFO"
        try:
            station.band_worker(work_high, priority=5, name="high", core=cores[-1], fifo=40)
        except WorkerFailed:
            station.band_worker(work_high, priority=5, name="high", core=cores[-1])
            how = "Two band workers on one core, without SCHED_FIFO, which is not allowed here"
        station.band_worker(work_low, priority=1, name="low", core=cores[-1])
        other = None
        if federated:
            command = [sys.executable, "-m", "bench.papers.tao.utilisation", domain]
            other = subprocess.Popen(command, stdin=subprocess.PIPE)
        try:
            _place(cores[:1], os.SCHED_FIFO, SUPPLIER)
            yield partial(_told_by_workers, jobs, told), how
        finally:
            _place(cores, os.SCHED_OTHER, 0)
            if other is not None:
                other.communicate(timeout=LIMIT)


@contextmanager
def threads() -> Iterator[tuple[Point, str]]:
    """One process: two bands, and this thread as the supplier above them."""
    seen: dict[bool, list[float]] = {True: [], False: []}

    def job(job: Job) -> None:
        _spin(job.work_ns)
        seen[job.high].append(_laxity(job, HIGH if job.high else LOW))

    with hg.Station(config=CONFIG) as station:
        bands = hg.Threads("bands", os_priorities=True, background=True)
        how = "A thread for each of two bands on one core, the high one under SCHED_FIFO"
        try:
            jobs = _opened(station, hg.QoS(threads=bands))
        except RealTimeRefused:
            jobs = _opened(station, hg.QoS(threads=hg.Threads("bands")))
            how = "A thread for each of two bands, without SCHED_FIFO, which is not allowed here"
        jobs[True].subscribe(job, priority=5, name="high")
        jobs[False].subscribe(job, priority=1, name="low")
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(SUPPLIER))

        def point(utilisation: float, seconds: float) -> list[Laxity]:
            seen.update({True: [], False: []})
            for one in releases(seconds, _high_work(utilisation), LOW_WORK):
                release(jobs, one, spin=0.0)  # whoever spins here has the core of the bands
            if not all(channel.settle(LIMIT) for channel in jobs.values()):
                raise RuntimeError("the bands have not ended their work")
            return [_seen(high, seen[high]) for high in (True, False)]

        try:
            yield point, how
        finally:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _place(cores: list[int], policy: int, priority: int) -> None:
    """Where all threads of this process run, and how."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # not allowed, or ended meanwhile
            os.sched_setaffinity(int(thread.name), cores)
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))


def _high_work(utilisation: float) -> float:
    return (utilisation - LOW_WORK / LOW) * HIGH


def _told_by_workers(
    jobs: Jobs, told: hg.Consumer[Laxity], utilisation: float, seconds: float
) -> list[Laxity]:
    for job in releases(seconds, _high_work(utilisation), LOW_WORK):
        release(jobs, job)
    for high in (True, False):
        jobs[high].push(Job(high, 0, 0, last=True))
    by_priority: dict[bool, Laxity] = {}
    while len(by_priority) < 2:
        laxity = told.pull(LIMIT)
        if laxity is None:
            raise RuntimeError("a worker has not told what it saw")
        by_priority[laxity.high] = laxity
    return [by_priority[True], by_priority[False]]


def _experiment(
    size: Size,
    name: str,
    title: str,
    run: AbstractContextManager[tuple[Point, str]],
    *,
    knee: float,
    low_knee: float,
) -> Experiment:
    points = (0.5,) if size.quick else POINTS
    with run as (point, how):
        point(0.5, 0.2)  # the first jobs make the ways of the others
        tries = [_left_alone(point, utilisation, 0.4 if size.quick else SECONDS) for utilisation in points]
    by_point = [(utilisation, one.laxities) for utilisation, one in zip(points, tries, strict=True)]
    lines = [
        Series(label, tuple((100 * p, f[i].mean, f[i].least, f[i].most) for p, f in by_point))
        for i, label in enumerate(("high priority", "low priority"))
    ]
    facts = []
    asked = (("the high-priority task misses no deadline", knee), ("nobody misses a deadline", low_knee))
    for seen, (sentence, least) in enumerate(() if size.quick else asked, 1):
        reached = _before_a_miss(by_point, seen)
        facts.append(Fact(f"{sentence} up to {reached:.0%}; at least {least:.0%}", reached >= least))
    return Experiment(
        name,
        title,
        f"{how}; periods of 20 and 40 ms. Laxity in per cent of the period: least / mean / most of all "
        "jobs, and jobs that missed; what the host took of the processors, and in which try that was.",
        ("utilisation", "high", "missed", "low", "missed", "host took"),
        tuple(
            (
                f"{point:.0%}",
                *(text for seen in one.laxities for text in (_text(seen), f"{seen.missed} of {seen.jobs}")),
                f"{one.stolen_ms} ms in try {one.number}",
            )
            for point, one in zip(points, tries, strict=True)
        ),
        tuple(facts),
        chart(lines, "CPU utilisation (%)", "laxity (%)"),
    )


class Try(NamedTuple):
    """One run of a point."""

    number: int
    laxities: list[Laxity]
    stolen_ms: int


def _left_alone(point: Point, utilisation: float, seconds: float) -> Try:
    """The first run of a point in which the host took no time, else the last."""
    for number in range(1, MOST_TRIES + 1):
        before = _stolen_ms()
        one = Try(number, point(utilisation, seconds), _stolen_ms() - before)
        if not one.stolen_ms:
            break
    return one


def _stolen_ms() -> int:
    """What a virtual machine was not given of its processors, of all of them since it was started."""
    total = Path("/proc/stat").read_text().split("\n", 1)[0]
    return int(total.split()[8]) * 1_000 // os.sysconf("SC_CLK_TCK")


def _before_a_miss(by_point: list[tuple[float, list[Laxity]]], seen: int) -> float:
    """The highest utilisation below which none of the first so many tasks missed anything."""
    reached = 0.0
    for point, laxities in by_point:
        if any(laxity.missed for laxity in laxities[:seen]):
            break
        reached = point
    return reached


def _text(laxity: Laxity) -> str:
    return f"{laxity.least:.0f} / {laxity.mean:.0f} / {laxity.most:.0f}"


@experiment("tao-utilisation-1")
def figure_13(size: Size) -> Experiment:
    title = "TAO, Figure 13: laxity with a single channel"
    return _experiment(size, "tao-utilisation-1", title, workers(federated=False), knee=0.97, low_knee=0.95)


@experiment("tao-utilisation-2")
def figure_14(size: Size) -> Experiment:
    title = "TAO, Figure 14: laxity with federated channels"
    return _experiment(size, "tao-utilisation-2", title, workers(federated=True), knee=0.90, low_knee=0.90)


@experiment("tao-utilisation-threads")
def figure_13_with_threads(size: Size) -> Experiment:
    title = "TAO, Figure 13 with threads: laxity in one process"
    return _experiment(size, "tao-utilisation-threads", title, threads(), knee=0.95, low_knee=0.95)


if __name__ == "__main__":
    other_station(sys.argv[1])

"""Figures 13 and 14: the laxity of a high- and a low-priority task while the processor fills up.

Two consumers, one of high and one of low priority, are band workers: processes of their own, pinned to one
core. The high one runs under SCHED_FIFO, and so does the supplier on the other core; the low one is an
ordinary process, because the kernel gives real-time processes together no more than 95 % of a core. The
supplier releases the one every 20 ms and the other every 40 ms, at exact instants. The low one works for 8 ms
each time; the work of the high one is raised point by point.

    utilisation   the work of both, in processor time, by their periods; what the service itself takes on that
                  core comes on top, so 100 % cannot be reached
    laxity        what is left of the period when a job has ended, counted from its exact instant, in per cent
                  of the period; below zero it has missed its deadline

For figure 14 a third process of its own releases both consumers as often again, over a link, for no work.
Where SCHED_FIFO is not allowed the workers are ordinary processes, which the note then says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment
from bench.papers.figure import Series, chart
from heliograph.errors import WorkerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

HIGH, LOW = 0.020, 0.040
"""Periods in seconds."""
LOW_WORK = 0.008
POINTS = (0.86, 0.88, 0.90, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 1.00, 1.02)
SECONDS = 4.0
"""For each point."""
SPIN = 0.0002
LIMIT = 30.0


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
    _work(station, "high = TRUE", HIGH)


def work_low(station: hg.Station) -> None:
    _work(station, "high = FALSE", LOW)


def _work(station: hg.Station, where: str, period: float) -> None:
    told = station.channel("tao.laxities", Laxity)
    seen: list[float] = []

    def job(job: Job) -> None:
        if job.last:
            values = seen or [0.0]
            missed = sum(value < 0 for value in seen)
            mean = sum(values) / len(values)
            told.push(Laxity(job.high, len(seen), missed, min(values), mean, max(values)))
            seen.clear()
        elif job.work_ns:
            end = time.thread_time_ns() + job.work_ns
            while time.thread_time_ns() < end:
                pass
            seen.append(100 * (1 - (time.monotonic_ns() - job.due_ns) / 1e9 / period))

    station.channel("tao.jobs", Job).subscribe(job, where=where)


def releases(seconds: float, high_work: float, low_work: float) -> Iterator[Job]:
    """Jobs in the order of their instants, as if they had begun now."""
    begin = time.monotonic_ns() + 50_000_000
    for n in range(round(seconds / HIGH)):
        due = begin + round(n * HIGH * 1e9)
        yield Job(True, due, round(high_work * 1e9))
        if n % round(LOW / HIGH) == 0:
            yield Job(False, due, round(low_work * 1e9))


def release(jobs: hg.Channel[Job], job: Job, spin: float = SPIN) -> None:
    """Push a job at its instant."""
    if (left := (job.due_ns - time.monotonic_ns()) / 1e9 - spin) > 0:
        time.sleep(left)
    while time.monotonic_ns() < job.due_ns:
        pass
    jobs.push(job)


def other_station(domain: str) -> None:
    """Release both consumers again and again, for no work, until the end of the input."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with hg.Station(domain=domain, transport="ring") as station:
        jobs = station.channel("tao.jobs", Job)
        jobs.wait_matched(2, LIMIT)
        os.set_blocking(sys.stdin.fileno(), False)
        while sys.stdin.read(1) is None:
            for job in releases(1.0, 0.0, 0.0):
                release(jobs, job, spin=0.0)


def measured(points: tuple[float, ...], seconds: float, *, federated: bool) -> tuple[list[list[Laxity]], str]:
    """The laxities of (high, low) at each point, and how the workers were scheduled."""
    cores = sorted(os.sched_getaffinity(0))
    domain = f"tao-{os.getpid()}-{int(federated)}"
    with hg.Station(domain=domain, transport="ring") as station:
        jobs = station.channel("tao.jobs", Job)
        told = station.channel("tao.laxities", Laxity).consumer()
        how = "the high one under SCHED_FIFO"
        try:
            station.band_worker(work_high, priority=5, name="high", core=cores[-1], fifo=40)
        except WorkerFailed:
            station.band_worker(work_high, priority=5, name="high", core=cores[-1])
            how = "without SCHED_FIFO, which is not allowed here"
        station.band_worker(work_low, priority=1, name="low", core=cores[-1])
        other = None
        if federated:
            command = [sys.executable, "-m", "bench.papers.tao.utilisation", domain]
            other = subprocess.Popen(command, stdin=subprocess.PIPE)
        os.sched_setaffinity(0, {cores[0]})
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))
        try:
            _point(jobs, told, 0.5, 0.2)  # the first jobs make the ways of the others
            found = [_point(jobs, told, point, seconds) for point in points]
        finally:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            os.sched_setaffinity(0, cores)
            if other is not None:
                other.communicate(timeout=LIMIT)
    return found, how


def _point(
    jobs: hg.Channel[Job], told: hg.Consumer[Laxity], utilisation: float, seconds: float
) -> list[Laxity]:
    high_work = (utilisation - LOW_WORK / LOW) * HIGH
    for job in releases(seconds, high_work, LOW_WORK):
        release(jobs, job)
    for high in (True, False):
        jobs.push(Job(high, 0, 0, last=True))
    by_priority: dict[bool, Laxity] = {}
    while len(by_priority) < 2:
        laxity = told.pull(LIMIT)
        if laxity is None:
            raise RuntimeError("a worker has not told what it saw")
        by_priority[laxity.high] = laxity
    return [by_priority[True], by_priority[False]]


def _experiment(size: Size, name: str, title: str, *, federated: bool, knee: float) -> Experiment:
    points = (0.5,) if size.quick else POINTS
    found, how = measured(points, 0.4 if size.quick else SECONDS, federated=federated)
    by_point = list(zip(points, found, strict=True))
    lines = [
        Series(label, tuple((100 * p, f[i].mean, f[i].least, f[i].most) for p, f in by_point))
        for i, label in enumerate(("high priority", "low priority"))
    ]
    facts = []
    sentences = ("the high-priority task misses no deadline", "nobody misses a deadline")
    for seen, sentence in enumerate(() if size.quick else sentences, 1):
        reached = _before_a_miss(by_point, seen)
        facts.append(Fact(f"{sentence} up to {reached:.0%}; at least {knee:.0%}", reached >= knee))
    return Experiment(
        name,
        title,
        f"Two band workers on one core, {how}; periods of 20 and 40 ms. Laxity in per cent of the period: "
        "least / mean / most of all jobs, and jobs that missed.",
        ("utilisation", "high", "missed", "low", "missed"),
        tuple(
            (
                f"{point:.0%}",
                *(text for seen in both for text in (_text(seen), f"{seen.missed} of {seen.jobs}")),
            )
            for point, both in by_point
        ),
        tuple(facts),
        chart(lines, "CPU utilisation (%)", "laxity (%)"),
    )


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
    return _experiment(size, "tao-utilisation-1", title, federated=False, knee=0.95)


@experiment("tao-utilisation-2")
def figure_14(size: Size) -> Experiment:
    title = "TAO, Figure 14: laxity with federated channels"
    return _experiment(size, "tao-utilisation-2", title, federated=True, knee=0.90)


if __name__ == "__main__":
    other_station(sys.argv[1])

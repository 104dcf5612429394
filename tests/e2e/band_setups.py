"""What band workers of the tests listen to; imported in their processes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import heliograph as hg

if TYPE_CHECKING:
    from heliograph.model.event import Header


class Job(hg.Event, name="band.job"):
    n: int


class Done(hg.Event, name="band.done"):
    n: int
    process: int
    priority: int


def answer(station: hg.Station) -> None:
    """Answer every even job with who has done it, and in which band."""
    jobs, done = station.channel("jobs", Job), station.channel("done", Done)

    def work(job: Job) -> None:
        done.push(Done(job.n, os.getpid(), band))

    band = jobs.subscribe(work, where="n % 2 = 0").selection.priority or 0


def die_of_thirteen(station: hg.Station) -> None:
    def die(job: Job, _: Header) -> None:
        if job.n == 13:
            os.kill(os.getpid(), 9)

    station.channel("jobs", Job).subscribe(die)
    answer(station)


def careful(station: hg.Station) -> None:
    """Write down each job, which process did it, and whether it came again; 13 kills.

    14, or the one that HELIO_TEST_STUCK_AT names, never returns when it comes first.
    """
    station.channel("jobs", Job).subscribe(_written_down)


def careless(station: hg.Station) -> None:
    """The same on a channel that may lose events."""
    hints = station.channel("hints", Job, qos=hg.QoS(reliability="best-effort"))
    hints.subscribe(_written_down)


def keeping(station: hg.Station) -> None:
    """The same on a channel that keeps its last event for those who join late."""
    states = station.channel("states", Job, qos=hg.QoS(durability="transient-local", history=1))
    states.subscribe(_written_down)


def _written_down(job: Job, header: Header) -> None:
    if job.n == 13:
        os.kill(os.getpid(), 9)
    if job.n == int(os.environ.get("HELIO_TEST_STUCK_AT", "14")) and not header.redelivered:
        time.sleep(600)
    time.sleep(0.001)
    # What a process has told others may die with it; what it has written does not.
    with open(os.environ["HELIO_TEST_MARK"], "a") as file:  # noqa: PTH123 - it may have another path each time
        file.write(f"{job.n} {os.getpid()} {int(header.redelivered)}\n")


def brisk(station: hg.Station) -> None:
    """Write down each job, as fast as that goes; what is numbered otherwise than it was pushed fails."""
    mark = os.open(os.environ["HELIO_TEST_MARK"], os.O_WRONLY | os.O_APPEND)

    def work(job: Job, header: Header) -> None:
        assert header.sequence == job.n
        os.write(mark, f"{job.n} {os.getpid()} {int(header.redelivered)}\n".encode())

    station.channel("jobs", Job).subscribe(work)


def clerk(station: hg.Station) -> None:
    """Write down what other workers have done."""
    mark = os.open(os.environ["HELIO_TEST_MARK"], os.O_WRONLY | os.O_APPEND)

    def write(done: Done, header: Header) -> None:
        os.write(mark, f"{done.n} {done.process} {int(header.redelivered)}\n".encode())

    station.channel("done", Done).subscribe(write)


def slow(station: hg.Station) -> None:
    """Takes its time for each job, so that some wait when the end comes."""
    jobs, done = station.channel("jobs", Job), station.channel("done", Done)

    def work(job: Job) -> None:
        time.sleep(0.02)
        done.push(Done(job.n, os.getpid(), 0))

    jobs.subscribe(work)


def broken(_: hg.Station) -> None:
    raise ValueError("the plant is closed")


def long_winded(_: hg.Station) -> None:
    raise ValueError("\0" * 100_000)


def hang_the_second_time(station: hg.Station) -> None:
    """Starts once; whoever starts it again waits in vain."""
    mark = os.environ["HELIO_TEST_MARK"]
    if os.path.exists(mark):  # noqa: PTH110 - one look
        time.sleep(600)
    open(mark, "x").close()  # noqa: PTH123 - likewise
    answer(station)


def placed(station: hg.Station) -> None:
    """Tell by `process` which cores it may use, by `priority` how it is scheduled."""
    done = station.channel("done", Done)
    (core,) = os.sched_getaffinity(0)
    scheduler = os.sched_getscheduler(0) * 100 + os.sched_getparam(0).sched_priority
    station.channel("jobs", Job).subscribe(lambda job: done.push(Done(job.n, core, scheduler)))


not_a_function = 7

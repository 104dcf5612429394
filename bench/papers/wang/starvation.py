"""The starvation bound of priority times waiting: how many urgent events go before one that is not.

Wang's dispatcher takes the event with the highest product of priority and waiting time. While events of
priority 5 come without end, one of priority 1 waits until it has waited five times as long as the oldest of
them. A strict order lets it wait for ever. Each event that the consumer takes lets one more urgent event in.
"""

from __future__ import annotations

import time

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment

WAITING = 20
STEP = 0.0005
"""Seconds that the consumer works on an event."""


class Job(hg.Event, name="wang.job"):
    urgent: bool


def passed_by(order: str, most: int) -> int:
    """How many urgent events a consumer takes before the one that is not; `most` when it never comes."""
    with hg.Station() as station:
        channel = station.channel("jobs", Job, qos=hg.QoS(dispatch=order))  # type: ignore[arg-type]  # one of its names
        taken = 0
        with channel.consumer() as consumer:
            channel.push(Job(urgent=False), priority=1)
            for _ in range(WAITING):
                channel.push(Job(urgent=True), priority=5)
            while taken < most:
                job = consumer.pull(timeout=1.0)
                if job is None or not job.urgent:
                    break
                taken += 1
                channel.push(Job(urgent=True), priority=5)
                time.sleep(STEP)
        return taken


@experiment("wang-starvation")
def starvation(size: Size) -> Experiment:
    most = 1_000 if size.quick else 5_000
    aged, strict = passed_by("aged", most), passed_by("strict", most)
    return Experiment(
        "wang-starvation",
        "Wang and others: the starvation bound of priority times waiting",
        f"One event of priority 1 among {WAITING} of priority 5 that never run out; how many of those are "
        "taken before it. The paper measures nothing.",
        ("dispatch", "urgent events before it"),
        (
            ("aged", f"{aged:,}"),
            ("strict", f"{strict:,} and it still waits" if strict == most else f"{strict:,}"),
        ),
        (
            Fact("With priority times waiting it is served.", aged < most),
            Fact("With strict priorities it is not, while urgent events come.", strict == most),
        ),
    )

"""Table 1: which share of normal messages arrives, and how much is resynchronised, by the supplier's rate.

A supplier in a process of its own pushes 10,000 messages over 100 keys into a channel whose receiver drops
the oldest when its queue is full, and heals by state. The receiver works for 20 microseconds on each message,
as its application would. The loss-free rate is measured first, from above; then the table is taken at 5, 2
and 1 times that rate, as the paper's is at 265.6, 98.1 and 49.9 messages a second; 49.9 lost nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment

KEYS = 100
MESSAGES = 10_000
REPETITIONS = 25
QUEUE = 1_000
WORK = 20e-6
PAPER_RATE = 49.9
"""Messages a second that the paper's event service took without loss."""
LIMIT = 60.0
TIMES = (5.0, 2.0, 1.0)
PAPER = {
    5.0: "265.6 / 247.8 / 26.3 % / 580.9",
    2.0: "98.1 / 96.9 / 96.1 % / 122.4",
    1.0: "49.9 / 49.9 / 99.9 % / 2.0",
}


class Status(hg.Event, name="ramani.status", key="key"):
    key: int
    value: int


class Run:
    """One repetition: what the supplier and the receiver counted."""

    def __init__(self, seconds: float, received: int, messages: int, rows: int, *, equal: bool) -> None:
        self.normal = messages / seconds
        self.effective = (messages + rows) / seconds
        self.share = received / messages
        self.rows = rows * MESSAGES / messages
        self.equal = equal
        """Whether the receiver ended with the supplier's state."""


def run(rate: float, messages: int) -> Run:
    """Push at a rate, in another process, and count here."""
    domain = f"ramani-{uuid4().hex[:8]}"
    with hg.Station(domain=domain) as station:
        channel = station.channel("status", Status)
        seen, begin = 0, time.perf_counter

        def receive(_: Status, header: hg.Header) -> None:
            nonlocal seen
            seen += not header.redelivered
            until = begin() + WORK
            while begin() < until:
                pass

        healing = hg.Resync(grace=0.05, check=0.2, pause=0.05)
        subscription = channel.subscribe(receive, resync=healing, queue=QUEUE, overflow="drop_oldest")
        supplier = subprocess.Popen(
            [sys.executable, "-m", "bench.papers.ramani.resync", domain, str(rate), str(messages)],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert supplier.stdout is not None
            seconds = float(supplier.stdout.readline())
            last = {key: messages - KEYS + key for key in range(KEYS)}
            deadline = time.monotonic() + LIMIT
            equal = False
            while not equal and time.monotonic() < deadline:
                state = {key: status.value for key, status in subscription.resync.state().items()}
                equal = state == last and subscription.resync.stats().settled
                time.sleep(0.01)
            rows = subscription.resync.stats().counts.rows
        finally:
            supplier.communicate()
    return Run(seconds, seen, messages, max(0, rows - KEYS), equal=equal)


def loss_free(messages: int) -> float:
    """The highest rate, by halving from above, at which no message was dropped."""
    rate = 200_000.0
    while rate > 1_000 and run(rate, messages).share < 1.0:
        rate /= 1.5
    return rate


@experiment("ramani-resync")
def table_1(size: Size) -> Experiment:
    messages = 1_000 if size.quick else MESSAGES
    repetitions = 1 if size.quick else REPETITIONS
    safe = 5_000.0 if size.quick else loss_free(messages)
    rows, facts, all_equal = [], [], True
    for times in TIMES:
        found = [run(times * safe, messages) for _ in range(repetitions)]
        all_equal = all_equal and all(one.equal for one in found)
        columns = [[getattr(one, name) for one in found] for name in ("effective", "normal", "share", "rows")]
        effective, normal, share, resynced = map(statistics.mean, columns)
        spread = [statistics.stdev(column) if len(column) > 1 else 0.0 for column in columns]
        rows.append(
            (
                f"{times:g}",
                f"{effective:,.0f} ({spread[0]:,.0f})",
                f"{normal:,.0f}",
                f"{share:.1%} ({spread[2]:.1%})",
                f"{resynced:,.0f} ({spread[3]:,.0f})",
                PAPER[times],
            )
        )
    facts.append(Fact("Every receiver ended with the state of its supplier.", all_equal))
    facts.append(
        Fact(
            f"The loss-free rate is at least 1,000 times the paper's {PAPER_RATE}: {safe:,.0f} a second.",
            safe >= 1_000 * PAPER_RATE,
        )
    )
    return Experiment(
        "ramani-resync",
        "Ramani and others, Table 1: supplier speed and resynchronisation",
        f"{messages:,} messages over {KEYS} keys, {repetitions} repetitions, from process to process; "
        f"a queue of {QUEUE:,} that drops the oldest. Means, with standard deviations in brackets; "
        "resynchronisation rows are those for each 10,000 normal messages, but for the first of each key. "
        "The paper's row: effective / normal rate / received / resynchronised.",
        ("x loss-free", "effective /s", "normal /s", "received", "resync rows", "the paper's"),
        tuple(rows),
        tuple(facts),
    )


def supply(domain: str, rate: float, messages: int) -> None:
    """The supplier's process: pushes at a rate, says how long that took, and stays until its input ends."""
    with hg.Station(domain=domain) as station:
        channel = station.channel("status", Status)
        channel.state("latest")
        channel.wait_matched(1, LIMIT)
        begun = time.perf_counter()
        with channel.paced(rate, burst=max(1, round(rate / 1_000))) as paced:
            chunk = max(1, round(rate / 1_000))
            for first in range(0, messages, chunk):
                numbers = range(first, min(first + chunk, messages))
                paced.push_many([Status(n % KEYS, n) for n in numbers])
        print(time.perf_counter() - begun, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    supply(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))

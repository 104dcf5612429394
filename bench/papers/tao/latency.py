"""Tables 1 and 2: how long an event takes from its supplier to the first and to the last of its consumers.

An event carries the time of its push, read on the clock that all processes of a host share; a consumer reads
the clock again and does nothing else. Consumers are called inline, as the collocated channel of the paper
calls them. Each supplier is a thread that pushes every ten milliseconds.

For table 2 this module runs a second time, as a process of its own on the other core: the consumers of each
process subscribe to the events of both, which cross a link.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SUPPLIERS = (1, 2, 10)
CONSUMERS = (1, 5, 10, 20)
EVENTS = 100
"""Events of each supplier."""
PAUSE = 0.01
LIMIT = 30.0

# Averages of the paper in µs: collocated (first, last); two processes (local, remote).
TABLE_1 = {
    (1, 1): (58, 58), (1, 5): (114, 206), (1, 10): (183, 393), (1, 20): (300, 760),
    (2, 1): (51, 51), (2, 5): (100, 187), (2, 10): (170, 374), (2, 20): (299, 781),
    (10, 1): (72, 72), (10, 5): (113, 284), (10, 10): (176, 576), (10, 20): (290, 1137),
}  # fmt: skip
TABLE_2 = {
    (1, 1): (63, 820), (1, 5): (155, 1283), (1, 10): (289, 3544), (1, 20): (534, 3084),
    (2, 1): (57, 1297), (2, 5): (152, 2330), (2, 10): (274, 3448), (2, 20): (519, 6038),
    (10, 1): (60, 3102), (10, 5): (172, 6282), (10, 10): (310, 7904), (10, 20): (596, 24345),
}  # fmt: skip


WARM: Final = 3
"""Events of each supplier that are not counted: the first ones make the ways of the others."""


class Stamped(hg.Event, name="tao.stamped"):
    at: int
    """When it was pushed; 0: not to be counted."""


def push_all(channel: hg.Channel[Stamped], suppliers: int, events: int) -> None:
    """Push from so many threads, which begin a little apart, and wait for them."""

    def supply(number: int) -> None:
        with channel.supplier() as supplier:
            time.sleep(PAUSE * number / suppliers)
            for n in range(WARM + events):
                supplier.push(Stamped(time.monotonic_ns() if n >= WARM else 0))
                time.sleep(PAUSE)

    threads = [threading.Thread(target=supply, args=(number,)) for number in range(suppliers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def times(latencies: Sequence[int]) -> str:
    """Least, most and average in µs, as the paper writes them."""
    if not latencies:
        return "-"
    return f"{min(latencies) / 1e3:.0f} / {max(latencies) / 1e3:.0f} / {average(latencies):.0f}"


def average(latencies: Sequence[int]) -> float:
    return sum(latencies) / len(latencies) / 1e3 if latencies else 0.0


def collocated(suppliers: int, consumers: int, events: int) -> tuple[list[int], list[int]]:
    """Nanoseconds to the first and to the last consumer of each event."""
    first: list[int] = []
    last: list[int] = []
    now = time.monotonic_ns
    with hg.Station() as station:
        channel = station.channel("tao", Stamped)
        for number in range(consumers):
            # A single consumer is the first and the last.
            into = last if number == consumers - 1 else first if number == 0 else []
            channel.subscribe(partial(_note, into, now), inline=True, name=f"consumer {number}")
        push_all(channel, suppliers, events)
    return first or last, last


def _note(into: list[int], now: Callable[[], int], event: Stamped) -> None:
    if event.at:
        into.append(now() - event.at)


def opened(domain: str, consumers: int) -> tuple[hg.Station, hg.Channel[Stamped], list[int], list[int]]:
    """A station whose consumers take the events of both processes."""
    station = hg.Station(domain=domain)
    channel = station.channel("tao", Stamped)
    local: list[int] = []
    remote: list[int] = []
    now = time.monotonic_ns
    for number in range(consumers):

        def note(event: Stamped, header: hg.Header, last: bool = number == consumers - 1) -> None:
            if last and event.at:
                (remote if header.hops else local).append(now() - event.at)

        channel.subscribe(note, inline=True, name=f"consumer {number}")
    return station, channel, local, remote


def two_processes(suppliers: int, consumers: int, events: int) -> tuple[list[int], list[int]]:
    """Nanoseconds to the last consumer: of events of this process, and of the other one."""
    domain = f"tao-{os.getpid()}-{suppliers}-{consumers}"
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # before there are threads, which stay there too
    station, channel, local, remote = opened(domain, consumers)
    arguments = (suppliers, consumers, events, max(cores))
    other = subprocess.Popen(
        [sys.executable, "-m", "bench.papers.tao.latency", domain, *map(str, arguments)],
        stdin=subprocess.PIPE,
    )
    try:
        with station:
            if not channel.wait_matched(2 * consumers, LIMIT):
                raise RuntimeError("the other process did not come")
            push_all(channel, suppliers, events)
            until = time.monotonic() + LIMIT
            while len(remote) < suppliers * events and time.monotonic() < until:
                time.sleep(0.01)
    finally:
        os.sched_setaffinity(0, cores)
        other.communicate(timeout=LIMIT)
    return local, remote


def other_process(domain: str, suppliers: int, consumers: int, events: int, core: int) -> None:
    os.sched_setaffinity(0, {core})
    station, channel, _, _ = opened(domain, consumers)
    with station:
        channel.wait_matched(2 * consumers, LIMIT)
        push_all(channel, suppliers, events)
        sys.stdin.read()


def cells(size: Size) -> list[tuple[int, int]]:
    return [(1, 2)] if size.quick else [(s, c) for s in SUPPLIERS for c in CONSUMERS]


@experiment("tao-latency-1")
def table_1(size: Size) -> Experiment:
    events = 5 if size.quick else EVENTS
    found = {cell: collocated(*cell, events) for cell in cells(size)}
    rows = []
    for cell, (first, last) in found.items():
        paper = TABLE_1.get(cell, (0, 0))
        rows.append((*map(str, cell), times(first), str(paper[0]), times(last), str(paper[1])))
    facts = [
        Fact(
            "every average is below that of the paper's machine",
            all(average(last) < TABLE_1.get(cell, (0, 1e9))[1] for cell, (_, last) in found.items()),
        )
    ]
    if not size.quick:
        for suppliers in SUPPLIERS:
            one, twenty = (average(found[suppliers, n][1]) for n in (1, 20))
            facts.append(
                Fact(
                    f"{suppliers} supplier(s): twenty consumers take {twenty / one:.1f} times as long as "
                    "one; at most 20",
                    twenty <= 20 * one,
                )
            )
    return Experiment(
        "tao-latency-1",
        "TAO, Table 1: latency in one process",
        "Suppliers, channel and consumers in one process; inline consumers. Least / most / average in µs to "
        "the first and to the last consumer of an event, and the paper's averages.",
        ("suppliers", "consumers", "first", "paper", "last", "paper"),
        tuple(rows),
        tuple(facts),
    )


@experiment("tao-latency-2")
def table_2(size: Size) -> Experiment:
    events = 5 if size.quick else EVENTS
    found = {cell: two_processes(*cell, events) for cell in cells(size)}
    rows = []
    for cell, (local, remote) in found.items():
        paper = TABLE_2.get(cell, (0, 0))
        rows.append((*map(str, cell), times(local), str(paper[0]), times(remote), str(paper[1])))
    facts = (
        Fact(
            "every event of the other process arrived",
            all(len(remote) == cell[0] * events for cell, (_, remote) in found.items()),
        ),
        Fact(
            "every average is below that of the paper's machine",
            all(
                average(local) < TABLE_2.get(cell, (1e9, 0))[0]
                and average(remote) < TABLE_2.get(cell, (0, 1e9))[1]
                for cell, (local, remote) in found.items()
            ),
        ),
    )
    return Experiment(
        "tao-latency-2",
        "TAO, Table 2: latency in and between two processes",
        "Two such processes, each on a core of its own; the consumers of each subscribe to the events of "
        "both, which go through shared memory. Least / most / average in µs to the last consumer.",
        ("suppliers", "consumers", "local", "paper", "remote", "paper"),
        tuple(rows),
        facts,
    )


if __name__ == "__main__":
    other_process(sys.argv[1], *map(int, sys.argv[2:]))

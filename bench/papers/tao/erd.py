"""Tables 1 and 2 in TAO's ERD configuration: no filters and no patterns, real-time dispatching.

The tables of `bench.papers.tao.latency` call consumers inline, as the collocated channel of the paper does.
Here each is called by the thread of its priority, `Threads("bands")`, of a station whose file says
`configuration = "erd"`: so an event waits in a queue and a thread is woken for it. Two such processes have
each a core of its own, and consumers of each subscribe to the events of both. Besides least, most and average
there is the standard deviation, which the DDS paper calls jitter; and the events carry up to 256 KiB.

For the second process this module runs once more, as a program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import pstdev
from typing import TYPE_CHECKING, Final

import heliograph as hg
from bench.environment import variables
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment
from bench.papers.tao.latency import CONSUMERS, EVENTS, LIMIT, PAUSE, SUPPLIERS, WARM, times

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIG: Final = Path(__file__).with_name("erd.toml")
SIZES: Final = (1 << 10, 16 << 10, 64 << 10, 256 << 10)
"""Bytes of an event, with one supplier and ten consumers; otherwise there are only eight."""


class Loaded(hg.Event, name="tao.loaded"):
    at: int
    """When it was pushed; 0: not to be counted."""
    load: bytes = b""


Cell = tuple[int, int, int]
"""Suppliers of each process, consumers of each process, bytes of an event."""


def opened(domain: str, consumers: int) -> tuple[hg.Station, hg.Channel[Loaded], list[int], list[int]]:
    """A station whose consumers are dispatched; what the last of them sees of both processes' events."""
    station = hg.Station(domain=domain, config=CONFIG)
    channel = station.channel("tao.erd", Loaded, qos=hg.QoS(threads=hg.Threads("bands")))
    local: list[int] = []
    remote: list[int] = []
    now = time.monotonic_ns
    for number in range(consumers):

        def note(event: Loaded, header: hg.Header, last: bool = number == consumers - 1) -> None:
            if last and event.at:
                (remote if header.hops else local).append(now() - event.at)

        channel.subscribe(note, name=f"consumer {number}")
    return station, channel, local, remote


def push_all(channel: hg.Channel[Loaded], suppliers: int, events: int, size: int) -> None:
    """Push from so many threads, which begin a little apart, and wait for them."""
    load = bytes(size)

    def supply(number: int) -> None:
        with channel.supplier() as supplier:
            time.sleep(PAUSE * number / suppliers)
            for n in range(WARM + events):
                supplier.push(Loaded(time.monotonic_ns() if n >= WARM else 0, load))
                time.sleep(PAUSE)

    threads = [threading.Thread(target=supply, args=(number,)) for number in range(suppliers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def two_processes(cell: Cell, events: int) -> tuple[list[int], list[int]]:
    """Nanoseconds to the last consumer: of events of this process, and of the other one."""
    suppliers, consumers, size = cell
    domain = "-".join(map(str, ("erd", os.getpid(), *cell)))
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # before there are threads, which stay there too
    station, channel, local, remote = opened(domain, consumers)
    command = [sys.executable, "-m", "bench.papers.tao.erd", domain, *map(str, (*cell, events, max(cores)))]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, env=variables())
    try:
        with station:
            if not channel.wait_matched(2 * consumers, LIMIT):
                raise RuntimeError("the other process did not come")
            push_all(channel, suppliers, events, size)
            until = time.monotonic() + LIMIT
            while len(remote) < suppliers * events and time.monotonic() < until:
                time.sleep(0.01)
            channel.settle(LIMIT)
    finally:
        os.sched_setaffinity(0, cores)
        other.communicate(timeout=LIMIT)
    return local, remote


def other_process(domain: str, cell: Cell, events: int, core: int) -> None:
    suppliers, consumers, size = cell
    os.sched_setaffinity(0, {core})
    station, channel, _, _ = opened(domain, consumers)
    with station:
        channel.wait_matched(2 * consumers, LIMIT)
        push_all(channel, suppliers, events, size)
        sys.stdin.read()


def jitter(latencies: Sequence[int]) -> str:
    """The standard deviation in µs."""
    return f"{pstdev(latencies) / 1e3:.0f}" if latencies else "-"


@experiment("tao-latency-erd")
def tables_in_erd(size: Size) -> Experiment:
    grid = [(s, c, 0) for s in SUPPLIERS for c in CONSUMERS] + [(1, 10, load) for load in SIZES]
    events = 5 if size.quick else EVENTS
    found = {cell: two_processes(cell, events) for cell in ([(1, 2, 1_024)] if size.quick else grid)}
    rows = [
        (*map(str, cell), times(local), jitter(local), times(remote), jitter(remote))
        for cell, (local, remote) in found.items()
    ]
    facts = (
        Fact(
            "every event of both processes came",
            all(len(seen) == cell[0] * events for cell, both in found.items() for seen in both),
        ),
        Fact(
            "no filter was loaded in this configuration",
            not any(name.startswith("heliograph.filters.python") for name in sys.modules),
        ),
    )
    return Experiment(
        "tao-latency-erd",
        "TAO, Tables 1 and 2 in the ERD configuration, with jitter and larger events",
        "Two processes, each on a core of its own, without filters; each consumer is called by the thread of "
        "its priority. Least / most / average in µs to the last consumer, and the standard deviation.",
        ("suppliers", "consumers", "bytes", "local", "jitter", "remote", "jitter"),
        tuple(rows),
        facts,
    )


if __name__ == "__main__":
    suppliers, consumers, size, events, core = map(int, sys.argv[2:])
    other_process(sys.argv[1], (suppliers, consumers, size), events, core)

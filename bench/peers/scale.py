"""Ten thousand channels in one process: what opening one costs, and what all of them cost at rest.

The bare case makes the folders and files that a persistent channel consists of, with the calls of the
standard library and without a sync. At rest is the processor time of the whole process over some seconds with
all of them open, and each persistent one with an event in its history, so that its files are looked after.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import heliograph as hg
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark

CHANNELS = 10_000
IDLE_SECONDS = 60.0
MOST_IDLE = 0.02
MOST_THREADS = 12
PERSISTENT = hg.QoS(durability="persistent")


class Reading(hg.Event, name="bench.reading", key="id"):
    id: int


def bare(folder: Path, numbers: count[int]) -> None:
    """The folders and files of a persistent channel."""
    channel = folder / f"channel{next(numbers)}"
    partition = channel / "partition"
    partition.mkdir(parents=True)
    for name, size in ((channel / "charter", 200), (partition / "manifest", 100)):
        temporary = name.with_suffix(".tmp")
        temporary.write_bytes(bytes(size))
        temporary.rename(name)
    (partition / "commit").write_bytes(bytes(192))
    (partition / "lock").write_bytes(bytes(50))


def idle_share(seconds: float) -> float:
    """The share of one core that this process takes while nobody asks anything of it."""
    before = time.process_time()
    threading.Event().wait(seconds)
    return (time.process_time() - before) / seconds


@benchmark("channels-many", "Opening one of ten thousand channels; figures per channel")
def many(size: Size) -> Benchmark:
    started = ExitStack()
    folder = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-")))
    threads = threading.active_count()
    station = started.enter_context(hg.Station(folder / "station"))
    channels = size.scaled(CHANNELS)
    opened = [station.channel(f"volatile.n{n}", Reading) for n in range(channels)]
    kept = [station.channel(f"kept.n{n}", Reading, qos=PERSISTENT) for n in range(channels)]
    receipts = [channel.push_nowait(Reading(id=n)) for n, channel in enumerate([*opened, *kept])]
    for receipt in receipts:
        receipt.result()
    idle_share(2.0)  # those that have committed end
    share = idle_share(0.1 if size.quick else IDLE_SECONDS)
    threads = threading.active_count() - threads
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the names are counted only
    numbers = count()
    many_times = ((),) * size.scaled(1_000)
    return Benchmark(
        cases=(
            Case("bare folders and files", lambda: bare(folder, numbers), many_times, alone=True),
            Case(
                "volatile",
                lambda: station.channel(f"volatile.more{next(numbers)}", Reading),
                many_times,
                alone=True,
            ),
            Case(
                "persistent",
                lambda: station.channel(f"kept.more{next(numbers)}", Reading, qos=PERSISTENT),
                many_times,
                alone=True,
            ),
        ),
        baseline="bare folders and files",
        targets=(
            Target("a volatile channel is opened within a millisecond", "volatile", "at most", 1.0),
            Target("a persistent channel is opened within a millisecond", "persistent", "at most", 1.0),
        ),
        facts=(
            Fact(
                f"{channels:,} volatile and {channels:,} persistent channels take less than {MOST_IDLE:.0%} "
                f"of a core at rest: {share:.2%}",
                share < MOST_IDLE or size.quick,  # a tenth of a second says nothing
            ),
            Fact(f"they have at most {MOST_THREADS} threads: {threads}", threads <= MOST_THREADS),
            Fact(f"and few files open: {files}", files < 1024),
        ),
        note=f"{channels:,} of each are open already. Processor time: what the disk takes is not in it.",
        rounds=3,
        close=started.close,
    )

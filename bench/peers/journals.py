"""Keeping events: pushes to a persistent channel against a bare loop that appends the same bytes and syncs.

The bare loop is a group commit too: suppliers put bytes in line, one thread writes all of it and syncs once.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import heliograph as hg
from bench.harness import Benchmark, Case, Size, Target, benchmark
from heliograph import codec

if TYPE_CHECKING:
    from collections.abc import Callable


class Track(hg.Event, name="air.track"):
    id: int
    lat: float
    lon: float
    speed: float
    region: str


TRACK = Track(7, 48.1, 11.6, 410.0, "north")
ROW = codec.encoder(Track).encode(TRACK) + bytes(60)
"""About what a row takes with its header."""


class BareLog:
    """Append and fdatasync, for all who wait at once."""

    def __init__(self, folder: str) -> None:
        self._file = os.open(f"{folder}/bare.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._line: queue.SimpleQueue[tuple[bytes, threading.Event]] = queue.SimpleQueue()
        threading.Thread(target=self._commit, daemon=True).start()

    def _commit(self) -> None:
        while True:
            waiting = [self._line.get()]
            while not self._line.empty():
                waiting.append(self._line.get())
            os.write(self._file, b"".join(data for data, _ in waiting))
            os.fdatasync(self._file)
            for _, done in waiting:
                done.set()

    def close(self) -> None:
        os.close(self._file)

    def append(self, data: bytes) -> None:
        done = threading.Event()
        self._line.put((data, done))
        done.wait()


class Suppliers:
    """So many threads that all do the same when told, a number of times."""

    def __init__(self, threads: int, times: int, work: Callable[[], object]) -> None:
        self._go = [threading.Semaphore(0) for _ in range(threads)]
        self._done = threading.Semaphore(0)
        for go in self._go:
            threading.Thread(target=self._run, args=(go, times, work), daemon=True).start()

    def _run(self, go: threading.Semaphore, times: int, work: Callable[[], object]) -> None:
        while True:
            go.acquire()
            for _ in range(times):
                work()
            self._done.release()

    def __call__(self) -> None:
        for go in self._go:
            go.release()
        for _ in self._go:
            self._done.acquire()


@benchmark("journal-acks", "Synced pushes from 1, 8 and 128 suppliers, and in batches; figures per event")
def synced(size: Size) -> Benchmark:
    started = ExitStack()
    folder = started.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    bare = BareLog(folder)
    started.callback(bare.close)
    station = started.enter_context(hg.Station(f"{folder}/data"))
    channel = station.channel("kept", Track, qos=hg.QoS(durability="persistent"))
    batch = [TRACK] * 1_000
    rows = ROW * 1_000
    cases: list[Case] = []
    targets: list[Target] = []
    for threads in (1, 8, 128):
        times = max(1, size.scaled(200) // threads)
        events = threads * times
        raw, ours = f"bare, {threads}", f"heliograph, {threads}"
        cases += [
            Case(raw, Suppliers(threads, times, lambda: bare.append(ROW)), ((),), wall=True, events=events),
            Case(
                ours, Suppliers(threads, times, lambda: channel.push(TRACK)), ((),), wall=True, events=events
            ),
        ]
        # At least 0.6 of its rate: at most 1.67 of its time.
        targets.append(
            Target(f"{threads} suppliers, time against the bare loop", ours, "at most", 1 / 0.6, raw)
        )
    cases += [
        Case("bare, batches", lambda: bare.append(rows), ((),), wall=True, events=1_000),
        Case("heliograph, batches", lambda: channel.push_many(batch), ((),), wall=True, events=1_000),
    ]
    targets.append(
        Target(
            "batches of 1,000, time against the bare loop",
            "heliograph, batches",
            "at most",
            1 / 0.6,
            "bare, batches",
        )
    )
    return Benchmark(
        cases=tuple(cases),
        baseline="bare, 1",
        targets=tuple(targets),
        close=started.close,
        note="Both write to the folder for temporary files. 0.8 million events a second are 1,250 ns each.",
    )

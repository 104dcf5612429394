"""`python -m bench.event_paths`: which files and functions of Heliograph an event runs through.

Each way is taken some thirty times after a first one that makes what is made once, with a profile function in
every thread; the run with the fewest calls counts, as others hold a heartbeat or another thread's turn.

    files      of the package, in which a function was called; generated code is a file more
    calls      of Python functions of the package
    changes    how often a call is in another file than the call before it in the same thread
    entry      how the event enters the receiver's queue: the functions on the stack, from the one that has
               the frame of the socket to the one that calls the queue

`--calls` prints the calls one by one. Numbers are of single events on a quiet way; nothing here is a time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import heliograph as hg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

SOURCE: Final = f"{Path(hg.__file__).parent}{os.sep}"
GENERATED: Final = "generated"
FIRST: Final = "Unpacker.take"
QUEUE: Final = "channel/queueing/queue.py"
RUNS: Final = 30
REST: Final = 0.002
"""Seconds after a callback in which threads come to rest, and before the next push."""
LIMIT: Final = 30.0


class Track(hg.Event, name="paths.track"):
    id: int
    speed: float


@dataclass
class Trace:
    """What one event ran through."""

    calls: list[tuple[int, str, str]] = field(default_factory=list)
    """Thread, file and function."""
    entry: list[tuple[str, str]] = field(default_factory=list)
    """File and function of each call that was open when the event entered the receiver's queue."""

    @property
    def files(self) -> set[str]:
        return {file for _, file, _ in self.calls} - {GENERATED}

    @property
    def changes(self) -> int:
        last: dict[int, str] = {}
        changes = 0
        for thread, file, _ in self.calls:
            changes += last.get(thread, file) != file
            last[thread] = file
        return changes


class Recorder:
    """A profile function for all threads that are started while it is there."""

    def __init__(self) -> None:
        self._trace: Trace | None = None

    def __enter__(self) -> Recorder:
        threading.setprofile(self._seen)
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        trace = self._trace
        if trace is None or event != "call":
            return
        file, name = _of(frame)
        if file:
            trace.calls.append((threading.get_ident(), file, name))
            if file == QUEUE and not trace.entry:
                trace.entry = _entry(frame)

    @contextmanager
    def on(self) -> Iterator[Trace]:
        """Record what is called meanwhile."""
        self._trace = trace = Trace()
        try:
            yield trace
        finally:
            self._trace = None

    def fewest(self, push: Callable[[int], object], arrived: threading.Event, runs: int) -> Trace:
        """The trace of the run with the fewest calls."""
        found: list[Trace] = []
        for number in range(runs + 1):
            arrived.clear()
            time.sleep(REST)
            with self.on() as trace:
                push(number)
                if not arrived.wait(LIMIT):
                    raise RuntimeError("the event has not come")
                time.sleep(REST)
            found.append(trace)
        return min(found[1:], key=lambda trace: len(trace.calls))


def _of(frame: FrameType) -> tuple[str, str]:
    """The file and function of a frame; an empty file outside of the package."""
    code = frame.f_code
    if code.co_filename.startswith(SOURCE):
        return code.co_filename.removeprefix(SOURCE), code.co_qualname
    return (GENERATED if code.co_filename.startswith("<heliograph") else ""), code.co_qualname


def _entry(frame: FrameType) -> list[tuple[str, str]]:
    """The callers of a queue up to the one that has the frame; nothing where no link brought the event."""
    stack: list[tuple[str, str]] = []
    caller = frame.f_back
    while caller is not None:
        file, name = _of(caller)
        if file:
            stack.insert(0, (file, name))
        if name == FIRST:
            return stack
        caller = caller.f_back
    return []


def in_process(runs: int = RUNS) -> Trace:
    """A queued callback in the process of its supplier."""
    with Recorder() as recorder, hg.Station() as station:
        return _pushed(recorder, station.channel("paths", Track), station, runs)


def persistent(runs: int = RUNS) -> Trace:
    """The same on a persistent channel whose pushes wait for the disk."""
    with tempfile.TemporaryDirectory() as folder, Recorder() as recorder, hg.Station(folder) as station:
        qos = hg.QoS(durability="persistent", ack="synced")
        return _pushed(recorder, station.channel("paths", Track, qos=qos), station, runs)


def by_link(carrier: Any, runs: int = RUNS) -> Trace:
    """From one station to another, both in this process; shared memory is read by views only elsewhere."""
    domain = f"paths-{os.getpid()}-{carrier}"
    with ExitStack() as stack:
        recorder = stack.enter_context(Recorder())
        here, there = (stack.enter_context(hg.Station(domain=domain, transport=carrier)) for _ in range(2))
        return _pushed(recorder, here.channel("paths", Track), there, runs)


def spark_batch(events: int = 100) -> Trace:
    """From the head of a journal into the columns of the first batch of a stream, without Spark around it."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from heliograph.spark.source.source import HeliographSource, SlicePartition

    with tempfile.TemporaryDirectory() as folder, Recorder() as recorder:
        with hg.Station(folder) as station:
            tracks = station.channel("paths", Track, qos=hg.QoS(durability="persistent"))
            for number in range(events):
                tracks.push(Track(number, 1.0))
        source = HeliographSource({"path": folder, "channel": "paths", "start": "earliest"})
        reader = source.streamReader(source.schema())
        with recorder.on() as trace:
            begin = reader.initialOffset()
            end = reader.latestOffset(begin, ReadAllAvailable())
            parts = [SlicePartition(part.value) for part in reader.partitions(begin, end)]
            batches: list[Any] = [batch for part in parts for batch in reader.read(part)]
            rows = sum(batch.num_rows for batch in batches)
    if rows != events:
        raise RuntimeError(f"{rows} rows of {events} events")
    return trace


def _pushed(recorder: Recorder, channel: hg.Channel[Track], receiver: hg.Station, runs: int) -> Trace:
    arrived = threading.Event()
    receiver.channel("paths", Track, qos=channel.qos).subscribe(lambda _: arrived.set())
    if not channel.wait_matched(1, LIMIT):
        raise RuntimeError("the stations have not met")
    with channel.supplier() as supplier:
        return recorder.fewest(lambda number: supplier.push(Track(number, 1.0)), arrived, runs)


WAYS: Final[dict[str, Callable[[], Trace]]] = {
    "in process, queued": in_process,
    "persistent, synced, queued": persistent,
    "Unix socket": lambda: by_link("socket"),
    "shared-memory ring": lambda: by_link("ring"),
    "journal to a Spark batch of 100 events": spark_batch,
}


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.event_paths", description=__doc__)
    parser.add_argument("--calls", action="store_true", help="print the calls, too")
    options = parser.parse_args(arguments)
    print("| way | files | calls | changes of file |\n|---|--:|--:|--:|")
    for name, way in WAYS.items():
        trace = way()
        print(f"| {name} | {len(trace.files)} | {len(trace.calls)} | {trace.changes} |")
        if trace.entry:
            files = len({file for file, _ in trace.entry})
            print(f"\nenters the queue by {len(trace.entry)} functions of {files} files:")
            print(*(f"    {file} {function}" for file, function in trace.entry), sep="\n")
        if options.calls:
            print(*(f"    {thread} {file} {function}" for thread, file, function in trace.calls), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

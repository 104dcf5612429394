"""What each configuration costs a program that begins: time until its first event is delivered, and memory.

A process for each configuration opens a station, subscribes with what the configuration has (a filter and a
pattern in "full" and "efd"), pushes one event and ends. The time is that of the process on the wall, with the
interpreter's own start, which the first case shows alone. The memory is what the process occupies in the end
without what it shares with the files it was loaded from (RssAnon of Linux): the note has it, beside the
processor time from the first import to the delivery and the number of our modules that were loaded.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark

NAMES = ("erm", "erd", "efd", "full")
PROGRAM = """
import sys, time
began = time.process_time()
import heliograph as hg

class Note(hg.Event):
    text: str

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))

configuration = sys.argv[1]
with hg.Station(config=sys.argv[2]) as station:
    channel = station.channel("c", Note)
    has_filters = configuration in ("full", "efd")
    channel.subscribe(lambda note: None, where="text = 'a'" if has_filters else None)
    if has_filters:
        station.subscribe(hg.all_of(a=channel, b=channel), lambda match: None)
    channel.push(Note("a"))
    channel.settle(10)
    loaded = sum(name.startswith("heliograph") for name in sys.modules)
    print(f'{{"seconds": {time.process_time() - began}, "bytes": {resident()}, "modules": {loaded}}}')
"""


class Begun(msgspec.Struct):
    """What a process says of its beginning."""

    seconds: float
    bytes: int
    modules: int


def _process(*arguments: str) -> bytes:
    command = [sys.executable, "-c", *arguments]
    return subprocess.run(command, check=True, timeout=60, stdout=subprocess.PIPE).stdout


def begin(configuration: str, file: str) -> Begun:
    return msgspec.json.decode(_process(PROGRAM, configuration, file), type=Begun)


def _memory(runs: list[Begun]) -> float:
    return median(r.bytes for r in runs) / 1e6


def _row(name: str, runs: list[Begun]) -> str:
    ms = median(r.seconds for r in runs) * 1e3
    return f"{name} {ms:.0f} ms, {_memory(runs):.1f} MB, {runs[0].modules} modules"


@benchmark("configurations", "Starting a process of each configuration, to its first event")
def configurations(size: Size) -> Benchmark:
    folder = tempfile.TemporaryDirectory()
    files = {name: Path(folder.name) / f"{name}.toml" for name in NAMES}
    for name, file in files.items():
        file.write_text(f"configuration = '{name}'")
    times = 1 if size.quick else 7
    runs = {name: [begin(name, str(files[name])) for _ in range(times)] for name in NAMES}
    erm, full = runs["erm"], runs["full"]
    return Benchmark(
        (
            Case("interpreter alone", partial(_process, "pass"), [()], alone=True, wall=True),
            *(Case(name, begin, [(name, str(files[name]))], alone=True, wall=True) for name in NAMES),
        ),
        "full",
        (Target("ERM begins sooner than full", "erm", "at most", 1.0, "full"),),
        (
            Fact("ERM loads fewer modules than full", erm[0].modules < full[0].modules),
            *(
                ()
                if size.quick
                else (Fact("ERM occupies less memory than full", _memory(erm) < _memory(full)),)
            ),
        ),
        note="Processor time from the first import to the delivery, resident memory, and modules of ours: "
        + "; ".join(_row(name, runs[name]) for name in NAMES)
        + ".",
        rounds=7,
        close=folder.cleanup,
    )

"""From process to process on one host: 64 bytes through the raw ring, beside a socket and other libraries.

Two processes, each pinned to a core. The other one is this module run as a program: it sends back what begins
with `E`, counts the rest, and answers what begins with `L` with the count. The clock is the one on the wall;
compare what polls with what polls, and what blocks with what blocks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark
from bench.peers.hosts import LIMIT, SIZE, WAYS, End, RingEnd, open_end, ways_here

if TYPE_CHECKING:
    from collections.abc import Callable

ECHO = b"E" * SIZE
COUNTED = b"C" * SIZE
LAST = b"L" * SIZE
STOP = b"S" * SIZE
BATCH = 100
REST_S = 2.0


def answer(end: End) -> None:
    """The other process's work."""
    counted = 0
    while (data := end.receive(LIMIT * 100)) is not None and data != STOP:
        kind = data[:1]
        if kind == b"C":
            counted += 1
        elif kind == b"E":
            end.send(data)
        else:
            end.send(counted.to_bytes(SIZE, "little"))
            counted = 0


class Pair:
    """This process's end of one way, and the process at the other."""

    def __init__(self, way: str, core: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="helio-", suffix=f"{os.getpid() + len(way):04x}"[-4:]))
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.rings", way, str(self.folder), str(core)], env=environment
        )
        self.end = open_end(way, self.folder, 0)
        self.round_trip()

    def round_trip(self) -> None:
        self.end.send(ECHO)
        if self.end.receive(LIMIT) is None:
            raise TimeoutError("no answer")

    def stream(self, events: int) -> int:
        """Send so many one by one; returns how many came."""
        send = self.end.send
        for _ in range(events):
            send(COUNTED)
        return self.arrived()

    def batches(self, events: int) -> int:
        """The same in batches, which only rings have."""
        assert isinstance(self.end, RingEnd)
        batch = [COUNTED] * BATCH
        for _ in range(events // BATCH):
            self.end.writer.append_many(batch)
        return self.arrived()

    def arrived(self) -> int:
        self.end.send(LAST)
        return int.from_bytes(self.end.receive(LIMIT) or b"", "little")

    def share_of_a_core_at_rest(self, seconds: float) -> float:
        """What the other process takes while nothing comes."""
        before = _processor_time(self.process.pid)
        time.sleep(seconds)
        return (_processor_time(self.process.pid) - before) / seconds

    def close(self) -> None:
        self.end.send(STOP)
        self.process.wait(LIMIT)
        self.end.close()
        shutil.rmtree(self.folder)


def _processor_time(process: int) -> float:
    """Seconds that the main thread, which alone waits for events, has run."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def pairs(started: ExitStack) -> dict[str, Pair]:
    """All ways, opened; this process on one core, the others on another."""
    allowed = os.sched_getaffinity(0)
    started.callback(os.sched_setaffinity, 0, allowed)
    cores = sorted(allowed)
    made = {}
    for way in ways_here():
        made[way] = Pair(way, cores[-1])
        started.callback(made[way].close)
    os.sched_setaffinity(0, {cores[0]})
    return made


@benchmark("rings-trips", "A round trip of 64 bytes to another process on another core")
def trips(size: Size) -> Benchmark:
    started = ExitStack()
    open_pairs = pairs(started)
    resting = open_pairs["ring, polling"].share_of_a_core_at_rest(REST_S / 10 if size.quick else REST_S)
    cases = tuple(
        Case(way, pair.round_trip, ((),), WAYS[way][0], wall=True) for way, pair in open_pairs.items()
    )
    targets = [
        _target("polling: the ring against iceoryx2", "ring, polling", "iceoryx2"),
        *(
            _target(f"blocking: the ring against {rival}", "ring, blocking", rival)
            for rival in ("Unix socket", "ZeroMQ", "nng", "Zenoh", "Cyclone DDS")
        ),
    ]
    return Benchmark(
        cases=cases,
        baseline="Unix socket",
        targets=tuple(target for target in targets if target.base in open_pairs),
        facts=(Fact(f"at rest a reader takes less than 1 % of a core: {resting:.1%}", resting < 0.01),),
        close=started.close,
    )


@benchmark("rings-streams", "64 bytes to another process on another core, as fast as it goes; per event")
def streams(size: Size) -> Benchmark:
    started = ExitStack()
    open_pairs = pairs(started)
    many = size.scaled(20_000) // BATCH * BATCH
    lost = {way: many - pair.stream(many) for way, pair in open_pairs.items()}

    def case(way: str, name: str, function: Callable[[int], object], note: str) -> Case:
        return Case(name, function, ((many,),), note, wall=True, events=many)

    cases = [case(way, way, pair.stream, WAYS[way][0]) for way, pair in open_pairs.items()]
    ring = open_pairs["ring, polling"]
    cases.append(case("ring", "ring, batches", ring.batches, f"{BATCH} events at a time"))
    rivals = [way for way in open_pairs if not way.startswith("ring")]
    return Benchmark(
        cases=tuple(cases),
        baseline="Unix socket",
        targets=tuple(_target(f"one by one: the ring against {way}", "ring, polling", way) for way in rivals),
        facts=tuple(Fact(f"{way} loses nothing: {n} of {many} lost", n == 0) for way, n in lost.items()),
        close=started.close,
        note="1 million events a second are 1,000 ns each, 2 million 500 ns.",
    )


def _target(sentence: str, case: str, base: str) -> Target:
    return Target(sentence, case, "at most", 1.0, base)


if __name__ == "__main__":
    way, folder, core = sys.argv[1:]
    own_end = open_end(way, Path(folder), 1)
    os.sched_setaffinity(0, {int(core)})  # after threads were started, which may go where they like
    try:
        answer(own_end)
    finally:
        own_end.close()

"""Eleven stations that know each other: what each takes at rest, and an event to all of them.

Each is a process of its own that has a channel in common with all others and a callback there. At rest is the
processor time of each process while nobody pushes: heartbeats, looks for new stations, rings that are slept
on. The figure is that of the other process that takes most. A trip is one event from this process until all
others have answered, with default callbacks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import heliograph as hg
from bench.environment import variables
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark
from bench.peers.links import LIMIT
from bench.peers.rings import processor_time

if TYPE_CHECKING:
    from heliograph.links import Carrier

PEERS = 10
REST_S = 20.0
MOST_AT_REST = 0.01
CARRIERS: tuple[Carrier, ...] = ("ring", "socket")


class Call(hg.Event, name="bench.call"):
    n: int


def answer(domain: str, carrier: Carrier) -> None:
    """The other processes' work, until their input ends."""
    with hg.Station(domain=domain, transport=carrier) as station:
        answers = station.channel("answers", Call)
        station.channel("calls", Call).subscribe(answers.push)
        sys.stdin.read()


class Neighbours:
    """This process's station, and others that it knows."""

    def __init__(self, carrier: Carrier, peers: int) -> None:
        domain = f"bench-neighbours-{os.getpid()}"
        command = [sys.executable, "-m", "bench.peers.neighbours", domain, carrier]
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, env=variables()) for _ in range(peers)
        ]
        self._peers = peers
        self._station = hg.Station(domain=domain, transport=carrier)
        self._calls = self._station.channel("calls", Call)
        self._left = 0
        self._all = threading.Event()
        self._station.channel("answers", Call).subscribe(self._answered)
        if not self._calls.wait_matched(peers, LIMIT):
            raise TimeoutError("not all stations have come")

    def round_trip(self) -> None:
        self._left = self._peers
        self._calls.push(Call(1))
        if not self._all.wait(LIMIT):
            raise TimeoutError("not all have answered")
        self._all.clear()

    def _answered(self, _: Call) -> None:
        self._left -= 1
        if not self._left:
            self._all.set()

    def most_at_rest(self, seconds: float) -> float:
        """The share of a core that the process takes that takes most; this one may have other stations."""
        before = [processor_time(process.pid) for process in self.processes]
        time.sleep(seconds)
        after = [processor_time(process.pid) for process in self.processes]
        return max(now - then for now, then in zip(after, before, strict=True)) / seconds

    def close(self) -> None:
        self._station.close()
        for process in self.processes:
            process.communicate(timeout=LIMIT)


@benchmark("links-neighbours", "One event to each of ten stations that know each other, until all answered")
def neighbours(size: Size) -> Benchmark:
    peers = 2 if size.quick else PEERS
    cases, facts, started = [], [], ExitStack()
    for carrier in CARRIERS:
        # One domain at a time is at rest: the other's processes are not there yet.
        domain = Neighbours(carrier, peers)
        started.callback(domain.close)
        domain.round_trip()
        time.sleep(0.0 if size.quick else 2.0)
        share = domain.most_at_rest(0.1 if size.quick else REST_S)
        sentence = f"by {carrier}, each of {peers + 1} stations takes less than 1 % of a core: {share:.2%}"
        facts.append(Fact(sentence, share < MOST_AT_REST or size.quick))
        cases.append(Case(carrier, domain.round_trip, ((),), wall=True))
    return Benchmark(
        cases=tuple(cases),
        baseline="socket",
        targets=(Target("by ring against by socket", "ring", "at most", 1.0, "socket"),),
        facts=tuple(facts),
        close=started.close,
        note="Time on the wall; processes are where the host puts them.",
        rounds=9,
    )


if __name__ == "__main__":
    domain_of, carrier_of = sys.argv[1:]
    answer(domain_of, "ring" if carrier_of == "ring" else "socket")

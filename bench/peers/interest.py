"""How soon a change of interest counts: a consumer joins or leaves in another process.

While this process pushes all the time, the other one is told, through a pipe, to open a consumer or to close
it. The time begins before it is told and ends when the first push here has found that somebody wants its
event, or that nobody does: when the gateway is there, or gone. So it holds the pipe, the other process's
subscription, what it says of it over the link, and the new routes of the channel here. A call is one consumer
that joins and leaves again.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import heliograph as hg
from bench.harness import Benchmark, Case, Size, Target, benchmark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.links import Carrier

LIMIT = 30.0
CARRIERS: tuple[Carrier, ...] = ("socket", "ring")


class Beat(hg.Event, name="interest.beat"):
    n: int


def other(domain: str, transport: Carrier) -> None:
    """Open a consumer, or close it, for each line that comes."""
    with hg.Station(domain=domain, transport=transport) as station:
        beats = station.channel("interest", Beat)
        print("ready", flush=True)
        for line in sys.stdin:
            if line == "join\n":
                consumer = beats.consumer(where="n > 0")
            else:
                consumer.close()


class Pair:
    """This process pushes, another one listens at times."""

    def __init__(self, transport: Carrier) -> None:
        domain = f"interest-{time.time_ns()}"
        self._station = hg.Station(domain=domain, transport=transport)
        self._beats = self._station.channel("interest", Beat)
        self._other = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.interest", domain, transport],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._other.stdout is not None
        if self._other.stdout.readline() != "ready\n":
            raise RuntimeError("the other process has not begun")
        assert self._station.mesh is not None
        self._station.mesh.meet_all(LIMIT)

    def join_and_leave(self) -> None:
        self._until("join", wanted=True)
        self._until("leave", wanted=False)

    def _until(self, word: str, *, wanted: bool) -> None:
        assert self._other.stdin is not None
        self._other.stdin.write(f"{word}\n")
        self._other.stdin.flush()
        matched = self._beats.stats().matched
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            self._beats.push(Beat(1))
            before, matched = matched, self._beats.stats().matched
            if (matched > before) is wanted:
                return
            time.sleep(0.0001)
        raise RuntimeError(f"{word} does not count after {LIMIT} s")

    def close(self) -> None:
        self._other.communicate(timeout=LIMIT)
        self._station.close()


def close_all(pairs: Iterable[Pair]) -> None:
    for pair in pairs:
        pair.close()


@benchmark("interest", "A consumer elsewhere joins and leaves, until that counts here")
def interest(size: Size) -> Benchmark:
    pairs = {transport: Pair(transport) for transport in CARRIERS}
    for pair in pairs.values():
        pair.join_and_leave()  # the first makes the ways of the others
    calls: list[tuple[()]] = [()] * (1 if size.quick else 10)
    return Benchmark(
        tuple(
            Case(transport, pair.join_and_leave, calls, alone=True, wall=True)
            for transport, pair in pairs.items()
        ),
        "socket",
        tuple(
            Target(f"over a {transport} both changes count within 100 ms", transport, "at most", 100.0)
            for transport in CARRIERS
        ),
        note="Milliseconds of both changes together, with the pipe through which the other process is told.",
        rounds=11,
        close=lambda: close_all(pairs.values()),
    )


if __name__ == "__main__":
    other(sys.argv[1], sys.argv[2])  # type: ignore[arg-type]  # its own command line

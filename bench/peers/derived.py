"""What a derived stream costs and saves at its source: two of thirteen fields, over the socket and the ring.

This process pushes, another one receives: the whole events of one channel, and of another one what is derived
of them here. A call is a batch of events, and its time is the processor time of the thread that pushes, which
derives, encodes and mostly sends. What all threads of this process took, and the bytes that left it, are
counted beside that and stand in the note: the ring has no count of its bytes, so those are of the socket.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import heliograph as hg
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.links import Carrier

LIMIT = 60.0
CARRIERS: tuple[Carrier, ...] = ("socket", "ring")
SELECT = "id, speed * 1.852 AS kmh"
BATCH = 500


class Wide(hg.Event, name="derived.wide", key="id"):
    id: int
    speed: float
    lat: float = 48.1
    lon: float = 11.6
    altitude: float = 10_000.0
    heading: float = 90.0
    climb: float = 0.0
    temperature: float = -40.0
    callsign: str = "DLH123"
    origin: str = "EDDM"
    destination: str = "LFPG"
    region: str = "north"
    remark: str = "nothing to be said of this one"


class Count(hg.Event, name="derived.count"):
    channel: str
    events: int


def other(domain: str, transport: Carrier) -> None:
    """Count what comes, and say so for each batch that is complete."""
    with hg.Station(domain=domain, transport=transport) as station:
        counts = station.channel("counts", Count)
        counted = {"whole": 0, "derived": 0}

        def count(name: str) -> None:
            counted[name] += 1
            if counted[name] % BATCH == 0:
                counts.push(Count(name, counted[name]))

        station.channel("whole", Wide).subscribe(lambda _: count("whole"))
        station.channel("derived", Wide).derive(SELECT).subscribe(lambda _: count("derived"))
        print("ready", flush=True)
        sys.stdin.read()


class Pair:
    """This process pushes, another one receives."""

    def __init__(self, transport: Carrier) -> None:
        domain = f"derived-{time.time_ns()}"
        self._station = hg.Station(domain=domain, transport=transport)
        self._channels = {name: self._station.channel(name, Wide) for name in ("whole", "derived")}
        self._counts = self._station.channel("counts", Count).consumer()
        self._pushed = dict.fromkeys(self._channels, 0)
        self._counted = dict.fromkeys(self._channels, 0)
        self._other = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.derived", domain, transport],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._other.stdout is not None
        if self._other.stdout.readline() != "ready\n":
            raise RuntimeError("the other process has not begun")
        for channel in self._channels.values():
            if not channel.wait_matched(1, LIMIT):
                raise RuntimeError("nobody receives")
        self._events = [Wide(n, float(n)) for n in range(BATCH)]

    def push(self, name: str) -> None:
        self._channels[name].push_many(self._events)
        self._pushed[name] += BATCH

    def settle(self) -> None:
        """Wait until the other process has counted all of it."""
        deadline = time.monotonic() + LIMIT
        while self._counted != self._pushed:
            count = self._counts.pull(1.0)
            if count is not None:
                self._counted[count.channel] = count.events
            elif time.monotonic() > deadline:
                raise RuntimeError(f"{self._counted} of {self._pushed} came")

    def cost(self, name: str, batches: int) -> tuple[float, float]:
        """Bytes by the socket and microseconds of all threads for each event."""
        self.settle()
        sent, used = self._sent(), time.process_time()
        for _ in range(batches):
            self.push(name)
            self.settle()
        events = batches * BATCH
        return (self._sent() - sent) / events, (time.process_time() - used) * 1e6 / events

    def _sent(self) -> int:
        return sum(link.bytes_sent for link in self._station.snapshot().links)

    def close(self) -> None:
        self.settle()
        self._other.communicate(timeout=LIMIT)
        self._station.close()


def close_all(pairs: Iterable[Pair]) -> None:
    for pair in pairs:
        pair.close()


@benchmark("derived", "Two of thirteen fields, derived at the source, beside the whole event")
def derived(size: Size) -> Benchmark:
    pairs = {transport: Pair(transport) for transport in CARRIERS}
    batches = 2 if size.quick else 40
    costs = {
        (transport, name): pair.cost(name, batches)
        for transport, pair in pairs.items()
        for name in ("whole", "derived")
    }
    whole, cut = costs["socket", "whole"][0], costs["socket", "derived"][0]
    processor = "; ".join(
        f"over the {transport} {costs[transport, 'whole'][1]:.1f} and {costs[transport, 'derived'][1]:.1f} µs"
        for transport in CARRIERS
    )
    return Benchmark(
        tuple(
            Case(f"{transport} {name}", pair.push, ((name,),), events=BATCH)
            for transport, pair in pairs.items()
            for name in ("whole", "derived")
        ),
        "socket whole",
        (
            Target(
                "over a socket deriving costs the pushing thread at most twice what whole events do",
                "socket derived",
                "at most",
                2.0,
                "socket whole",
            ),
        ),
        facts=(Fact("a derived event takes at most a third of the bytes", holds=cut <= whole / 3),),
        note=f"Bytes by the socket for each event: {whole:.0f} whole, {cut:.0f} derived. Processor time of "
        f"all threads of the source for each event, whole and derived: {processor}.",
        rounds=15,
        close=lambda: close_all(pairs.values()),
    )


if __name__ == "__main__":
    other(sys.argv[1], sys.argv[2])  # type: ignore[arg-type]  # its own command line

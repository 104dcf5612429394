"""Figures 7 and 8: round trips between two processes of one host, and their jitter, by payload.

A sample of so many bytes is written on one topic and written back on another by the process at the other
end; both ends wait in a wait set. The paper averages 10,000 round trips after a warm-up; the jitter is their
standard deviation. Writers and readers have the default QoS, in `heliograph.facades.dcps` (over shared
memory, and over a socket) and in Cyclone DDS for Python (over loopback) in the same run. Cyclone's payload is
text, because its sequences of bytes are far slower in Python.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment
from bench.papers.figure import Series, chart
from bench.peers.hosts import cyclone_text
from heliograph.facades import dcps

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES: Final = (4, 16, 64, 256, 1024, 4096, 16384)
TRIPS: Final = 10_000
QUICK_TRIPS: Final = 20
WARM: Final = 100
LIMIT: Final = 60.0
TOPICS: Final = ("ping", "pong")


class Payload(hg.Event, name="dds.payload"):
    data: bytes


class End(Protocol):
    """One end: writes on a topic, and reads the other."""

    def send(self, data: bytes) -> None: ...
    def receive(self) -> bytes: ...
    def close(self) -> None: ...


class HeliographEnd:
    def __init__(self, domain: str, side: int, transport: Any) -> None:
        self._station = hg.Station(domain=domain, transport=transport)
        factory = dcps.DomainParticipantFactory.get_instance()
        self._participant = here = factory.create_participant(0, station=self._station)
        topics = [here.create_topic(name, Payload) for name in TOPICS]
        self._reader = here.create_subscriber().create_datareader(topics[1 - side])
        self._writer = here.create_publisher().create_datawriter(topics[side])
        self._waitset = dcps.WaitSet()
        self._waitset.attach_condition(self._reader.create_readcondition())
        matched = (self._writer, "publication_matched"), (self._reader, "subscription_matched")
        _until(lambda: all(end.status.peek(cast("Any", kind)).current_count for end, kind in matched))

    def send(self, data: bytes) -> None:
        self._writer.write(Payload(data))

    def receive(self) -> bytes:
        while not (samples := self._reader.take()):
            if not self._waitset.wait(LIMIT):
                raise TimeoutError("nothing came back")
        return samples[-1].data.data

    def close(self) -> None:
        self._participant.delete_contained_entities()
        dcps.DomainParticipantFactory.get_instance().delete_participant(self._participant)
        self._station.close()


class CycloneEnd:
    def __init__(self, domain: str, side: int) -> None:
        os.environ["CYCLONEDDS_URI"] = (
            "<CycloneDDS><Domain><General><Interfaces><NetworkInterface address='127.0.0.1'/></Interfaces>"
            "<AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto"
            "</ParticipantIndex><Peers><Peer address='127.0.0.1'/></Peers></Discovery></Domain></CycloneDDS>"
        )
        core: Any = import_module("cyclonedds.core")
        here = import_module("cyclonedds.domain").DomainParticipant(int(domain[-4:], 16) % 200)
        self._make = cyclone_text()
        topics = [import_module("cyclonedds.topic").Topic(here, name, self._make) for name in TOPICS]
        self._reader = import_module("cyclonedds.sub").DataReader(here, topics[1 - side])
        self._writer = import_module("cyclonedds.pub").DataWriter(here, topics[side])
        self._waitset = core.WaitSet(here)
        states = core.ViewState.Any | core.InstanceState.Any | core.SampleState.Any
        self._condition = core.ReadCondition(self._reader, states)
        self._waitset.attach(self._condition)
        self._limit = import_module("cyclonedds.util").duration(seconds=LIMIT)
        _until(lambda: self._writer.get_matched_subscriptions() and self._reader.get_matched_publications())

    def send(self, data: bytes) -> None:
        self._writer.write(self._make(data.decode("latin-1")))

    def receive(self) -> bytes:
        while not (samples := self._reader.take(10)):
            if not self._waitset.wait(self._limit):
                raise TimeoutError("nothing came back")
        return cast("str", samples[-1].data).encode("latin-1")

    def close(self) -> None:
        return


ENDS: dict[str, Callable[[str, int], End]] = {
    "Heliograph, ring": lambda domain, side: HeliographEnd(domain, side, "ring"),
    "Heliograph, socket": lambda domain, side: HeliographEnd(domain, side, "socket"),
    "Cyclone DDS": CycloneEnd,
}


def _until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("the other end did not come")
        time.sleep(0.01)


def round_trips(kind: str, number: int) -> dict[int, list[float]]:
    """Microseconds of each round trip, by payload."""
    domain = f"dds-trips-{os.urandom(4).hex()}"
    command = [sys.executable, "-m", "bench.papers.dds.round_trip", kind, domain]
    other = subprocess.Popen(command)
    try:
        end = ENDS[kind](domain, 0)
        try:
            found = {size: _measured(end, size, number) for size in SIZES}
            end.send(b"end")
            other.wait(LIMIT)
        finally:
            end.close()
    finally:
        other.kill()
        other.wait(LIMIT)
    return found


def _measured(end: End, size: int, number: int) -> list[float]:
    data = b"x" * size
    times: list[float] = []
    for n in range(min(WARM, number) + number):
        begun = time.perf_counter_ns()
        end.send(data)
        assert len(end.receive()) == size
        if n >= min(WARM, number):
            times.append((time.perf_counter_ns() - begun) / 1e3)
    return times


def echo(kind: str, domain: str) -> None:
    """The other end: write back what comes, until it is told to end."""
    end = ENDS[kind](domain, 1)
    while (data := end.receive()) != b"end":
        end.send(data)
    end.close()


def _point(size: int, mean: float, jitter: float) -> tuple[float, float, float, float]:
    return float(size), mean, max(0.0, mean - jitter), mean + jitter


@experiment("dds-round-trip")
def run(size: Size) -> Experiment:
    """The table and figure; Cyclone DDS is left out where it is not installed."""
    number = QUICK_TRIPS if size.quick else TRIPS
    kinds = [kind for kind in ENDS if kind != "Cyclone DDS" or find_spec("cyclonedds") is not None]
    found = {kind: round_trips(kind, number) for kind in kinds}
    means = {kind: {n: statistics.mean(trip) for n, trip in trips.items()} for kind, trips in found.items()}
    jitters = {
        kind: {n: statistics.stdev(trip) for n, trip in trips.items()} for kind, trips in found.items()
    }
    rows = tuple(
        (str(n), *(cell for kind in kinds for cell in (f"{means[kind][n]:.0f}", f"{jitters[kind][n]:.0f}")))
        for n in SIZES
    )
    lines = [
        Series(kind, tuple(_point(n, means[kind][n], jitters[kind][n]) for n in SIZES)) for kind in kinds
    ]
    facts = []
    if "Cyclone DDS" in kinds:
        slower = [n for n in SIZES if means["Heliograph, ring"][n] >= means["Cyclone DDS"][n]]
        facts.append(
            Fact(
                "round trips over the ring are faster than Cyclone DDS's at every payload"
                + (f"; slower at {', '.join(map(str, slower))} bytes" if slower else ""),
                holds=not slower,
            )
        )
    return Experiment(
        "dds-round-trip",
        "DDS, Figs 7 and 8: round trips on one host, and their jitter",
        f"{number:,} round trips for each payload after a warm-up, in µs: mean and standard deviation. "
        "Default QoS at both ends, which wait in wait sets. The paper's three implementations are in C++.",
        ("bytes", *(f"{kind}: {what}" for kind in kinds for what in ("mean", "jitter"))),
        rows,
        tuple(facts),
        chart(lines, "bytes", "µs", log_x=True),
    )


if __name__ == "__main__":
    echo(*sys.argv[1:])

"""Figures 7 to 10: round trips between two processes and their jitter by payload, in three architectures.

A sample of so many bytes is written on one topic; the process at the other end answers on another with an
acknowledgement of 4 bytes; both ends wait in a wait set. The paper averages 10,000 round trips after a
warm-up; the jitter is their standard deviation. Writers and readers have the default QoS, in
`heliograph.facades.dcps` and in Cyclone DDS for Python (over loopback) in the same run. Cyclone's payload is
text, because its sequences of bytes are far slower in Python.

    decentralised   the two processes are linked directly
    centralised     one process in between takes all samples and writes them again
    federated       a process on each host does: three hops

Between nodes (Figures 9 and 10), the ends share no folder and meet over the network (Zenoh on loopback): two
processes of one machine that cannot meet otherwise.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment
from bench.papers.figure import Series, chart
from bench.peers.hosts import cyclone_text
from heliograph.facades import dcps
from heliograph.runtime.private_folder import MEMORY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES: Final = (4, 16, 64, 256, 1024, 4096, 16384)
TRIPS: Final = 10_000
QUICK_TRIPS: Final = 20
WARM: Final = 100
ACK: Final = 4
"""Bytes of the acknowledgement."""
LIMIT: Final = 60.0
TOPICS: Final = ("ping", "pong")


class Payload(hg.Event, name="dds.payload"):
    data: bytes


class End(Protocol):
    """One end: writes on a topic, and reads the other."""

    def send(self, data: bytes) -> None: ...
    def receive(self, limit: float = LIMIT) -> bytes: ...
    def close(self) -> None: ...


def _named(topic: str, hop: int) -> str:
    """What a topic is called behind so many hops."""
    return f"behind-{hop}.{topic}" if hop else topic


def _station(domain: str, transport: Any) -> hg.Station:
    """On the network as well, where the environment says so."""
    network = {name: [said] for name in ("listen", "connect") if (said := os.environ.get(f"DDS_{name}"))}
    return hg.Station(domain=domain, transport=transport, **cast("dict[str, Any]", network))


class HeliographEnd:
    def __init__(self, domain: str, side: int, transport: Any, hops: int = 0) -> None:
        self._station = _station(domain, transport)
        factory = dcps.DomainParticipantFactory.get_instance()
        self._participant = here = factory.create_participant(0, station=self._station)
        read = here.create_topic(_named(TOPICS[1 - side], hops), Payload)
        self._reader = here.create_subscriber().create_datareader(read)
        self._writer = here.create_publisher().create_datawriter(here.create_topic(TOPICS[side], Payload))
        self._waitset = dcps.WaitSet()
        self._waitset.attach_condition(self._reader.create_readcondition())
        matched = (self._writer, "publication_matched"), (self._reader, "subscription_matched")
        _until(lambda: all(end.status.peek(cast("Any", kind)).current_count for end, kind in matched))

    def send(self, data: bytes) -> None:
        self._writer.write(Payload(data))

    def receive(self, limit: float = LIMIT) -> bytes:
        while not (samples := self._reader.take()):
            if not self._waitset.wait(limit):
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
        self._duration = import_module("cyclonedds.util").duration
        self._limit = self._duration(seconds=LIMIT)
        _until(lambda: self._writer.get_matched_subscriptions() and self._reader.get_matched_publications())

    def send(self, data: bytes) -> None:
        self._writer.write(self._make(data.decode("latin-1")))

    def receive(self, limit: float = LIMIT) -> bytes:
        span = self._limit if limit == LIMIT else self._duration(seconds=limit)
        while not (samples := self._reader.take(10)):
            if not self._waitset.wait(span):
                raise TimeoutError("nothing came back")
        return cast("str", samples[-1].data).encode("latin-1")

    def close(self) -> None:
        return


ENDS: dict[str, Callable[[str, int], End]] = {
    "Heliograph, ring": lambda domain, side: HeliographEnd(domain, side, "ring"),
    "Heliograph, socket": lambda domain, side: HeliographEnd(domain, side, "socket"),
    "decentralised": lambda domain, side: HeliographEnd(domain, side, "ring"),
    "centralised": lambda domain, side: HeliographEnd(domain, side, "ring", 1),
    "federated": lambda domain, side: HeliographEnd(domain, side, "ring", 2),
    "nodes, decentralised": lambda domain, side: HeliographEnd(domain, side, "ring"),
    "nodes, federated": lambda domain, side: HeliographEnd(domain, side, "ring", 2),
    "Cyclone DDS": CycloneEnd,
}
RELAYS: Final = {"centralised": 1, "federated": 2, "nodes, federated": 2}
"""Processes between the two ends."""


def relay(hop: int, hops: int, domain: str) -> None:
    """A process in between: takes what comes on both topics, and writes it again for the next hop.

    The first is next to the end that writes `ping`, so what goes the other way passes it last.
    """
    station = _station(domain, "ring")
    here = dcps.DomainParticipantFactory.get_instance().create_participant(0, station=station)
    waitset, ways = dcps.WaitSet(), []
    for topic, number in zip(TOPICS, (hop, hops + 1 - hop), strict=True):
        read, written = (here.create_topic(_named(topic, one), Payload) for one in (number - 1, number))
        reader = here.create_subscriber().create_datareader(read)
        ways.append((reader, here.create_publisher().create_datawriter(written)))
        waitset.attach_condition(reader.create_readcondition())
    while True:  # until it is killed
        waitset.wait(LIMIT)
        for reader, writer in ways:
            for sample in reader.take():
                if sample.info.valid_data:
                    writer.write(sample.data)


def _until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("the other end did not come")
        time.sleep(0.01)


def round_trips(kind: str, number: int) -> dict[int, list[float]]:
    """Microseconds of each round trip, by payload."""
    domain = f"dds-trips-{os.urandom(4).hex()}"
    with ExitStack() as stack:
        near, far = _hosts(stack, kind)
        others = [_started(stack, far, "echo", kind, domain)]
        hops = RELAYS.get(kind, 0)
        for hop in range(1, hops + 1):
            where = far if hop == hops and hops > 1 else near
            others.append(_started(stack, where, "relay", str(hop), str(hops), domain))
        if near and not hops:
            stack.enter_context(_environment(near))
        end = ENDS[kind](domain, 0)
        stack.callback(end.close)
        _settle(end)
        found = {size: _measured(end, size, number) for size in SIZES}
        end.send(b"end")
        others[0].wait(LIMIT)
    return found


def _settle(end: End) -> None:
    """Until the whole way is there, and nothing of this is on it any more."""
    until = time.monotonic() + LIMIT
    while True:
        end.send(b"warm")
        try:
            end.receive(0.2)
            break
        except TimeoutError:
            if time.monotonic() > until:
                raise
    with suppress(TimeoutError):
        while True:
            end.receive(0.3)


def _hosts(stack: ExitStack, kind: str) -> tuple[dict[str, str], dict[str, str]]:
    """What processes of the two hosts have in their environment; nothing where there is one host."""
    if not kind.startswith("nodes"):
        return {}, {}
    folder = Path(stack.enter_context(TemporaryDirectory()))
    folder.chmod(0o700)
    for name in ("run", "shm"):
        (folder / name).mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"tcp/127.0.0.1:{free.getsockname()[1]}"
    far = {
        "XDG_RUNTIME_DIR": str(folder / "run"),
        MEMORY_VARIABLE: str(folder / "shm"),
        "DDS_connect": endpoint,
    }
    return {"DDS_listen": endpoint}, far


@contextmanager
def _environment(said: dict[str, str]) -> Iterator[None]:
    os.environ.update(said)
    try:
        yield
    finally:
        for name in said:
            del os.environ[name]


def _started(stack: ExitStack, environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    if arguments[0] == "echo" and "nodes, federated" in arguments:
        # It reaches its relay on its own host; the relay is on the network.
        environment = {name: said for name, said in environment.items() if name != "DDS_connect"}
    command = [sys.executable, "-m", "bench.papers.dds.round_trip", *arguments]
    process = subprocess.Popen(command, env={**os.environ, **environment})
    stack.callback(process.wait, LIMIT)
    stack.callback(process.kill)
    return process


def _measured(end: End, size: int, number: int) -> list[float]:
    data = b"x" * size
    times: list[float] = []
    for n in range(min(WARM, number) + number):
        begun = time.perf_counter_ns()
        end.send(data)
        assert len(end.receive()) == ACK
        if n >= min(WARM, number):
            times.append((time.perf_counter_ns() - begun) / 1e3)
    return times


def echo(kind: str, domain: str) -> None:
    """The other end: acknowledge what comes, until it is told to end."""
    end = ENDS[kind](domain, 1)
    while (data := end.receive()) != b"end":
        end.send(data[:ACK])
    end.close()


def _point(size: int, mean: float, jitter: float) -> tuple[float, float, float, float]:
    return float(size), mean, max(0.0, mean - jitter), mean + jitter


def _measure(
    size: Size, kinds: list[str]
) -> tuple[int, dict[str, dict[int, float]], dict[str, dict[int, float]]]:
    """How many trips, their means and their standard deviations."""
    number = QUICK_TRIPS if size.quick else TRIPS
    kinds = [kind for kind in kinds if kind != "Cyclone DDS" or find_spec("cyclonedds") is not None]
    found = {kind: round_trips(kind, number) for kind in kinds}
    means = {kind: {n: statistics.mean(trip) for n, trip in trips.items()} for kind, trips in found.items()}
    jitters = {
        kind: {n: statistics.stdev(trip) for n, trip in trips.items()} for kind, trips in found.items()
    }
    return number, means, jitters


def _experiment(  # noqa: PLR0917 - one call each
    name: str, title: str, note: str, means: Any, jitters: Any, facts: tuple[Fact, ...]
) -> Experiment:
    rows = tuple(
        (str(n), *(cell for kind in means for cell in (f"{means[kind][n]:.0f}", f"{jitters[kind][n]:.0f}")))
        for n in SIZES
    )
    lines = [
        Series(kind, tuple(_point(n, means[kind][n], jitters[kind][n]) for n in SIZES)) for kind in means
    ]
    columns = ("bytes", *(f"{kind}: {what}" for kind in means for what in ("mean", "jitter")))
    return Experiment(name, title, note, columns, rows, facts, chart(lines, "bytes", "µs", log_x=True))


@experiment("dds-round-trip")
def run(size: Size) -> Experiment:
    """The table and figure; Cyclone DDS is left out where it is not installed."""
    number, means, jitters = _measure(size, ["Heliograph, ring", "Heliograph, socket", "Cyclone DDS"])
    facts = []
    if "Cyclone DDS" in means:
        slower = [n for n in SIZES if means["Heliograph, ring"][n] >= means["Cyclone DDS"][n]]
        facts.append(
            Fact(
                "round trips over the ring are faster than Cyclone DDS's at every payload"
                + (f"; slower at {', '.join(map(str, slower))} bytes" if slower else ""),
                holds=not slower,
            )
        )
    return _experiment(
        "dds-round-trip",
        "DDS, Figs 7 and 8: round trips on one host, and their jitter",
        f"{number:,} round trips for each payload after a warm-up, in µs: mean and standard deviation. "
        "Default QoS at both ends, which wait in wait sets; the answer has 4 bytes. The paper's three "
        "implementations are in C++.",
        means,
        jitters,
        tuple(facts),
    )


@experiment("dds-architectures")
def architectures(size: Size) -> Experiment:
    """The three architectures on one host, as configurations of the same ends."""
    number, means, jitters = _measure(size, ["decentralised", "centralised", "federated", "Cyclone DDS"])
    mean = {kind: statistics.mean(found.values()) for kind, found in means.items()}
    ordered = mean["decentralised"] < mean["centralised"] < mean["federated"]
    return _experiment(
        "dds-architectures",
        "DDS, 2.2 and Figs 7 and 8: the three architectures on one host",
        f"{number:,} round trips for each payload after a warm-up, in µs: mean and standard deviation. "
        "Centralised: one process in between; federated: one beside each end.",
        means,
        jitters,
        (Fact("every process in between makes a trip longer, as in the paper", holds=ordered),),
    )


@experiment("dds-nodes")
def nodes(size: Size) -> Experiment:
    """Between nodes: ends that share no folder and meet over the network."""
    number, means, jitters = _measure(size, ["nodes, decentralised", "nodes, federated", "Cyclone DDS"])
    mean = {kind: statistics.mean(found.values()) for kind, found in means.items()}
    return _experiment(
        "dds-nodes",
        "DDS, Figs 9 and 10: round trips between nodes, and their jitter",
        f"{number:,} round trips for each payload after a warm-up, in µs: mean and standard deviation. Two "
        "hosts are two folders of one machine here, and the network its loopback.",
        means,
        jitters,
        (
            Fact(
                "a process in between on each node makes a trip longer, as in the paper",
                holds=mean["nodes, federated"] > mean["nodes, decentralised"],
            ),
        ),
    )


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "relay":
        relay(int(rest[0]), int(rest[1]), rest[2])
    else:
        echo(*rest)

"""The paper's future list: throughput, CPU and memory per event, discovery time, combinations of policies.

Three workloads write: a periodic sensor (one instance), tracks (a thousand instances) and alerts (bursts of
ten, each of other instances). Writer and reader are in one process, so that the CPU time of an event is that
of both ends. Discovery is the time from the creation of a writer until a reader of another station, which is
linked over a socket, is matched with it.
"""

from __future__ import annotations

import os
import statistics
import time
import tracemalloc
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment
from heliograph.facades import dcps

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT: Final = 30.0


class Reading(hg.Event, name="dds.reading", key="id"):
    id: int
    value: float = 0.0


WORKLOADS: Final[dict[str, Callable[[int], list[int]]]] = {
    "sensor": lambda n: [0] * n,
    "tracks": lambda n: [number % 1_000 for number in range(n)],
    "alerts": lambda n: [number for number in range(2 * n) if number // 10 % 2],
}
"""The instance of each of so many samples."""


def _participant(stack: ExitStack, domain: str | None = None) -> dcps.DomainParticipant:
    options: dict[str, Any] = {} if domain is None else {"domain": domain, "transport": "socket"}
    station = stack.enter_context(hg.Station(**options))
    factory = dcps.DomainParticipantFactory.get_instance()
    participant = factory.create_participant(0, station=station)
    stack.callback(factory.delete_participant, participant)
    stack.callback(participant.delete_contained_entities)
    return participant


def _written(workload: str, number: int, policies: dict[str, Any]) -> tuple[float, float, float]:
    """Samples a second, CPU microseconds a sample, and bytes for each that the reader keeps."""
    with ExitStack() as stack:
        here = _participant(stack)
        topic = here.create_topic("readings", Reading)
        writer = here.create_publisher().create_datawriter(topic, dcps.DataWriterQos(**policies))
        reader = here.create_subscriber().create_datareader(topic, dcps.DataReaderQos(**policies))
        samples = [Reading(key, 1.0) for key in WORKLOADS[workload](number)]
        begun, cpu = time.perf_counter(), time.process_time()
        for sample in samples:
            writer.write(sample)
        seconds, spent = time.perf_counter() - begun, time.process_time() - cpu
        reader.take()
        tracemalloc.start()
        for sample in samples:
            writer.write(sample)
        kept = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        left = len(reader.take())
    return len(samples) / seconds, spent / len(samples) * 1e6, kept / max(1, left)


def discovery(number: int) -> list[float]:
    """Milliseconds from the creation of a writer until a reader elsewhere is matched."""
    domain = f"dds-found-{os.urandom(4).hex()}"
    times = []
    with ExitStack() as stack:
        near, far = _participant(stack, domain), _participant(stack, domain)
        topics = [one.create_topic("readings", Reading) for one in (near, far)]
        reader = far.create_subscriber().create_datareader(topics[1])
        publisher = near.create_publisher()
        for expected in range(1, number + 1):
            begun = time.perf_counter()
            writer = publisher.create_datawriter(topics[0])
            while reader.status.peek("subscription_matched").total_count < expected:
                if time.perf_counter() - begun > LIMIT:
                    raise TimeoutError("the writer was not found")
                time.sleep(0.000_1)
            times.append((time.perf_counter() - begun) * 1e3)
            publisher.delete_datawriter(writer)
    return times


@experiment("dds-future")
def run(size: Size) -> Experiment:
    """Each workload beside each combination of durability, reliability and history; and discovery."""
    number = 200 if size.quick else 20_000
    rows = []
    for workload in WORKLOADS:
        for durability in ("volatile", "transient-local"):
            for reliability in ("best-effort", "reliable"):
                for history in ("keep-last", "keep-all"):
                    policies: dict[str, Any] = {
                        "durability": dcps.Durability(durability),
                        "reliability": dcps.Reliability(reliability),
                        "history": dcps.History(history),
                    }
                    rate, cpu, kept = _written(workload, number, policies)
                    said = f"{durability}, {reliability}, {history}"
                    rows.append((workload, said, f"{rate:,.0f}", f"{cpu:.1f}", f"{kept:.0f}"))
    found = sorted(discovery(5 if size.quick else 200))
    p50, p99 = statistics.median(found), found[min(len(found) - 1, int(len(found) * 0.99))]
    rows.append(("discovery", "writer to matched reader, ms: p50, p99", f"{p50:.1f}", f"{p99:.1f}", ""))
    return Experiment(
        "dds-future",
        "DDS, section 6: throughput, CPU, memory and discovery",
        f"{number:,} samples for each workload and combination, in one process; bytes are what is allocated "
        "for each sample that the reader keeps, for both ends.",
        ("workload", "policies", "samples/s", "CPU µs", "bytes"),
        tuple(rows),
        (Fact("every combination was measured", holds=len(rows) == len(WORKLOADS) * 8 + 1),),
    )

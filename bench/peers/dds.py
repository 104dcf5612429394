"""What a DDS reader costs beside a plain consumer, per event, and the matching of a reader with many writers.

plain consumer      push into a channel, read from its queue
default reader      a writer and a reader of DDS with the default QoS: the last sample of an instance
timed reader        with a deadline, and samples with a lifespan
exclusive reader    with exclusive ownership, over a thousand instances
matching            one reader against a thousand writers, policies that differ
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import heliograph as hg
from bench.harness import Benchmark, Case, Size, Target, benchmark
from heliograph.facades import dcps
from heliograph.qos.request_offered import incompatible, policies_of

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = 1_000
"""In one call: they are written one by one, and taken together."""
WRITERS = 1_000


class Track(hg.Event, name="bench.dds", key="id"):
    id: int
    speed: float = 0.0


def reading(stack: ExitStack, instances: int = 1, **policies: Any) -> Callable[[], None]:
    """Writes events and takes what the reader has of them."""
    station = stack.enter_context(hg.Station())
    factory = dcps.DomainParticipantFactory.get_instance()
    participant = factory.create_participant(0, station=station)
    stack.callback(factory.delete_participant, participant)
    stack.callback(participant.delete_contained_entities)
    topic = participant.create_topic("tracks", Track)
    shared = {name: value for name, value in policies.items() if name != "lifespan"}
    writer = participant.create_publisher().create_datawriter(topic, dcps.DataWriterQos(**policies))
    reader = participant.create_subscriber().create_datareader(topic, dcps.DataReaderQos(**shared))
    events = [Track(n % instances, 1.0) for n in range(EVENTS)]

    def run() -> None:
        for event in events:
            writer.write(event)
        if len(reader.take()) != instances:
            raise AssertionError("not what was written")

    return run


def consuming(stack: ExitStack) -> Callable[[], None]:
    """Pushes events and reads them from a consumer's queue."""
    station = stack.enter_context(hg.Station())
    channel = station.channel("tracks", Track)
    consumer = channel.consumer()
    events = [Track(1, 1.0) for _ in range(EVENTS)]

    def run() -> None:
        for event in events:
            channel.push(event)
        if len(consumer.read(EVENTS, 0)) != EVENTS:
            raise AssertionError("not what was pushed")

    return run


@benchmark("dds-readers", "DDS readers beside a plain consumer")
def readers(size: Size) -> Benchmark:
    """See the module."""
    stack = ExitStack()
    calls = [()] * (2 if size.quick else 20)
    exclusive: dict[str, Any] = {"ownership": dcps.Ownership("exclusive")}
    timed: dict[str, Any] = {"deadline": dcps.Deadline(1_000.0), "lifespan": dcps.Lifespan(1_000.0)}
    cases = {
        "plain consumer": consuming(stack),
        "default reader": reading(stack),
        "timed reader": reading(stack, **timed),
        "exclusive reader": reading(stack, 1_000, **exclusive),
    }
    base = "plain consumer"
    return Benchmark(
        tuple(Case(name, call, calls, events=EVENTS) for name, call in cases.items()),
        base,
        (
            Target(
                "a reader with default QoS against a plain consumer", "default reader", "at most", 1.5, base
            ),
            Target("with a deadline and a lifespan", "timed reader", "at most", 3.0, base),
            Target("with ownership and a thousand instances", "exclusive reader", "at most", 4.0, base),
        ),
        note="Events are written one by one, a thousand for each take. Readers keep the last of an instance.",
        close=stack.close,
    )


@benchmark("dds-matching", "A DDS reader against a thousand writers")
def matching(size: Size) -> Benchmark:
    """See the module."""
    offers = [
        policies_of(dcps.DataWriterQos(deadline=dcps.Deadline(float(n + 1))), dcps.PublisherQos())
        for n in range(WRITERS)
    ]
    request = policies_of(
        dcps.DataReaderQos(deadline=dcps.Deadline(500.0), durability=dcps.Durability("transient-local")),
        dcps.SubscriberQos(),
    )

    def match() -> None:
        for offer in offers:
            incompatible(offer, request)

    name = "one reader"
    target = Target("a reader against 1,000 writers, in ms", name, "at most", 10.0)
    calls = [()] * (5 if size.quick else 200)
    return Benchmark((Case(name, match, calls, alone=True),), name, (target,))

"""Discovery: which participants, topics, writers and readers a domain has, told on a channel of its own.

    dcps.discovery      an event for each entity, kept for late joiners while its station lives
    dcps.liveliness     writers that were asserted to be alive, several times in each lease

A `Domain` is all that the participants of one station share. Entities of this station match at once; those of
others when their announcement comes. A station that is gone takes its entities with it.

Lock order: the domain's lock is for state only. No channel is called while it is held, because what a reader
is offered comes under the locks of its channel.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from heliograph.errors import HeliographError
from heliograph.facades.dcps.listeners import ListenerCalls
from heliograph.model.event import Event, info_of
from heliograph.qos.dds_policies import DDS_POLICIES
from heliograph.qos.explanation import Endpoint, explain_endpoints, is_alike
from heliograph.qos.policies import QoS
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.facades.dcps.reader import DataReader
    from heliograph.facades.dcps.topic import Topic, TopicChannel
    from heliograph.facades.dcps.writer import DataWriter
    from heliograph.model.event import Header
    from heliograph.qos.negotiation import Grant
    from heliograph.station import Station

log = logging.getLogger(__name__)

DISCOVERY: Final = "dcps.discovery"
LIVELINESS: Final = "dcps.liveliness"
LOOK_SECONDS: Final = 0.05
"""Between two looks at the stations of the domain: which are gone, and which have come to want a channel."""
MOST_REPORTED: Final = 10_000
"""Pairs that never meet that are remembered, so that they are said once."""
LOOKS: Final = 40
"""After so many looks a station that announced entities, and was never there, is gone."""
ASSERTS_PER_LEASE: Final = 4
"""So that one that comes late does not end a lease."""


class Announcement(Event, name="dcps.announcement", key="id"):
    """What is told of an entity; `alive=False` when it is deleted."""

    id: str
    kind: str
    station: str
    alive: bool
    participant: str
    topic: str = ""
    type_name: str = ""
    fields: list[str] = []  # noqa: RUF012 - msgspec makes a new one for each
    """Names and types of the type's fields, one after the other."""
    policies: bytes = b""
    writer: str = ""
    """The supplier of a writer."""
    channel: str = ""
    """The channel of a writer."""
    channels: list[str] = []  # noqa: RUF012 - likewise
    """The channels that a reader is fed from."""
    never: str = ""
    """Why the filter of a reader lets nothing pass, where that is known."""


class Assertion(Event, name="dcps.assertion", key="station"):
    """Writers that are alive."""

    station: str
    writers: list[str]


Policies: TypeAlias = "Mapping[str, Any]"
T = TypeVar("T", bound=Event)


class DiscoveredEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A writer or reader of this or another station."""

    id: str
    kind: str
    station: str
    participant: str
    endpoint: Endpoint
    writer: str = ""
    channel: str = ""
    channels: tuple[str, ...] = ()


def announcement_of(peer: DiscoveredEndpoint, *, alive: bool) -> Announcement:
    """What is told of a writer or reader."""
    end = peer.endpoint
    return Announcement(
        peer.id,
        peer.kind,
        peer.station,
        alive,
        peer.participant,
        topic=end.topic,
        type_name=end.type_name,
        fields=[text for field in end.fields for text in field],
        policies=encode_policies(end.policies),
        writer=peer.writer,
        channel=peer.channel,
        channels=list(peer.channels),
        never=end.never,
    )


def endpoint_of(event: Announcement, domain: int = 0) -> Endpoint:
    """What matching knows of an entity that was announced; an error of decoding where it cannot be."""
    names, kinds = event.fields[::2], event.fields[1::2]
    return Endpoint(
        policies=decode_policies(event.policies) if event.policies else {},
        domain=domain,
        topic=event.topic,
        type_name=event.type_name,
        fields=tuple(zip(names, kinds, strict=True)),
        name=event.id,
        never=event.never,
    )


def encode_policies(policies: Policies) -> bytes:
    return msgspec.msgpack.encode({name: msgspec.to_builtins(value) for name, value in policies.items()})


def decode_policies(data: bytes) -> dict[str, Any]:
    """What another station said; HeliographError or msgspec.DecodeError when it cannot be."""
    found = msgspec.msgpack.decode(data, type=dict[str, dict[str, Any]])
    return {
        name: msgspec.convert(values, DDS_POLICIES[name][0])
        for name, values in found.items()
        if name in DDS_POLICIES
    }


def fields_of(cls: type[Event]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, str(field.type)) for field in info_of(cls).format.fields)


class Domain:
    """What the participants of one station share; see the module."""

    def __init__(self, station: Station, number: int) -> None:
        self.station = station
        self.number = number
        self.clock = station.ports.clock
        self.name = f"{station.id:016x}"
        tasks = station.ports.tasks
        self.lock = tasks.lock("dcps domain")
        self.changed = tasks.condition(self.lock, "dcps change")
        self.listeners = ListenerCalls(tasks)
        self.is_listened_to = False
        """Whether any entity ever had a listener."""
        self.waiting = 0
        """Threads that wait for a change."""
        self.users = 0
        """Participants that are open."""
        self._numbers = count(1)
        self._sets = count(1)
        self.arrivals = count(1)
        """Counts what comes to readers, whose order is compared in access by group."""
        self._writers: dict[str, dict[str, DiscoveredEndpoint]] = {}
        self._readers: dict[str, dict[str, DiscoveredEndpoint]] = {}
        """Those known, by topic and id."""
        self._by_supplier: dict[str, DiscoveredEndpoint] = {}
        self.local_writers: dict[str, DataWriter[Any]] = {}
        self.local_readers: dict[str, DataReader[Any]] = {}
        self.topics: dict[str, list[Topic[Any]]] = {}
        self.entities: dict[str, Announcement] = {}
        """All that were announced, by id; the built-in topics."""
        self._reported: set[tuple[str, str, tuple[str, ...]]] = set()
        """Pairs that never meet, and why: said once."""
        self._hearers: list[Callable[[Announcement], None]] = []
        self._seen: set[str] = set()
        """Stations that had the channel of discovery open."""
        self._absent: dict[str, int] = {}
        """Stations that were never seen though they announced entities: how often they were looked for."""
        self._channel: Channel[Announcement] = station.channel(
            DISCOVERY, Announcement, qos=QoS(durability="transient-local", history=1)
        )
        self._assertions: Channel[Assertion] = station.channel(LIVELINESS, Assertion)
        self._supplier = self._channel.supplier()
        self._heard = self._channel.subscribe(self._hear, name="dcps discovery")
        self._beats = self._assertions.subscribe(self._hear_assertion, name="dcps liveliness")
        self._next_beat: Any = None
        self._beat_seconds: float | None = None
        self._look = station.timers.every(LOOK_SECONDS, self._look_around) if station.mesh else None

    def new_id(self) -> str:
        return f"{self.name}.{next(self._numbers)}"

    def next_set(self) -> int:
        """The number of a coherent set, which no other one of this station has."""
        return next(self._sets)

    def now(self) -> int:
        return self.clock.time_ns()

    def open_channel(self, cls: type[T], asked: TopicChannel) -> Channel[T]:
        """A channel of a topic; as it is, where the program has it open in a way that will do."""
        channels = {channel.name: channel for channel in self.station.channels()}
        there = channels.get(asked.name)
        promises = ("reliability", "durability")
        if there is not None and all(getattr(there.qos, one) == getattr(asked.qos, one) for one in promises):
            channel = self.station.channel(asked.name, cls)
        else:
            channel = self.station.channel(asked.name, cls, qos=asked.qos)
        if asked.keeps is not None:
            channel.keep_instances(asked.keeps)
        return channel

    def wait(self, happened: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something has changed so that a condition holds; it is asked under the lock."""
        deadline = None if timeout is None else self.clock.monotonic_ns() + round(timeout * 1e9)
        with self.lock:
            self.waiting += 1
            try:
                while not happened():
                    left = None if deadline is None else seconds_until(self.clock, deadline)
                    if left is not None and left <= 0:
                        return False
                    self.changed.wait(left)
            finally:
                self.waiting -= 1
        return True

    def notify(self) -> None:
        """Wake those who wait for a condition. Under the lock."""
        if self.waiting:
            self.changed.notify_all()

    def report(self, name: str, error: HeliographError) -> None:
        """Tell the station's `on_error`, in a task of its own: it may hang."""
        report = partial(self._channel.report, name, None, error)
        self.station.ports.tasks.spawn_soon(f"reports {name}", report)

    def report_apart(self, entity: str, writer: Endpoint, reader: Endpoint) -> None:
        """Say once why a writer and a reader never meet: in the log, and on `$station`. Without the lock."""
        found = explain_endpoints(writer, reader)
        with self.lock:
            pair = (writer.name, reader.name, found.apart)
            if not found.apart or pair in self._reported:
                return
            self._reported.add(pair)
            if len(self._reported) > MOST_REPORTED:
                self._reported = {pair}
        text = f"{entity}: {reader.name} gets nothing of {writer.name}: {'; '.join(found.apart)}"
        log.warning("%s", text)
        self.station.tell_mismatch(writer.topic, entity, text)

    def report_granted(self, entity: str, topic: str, granted: tuple[Grant, ...]) -> None:
        """Say what was granted of what an entity asked for."""
        text = f"{entity}: {'; '.join(map(str, granted)) or 'granted as asked'}"
        log.info("%s", text)
        self.station.tell_mismatch(topic, entity, text, kind="granted")

    def look_for_mistakes(self, entity: str, own: Endpoint, *, is_writer: bool) -> None:
        """Say which topic was probably meant, where nobody has this one and somebody a name like it."""
        others = self._readers if is_writer else self._writers
        with self.lock:
            if others.get(own.topic):
                return
            known = [
                peer.endpoint
                for topic, peers in others.items()
                if topic != own.topic and is_alike(topic, own.topic)
                for peer in peers.values()
                if peer.endpoint.type_name == own.type_name
            ]
        for other in known:
            self.report_apart(entity, *((own, other) if is_writer else (other, own)))

    # What is known

    def tell(self, announcement: Announcement) -> None:
        """An entity of this station has come, changed or gone."""
        self._note(announcement)
        if not self._channel.closed:
            self._supplier.push(announcement)

    def on_announcement(self, hear: Callable[[Announcement], None]) -> None:
        """Have all entities told, those known first. Without the lock."""
        with self.lock:
            self._hearers.append(hear)
            known = list(self.entities.values())
        for announcement in known:
            hear(announcement)

    def forget_hearer(self, hear: Callable[[Announcement], None]) -> None:
        with self.lock:
            self._hearers = [one for one in self._hearers if one != hear]

    def _note(self, announcement: Announcement) -> None:
        with self.lock:
            if announcement.alive:
                self.entities[announcement.id] = announcement
            elif self.entities.pop(announcement.id, None) is None:
                return
            hearers = list(self._hearers)
        for hear in hearers:
            hear(announcement)

    def writer_of(self, supplier: str) -> DiscoveredEndpoint | None:
        """Under the lock."""
        return self._by_supplier.get(supplier)

    def writers_of(self, topic: str) -> list[DiscoveredEndpoint]:
        with self.lock:
            return list(self._writers.get(topic, {}).values())

    def readers_of(self, topic: str) -> list[DiscoveredEndpoint]:
        with self.lock:
            return list(self._readers.get(topic, {}).values())

    def meet_writer(self, peer: DiscoveredEndpoint) -> None:
        with self.lock:
            self._writers.setdefault(peer.endpoint.topic, {})[peer.id] = peer
            self._by_supplier[peer.writer] = peer
            readers = [
                one for one in self.local_readers.values() if one.peer.endpoint.topic == peer.endpoint.topic
            ]
        for reader in readers:
            reader.meet(peer)

    def lose_writer(self, peer: DiscoveredEndpoint) -> None:
        with self.lock:
            if self._writers.get(peer.endpoint.topic, {}).pop(peer.id, None) is None:
                return
            self._by_supplier.pop(peer.writer, None)
            readers = list(self.local_readers.values())
        for reader in readers:
            reader.lose(peer)

    def meet_reader(self, peer: DiscoveredEndpoint) -> None:
        with self.lock:
            self._readers.setdefault(peer.endpoint.topic, {})[peer.id] = peer
            writers = [
                one for one in self.local_writers.values() if one.peer.endpoint.topic == peer.endpoint.topic
            ]
        for writer in writers:
            writer.meet(peer)

    def lose_reader(self, peer: DiscoveredEndpoint) -> None:
        with self.lock:
            if self._readers.get(peer.endpoint.topic, {}).pop(peer.id, None) is None:
                return
            writers = list(self.local_writers.values())
        for writer in writers:
            writer.lose(peer)

    # What others say

    def _hear(self, event: Announcement) -> None:
        if event.station == self.name:
            return
        try:
            peer = self._peer(event)
        except (HeliographError, msgspec.ValidationError, msgspec.DecodeError) as error:
            log.warning(
                "announcement of %s from station %s is not understood: %s", event.id, event.station, error
            )
            return
        self._note(event)
        if event.kind == "topic":
            self._hear_topic(event)
        elif event.kind == "publication":
            (self.meet_writer if event.alive else self.lose_writer)(peer)
        elif event.kind == "subscription":
            (self.meet_reader if event.alive else self.lose_reader)(peer)

    def _peer(self, event: Announcement) -> DiscoveredEndpoint:
        return DiscoveredEndpoint(
            id=event.id,
            kind=event.kind,
            station=event.station,
            participant=event.participant,
            endpoint=endpoint_of(event, self.number),
            writer=event.writer,
            channel=event.channel,
            channels=tuple(event.channels),
        )

    def _hear_topic(self, event: Announcement) -> None:
        with self.lock:
            topics = list(self.topics.get(event.topic, ()))
        for topic in topics:
            topic.meet_other(event.type_name)

    def _look_around(self) -> None:
        """By a timer: stations that are gone, and readers elsewhere that are fed by now."""
        mesh = self.station.mesh
        if mesh is None:
            return
        here: set[str] = set()
        fed: set[tuple[str, str]] = set()
        for station in mesh.stations():
            name = f"{station.station:016x}"
            channels = {state.name for state in station.channels}
            if DISCOVERY in channels:
                here.add(name)
            fed.update((name, state.name) for state in station.channels if state.consumers)
        with self.lock:
            gone = (self._seen - here) | self._never_seen(here)
            self._seen = (self._seen | here) - gone
            lost = [one for one in self.entities.values() if one.station in gone]
            writers = list(self.local_writers.values())
        for announcement in lost:
            self._hear(msgspec.structs.replace(announcement, alive=False))
        for writer in writers:
            writer.look_again(fed)

    def _never_seen(self, here: set[str]) -> set[str]:
        """Stations that announced entities and were gone before they were looked at. Under the lock."""
        absent = {one.station for one in self.entities.values()} - here - self._seen - {self.name}
        self._absent = {station: self._absent.get(station, 0) + 1 for station in absent}
        return {station for station, looks in self._absent.items() if looks >= LOOKS}

    # Liveliness

    def keep_asserting(self, lease: float) -> None:
        """A writer has a lease: from now on those that are asserted are told in time."""
        seconds = lease / ASSERTS_PER_LEASE
        with self.lock:
            if self._beat_seconds is not None and self._beat_seconds <= seconds:
                return
            before, self._beat_seconds = self._next_beat, seconds
        if before is not None:
            before.cancel()
        self._next_beat = self.station.timers.every(seconds, self._beat)

    def _beat(self) -> None:
        """By a timer: it must not wait."""
        now = self.now()
        with self.lock:
            writers = list(self.local_writers.values())
        asserted = [writer.peer.id for writer in writers if writer.is_asserted(now)]
        if asserted and not self._assertions.closed:
            try:
                self._assertions.push_nowait(Assertion(self.name, asserted))
            except HeliographError as error:  # told again with the next one
                log.debug("liveliness could not be told: %s", error)
        for reader in list(self.local_readers.values()):
            reader.hear_assertion(asserted, now)

    def _hear_assertion(self, event: Assertion, header: Header) -> None:  # noqa: ARG002 - as callbacks are called
        if event.station == self.name:
            return
        now = self.now()
        with self.lock:
            readers = list(self.local_readers.values())
        for reader in readers:
            reader.hear_assertion(event.writers, now)

    def close(self) -> None:
        """The last participant has gone."""
        for timer in (self._look, self._next_beat):
            if timer is not None:
                timer.cancel()
        self._heard.close()
        self._beats.close()
        self._supplier.close()
        self.listeners.close()

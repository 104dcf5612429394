"""Topics (2.2.2.3): a name and a type; and content-filtered topics, of which readers get what meets a filter.

The channels of a topic are named after it. Writers whose samples are kept differently have different ones:

    air.tracks                          reliable and volatile: what `station.channel("air.tracks", Track)` is
    air.tracks@best-effort              best-effort writers
    air.tracks@transient-local-1        the last sample of each instance, while the writer lives
    air.tracks@transient-5              as the durability service says, while the station lives
    air.tracks@transient-5-cleanup10    and what is over for ten seconds is forgotten
    air.tracks@persistent               in the journal
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from heliograph.channel.history.instances import InstanceLimits
from heliograph.facades.dcps.discovery import Announcement, encode_policies, fields_of
from heliograph.facades.dcps.entity import Entity
from heliograph.facades.dcps.statuses import (
    CountStatus,
)
from heliograph.model.event import Event, info_of
from heliograph.qos.dds_policies import TopicQos
from heliograph.qos.policies import QoS
from heliograph.qos.request_offered import policies_of

if TYPE_CHECKING:
    from heliograph.channel.channel import Channel
    from heliograph.facades.dcps.listeners import Listening
    from heliograph.facades.dcps.participant import DomainParticipant
    from heliograph.facades.dcps.reader import DataReader
    from heliograph.qos.dds_policies import DataWriterQos, DurabilityService

T = TypeVar("T", bound=Event)

STEP: float = 0.02
"""Seconds for which a channel itself waits for room; a writer goes on until its own time is over."""


class TopicChannel(NamedTuple):
    """A channel of a topic."""

    name: str
    qos: QoS
    keeps: InstanceLimits | None = None
    """What it keeps of instances in memory."""


def channel_of(topic: str, qos: DataWriterQos, *, is_keyed: bool) -> TopicChannel:
    """The channel on which a writer of a topic writes."""
    reliability, durability = qos.reliability.kind, qos.durability.kind
    if durability == "volatile":
        if reliability == "reliable":
            return TopicChannel(topic, QoS(max_blocking=STEP))
        return TopicChannel(f"{topic}@best-effort", QoS(reliability="best-effort"))
    suffix = "" if reliability == "reliable" else "-best-effort"
    service, lifespan = qos.durability_service, None
    if durability != "transient-local":
        # What outlives its writer has its lifespan from the channel: nobody else knows it then.
        lifespan = qos.lifespan.duration
    ends = "" if lifespan is None else f"-lifespan{lifespan:g}"
    if durability == "persistent":
        keeps_last = service.history == "keep-last" and is_keyed
        name = f"{topic}@persistent{suffix}{'' if keeps_last else '-all'}{ends}"
        return TopicChannel(
            name,
            QoS(
                durability="persistent",
                reliability=reliability,
                compaction="key" if keeps_last else "none",
                lifespan=lifespan,
            ),
        )
    depth = qos.history.depth if qos.history.kind == "keep-last" else None
    keeps = InstanceLimits(depth=depth)
    if durability == "transient":
        depth = service.depth if service.history == "keep-last" else None
        keeps = InstanceLimits(
            depth=depth,
            cleanup_delay=None if service.cleanup_delay is None else round(service.cleanup_delay * 1e9),
            max_samples=service.max_samples,
            max_instances=service.max_instances,
            max_samples_per_instance=service.max_samples_per_instance,
        )
        suffix += _service_name(service)
    name = f"{topic}@{durability}{suffix}-{depth or 'all'}{ends}"
    channel = QoS(durability=durability, reliability=reliability, history=depth, lifespan=lifespan)
    if reliability == "reliable":
        channel = msgspec.structs.replace(channel, max_blocking=STEP)
    return TopicChannel(name, channel, keeps)


def _service_name(service: DurabilityService) -> str:
    """What a channel of a durability service is called after, where it is not the default."""
    parts = (
        ("cleanup", service.cleanup_delay, 0.0),
        ("samples", service.max_samples, None),
        ("instances", service.max_instances, None),
        ("each", service.max_samples_per_instance, None),
    )
    return "".join(
        f"-{name}-never" if value is None else f"-{name}{value:g}"
        for name, value, default in parts
        if value != default
    )


class Topic(Entity[TopicQos], Generic[T]):
    """Made by `DomainParticipant.create_topic`."""

    kind = "topic"

    def __init__(
        self,
        participant: DomainParticipant,
        name: str,
        cls: type[T],
        qos: TopicQos,
        listening: Listening,
    ) -> None:
        super().__init__(participant.domain, name, qos, participant, listening)
        self.participant = participant
        self.cls = cls
        self.type_name = info_of(cls).name
        self.is_keyed = bool(info_of(cls).key)
        self._others: set[str] = set()

    def get_name(self) -> str:
        return self.name

    def get_type_name(self) -> str:
        return self.type_name

    def get_inconsistent_topic_status(self) -> CountStatus:
        return self.read_status("inconsistent_topic", CountStatus)

    def channel(self) -> Channel[T]:
        """The channel of its reliable and volatile writers; filters are checked against it."""
        return self.domain.open_channel(self.cls, TopicChannel(self.name, QoS(max_blocking=STEP)))

    def _enabled(self) -> None:
        with self.domain.lock:
            self.domain.topics.setdefault(self.name, []).append(self)
            others = [
                one.type_name
                for one in self.domain.entities.values()
                if one.kind == "topic" and one.topic == self.name
            ]
        for type_name in others:
            self.meet_other(type_name)
        self._announce(alive=True)

    def _qos_changed(self) -> None:
        self._announce(alive=True)

    def _announce(self, *, alive: bool) -> None:
        self.domain.tell(
            Announcement(
                self.instance_handle,
                "topic",
                self.domain.name,
                alive,
                self.participant.instance_handle,
                topic=self.name,
                type_name=self.type_name,
                fields=[text for field in fields_of(self.cls) for text in field],
                policies=encode_policies(policies_of(self._qos)),
            )
        )
        if alive:
            with self.domain.lock:
                topics = list(self.domain.topics.get(self.name, ()))
            for topic in topics:
                topic.meet_other(self.type_name)

    def meet_other(self, type_name: str) -> None:
        """Somewhere there is a topic of this name and that type."""
        with self.domain.lock:
            if type_name == self.type_name or type_name in self._others:
                return
            self._others.add(type_name)
            self.status.count("inconsistent_topic")
            self.tell("inconsistent_topic")

    def delete(self) -> None:
        """By the participant."""
        if self.is_enabled:
            with self.domain.lock:
                self.domain.topics[self.name].remove(self)
            self._announce(alive=False)
        self.is_deleted = True


class ContentFilteredTopic(Generic[T]):
    """A topic of which readers get what meets a filter; `%0` or `:name` in it are parameters."""

    def __init__(self, name: str, topic: Topic[T], expression: str, parameters: Any) -> None:
        self.name = name
        self.topic = topic
        self.is_deleted = False
        self._expression = expression
        self._parameters = parameters
        topic.channel().select(where=expression, params=parameters)
        self.readers: list[DataReader[T]] = []

    def get_name(self) -> str:
        return self.name

    def get_related_topic(self) -> Topic[T]:
        return self.topic

    def get_filter_expression(self) -> str:
        return self._expression

    def get_expression_parameters(self) -> Any:
        return self._parameters

    def set_expression_parameters(self, parameters: Any) -> None:
        """Other values, from the next sample on."""
        self.topic.channel().select(where=self._expression, params=parameters)
        self._parameters = parameters
        for reader in list(self.readers):
            reader.filter_changed()

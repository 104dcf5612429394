"""Participants and their factory (2.2.2.2): where a program takes part in a domain.

A domain is the stations of one domain name: `dds-0` is domain 0. Participants of one process and domain share
a station, unless they are given one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from heliograph.errors import BadParameter, PreconditionNotMet, Unsupported
from heliograph.facades.dcps.builtin import BuiltinSubscriber
from heliograph.facades.dcps.discovery import Announcement, Domain, encode_policies
from heliograph.facades.dcps.entity import Entity, check_consistent
from heliograph.facades.dcps.listeners import Listening
from heliograph.facades.dcps.publisher import Publisher
from heliograph.facades.dcps.subscriber import Subscriber
from heliograph.facades.dcps.topic import ContentFilteredTopic, Topic
from heliograph.model.event import Event
from heliograph.qos.dds_policies import (
    DomainParticipantFactoryQos,
    DomainParticipantQos,
    PublisherQos,
    SubscriberQos,
    TopicQos,
)
from heliograph.qos.request_offered import policies_of
from heliograph.station import Station

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.facades.dcps.statuses import StatusKind

T = TypeVar("T", bound=Event)

HIGHEST_DOMAIN: Final = 232
"""As of RTPS's ports."""


class DomainParticipant(Entity[DomainParticipantQos]):
    """Made by `DomainParticipantFactory.create_participant`."""

    kind = "participant"

    def __init__(
        self,
        domain: Domain,
        qos: DomainParticipantQos,
        listener: Any,
        mask: Iterable[StatusKind] | None,
    ) -> None:
        super().__init__(domain, "participant", qos, None, Listening(listener, mask))
        self._topics: list[Topic[Any]] = []
        self._filtered: list[ContentFilteredTopic[Any]] = []
        self._publishers: list[Publisher] = []
        self._subscribers: list[Subscriber] = []
        self._defaults: dict[str, Any] = {
            "topic": TopicQos(),
            "publisher": PublisherQos(),
            "subscriber": SubscriberQos(),
        }
        self._builtin = BuiltinSubscriber(domain)

    @property
    def domain_id(self) -> int:
        return self.domain.number

    def _enabled(self) -> None:
        self._announce(alive=True)
        entities: list[Entity[Any]] = [*self._topics, *self._publishers, *self._subscribers]
        for entity in entities:
            if self._qos.entity_factory.autoenable and not entity.is_enabled:
                entity.enable()

    def _qos_changed(self) -> None:
        self._announce(alive=True)

    def _announce(self, *, alive: bool) -> None:
        self.domain.tell(
            Announcement(
                self.instance_handle,
                "participant",
                self.domain.name,
                alive,
                self.instance_handle,
                policies=encode_policies(policies_of(self._qos)),
            )
        )

    # Topics

    def create_topic(
        self,
        name: str,
        cls: type[T],
        qos: TopicQos | None = None,
        listener: Any = None,
        mask: Iterable[StatusKind] | None = None,
    ) -> Topic[T]:
        """A topic: a name and an event class, whose key says what its instances are."""
        self.check()
        if any(topic.name == name for topic in self._topics):
            raise PreconditionNotMet(self.name, f"has a topic {name!r} already; use lookup_topicdescription")
        topic = Topic(
            self, name, cls, self._defaults["topic"] if qos is None else qos, Listening(listener, mask)
        )
        self._topics.append(topic)
        self._enable(topic)
        return topic

    def delete_topic(self, topic: Topic[Any]) -> None:
        if topic not in self._topics:
            raise PreconditionNotMet(self.name, "the topic is of another participant")
        used = [one.name for one in (*self._writers(), *self._readers()) if one.topic is topic]
        used += [one.name for one in self._filtered if one.topic is topic]
        if used:
            raise PreconditionNotMet(self.name, f"topic {topic.name} is used by: {', '.join(used)}")
        self._topics.remove(topic)
        topic.delete()

    def create_contentfilteredtopic(
        self, name: str, topic: Topic[T], expression: str, parameters: Any = None
    ) -> ContentFilteredTopic[T]:
        """A topic of which readers get what meets a filter; the filter runs where samples are written."""
        self.check()
        if self.lookup_topicdescription(name) is not None:
            raise PreconditionNotMet(self.name, f"has a topic {name!r} already")
        filtered = ContentFilteredTopic(name, topic, expression, parameters)
        self._filtered.append(filtered)
        return filtered

    def delete_contentfilteredtopic(self, topic: ContentFilteredTopic[Any]) -> None:
        if topic not in self._filtered:
            raise PreconditionNotMet(self.name, "the topic is of another participant")
        if any(reader.description is topic for reader in self._readers()):
            raise PreconditionNotMet(self.name, f"topic {topic.name} is used by a reader")
        self._filtered.remove(topic)
        topic.is_deleted = True

    def create_multitopic(self, *_: object, **__: object) -> Any:
        """Refused: a join of topics is a pattern here."""
        raise Unsupported(
            self.name, "multi-topics: join channels with hg.all_of(a=..., b=..., by=...), or in Spark"
        )

    def lookup_topicdescription(self, name: str) -> Topic[Any] | ContentFilteredTopic[Any] | None:
        found: list[Topic[Any] | ContentFilteredTopic[Any]] = [*self._topics, *self._filtered]
        return next((one for one in found if one.name == name), None)

    def find_topic(self, name: str, cls: type[T], timeout: float | None = None) -> Topic[T] | None:
        """A topic of this name as soon as anybody in the domain has one; None when the time is over."""

        def is_known() -> bool:
            known = self.domain.entities.values()
            return any(one.kind == "topic" and one.topic == name for one in known)

        if not self.domain.wait(is_known, timeout):
            return None
        found = next((topic for topic in self._topics if topic.name == name), None)
        return self.create_topic(name, cls) if found is None else found

    # Publishers and subscribers

    def create_publisher(
        self,
        qos: PublisherQos | None = None,
        listener: Any = None,
        mask: Iterable[StatusKind] | None = None,
    ) -> Publisher:
        self.check()
        publisher = Publisher(self, self._defaults["publisher"] if qos is None else qos, listener, mask)
        self._publishers.append(publisher)
        self._enable(publisher)
        return publisher

    def delete_publisher(self, publisher: Publisher) -> None:
        if publisher not in self._publishers:
            raise PreconditionNotMet(self.name, "the publisher is of another participant")
        publisher.delete()
        self._publishers.remove(publisher)

    def create_subscriber(
        self,
        qos: SubscriberQos | None = None,
        listener: Any = None,
        mask: Iterable[StatusKind] | None = None,
    ) -> Subscriber:
        self.check()
        subscriber = Subscriber(self, self._defaults["subscriber"] if qos is None else qos, listener, mask)
        self._subscribers.append(subscriber)
        self._enable(subscriber)
        return subscriber

    def delete_subscriber(self, subscriber: Subscriber) -> None:
        if subscriber not in self._subscribers:
            raise PreconditionNotMet(self.name, "the subscriber is of another participant")
        subscriber.delete()
        self._subscribers.remove(subscriber)

    def get_builtin_subscriber(self) -> BuiltinSubscriber:
        """The readers of DCPSParticipant, DCPSTopic, DCPSPublication and DCPSSubscription."""
        return self._builtin

    def delete_contained_entities(self) -> None:
        """Delete all that was made by it, the innermost first."""
        for publisher in list(self._publishers):
            publisher.delete_contained_entities()
            self.delete_publisher(publisher)
        for subscriber in list(self._subscribers):
            subscriber.delete_contained_entities()
            self.delete_subscriber(subscriber)
        for filtered in list(self._filtered):
            self.delete_contentfilteredtopic(filtered)
        for topic in list(self._topics):
            self.delete_topic(topic)

    def contains_entity(self, handle: str) -> bool:
        """Whether an entity of that handle was made by it, directly or not."""
        made = (*self._topics, *self._publishers, *self._subscribers, *self._writers(), *self._readers())
        return any(entity.instance_handle == handle for entity in made)

    def assert_liveliness(self) -> None:
        """All its writers that are `manual-by-participant` are alive."""
        self.check_enabled()
        for writer in self._writers():
            if writer.is_enabled and writer.get_qos().liveliness.kind == "manual-by-participant":
                writer.assert_liveliness()
                return

    def get_current_time(self) -> int:
        """Nanoseconds since 1970."""
        return self.domain.now()

    def get_default_topic_qos(self) -> TopicQos:
        qos: TopicQos = self._defaults["topic"]
        return qos

    def set_default_topic_qos(self, qos: TopicQos) -> None:
        self._set_default("topic", qos)

    def get_default_publisher_qos(self) -> PublisherQos:
        qos: PublisherQos = self._defaults["publisher"]
        return qos

    def set_default_publisher_qos(self, qos: PublisherQos) -> None:
        self._set_default("publisher", qos)

    def get_default_subscriber_qos(self) -> SubscriberQos:
        qos: SubscriberQos = self._defaults["subscriber"]
        return qos

    def set_default_subscriber_qos(self, qos: SubscriberQos) -> None:
        self._set_default("subscriber", qos)

    def _set_default(self, kind: str, qos: Any) -> None:
        check_consistent(self.name, qos)
        self._defaults[kind] = qos

    def _enable(self, entity: Entity[Any]) -> None:
        if self.is_enabled and self._qos.entity_factory.autoenable:
            entity.enable()

    def _writers(self) -> list[Any]:
        return [writer for publisher in self._publishers for writer in publisher.contained]

    def _readers(self) -> list[Any]:
        return [reader for subscriber in self._subscribers for reader in subscriber.contained]

    def delete(self) -> None:
        """By the factory."""
        if self._topics or self._publishers or self._subscribers or self._filtered:
            raise PreconditionNotMet(
                self.name, "has topics, publishers or subscribers; delete_contained_entities() first"
            )
        if self.is_enabled:
            self._announce(alive=False)
        self._builtin.close()
        self.is_deleted = True


class DomainParticipantFactory:
    """The one of this process: `DomainParticipantFactory.get_instance()`."""

    _instance: DomainParticipantFactory | None = None

    def __init__(self) -> None:
        self._qos = DomainParticipantFactoryQos()
        self._default = DomainParticipantQos()
        self._domains: dict[int, Domain] = {}
        """By the identity of their station."""
        self._own: dict[int, Station] = {}
        """Stations that were opened here, by domain id."""
        self._participants: list[DomainParticipant] = []

    @classmethod
    def get_instance(cls) -> DomainParticipantFactory:
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def create_participant(
        self,
        domain_id: int = 0,
        qos: DomainParticipantQos | None = None,
        listener: Any = None,
        mask: Iterable[StatusKind] | None = None,
        *,
        station: Station | None = None,
    ) -> DomainParticipant:
        """Take part in a domain.

        Args:
            domain_id: 0 to 232; participants of different domains do not see each other.
            qos: else the default.
            listener: told of what no entity of it has a listener for.
            mask: the statuses it is told of; else all that it has methods for.
            station: where its channels are, which stays the caller's; else one in the domain `dds-<id>`.
        """
        if type(domain_id) is not int or not 0 <= domain_id <= HIGHEST_DOMAIN:
            raise BadParameter(
                "create_participant", f"domain_id={domain_id!r}: a whole number, 0 to {HIGHEST_DOMAIN}"
            )
        domain = self._domain(domain_id, station)
        participant = DomainParticipant(domain, self._default if qos is None else qos, listener, mask)
        domain.users += 1
        self._participants.append(participant)
        if self._qos.entity_factory.autoenable:
            participant.enable()
        return participant

    def _domain(self, number: int, station: Station | None) -> Domain:
        if station is None:
            station = self._own.get(number)
            if station is None:
                station = self._own[number] = Station(domain=f"dds-{number}")
        domain = self._domains.get(id(station))
        if domain is None:
            domain = self._domains[id(station)] = Domain(station, number)
        elif domain.number != number:
            raise PreconditionNotMet(
                "create_participant",
                f"the station takes part in domain {domain.number}; give another station",
            )
        return domain

    def delete_participant(self, participant: DomainParticipant) -> None:
        if participant not in self._participants:
            raise PreconditionNotMet("delete_participant", "the participant is not of this factory")
        participant.delete()
        self._participants.remove(participant)
        domain = participant.domain
        domain.users -= 1
        if domain.users == 0:
            domain.close()
            del self._domains[id(domain.station)]
            if self._own.get(domain.number) is domain.station:
                self._own.pop(domain.number).close()

    def lookup_participant(self, domain_id: int) -> DomainParticipant | None:
        return next((one for one in self._participants if one.domain_id == domain_id), None)

    def get_qos(self) -> DomainParticipantFactoryQos:
        return self._qos

    def set_qos(self, qos: DomainParticipantFactoryQos) -> None:
        self._qos = qos

    def get_default_participant_qos(self) -> DomainParticipantQos:
        return self._default

    def set_default_participant_qos(self, qos: DomainParticipantQos) -> None:
        self._default = msgspec.structs.replace(qos)

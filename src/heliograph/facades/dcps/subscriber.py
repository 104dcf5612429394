"""Subscribers (2.2.2.5.2): readers that share partitions and the way in which samples are presented."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from heliograph.channel.queueing.reader_cache import ANY
from heliograph.errors import PreconditionNotMet
from heliograph.facades.dcps.entity import Entity, check_consistent
from heliograph.facades.dcps.group_access import GroupAccess, in_order
from heliograph.facades.dcps.listeners import Listening
from heliograph.facades.dcps.publisher import copied_from_topic
from heliograph.facades.dcps.reader import DataReader, _wanted
from heliograph.facades.dcps.topic import ContentFilteredTopic
from heliograph.model.event import Event
from heliograph.qos.dds_policies import DataReaderQos, SubscriberQos, TopicQos
from heliograph.qos.negotiation import for_reader
from heliograph.qos.request_offered import policies_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.channel.queueing.reader_cache import InstanceState, SampleState, ViewState
    from heliograph.facades.dcps.participant import DomainParticipant
    from heliograph.facades.dcps.statuses import StatusKind
    from heliograph.facades.dcps.topic import Topic
    from heliograph.qos.negotiation import Grant

T = TypeVar("T", bound=Event)


class Subscriber(Entity[SubscriberQos]):
    """Made by `DomainParticipant.create_subscriber`."""

    kind = "subscriber"

    def __init__(
        self,
        participant: DomainParticipant,
        qos: SubscriberQos,
        listener: Any,
        mask: Iterable[StatusKind] | None,
    ) -> None:
        super().__init__(participant.domain, "subscriber", qos, participant, Listening(listener, mask))
        self.participant = participant
        presentation = qos.presentation
        self.group: GroupAccess | None = None
        """Access over all its readers, where it asked for that."""
        if presentation.scope == "group" and (presentation.coherent or presentation.ordered):
            self.group = GroupAccess()
        self._readers: list[DataReader[Any]] = []
        self._default = DataReaderQos()

    def set_qos(self, qos: SubscriberQos) -> None:
        super().set_qos(qos)
        presentation = qos.presentation
        is_grouped = presentation.scope == "group" and (presentation.coherent or presentation.ordered)
        if is_grouped != (self.group is not None):  # it is not enabled yet
            self.group = GroupAccess() if is_grouped else None

    def create_datareader(
        self,
        topic: Topic[T] | ContentFilteredTopic[T],
        qos: DataReaderQos | None = None,
        listener: Any = None,
        mask: Iterable[StatusKind] | None = None,
        *,
        best_common: bool = False,
    ) -> DataReader[T]:
        """A reader of a topic, enabled unless this subscriber's entity_factory says otherwise.

        With `best_common` its policies are changed so that all writers match that are known by now, as little
        as will do; `granted` says what was changed, as do the log and `$station`.
        """
        self.check()
        asked = self._default if qos is None else qos
        granted: tuple[Grant, ...] = ()
        if best_common:
            known = topic.topic.name if isinstance(topic, ContentFilteredTopic) else topic.name
            others = [one.endpoint.policies for one in self.domain.writers_of(known)]
            policies, granted = for_reader(policies_of(asked), others)
            asked = DataReaderQos(**policies)
            self.domain.report_granted(f"reader of {topic.name}", topic.name, granted)
        reader = DataReader(self, topic, asked, listener, mask)
        reader.granted = granted
        self._readers.append(reader)
        try:
            if self.is_enabled and self._qos.entity_factory.autoenable:
                reader.enable()
        except BaseException:
            self.delete_datareader(reader)
            raise
        return reader

    def delete_datareader(self, reader: DataReader[Any]) -> None:
        if reader not in self._readers:
            raise PreconditionNotMet(self.name, "the reader is of another subscriber")
        reader.delete()
        self._readers.remove(reader)
        if self.group is not None:
            with self.domain.lock:
                self.group.lose(reader.instance_handle)

    def lookup_datareader(self, topic_name: str) -> DataReader[Any] | None:
        return next((reader for reader in self._readers if reader.description.name == topic_name), None)

    def delete_contained_entities(self) -> None:
        for reader in list(self._readers):
            reader.delete_contained_entities()
            self.delete_datareader(reader)

    @property
    def contained(self) -> tuple[DataReader[Any], ...]:
        return tuple(self._readers)

    def get_datareaders(
        self,
        sample_states: Iterable[SampleState] = ANY.sample_states,
        view_states: Iterable[ViewState] = ANY.view_states,
        instance_states: Iterable[InstanceState] = ANY.instance_states,
    ) -> list[DataReader[Any]]:
        """The readers that have samples in these states.

        With ordered access by group, the reader of each sample in turn: `read(1)` or `take(1)` of each gives
        the samples in the order of their writing.
        """
        self.check_enabled()
        self.check_access()
        wanted = _wanted(sample_states, view_states, instance_states)
        with self.domain.lock:
            now = self.domain.now()
            if self.group is not None and self._qos.presentation.ordered:
                return in_order(self._readers, wanted, now)
            return [reader for reader in self._readers if reader.cache.has(wanted, now)]

    def begin_access(self) -> None:
        """With access by group: until `end_access` the readers show no set of which not all of them did."""
        self.check_enabled()
        with self.domain.lock:
            if self.group is not None:
                self.group.accessing += 1

    def end_access(self) -> None:
        self.check_enabled()
        with self.domain.lock:
            if self.group is None:
                return
            if not self.group.accessing:
                raise PreconditionNotMet(self.name, "begin_access() first")
            self.group.end(self._readers)

    def check_access(self) -> None:
        """PreconditionNotMet for reading by group outside of an access."""
        if self.group is not None and not self.group.accessing:
            raise PreconditionNotMet(self.name, "has access by group: begin_access() first")

    def notify_datareaders(self) -> None:
        """Have the listeners of readers with data told."""
        self.check_enabled()
        with self.domain.lock:
            for reader in self._readers:
                if "data_available" in reader.status.changed:
                    self._tell_reader(reader)

    def get_default_datareader_qos(self) -> DataReaderQos:
        return self._default

    def set_default_datareader_qos(self, qos: DataReaderQos) -> None:
        check_consistent(self.name, qos)
        self._default = qos

    @staticmethod
    def copy_from_topic_qos(qos: DataReaderQos, topic_qos: TopicQos) -> DataReaderQos:
        """A reader's policies, with those of a topic where both have them."""
        copied: DataReaderQos = copied_from_topic(qos, topic_qos)
        return copied

    def data_came(self, reader: DataReader[Any]) -> None:
        """A reader has something new: tell the listener. Under the domain's lock."""
        method = self._method("data_on_readers")
        if method is not None:
            self.domain.listeners.post(partial(method, self))
        else:
            self._tell_reader(reader)

    def _tell_reader(self, reader: DataReader[Any]) -> None:
        method = reader._method("data_available")  # noqa: SLF001 - an entity as this one
        if method is not None:
            self.domain.listeners.post(partial(method, reader))

    def _qos_changed(self) -> None:
        for reader in self._readers:
            if reader.is_enabled:
                reader._qos_changed()  # noqa: SLF001 - its partitions are these

    def delete(self) -> None:
        """By the participant."""
        if self._readers:
            raise PreconditionNotMet(self.name, "has readers; delete_contained_entities() first")
        self.is_deleted = True

"""Publishers (2.2.2.4.1): writers that share partitions and coherent sets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from heliograph.errors import OutOfResources, PreconditionNotMet
from heliograph.facades.dcps.entity import Entity, check_consistent
from heliograph.facades.dcps.listeners import Listening
from heliograph.facades.dcps.topic import ContentFilteredTopic
from heliograph.facades.dcps.writer import DataWriter
from heliograph.model.event import MAX_USER_HEADER, Event
from heliograph.model.instance_change import MOST_PARTS, CoherentPart, said_of
from heliograph.qos.dds_policies import DataWriterQos, PublisherQos, TopicQos
from heliograph.qos.negotiation import for_writer
from heliograph.qos.request_offered import policies_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.facades.dcps.participant import DomainParticipant
    from heliograph.facades.dcps.statuses import StatusKind
    from heliograph.facades.dcps.topic import Topic
    from heliograph.model.instance_change import Change
    from heliograph.qos.negotiation import Grant

T = TypeVar("T", bound=Event)


def copied_from_topic(qos: Any, topic_qos: TopicQos) -> Any:
    """The policies of a writer or reader, with those that the topic has in their place."""
    shared = [name for name in qos.__struct_fields__ if name in TopicQos.__struct_fields__]
    return msgspec.structs.replace(qos, **{name: getattr(topic_qos, name) for name in shared})


class _Collected(NamedTuple):
    """A change that waits for the end of its set."""

    writer: DataWriter[Any]
    change: Change
    data: Any
    source_ts: int


class Publisher(Entity[PublisherQos]):
    """Made by `DomainParticipant.create_publisher`."""

    kind = "publisher"

    def __init__(
        self,
        participant: DomainParticipant,
        qos: PublisherQos,
        listener: Any,
        mask: Iterable[StatusKind] | None,
    ) -> None:
        super().__init__(participant.domain, "publisher", qos, participant, Listening(listener, mask))
        self.participant = participant
        self._writers: list[DataWriter[Any]] = []
        self._default = DataWriterQos()
        self.collecting = 0
        """How deep `begin_coherent_changes` is nested."""
        self._collected: list[_Collected] = []
        self._suspended = 0

    def create_datawriter(
        self,
        topic: Topic[T],
        qos: DataWriterQos | None = None,
        listener: Any = None,
        mask: Iterable[StatusKind] | None = None,
        *,
        best_common: bool = False,
    ) -> DataWriter[T]:
        """A writer of a topic, enabled unless this publisher's entity_factory says otherwise.

        With `best_common` its policies are changed so that all readers match that are known by now, as little
        as will do; `granted` says what was changed, as do the log and `$station`.
        """
        self.check()
        if isinstance(topic, ContentFilteredTopic):
            raise PreconditionNotMet(self.name, "a content-filtered topic has readers only; give its topic")
        topic.check()
        asked = self._default if qos is None else qos
        granted: tuple[Grant, ...] = ()
        if best_common:
            others = [one.endpoint.policies for one in self.domain.readers_of(topic.name)]
            policies, granted = for_writer(policies_of(asked), others)
            asked = DataWriterQos(**policies)
            self.domain.report_granted(f"writer of {topic.name}", topic.name, granted)
        writer = DataWriter(self, topic, asked, listener, mask)
        writer.granted = granted
        if self.is_enabled and self._qos.entity_factory.autoenable:
            writer.enable()
        self._writers.append(writer)
        return writer

    def delete_datawriter(self, writer: DataWriter[Any]) -> None:
        if writer not in self._writers:
            raise PreconditionNotMet(self.name, "the writer is of another publisher")
        self._writers.remove(writer)
        writer.delete()

    def lookup_datawriter(self, topic_name: str) -> DataWriter[Any] | None:
        return next((writer for writer in self._writers if writer.topic.name == topic_name), None)

    def delete_contained_entities(self) -> None:
        for writer in list(self._writers):
            self.delete_datawriter(writer)

    @property
    def contained(self) -> tuple[DataWriter[Any], ...]:
        return tuple(self._writers)

    def get_default_datawriter_qos(self) -> DataWriterQos:
        return self._default

    def set_default_datawriter_qos(self, qos: DataWriterQos) -> None:
        check_consistent(self.name, qos)
        self._default = qos

    @staticmethod
    def copy_from_topic_qos(qos: DataWriterQos, topic_qos: TopicQos) -> DataWriterQos:
        """A writer's policies, with those of a topic where both have them."""
        copied: DataWriterQos = copied_from_topic(qos, topic_qos)
        return copied

    def _qos_changed(self) -> None:
        for writer in self._writers:
            if writer.is_enabled:
                writer.announce()

    def wait_for_acknowledgments(self, timeout: float | None = None) -> bool:
        return all(writer.wait_for_acknowledgments(timeout) for writer in self._writers if writer.is_enabled)

    # Coherent sets

    def begin_coherent_changes(self) -> None:
        """From here on samples of its writers wait, until they are written together."""
        self.check_enabled()
        if not self._qos.presentation.coherent:
            raise PreconditionNotMet(self.name, "its presentation is not coherent")
        with self.domain.lock:
            self.collecting += 1

    def end_coherent_changes(self) -> None:
        """Write what was collected: readers that asked for coherence see all of it or nothing."""
        self.check_enabled()
        with self.domain.lock:
            if not self.collecting:
                raise PreconditionNotMet(self.name, "begin_coherent_changes() first")
            self.collecting -= 1
            if self.collecting:
                return
            collected, self._collected = self._collected, []
        self._send_set(collected)

    def _send_set(self, collected: list[_Collected]) -> None:
        sizes = Counter(one.writer.instance_handle for one in collected)
        group: tuple[tuple[str, int], ...] = ()
        if self._qos.presentation.scope == "group":
            group = tuple((handle.rpartition(".")[2], size) for handle, size in sizes.items())
        number = self.domain.next_set()
        longest = len(said_of("unregister", CoherentPart(number, len(collected), len(collected), group)))
        if longest > MAX_USER_HEADER or len(collected) > MOST_PARTS:
            raise OutOfResources(
                self.name, f"{len(collected)} changes of {len(sizes)} writers are too many for a coherent set"
            )
        places: Counter[str] = Counter()
        for writer, change, data, source_ts in collected:
            handle = writer.instance_handle
            part = CoherentPart(number, places[handle], sizes[handle], group)
            places[handle] += 1
            writer.write_part(data, change, part, source_ts)

    def collects(
        self, writer: DataWriter[Any], change: Change, data: Any, source_timestamp: int | None
    ) -> bool:
        """Whether a change waits for the end of a coherent set."""
        if not self.collecting:
            return False
        with self.domain.lock:
            if not self.collecting:
                return False
            when = self.domain.now() if source_timestamp is None else source_timestamp
            self._collected.append(_Collected(writer, change, data, when))
            return True

    def delete(self) -> None:
        """By the participant."""
        if self._writers:
            raise PreconditionNotMet(self.name, "has writers; delete_contained_entities() first")
        self.is_deleted = True

"""Data readers (2.2.2.5): a cache that is fed from the channels of matched writers."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from heliograph.channel.queueing.reader_cache import (
    ANY,
    NIL,
    REFUSALS,
    Arrival,
    CacheLimits,
    ReaderCache,
    SampleInfo,
    SampleSelection,
)
from heliograph.channel.receive.cache_feed import CacheFeed
from heliograph.errors import BadParameter, HeliographError, PreconditionNotMet, Unsupported
from heliograph.facades.dcps.conditions import QueryCondition, ReadCondition
from heliograph.facades.dcps.discovery import DiscoveredEndpoint, announcement_of, fields_of
from heliograph.facades.dcps.entity import Entity
from heliograph.facades.dcps.listeners import Listening
from heliograph.facades.dcps.statuses import (
    CountStatus,
    DeadlineMissedStatus,
    IncompatibleQosStatus,
    LivelinessChangedStatus,
    MatchedStatus,
    SampleRejectedStatus,
)
from heliograph.facades.dcps.topic import ContentFilteredTopic, channel_of
from heliograph.facades.dcps.writer import is_apart
from heliograph.filters.contradiction import why_never
from heliograph.model.event import Event, info_of
from heliograph.model.instance_change import change_of
from heliograph.qos.dds_policies import DataReaderQos, DataWriterQos, ResourceLimits
from heliograph.qos.explanation import Endpoint, explain_endpoints
from heliograph.qos.request_offered import incompatible, policies_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.channel.queueing.reader_cache import InstanceState, SampleState, ViewState
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.facades.dcps.statuses import StatusKind
    from heliograph.facades.dcps.subscriber import Subscriber
    from heliograph.facades.dcps.topic import Topic, TopicChannel
    from heliograph.filters.typed import Node
    from heliograph.model.event import Header
    from heliograph.model.instance_change import CoherentPart
    from heliograph.qos.negotiation import Grant
    from heliograph.qos.request_offered import Incompatible

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)

EARLY: Final = 1_000
"""Samples of one writer that wait for its announcement, which goes by another channel."""
EARLY_WRITERS: Final = 64


class Sample(NamedTuple, Generic[T]):
    """What a read or take returns."""

    data: T
    info: SampleInfo


class _Matched:
    """A writer that the reader gets samples of."""

    __slots__ = ("floor", "heard", "id", "is_alive", "lease", "lifespan", "peer", "sequence")

    def __init__(self, peer: DiscoveredEndpoint, now: int) -> None:
        self.sequence: int | None = None
        self.floor: int | None = None
        """The last one of its samples that may have been among what was kept, where that is known."""
        self.heard = now
        self.is_alive = True
        self.use(peer)

    def use(self, peer: DiscoveredEndpoint) -> None:
        self.peer = peer
        self.id = peer.id
        policies = peer.endpoint.policies
        self.lifespan = _ns(policies["lifespan"].duration)
        self.lease = _ns(policies["liveliness"].lease)


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def limits_of(qos: DataReaderQos, *, ordered: bool) -> CacheLimits:
    """How the cache of a reader with these policies keeps samples."""
    limits, lifecycle = qos.resource_limits, qos.reader_data_lifecycle
    return CacheLimits(
        depth=qos.history.depth if qos.history.kind == "keep-last" else None,
        max_samples=limits.max_samples,
        max_instances=limits.max_instances,
        max_samples_per_instance=limits.max_samples_per_instance,
        exclusive=qos.ownership.kind == "exclusive",
        by_source=qos.destination_order.kind == "by-source-timestamp",
        separation=round(qos.time_based_filter.separation * 1e9),
        deadline=_ns(qos.deadline.period),
        purge_nowriter=_ns(lifecycle.autopurge_nowriter),
        purge_disposed=_ns(lifecycle.autopurge_disposed),
        ordered=ordered,
    )


class DataReader(Entity[DataReaderQos], Generic[T]):
    """Made by `Subscriber.create_datareader`."""

    kind = "reader"

    def __init__(
        self,
        subscriber: Subscriber,
        topic: Topic[T] | ContentFilteredTopic[T],
        qos: DataReaderQos,
        listener: Any,
        mask: Iterable[StatusKind] | None,
    ) -> None:
        super().__init__(
            subscriber.domain, f"reader of {topic.name}", qos, subscriber, Listening(listener, mask)
        )
        self.subscriber = subscriber
        self.description = topic
        self.topic: Topic[T] = topic.topic if isinstance(topic, ContentFilteredTopic) else topic
        self._where: dict[str, Any] = {}
        if subscriber.get_qos().presentation.coherent and qos.time_based_filter.separation:
            raise Unsupported(self.name, "a time-based filter and coherent sets: parts would come later")
        if isinstance(topic, ContentFilteredTopic):
            if subscriber.get_qos().presentation.coherent:
                raise Unsupported(
                    self.name, "a content filter and coherent sets: parts of a set would be missing"
                )
            self._where = {
                "where": topic.get_filter_expression(),
                "params": topic.get_expression_parameters(),
            }
        self._key_of = info_of(self.topic.cls).key_of
        presentation = subscriber.get_qos().presentation
        self._ordered = presentation.ordered and presentation.scope != "instance"
        self._coherent = presentation.coherent
        self.cache = ReaderCache(limits_of(qos, ordered=self._ordered), self.domain.arrivals)
        self._is_timed = _is_timed(self.cache.limits)
        self._is_light = self.cache.is_light()
        self._feeds: dict[str, Receiver | None] = {}
        self._stopping: list[CacheFeed] = []
        """Those of them that stop while the cache is full."""
        self._matched: dict[str, _Matched] = {}
        """Writers by the name of their supplier."""
        self._refused: set[str] = set()
        self._apart: set[str] = set()
        """Suppliers of writers that do not match, by incompatible policies or otherwise."""
        self._early: dict[str, deque[tuple[Event, Header]]] = {}
        self._last_rejected: tuple[str, int] = ("", 0)
        self._timer_due: int | None = None
        self._conditions: list[ReadCondition] = []
        self._time_ns = self.domain.clock.time_ns
        self.granted: tuple[Grant, ...] = ()
        """What `best_common` has changed of its policies."""
        self.peer = self._peer()

    @property
    def endpoint(self) -> Endpoint:
        """What matching knows of it; for `hg.explain`."""
        return self.peer.endpoint

    # The life of the entity

    def _enabled(self) -> None:
        if isinstance(self.description, ContentFilteredTopic):
            self.description.readers.append(self)
        with self.domain.lock:
            self.domain.local_readers[self.instance_handle] = self
        if self._qos.durability.kind == "volatile":
            self._open_feed(channel_of(self.topic.name, DataWriterQos(), is_keyed=True))
        self.announce()
        for writer in self.domain.writers_of(self.topic.name):
            self.meet(writer)
        self.domain.look_for_mistakes(self.name, self.endpoint, is_writer=False)

    def _qos_changed(self) -> None:
        with self.domain.lock:
            self.cache.limits = limits_of(self._qos, ordered=self._ordered)
            self._is_timed = _is_timed(self.cache.limits)
            self._is_light = self.cache.is_light()
        self.announce()
        for writer in self.domain.writers_of(self.topic.name):
            self.meet(writer)

    def filter_changed(self) -> None:
        """The parameters of its content-filtered topic have other values."""
        topic = self.description
        if isinstance(topic, ContentFilteredTopic):
            self._where = {
                "where": topic.get_filter_expression(),
                "params": topic.get_expression_parameters(),
            }
            with self.domain.lock:
                feeds = [feed for feed in self._feeds.values() if feed is not None]
            for feed in feeds:
                feed.change(**self._where)
            self._qos_changed()  # whether it lets anything pass

    def _open_feed(self, asked: TopicChannel) -> bool:
        """Be fed from a channel; whether that is new. Without the lock."""
        name = asked.name
        with self.domain.lock:
            if name in self._feeds:
                return False
            self._feeds[name] = None
        channel = self.domain.open_channel(self.topic.cls, asked)
        options: dict[str, Any] = dict(self._where)
        is_reliable = self._qos.reliability.kind == "reliable"
        if not channel.qos.journalled:
            if not is_reliable and channel.qos.reliability == "reliable":
                options["overflow"] = "drop_oldest"
            if self._qos.resource_limits.max_samples is not None:
                options["queue"] = self._qos.resource_limits.max_samples
        start = None
        if channel.qos.durability != "volatile" and self._qos.durability.kind == "volatile":
            start = "now"
        elif channel.qos.journalled:
            start = "earliest"
        feed: Receiver
        if channel.qos.durability == "volatile" and self._never_rejects():
            # Nothing ever waits, so no queue is needed: the thread that pushes, or reads a link, stores it.
            feed = channel.subscribe(self._store, inline=True, name=self.instance_handle, **self._where)
        else:
            feed = stops = channel.feed_cache(self._offer, name=self.instance_handle, start=start, **options)
            with self.domain.lock:
                self._stopping.append(stops)
        with self.domain.lock:
            is_here = self.instance_handle in self.domain.local_readers
            self._feeds[name] = feed
        if not is_here:  # it was deleted meanwhile
            feed.close()
        return is_here

    def _never_rejects(self) -> bool:
        limits = self._qos.resource_limits
        return self._qos.history.kind == "keep-last" and limits == ResourceLimits()

    def _peer(self) -> DiscoveredEndpoint:
        with self.domain.lock:
            channels = tuple(name for name, feed in self._feeds.items() if feed is not None)
        return DiscoveredEndpoint(
            id=self.instance_handle,
            kind="subscription",
            station=self.domain.name,
            participant=self.subscriber.participant.instance_handle,
            endpoint=Endpoint(
                policies=policies_of(self._qos, self.subscriber.get_qos())
                | {"topic_data": self.topic.get_qos().topic_data},
                domain=self.domain.number,
                topic=self.topic.name,
                type_name=self.topic.type_name,
                fields=fields_of(self.topic.cls),
                name=self.instance_handle,
                never=self._never(),
            ),
            channels=channels,
        )

    def _never(self, *queries: Node) -> str:
        """Why its filter, with these, lets nothing pass; empty where it may."""
        nodes = list(queries)
        if self._where:
            condition: Any = self.topic.channel().select(**self._where).conditions[self.topic.cls]
            nodes.append(condition.checked.node)
        return (why_never(*nodes) or "") if nodes else ""

    def announce(self, *, alive: bool = True) -> None:
        """Tell the domain of it, as it is now."""
        self.peer = peer = self._peer()
        self.domain.tell(announcement_of(peer, alive=alive))
        (self.domain.meet_reader if alive else self.domain.lose_reader)(peer)

    def delete(self) -> None:
        """By the subscriber."""
        if self._conditions:
            raise PreconditionNotMet(self.name, "has read conditions; delete_contained_entities() first")
        if self.is_enabled:
            if isinstance(self.description, ContentFilteredTopic):
                self.description.readers.remove(self)
            self.announce(alive=False)
            with self.domain.lock:
                self.domain.local_readers.pop(self.instance_handle, None)
                feeds = list(self._feeds.values())
            for feed in feeds:
                if feed is not None:
                    feed.close()
        self.is_deleted = True

    def delete_contained_entities(self) -> None:
        self._conditions.clear()

    # Writers

    def meet(self, writer: DiscoveredEndpoint) -> None:
        """A writer of its topic is there, or has changed. Without the lock."""
        ours, theirs = self.peer.endpoint, writer.endpoint
        if is_apart(theirs, ours):
            self.lose(writer)
            with self.domain.lock:
                self._apart.add(writer.writer)
            self.domain.report_apart(self.name, theirs, ours)
            return
        found = incompatible(theirs.policies, ours.policies)
        if found:
            self._refuse(writer, found)
            return
        policies = theirs.policies
        asked = channel_of(
            self.topic.name,
            DataWriterQos(**{name: policies[name] for name in DataWriterQos.__struct_fields__}),
            is_keyed=self.topic.is_keyed,
        )
        if asked.name != writer.channel:
            log.warning(
                "writer %s of %s names channel %s, not %s",
                writer.id,
                self.topic.name,
                writer.channel,
                asked.name,
            )
            return
        with self.domain.lock:
            self._refused.discard(writer.id)
            self._apart.discard(writer.writer)
            matched = self._matched.get(writer.writer)
            self.cache.set_strength(writer.id, policies["ownership_strength"].value)
            if matched is not None:
                matched.use(writer)
            else:
                self._match(writer)
        try:
            is_new_feed = self._open_feed(asked)
        except HeliographError as error:
            with self.domain.lock:
                self._feeds.pop(asked.name, None)
            self.lose(writer)
            self.domain.report(self.name, error)
            return
        self._end_replay(writer)
        if is_new_feed:
            self.announce()

    def _end_replay(self, writer: DiscoveredEndpoint) -> None:
        """What a writer of this station had kept was offered: gaps in what comes from here on are losses."""
        with self.domain.lock:
            here = self.domain.local_writers.get(writer.id)
            matched = self._matched.get(writer.writer)
            if matched is not None and matched.floor is None and here is not None:
                matched.floor = here.last_sequence

    def _match(self, writer: DiscoveredEndpoint) -> None:
        matched = self._matched[writer.writer] = _Matched(writer, self.domain.now())
        self.status.matched("subscription_matched", writer.id, 1)
        self.tell("subscription_matched")
        self.status.liveliness(writer.id, alive=1)
        self.tell("liveliness_changed")
        for event, header in self._early.pop(writer.writer, ()):
            self._take_in(event, header, matched)
        if matched.lease is not None:
            self._ring_at(matched.heard + matched.lease)

    def _refuse(self, writer: DiscoveredEndpoint, found: tuple[Incompatible, ...]) -> None:
        with self.domain.lock:
            if writer.id in self._refused:
                return
            self._early.pop(writer.writer, None)
            self._refused.add(writer.id)
            self._apart.add(writer.writer)
            self.status.incompatible(
                "requested_incompatible_qos", list(dict.fromkeys(one.number for one in found))
            )
            self.tell("requested_incompatible_qos")
        ours, theirs = self.peer.endpoint, writer.endpoint
        self.report_apart(ours.name, writer.id, explain_endpoints(theirs, ours), found)
        self.lose(writer, forget=False)

    def lose(self, writer: DiscoveredEndpoint, *, forget: bool = True) -> None:
        with self.domain.lock:
            self._early.pop(writer.writer, None)
            if forget:
                self._refused.discard(writer.id)
                self._apart.discard(writer.writer)
            matched = self._matched.pop(writer.writer, None)
            if matched is None:
                return
            self.status.matched("subscription_matched", writer.id, -1)
            self.tell("subscription_matched")
            alive = -1 if matched.is_alive else 0
            self.status.liveliness(writer.id, alive=alive, not_alive=-1 - alive)
            self.tell("liveliness_changed")
            if self.subscriber.group is not None:
                self.subscriber.group.lose(self.instance_handle, writer.id)
            if self.cache.writer_lost(writer.id, self.domain.now()):
                self._data_came()
            if (due := self.cache.next_due()) is not None:
                self._ring_at(due)

    def hear_assertion(self, writers: list[str], now: int) -> None:
        """Writers that say they are alive."""
        with self.domain.lock:
            for matched in self._matched.values():
                if matched.peer.id in writers:
                    self._hear(matched, now)

    def _hear(self, matched: _Matched, now: int) -> None:
        """Under the lock."""
        matched.heard = now
        if not matched.is_alive:
            matched.is_alive = True
            self.cache.set_strength(
                matched.peer.id, matched.peer.endpoint.policies["ownership_strength"].value
            )
            self.status.liveliness(matched.peer.id, alive=1, not_alive=-1)
            self.tell("liveliness_changed")
        if matched.lease is not None:
            self._ring_at(now + matched.lease)

    def get_matched_publications(self) -> tuple[str, ...]:
        with self.domain.lock:
            return tuple(matched.peer.id for matched in self._matched.values())

    # What comes

    def _store(self, event: Event, header: Header) -> None:
        """By a channel, in the thread that pushes: most samples need no more than this."""
        with self.domain.lock:
            matched = self._matched.get(header.supplier)
            if (
                matched is not None
                and header.headers is None
                and self._is_light
                and matched.lease is None
                and matched.is_alive
            ):
                self._put(event, header, matched)
                return
        self._offer(event, header)

    def _put(self, event: Event, header: Header, matched: _Matched) -> None:
        """A plain sample of a writer that is known to be alive. Under the lock."""
        before, sequence = matched.sequence, header.sequence
        matched.sequence = sequence
        if before is not None and sequence > before + 1:
            self._count_lost(header, matched, before)
        source_ts, lifespan, now = header.source_ts, matched.lifespan, self._time_ns()
        expires = None if lifespan is None else source_ts + lifespan
        if self.cache.put(event, header.key, matched.id, source_ts, expires, header.station_seq, now):
            self._data_came()
        due, period = expires, self.cache.limits.deadline
        if period is not None and (due is None or now + period < due):
            due = now + period
        if due is not None and (self._timer_due is None or due < self._timer_due):
            self._ring_at(due)

    def _offer(self, event: Event, header: Header) -> bool:
        """By a channel, under its locks: False when the cache is full and the reader reliable."""
        with self.domain.lock:
            matched = self._matched.get(header.supplier)
            if matched is not None:
                return self._take_in(event, header, matched)
            if header.supplier in self._apart:
                return True
            if any(mark in header.channel for mark in ("@transient-", "@persistent")) and (
                "@transient-local" not in header.channel
            ):
                return self._take_in(event, header, None)  # of a writer that may be gone: samples outlive it
            if header.supplier in self._early or len(self._early) < EARLY_WRITERS:
                self._early.setdefault(header.supplier, deque(maxlen=EARLY)).append((event, header))
            return True

    def _take_in(self, event: Event, header: Header, matched: _Matched | None) -> bool:
        now = self._time_ns()
        writer = header.supplier if matched is None else matched.peer.id
        if matched is not None:
            before = matched.sequence
            matched.sequence = header.sequence
            if before is not None and header.sequence > before + 1:
                self._count_lost(header, matched, before)
            if matched.lease is not None or not matched.is_alive:
                self._hear(matched, now)
        change, part = ("write", None) if header.headers is None else change_of(header.headers)
        expires = None
        if matched is None:
            expires = None if header.lifetime_ns is None else now + header.lifetime_ns
        elif matched.lifespan is not None:
            expires = header.source_ts + matched.lifespan
        arrival = Arrival(
            change,
            event,
            header.key,
            writer,
            header.source_ts,
            expires,
            part if self._coherent else None,
            matched is None,
            header.station_seq,
        )
        cache = self.cache
        if change == "unregister" and header.offset is not None and cache.lookup(header.key) == NIL:
            # A journal by key has kept nothing of the instance but this, which has its last data.
            cache.accept(arrival._replace(change="write"), now)
        group = self.subscriber.group
        if group is not None and arrival.part is not None and arrival.part.group:
            why = group.stage(self.subscriber.contained, self, arrival, arrival.part)
        elif (why := cache.accept(arrival, now)) is None:
            self._data_came()
        if why in REFUSALS:
            return self._reject(header, why)
        if why == "too-large":
            self._reject_set(header, part)
        if self._is_timed or arrival.expires is not None:
            self._ring_for(arrival, now)
        return True

    def _count_lost(self, header: Header, matched: _Matched, before: int) -> None:
        """A gap in the sequence of a supplier is a loss; not where a filter lets only some pass, nor among
        what a writer had kept, which is not all that it wrote."""
        if self._where or (header.supplier, header.sequence) == self._last_rejected:
            return
        if "@transient" in header.channel:
            feed = self._feeds.get(header.channel)
            late = feed.queue.late if isinstance(feed, CacheFeed) else None
            floor = matched.floor
            if matched.peer.station != self.domain.name and late is not None:
                floor = late.floor(header.supplier, header.epoch)
            if floor is None:
                return
            before = max(before, floor)
        elif "@persistent" in header.channel:
            return  # a history by key has gaps
        if header.sequence > before + 1:
            self.status.count("sample_lost", by=header.sequence - before - 1)
            self.tell("sample_lost")

    def _reject(self, header: Header, why: str) -> bool:
        this = (header.supplier, header.sequence)
        if this != self._last_rejected:
            self._last_rejected = this
            self.status.count(
                "sample_rejected", last_reason=why, last_instance_handle=self.cache.lookup(header.key)
            )
            self.tell("sample_rejected")
        return self._qos.reliability.kind != "reliable"

    def take_set(self, parts: list[Arrival]) -> None:
        """A set of a publisher is whole. Under the lock."""
        now = self._time_ns()
        self.cache.accept_set(parts, now)
        self._data_came()
        for part in parts:
            self._ring_for(part, now)

    def hears(self, writer: str) -> bool:
        """Whether a writer is matched. Under the lock."""
        return any(matched.peer.id == writer for matched in self._matched.values())

    def _reject_set(self, header: Header, part: CoherentPart | None) -> None:
        """A set that would not fit into an empty cache is rejected as a whole; nobody waits for it."""
        self.status.count(
            "sample_rejected",
            by=1 if part is None else part.size,
            last_reason="samples",
            last_instance_handle=self.cache.lookup(header.key),
        )
        self.tell("sample_rejected")

    def _data_came(self) -> None:
        """Under the lock."""
        self.status.changed.add("data_available")
        self.subscriber.status.changed.add("data_on_readers")
        domain = self.domain
        if domain.waiting:
            domain.notify()
        if domain.is_listened_to:
            self.subscriber.data_came(self)

    # Time

    def _ring_for(self, arrival: Arrival, now: int) -> None:
        limits = self.cache.limits
        dues = [now + time for time in (limits.deadline, limits.separation or None) if time is not None]
        if arrival.expires is not None:
            dues.append(arrival.expires)
        if arrival.change != "write":
            dues += [
                now + time for time in (limits.purge_nowriter, limits.purge_disposed) if time is not None
            ]
        if dues:
            self._ring_at(min(dues))

    def _ring_at(self, due: int) -> None:
        """Under the lock: have `_tick` called then, or before."""
        if self._timer_due is not None and self._timer_due <= due:
            return
        self._timer_due = due
        delay = max(0, due - self.domain.now())
        self.domain.station.timers.at(self.domain.clock.monotonic_ns() + delay, self._tick)

    def _tick(self) -> None:
        """By a timer."""
        now = self.domain.now()
        with self.domain.lock:
            if self.is_deleted or self._timer_due is None or self._timer_due > now:
                return  # another one rings in time
            self._timer_due = None
            missed, came = self.cache.tick(now)
            for handle in missed:
                self.status.count("requested_deadline_missed", last_instance_handle=handle)
                self.tell("requested_deadline_missed")
            came |= self._end_leases(now)
            if came:
                self._data_came()
            leases = [one.heard + one.lease for one in self._matched.values() if one.lease and one.is_alive]
            dues = [*leases] if (due := self.cache.next_due()) is None else [due, *leases]
            if dues:
                self._ring_at(min(dues))

    def _end_leases(self, now: int) -> bool:
        changed = False
        for matched in self._matched.values():
            if matched.is_alive and matched.lease is not None and matched.heard + matched.lease <= now:
                matched.is_alive = False
                self.status.liveliness(matched.peer.id, alive=-1, not_alive=1)
                self.tell("liveliness_changed")
                changed |= self.cache.writer_lost(matched.peer.id, now)
        return changed

    # Reading

    def read(
        self,
        max_samples: int | None = None,
        sample_states: Iterable[SampleState] = ANY.sample_states,
        view_states: Iterable[ViewState] = ANY.view_states,
        instance_states: Iterable[InstanceState] = ANY.instance_states,
    ) -> list[Sample[T]]:
        """Samples in these states, which stay; an empty list is DDS's NO_DATA."""
        return self._get(_wanted(sample_states, view_states, instance_states, max_samples), take=False)

    def take(
        self,
        max_samples: int | None = None,
        sample_states: Iterable[SampleState] = ANY.sample_states,
        view_states: Iterable[ViewState] = ANY.view_states,
        instance_states: Iterable[InstanceState] = ANY.instance_states,
    ) -> list[Sample[T]]:
        """Samples in these states, which leave the cache."""
        return self._get(_wanted(sample_states, view_states, instance_states, max_samples), take=True)

    def read_w_condition(self, condition: ReadCondition, max_samples: int | None = None) -> list[Sample[T]]:
        return self._get(self._of(condition, max_samples), take=False)

    def take_w_condition(self, condition: ReadCondition, max_samples: int | None = None) -> list[Sample[T]]:
        return self._get(self._of(condition, max_samples), take=True)

    def read_next_sample(self) -> Sample[T] | None:
        """The next one that was not read; None when there is none."""
        return _first(self.read(1, sample_states=("not-read",)))

    def take_next_sample(self) -> Sample[T] | None:
        return _first(self.take(1, sample_states=("not-read",)))

    def read_instance(self, handle: int, max_samples: int | None = None, **states: Any) -> list[Sample[T]]:
        """Samples of one instance."""
        self._check_instance(handle)
        return self._get(_wanted(**states, most=max_samples, instance=handle), take=False)

    def take_instance(self, handle: int, max_samples: int | None = None, **states: Any) -> list[Sample[T]]:
        self._check_instance(handle)
        return self._get(_wanted(**states, most=max_samples, instance=handle), take=True)

    def read_next_instance(
        self, handle: int, max_samples: int | None = None, **states: Any
    ) -> list[Sample[T]]:
        """Samples of the first instance behind this one that has any; 0 is before all."""
        return self._get(_wanted(**states, most=max_samples, after=handle), take=False)

    def take_next_instance(
        self, handle: int, max_samples: int | None = None, **states: Any
    ) -> list[Sample[T]]:
        return self._get(_wanted(**states, most=max_samples, after=handle), take=True)

    def _get(self, wanted: SampleSelection, *, take: bool) -> list[Sample[T]]:
        self.check_enabled()
        self.subscriber.check_access()
        with self.domain.lock:
            found = self.cache.select(wanted, take=take, now=self.domain.now())
            self.status.changed.discard("data_available")
            self.subscriber.status.changed.discard("data_on_readers")
        if take:
            self.resume()
            if self.subscriber.group is not None:  # a set may have waited for room here
                for reader in self.subscriber.contained:
                    reader.resume()
        return [Sample(data, info) for data, info in found]

    def resume(self) -> None:
        """There may be room for what was rejected."""
        for feed in self._stopping:
            feed.resume()

    def _of(self, condition: ReadCondition, max_samples: int | None) -> SampleSelection:
        if condition.reader is not self:
            raise PreconditionNotMet(self.name, "the condition is of another reader")
        return msgspec.structs.replace(condition.wanted, most=_checked_most(max_samples))

    def _check_instance(self, handle: int) -> None:
        with self.domain.lock:
            if self.cache.instance_of(handle) is None:
                raise BadParameter(self.name, f"has no instance {handle}")

    def lookup_instance(self, data: T) -> int:
        """The handle of the instance that an event is of; 0 when nothing is known of it."""
        self.check()
        with self.domain.lock:
            return self.cache.lookup(self._key_of(data))

    def get_key_value(self, handle: int) -> tuple[Any, ...]:
        with self.domain.lock:
            key = self.cache.key_of(handle)
        if key is None:
            raise BadParameter(self.name, f"has no instance {handle}")
        return key

    def wait_for_historical_data(self, timeout: float | None = None) -> bool:
        """Wait until the samples that matched writers had kept are there; False when the time is over."""
        self.check_enabled()
        mesh = self.domain.station.mesh
        return mesh is None or mesh.wait_fetched(60.0 if timeout is None else timeout)

    # Conditions

    def create_readcondition(
        self,
        sample_states: Iterable[SampleState] = ANY.sample_states,
        view_states: Iterable[ViewState] = ANY.view_states,
        instance_states: Iterable[InstanceState] = ANY.instance_states,
    ) -> ReadCondition:
        self.check()
        condition = ReadCondition(self, _wanted(sample_states, view_states, instance_states))
        self._conditions.append(condition)
        return condition

    def create_querycondition(
        self,
        query: str,
        parameters: Any = None,
        sample_states: Iterable[SampleState] = ANY.sample_states,
        view_states: Iterable[ViewState] = ANY.view_states,
        instance_states: Iterable[InstanceState] = ANY.instance_states,
    ) -> QueryCondition:
        """A read condition with a filter, in the filter language, over the data."""
        self.check()
        wanted = self.with_query(_wanted(sample_states, view_states, instance_states), query, parameters)
        condition = QueryCondition(self, wanted, query, parameters)
        self._conditions.append(condition)
        return condition

    def with_query(self, wanted: SampleSelection, query: str, parameters: Any) -> SampleSelection:
        """The same states, and a filter."""
        selected = self.topic.channel().select(where=query, params=parameters)
        condition: Any = selected.conditions[self.topic.cls]
        if condition.needs_header:
            raise BadParameter(self.name, "a query is about the data of samples, not about their header")
        if never := self._never(condition.checked.node):
            raise BadParameter(self.name, f"no sample of this reader can meet the query: {never}")
        return msgspec.structs.replace(wanted, holds=lambda data: condition.holds(data, None))

    def delete_readcondition(self, condition: ReadCondition) -> None:
        if condition not in self._conditions:
            raise PreconditionNotMet(self.name, "the condition is of another reader")
        self._conditions.remove(condition)

    def get_topicdescription(self) -> Topic[T] | ContentFilteredTopic[T]:
        return self.description

    def get_subscriber(self) -> Subscriber:
        return self.subscriber

    # Statuses

    def get_subscription_matched_status(self) -> MatchedStatus:
        return self.read_status("subscription_matched", MatchedStatus)

    def get_requested_incompatible_qos_status(self) -> IncompatibleQosStatus:
        return self.read_status("requested_incompatible_qos", IncompatibleQosStatus)

    def get_requested_deadline_missed_status(self) -> DeadlineMissedStatus:
        return self.read_status("requested_deadline_missed", DeadlineMissedStatus)

    def get_liveliness_changed_status(self) -> LivelinessChangedStatus:
        return self.read_status("liveliness_changed", LivelinessChangedStatus)

    def get_sample_rejected_status(self) -> SampleRejectedStatus:
        return self.read_status("sample_rejected", SampleRejectedStatus)

    def get_sample_lost_status(self) -> CountStatus:
        return self.read_status("sample_lost", CountStatus)


def _is_timed(limits: CacheLimits) -> bool:
    """Whether a sample has anything happen later."""
    times = (limits.deadline, limits.purge_nowriter, limits.purge_disposed)
    return limits.separation != 0 or any(time is not None for time in times)


def _wanted(
    sample_states: Iterable[SampleState] = ANY.sample_states,
    view_states: Iterable[ViewState] = ANY.view_states,
    instance_states: Iterable[InstanceState] = ANY.instance_states,
    most: int | None = None,
    *,
    instance: int | None = None,
    after: int | None = None,
) -> SampleSelection:
    given = (
        ("sample_states", frozenset(sample_states), ANY.sample_states),
        ("view_states", frozenset(view_states), ANY.view_states),
        ("instance_states", frozenset(instance_states), ANY.instance_states),
    )
    for name, states, known in given:
        if others := sorted(states - known):
            raise BadParameter("read", f"{name}: {others[0]!r} is none of {', '.join(sorted(known))}")
    return SampleSelection(
        sample_states=frozenset(sample_states),
        view_states=frozenset(view_states),
        instance_states=frozenset(instance_states),
        most=_checked_most(most),
        instance=instance,
        after=after,
    )


def _checked_most(most: int | None) -> int | None:
    if most is not None and (type(most) is not int or most < 1):
        raise BadParameter("read", f"max_samples={most!r}: a whole number above 0, or None for all")
    return most


def _first(samples: list[Sample[T]]) -> Sample[T] | None:
    return samples[0] if samples else None

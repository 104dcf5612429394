"""Data writers (2.2.2.4): a supplier of a topic's channel, with instances and the policies of DDS."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from heliograph.errors import (
    BadParameter,
    HeliographError,
    OutOfResources,
    PreconditionNotMet,
    QueueFull,
    Unsupported,
    WriteTimeout,
)
from heliograph.facades.dcps.discovery import DiscoveredEndpoint, announcement_of, fields_of
from heliograph.facades.dcps.entity import Entity
from heliograph.facades.dcps.listeners import Listening
from heliograph.facades.dcps.statuses import (
    CountStatus,
    DeadlineMissedStatus,
    IncompatibleQosStatus,
    MatchedStatus,
)
from heliograph.facades.dcps.topic import channel_of
from heliograph.model.event import Event, info_of
from heliograph.model.instance_change import CHANGE, said_of
from heliograph.qos.dds_policies import DataWriterQos
from heliograph.qos.explanation import Endpoint, explain_endpoints
from heliograph.qos.request_offered import incompatible, policies_of, share_partition
from heliograph.runtime.ports import seconds_until
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.channel.channel import Channel
    from heliograph.channel.history.instances import InstanceStore
    from heliograph.channel.publish.supplier import Supplier
    from heliograph.facades.dcps.publisher import Publisher
    from heliograph.facades.dcps.statuses import StatusKind
    from heliograph.facades.dcps.topic import Topic
    from heliograph.model.instance_change import Change, CoherentPart
    from heliograph.qos.negotiation import Grant

T = TypeVar("T", bound=Event)

MOST_TOGETHER: Final = 256
"""Samples that are sent though their latency budget is not used up."""
NORMAL: Final = 3
"""The priority of a channel's events."""


class _Registered:
    """An instance of a writer."""

    __slots__ = ("deadline", "handle", "last")

    def __init__(self, handle: int, last: Event) -> None:
        self.handle = handle
        self.last = last
        self.deadline: int | None = None


def is_apart(writer: Endpoint, reader: Endpoint) -> bool:
    """Whether two ends never meet: that is no incompatibility."""
    if writer.type_name != reader.type_name or reader.never:
        return True
    return not share_partition(writer.policies["partition"].names, reader.policies["partition"].names)


class DataWriter(Entity[DataWriterQos], Generic[T]):
    """Made by `Publisher.create_datawriter`."""

    kind = "writer"

    def __init__(
        self,
        publisher: Publisher,
        topic: Topic[T],
        qos: DataWriterQos,
        listener: Any,
        mask: Iterable[StatusKind] | None,
    ) -> None:
        super().__init__(
            publisher.domain, f"writer of {topic.name}", qos, publisher, Listening(listener, mask)
        )
        self._check_supported(qos)
        self.publisher = publisher
        self.topic = topic
        self._key_of = info_of(topic.cls).key_of
        self._instances: dict[tuple[Any, ...], _Registered] = {}
        self._handles = count(1)
        self._channel: Channel[T] | None = None
        self._supplier: Supplier[T] | None = None
        self._priority: int | None = None
        self._kept: InstanceStore | None = None
        """Where its samples are kept, when they go with it."""
        self._unread: deque[tuple[Any, ...]] = deque()
        """Keys of its last samples, of which some readers' caches may not have them yet."""
        self._limits_samples = False
        self._sends_at_once = True
        self._deadline: int | None = None
        self._is_plain = False
        """Whether a sample needs nothing but to be pushed."""
        self._matched: dict[str, DiscoveredEndpoint] = {}
        self._refused: set[str] = set()
        self._pending: dict[str, DiscoveredEndpoint] = {}
        """Readers of other stations whose station does not want the channel yet."""
        self._asserted = 0
        self._is_lost = False
        self._timer_due: int | None = None
        self._sending = self.domain.station.ports.tasks.lock("dcps batch")
        """Held while samples that waited together are sent, so that they keep their order."""
        self._waiting: list[T] = []
        """Samples within their latency budget."""
        self.granted: tuple[Grant, ...] = ()
        """What `best_common` has changed of its policies."""
        self.peer = self._peer()

    @property
    def endpoint(self) -> Endpoint:
        """What matching knows of it; for `hg.explain`."""
        return self.peer.endpoint

    def _check_supported(self, qos: DataWriterQos) -> None:
        outlives = qos.durability.kind in ("transient", "persistent")
        service = qos.durability_service
        limits = (service.max_samples, service.max_instances, service.max_samples_per_instance)
        if qos.durability.kind == "persistent" and (service.cleanup_delay != 0 or limits != (None,) * 3):
            raise Unsupported(
                self.name,
                "durability_service: a journal forgets by its own limits, hg.Limits(keep_seconds=...); "
                "use transient for cleanup_delay and limits",
            )
        if qos.durability.kind == "persistent" and service.history == "keep-last" and service.depth != 1:
            raise Unsupported(
                self.name, "durability_service: a journal keeps the last sample of an instance, or all"
            )
        if outlives and self.is_enabled and qos.lifespan != self._qos.lifespan:
            raise Unsupported(
                self.name,
                "the lifespan of samples that outlive their writer cannot change; create another writer",
            )
        names = getattr(getattr(self.parent, "_qos", None), "partition", None)
        if outlives and names is not None and names.names:
            raise Unsupported(
                self.name, "partitions of samples that outlive their writer; use transient-local or none"
            )

    # The life of the entity

    def _enabled(self) -> None:
        asked = channel_of(self.topic.name, self._qos, is_keyed=self.topic.is_keyed)
        self._channel = self.domain.open_channel(self.topic.cls, asked)
        if asked.keeps is not None and self._qos.durability.kind == "transient-local":
            self._kept = self._channel.keep_instances(asked.keeps)
        self._supplier = self._channel.supplier()
        self._asserted = self.domain.now()
        self._use_qos()
        with self.domain.lock:
            self.domain.local_writers[self.instance_handle] = self
        self.announce()
        for reader in self.domain.readers_of(self.topic.name):
            self.meet(reader)
        self.domain.look_for_mistakes(self.name, self.endpoint, is_writer=True)

    def _qos_changed(self) -> None:
        self._use_qos()
        self.announce()

    def _use_qos(self) -> None:
        value = self._qos.transport_priority.value
        self._priority = None if value == 0 else min(5, max(1, NORMAL + value))
        lease = self._qos.liveliness.lease
        limits = self._qos.resource_limits
        self._limits_samples = limits.max_samples is not None or limits.max_samples_per_instance is not None
        self._sends_at_once = self._qos.latency_budget.duration == 0
        period = self._qos.deadline.period
        self._deadline = None if period is None else round(period * 1e9)
        self._is_plain = (
            self._priority is None
            and lease is None
            and period is None
            and self._sends_at_once
            and not self._limits_samples
        )
        if lease is not None:
            self.domain.keep_asserting(lease)

    def _peer(self) -> DiscoveredEndpoint:
        return DiscoveredEndpoint(
            id=self.instance_handle,
            kind="publication",
            station=self.domain.name,
            participant=self.publisher.participant.instance_handle,
            endpoint=Endpoint(
                policies=policies_of(self._qos, self.publisher.get_qos()) | self._of_topic(),
                domain=self.domain.number,
                topic=self.topic.name,
                type_name=self.topic.type_name,
                fields=fields_of(self.topic.cls),
                name=self.instance_handle,
            ),
            writer="" if self._supplier is None else self._supplier.name,
            channel="" if self._channel is None else self._channel.name,
        )

    def _of_topic(self) -> dict[str, Any]:
        return {"topic_data": self.topic.get_qos().topic_data}

    def announce(self, *, alive: bool = True) -> None:
        """Tell the domain of it, as it is now."""
        self.peer = peer = self._peer()
        self.domain.tell(announcement_of(peer, alive=alive))
        (self.domain.meet_writer if alive else self.domain.lose_writer)(peer)
        if alive:
            for reader in self.domain.readers_of(self.topic.name):
                self.meet(reader)

    def delete(self) -> None:
        """By the publisher: what it wrote loses a writer."""
        if self.is_enabled and self._supplier is not None:
            self._flush_or_report()
            if self._qos.writer_data_lifecycle.autodispose:
                self._dispose_all()
            self.announce(alive=False)
            with self.domain.lock:
                self.domain.local_writers.pop(self.instance_handle, None)
            self._supplier.close()
        self.is_deleted = True

    def _dispose_all(self) -> None:
        """Of what it wrote. A reader that has no room learns that the writer has gone."""
        try:
            for registered in list(self._instances.values()):
                self._push(registered.last, {CHANGE: "dispose"}, None)
        except HeliographError as error:
            self.domain.report(self.name, error)

    @property
    def last_sequence(self) -> int:
        """Of what it has written."""
        return 0 if self._supplier is None else self._supplier.last_pushed

    # Readers

    def meet(self, reader: DiscoveredEndpoint) -> None:
        """A reader of its topic is there, or has changed."""
        ours, theirs = self.peer.endpoint, reader.endpoint
        if is_apart(ours, theirs):
            self.lose(reader)
            self.domain.report_apart(self.name, ours, theirs)
            return
        found = incompatible(ours.policies, theirs.policies)
        with self.domain.lock:
            if found:
                if reader.id in self._refused:
                    return
                self._refused.add(reader.id)
                self.status.incompatible(
                    "offered_incompatible_qos", list(dict.fromkeys(one.number for one in found))
                )
                self.tell("offered_incompatible_qos")
            else:
                self._refused.discard(reader.id)
                if reader.id in self._matched:
                    self._matched[reader.id] = reader
                    return
                if self.peer.channel not in reader.channels or reader.station != self.domain.name:
                    self._pending[reader.id] = reader
                    return
                self._match(reader)
        if found:
            self.report_apart(ours.name, reader.id, explain_endpoints(ours, theirs), found)
            self.lose(reader, forget=False)

    def look_again(self, fed: set[tuple[str, str]]) -> None:
        """Readers of other stations that are fed by now."""
        if not self._pending:
            return
        channel = self.peer.channel
        with self.domain.lock:
            for reader in list(self._pending.values()):
                if channel in reader.channels and (reader.station, channel) in fed:
                    del self._pending[reader.id]
                    self._match(reader)

    def _match(self, reader: DiscoveredEndpoint) -> None:
        self._pending.pop(reader.id, None)
        self._matched[reader.id] = reader
        self.status.matched("publication_matched", reader.id, 1)
        self.tell("publication_matched")

    def lose(self, reader: DiscoveredEndpoint, *, forget: bool = True) -> None:
        with self.domain.lock:
            self._pending.pop(reader.id, None)
            if forget:
                self._refused.discard(reader.id)
            if self._matched.pop(reader.id, None) is not None:
                self.status.matched("publication_matched", reader.id, -1)
                self.tell("publication_matched")

    def get_matched_subscriptions(self) -> tuple[str, ...]:
        with self.domain.lock:
            return tuple(self._matched)

    # Writing

    def write(self, data: T, handle: int | None = None, *, source_timestamp: int | None = None) -> None:
        """Write a sample; WriteTimeout when a reliable reader has no room for `max_blocking` seconds.

        Args:
            data: its key says which instance it is of.
            handle: of that instance, if it was registered; it is checked.
            source_timestamp: nanoseconds since 1970; else now.
        """
        if self.is_deleted or not self.is_enabled:
            self.check_enabled()
        registered = self._registered(data, handle)
        if self.publisher.collecting and self.publisher.collects(self, "write", data, source_timestamp):
            return
        registered.last = data
        if self._is_plain and source_timestamp is None:
            self._push_plain(data)
            return
        if self._limits_samples:
            self._wait_within_limits(self._key_of(data))
        if self._sends_at_once:
            if source_timestamp is None and self._priority is None:
                self._push_plain(data)
            else:
                self._push(data, None, source_timestamp)
        elif source_timestamp is None and self._may_wait():
            self._let_wait(data)
        else:
            self.flush()
            self._push(data, None, source_timestamp)
        self._written(registered)

    def _push_plain(self, data: T) -> None:
        """A sample about which nothing is to be said."""
        try:
            self._supplier.push(data)  # type: ignore[union-attr]  # it is enabled
        except QueueFull:
            self._push(data, None, None)

    def write_part(self, data: T, change: Change, part: CoherentPart, source_timestamp: int) -> None:
        """A part of a coherent set; by the publisher."""
        self.flush()
        self._push(data, {CHANGE: said_of(change, part)}, source_timestamp)
        if change == "write":
            registered = self._registered(data, None)
            registered.last = data
            self._written(registered)

    # Its own resource limits

    def _wait_within_limits(self, key: tuple[Any, ...]) -> None:
        """Have room for one more sample: WriteTimeout when readers do not take what waits for them in time,
        OutOfResources when it is what the writer keeps for late joiners that fills the limits."""
        self._check_kept(key)
        deadline: int | None = None
        while (full := self._full_of_unread(key)) is not None:
            if self._qos.reliability.kind != "reliable":
                self._unread.popleft()
                continue
            limit = self._qos.reliability.max_blocking
            if deadline is None:
                deadline = self.domain.clock.monotonic_ns() + round(limit * 1e9)
            if seconds_until(self.domain.clock, deadline) <= 0:
                raise WriteTimeout(self.name, f"{full} samples are not at all readers for {limit} s")
            self.domain.station.ports.tasks.sleep(0.001)
        self._unread.append(key)

    def _check_kept(self, key: tuple[Any, ...]) -> None:
        kept, limits = self._kept, self._qos.resource_limits
        if kept is None:
            return
        supplier = self._supplier.name  # type: ignore[union-attr]  # it is enabled
        depth = self._qos.history.depth if self._qos.history.kind == "keep-last" else None
        of_key = kept.samples_of(supplier, key)
        most = limits.max_samples_per_instance
        if most is not None and depth is None and of_key >= most:
            raise OutOfResources(
                self.name, f"keeps {most} samples of the instance, its max_samples_per_instance"
            )
        most = limits.max_samples
        makes_room = depth is not None and of_key >= depth
        if most is not None and not makes_room and kept.samples_of(supplier) >= most:
            raise OutOfResources(
                self.name, f"keeps {most} samples, its resource_limits.max_samples; unregister an instance"
            )

    def _full_of_unread(self, key: tuple[Any, ...]) -> int | None:
        """How many samples, in all or of an instance, fill a limit; None when there is room.

        What the channel says waits for a consumer is what was written last.
        """
        limits, unread = self._qos.resource_limits, self._unread
        self.flush()
        assert self._channel is not None
        waiting = max((one.pending for one in self._channel.stats().consumers.values()), default=0)
        while len(unread) > waiting:
            unread.popleft()
        if limits.max_samples is not None and len(unread) >= limits.max_samples:
            return len(unread)
        of_key, most = unread.count(key), limits.max_samples_per_instance
        return of_key if most is not None and of_key >= most else None

    # Batches within the latency budget

    def _may_wait(self) -> bool:
        """Whether samples can be sent together: each gets its time and priority then, not when written."""
        return self._priority is None and self._qos.destination_order.kind == "by-reception-timestamp"

    def _let_wait(self, data: T) -> None:
        with self.domain.lock:
            self._waiting.append(data)
            number = len(self._waiting)
        if number >= MOST_TOGETHER:
            self.flush()
        elif number == 1:
            budget = self._qos.latency_budget.duration
            if budget is not None:
                # Half of it, so that the way to the reader is within the budget as well.
                self.domain.station.timers.after(budget / 2, self._flush_soon)

    def _flush_soon(self) -> None:
        """By a timer, which must not wait for room."""
        self.domain.station.ports.tasks.spawn_soon("dcps batch", self._flush_or_report)

    def _flush_or_report(self) -> None:
        try:
            self.flush()
        except HeliographError as error:
            self.domain.report(self.name, error)

    def flush(self) -> None:
        """Send what waits within its latency budget; WriteTimeout as of `write`."""
        with self._sending:
            with self.domain.lock:
                waiting, self._waiting = self._waiting, []
            if waiting:
                self._push_all(waiting)

    def _push_all(self, samples: list[T]) -> None:
        assert self._supplier is not None
        deadline: int | None = None
        while samples:
            try:
                self._supplier.push_many(samples)
            except QueueFull as error:
                samples = samples[error.pushed :]
                deadline = self._wait_on(deadline, error)
            else:
                return

    def _wait_on(self, deadline: int | None, error: QueueFull) -> int:
        """Until when to try again; WriteTimeout when it is too late."""
        limit = self._qos.reliability.max_blocking
        if deadline is None:
            deadline = self.domain.clock.monotonic_ns() + round(limit * 1e9)
        if seconds_until(self.domain.clock, deadline) <= 0:
            raise WriteTimeout(self.name, f"no room at a reader for {limit} s: {error}") from None
        return deadline

    def _written(self, registered: _Registered) -> None:
        if self._qos.liveliness.lease is not None:
            self.assert_liveliness()
        if self._deadline is None:
            return
        # A timer that is set looks at all instances under the lock; a plain store needs none.
        registered.deadline = due = self.domain.clock.time_ns() + self._deadline
        if self._timer_due is not None and self._timer_due <= due:
            return
        with self.domain.lock:
            sets = self._timer_due is None or due < self._timer_due
            if sets:
                self._timer_due = due
        if sets:
            self._set_timer(due)

    def _registered(self, data: T, handle: int | None) -> _Registered:
        try:
            registered = self._instances.get(key := self._key_of(data))
        except AttributeError:
            raise BadParameter(
                self.name, f"writes {self.topic.type_name}, not {type(data).__name__}"
            ) from None
        if registered is None:
            most = self._qos.resource_limits.max_instances
            if most is not None and len(self._instances) >= most:
                raise OutOfResources(self.name, f"has {most} instances, its resource_limits.max_instances")
            registered = self._instances[key] = _Registered(next(self._handles), data)
        if handle is not None and handle != registered.handle:
            raise PreconditionNotMet(self.name, f"instance {handle} is another than that of the data")
        return registered

    def _push(self, data: Any, headers: dict[str, str] | None, source_ts: int | None) -> None:
        supplier = self._supplier
        assert supplier is not None
        said: dict[str, Any] = {}
        if headers is not None:
            said["headers"] = headers
        if source_ts is not None:
            said["source_ts"] = source_ts
        if self._priority is not None:
            said["priority"] = self._priority
        deadline: int | None = None
        while True:
            try:
                supplier.push(data, **said)
            except QueueFull as error:
                deadline = self._wait_on(deadline, error)
            else:
                return

    # Instances

    def register_instance(self, data: T) -> int:
        """The handle of an instance that it is going to write."""
        self.check_enabled()
        return self._registered(data, None).handle

    def lookup_instance(self, data: T) -> int:
        """The handle of an instance, 0 when it was not registered or written."""
        self.check()
        registered = self._instances.get(self._key_of(data))
        return 0 if registered is None else registered.handle

    def get_key_value(self, handle: int) -> tuple[Any, ...]:
        for key, registered in self._instances.items():
            if registered.handle == handle:
                return key
        raise BadParameter(self.name, f"has no instance {handle}")

    def dispose(self, data: T, handle: int | None = None) -> None:
        """Say of an instance that it is no more."""
        self.check_enabled()
        registered = self._registered(data, handle)
        registered.deadline = None
        self._change(registered, "dispose")

    def _change(self, registered: _Registered, change: Change) -> None:
        """Tell of an instance's state, now or with the coherent set that is collected."""
        if not self.publisher.collects(self, change, registered.last, None):
            self.flush()
            self._push(registered.last, {CHANGE: change}, None)

    def unregister_instance(self, data: T, handle: int | None = None) -> None:
        """Say that it writes an instance no more; disposes of it as well, unless its QoS says otherwise."""
        self.check_enabled()
        registered = self._instances.get(key := self._key_of(data))
        if registered is None or handle not in (None, registered.handle):
            raise PreconditionNotMet(self.name, "the instance was not registered")
        del self._instances[key]
        self._change(registered, "over" if self._qos.writer_data_lifecycle.autodispose else "unregister")

    # Liveliness, deadlines, acknowledgements

    def assert_liveliness(self) -> None:
        """It is alive."""
        self.check_enabled()
        now = self.domain.now()
        with self.domain.lock:
            writers = [self]
            if self._qos.liveliness.kind == "manual-by-participant":
                participant = self.publisher.participant
                writers = [
                    one
                    for one in self.domain.local_writers.values()
                    if one.publisher.participant is participant
                    and one.get_qos().liveliness.kind == "manual-by-participant"
                ]
            for writer in writers:
                writer._asserted = now  # noqa: SLF001 - of the same class
                writer._is_lost = False  # noqa: SLF001 - likewise

    def is_asserted(self, now: int) -> bool:
        """Whether others are to be told that it is alive. By a timer, several times in each lease."""
        policy = self._qos.liveliness
        if policy.lease is None:
            return False
        if policy.kind == "automatic":
            return True
        lease = round(policy.lease * 1e9)
        with self.domain.lock:
            is_alive = now - self._asserted <= lease
            if not is_alive and not self._is_lost:
                self._is_lost = True
                self.status.count("liveliness_lost")
                self.tell("liveliness_lost")
            # Told only when it was asserted since it was last told, so that its lease is not prolonged.
            return is_alive and now - self._asserted <= lease // 2

    def _set_timer(self, due: int) -> None:
        clock = self.domain.clock
        self.domain.station.timers.at(clock.monotonic_ns() + max(0, due - self.domain.now()), self._tick)

    def _tick(self) -> None:
        """By a timer: instances that were not written in time."""
        now = self.domain.now()
        with self.domain.lock:
            self._timer_due = None
            period = self._qos.deadline.period
            if self.is_deleted or period is None:
                return
            step = round(period * 1e9)
            for registered in list(self._instances.values()):
                if registered.deadline is not None and registered.deadline <= now:
                    registered.deadline += ((now - registered.deadline) // step + 1) * step
                    self.status.count("offered_deadline_missed", last_instance_handle=registered.handle)
                    self.tell("offered_deadline_missed")
            dues = [one.deadline for one in self._instances.values() if one.deadline is not None]
            if not dues:
                return
            self._timer_due = due = min(dues)
        self._set_timer(due)

    def wait_for_acknowledgments(self, timeout: float | None = None) -> bool:
        """Wait until all that was written has reached its readers' caches; False when the time is over."""
        self.check_enabled()
        check_timeout(self.name, timeout)
        self.flush()
        assert self._channel is not None
        deadline = None if timeout is None else self.domain.clock.monotonic_ns() + round(timeout * 1e9)
        while any(counts.pending for counts in self._channel.stats().consumers.values()):
            if deadline is not None and seconds_until(self.domain.clock, deadline) <= 0:
                return False
            self.domain.station.ports.tasks.sleep(0.002)
        return True

    def get_topic(self) -> Topic[T]:
        return self.topic

    def get_publisher(self) -> Publisher:
        return self.publisher

    # Statuses

    def get_publication_matched_status(self) -> MatchedStatus:
        return self.read_status("publication_matched", MatchedStatus)

    def get_offered_incompatible_qos_status(self) -> IncompatibleQosStatus:
        return self.read_status("offered_incompatible_qos", IncompatibleQosStatus)

    def get_offered_deadline_missed_status(self) -> DeadlineMissedStatus:
        return self.read_status("offered_deadline_missed", DeadlineMissedStatus)

    def get_liveliness_lost_status(self) -> CountStatus:
        return self.read_status("liveliness_lost", CountStatus)

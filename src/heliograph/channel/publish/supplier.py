"""A supplier: the face of one source of events, which checks them and hands them to the channel's sink.

    numbering   gives events their sequence numbers, places and headers
    entry       holds the routes, and puts into queues
    ack         says when a push is acknowledged: from memory, by the journal, on disk, by all receivers
    sink        takes events: queues, or the store of a persistent channel

A push into queues that waits for nobody is generated per event type and called from here without any step in
between.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, Unpack, cast, overload

from heliograph.channel.publish.acks import Receipt, ack_of, passing
from heliograph.channel.publish.entry import Entry, Source
from heliograph.channel.publish.numbering import Numbering
from heliograph.channel.publish.options import PLAIN, Said, Stamp, WaitingSaid, stamp
from heliograph.channel.publish.queue_sink import QueueSink
from heliograph.channel.publish.store_sink import StoreSink
from heliograph.codec.validate import validate_all
from heliograph.errors import InvalidEvent, NotPossible, WrongEventType
from heliograph.model.event import Event
from heliograph.runtime.option_names import insist_on_known, names_options
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.explain import EventExplanation, GeneratedCode
    from heliograph.channel.history.store import HistoryStore, SupplierLease
    from heliograph.channel.publish.acks import AckMonitor
    from heliograph.channel.publish.codegen import Push
    from heliograph.channel.publish.host import LetsThrough, SupplierHost
    from heliograph.channel.publish.periodic import Periodic
    from heliograph.channel.routing.compiler import Route
    from heliograph.model.event import Header

T = TypeVar("T", bound=Event)

__all__ = ["Receipt", "Supplier"]


class Sink(Protocol):
    """Where the events of a supplier go. Each call waits for the ack level, but `push_nowait`."""

    takes_timeout: bool
    """Whether `push` can be told how long to wait."""
    pushes: dict[type, Push] | None
    """The generated pushes by event type; None where a push has to wait for more than a queue."""

    def use_routes(self) -> None:
        """The entry has other routes from now on. Under the lock."""

    def check_said(self, said: Stamp) -> None:
        """NotPossible for what a push into this sink cannot say."""

    def push(self, event: Any, said: Stamp, timeout: float | None) -> bool: ...

    def push_nowait(self, event: Any, said: Stamp) -> Receipt: ...

    async def apush(self, event: Any, said: Stamp, seconds: float | None) -> bool: ...

    def push_many(self, events: Sequence[Any], timeout: float | None, *, alike: bool) -> bool:
        """Checked events; `alike`: all are of one class."""
        ...

    def forget(self, kind: type[Any] | None, key: Sequence[Any], timeout: float | None) -> bool: ...

    def close(self) -> None: ...


class Supplier(Source, Generic[T]):
    """One source of events. Obtained from `channel.supplier()`; `channel.push` uses one of its own.

    Args:
        channel: where to.
        name: of the supplier, in every header.
        epoch: which holder of that name this is.
        store: what keeps the events, on a persistent channel.
        lease: of the name there, if it was given one.
        watching: the monitor of acknowledgements, at the ack level "delivered".
    """

    def __init__(
        self,
        channel: SupplierHost,
        name: str,
        epoch: int,
        *,
        store: HistoryStore | None = None,
        lease: SupplierLease | None = None,
        watching: AckMonitor | None = None,
    ) -> None:
        # What is kept waits for no queue, so suppliers of a persistent channel need not take turns.
        lock = None if store is None else channel.ports.tasks.lock(f"supplier {name}")
        entering = None if watching is None else passing(watching)
        super().__init__(name, epoch, Entry(channel, name, entering, lock))
        self._channel = channel
        last = 0 if lease is None else lease.last_sequence
        self._numbering = Numbering(channel, name, epoch, last)
        ack = ack_of(channel.qos, watching)
        self._sink: Sink
        if store is None:
            queues = self._sink = QueueSink(channel, self.entry, self._numbering, ack)
            self._way = queues.way
        else:
            self._sink = StoreSink(channel, self.entry, self._numbering, ack, store=store, lease=lease)
        self._pushes = self._sink.pushes
        self._periodic: set[Periodic[T]] = set()
        self.points: tuple[tuple[str, LetsThrough], ...] = ()
        """Its own filter, and those of its admin and of the configuration, each with its name."""
        self.filtered = 0
        """Events that a filter of its own, or of its admin, has stopped."""

    # Pushing

    def push(self, event: T, **said: Unpack[WaitingSaid]) -> bool:
        """Hand an event to every consumer that wants it; True when the channel's ack level is met.

        On a channel that is persistent or has ack="delivered" it takes a `timeout` in seconds. There a
        time-out means *unknown*: AppendTimeout carries the EventId, and the push may be repeated with it as
        `id`. An event whose id is among the last 65,536 of the history is not kept again. JournalBusy means
        that so much was in line for the disk until the time was over that this was not put there, QueryFailed
        that the station that keeps the channel could not be reached by then. With ack="delivered" it is False
        when the monitor has given up on a consumer.
        """
        # Most pushes say nothing: an empty dict is cheaper than a default for each of what they could say.
        if self._pushes is None or said:
            return self._sink.push(event, *self._read(said)) if said else self._sink.push(event, PLAIN, None)
        try:
            way = self._pushes[event.__class__]
        except KeyError:
            way = self._way(event)
        way(event)
        return True

    def push_nowait(self, event: T, **said: Unpack[Said]) -> Receipt:
        """As `push`, but never waits; the receipt tells when the ack level is met.

        QueueFull at once when a consumer that must not lose it has no room; on a persistent channel
        JournalBusy when the line for the disk is full, and QueryFailed when the keeper is away.
        """
        return self._sink.push_nowait(event, self._stamp(said))

    def push_many(
        self, events: Iterable[T] | Mapping[str, Any] | Any, timeout: float | None = None, **unknown: object
    ) -> bool:
        """Push events in order. Takes events, a mapping of columns, or an Arrow batch or table.

        All are checked before the first is pushed: InvalidEvent and WrongEventType name the `index` of the
        one that is wrong, and then none is pushed. A QueueFull names how many had been pushed before. On a
        persistent channel up to 10,000 at a time are kept together, whole or not at all.
        """
        if unknown or timeout is not None:
            said = unknown if timeout is None else {"timeout": timeout, **unknown}
            known = ("events", "timeout") if self._sink.takes_timeout else ("events",)
            insist_on_known("push_many", said, known)
            check_timeout(self._channel.name, timeout)
        batch = self.as_events(events)
        alike = self.validate_all(batch)
        return self._sink.push_many(batch, timeout, alike=alike)

    async def apush(self, event: T, **said: Unpack[WaitingSaid]) -> bool:
        """As `push`, for asyncio: waiting does not hold up the loop."""
        return await self._sink.apush(event, *self._read(said))

    def forget(self, kind: type[T] | None, key: Sequence[Any], timeout: float | None = None) -> bool:
        """See `Channel.forget`."""
        check_timeout(self._channel.name, timeout)
        return self._sink.forget(kind, key, timeout)

    @names_options
    def every(
        self, period: float, make: Callable[[], T | None], *, priority: int | None = None
    ) -> Periodic[T]:
        """Push what a function makes, every so many seconds; see `heliograph.channel.publish.periodic`.

        Args:
            period: seconds; the instants are its multiples since 1970.
            make: called by a worker; None pushes nothing this time.
            priority: at which it is called, and pushed; else the channel's.
        """
        from heliograph.channel.publish.periodic import Periodic  # noqa: PLC0415 - few suppliers go by the clock

        periodic = Periodic(self, self._channel, period, make, priority)
        self._periodic.add(periodic)
        return periodic

    @overload
    def explain(self, event: T, *, code: Literal[False] = ...) -> EventExplanation: ...
    @overload
    def explain(self, event: T | None = ..., *, code: Literal[True]) -> GeneratedCode: ...
    @names_options
    def explain(self, event: T | None = None, *, code: bool = False) -> EventExplanation | GeneratedCode:
        """Which receivers would get an event, and where it would stop; see `heliograph.channel.explain`.

        Args:
            event: is not pushed.
            code: the functions that were generated for it, or for all event types of the channel, instead.
        """
        from heliograph.channel.explain import explain, show_code  # noqa: PLC0415 - for people who wonder

        receivers = self._channel.receivers()
        if code:
            types = self._channel.types if event is None else (event.__class__,)
            if event is not None:
                self.entry.route_of(event)
            return show_code(self.entry.routes, receivers, types)
        if event is None:
            raise NotPossible(self._channel.name, "explain() takes an event, or code=True, or both")
        return explain(self, receivers, event)

    def next_header(self, event: T) -> Header:
        """The header that a push of it would make now, but for `station_seq`."""
        route = self.entry.route_of(event)
        route.validate(event)
        return self._numbering.next_header(route, event)

    @property
    def last_sequence(self) -> int:
        """Of the last durable event under this name when it was opened; 0 when there is none."""
        return self._numbering.last_sequence

    def close(self) -> None:
        """No more pushes, and its name is free for others; what was pushed is still delivered."""
        self.cancel_periodic()
        self._channel.drop_supplier(self)
        self._sink.close()

    def cancel_periodic(self) -> None:
        for periodic in tuple(self._periodic):
            periodic.cancel()

    def forget_periodic(self, periodic: Periodic[T]) -> None:
        self._periodic.discard(periodic)

    def __enter__(self) -> Supplier[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What is pushed, checked

    def validate(self, event: T) -> None:
        """Raise what a push of it would raise at once."""
        self.entry.route_of(event).validate(event)

    def validate_all(self, events: Sequence[T]) -> bool:
        """The same for each of a batch, with its `index`; whether all are of one class."""
        if not events:
            return True
        route = self.entry.routes.get(events[0].__class__)
        with suppress(InvalidEvent):  # which one it is of is found below
            if route is not None and validate_all(route.cls, events):
                return True
        for index, event in enumerate(events):
            try:
                self.validate(event)
            except (InvalidEvent, WrongEventType) as error:
                error.index = index
                raise
        return False

    def check_said(self, said: Mapping[str, Any], *, waits: bool) -> None:
        """Raise what a push that says this would raise at once: `push` if it waits, else any other."""
        if waits:
            self._read(said)
        else:
            self._stamp(said)

    def _read(self, said: Mapping[str, Any]) -> tuple[Stamp, float | None]:
        """What a push says, and how long it waits, checked."""
        if not said:
            return PLAIN, None
        timeout = None
        if self._sink.takes_timeout and "timeout" in said:
            said = dict(said)
            timeout = said.pop("timeout")
            check_timeout(self._channel.name, timeout)
        return self._stamp(said), timeout

    def _stamp(self, said: Mapping[str, Any]) -> Stamp:
        if not said:
            return PLAIN
        stamped = stamp(**said)
        self._sink.check_said(stamped)
        return stamped

    def as_events(self, events: Any) -> list[T]:
        if isinstance(events, Event):
            raise NotPossible(self._channel.name, "push_many takes several events: push() takes one")
        if hasattr(events, "schema") or hasattr(events, "keys"):
            if len(self._channel.types) != 1:
                raise NotPossible(self._channel.name, "carries several types: push events, not columns")
            from heliograph.channel.publish.columns import events_from_columns  # noqa: PLC0415 - few push columns

            return cast("list[T]", events_from_columns(self._channel.types[0], events))
        return list(events)

    # For the channel, which holds the lock while it changes routes or counts

    @property
    def last_pushed(self) -> int:
        """The sequence number of its last event."""
        return self._numbering.last_sequence + self._numbering.taken

    @property
    def pushed(self) -> int:
        return self._numbering.taken

    def use(self, routes: Mapping[type, Route]) -> None:
        self.entry.use(routes)
        self._numbering.forget_routes()
        self._sink.use_routes()
        self._pushes = self._sink.pushes

"""The way in: a supplier checks an event, stamps it with a header and hands it to the lanes that want it.

Order is promised per supplier, so a supplier lets one push at a time choose lanes and queue; suppliers share
no lock. Inline callbacks run in the pushing thread after the lock has been released.

A push enters every matching lane or none: places are reserved in all of them first. When one is full the
push waits, without the lock but keeping its turn, until there is room or `max_blocking` is over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from heliograph.errors import Closed, ForkedStation, QueueFull, WouldDeadlock, WrongEventType
from heliograph.event import Event, Header, info_of
from heliograph.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from heliograph.channel.core import Channel
    from heliograph.channel.lane import Lane
    from heliograph.channel.pipeline import Route

T = TypeVar("T", bound=Event)


class Stamp(NamedTuple):
    """What a push may say about its event besides the event itself."""

    priority: int | None = None
    source_ts: int | None = None
    correlation_id: str | None = None
    headers: Mapping[str, str] | None = None


PLAIN = Stamp()


class Receipt:
    """The outcome of `push_nowait`. On channels that acknowledge from memory it is known at once."""

    __slots__ = ("_header",)

    def __init__(self, header: Header) -> None:
        self._header = header

    @property
    def header(self) -> Header:
        return self._header

    def result(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - other ack levels wait
        """True when the ack level is met."""
        return True


class Supplier(Generic[T]):
    """One source of events. Obtained from `channel.supplier()`; `channel.push` uses one of its own."""

    def __init__(self, channel: Channel[T], name: str, epoch: int) -> None:
        self.name = name
        self.epoch = epoch
        self._channel = channel
        self._clock = channel.ports.clock
        self._next_station_seq = channel.next_station_seq
        self._lock = channel.ports.tasks.lock(f"supplier {name}")
        self._turn = channel.ports.tasks.condition(self._lock, f"turn of {name}")
        self._waiting = False
        self._left = False
        self._routes: Mapping[type, Route] = {}
        self._sequence = 0
        self._matched = 0
        # What inline callbacks did: (route, which were called, which of those raised) -> how often.
        self._inline: Counter[tuple[Route, int, int]] = Counter()

    # Pushing

    def push(
        self,
        event: T,
        *,
        priority: int | None = None,
        source_ts: int | None = None,
        correlation_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bool:
        """Hand an event to every consumer that wants it; True when the channel's ack level is met."""
        stamp = PLAIN
        if priority is not None or source_ts is not None or correlation_id is not None or headers is not None:
            stamp = self._checked_stamp(priority, source_ts, correlation_id, headers)
        self._push(event, stamp, self._channel.qos.max_blocking)
        return True

    def push_nowait(self, event: T) -> Receipt:
        """As `push`, but never waits: QueueFull at once when a consumer that must not lose it has no room."""
        return Receipt(self._push(event, PLAIN, 0))

    def push_many(self, events: Iterable[T] | Mapping[str, Any] | Any) -> bool:
        """Push events in order. Takes events, a mapping of columns, or an Arrow batch or table.

        All are checked before the first is pushed. A QueueFull names how many had been pushed before.
        """
        batch = self._as_events(events)
        for event in batch:
            self._route_of(event).validate(event)
        for done, event in enumerate(batch):
            try:
                self._push(event, PLAIN, self._channel.qos.max_blocking)
            except QueueFull as error:
                error.pushed = done
                raise
        return True

    async def apush(self, event: T) -> bool:
        """As `push`, for asyncio: waiting for room does not hold up the loop."""
        try:
            self._push(event, PLAIN, 0)
        except QueueFull:
            await asyncio.to_thread(self._push, event, PLAIN, self._channel.qos.max_blocking)
        return True

    def close(self) -> None:
        """No more pushes; what was pushed is still delivered."""
        self._channel.drop_supplier(self)

    def __enter__(self) -> Supplier[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _push(self, event: T, stamp: Stamp, max_blocking: float) -> Header:
        self._route_of(event).validate(event)
        with self._lock:
            if self._waiting:
                self._turn.wait_for(lambda: not self._waiting)
            # Looked up again: only under the lock are these the routes of this moment.
            route = self._route_of(event)
            header = self._header(route, event, stamp)
            full = self._enqueue(route, event, header)
        if full is not None:
            route, header = self._push_when_room(event, stamp, full, max_blocking)
        if route.inline is not None:
            self._call_inline(route, event, header)
        return header

    def _header(self, route: Route, event: T, stamp: Stamp) -> Header:
        priority, source_ts, correlation_id, headers = stamp
        return Header(
            self._channel.name,
            route.type_name,
            self.name,
            self.epoch,
            self._sequence + 1,
            source_ts or self._clock.time_ns(),
            route.format_id,
            priority or route.priority,
            route.key_of(event),
            self._next_station_seq(),
            None,
            None,
            None,
            route.lifetime_ns,
            0,
            correlation_id,
            headers,
        )

    def _enqueue(self, route: Route, event: T, header: Header) -> Lane | None:
        """Under the lock: queue the event in every lane that wants it, or return the lane that is full."""
        if route.queued is not None:
            lanes = route.queued(event, header)
            for i, lane in enumerate(lanes):
                if lane.blocking and not lane.reserve():
                    for other in lanes[:i]:
                        if other.blocking:
                            other.unreserve()
                    return lane
            deadline = 0
            if route.lifetime_ns is not None:
                deadline = self._clock.monotonic_ns() + route.lifetime_ns
            item = (event, header, deadline)
            for lane in lanes:
                lane.put(item)
            self._matched += len(lanes)
            if route.keep is not None:
                route.keep(item)
        self._sequence += 1
        return None

    def _push_when_room(
        self, event: T, stamp: Stamp, full: Lane, max_blocking: float
    ) -> tuple[Route, Header]:
        """Wait for room, then queue; other pushes of this supplier wait behind this one."""
        if self._channel.pool.runs_here(full):
            raise WouldDeadlock(full.name)
        deadline = self._clock.monotonic_ns() + round(max_blocking * 1e9)
        with self._lock:
            self._turn.wait_for(lambda: not self._waiting)
            self._waiting = True
        try:
            while full.wait_for_room(seconds_until(self._clock, deadline)):
                with self._lock:
                    route = self._route_of(event)
                    header = self._header(route, event, stamp)
                    still_full = self._enqueue(route, event, header)
                if still_full is None:
                    return route, header
                full = still_full
            raise QueueFull(full.name, full.limit, max_blocking)
        finally:
            with self._lock:
                self._waiting = False
                self._turn.notify_all()

    def _call_inline(self, route: Route, event: T, header: Header) -> None:
        assert route.inline is not None
        called, raised = route.inline(event, header)
        if not called:
            return
        with self._lock:
            if not self._left:
                self._inline[route, called, raised] += 1
                self._matched += called.bit_count()
                return
        self._channel.count_inline(route, called, raised)

    def _route_of(self, event: T) -> Route:
        route = self._routes.get(event.__class__)
        if route is None:
            given: Any = type(event)
            name = info_of(given).name if issubclass(given, Event) else given.__name__
            raise WrongEventType(self._channel.name, name, self._channel.type_names)
        return route

    def _checked_stamp(
        self,
        priority: int | None,
        source_ts: int | None,
        correlation_id: str | None,
        headers: Mapping[str, str] | None,
    ) -> Stamp:
        if priority is not None and priority not in (1, 2, 3, 4, 5):
            raise ValueError(f"a priority is 1 (low) to 5 (high), not {priority!r}")
        if headers is not None and not all(type(k) is str and type(v) is str for k, v in headers.items()):
            raise ValueError("user headers are texts under texts")
        return Stamp(priority, source_ts, correlation_id, None if headers is None else dict(headers))

    def _as_events(self, events: Any) -> list[T]:
        if hasattr(events, "schema") or hasattr(events, "keys"):
            return cast("list[T]", self._channel.events_from_columns(events))
        return list(events)

    # For the channel, which holds all suppliers still while it changes routes or counts.

    @property
    def lock(self) -> Any:
        return self._lock

    @property
    def pushed(self) -> int:
        return self._sequence

    @property
    def matched(self) -> int:
        return self._matched

    def use(self, routes: Mapping[type, Route]) -> None:
        """The routes from the next push on. Under the lock."""
        self._routes = routes

    def fold_inline(self) -> None:
        """Hand what inline callbacks did to the subscriptions' own counts. Under the lock."""
        for (route, called, raised), times in self._inline.items():
            self._channel.add_inline(route, called, raised, times)
        self._inline.clear()

    def leave(self) -> None:
        """Push no more, and keep no counts: a callback that still runs is counted by the channel."""
        self._left = True
        self.fold_inline()
        self._routes = closed_routes(f"supplier {self.name}")


class DeadRoutes(dict[type, "Route"]):
    """Takes the place of a supplier's routes when it can push no more: every push raises."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        super().__init__()
        self._error = error

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ARG002 - the signature of dict
        raise self._error()


def closed_routes(name: str) -> DeadRoutes:
    return DeadRoutes(lambda: Closed(name))


def forked_routes(name: str) -> DeadRoutes:
    return DeadRoutes(lambda: ForkedStation(name))

"""The way in: a supplier checks an event, stamps it with a header and hands it to the lanes that want it.

Order is promised per supplier, so a supplier lets one push at a time choose lanes and queue; suppliers share
no lock. Inline callbacks run in the pushing thread after the lock has been released.

A push enters every matching lane or none: places are reserved in all of them first. When one is full the
push waits, without the lock but keeping its turn, until there is room or `max_blocking` is over.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack, cast

from heliograph.channel.stamp import PLAIN, Said, Stamp, stamp
from heliograph.errors import Closed, ForkedStation, QueueFull, WouldDeadlock, WrongEventType
from heliograph.event import Event, Header, info_of
from heliograph.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from heliograph.channel.core import Channel
    from heliograph.channel.lane import Item, Lane
    from heliograph.channel.pipeline import Route

T = TypeVar("T", bound=Event)


INLINE_LOG: Final = 10_000
"""Results of inline callbacks that wait to be counted before a push counts them itself."""


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

    forwards = True
    """Whether its events go to other stations as well."""

    def __init__(self, channel: Channel[T], name: str, epoch: int) -> None:
        self.name = name
        self.epoch = epoch
        self._channel = channel
        self._clock = channel.ports.clock
        self._now = channel.ports.clock.time_ns
        self._next_station_seq = channel.next_station_seq
        self._inline_log = channel.inline_log
        self._lock = channel.ports.tasks.lock(f"supplier {name}")
        self._turn = channel.ports.tasks.condition(self._lock, f"turn of {name}")
        self._waiting = False
        self._routes: Mapping[type, Route] = {}
        # Counting is atomic, so a push that queues nowhere needs no lock.
        self._sequences = count(1)
        self._next_sequence = self._sequences.__next__
        self._matched = 0

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
        said = PLAIN
        if priority is not None or source_ts is not None or correlation_id is not None or headers is not None:
            said = stamp(priority, source_ts, correlation_id, headers)
        self._push(event, said, None)
        return True

    def push_nowait(self, event: T, **said: Unpack[Said]) -> Receipt:
        """As `push`, but never waits: QueueFull at once when a consumer that must not lose it has no room."""
        return Receipt(self._push(event, stamp(**said), 0.0))

    def push_many(self, events: Iterable[T] | Mapping[str, Any] | Any) -> bool:
        """Push events in order. Takes events, a mapping of columns, or an Arrow batch or table.

        All are checked before the first is pushed. A QueueFull names how many had been pushed before.
        """
        batch = self._as_events(events)
        for event in batch:
            (self._routes.get(event.__class__) or self._refuse(event)).validate(event)
        for done, event in enumerate(batch):
            try:
                self._push(event, PLAIN, None)
            except QueueFull as error:
                error.pushed = done
                raise
        return True

    async def apush(self, event: T, **said: Unpack[Said]) -> bool:
        """As `push`, for asyncio: waiting for room does not hold up the loop."""
        try:
            self._push(event, stamp(**said), 0.0)
        except QueueFull:
            await asyncio.to_thread(self._push, event, stamp(**said), None)
        return True

    def close(self) -> None:
        """No more pushes; what was pushed is still delivered."""
        self._channel.drop_supplier(self)

    def __enter__(self) -> Supplier[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _push(self, event: T, said: Stamp, max_blocking: float | None) -> Header:
        """`max_blocking` of None is the channel's own."""
        route = self._routes.get(event.__class__) or self._refuse(event)
        route.validate(event)
        if route.queued is None:
            header = route.stamp(
                event, self.name, self.epoch, self._next_sequence(), self._now(), self._next_station_seq()
            )
            if said is not PLAIN:
                header = said.on(header)
        else:
            with self._lock:
                if self._waiting:
                    self._turn.wait_for(lambda: not self._waiting)
                # Looked up again: only under the lock are these the routes of this moment.
                route = self._routes.get(event.__class__) or self._refuse(event)
                header = self._header(route, event, said)
                full = self._enqueue(route, event, header)
            if full is not None:
                route, header = self._push_when_room(event, said, full, max_blocking)
        if route.inline is not None:
            self._inline_log.append(route.inline(event, header))
            if len(self._inline_log) > INLINE_LOG:
                self._channel.count_inline()
        return header

    def _header(self, route: Route, event: T, said: Stamp) -> Header:
        header = route.stamp(
            event, self.name, self.epoch, self._next_sequence(), self._now(), self._next_station_seq()
        )
        return header if said is PLAIN else said.on(header)

    def _enqueue(self, route: Route, event: T, header: Header) -> Lane | None:
        """Under the lock: queue the event in every lane that wants it, or return the lane that is full."""
        if route.queued is None:
            return None
        deadline = 0
        if header.lifetime_ns is not None:
            deadline = self._clock.monotonic_ns() + header.lifetime_ns
        item = (event, header, deadline)
        full = self._put_into_all(route.queued(event, header), item)
        if full is None and route.keep is not None:
            route.keep(item)
        return full

    def _put_into_all(self, lanes: list[Lane], item: Item) -> Lane | None:
        """Under the lock: queue in all of these lanes, or in none and return the one that is full."""
        if len(lanes) == 1:
            # Nobody else could be left without it, so the place need not be kept first.
            if not lanes[0].offer(item):
                return lanes[0]
        else:
            for i, lane in enumerate(lanes):
                if lane.blocking and not lane.reserve():
                    for other in lanes[:i]:
                        if other.blocking:
                            other.unreserve()
                    return lane
            for lane in lanes:
                lane.put(item)
        self._matched += len(lanes)
        return None

    def _push_when_room(
        self, event: T, said: Stamp, full: Lane, max_blocking: float | None
    ) -> tuple[Route, Header]:
        """Wait for room, then queue; other pushes of this supplier wait behind this one."""
        if self._channel.pool.runs_here(full):
            raise WouldDeadlock(full.name)
        seconds = self._channel.qos.max_blocking if max_blocking is None else max_blocking
        deadline = self._clock.monotonic_ns() + round(seconds * 1e9)
        with self._lock:
            self._turn.wait_for(lambda: not self._waiting)
            self._waiting = True
        try:
            while full.wait_for_room(seconds_until(self._clock, deadline)):
                with self._lock:
                    route = self._routes.get(event.__class__) or self._refuse(event)
                    header = self._header(route, event, said)
                    still_full = self._enqueue(route, event, header)
                if still_full is None:
                    return route, header
                full = still_full
            raise QueueFull(full.name, full.limit, seconds)
        finally:
            with self._lock:
                self._waiting = False
                self._turn.notify_all()

    def _refuse(self, event: Any) -> Any:
        given: Any = type(event)
        name = (
            f"{info_of(given).name} ({given.__qualname__})" if issubclass(given, Event) else repr(event)[:60]
        )
        carried = tuple(f"{info_of(cls).name} ({cls.__qualname__})" for cls in self._channel.types)
        raise WrongEventType(self._channel.name, name, carried)

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
        """Headers made: a push that found a queue full counts each time it tried."""
        return int(self._sequences.__reduce__()[1][0]) - 1

    @property
    def matched(self) -> int:
        return self._matched

    def use(self, routes: Mapping[type, Route]) -> None:
        """The routes from the next push on. Under the lock."""
        self._routes = routes


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

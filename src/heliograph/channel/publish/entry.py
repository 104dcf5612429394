"""The entry of one source of events into queues: an event enters every queue that wants it, or none.

A source is a supplier, the link to another station, or what was delayed and is due. Order is promised per
source, and all-or-nothing needs a look at several queues, so one push at a time of a channel queues; what it
holds meanwhile is held for a microsecond, never while user code runs. When a queue is full the push waits,
without the lock but keeping its turn among the pushes of its source.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from heliograph.channel.routing.compiler import match
from heliograph.channel.routing.forwarding import HERE
from heliograph.errors import NotReentrant, QueueFull, WouldDeadlock, WrongEventType
from heliograph.model.event import Event, Header, info_of
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.publish.host import SupplierHost
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.channel.routing.compiler import MatchedQueues, Route
    from heliograph.channel.routing.forwarding import Origin
    from heliograph.runtime.ports import Lock

Tried: TypeAlias = "tuple[Route, Header | None, EventQueue | None]"
"""Of a push: a header if the event has its place, and a queue that had no room for it."""
Entering: TypeAlias = "Callable[[Item, Sequence[EventQueue]], object]"
"""Told, under the lock, of an event and of the queues that it enters now."""


class Entry:
    """See the module. It also holds the routes of its source, which change while the source is held still.

    Args:
        channel: whose queues.
        name: of the source.
        entering: told of each event just before its queues have it.
        lock: in place of the one that all who put into the queues of a channel share.
    """

    def __init__(
        self,
        channel: SupplierHost,
        name: str,
        entering: Entering | None = None,
        lock: Lock | None = None,
    ) -> None:
        self.lock = channel.entry if lock is None else lock
        self.routes: Mapping[type, Route] = {}
        self.gone: Callable[[], Exception] | None = None
        """Makes what every push raises, when none is taken any more."""
        self.matched = 0
        self.barred: list[Any] = []
        """What bars the generated pushes: newer routes, or the queue that a push waits for."""
        self._entering = entering
        self._channel = channel
        self._clock = channel.ports.clock
        self._turn = channel.ports.tasks.condition(self.lock, f"turn of {name}")

    # Routes. Under the lock:

    def use(self, routes: Mapping[type, Route]) -> None:
        """The routes from the next push on."""
        before = self.barred
        self.routes, self.barred = routes, [*before]
        before.append(None)

    # At any time:

    def route_of(self, event: Any) -> Route:
        """The route of an event; raises why there is none."""
        route = self.routes.get(event.__class__)
        if route is not None:
            return route
        if self.gone is not None:
            raise self.gone()
        given: Any = type(event)
        channel = self._channel
        carried = tuple(f"{info_of(cls).name} ({cls.__qualname__})" for cls in channel.types)
        if issubclass(given, Event):
            name = f"{info_of(given).name} ({given.__qualname__})"
            raise WrongEventType(channel.name, name, carried)
        fields = "**fields" if isinstance(event, dict) else "..."
        instead = " or ".join(f"{cls.__qualname__}({fields})" for cls in channel.types)
        raise WrongEventType(channel.name, f"{event!r:.60}", carried, instead)

    def insist_on_outside(self) -> None:
        """A push out of the middle of a push, or of a change of a queue, would come between its steps."""
        if self.lock.mine():
            raise NotReentrant(self._channel.name)

    def insist_on_outside_of(self, queues: Iterable[EventQueue]) -> None:
        if any(queue.mine() for queue in queues):
            raise NotReentrant(self._channel.name)

    # One event

    def push(
        self,
        event: Any,
        known: Callable[[Route], Header],
        stamp: Callable[[Route], Header],
        max_blocking: float | None,
    ) -> Header:
        """Push when it is this event's turn and there is room; other pushes of this source wait behind.

        Args:
            event: one that has been checked.
            known: gives what is known of its header before it has its place.
            stamp: gives its header, when there is room for it.
            max_blocking: seconds to wait for room; None: as the channel has it.
        """
        seconds = self._channel.qos.max_blocking if max_blocking is None else max_blocking
        deadline = self._clock.monotonic_ns() + round(seconds * 1e9)
        queue = partial(self._try_to_queue, event, known, stamp, self._match(event, known))
        self.insist_on_outside()
        full = None
        try:
            with self.lock:
                self._turn.wait_for(lambda: not self.barred or self._drains(self.barred[0]), seconds)
                if self.barred:
                    raise self._cannot_wait(self.barred[0], seconds)
                route, header, full = queue()
                if full is not None:
                    self.barred.append(full)
            if full is not None:
                route, header = self._queue_when_room(queue, full, seconds, deadline)
        finally:
            if full is not None:
                with self.lock:
                    self.barred.clear()
                    self._turn.notify_all()
        assert header is not None
        if route.inline is not None:
            route.inline(event, header)
        return header

    def _queue_when_room(
        self, queue: Callable[[], Tried], full: EventQueue, seconds: float, deadline: int
    ) -> tuple[Route, Header]:
        while not self._drains(full) and full.wait_for_room(seconds_until(self._clock, deadline)):
            with self.lock:
                route, header, still_full = queue()
                if still_full is None:
                    assert header is not None
                    return route, header
                full = self.barred[0] = still_full
                self._turn.notify_all()
        raise self._cannot_wait(full, seconds)

    def _match(self, event: Any, known: Callable[[Route], Header]) -> MatchedQueues:
        """The queues that an event is for, found without the lock."""
        routes = self.routes
        return match(routes, (event,), known(self.route_of(event)))

    def _try_to_queue(
        self,
        event: Any,
        known: Callable[[Route], Header],
        stamp: Callable[[Route], Header],
        found: MatchedQueues,
    ) -> Tried:
        """Under the lock."""
        route = self.route_of(event)
        if not found.hold(self.routes):
            found = self._match(event, known)
        (queues,) = found.queues
        self.insist_on_outside_of(queues)
        for queue in queues:
            if queue.waiting >= queue.blocks_at:
                return route, None, queue
        header = stamp(route)
        deadline = 0 if header.lifetime_ns is None else self._clock.monotonic_ns() + header.lifetime_ns
        self._put_item(route, (event, header, deadline), route.entered(queues, event, header))
        return route, header, None

    def _drains(self, queue: EventQueue) -> bool:
        """Whether only the calling thread can make room in it."""
        return self._channel.pools.runs_here(queue)

    def _cannot_wait(self, queue: EventQueue, seconds: float) -> Exception:
        if self._drains(queue):
            return WouldDeadlock(queue.name)
        return QueueFull(queue.who_is_full(), queue.limit, seconds, bytes_waiting=queue.bytes_that_fill)

    def _put_item(self, route: Route, item: Item, queues: Sequence[EventQueue]) -> None:
        """However that ends, all queues have it."""
        if self._entering is not None:
            self._entering(item, queues)
        try:
            if route.keep is not None:
                route.keep(item)
            for queue in queues:
                queue.put(item)
            matched = len(queues)
        except BaseException:
            self.finish(item, queues, route.keep)
            raise
        self.matched += matched

    # Several events. Under the lock:

    def allot(
        self, queues: Sequence[EventQueue], item: Item, lots: defaultdict[EventQueue, list[Item]]
    ) -> EventQueue | None:
        """Add an event to what will be put into each of these queues, or return one that has no room."""
        for queue in queues:
            if len(lots[queue]) >= queue.blocks_at - queue.waiting:
                return queue
        if self._entering is not None:
            self._entering(item, queues)
        for queue in queues:
            lots[queue].append(item)
        return None

    def put_lots(
        self,
        items: Sequence[Item],
        lots: Mapping[EventQueue, Sequence[Item]],
        keep: Callable[[Item], object] | None = None,
        *,
        largest: int | None = None,
    ) -> None:
        """Fill each queue with what it is to get, `largest` as in `EventQueue.put_many`, always."""
        self.insist_on_outside_of(lots)
        kept = 0
        try:
            if keep is not None:
                for item in items:
                    keep(item)
                    kept += 1
            for queue, lot in lots.items():
                queue.put_many(lot, largest=largest)
            matched = sum(map(len, lots.values()))
        except BaseException:
            if keep is not None:
                for item in items[kept:]:
                    keep(item)
            self._finish_all(lots)
            raise
        self.matched += matched

    def finish(self, item: Item, queues: Sequence[EventQueue], keep: Callable[[Item], object] | None) -> None:
        """An exception came when some queues had an event. The others get it, too."""
        if keep is not None:
            keep(item)
        self._finish_all(dict.fromkeys(queues, (item,)))

    def _finish_all(self, lots: Mapping[EventQueue, Sequence[Item]]) -> None:
        for queue, lot in lots.items():
            queue.put_missing(lot)
        self.matched += sum(map(len, lots.values()))


class Source:
    """What the channel has among its suppliers: whoever brings events, with an entry of its own."""

    origin: Origin = HERE
    """Where its events were pushed; that decides to which other stations they go on."""
    names_itself = True
    """Whether its events carry its own name, so that only those who listen to that need to be routed to."""
    is_managers = False
    """Whether the manager of the channel pushes by it, for a member that it has looked at."""

    def __init__(self, name: str, epoch: int, entry: Entry) -> None:
        self.name = name
        self.epoch = epoch
        self.entry = entry

    @property
    def pushed(self) -> int:
        """Events that were taken in here."""
        return 0

    @property
    def matched(self) -> int:
        return self.entry.matched

    @property
    def lock(self) -> Lock:
        return self.entry.lock

    def use(self, routes: Mapping[type, Route]) -> None:
        """The routes from the next push on. Under the lock."""
        self.entry.use(routes)

    def retire(self, error: Callable[[], Exception]) -> None:
        """Every push raises from now on. Makes plain stores only: in the child of a fork no lock holds."""
        self.entry.gone = error
        self.use({})

    def readmit(self, routes: Mapping[type, Route]) -> None:
        """It may push again, by these routes. Under the lock."""
        self.entry.gone = None
        self.use(routes)

    def cancel_periodic(self) -> None:
        """Make nothing by the clock any more."""

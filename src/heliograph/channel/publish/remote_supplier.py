"""The supplier that stands for events of other stations on their way to this station's receivers.

They come with their headers, in the order of their suppliers, and go to no gateway: an event is sent to other
stations by the one where it was pushed, so that none comes twice. Only band workers of this station get it
from here: nobody else sends it to them.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import islice, repeat
from threading import get_ident  # only to know a thread again
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar, cast

from heliograph.channel.publish.batch import IncomingBatch
from heliograph.channel.publish.supplier import TOGETHER, Supplier
from heliograph.channel.queueing.queue import BATCH
from heliograph.errors import Closed, ForkedStation
from heliograph.model.event import Event, info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from heliograph.channel.history.feed import Feed
    from heliograph.channel.queueing.queue import Item, Lane
    from heliograph.channel.routing.compiler import CallOne, Found, Route
    from heliograph.channel.routing.conditions import AnyOf, Condition
    from heliograph.model.event import Header

T = TypeVar("T", bound=Event)

ROOM_LIMIT = 0.5
"""Seconds between two looks at whether the channel is still there, while a queue is full."""
MOST_CALLS = 16
"""Inline calls between two looks at the clock; the first looks come sooner, so that slow ones are noticed.

Few enough that calls which suddenly take half a second stay within the lease of a reader of a broadcast."""

PRIORITY: Final = 5
"""Where a lone event, as a broadcast has it, says its priority."""
NO_HEADER: Final = cast("Header", None)
"""For filters that ask for nothing of it."""


class RemotePersistentSupplier:
    """The way in on a persistent channel for what another station keeps: it has its offset already."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.pushed = 0
        self.let_go = 0

    def take_in(self, arrived: Sequence[Any], *, wait: bool = False, until: int = 0) -> int:  # noqa: ARG002 - nobody waits: who has no room reads on later
        """Offer events to all receivers. A link brings the partition of the station at its other end.

        One that is not known yet is left out: it is read when its keeper has told of it. So is what has no
        place in a history, and what claims to be of the partition that is kept here.
        """
        if not arrived:
            return 0
        partition = arrived[0][1].partition
        if self._comes_from_elsewhere(partition):
            items = [i for i in arrived if i[1].partition == partition and i[1].offset is not None]
            if items:
                event, header, _ = items[0]  # all are of one format: a run is
                if header.format_id != info_of(event.__class__).format.id:
                    self._feed.read_as_pushed(partition, header.offset)
                self._feed.durable(partition, items, items[-1][1].offset + 1)
        self.pushed += len(arrived)
        return len(arrived)

    def reads_on(self, arrived: Sequence[Any], refused: Sequence[tuple[Header, object]]) -> bool:
        """Some events of a run cannot be read here: receivers read from the first of them on by themselves.

        So each that wants one stops there by its error, and its cursor does; those that do not go on.
        """
        first = refused[0][0]
        behind = max((header.offset or 0 for header, _ in refused), default=0)
        behind = max([behind, *(item[1].offset or 0 for item in arrived)]) + 1
        before: list[Any] = []
        if self._comes_from_elsewhere(first.partition) and first.offset is not None:
            before = [item for item in arrived if (item[1].offset or 0) < first.offset]
            self.take_in(before)
            self._feed.durable(first.partition, None, behind)
        self.pushed += len(arrived) - len(before)
        return True

    def _comes_from_elsewhere(self, partition: str | None) -> TypeGuard[str]:
        known = None if partition is None else self._feed.partitions.get(partition)
        return known is not None and not known.kept_here

    def call(self, event: Event, header_of: Callable[[Any], Header], said: Any) -> bool:  # noqa: ARG002 - it has no place in the history
        return False

    def shows(self, cls: type | None) -> bool:  # noqa: ARG002 - as in `call`
        return False

    def show(self, event: Event, header_of: Callable[[Any], Header], said: Any) -> bool:  # noqa: ARG002 - as in `call`
        return False

    def close(self) -> None:
        """It stands in no list."""


class RemoteSupplier(Supplier[T]):
    """Stands among the suppliers of a channel for everything that one link brings."""

    forwards = False

    @property
    def pushed(self) -> int:
        return self._taken_in

    _taken_in = 0
    let_go = 0
    """Events that nobody gets, because the channel was closed when they came."""
    _some = TOGETHER
    """Events whose filters are asked before the lock is taken; few while queues are full."""
    _calls: dict[type, CallOne | None]
    """What `call` needs, by event type, as long as the routes are these."""
    calls_directly = True
    """Whether an event may go past the queue of its only receiver: nobody is told of each by the queues."""

    def take_in(self, arrived: Sequence[Item], *, wait: bool = False, until: int = 0) -> int:
        """Queue events for all receivers that want them.

        Returns how many were queued before one could not be, because a consumer that must not lose it has
        no room, or before that instant of the monotonic clock had come, if one is given: callbacks
        may be slow. With `wait`, waits for room; events for a channel that has been closed are let go, and
        counted as if they had been queued.
        """
        done, is_closed = self._queue_all(arrived, wait=wait, until=until)
        return len(arrived) if is_closed else done

    def _queue_all(self, arrived: Sequence[Item], *, wait: bool, until: int) -> tuple[int, bool]:
        """See `take_in`: how many were really queued, and whether the rest never will be."""
        done = self._call_for_all(arrived, until) if isinstance(arrived, IncomingBatch) else 0
        some = 1 if until else len(arrived)
        try:
            while done < len(arrived):
                if until and self._is_late(until):
                    return done, False
                routes = self._routes
                route = routes.get(arrived[done][0].__class__)
                if route is not None and not route.has_queue and route.inline is not None:
                    done = self._call_from(arrived, done, routes, route, some)
                    some = min(4 * some, MOST_CALLS) if until else some
                    continue
                done, full = self._queue_from(arrived, done)
                if full is not None:
                    if not wait:
                        return done, False
                    full.wait_for_room(ROOM_LIMIT)
        except (Closed, ForkedStation):
            self.let_go += len(arrived) - done
            return done, True
        return done, False

    def reads_on(self, arrived: Sequence[Any], refused: Sequence[tuple[Header, object]]) -> bool:  # noqa: ARG002 - there is no history to read
        """See `RemotePersistentSupplier`: receivers here get what can be read."""
        return False

    def call(self, event: Event, header_of: Callable[[Any], Header], said: Any) -> bool:
        """Call callbacks for one event, if that is all and nothing is to be queued; else False."""
        try:
            call = self._calls[event.__class__]
        except KeyError:
            call = self._calls[event.__class__] = self._caller(event.__class__)
        if call is None:
            return False
        self._taken_in += 1  # before: who was relieved of the reading does not come back here
        if call(event, header_of, said):
            return True
        self._taken_in -= 1
        return False

    def shows(self, cls: type | None) -> bool:
        """Whether all that an event of a class is for asks for views: see `show`."""
        route = None if cls is None else self._routes.get(cls)
        return route is not None and route.shows is not None

    def show(self, event: Event, header_of: Callable[[Any], Header], said: Any) -> bool:
        """As `call`, for an event whose arrays hold during the call only; False if somebody may keep it."""
        route = self._routes.get(event.__class__)
        if route is None or route.shows is None or not route.shows(event, header_of, said):
            return False
        self._taken_in += 1
        return True

    def use(self, routes: Mapping[type, Route]) -> None:
        super().use(routes)
        self._calls = {}

    def _caller(self, cls: type) -> CallOne | None:
        route = self._routes.get(cls)
        if route is None:
            return None
        return self._direct_caller(route) if route.has_queue else route.inline_one

    def _direct_caller(self, route: Route) -> CallOne | None:
        """What calls the only receiver of an event, where that has a queue in which nothing waits."""
        sole = self._sole_of(route)
        if sole is None or sole[1].needs_header:
            return None
        (lane, _), routes, readers, lock = sole, self._routes, self._channel.pools.readers, self._lock
        caller, wants = lane.caller, route.wants[0]
        assert caller is not None

        def call(event: Any, header_of: Callable[[Any], Header], said: Any) -> bool:
            reader = readers.get(get_ident())
            if reader is None or reader.now() >= reader.direct_until or not caller.is_free():
                return False
            if wants is not None and not wants(event, NO_HEADER):
                return self._routes is routes
            with lock:
                is_current = self._gone is None and self._routes is routes
                if not (is_current and lane.take_directly(1, said[PRIORITY])):
                    return False
                self.matched += 1
            caller.call_one(event, header_of, said, reader)
            return True

        return call

    def _sole_of(self, route: Route) -> tuple[Lane, Condition | AnyOf] | None:
        """The lane that is the only target, if its receiver can be called past it."""
        sole = route.sole if self.calls_directly else None
        return None if sole is None or sole[0].caller is None or route.lifetime_ns is not None else sole

    def _call_directly(self, lot: IncomingBatch, route: Route) -> int:
        """As `_direct_caller`, for events that came together, some at a time; how many of them."""
        sole, reader = self._sole_of(route), self._channel.pools.readers.get(get_ident())
        if reader is None or sole is None or route.choose is None:
            return 0
        (lane, condition), routes = sole, self._routes
        caller = lane.caller
        assert caller is not None
        while lot.done < len(lot) and reader.now() < reader.direct_until and caller.is_free():
            first = lot.done
            events = lot.events[first : first + BATCH]
            places: Sequence[int] = range(first, first + len(events))
            if not condition.is_open:
                chosen = route.choose(events, lot.first)
                places, events = [first + at for at in chosen], [events[at] for at in chosen]
            with self._lock:
                if self._gone is not None or self._routes is not routes:
                    break
                if events and not lane.take_directly(len(events), lot.first.priority):
                    break
                self.matched += len(events)
            # Before they are called: who is relieved of the reading does not come back here.
            lot.done = min(first + BATCH, len(lot))
            self._taken_in += lot.done - first
            if events:
                caller.call_many(events, partial(_at, lot, places), reader)
        return lot.done

    def _call_for_all(self, lot: IncomingBatch, until: int) -> int:
        """Call inline callbacks, if that is all and none needs the header of each event; how far it came."""
        route = self._routes.get(lot.events[0].__class__)
        if route is None or route.inline_many is None or route.has_queue:
            return 0 if route is None or not route.has_queue else self._call_directly(lot, route)
        turns = self._turns(len(lot), until) if until else (len(lot),)
        done = route.inline_many(lot.events, turns, lot.first, lot.header_of)
        self._taken_in += done
        return done

    def _turns(self, events: int, until: int) -> Iterator[int]:
        """How many of so many events are next, after each look at the clock, until it is too late."""
        now, done, some = self._clock.monotonic_ns, 0, 1
        while done < events and now() < until:
            yield some
            done += some
            some = 4 * some if some < MOST_CALLS else MOST_CALLS

    def _is_late(self, until: int) -> bool:
        return self._clock.monotonic_ns() >= until

    def _call_from(
        self,
        arrived: Sequence[Item],
        first: int,
        routes: Mapping[type, Route],
        route: Route,
        most: int,
    ) -> int:
        """Call inline callbacks for events of one class, until the routes change; returns how far it came.

        Nothing is queued, so nothing is to be kept in step and the lock is not needed.
        """
        cls, done = arrived[first][0].__class__, first
        inline = route.inline_of_others
        assert inline is not None
        for event, header, deadline in islice(_from(arrived, first), most):
            if event.__class__ is not cls or self._routes is not routes:
                break
            if deadline and self._is_late(deadline):
                route.expire(event, header)
            else:
                inline(event, header)
            done += 1
        self._taken_in += done - first
        return done

    def _queue_from(self, arrived: Sequence[Item], first: int) -> tuple[int, Lane | None]:
        """Queue events of one priority until one is full, or an inline callback runs, outside the lock."""
        lots: defaultdict[Lane, list[Item]] = defaultdict(list)
        called, full, done, priority = None, None, first, arrived[first][1].priority
        asked = self._ask_about_all(arrived, first)
        with self._lock:
            if self._gone is not None:
                raise self._gone()
            for item, (known, found) in zip(_from(arrived, first), asked, strict=False):
                event, header, deadline = item
                if header.priority != priority:
                    break
                route = self._routes.get(event.__class__)
                if route is not None and route.has_queue:
                    lanes = route.lanes(event, header, found if route is known else None)
                    full = self._allot(lanes, item, lots)
                    if full is not None:
                        break
                done += 1
                if route is not None and route.inline is not None:
                    called = route
                    break
            for lane, items in lots.items():
                if items:
                    lane.put_many(items)
                    self.matched += len(items)
        if called is not None and deadline and self._is_late(deadline):
            called.expire(event, header)
        elif called is not None and called.inline_of_others is not None:
            called.inline_of_others(event, header)
        self._taken_in += done - first
        self._some = min(TOGETHER, 2 * max(1, done - first))
        return done, full

    def _ask_about_all(self, arrived: Sequence[Item], first: int) -> Iterable[tuple[object, Found | None]]:
        """As `_ask`, for many events, of which some may be of types that are not known here."""
        routes = self._routes
        early = {cls: route.early for cls, route in routes.items() if route.early is not None}
        if not early:
            return repeat((None, None))
        some = islice(_from(arrived, first), self._some)
        return [
            (routes[event.__class__], early[event.__class__](event, header))
            if event.__class__ in early
            else (None, None)
            for event, header, _ in some
        ]


def _at(lot: IncomingBatch, places: Sequence[int], place: int) -> Header:
    return lot.header_of(places[place])


def _from(arrived: Sequence[Item], first: int) -> Iterator[Item]:
    """Those from a place on, uncopied: where a queue is full it is asked again for every event."""
    return map(arrived.__getitem__, range(first, len(arrived))) if first else iter(arrived)

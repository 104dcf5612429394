"""The supplier that stands for events of other stations on their way to this station's receivers.

They come with their headers, in the order of their suppliers, and go to no gateway: an event is sent to other
stations by the one where it was pushed, so that none comes twice. Only band workers of this station get it
from here: nobody else sends it to them.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import islice
from threading import get_ident  # only to know a thread again
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from heliograph.channel.batch import IncomingBatch, OutgoingBatch
from heliograph.channel.publish.acks import expect_for
from heliograph.channel.publish.entry import Entry, Source
from heliograph.channel.publish.queue_sink import TOGETHER
from heliograph.channel.publish.worker_acks import expected_by, take_in_settled
from heliograph.channel.queueing.queue import BATCH
from heliograph.channel.routing.compiler import MatchedQueues, changes_of
from heliograph.channel.routing.forwarding import ELSEWHERE
from heliograph.errors import Closed, ForkedStation
from heliograph.model.event import VIA, Event, info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from heliograph.channel.history.feed import Feed
    from heliograph.channel.publish.acks import AckMonitor, Ticket
    from heliograph.channel.publish.entry import Entering
    from heliograph.channel.publish.host import SupplierHost
    from heliograph.channel.publish.worker_acks import WorkerAcks
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.channel.routing.compiler import CallOne, Route
    from heliograph.channel.routing.conditions import AnyCondition, ReceiverCondition
    from heliograph.model.event import EventId, Header


ROOM_LIMIT = 0.5
"""Seconds between two looks at whether the channel is still there, while a queue is full."""
MOST_CALLS = 16
"""Inline calls between two looks at the clock; the first looks come sooner, so that slow ones are noticed.

Few enough that calls which suddenly take half a second stay within the lease of a reader of a broadcast."""

PRIORITY: Final = 5
"""Where a lone event, as a broadcast has it, says its priority."""
HEADERS: Final = 8
"""Where it says its free headers."""
NO_HEADER: Final = cast("Header", None)
"""For filters that ask for nothing of it."""


class RemotePersistentSupplier:
    """The way in on a persistent channel for what another station keeps: it has its offset already.

    Args:
        feed: of the channel.
        watching: the monitor, where receivers acknowledge to the station in which an event was pushed.
        tell: told of each event that all of them have acknowledged.
    """

    def __init__(
        self,
        feed: Feed,
        watching: AckMonitor | None = None,
        tell: Callable[[EventId], object] = lambda _: None,
    ) -> None:
        self._feed = feed
        self._watching = watching
        self._tell = tell
        self.pushed = 0
        self.let_go = 0

    def take_in(self, arrived: Sequence[Any], *, wait: bool = False, until: int = 0) -> int:  # noqa: ARG002 - nobody waits: who has no room reads on later
        """Offer events to all receivers. A link brings the partition of the station at its other end.

        One that is not known yet is left out: it is read when its keeper has told of it. So is what has no
        place in a history, and what claims to be of the partition that is kept here.
        """
        if not arrived:
            return 0
        tickets: list[Ticket] = []
        try:
            if self._watching is not None:
                for item in arrived:
                    tickets.append(expect_for(self._watching, item, self._tell))  # noqa: PERF401 - if one fails, those before it are known
            self._feed_all(arrived)
        finally:
            # Those of a partition or a type that is not known here are nobody's.
            for ticket in tickets:
                ticket.forget_unpassed()
        self.pushed += len(arrived)
        return len(arrived)

    def _feed_all(self, arrived: Sequence[Any]) -> None:
        partition = arrived[0][1].partition
        if self._comes_from_elsewhere(partition):
            items = [i for i in arrived if i[1].partition == partition and i[1].offset is not None]
            if items:
                event, header, _ = items[0]  # all are of one format: a run is
                if header.format_id != info_of(event.__class__).format.id:
                    self._feed.read_as_pushed(partition, header.offset)
                self._feed.durable(partition, (OutgoingBatch.of(items),), items[-1][1].offset + 1)

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


class RemoteSupplier(Source):
    """Stands among the suppliers of a channel for everything that one link brings.

    Args:
        channel: where to.
        name: of the link.
        entering: as in `Entry`. With it every event is queued: nothing is called past its queue.
        settling: what acknowledges each event to the supervising station, if that is at the other end.
    """

    origin = ELSEWHERE
    _some = TOGETHER
    """Events whose filters are asked before the lock is taken; few while queues are full."""

    def __init__(
        self,
        channel: SupplierHost,
        name: str,
        entering: Entering | None = None,
        settling: WorkerAcks | None = None,
    ) -> None:
        entering = entering if settling is None else expected_by(settling)
        super().__init__(name, 1, Entry(channel, name, entering))
        self._channel = channel
        self._clock = channel.ports.clock
        self._settling = settling
        self._calls_directly = entering is None
        self._taken_in = 0
        self.let_go = 0
        """Events that nobody gets, because the channel was closed when they came."""
        self._calls: dict[type, CallOne | None] = {}
        """What `call` needs, by event type, as long as the routes are these."""

    @property
    def pushed(self) -> int:
        return self._taken_in

    def count(self, events: int) -> None:
        """So many were put into queues past this. Under the lock of the entry."""
        self._taken_in += events

    def close(self) -> None:
        """Nothing more comes by it."""
        self._channel.drop_supplier(self)

    def take_in(self, arrived: Sequence[Item], *, wait: bool = False, until: int = 0) -> int:
        """Queue events for all receivers that want them.

        Returns how many were queued before one could not be, because a consumer that must not lose it has
        no room, or before that instant of the monotonic clock had come, if one is given: callbacks
        may be slow. With `wait`, waits for room; events for a channel that has been closed are let go, and
        counted as if they had been queued.
        """
        if self._settling is None:
            done, is_closed = self._queue_all(arrived, wait=wait, until=until)
            return len(arrived) if is_closed else done
        queue = partial(self._queue_all, wait=wait, until=until)
        done, untried = take_in_settled(self._settling, queue, arrived, wait=wait)
        self.let_go += untried
        return done

    def _queue_all(self, arrived: Sequence[Item], *, wait: bool, until: int) -> tuple[int, bool]:
        """See `take_in`: how many were really queued, and whether the rest never will be."""
        done = self._call_for_all(arrived, until) if isinstance(arrived, IncomingBatch) else 0
        some = 1 if until else len(arrived)
        try:
            while done < len(arrived):
                if until and self._is_late(until):
                    return done, False
                routes = self.entry.routes
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
        """Call callbacks for one event, if that is all and nothing is to be queued; else False.

        What a gateway has brought may have been here before, and is looked at first (`links.mesh.ingress`).
        """
        try:
            call = self._calls[event.__class__]
        except KeyError:
            call = self._calls[event.__class__] = self._caller(event.__class__)
        if call is None or (said[HEADERS] is not None and VIA in said[HEADERS]):
            return False
        self._taken_in += 1  # before: who was relieved of the reading does not come back here
        if call(event, header_of, said):
            return True
        self._taken_in -= 1
        return False

    def shows(self, cls: type | None) -> bool:
        """Whether all that an event of a class is for asks for views: see `show`."""
        route = None if cls is None else self.entry.routes.get(cls)
        return route is not None and route.shows

    def show(self, event: Event, header_of: Callable[[Any], Header], said: Any) -> bool:
        """As `call`, for an event whose arrays hold during the call only; False if somebody may keep it."""
        route = self.entry.routes.get(event.__class__)
        if route is None or not route.shows or route.call_one is None:
            return False
        if said[HEADERS] is not None and VIA in said[HEADERS]:
            return False
        route.call_one(event, header_of, said)
        self._taken_in += 1
        return True

    def use(self, routes: Mapping[type, Route]) -> None:
        self.entry.use(routes)
        self._calls = {}

    def _caller(self, cls: type) -> CallOne | None:
        route = self.entry.routes.get(cls)
        if route is None:
            return None
        if route.has_queue:
            return self._direct_caller(route)
        return None if route.calls_need_header else route.call_one

    def _direct_caller(self, route: Route) -> CallOne | None:
        """What calls the only receiver of an event, where that has a queue in which nothing waits."""
        sole = self._sole_of(route)
        if sole is None or sole[1].needs_header:
            return None
        (queue, _), entry, readers = sole, self.entry, self._channel.pools.readers
        routes, lock = entry.routes, entry.lock
        caller, wants = queue.caller, route.wants
        assert caller is not None

        def call(event: Any, header_of: Callable[[Any], Header], said: Any) -> bool:
            reader = readers.get(get_ident())
            if reader is None:
                return False
            now = reader.now()
            if now >= reader.direct_until or not caller.is_free():
                return False
            if wants is not None and not wants(event, NO_HEADER):
                return entry.routes is routes
            with lock:
                is_current = entry.gone is None and entry.routes is routes
                if not (is_current and queue.take_directly(1, said[PRIORITY])):
                    return False
                entry.matched += 1
            caller.call_one(event, header_of, said, reader, now)
            return True

        return call

    def _sole_of(self, route: Route) -> tuple[EventQueue, ReceiverCondition | AnyCondition] | None:
        """The queue that is the only target, if its receiver can be called past it."""
        sole = route.sole if self._calls_directly else None
        return None if sole is None or sole[0].caller is None or route.lifetime_ns is not None else sole

    def _call_directly(self, lot: IncomingBatch, route: Route) -> int:
        """As `_direct_caller`, for events that came together, some at a time; how many of them."""
        sole, reader = self._sole_of(route), self._channel.pools.readers.get(get_ident())
        if reader is None or sole is None or route.choose is None:
            return 0
        (queue, condition), routes = sole, self.entry.routes
        caller = queue.caller
        assert caller is not None
        while lot.done < len(lot) and reader.now() < reader.direct_until and caller.is_free():
            first = lot.done
            events = lot.events[first : first + BATCH]
            places: Sequence[int] = range(first, first + len(events))
            if not condition.is_open:
                chosen = route.choose(events, lot.first)
                places, events = [first + at for at in chosen], [events[at] for at in chosen]
            with self.entry.lock:
                if self.entry.gone is not None or self.entry.routes is not routes:
                    break
                if events and not queue.take_directly(len(events), lot.first.priority):
                    break
                self.entry.matched += len(events)
            # Before they are called: who is relieved of the reading does not come back here.
            lot.done = min(first + BATCH, len(lot))
            self._taken_in += lot.done - first
            if events:
                caller.call_many(events, partial(_at, lot, places), reader)
        return lot.done

    def _call_for_all(self, lot: IncomingBatch, until: int) -> int:
        """Call inline callbacks, if that is all and none needs the header of each event; how far it came."""
        route = self.entry.routes.get(lot.events[0].__class__)
        if route is None or route.call_many is None or route.has_queue:
            return 0 if route is None or not route.has_queue else self._call_directly(lot, route)
        turns = self._turns(len(lot), until) if until else self._turns_while_open(len(lot))
        done = route.call_many(lot.events, turns, lot.first, lot.header_of)
        self._taken_in += done
        return done

    def _turns(self, events: int, until: int) -> Iterator[int]:
        """How many of so many events are next, after each look at the clock, until it is too late."""
        now, done, some = self._clock.monotonic_ns, 0, 1
        while done < events and now() < until:
            yield some
            done += some
            some = 4 * some if some < MOST_CALLS else MOST_CALLS

    def _turns_while_open(self, events: int) -> Iterator[int]:
        """The same until this way in is closed: another session may have begun, and these would be late."""
        for _ in range(0, events, BATCH):
            if self.entry.gone is None:
                yield BATCH

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
        call = route.call_one
        assert call is not None
        for event, header, deadline in islice(_from(arrived, first), most):
            if event.__class__ is not cls or self.entry.routes is not routes:
                break
            if deadline and self._is_late(deadline):
                route.expire(event, header)
            else:
                call(event, _given, header)
            done += 1
        self._taken_in += done - first
        return done

    def _queue_from(self, arrived: Sequence[Item], first: int) -> tuple[int, EventQueue | None]:
        """Queue events of one priority until one is full, or an inline callback runs, outside the lock."""
        lots: defaultdict[EventQueue, list[Item]] = defaultdict(list)
        called, full, done, priority = None, None, first, arrived[first][1].priority
        found = self._match_all(arrived, first)
        with self.entry.lock:
            if self.entry.gone is not None:
                raise self.entry.gone()
            if not found.hold(self.entry.routes):
                found = self._match_all(arrived, first)
            for item, queues in zip(_from(arrived, first), found.queues, strict=False):
                event, header, deadline = item
                if header.priority != priority:
                    break
                route = self.entry.routes.get(event.__class__)
                if route is not None and route.has_queue:
                    full = self.entry.allot(queues, item, lots)
                    if full is not None:
                        break
                    if route.keep is not None:  # only what a gateway brought is kept for late joiners here
                        route.keep(item)
                done += 1
                if route is not None and route.inline is not None:
                    called = route
                    break
            for queue, items in lots.items():
                if items:
                    queue.put_many(items)
                    self.entry.matched += len(items)
        if called is not None and deadline and self._is_late(deadline):
            called.expire(event, header)
        elif called is not None and called.call_one is not None:
            called.call_one(event, _given, header)
        self._taken_in += done - first
        self._some = min(TOGETHER, 2 * max(1, done - first))
        return done, full

    def _match_all(self, arrived: Sequence[Item], first: int) -> MatchedQueues:
        """The queues of some of these events, found without the lock; they may be of types not known here."""
        routes = self.entry.routes
        changes = changes_of(routes)
        some = islice(_from(arrived, first), self._some)
        queues = [
            () if (route := routes.get(event.__class__)) is None else route.queues(event, header)
            for event, header, _ in some
        ]
        return MatchedQueues(routes, changes, queues)


def _given(header: Header) -> Header:
    return header


def _at(lot: IncomingBatch, places: Sequence[int], place: int) -> Header:
    return lot.header_of(places[place])


def _from(arrived: Sequence[Item], first: int) -> Iterator[Item]:
    """Those from a place on, uncopied: where a queue is full it is asked again for every event."""
    return map(arrived.__getitem__, range(first, len(arrived))) if first else iter(arrived)

"""A supplier: checks an event, gives it its header and sequence number, and puts it into receivers' queues.

The way of a push is generated per event type (`heliograph.channel.publish.codegen`) and bound to the supplier
when the first event of that type comes. Order is promised per supplier, and all-or-nothing needs a look at
several lanes, so one push at a time of a channel queues; what it holds meanwhile is held for a microsecond,
never while user code runs. Filters are evaluated before that, but for what they ask of the event's place (see
`heliograph.channel.routing.compiler`), and inline callbacks run in the pushing thread after it.

A push enters every matching lane or none. When one is full the push waits, without the lock but keeping its
turn among the pushes of this supplier, until there is room or `max_blocking` is over.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import count, repeat, takewhile
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Never, TypeAlias, TypeVar, Unpack, cast

from heliograph.channel.inline_counters import count_of, take_numbers
from heliograph.channel.publish.batch import OutgoingBatch
from heliograph.channel.publish.codegen import PushContext
from heliograph.channel.publish.options import PLAIN, Said, Stamp, check_timeout, stamp
from heliograph.codec.validate import validate_all
from heliograph.errors import (
    InvalidEvent,
    NotPossible,
    NotReentrant,
    QueueFull,
    WouldDeadlock,
    WrongEventType,
)
from heliograph.model.event import DELAYED_EPOCHS, Event, Header, info_of
from heliograph.runtime.option_names import names_options
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.admin import LetsThrough
    from heliograph.channel.channel import Channel
    from heliograph.channel.explain import Explanation
    from heliograph.channel.publish.codegen import Push
    from heliograph.channel.publish.periodic import Periodic
    from heliograph.channel.queueing.queue import Item, Lane
    from heliograph.channel.routing.compiler import ConsumerRequest, Found, Route
    from heliograph.runtime.ports import Lock

T = TypeVar("T", bound=Event)
Tried: TypeAlias = "tuple[Route, Header | None, Lane | None]"
"""Of a push: a header if the event has its place, and a lane that had no room for it."""

TOGETHER: Final = 512
"""Events of one `push_many` that are queued while other pushes wait."""


class Receipt:
    """The outcome of `push_nowait`. On channels that acknowledge from memory it is known at once."""

    __slots__ = ("_header",)

    def __init__(self, header: Header) -> None:
        self._header = header

    @property
    def header(self) -> Header:
        return self._header

    def result(self, timeout: float | None = None) -> bool:
        """True when the ack level is met."""
        check_timeout("result", timeout)
        return True

    def when_kept(self, call: Callable[[BaseException | None], object]) -> None:
        """Call it once the event is kept, with what went wrong if it is not; it must not wait."""
        call(None)


class Supplier(Generic[T]):
    """One source of events. Obtained from `channel.supplier()`; `channel.push` uses one of its own."""

    forwards = True
    """Whether its events go to other stations as well."""
    home: object | None = None
    """Of what other stations push: behind which worker of this station it was, if any; it gets none of it."""
    takes_timeout = False
    """Whether `push` can be told how long to wait."""
    names_itself = True
    """Whether its events carry its own name, so that only those who listen to that need to be routed to."""

    def __init__(
        self, channel: Channel[T], name: str, epoch: int, lock: Lock | None = None, last_sequence: int = 0
    ) -> None:
        self.name = name
        self.epoch = epoch
        self._lock = channel.entry if lock is None else lock
        self.matched = 0
        self._channel = channel
        self._clock = channel.ports.clock
        self._now = channel.ports.clock.time_ns
        self._next_station_seq = channel.next_station_seq
        self._turn = channel.ports.tasks.condition(self._lock, f"turn of {name}")
        self._routes: Mapping[type, Route] = {}
        self._gone: Callable[[], Exception] | None = None
        # The ways in by event type, and what bars them: newer routes, or the lane that a push waits for.
        self._ways: dict[type, Push] = {}
        self._barred: list[Any] = []
        # Counting is atomic, so a push that queues nowhere needs no lock.
        self.last_sequence = last_sequence
        """Of the last durable event under this name when it was opened; 0 when there is none."""
        self._sequences = count(last_sequence + 1)
        self._next_sequence = self._sequences.__next__
        self._unused = 0
        """Numbers of events that had one before it was known that there was no room."""
        self._later: tuple[int, count[int]] | None = None
        self._periodic: set[Periodic[T]] = set()
        self.points: tuple[tuple[str, LetsThrough], ...] = ()
        """Its own filter, and those of its admin and of the configuration, each with its name."""
        self.filtered = 0
        """Events that a filter of its own, or of its admin, has stopped."""

    # Pushing

    def push(self, event: T, **said: Unpack[Said]) -> bool:
        """Hand an event to every consumer that wants it; True when the channel's ack level is met."""
        try:
            way = self._ways[event.__class__]
        except KeyError:
            way = self._way(event)
        # Most pushes say nothing: an empty dict is cheaper than a default for each of what they could say.
        if not said:
            way(event)
        elif (stamped := self._stamp(**said)).postponed:
            self._postpone(event, stamped)
        else:
            way(event, stamped, None)
        return True

    def push_nowait(self, event: T, **said: Unpack[Said]) -> Receipt:
        """As `push`, but never waits: QueueFull at once when a consumer that must not lose it has no room."""
        stamped = self._stamp(**said)
        if stamped.postponed:
            return Receipt(self._postpone(event, stamped))
        return Receipt(self._way(event)(event, stamped, 0.0))

    @names_options
    def push_many(self, events: Iterable[T] | Mapping[str, Any] | Any) -> bool:
        """Push events in order. Takes events, a mapping of columns, or an Arrow batch or table.

        All are checked before the first is pushed: InvalidEvent and WrongEventType name the `index` of the
        one that is wrong, and then none is pushed. A QueueFull names how many had been pushed before.
        """
        batch = self.as_events(events)
        routes = self._routes
        alike = self.validate_all(batch)
        # Where a callback runs inside push, it runs between one event and the next.
        together = not any(not route.has_queue or route.inline is not None for route in routes.values())
        done, some = 0, TOGETHER
        while done < len(batch):
            queued = self._queue_together(batch[done : done + some], alike=alike) if together else 0
            # Where queues are full few fit in: filters are not asked about all the others each time.
            some = min(TOGETHER, 2 * max(1, queued))
            if not queued:
                try:
                    self._way(batch[done])(batch[done], PLAIN, None)
                except QueueFull as error:
                    error.pushed = done
                    raise
            done += queued or 1
        return True

    async def apush(self, event: T, **said: Unpack[Said]) -> bool:
        """As `push`, for asyncio: waiting for room does not hold up the loop."""
        way, stamped = self._way(event), self._stamp(**said)
        if stamped.postponed:
            self._postpone(event, stamped)
            return True
        try:
            way(event, stamped, 0.0)
        except QueueFull:
            await asyncio.to_thread(way, event, stamped, None)
        return True

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

    def explain(self, event: T) -> Explanation:
        """Who would get an event, and at which step it would stop; see `heliograph.channel.explain`."""
        from heliograph.channel.explain import explain  # noqa: PLC0415 - for people who wonder

        return explain(self, self._channel.receivers(), event)

    def next_header(self, event: T) -> Header:
        """The header that a push of it would make now, but for `station_seq`."""
        route = self._routes.get(event.__class__) or self._refuse(event)
        route.validate(event)
        sequence = count_of(self._next_sequence)
        header: Header = route.stamp(event, self.name, self.epoch, sequence, self._now(), 0)
        return header

    def close(self) -> None:
        """No more pushes; what was pushed is still delivered."""
        self.cancel_periodic()
        self._channel.drop_supplier(self)

    def cancel_periodic(self) -> None:
        """Make nothing by the clock any more."""
        for periodic in tuple(self._periodic):
            periodic.cancel()

    def forget_periodic(self, periodic: Periodic[T]) -> None:
        self._periodic.discard(periodic)

    def __enter__(self) -> Supplier[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stamp(self, **said: Unpack[Said]) -> Stamp:
        """What a push says, checked."""
        stamped = stamp(**said)
        if stamped.id is not None:
            raise NotPossible(
                self._channel.name,
                "id=: repeated pushes are found in the journal, so durability='persistent' is needed",
            )
        return stamped

    def _postpone(self, event: T, said: Stamp) -> Header:
        """Have an event delivered at its time."""
        item, wait_ns = self._postponed(event, said, lambda _: 0)
        assert self._later is not None
        self._channel.delayed.put(item, self._clock.monotonic_ns() + wait_ns, self._later[1].__next__)
        return item[1]

    def _postponed(self, event: T, said: Stamp, numbered: Callable[[count[int]], int]) -> tuple[Item, int]:
        """An event that is to be delivered later, with its header, and the nanoseconds until then.

        Such events are a life of this supplier of their own: they do not come in the order in which they were
        pushed, and those that still wait must not look like a loss among the others.
        """
        (self._routes.get(event.__class__) or self._refuse(event)).validate(event)
        self._insist_on_outside()
        with self._lock:
            route = self._routes.get(event.__class__) or self._refuse(event)
            if self._later is None:
                self._later = (DELAYED_EPOCHS | self._channel.ports.random.id64() >> 2, count(1))
            epoch, sequences = self._later
            now = self._now()
            place = self._next_station_seq()
            header = said.on(route.stamp(event, self.name, epoch, numbered(sequences), now, place))
        wait_ns = said.delay_ns if said.due_ns is None else said.due_ns - now
        return (event, header, 0), max(0, wait_ns or 0)

    def _way(self, event: T) -> Push:
        """The way in for an event; made when the first of its type comes by these routes."""
        way = self._ways.get(event.__class__)
        if way is None:
            if self._gone is not None:
                raise self._gone()
            with self._lock:
                route = self._routes.get(event.__class__) or self._refuse(event)
                way = self._ways[event.__class__] = route.compile_push(*self._own())
        return way

    def _own(self) -> PushContext:
        return PushContext(
            self.name,
            self.epoch,
            self._next_sequence,
            self._next_station_seq,
            self._now,
            self._clock.monotonic_ns,
            self,
            self._lock.acquire,
            self._lock.release,
            self._lock.mine,
            self._barred,
            self._push_slowly,
            self._refuse_inside,
            self._finish,
        )

    def _refuse_inside(self) -> Never:
        raise NotReentrant(self._channel.name)

    def _insist_on_outside(self) -> None:
        """A push out of the middle of a push, or of a change of a lane, would come between its steps."""
        if self._lock.mine():
            raise NotReentrant(self._channel.name)

    def _insist_on_outside_of(self, lanes: Iterable[Lane]) -> None:
        if any(lane.mine() for lane in lanes):
            raise NotReentrant(self._channel.name)

    def _finish(self, item: Item, lanes: Sequence[Lane], keep: Callable[[Item], object] | None) -> None:
        """Under the lock: an exception came when some lanes had an event. The others get it, too."""
        if keep is not None:
            keep(item)
        self._finish_all(dict.fromkeys(lanes, (item,)))

    def _finish_all(self, lots: Mapping[Lane, Sequence[Item]]) -> None:
        for lane, lot in lots.items():
            lane.put_missing(lot)
        self.matched += sum(map(len, lots.values()))

    def _push_slowly(
        self, event: T, said: Stamp, max_blocking: float | None, number: int | None = None
    ) -> Header:
        """Push when it is this event's turn and there is room; other pushes of this supplier wait behind."""
        numbers = [] if number is None else [number]
        try:
            return self._push_in_turn(event, said, max_blocking, numbers)
        finally:
            if numbers:
                with self._lock:
                    self._unused += len(numbers)

    def _push_in_turn(self, event: T, said: Stamp, max_blocking: float | None, numbers: list[int]) -> Header:
        seconds = self._channel.qos.max_blocking if max_blocking is None else max_blocking
        deadline = self._clock.monotonic_ns() + round(seconds * 1e9)
        queue = partial(self._try_to_queue, event, said, self._ask(event, said), numbers)
        self._insist_on_outside()
        full = None
        try:
            with self._lock:
                self._turn.wait_for(lambda: not self._barred or self._drains(self._barred[0]), seconds)
                if self._barred:
                    raise self._cannot_wait(self._barred[0], seconds)
                route, header, full = queue()
                if full is not None:
                    self._barred.append(full)
            if full is not None:
                route, header = self._queue_when_room(queue, full, seconds, deadline)
        finally:
            if full is not None:
                with self._lock:
                    self._barred.clear()
                    self._turn.notify_all()
        assert header is not None
        if route.inline is not None:
            route.inline(event, header)
        return header

    def _queue_when_room(
        self,
        queue: Callable[[], Tried],
        full: Lane,
        seconds: float,
        deadline: int,
    ) -> tuple[Route, Header]:
        while not self._drains(full) and full.wait_for_room(seconds_until(self._clock, deadline)):
            with self._lock:
                route, header, still_full = queue()
                if still_full is None:
                    assert header is not None
                    return route, header
                full = self._barred[0] = still_full
                self._turn.notify_all()
        raise self._cannot_wait(full, seconds)

    def _ask(self, event: Any, said: Stamp) -> ConsumerRequest:
        """The route of an event, and who of those may want it that can be asked without the lock."""
        route: Route = self._routes.get(event.__class__) or self._refuse(event)
        return route, None if route.early is None else route.early(event, self._known(route, said))

    def _known(self, route: Route, said: Stamp) -> Header:
        """What filters are told of an event before it has its place."""
        header = route.stamping.known(self.name, self.epoch)
        return header if said is PLAIN else said.on(header)

    def _try_to_queue(self, event: T, said: Stamp, asked: ConsumerRequest, numbers: list[int]) -> Tried:
        """Under the lock. A number that was taken in vain is left in `numbers`, for the next try."""
        route = self._routes.get(event.__class__) or self._refuse(event)
        if route is not asked[0]:
            asked = self._ask(event, said)
        lanes = route.lanes_without_place(asked[1]) or ()
        self._insist_on_outside_of(lanes)
        for lane in lanes:
            if lane.waiting >= lane.blocks_at:
                return route, None, lane
        number = numbers.pop() if numbers else self._next_sequence()
        header = self._header(route, event, said, number)
        full = self._enqueue(route, event, header, asked[1])
        if full is not None:
            numbers.append(number)
        return route, header, full

    def _drains(self, lane: Lane) -> bool:
        """Whether only the calling thread can make room in it."""
        return self._channel.pools.runs_here(lane)

    def _cannot_wait(self, lane: Lane, seconds: float) -> Exception:
        if self._drains(lane):
            return WouldDeadlock(lane.name)
        return QueueFull(lane.who_is_full(), lane.limit, seconds)

    def _queue_together(self, events: Sequence[T], *, alike: bool) -> int:
        """Queue events until one does not fit in with those before it; how many were queued.

        Args:
            events: at least one.
            alike: whether all of them are of one class.
        """
        route: Route = self._routes.get(events[0].__class__) or self._refuse(events[0])
        if not route.has_queue or route.inline is not None:
            return 0
        if not alike:
            events = list(takewhile(lambda event: event.__class__ is route.cls, events))
        wanted, found = self._ask_about(route, events)
        self._insist_on_outside()
        with self._lock:
            if self._barred or self._routes.get(route.cls) is not route:
                return 0
            if wanted is not None:
                return self._queue_bulk(route, wanted, events)
            if route.always is None:
                items, lots = self._sorted(route, events, found)
            else:
                room = min((lane.blocks_at - lane.waiting for lane in route.always), default=inf)
                items = self._stamped(route, events[: int(max(0, min(room, TOGETHER)))])
                lots = dict.fromkeys(route.always, items)
            self._put_lots(items, {lane: lot for lane, lot in lots.items() if lot}, route.keep)
            return len(items)

    def _put_lots(
        self,
        items: Sequence[Item],
        lots: Mapping[Lane, Sequence[Item]],
        keep: Callable[[Item], object] | None = None,
    ) -> None:
        """Under the lock: queue what each lane is to get. However that ends, all lanes have it."""
        self._insist_on_outside_of(lots)
        kept = 0
        try:
            if keep is not None:
                for item in items:
                    keep(item)
                    kept += 1
            for lane, lot in lots.items():
                lane.put_many(lot)
            matched = sum(map(len, lots.values()))
        except BaseException:
            if keep is not None:
                for item in items[kept:]:
                    keep(item)
            self._finish_all(lots)
            raise
        self.matched += matched

    def _ask_about(
        self, route: Route, events: Sequence[T]
    ) -> tuple[Sequence[int] | None, Sequence[Found | None]]:
        """Without the lock: which events the only lane wants, where that can be said; else who wants each."""
        # What is asked of the header is the same for all of them.
        known = self._known(route, PLAIN)
        if route.sole is not None and route.choose is not None:
            return route.choose(events, known), ()
        if route.always is not None or route.early is None:
            return None, [None] * len(events)
        return None, list(map(route.early, events, repeat(known)))

    def _queue_bulk(self, route: Route, wanted: Sequence[int], events: Sequence[T]) -> int:
        """Under the lock: queue events of one class in the only lane there is; how many were queued."""
        assert route.sole is not None
        lane = route.sole[0]
        room = max(0, lane.blocks_at - lane.waiting)
        if len(wanted) > room:
            events, wanted = events[: wanted[int(room)]], wanted[: int(room)]
        if not events:
            return 0
        sequences = take_numbers(self._next_sequence, len(events))
        places = take_numbers(self._next_station_seq, len(events))
        if wanted:
            start = wanted[0]
            first = route.stamp(
                events[start], self.name, self.epoch, sequences[start], self._now(), places[start]
            )
            deadline = 0
            if route.lifetime_ns is not None:
                deadline = self._clock.monotonic_ns() + route.lifetime_ns
            if len(wanted) == len(events):
                bulk = OutgoingBatch(events, first, places, deadline)
            else:
                bulk = OutgoingBatch(
                    [events[place] for place in wanted],
                    first,
                    [places[place] for place in wanted],
                    deadline,
                    [sequences[place] for place in wanted],
                )
            self._insist_on_outside_of((lane,))
            matched = len(bulk)
            try:
                lane.put_bulk(bulk)
            except BaseException:
                lane.put_missing(bulk)
                self.matched += matched
                raise
            self.matched += matched
        return len(events)

    def _sorted(
        self, route: Route, events: Sequence[T], found: Sequence[Found | None]
    ) -> tuple[list[Item], dict[Lane, list[Item]]]:
        """Under the lock: items for as many events as there is room for, and which of them each lane gets."""
        places: defaultdict[Lane, list[int]] = defaultdict(list)
        items: list[Item] = []
        fitting = 0
        for place, event in enumerate(events):
            lanes = route.lanes_without_place(found[place])
            if lanes is None:
                items += self._stamped(route, (event,))
                lanes = route.lanes(event, items[-1][1], found[place])
            if any(len(places[lane]) >= lane.blocks_at - lane.waiting for lane in lanes):
                break
            for lane in lanes:
                places[lane].append(place)
            fitting += 1
        if len(items) > fitting:
            self._unused += 1
        items = items[:fitting] or self._stamped(route, events[:fitting])
        return items, {lane: [items[place] for place in those] for lane, those in places.items()}

    def _allot(self, lanes: Sequence[Lane], item: Item, lots: defaultdict[Lane, list[Item]]) -> Lane | None:
        """Add an event to what will be put into each of these lanes, or return one that has no room."""
        for lane in lanes:
            if len(lots[lane]) >= lane.blocks_at - lane.waiting:
                return lane
        for lane in lanes:
            lots[lane].append(item)
        return None

    def _stamped(self, route: Route, events: Sequence[T]) -> list[Item]:
        stamp, name, epoch = route.stamp, self.name, self.epoch
        next_sequence, now, next_station_seq = self._next_sequence, self._now, self._next_station_seq
        deadline = 0
        if route.lifetime_ns is not None:
            deadline = self._clock.monotonic_ns() + route.lifetime_ns
        return [
            (event, stamp(event, name, epoch, next_sequence(), now(), next_station_seq()), deadline)
            for event in events
        ]

    def _header(self, route: Route, event: T, said: Stamp, number: int) -> Header:
        header = route.stamp(event, self.name, self.epoch, number, self._now(), self._next_station_seq())
        return header if said is PLAIN else said.on(header)

    def _enqueue(self, route: Route, event: T, header: Header, found: Found | None) -> Lane | None:
        """Under the lock: queue the event in every lane that wants it, or return one that is full."""
        if not route.has_queue:
            return None
        lanes = route.lanes(event, header, found)
        self._insist_on_outside_of(lanes)
        for lane in lanes:
            if lane.waiting >= lane.blocks_at:
                return lane
        self._put_item(route, self._item(event, header), lanes)
        return None

    def _put_item(self, route: Route, item: Item, lanes: Sequence[Lane]) -> None:
        """Under the lock. However that ends, all lanes have it."""
        try:
            if route.keep is not None:
                route.keep(item)
            for lane in lanes:
                lane.put(item)
            matched = len(lanes)
        except BaseException:
            self._finish(item, lanes, route.keep)
            raise
        self.matched += matched

    def _item(self, event: T, header: Header) -> Item:
        deadline = 0
        if header.lifetime_ns is not None:
            deadline = self._clock.monotonic_ns() + header.lifetime_ns
        return event, header, deadline

    def validate(self, event: T) -> None:
        """Raise what a push of it would raise at once."""
        (self._routes.get(event.__class__) or self._refuse(event)).validate(event)

    def validate_all(self, events: Sequence[T]) -> bool:
        """The same for each of a batch, with its `index`; whether all are of one class."""
        if not events:
            return True
        route = self._routes.get(events[0].__class__)
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
        if waits and self.takes_timeout:
            check_timeout(self._channel.name, said.get("timeout"))
            said = {name: value for name, value in said.items() if name != "timeout"}
        self._stamp(**said)

    def _refuse(self, event: Any) -> Any:
        if self._gone is not None:
            raise self._gone()
        given: Any = type(event)
        carried = tuple(f"{info_of(cls).name} ({cls.__qualname__})" for cls in self._channel.types)
        if issubclass(given, Event):
            name = f"{info_of(given).name} ({given.__qualname__})"
            raise WrongEventType(self._channel.name, name, carried)
        fields = "**fields" if isinstance(event, dict) else "..."
        instead = " or ".join(f"{cls.__qualname__}({fields})" for cls in self._channel.types)
        raise WrongEventType(self._channel.name, f"{event!r:.60}", carried, instead)

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
    def lock(self) -> Lock:
        return self._lock

    @property
    def pushed(self) -> int:
        return count_of(self._next_sequence) - 1 - self.last_sequence - self._unused

    def use(self, routes: Mapping[type, Route]) -> None:
        """The routes from the next push on. Under the lock."""
        before = self._barred
        self._routes, self._ways, self._barred = routes, {}, [*before]
        before.append(None)

    def retire(self, error: Callable[[], Exception]) -> None:
        """Every push raises from now on. Makes plain stores only: in the child of a fork no lock holds."""
        self._gone = error
        self.use({})

    def readmit(self, routes: Mapping[type, Route]) -> None:
        """It may push again, by these routes. Under the lock."""
        self._gone = None
        self.use(routes)

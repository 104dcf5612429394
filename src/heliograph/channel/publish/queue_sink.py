"""The sink of a channel that keeps nothing: what a supplier pushes goes into receivers' queues at once.

The way of a push is generated per event type (`heliograph.channel.publish.codegen`) and bound to the supplier
when the first event of that type comes. Filters are evaluated before the lock is taken (see
`heliograph.channel.routing.compiler`), and inline callbacks run in the pushing thread after it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Any, Final, Never

from heliograph.channel.batch import OutgoingBatch
from heliograph.channel.inline_counters import take_numbers
from heliograph.channel.publish.acks import Receipt, outcome
from heliograph.channel.publish.codegen import PushContext
from heliograph.channel.publish.options import PLAIN
from heliograph.channel.routing.compiler import match
from heliograph.codec.sizes import count_within
from heliograph.errors import NotPossible, NotReentrant, QueueFull
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.channel.publish.acks import Ack, Ticket
    from heliograph.channel.publish.codegen import Push
    from heliograph.channel.publish.entry import Entry
    from heliograph.channel.publish.host import SupplierHost
    from heliograph.channel.publish.numbering import Numbering
    from heliograph.channel.publish.options import Stamp
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.channel.routing.compiler import MatchedQueues, Route
    from heliograph.model.event import Header

TOGETHER: Final = 512
"""Events of one `push_many` that are queued while other pushes wait."""
TOGETHER_BYTES: Final = 1 << 18
"""Bytes of them: by so much, or by one event, a queue may exceed its bound in bytes."""


class QueueSink:
    """See the module."""

    def __init__(self, channel: SupplierHost, entry: Entry, numbering: Numbering, ack: Ack) -> None:
        self._channel = channel
        self._clock = channel.ports.clock
        self._entry = entry
        self._numbering = numbering
        self._ack = ack
        self.takes_timeout = ack.watching is not None
        self.pushes: dict[type, Push] | None = None if ack.watching is not None else {}
        """The generated pushes by event type; None where a push has to wait for more than a queue."""

    def use_routes(self) -> None:
        """The entry has other routes from now on. Under the lock."""
        if self.pushes is not None:
            self.pushes = {}

    def check_said(self, said: Stamp) -> None:
        if said.id is not None:
            raise NotPossible(
                self._channel.name,
                "id=: repeated pushes are found in the journal, so durability='persistent' is needed",
            )
        self._ack.check_said(self._channel.name, said)

    def push(self, event: Any, said: Stamp, timeout: float | None) -> bool:
        if self._ack.watching is None:
            self._pass_on(event, said, None)
            return True
        self._ack.check(self._channel)
        return outcome(*self._watched(event, said, None), timeout)

    def push_nowait(self, event: Any, said: Stamp) -> Receipt:
        if self._ack.watching is not None:
            ticket, header_of = self._watched(event, said, 0.0)
            return Receipt(header_of, None, ticket)
        header = self._pass_on(event, said, 0.0)
        return Receipt(lambda: header)

    async def apush(self, event: Any, said: Stamp, seconds: float | None) -> bool:
        if self._ack.watching is not None:
            return await asyncio.to_thread(self.push, event, said, seconds)
        try:
            self._pass_on(event, said, 0.0)
        except QueueFull:
            await asyncio.to_thread(self._pass_on, event, said, None)
        return True

    def push_many(self, events: Sequence[Any], timeout: float | None, *, alike: bool) -> bool:
        if self._ack.watching is not None:
            return self._push_watched(events, timeout)
        routes = self._entry.routes
        # Where a callback runs inside push, it runs between one event and the next.
        together = not any(not route.has_queue or route.inline is not None for route in routes.values())
        done, some = 0, TOGETHER
        while done < len(events):
            batch = events[done : done + some]
            some, largest = count_within(batch, TOGETHER_BYTES, alike=alike)
            batch = batch if some == len(batch) else batch[:some]
            queued = self._queue_together(batch, alike=alike, largest=largest) if together else 0
            # Where queues are full few fit in: filters are not asked about all the others each time.
            some = min(TOGETHER, 2 * max(1, queued))
            if not queued:
                try:
                    self.way(events[done])(events[done], PLAIN, None)
                except QueueFull as error:
                    error.pushed = done
                    raise
            done += queued or 1
        return True

    def forget(self, *_: object) -> Never:
        raise NotPossible(self._channel.name, "only what is compacted can forget: hg.QoS(compaction='key')")

    def close(self) -> None:
        """It holds nothing."""

    # One event

    def _pass_on(self, event: Any, said: Stamp, max_blocking: float | None) -> Header:
        """Where nobody is waited for: into the queues, or to whoever delivers it later."""
        if said.postponed:
            return self._postpone(event, said)
        return self.way(event)(event, said, max_blocking)

    def way(self, event: Any) -> Push:
        """The generated push of an event; made when the first of its type comes by these routes."""
        assert self.pushes is not None
        way = self.pushes.get(event.__class__)
        if way is None:
            if self._entry.gone is not None:
                raise self._entry.gone()
            with self._entry.lock:
                route = self._entry.route_of(event)
                way = self.pushes[event.__class__] = route.compile_push(*self._context())
        return way

    def _context(self) -> PushContext:
        entry, numbering = self._entry, self._numbering
        return PushContext(
            numbering.name,
            numbering.epoch,
            numbering.next_sequence,
            numbering.next_station_seq,
            numbering.now,
            numbering.monotonic,
            entry,
            entry.lock.acquire,
            entry.lock.release,
            entry.lock.mine,
            entry.barred,
            self._push_slowly,
            self._refuse_inside,
            entry.finish,
        )

    def _refuse_inside(self) -> Never:
        raise NotReentrant(self._channel.name)

    def _push_slowly(self, event: Any, said: Stamp, max_blocking: float | None) -> Header:
        numbering = self._numbering
        return self._entry.push(
            event,
            lambda route: numbering.known(route, said),
            lambda route: numbering.header(route, event, said),
            max_blocking,
        )

    def _postpone(self, event: Any, said: Stamp) -> Header:
        """Have an event delivered at its time."""
        self._entry.route_of(event).validate(event)
        self._entry.insist_on_outside()
        with self._entry.lock:
            route = self._entry.route_of(event)
            item, wait_ns, next_sequence = self._numbering.postponed(route, event, said, lambda _: 0)
        self._channel.delayed.put(item, self._clock.monotonic_ns() + wait_ns, next_sequence)
        return item[1]

    def _watched(self, event: Any, said: Stamp, max_blocking: float | None) -> tuple[Ticket, Any]:
        """Pass an event on whose acknowledgements are waited for; its ticket, and what gives its header."""
        watching, numbering, tickets = self._ack.watching, self._numbering, list[Any]()
        assert watching is not None
        self._entry.route_of(event).validate(event)

        def stamp(route: Route) -> Header:
            header = numbering.header(route, event, said)
            tickets.append(watching.expect(header.id))
            return header

        header = self._entry.push(event, lambda route: numbering.known(route, said), stamp, max_blocking)
        return tickets[0], lambda: header

    def _push_watched(self, events: Sequence[Any], timeout: float | None) -> bool:
        self._ack.check(self._channel)
        until = None if timeout is None else self._clock.monotonic_ns() + round(timeout * 1e9)
        passed: list[tuple[Ticket, Any]] = []
        try:
            for event in events:
                passed.append(self._watched(event, PLAIN, None))  # noqa: PERF401 - how many, if one is refused
        except QueueFull as error:
            error.pushed = len(passed)
            raise
        return all(
            outcome(ticket, header_of, None if until is None else seconds_until(self._clock, until))
            for ticket, header_of in passed
        )

    # Several events

    def _queue_together(self, events: Sequence[Any], *, alike: bool, largest: int | None) -> int:
        """Queue events until one does not fit in with those before it; how many were queued.

        Args:
            events: at least one.
            alike: whether all of them are of one class.
            largest: what each takes at most, where that is known.
        """
        entry, numbering = self._entry, self._numbering
        routes = entry.routes
        route = entry.route_of(events[0])
        if not route.has_queue or route.inline is not None:
            return 0
        if not alike:
            events = list(takewhile(lambda event: event.__class__ is route.cls, events))
        wanted: Sequence[int] | None = None
        found: MatchedQueues | None = None
        if route.sole is not None and route.choose is not None:
            # What is asked of the header is the same for all of them.
            wanted = route.choose(events, numbering.known(route, PLAIN))
        elif route.always is None:
            found = match(routes, events, numbering.known(route, PLAIN))
        entry.insist_on_outside()
        with entry.lock:
            if entry.barred or entry.routes is not routes:
                return 0
            if wanted is not None:
                return self._queue_bulk(route, wanted, events, largest=largest)
            if found is not None:
                if not found.hold(routes):
                    return 0
                items, lots = self._sorted(route, events, found.queues)
            else:
                assert route.always is not None
                room = min((queue.blocks_at - queue.waiting for queue in route.always), default=inf)
                items = numbering.items(route, events[: int(max(0, min(room, TOGETHER)))])
                lots = dict.fromkeys(route.always, items)
            entry.put_lots(
                items, {queue: lot for queue, lot in lots.items() if lot}, route.keep, largest=largest
            )
            return len(items)

    def _queue_bulk(
        self, route: Route, wanted: Sequence[int], events: Sequence[Any], *, largest: int | None
    ) -> int:
        """Under the lock: queue events of one class in the only queue there is; how many were queued."""
        assert route.sole is not None
        queue, numbering = route.sole[0], self._numbering
        room = max(0, queue.blocks_at - queue.waiting)
        if len(wanted) > room:
            events, wanted = events[: wanted[int(room)]], wanted[: int(room)]
        if not events:
            return 0
        sequences = take_numbers(numbering.next_sequence, len(events))
        places = take_numbers(numbering.next_station_seq, len(events))
        if wanted:
            bulk = OutgoingBatch(
                events,
                numbering.known(route, PLAIN),
                sequences[0],
                numbering.now(),
                places,
                numbering.deadline(route),
                largest=largest,
            )
            if len(wanted) < len(events):
                bulk.events = [events[place] for place in wanted]
                bulk.places = [places[place] for place in wanted]
                bulk.sequences = [sequences[place] for place in wanted]
                bulk.sequence = bulk.sequences[0]
            self._entry.insist_on_outside_of((queue,))
            matched = len(bulk)
            try:
                queue.put_bulk(bulk)
            except BaseException:
                queue.put_missing(list(bulk))
                self._entry.matched += matched
                raise
            self._entry.matched += matched
        return len(events)

    def _sorted(
        self, route: Route, events: Sequence[Any], found: Sequence[Sequence[EventQueue]]
    ) -> tuple[list[Item], dict[EventQueue, list[Item]]]:
        """Under the lock: items for as many events as there is room for, and what of them each queue gets."""
        coming: defaultdict[EventQueue, int] = defaultdict(int)
        fitting = 0
        for queues in found:
            if any(coming[queue] >= queue.blocks_at - queue.waiting for queue in queues):
                break
            for queue in queues:
                coming[queue] += 1
            fitting += 1
        items = self._numbering.items(route, events[:fitting])
        lots: defaultdict[EventQueue, list[Item]] = defaultdict(list)
        for item, queues in zip(items, found, strict=False):
            for queue in route.entered(queues, item[0], item[1]):
                lots[queue].append(item)
        return items, lots

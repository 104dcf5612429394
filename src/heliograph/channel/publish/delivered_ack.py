"""The ack level "delivered": suppliers whose push waits until every reliable consumer has acknowledged.

`heliograph.delivery` fulfils `Watching`. A supplier opens a ticket for an event before anybody can have it,
the channel says to whom it passes it, each receiver's watch says what became of it there, and in the end the
ticket says whether everybody has acknowledged it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from heliograph.channel.publish.batch import Pushed
from heliograph.channel.publish.options import PLAIN, Said, Stamp, check_timeout
from heliograph.channel.publish.persistent_supplier import PersistentSupplier
from heliograph.channel.publish.remote_supplier import RemotePersistentSupplier, RemoteSupplier
from heliograph.channel.publish.supplier import Receipt, Supplier
from heliograph.errors import DeliveryTimeout, NotPossible, WouldDeadlock
from heliograph.model.event import Event, EventId
from heliograph.runtime.option_names import names_options

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.channel import Channel
    from heliograph.channel.history.feed import Feed
    from heliograph.channel.history.store import Store, StoreReceipt, SupplierLease
    from heliograph.channel.observer import Watch
    from heliograph.channel.queueing.queue import Item, Lane
    from heliograph.channel.routing.compiler import Found, Route
    from heliograph.model.event import Header
    from heliograph.runtime.ports import Clock

T = TypeVar("T", bound=Event)


class Ticket(Protocol):
    """What becomes of one event."""

    def wait(self, timeout: float | None = None) -> bool | None:
        """Whether everybody has acknowledged it; None when that is not known in time."""
        ...

    def forget(self) -> None:
        """Nobody gets the event after all."""
        ...

    def forget_unpassed(self) -> None:
        """The same, unless it has been passed on by now."""
        ...


class Watching(Protocol):
    """The monitor of one channel, for all its suppliers."""

    def expect(self, event: EventId, on_all: Callable[[], object] | None = None) -> Ticket:
        """An event will be passed on; `on_all` is called when everybody has acknowledged it."""
        ...

    def passing(self, item: Item, receivers: Iterable[str]) -> None:
        """It is passed to these receivers now. Events that nobody expects are not watched."""
        ...

    def watch(self, receiver: str) -> Watch:
        """Told what became of events at a receiver."""
        ...

    def acked(self, event: EventId, receiver: str) -> None:
        """A receiver has acknowledged an event."""
        ...

    def left(self, receiver: str) -> None:
        """A receiver is not on the channel any more."""
        ...

    def array(self) -> Sequence[Any]:
        """The events that are under way; see `heliograph.delivery.ack_watch.EventRow`."""
        ...

    def close(self) -> None: ...


def check_thread(channel: Channel[Any]) -> None:
    """WouldDeadlock when this thread is inside a callback of the channel that it would wait for."""
    for receiver in channel.neighbours.local_receivers():
        lane: Lane | None = getattr(receiver, "lane", None)
        if lane is not None and channel.pools.runs_here(lane):
            raise WouldDeadlock(lane.name)


def outcome(ticket: Ticket, header: Header, timeout: float | None) -> bool:
    delivered = ticket.wait(timeout)
    if delivered is None:
        raise DeliveryTimeout(header.channel, str(header.id), timeout or 0.0)
    return delivered


def _not_postponed(channel: str, said: Stamp) -> Stamp:
    if said.postponed:
        raise NotPossible(
            channel,
            "deliver_at= with ack='delivered': push would wait for acknowledgements until then and longer; "
            "postpone on a channel of another ack level",
        )
    return said


class MonitoredReceipt(Receipt):
    """The outcome of `push_nowait` where consumers acknowledge."""

    __slots__ = ("_clock", "_stored", "_ticket")

    def __init__(
        self, header: Header, ticket: Ticket, clock: Clock, stored: StoreReceipt | None = None
    ) -> None:
        super().__init__(header)
        self._ticket = ticket
        self._clock = clock
        self._stored = stored

    def result(self, timeout: float | None = None) -> bool:
        """True when everybody has acknowledged it, False when the monitor has given up."""
        check_timeout("result", timeout)
        if self._stored is not None:
            began = self._clock.monotonic_ns()
            self._stored.result(timeout)
            if timeout is not None:
                timeout = max(0.0, timeout - (self._clock.monotonic_ns() - began) / 1e9)
        return outcome(self._ticket, self.header, timeout)


class MonitoredSupplier(Supplier[T]):
    """A supplier whose `push` waits until every receiver has acknowledged."""

    takes_timeout = True

    def __init__(self, channel: Channel[T], name: str, epoch: int, watching: Watching) -> None:
        super().__init__(channel, name, epoch)
        self._watching = watching
        self._tickets: dict[EventId, Ticket] = {}

    def push(self, event: T, *, timeout: float | None = None, **said: Unpack[Said]) -> bool:
        """Hand an event over; True when all have acknowledged it, False when the monitor has given up."""
        check_thread(self._channel)
        check_timeout(self._channel.name, timeout)
        header, ticket = self._pass(event, self._stamp(**said), None)
        return outcome(ticket, header, timeout)

    def push_nowait(self, event: T, **said: Unpack[Said]) -> Receipt:
        """As `push`, without waiting; the receipt waits for the acknowledgements."""
        return MonitoredReceipt(*self._pass(event, self._stamp(**said), 0.0), self._clock)

    @names_options
    def push_many(self, events: Iterable[T] | Mapping[str, Any] | Any) -> bool:
        """Push events in order; True when all have acknowledged all of them."""
        check_thread(self._channel)
        batch = self.as_events(events)
        self.validate_all(batch)
        passed = [self._pass(event, PLAIN, None) for event in batch]
        return all(outcome(ticket, header, None) for header, ticket in passed)

    async def apush(self, event: T, **said: Unpack[Said]) -> bool:
        """As `push`, for asyncio."""
        return await asyncio.to_thread(self.push, event, **said)

    def _stamp(self, **said: Unpack[Said]) -> Stamp:
        return _not_postponed(self._channel.name, super()._stamp(**said))

    def _pass(self, event: T, said: Stamp, max_blocking: float | None) -> tuple[Header, Ticket]:
        (self._routes.get(event.__class__) or self._refuse(event)).validate(event)
        header = self._push_slowly(event, said, max_blocking)
        return header, self._tickets.pop(header.id)

    def _enqueue(self, route: Route, event: T, header: Header, found: Found | None) -> Lane | None:
        lanes = route.lanes(event, header, found)
        self._insist_on_outside_of(lanes)
        for lane in lanes:
            if lane.waiting >= lane.blocks_at:
                return lane
        item = self._item(event, header)
        try:
            self._tickets[header.id] = self._watching.expect(header.id)
            self._watching.passing(item, [lane.name for lane in lanes])
            self._put_item(route, item, lanes)
        except BaseException:
            self._tickets.pop(header.id, None)
            raise
        return None


class MonitoredPersistentSupplier(PersistentSupplier[T]):
    """The same on a journalled channel: the event is on disk, and then acknowledged by all."""

    def __init__(
        self,
        channel: Channel[T],
        name: str,
        epoch: int,
        *,
        store: Store,
        watching: Watching,
        lease: SupplierLease | None = None,
    ) -> None:
        super().__init__(channel, name, epoch, store, lease)
        self._waits = True
        self._watching = watching

    def push(self, event: T, *, timeout: float | None = None, **said: Unpack[Said]) -> bool:
        """Keep an event; True when all have acknowledged it, False when the monitor has given up."""
        check_thread(self._channel)
        check_timeout(self._channel.name, timeout)
        until = None if timeout is None else self._clock.monotonic_ns() + round(timeout * 1e9)
        return self._pass_one(event, self._stamp(**said), timeout).result(self._left(until))

    def push_nowait(self, event: T, **said: Unpack[Said]) -> Receipt:
        """As `push`, without waiting."""
        return self._pass_one(event, self._stamp(**said), 0.0)

    @names_options
    def push_many(self, events: Iterable[T] | Mapping[str, Any] | Any, timeout: float | None = None) -> bool:
        """Push events in order; True when all have acknowledged all of them."""
        check_thread(self._channel)
        check_timeout(self._channel.name, timeout)
        until = None if timeout is None else self._clock.monotonic_ns() + round(timeout * 1e9)
        batch = self.as_events(events)
        self.validate_all(batch)
        passed, suspended = self._in_parts(batch, lambda part: self._pass(part, PLAIN, self._left(until)))
        is_acknowledged = all(r.result(self._left(until)) for receipts in passed for r in receipts)
        if suspended is not None:
            raise suspended
        return is_acknowledged

    async def apush(self, event: T, **said: Unpack[Said]) -> bool:
        """As `push`, for asyncio."""
        return await asyncio.to_thread(self.push, event, **said)

    def _stamp(self, **said: Unpack[Said]) -> Stamp:
        stamped = _not_postponed(self._channel.name, super()._stamp(**said))
        if stamped.id is not None:
            raise NotPossible(self._channel.name, "id= with ack='delivered': a push is watched only once")
        return stamped

    def _pass_one(self, event: T, said: Stamp, timeout: float | None) -> MonitoredReceipt:
        self.validate(event)
        return self._pass([event], said, timeout)[0]

    def _pass(self, events: Sequence[T], said: Stamp, timeout: float | None) -> list[MonitoredReceipt]:
        """Put events in line that have been checked."""
        if not self._store.kept_here:
            raise NotPossible(
                self._channel.name,
                "ack='delivered': push in the station that keeps the channel: it hears all acknowledgements",
            )
        asked = self._ask_all(events, said)
        with self._lock:
            items = Pushed(self._items(events, said), asked)
            tickets = [self._watching.expect(item[1].id) for item in items]
            try:
                stored = self._store.append(items, self._level, timeout)
            except BaseException:
                for ticket in tickets:
                    ticket.forget()
                raise

        def stored_or_not(receipt: StoreReceipt) -> None:
            if receipt.error() is not None:
                for ticket in tickets:
                    ticket.forget()

        stored.add_done_callback(stored_or_not)
        return [
            MonitoredReceipt(item[1], ticket, self._clock, stored)
            for item, ticket in zip(items, tickets, strict=True)
        ]


class MonitoredRemoteSupplier(RemoteSupplier[T]):
    """Events from another station, which is told when all receivers here have acknowledged one."""

    calls_directly = False

    def __init__(
        self, channel: Channel[T], name: str, watching: Watching, tell: Callable[[EventId], object]
    ) -> None:
        super().__init__(channel, name, 1)
        self._watching = watching
        self._tell = tell

    def _allot(self, lanes: Sequence[Lane], item: Item, lots: defaultdict[Lane, list[Item]]) -> Lane | None:
        full = super()._allot(lanes, item, lots)
        if full is None:
            _expect_for(self._watching, item, self._tell)
            self._watching.passing(item, [lane.name for lane in lanes])
        return full


class MonitoredRemotePersistentSupplier(RemotePersistentSupplier):
    """The same where another station keeps the history."""

    def __init__(self, feed: Feed, watching: Watching, tell: Callable[[EventId], object]) -> None:
        super().__init__(feed)
        self._watching = watching
        self._tell = tell

    def take_in(self, arrived: Sequence[Any], *, wait: bool = False, until: int = 0) -> int:
        tickets: list[Ticket] = []
        try:
            for item in arrived:
                tickets.append(_expect_for(self._watching, item, self._tell))  # noqa: PERF401 - if one fails, those before it are known
            return super().take_in(arrived, wait=wait, until=until)
        finally:
            # Those of a partition or a type that is not known here are nobody's.
            for ticket in tickets:
                ticket.forget_unpassed()


def _expect_for(watching: Watching, item: Any, tell: Callable[[EventId], object]) -> Ticket:
    """Watch an event for the station where it was pushed."""
    event = item[1].id
    return watching.expect(event, lambda: tell(event))

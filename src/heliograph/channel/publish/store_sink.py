"""The sink of a persistent channel: an event is appended to the store, and delivered once it is durable.

Filters are evaluated before that, by who pushes: between disk and feed one that takes long would hold up what
others push. A header is made when the event is on disk, for receivers that are there: see `OutgoingBatch`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from heliograph.channel.batch import OutgoingBatch
from heliograph.channel.history.store import Tombstone
from heliograph.channel.publish.acks import Receipt
from heliograph.channel.publish.delayed import Later
from heliograph.channel.publish.options import PLAIN
from heliograph.channel.routing.compiler import MatchedQueues, changes_of, match
from heliograph.codec.dynamic.plain import ValuePath, check_decimal
from heliograph.errors import AppendTimeout, InvalidEvent, NotPossible, Suspended
from heliograph.model import field_types as ft
from heliograph.model.event import PUSH_ID, Event, info_of
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from heliograph.channel.history.store import HistoryStore, StoreReceipt, SupplierLease
    from heliograph.channel.publish.acks import Ack, Ticket
    from heliograph.channel.publish.codegen import Push
    from heliograph.channel.publish.entry import Entry
    from heliograph.channel.publish.host import SupplierHost
    from heliograph.channel.publish.numbering import Numbering
    from heliograph.channel.publish.options import Stamp
    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.channel.routing.compiler import Route
    from heliograph.model.event import Header

R = TypeVar("R")

MANY: Final = 10_000
"""Events of one `push_many` that a journal keeps together."""


class StoreSink:
    """See the module. A push waits for the ack level, never for room in a queue."""

    takes_timeout = True

    def __init__(
        self,
        channel: SupplierHost,
        entry: Entry,
        numbering: Numbering,
        ack: Ack,
        *,
        store: HistoryStore,
        lease: SupplierLease | None,
    ) -> None:
        self._channel = channel
        self._clock = channel.ports.clock
        self._entry = entry
        self._numbering = numbering
        self._ack = ack
        self._level, self._waits, self._watching = ack  # read by every push
        self._kept_here = store.kept_here
        self._mine = entry.lock.mine
        self._store = store
        self._lease = lease
        self.pushes: dict[type, Push] | None = None
        self._open_routes: Mapping[type, Route] | None = None
        """Routes in which there is no filter, once that has been seen."""

    def use_routes(self) -> None:
        """What is generated for a push into queues is not used here."""

    def check_said(self, said: Stamp) -> None:
        self._ack.check_said(self._channel.name, said)

    def push(self, event: Any, said: Stamp, timeout: float | None) -> bool:
        until = None if timeout is None else self._clock.monotonic_ns() + round(timeout * 1e9)
        if self._watching is not None:
            self._ack.check(self._channel)
            return self._watched((event,), said, timeout)[0].result(self._left(until))
        receipt, _ = self._append_one(event, said, timeout)
        if self._waits:
            receipt.result(None if until is None else self._left(until))
        return True

    def push_nowait(self, event: Any, said: Stamp) -> Receipt:
        if self._watching is not None:
            return self._watched((event,), said, 0.0)[0]
        receipt, batch = self._append_one(event, said, 0.0)
        return Receipt(batch.as_pushed, receipt if self._waits else None)

    async def apush(self, event: Any, said: Stamp, seconds: float | None) -> bool:
        if self._watching is not None:
            return await asyncio.to_thread(self.push, event, said, seconds)
        until = None if seconds is None else self._clock.monotonic_ns() + round(seconds * 1e9)
        if self._kept_here:
            receipt, _ = self._append_one(event, said, seconds)
        else:
            # A keeper that is away is waited for, and the loop goes on meanwhile.
            receipt, _ = await asyncio.to_thread(self._append_one, event, said, seconds)
        if self._waits and not receipt.done():
            loop = asyncio.get_running_loop()
            done = asyncio.Event()
            receipt.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), self._left(until))
        if receipt.done() or self._waits:
            try:
                receipt.result(0)
            except AppendTimeout as late:
                late.seconds = late.seconds or seconds or 0.0
                raise
        return True

    def push_many(self, events: Sequence[Any], timeout: float | None, *, alike: bool) -> bool:
        """Up to 10,000 at a time are kept together, whole or not at all.

        A Suspended names how many had been pushed before.
        """
        self._ack.check(self._channel)
        until = None if timeout is None else self._clock.monotonic_ns() + round(timeout * 1e9)
        is_acknowledged = True
        if self._watching is None:
            receipts, suspended = self._in_parts(
                events, lambda part: self._append(part, self._left(until), alike=alike)
            )
            for receipt in receipts if self._waits else ():
                receipt.result(self._left(until))
        else:
            watched, suspended = self._in_parts(
                events, lambda part: self._watched(part, PLAIN, self._left(until))
            )
            is_acknowledged = all(one.result(self._left(until)) for part in watched for one in part)
        if suspended is not None:
            raise suspended
        return is_acknowledged

    def forget(self, kind: type[Any] | None, key: Sequence[Any], timeout: float | None) -> bool:
        """Keep a tombstone: see `Channel.forget`."""
        channel, entry, numbering = self._channel, self._entry, self._numbering
        cls = kind or (channel.types[0] if len(channel.types) == 1 else None)
        if cls is None or cls not in channel.types:
            names = ", ".join(channel.type_names)
            raise NotPossible(channel.name, f"type= says which of {names} the key is of")
        values = checked_key(cls, key)
        entry.insist_on_outside()
        with entry.lock:
            if entry.gone is not None:
                raise entry.gone()
            sequence, place = numbering.next_sequence(), numbering.next_station_seq()
            gone = Tombstone(cls, values, numbering.name, numbering.epoch, sequence, numbering.now(), place)
            receipt = self._store.forget(gone, self._level)
        if self._waits:
            receipt.result(timeout)
        return True

    def close(self) -> None:
        """The name is free for others."""
        if self._lease is not None:
            self._lease.close()

    def _left(self, until: int | None) -> float | None:
        return None if until is None else seconds_until(self._clock, until)

    def _in_parts(
        self, batch: Sequence[Any], append: Callable[[Sequence[Any]], R]
    ) -> tuple[list[R], Suspended | None]:
        """What came of each part, and the error if the channel was suspended between two of them: that is to
        be raised when it is known that those before it are kept.
        """
        done: list[R] = []
        for start in range(0, len(batch), MANY):
            try:
                done.append(append(batch if len(batch) <= MANY else batch[start : start + MANY]))
            except Suspended as error:
                error.pushed = start
                return done, error
        return done, None

    def _append_one(
        self, event: Any, said: Stamp, timeout: float | None = None
    ) -> tuple[StoreReceipt, OutgoingBatch]:
        entry, events = self._entry, (event,)
        (entry.routes.get(event.__class__) or entry.route_of(event)).validate(event)
        if not self._kept_here:
            self._store.wait_ready(timeout)
        if said is not PLAIN and said.postponed:
            return self._keep_for_later(event, said, timeout)
        matches = None if entry.routes is self._open_routes else self.match_all(events, said)
        if self._mine():
            entry.insist_on_outside()
        with entry.lock:
            route = entry.routes.get(event.__class__) or entry.route_of(event)
            batch = self._numbering.batch(route, events, said, matches)
            if said is not PLAIN and said.id is not None:
                return self._store.append_once(batch, said.id, self._level, timeout), batch
            return self._store.append(batch, self._level, timeout), batch

    def _append(self, events: Sequence[Any], timeout: float | None, *, alike: bool) -> StoreReceipt:
        """Put checked events in line, whole or not at all."""
        matches = self.match_all(events, PLAIN)
        self._store.wait_ready(timeout)
        self._entry.insist_on_outside()
        with self._entry.lock:
            batch = self._batch(events, PLAIN, matches, alike=alike)
            return self._store.append(batch, self._level, timeout)

    def _watched(self, events: Sequence[Any], said: Stamp, timeout: float | None) -> list[Receipt]:
        """Put events in line whose acknowledgements are waited for."""
        watching = self._watching
        assert watching is not None
        if len(events) == 1:
            self._entry.route_of(events[0]).validate(events[0])
        if not self._kept_here:
            raise NotPossible(
                self._channel.name,
                "ack='delivered': push in the station that keeps the channel: it hears all acknowledgements",
            )
        matches = self.match_all(events, said)
        self._entry.insist_on_outside()
        with self._entry.lock:
            batch = self._batch(events, said, matches)
            headers = [header for _, header, _ in batch]
            tickets = [watching.expect(header.id) for header in headers]
            try:
                stored = self._store.append(batch, self._level, timeout)
            except BaseException:
                _forget_all(tickets)
                raise
        stored.add_done_callback(partial(_kept_or_not, tickets))
        return [
            Receipt(partial(_given, header), stored, ticket, self._clock)
            for header, ticket in zip(headers, tickets, strict=True)
        ]

    def _keep_for_later(
        self, event: Any, said: Stamp, timeout: float | None
    ) -> tuple[StoreReceipt, OutgoingBatch]:
        entry, numbering = self._entry, self._numbering
        entry.insist_on_outside()
        with entry.lock:
            (_, header, _), wait_ns, _ = numbering.postponed(entry.route_of(event), event, said, next)
        push_id = said.id or str(header.id)
        # Its id goes with it into the history, where it is looked for before it is kept there.
        header = msgspec.structs.replace(header, headers={**(header.headers or {}), PUSH_ID: push_id})
        later = Later(push_id, numbering.now() + wait_ns, numbering.epoch, wait_ns)
        item = (event, header, 0)
        kept = self._channel.delayed.keep(item, later, self._level, timeout)
        return kept, OutgoingBatch.of((item,))

    def match_all(self, events: Sequence[Any], said: Stamp) -> MatchedQueues | None:
        """The queues that events are for; None where no filter decides, or another station routes them.

        Also where a filter cannot be asked, for want of memory: that is no reason to keep no event.
        """
        entry = self._entry
        routes = entry.routes
        if routes is self._open_routes or not self._kept_here:
            return None
        if all(route.always is not None for route in routes.values()):
            self._open_routes = routes  # nothing is looked through again before they are swapped
            return None
        changes = changes_of(routes)
        found: list[Sequence[EventQueue]] = []
        known = self._numbering.known
        try:
            if len(events) == 1:
                route = entry.route_of(events[0])
                return MatchedQueues(routes, changes, (route.find(events[0], known(route, said)),))
            for _, alike in groupby(events, type):
                some = list(alike)
                route = entry.route_of(some[0])
                found += _shared(match(routes, some, known(route, said)).queues)
        except (MemoryError, RecursionError):
            return None
        return MatchedQueues(routes, changes, found)

    def _batch(
        self, events: Sequence[Any], said: Stamp, matches: MatchedQueues | None, *, alike: bool = False
    ) -> OutgoingBatch:
        """Under the lock: a batch of events; those of several classes have a header each.

        `alike` says that they are known to be of one.
        """
        entry, numbering = self._entry, self._numbering
        if alike or len(set(map(type, events))) == 1:
            return numbering.batch(entry.route_of(events[0]), events, said, matches)
        batch = OutgoingBatch.of(
            [numbering.batch(entry.route_of(event), (event,), said).item(0) for event in events]
        )
        batch.matches = matches
        return batch


def _given(header: Header) -> Header:
    return header


def _kept_or_not(tickets: Iterable[Ticket], stored: StoreReceipt) -> None:
    if stored.error() is not None:
        _forget_all(tickets)


def _forget_all(tickets: Iterable[Ticket]) -> None:
    for ticket in tickets:
        ticket.forget()


def _shared(found: Iterable[Sequence[EventQueue]]) -> Iterator[Sequence[EventQueue]]:
    """The same, without a list of its own for each of many that follow one like it."""
    last: Sequence[EventQueue] = ()
    for one in found:
        if one != last:
            last = one
        yield last


def checked_key(cls: type[Event], key: Sequence[Any]) -> tuple[Any, ...]:
    """The values of a key as events of that class have them; InvalidEvent names what does not fit."""
    info = info_of(cls)
    if len(key) != len(info.key):
        names = ", ".join(info.key)
        raise InvalidEvent(info.name, f"its key has {len(info.key)} values ({names}), not {len(key)}")
    values = []
    for name, value in zip(info.key, key, strict=True):
        kind = info.types[name]
        if isinstance(kind, ft.Decimal):
            values.append(check_decimal(kind, value, ValuePath(info.name).inside(name)))
            continue
        try:
            values.append(msgspec.convert(value, info.fields[name].annotation))
        except msgspec.ValidationError as error:
            raise InvalidEvent(info.name, f"{value!r:.60}: {error}", path=f"$.{name}") from None
    return tuple(values)


class _Nothing:
    """The receipt of no events."""

    def result(self, timeout: float | None = None) -> object: ...

    def done(self) -> bool:
        return True

    def add_done_callback(self, callback: Callable[..., object]) -> None:
        callback(self)

    def error(self) -> None: ...


NOTHING: Final = _Nothing()

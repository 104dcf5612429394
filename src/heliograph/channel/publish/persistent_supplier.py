"""Suppliers of persistent channels: an event is appended to the store and delivered once it is durable.

Whom it is for is asked before that, by who pushes: between disk and feed a filter that takes long would hold
up what others push. There only that is asked which asks for an event's place: its number, its offset.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import groupby, islice, repeat, starmap
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import msgspec

from heliograph.channel.history.store import Tombstone
from heliograph.channel.publish.batch import OutgoingBatch, Pushed
from heliograph.channel.publish.delayed import Later
from heliograph.channel.publish.options import PLAIN, Said, Stamp, check_timeout, stamp
from heliograph.channel.publish.supplier import Receipt, Supplier
from heliograph.errors import InvalidEvent, NotPossible, Suspended
from heliograph.model.event import PUSH_ID, Event, Header, info_of
from heliograph.runtime.option_names import names_options
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from heliograph.channel.channel import Channel
    from heliograph.channel.history.store import Level, Store, StoreReceipt, SupplierLease
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.routing.compiler import Answers, Found, Route

T = TypeVar("T", bound=Event)
R = TypeVar("R")

MANY: Final = 10_000
"""Events of one `push_many` that a journal keeps together."""


class PersistentSupplier(Supplier[T]):
    """A supplier of a journalled channel: an event is delivered when it is on disk, by the feed.

    `push` waits for the ack level, never for a consumer.
    """

    takes_timeout = True

    def __init__(
        self, channel: Channel[T], name: str, epoch: int, store: Store, lease: SupplierLease | None = None
    ) -> None:
        lock = channel.ports.tasks.lock(f"supplier {name}")
        super().__init__(channel, name, epoch, lock, 0 if lease is None else lease.last_sequence)
        self._store = store
        self._lease = lease
        self._level: Level = "journal" if channel.qos.ack_level == "journal" else "synced"
        self._waits = channel.qos.ack_level in ("journal", "synced")
        self._routes_without_early: Mapping[type, Route] | None = None

    def push(self, event: T, *, timeout: float | None = None, **said: Unpack[Said]) -> bool:
        """Keep an event; True when the channel's ack level is met.

        A time-out means *unknown*: AppendTimeout carries the EventId, and the push may be repeated with it as
        `id`. An event whose id is among the last 65,536 of the history is not kept again. JournalBusy means
        that so much was in line for the disk until the time was over that this was not put there, QueryFailed
        that the station that keeps the channel could not be reached by then.
        """
        until = None
        if timeout is not None:
            check_timeout(self._channel.name, timeout)
            until = self._clock.monotonic_ns() + round(timeout * 1e9)
        receipt, _ = self._append_one(event, self._stamp(**said), timeout)
        if self._waits:
            receipt.result(self._left(until))
        return True

    def push_nowait(self, event: T, **said: Unpack[Said]) -> Receipt:
        """Put an event in line for the disk; the receipt tells when the ack level is met.

        It never waits: JournalBusy when the line is full, QueryFailed when the keeper is away.
        """
        receipt, header = self._append_one(event, self._stamp(**said), 0.0)
        return DurableReceipt(header, receipt if self._waits else None)

    @names_options
    def push_many(self, events: Iterable[T] | Mapping[str, Any] | Any, timeout: float | None = None) -> bool:
        """Push events in order; up to 10,000 at a time are kept together, whole or not at all.

        All are checked before the first is kept, as in `Supplier.push_many`. A Suspended names how many had
        been pushed before.
        """
        check_timeout(self._channel.name, timeout)
        until = None if timeout is None else self._clock.monotonic_ns() + round(timeout * 1e9)
        batch = self.as_events(events)
        self.validate_all(batch)
        receipts, suspended = self._in_parts(
            batch, lambda part: self._append_together(part, self._left(until))
        )
        for receipt in receipts if self._waits else ():
            receipt.result(self._left(until))
        if suspended is not None:
            raise suspended
        return True

    async def apush(self, event: T, **said: Unpack[Said]) -> bool:
        """As `push`, for asyncio."""
        stamped = self._stamp(**said)
        if self._store.kept_here:
            receipt, _ = self._append_one(event, stamped)
        else:
            # A keeper that is away is waited for, and the loop goes on meanwhile.
            receipt, _ = await asyncio.to_thread(self._append_one, event, stamped)
        if self._waits and not receipt.done():
            loop = asyncio.get_running_loop()
            done = asyncio.Event()
            receipt.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))
            await done.wait()
        if receipt.done():
            receipt.result(0)
        return True

    def forget(self, kind: type[T] | None, key: Sequence[Any], timeout: float | None = None) -> bool:
        """See `Channel.forget`."""
        channel = self._channel
        check_timeout(channel.name, timeout)
        cls = kind or (channel.types[0] if len(channel.types) == 1 else None)
        if cls is None or cls not in channel.types:
            names = ", ".join(channel.type_names)
            raise NotPossible(channel.name, f"type= says which of {names} the key is of")
        values = checked_key(cls, key)
        self._insist_on_outside()
        with self._lock:
            if self._gone is not None:
                raise self._gone()
            sequence, place = self._next_sequence(), self._next_station_seq()
            gone = Tombstone(cls, values, self.name, self.epoch, sequence, self._now(), place)
            receipt = self._store.forget(gone, self._level)
        if self._waits:
            receipt.result(timeout)
        return True

    def close(self) -> None:
        """No more pushes, and the name is free for others."""
        super().close()
        if self._lease is not None:
            self._lease.close()

    def _stamp(self, **said: Unpack[Said]) -> Stamp:
        return stamp(**said) if said else PLAIN

    def _left(self, until: int | None) -> float | None:
        return None if until is None else seconds_until(self._clock, until)

    def _in_parts(
        self, batch: Sequence[T], append: Callable[[Sequence[T]], R]
    ) -> tuple[list[R], Suspended | None]:
        """What came of each part, and the error if the channel was suspended between two of them: that is to
        be raised when it is known that those before it are kept.
        """
        done: list[R] = []
        for start in range(0, len(batch), MANY):
            try:
                done.append(append(batch[start : start + MANY]))
            except Suspended as error:
                error.pushed = start
                return done, error
        return done, None

    def _append_one(self, event: T, said: Stamp, timeout: float | None = None) -> tuple[StoreReceipt, Header]:
        self.validate(event)
        return self._append([event], said, timeout)

    def _append(self, events: Sequence[T], said: Stamp, timeout: float | None) -> tuple[StoreReceipt, Header]:
        """Put events in line that have been checked."""
        self._store.wait_ready(timeout)
        if said is not PLAIN and said.postponed:
            return self._keep_for_later(events[0], said, timeout)
        asked = self._ask_all(events, said)
        self._insist_on_outside()
        with self._lock:
            items = Pushed(self._items(events, said), asked)
            if said.id is not None:
                return self._store.append_once(items, said.id, self._level, timeout), items[0][1]
            return self._store.append(items, self._level, timeout), items[-1][1]

    def _keep_for_later(self, event: T, said: Stamp, timeout: float | None) -> tuple[StoreReceipt, Header]:
        (_, header, _), wait_ns = self._postponed(event, said, next)
        push_id = said.id or str(header.id)
        # Its id goes with it into the history, where it is looked for before it is kept there.
        header = msgspec.structs.replace(header, headers={**(header.headers or {}), PUSH_ID: push_id})
        later = Later(push_id, self._now() + wait_ns, self.epoch, wait_ns)
        return self._channel.delayed.keep((event, header, 0), later, self._level, timeout), header

    def _ask_all(self, events: Sequence[T], said: Stamp) -> Answers | None:
        """Whom events are for, as far as that can be asked by now; what another station keeps it routes.

        None where a filter cannot be asked, for want of memory: that is no reason to keep no event.
        """
        routes = self._routes
        if routes is self._routes_without_early or not self._store.kept_here:
            return None
        if all(route.early is None for route in routes.values()):
            self._routes_without_early = routes  # nothing is looked through again before they are swapped
            return None
        found: list[Found | None] = []
        try:
            for cls, alike in groupby(events, type):
                route: Route = routes.get(cls) or self._refuse(events[len(found)])
                if route.early is None:
                    found += [None for _ in alike]
                else:
                    found += _shared(map(route.early, alike, repeat(self._known(route, said))))
        except (MemoryError, RecursionError):
            return None
        return routes, found

    def _items(self, events: Sequence[T], said: Stamp) -> list[Item]:
        """Under the lock: events with their headers."""
        items: list[Item] = []
        for event in events:
            route = self._routes.get(event.__class__) or self._refuse(event)
            header = self._header(route, event, said, self._next_sequence())
            deadline = 0
            if route.lifetime_ns is not None:
                deadline = self._clock.monotonic_ns() + route.lifetime_ns
            items.append((event, header, deadline))
        return items

    def _append_together(self, events: Sequence[T], timeout: float | None) -> StoreReceipt:
        """Checked events. Those of one class, which most batches have, get no headers here; see
        `OutgoingBatch`."""
        classes = set(map(type, events))
        if len(classes) > 1:
            return self._append(events, PLAIN, timeout)[0]
        (cls,) = classes
        asked = self._ask_all(events, PLAIN)
        self._store.wait_ready(timeout)
        self._insist_on_outside()
        with self._lock:
            route = self._routes.get(cls) or self._refuse(events[0])
            sequence = self._next_sequence()
            deque(islice(self._sequences, len(events) - 1), maxlen=0)
            places = list(starmap(self._next_station_seq, repeat((), len(events))))
            first = route.stamp(events[0], self.name, self.epoch, sequence, self._now(), places[0])
            deadline = 0
            if route.lifetime_ns is not None:
                deadline = self._clock.monotonic_ns() + route.lifetime_ns
            bulk = OutgoingBatch(events, first, places, deadline, asked=asked)
            return self._store.append(bulk, self._level, timeout)


def _shared(found: Iterable[Found]) -> Iterator[Found]:
    """The same, without a list of its own for each of many that follow one like it."""
    last: Found = []
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
        try:
            values.append(msgspec.convert(value, info.fields[name].annotation))
        except msgspec.ValidationError as error:
            raise InvalidEvent(info.name, f"{value!r:.60}: {error}", path=f"$.{name}") from None
    return tuple(values)


class DurableReceipt(Receipt):
    """The outcome of `push_nowait` on a journalled channel."""

    __slots__ = ("_receipt",)

    def __init__(self, header: Header, receipt: StoreReceipt | None) -> None:
        super().__init__(header)
        self._receipt = receipt

    def result(self, timeout: float | None = None) -> bool:
        check_timeout("result", timeout)
        if self._receipt is not None:
            self._receipt.result(timeout)
        return True

    def when_kept(self, call: Callable[[BaseException | None], object]) -> None:
        if self._receipt is None:
            call(None)
        else:
            self._receipt.add_done_callback(lambda receipt: call(receipt.error()))


class _Nothing:
    """The receipt of no events."""

    def result(self, timeout: float | None = None) -> object: ...

    def done(self) -> bool:
        return True

    def add_done_callback(self, callback: Callable[..., object]) -> None:
        callback(self)

    def error(self) -> None: ...


NOTHING: Final = _Nothing()

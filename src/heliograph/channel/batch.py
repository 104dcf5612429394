"""A batch of events that were pushed together; headers are made only where a receiver needs them.

A journal keeps what such headers share once, a link sends it once, and nobody may be there to receive the
events; then a million headers would be made for nothing. `OutgoingBatch` goes out, to a queue or to a store;
`IncomingBatch` has come over a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, overload

import msgspec

from heliograph.model.event import Event, Header, info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


Item: TypeAlias = tuple[Event, Header, int]
"""An event, its header, and the monotonic instant in ns when its lifespan ends; 0 when it has none."""


class QueueMatches(Protocol):
    """The queues that each event of a batch is for; `heliograph.channel.routing.compiler` finds them."""

    @property
    def queues(self) -> Sequence[Sequence[Any]]:
        """Of each event, as far as that can be decided before it has its place."""
        ...

    def hold(self, routes: Any) -> bool:
        """Whether the same queues would be found now, by these routes."""
        ...


class OutgoingBatch(msgspec.Struct, eq=False):
    """Events of one class, supplier and instant: one event, or those of a `push_many`.

    A store that has kept them adds where (`keep`), and the headers that are made from then on say it.
    """

    events: Sequence[Event]
    """At least one."""
    shared: Header
    """What their headers have in common."""
    sequence: int
    """Of the first; those of the others follow it, unless there are `sequences`."""
    source_ts: int
    places: Sequence[int]
    """The place of each in the station's order, which only go up."""
    deadline: int = 0
    """When their lifespan ends on the monotonic clock; 0: it does not."""
    sequences: Sequence[int] | None = None
    given: Sequence[Item] | None = None
    """Of events that have headers already, or are of several classes: these, in place of what is above."""
    matches: QueueMatches | None = None
    """The queues that each is for, as far as its supplier has found them."""
    largest: int | None = None
    """What each event takes at most (`heliograph.codec.sizes`), where that is known."""
    partition: str | None = None
    first_offset: int | None = None
    append_ts: int | None = None

    @classmethod
    def of(cls, items: Sequence[Item]) -> OutgoingBatch:
        """A batch of events of one supplier that have their headers; at least one."""
        events, first = [item[0] for item in items], items[0][1]
        return cls(events, first, first.sequence, first.source_ts, (), given=items)

    def keep(self, partition: str, first_offset: int, append_ts: int) -> None:
        """A store has them."""
        self.partition, self.first_offset, self.append_ts = partition, first_offset, append_ts

    @property
    def first(self) -> Header:
        """The header of the first event."""
        return self.item(0)[1]

    def as_pushed(self) -> Header:
        """The same without what a store adds, whether it has or not."""
        return msgspec.structs.replace(self, partition=None, first_offset=None, append_ts=None).first

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Item]:
        if self.given is not None:
            return iter(self.given) if self.partition is None else map(self.item, range(len(self)))
        return iter((self.item(0),)) if len(self.events) == 1 else self._items()

    def item(self, place: int) -> Item:
        """One event with its header."""
        offset = None if self.first_offset is None else self.first_offset + place
        if self.given is not None:
            event, header, deadline = self.given[place]
            if offset is None:
                return self.given[place]
            sequence, source_ts = header.sequence, header.source_ts
            key, station_seq = header.key, header.station_seq
        else:
            event, header, deadline = self.events[place], self.shared, self.deadline
            sequence = self.sequence + place if self.sequences is None else self.sequences[place]
            source_ts, key = self.source_ts, info_of(event.__class__).key_of(event)
            station_seq = self.places[place]
        # Positional: `replace` would cost four times as much.
        whole = Header(
            header.channel,
            header.type,
            header.supplier,
            header.epoch,
            sequence,
            source_ts,
            header.format_id,
            header.priority,
            key,
            station_seq,
            self.append_ts,
            self.partition,
            offset,
            header.lifetime_ns,
            header.hops,
            header.correlation_id,
            header.headers,
        )
        return event, whole, deadline

    def _items(self) -> Iterator[Item]:
        """All of them, without a call for each."""
        shared = self.shared
        kept: list[Iterable[Any]] = []
        if self.first_offset is not None or shared.lifetime_ns is not None:  # else they are as by default
            kept = [
                repeat(self.append_ts),
                repeat(self.partition),
                repeat(None) if self.first_offset is None else count(self.first_offset),
                repeat(shared.lifetime_ns),
            ]
        headers = map(
            Header,
            repeat(shared.channel),
            repeat(shared.type),
            repeat(shared.supplier),
            repeat(shared.epoch),
            count(self.sequence) if self.sequences is None else self.sequences,
            repeat(self.source_ts),
            repeat(shared.format_id),
            repeat(shared.priority),
            self._keys(),
            self.places,
            *kept,
        )
        return zip(self.events, headers, repeat(self.deadline))

    def _keys(self) -> Iterable[tuple[Any, ...]]:
        names = info_of(self.events[0].__class__).key
        if not names:
            return repeat(())
        values = map(attrgetter(*names), self.events)
        return zip(values) if len(names) == 1 else values


class IncomingBatch(Sequence["Item"]):
    """Events of one class and supplier that came together.

    Args:
        events: at least one.
        first: the header of the first.
        make: makes all items.
    """

    __slots__ = ("_items", "_make", "done", "events", "first")

    def __init__(self, events: list[Event], first: Header, make: Callable[[], list[Item]]) -> None:
        self.done = 0
        """How many of them have been handed to their receiver without being queued."""
        self.events = events
        self.first = first
        self._make = make
        self._items: list[Item] | None = None

    def __len__(self) -> int:
        return len(self.events)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        return self._made()[index]

    def __iter__(self) -> Iterator[Item]:
        return iter(self._made())

    def header_of(self, place: int) -> Header:
        """Of the event at a place."""
        return self._made()[place][1]

    def _made(self) -> list[Item]:
        if self._items is None:
            self._items = self._make()
        return self._items

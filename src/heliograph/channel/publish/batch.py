"""A batch of events that were pushed together; headers are made only where a receiver needs them.

A journal keeps what such headers share once, a link sends it once, and nobody may be there to receive the
events; then a million headers would be made for nothing. `OutgoingBatch` goes out, `IncomingBatch` has come
over a link.

What filters said of events before a journal had them goes with them, in a `OutgoingBatch` or in `Pushed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from heliograph.model.event import Event, Header, info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.routing.compiler import Answers


class Pushed(list["Item"]):
    """Items, and whom each is for, as far as that could be asked when they were pushed."""

    __slots__ = ("asked",)

    def __init__(self, items: Iterable[Item], asked: Answers | None) -> None:
        super().__init__(items)
        self.asked = asked


class OutgoingBatch(Sequence["Item"]):
    """Events of one class, supplier and instant.

    Args:
        events: at least one.
        first: the header of the first.
        places: the place of each in the station's order, which only go up.
        deadline: when their lifespan ends on the monotonic clock; 0: it does not.
        sequences: of each, where they do not follow the first one's.
        asked: as in `Pushed`.
    """

    __slots__ = ("asked", "deadline", "events", "first", "places", "sequences")

    def __init__(
        self,
        events: Sequence[Event],
        first: Header,
        places: Sequence[int],
        deadline: int,
        sequences: list[int] | None = None,
        *,
        asked: Answers | None = None,
    ) -> None:
        self.events = events
        self.first = first
        self.places = places
        self.deadline = deadline
        self.sequences = sequences
        self.asked = asked

    def __len__(self) -> int:
        return len(self.events)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        return (self.events[0], self.first, self.deadline) if index == 0 else list(self)[index]

    def __iter__(self) -> Iterator[Item]:
        return self._items(None, None, repeat(None))

    def kept(self, partition: str, first_offset: int, append_ts: int) -> Iterator[Item]:
        """The items as they are once a journal has them."""
        return self._items(append_ts, partition, count(first_offset))

    def _items(
        self, append_ts: int | None, partition: str | None, offsets: Iterable[int | None]
    ) -> Iterator[Item]:
        first = self.first
        headers = map(
            Header,
            repeat(first.channel),
            repeat(first.type),
            repeat(first.supplier),
            repeat(first.epoch),
            count(first.sequence) if self.sequences is None else self.sequences,
            repeat(first.source_ts),
            repeat(first.format_id),
            repeat(first.priority),
            self._keys(),
            self.places,
            repeat(append_ts),
            repeat(partition),
            offsets,
            repeat(first.lifetime_ns),
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

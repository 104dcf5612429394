"""Events that were pushed together, as items whose headers are made only where somebody looks.

A journal keeps what such headers share once, and nobody may be there to receive the events; then a million
headers would be made for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from heliograph.event import Event, Header, info_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from heliograph.channel.lane import Item


class Bulk(Sequence["Item"]):
    """Events of one class and supplier, with sequence numbers that follow each other.

    Args:
        events: at least one.
        first: the header of the first.
        places: the place of each in the station's order.
        deadline: when their lifespan ends on the monotonic clock; 0: it does not.
    """

    __slots__ = ("deadline", "events", "first", "places")

    def __init__(self, events: Sequence[Event], first: Header, places: list[int], deadline: int) -> None:
        self.events = events
        self.first = first
        self.places = places
        self.deadline = deadline

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
            count(first.sequence),
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

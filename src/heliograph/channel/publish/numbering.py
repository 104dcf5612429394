"""What a supplier gives its events: sequence numbers, places in the station's order, times; and headers."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from heliograph.channel.batch import OutgoingBatch
from heliograph.channel.inline_counters import count_of, take_each, take_numbers
from heliograph.channel.publish.options import PLAIN, Stamp
from heliograph.model.event import DELAYED_EPOCHS, Event, Header

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.publish.host import SupplierHost
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.routing.compiler import MatchedQueues, Route


class Numbering:
    """See the module. Whoever asks for a number holds the lock of the supplier's entry."""

    def __init__(self, channel: SupplierHost, name: str, epoch: int, last_sequence: int = 0) -> None:
        self.name = name
        self.epoch = epoch
        self.last_sequence = last_sequence
        # Counting is atomic, so a push that queues nowhere needs no lock.
        self.next_sequence = count(last_sequence + 1).__next__
        self.next_station_seq = channel.next_station_seq
        self.now = channel.ports.clock.time_ns
        self.monotonic = channel.ports.clock.monotonic_ns
        self._random = channel.ports.random
        self._known: dict[Route, Header] = {}
        self._later: tuple[int, count[int]] | None = None

    @property
    def taken(self) -> int:
        """How many events have a number."""
        return count_of(self.next_sequence) - 1 - self.last_sequence

    def forget_routes(self) -> None:
        self._known = {}

    def known(self, route: Route, said: Stamp) -> Header:
        """What is known of an event's header before it has its place: filters are told that."""
        header = self._known.get(route)
        if header is None:
            header = self._known[route] = route.stamping.known(self.name, self.epoch)
        return header if said is PLAIN else said.on(header)

    def header(self, route: Route, event: Any, said: Stamp) -> Header:
        """The header of the next event."""
        header = route.stamp(
            event, self.name, self.epoch, self.next_sequence(), self.now(), self.next_station_seq()
        )
        return header if said is PLAIN else said.on(header)

    def next_header(self, route: Route, event: Any) -> Header:
        """The header that a push would make now, but for `station_seq`."""
        header: Header = route.stamp(
            event, self.name, self.epoch, count_of(self.next_sequence), self.now(), 0
        )
        return header

    def deadline(self, route: Route) -> int:
        """When the lifespan of an event that is pushed now ends on the monotonic clock; 0: it does not."""
        return 0 if route.lifetime_ns is None else self.monotonic() + route.lifetime_ns

    def items(self, route: Route, events: Sequence[Event]) -> list[Item]:
        """The next events of one class, with their headers."""
        stamp, name, epoch, deadline = route.stamp, self.name, self.epoch, self.deadline(route)
        next_sequence, now, next_station_seq = self.next_sequence, self.now, self.next_station_seq
        return [
            (event, stamp(event, name, epoch, next_sequence(), now(), next_station_seq()), deadline)
            for event in events
        ]

    def batch(
        self, route: Route, events: Sequence[Event], said: Stamp = PLAIN, matches: MatchedQueues | None = None
    ) -> OutgoingBatch:
        """The next events of one class, at least one, whose headers are made later."""
        places: Sequence[int]
        if len(events) == 1:
            sequence, places = self.next_sequence(), (self.next_station_seq(),)
        else:
            sequence = take_numbers(self.next_sequence, len(events))[0]
            places = take_each(self.next_station_seq, len(events))
        known, now = self._known.get(route), self.now()
        if known is None or said is not PLAIN:
            known = self.known(route, said)
            now = now if said.source_ts is None else said.source_ts
        deadline = 0 if route.lifetime_ns is None else self.deadline(route)
        return OutgoingBatch(events, known, sequence, now, places, deadline, None, None, matches)

    def postponed(
        self, route: Route, event: Event, said: Stamp, numbered: Callable[[count[int]], int]
    ) -> tuple[Item, int, Callable[[], int]]:
        """An event that is delivered later, the nanoseconds until then, and what numbers it when it is due.

        Such events are an epoch of this supplier of their own: they do not come in the order in which they
        were pushed, and those that still wait must not look like a loss among the others.
        """
        if self._later is None:
            self._later = (DELAYED_EPOCHS | self._random.id64() >> 2, count(1))
        epoch, sequences = self._later
        now, place = self.now(), self.next_station_seq()
        header = said.on(route.stamp(event, self.name, epoch, numbered(sequences), now, place))
        wait_ns = said.delay_ns if said.due_ns is None else said.due_ns - now
        return (event, header, 0), max(0, wait_ns or 0), sequences.__next__

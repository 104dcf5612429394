"""The gateway of a channel to one station: one more receiver, which sends what anybody there wants.

However many consumers the other station has, an event crosses once, and it crosses only if the condition of
at least one of them holds here. Its lane is a consumer's lane: bounded, by priority, and full it does what
the channel's quality of service says.

The pushing thread sends by itself when the link is quiet, which saves waking another thread, and in a burst
once per `BURST` events, which saves most of the system calls. What is left over is sent by the link's own
task.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.channel.consumer import QueuedReceiver
from heliograph.channel.lane import Lane
from heliograph.codec import encoder
from heliograph.codec.packed import format_holds
from heliograph.event import info_of
from heliograph.fieldtypes import Array
from heliograph.link.messages import array_of, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.core import Channel
    from heliograph.channel.lane import Item
    from heliograph.channel.selection import Selection
    from heliograph.event import Event
    from heliograph.formats import Format
    from heliograph.ports import Clock

BURST: Final = 64
"""Events that a pushing thread queues before it sends them itself."""
SHARED: Final = 4_096
"""Encoded events that are remembered for other links."""


class GatewayLane(Lane):
    """A lane that is emptied many events at a time, by the thread that fills it if that is soonest."""

    on_burst: Callable[[], None]
    """Called whenever `BURST` more events wait than at the last time."""
    expires = False
    """Whether its events have a lifespan."""

    def put(self, item: Item) -> None:
        self.put_many((item,))

    def put_many(self, items: Sequence[Item]) -> None:
        with self._lock:
            if self.closed:
                self._drop_each(items, "closed")
                return
            bursts = self.waiting // BURST
            if not self._append_all(items):
                return
            is_first, self._watched = not self._watched, True
            is_burst = self.waiting // BURST > bursts
        if is_first:
            self._on_ready(self)
        elif is_burst:
            self.on_burst()

    def drain(self, most: int) -> tuple[int, list[Item]]:
        """Events of the highest priority that waits, and that priority. They count as delivered.

        When nothing waits any more, the next event that is put calls `on_ready`.
        """
        with self._lock:
            priority, items = self._pop_highest(most)
            if items:
                self._delivered += len(items)
                if self._waiters:
                    self._room.notify(len(items))
            if not self.waiting:
                self._watched = False
                self._quiet.notify_all()
        return priority, items

    def _pop_highest(self, most: int) -> tuple[int, list[Item]]:
        priority = max((p for p, band in self._bands.items() if band), default=0)
        if not priority:
            return 0, []
        band = self._bands[priority]
        items: list[Item] = []
        while band and not items:
            items = self._pop(band, most)
            self.waiting -= len(items)
            if self.expires:
                items = self._in_time(items)
        return priority, items


class Gateway(QueuedReceiver):
    """See the module."""

    def __init__(
        self,
        channel: Channel[Any],
        peer: str,
        selection: Selection,
        on_ready: Callable[[Gateway], None],
        on_burst: Callable[[], None],
    ) -> None:
        super().__init__(channel, f"link to {peer}", selection)
        self.channel = channel
        self.paused = False
        self.lane = channel.new_lane(self.name, selection, lambda _: on_ready(self), kind=GatewayLane)
        if isinstance(self.lane, GatewayLane):
            self.lane.on_burst = on_burst
            self.lane.expires = channel.qos.lifespan is not None


class EventWriter:
    """Turns events into the records of runs. One per station, so that links share what is encoded once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._plain: dict[type[Event], bool] = {}
        self._shared: dict[int, tuple[Item, bytes]] = {}
        self.links = 0
        """How many links there are: with one, whole batches are encoded at once and nothing is remembered."""

    def records(self, cls: type[Event], items: Sequence[Item]) -> bytes:
        """A msgpack array of records: `[event, header, 0]` each. Events of one class."""
        if self.links > 1:
            return array_of([self._record(cls, item) for item in items])
        if self._is_plain(cls) and not any(map(itemgetter(2), items)):
            return encode(items)
        return encode([self._prepared(cls, item) for item in items])

    def _record(self, cls: type[Event], item: Item) -> bytes:
        if item[2]:
            return encode(self._prepared(cls, item))
        known = self._shared.get(id(item))
        # An id may come again once its item is gone, so the item itself is kept and compared.
        if known is not None and known[0] is item:
            return known[1]
        record = encode(self._prepared(cls, item))
        if len(self._shared) >= SHARED:
            self._shared.clear()
        self._shared[id(item)] = (item, record)
        return record

    def _prepared(self, cls: type[Event], item: Item) -> tuple[Any, Any, int]:
        event, header, deadline = item
        if deadline:
            left = max(0, deadline - self._clock.monotonic_ns())
            header = msgspec.structs.replace(header, lifetime_ns=left)
        return (event if self._is_plain(cls) else encoder(cls).encode(event), header, 0)

    def _is_plain(self, cls: type[Event]) -> bool:
        plain = self._plain.get(cls)
        if plain is None:
            plain = self._plain[cls] = is_plain(info_of(cls).format)
        return plain


def is_plain(fmt: Format) -> bool:
    """Whether bodies of this format are one msgpack value, which can stand among others as it is."""
    return fmt.body == "packed" and not format_holds(fmt, Array)

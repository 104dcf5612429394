"""What was put into one lane of a stream, kept for readers that did not get it. Pure.

Bounded in events and in bytes. What every reader has is let go of; when the bound is reached the oldest is,
unless a reader that is waited for still needs it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from heliograph.links.session.retransmission import RecordSource


class SentBatch(msgspec.Struct, frozen=True, gc=False):
    """Events with consecutive numbers that were put together."""

    first: int
    count: int
    payload: bytes

    @property
    def last(self) -> int:
        return self.first + self.count - 1


_last = attrgetter("last")


class SentRing:
    """See the module."""

    def __init__(self, most_events: int, most_bytes: int) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self.last = 0
        """The number of the last event."""
        self.bytes = 0
        self._kept: deque[SentBatch] = deque()

    @property
    def first_kept(self) -> int:
        """The number of the first event that can be put again; behind the last one if there is none."""
        return self._kept[0].first if self._kept else self.last + 1

    @property
    def has_room(self) -> bool:
        return self.last - self.first_kept + 1 < self._most_events and self.bytes < self._most_bytes

    def add(self, count: int, payload: bytes, source: RecordSource | None = None) -> SentBatch:
        """Number events and keep them; at their source they count as done."""
        batch = SentBatch(self.last + 1, count, payload)
        keep, size = self._kept.append, len(payload)
        # One step, as in `heliograph.links.session.retransmission.Outbox.add`: the one call is the last.
        self.last += count
        self.bytes += size
        if source is not None:
            source.done += count
        keep(batch)
        return batch

    def confirm(self, number: int) -> None:
        """Every reader has all up to this number."""
        while self._kept and self._kept[0].last <= number:
            self._drop_first()

    def evict(self, needed: int) -> None:
        """Keep to the bounds, but for what is behind this number, which somebody waits for."""
        while not self.has_room and len(self._kept) > 1 and self._kept[0].last <= needed:
            self._drop_first()

    def find(self, first: int, last: int) -> list[SentBatch]:
        """The kept batches that hold these numbers."""
        place = bisect_left(self._kept, first, key=_last)
        found: list[SentBatch] = []
        for batch in islice(self._kept, place, None):
            if batch.first > last:
                break
            found.append(batch)
        return found

    def _drop_first(self) -> None:
        drop, size = self._kept.popleft, len(self._kept[0].payload)
        self.bytes -= size
        drop()

"""Queues of late joiners: history that other stations hold comes first, then live events, each once.

The seam is exact. A lane that has asked other stations holds what comes live meanwhile. With what a station
has kept comes how far each of its suppliers was at that instant: what is live up to there has been kept, or
was not worth keeping, and is left out; what is live from there on follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from heliograph.channel.queueing.coalesce import CoalescingLane
from heliograph.channel.queueing.queue import BATCH, Lane

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heliograph.channel.queueing.queue import Item

Floors: TypeAlias = "Mapping[tuple[str, int], int]"
"""The last sequence of each (supplier, epoch) at the instant when its station gave out what it had kept."""


class LateLane(Lane):
    """See the module."""

    wants_history = False
    """Whether its receiver asked for what was kept."""
    _holds = 0
    _floors: dict[tuple[str, int], int] | None = None

    def __init__(self, name: str, **lane: Any) -> None:
        super().__init__(name, **lane)
        self._asked: set[int] = set()

    def hold(self, station: int) -> bool:
        """Give nothing out until a `release` follows; False when this station has been asked before."""
        with self._lock:
            if station in self._asked or self.closed:
                return False
            self._asked.add(station)
            self._holds += 1
            return True

    def release(self, kept: Sequence[Item], floors: Floors) -> None:
        """What one station had kept is here; its receiver's condition holds for all of it."""
        with self._lock:
            self._holds -= 1
            if self.closed:
                self._drop_each(kept, "closed")
                return
            self._floors = {**(self._floors or {}), **floors}
            # By what this station says alone: what others have kept may wait here too.
            live = self._above(self._pop_all(), floors)
            for item in (*kept, *live):
                self._append_extra(item)
            if self._holds:
                return
            # Also with nothing in it: who waits for its end hears that it is there.
            self.announced, self._watched = False, True
        self._on_ready(self)

    @property
    def ended(self) -> bool:
        """Whether all stations that were asked have said what they kept, and nothing of it waits."""
        with self._lock:
            return not self._holds and not self.waiting

    def put(self, item: Item) -> None:
        if self._floors is None:
            super().put(item)
        else:
            self.put_many((item,))

    def put_many(self, items: Sequence[Item]) -> None:
        if self._floors is not None:
            with self._lock:
                items = self._above(items, self._floors)
        if items:
            super().put_many(items)

    def take(self, most: int = BATCH) -> list[Item]:
        if not self._holds:
            return super().take(most)
        with self._lock:
            self._watched = False
        return []

    def _above(self, items: Sequence[Item], floors: Floors) -> list[Item]:
        """What is live beyond what was kept. Under the lock."""
        floor = floors.get
        above = [item for item in items if item[1].sequence > floor((item[1].supplier, item[1].epoch), 0)]
        if len(above) < len(items):
            kept = set(map(id, above))
            self._drop_each([item for item in items if id(item) not in kept], "kept")
        return above


class LateCoalescingLane(LateLane, CoalescingLane):
    """The same with one waiting event per key."""

"""A coalescing queue: of each key only the latest event waits, at the position of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.channel.queueing.queue import Lane, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.channel.queueing.queue import Item


class CoalescingLane(Lane):
    """Keeps one waiting event per key, the latest, in the place of the first."""

    def put(self, item: Item) -> None:
        self.put_many((item,))

    def _append(self, item: Item) -> bool:
        held, line = self._held(item)
        band = self._band(line)
        key = key_of(item)
        if key in band:
            before = band[key]
            if self._ranking is not None:  # in the place of the first, and as old
                held = held.as_old_as(before)
            band[key] = held
            self._drop(before, "coalesced")
            return False
        if self.waiting >= self.limit:
            self._drop_oldest()
        self._add(line, held)
        self.waiting += 1
        return True

    def _append_all(self, items: Sequence[Item]) -> bool:
        return self._put_each(items)

    def _append_extra(self, item: Item) -> bool:
        return self._append(item)

    def _new_band(self) -> Any:
        return {}

    def _enter(self, band: Any, held: Any) -> None:
        """Of two priorities that become one line, an event of the same key may be there."""
        if (before := band.pop(key_of(held), None)) is not None:
            self._drop(before, "coalesced")
            self.waiting -= 1
        band[key_of(held)] = held

    def _head_of(self, band: Any) -> Any:
        return next(iter(band.values()))

    def _push_left(self, band: Any, held: Any) -> None:
        key = key_of(held)
        if key in band:
            self._drop(held, "coalesced")
            self.waiting -= 1
            held = band.pop(key) if self._ranking is None else band.pop(key).as_old_as(held)
        behind = dict(band)
        band.clear()
        band[key] = held
        band.update(behind)

    def _pop_held(self, band: Any, most: int) -> list[Any]:
        return [band.pop(next(iter(band))) for _ in range(min(len(band), most))]

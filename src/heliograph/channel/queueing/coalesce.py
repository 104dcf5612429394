"""The storage of a coalescing queue: of each key only the latest event waits, in the place of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.qos.dispatch_order import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.channel.queueing.queue import Item


class LatestByKey:
    """See the module and `heliograph.channel.queueing.storage`. A band is a dictionary by key."""

    is_plain = False
    oldest_first = True

    def new_band(self) -> Any:
        return {}

    def swap(self, band: Any | None, held: Any) -> Any | None:
        if band is None:
            return None
        key = key_of(held)
        before = band.get(key)
        if before is not None:
            band[key] = held.as_old_as(before) if isinstance(held, Waiting) else held
        return before

    def add(self, band: Any, held: Any) -> Any | None:
        """Of two priorities that become one line, an event of the same key may be there."""
        key = key_of(held)
        before = band.pop(key, None)
        band[key] = held
        return before

    def add_first(self, band: Any, held: Any) -> Any | None:
        """Where a newer one of its key waits, that one comes to the front, and the older is returned."""
        key = key_of(held)
        newer = band.pop(key, None)
        if isinstance(newer, Waiting):
            newer = newer.as_old_as(held)
        behind = dict(band)
        band.clear()
        band[key] = held if newer is None else newer
        band.update(behind)
        return None if newer is None else held

    def head(self, band: Any) -> Any:
        return next(iter(band.values()))

    def items(self, band: Any) -> Iterable[Any]:
        return band.values()  # type: ignore[no-any-return]  # of a dictionary

    def pop(self, band: Any, most: int) -> list[Any]:
        return [band.pop(next(iter(band))) for _ in range(min(len(band), most))]


def key_of(item: Item) -> tuple[str, tuple[Any, ...]]:
    """Events of one key are states of one thing; those of a type without a key are all of one."""
    return item[1].type, item[1].key

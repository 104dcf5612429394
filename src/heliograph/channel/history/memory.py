"""History in memory, for late joiners of a channel without a journal: the last events of each key.

    volatile          nothing
    transient-local   for as long as the supplier that pushed them is open
    transient         for as long as the channel is open

With `history=n` the last n of each key are kept, without it the last `queue` of all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.channel.queueing.queue import Item, Lane
    from heliograph.channel.routing.conditions import AnyOf, Condition
    from heliograph.model.event import Event
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Clock, Tasks


class History:
    """Kept events. Suppliers add to it at the same time; a replay happens while they are all held still."""

    def __init__(self, qos: QoS, clock: Clock, tasks: Tasks) -> None:
        self.keeps = qos.durability in ("transient-local", "transient")
        self._clock = clock
        self._per_supplier = qos.durability == "transient-local"
        self._depth = qos.history
        self._limit = qos.queue
        self._lock = tasks.lock("history")
        self._items: dict[tuple[Any, ...], deque[Item]] = {}

    def keep(self, item: Item) -> None:
        """Keep an event. A push that was interrupted asks again, and it is kept once."""
        header = item[1]
        owner = header.supplier if self._per_supplier else ""
        where = (owner,) if self._depth is None else (owner, header.type, header.key)
        with self._lock:
            kept = self._items.get(where)
            if kept is None:
                kept = self._items[where] = deque(maxlen=self._depth or self._limit)
            if not kept or kept[-1][1] is not header:
                kept.append(item)

    def supplier_left(self, name: str) -> None:
        if self._per_supplier:
            with self._lock:
                self._items = {where: kept for where, kept in self._items.items() if where[0] != name}

    def replay(self, lane: Lane, conditions: Mapping[type[Event], Condition | AnyOf]) -> int:
        """Give a new lane what it would have matched, in the order of intake; returns how many."""
        items = self.matching(conditions)
        for item in items:
            lane.put_extra(item)
        return len(items)

    def matching(self, conditions: Mapping[type[Event], Condition | AnyOf]) -> list[Item]:
        """What is kept and meets a condition, in the order of intake."""
        now = self._clock.monotonic_ns()
        with self._lock:
            items = [item for kept in self._items.values() for item in kept if not item[2] or item[2] > now]
        return [item for item in sorted(items, key=_station_seq) if meets(conditions, item)]


def _station_seq(item: Item) -> int:
    return item[1].station_seq


def meets(conditions: Mapping[type[Event], Condition | AnyOf], item: Item) -> bool:
    """Whether the condition for an event's type holds for it; without one it does not."""
    condition = conditions.get(type(item[0]))
    return condition is not None and condition.holds(item[0], item[1])

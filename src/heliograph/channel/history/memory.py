"""History in memory, for late joiners of a channel without a journal: the last events of each key.

    volatile          nothing
    transient-local   for as long as the supplier that pushed them is open
    transient         for as long as the channel is open

With `history=n` the last n of each key are kept, without it the last `queue` of all; and all of them take
less than `queue_bytes` bytes, unless it is one event: the oldest are forgotten, and counted. A channel with
instances (`heliograph.channel.history.instances`) keeps the state of each beside its samples.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from heliograph.channel.history.instances import InstanceLimits, InstanceStore
from heliograph.codec.sizes import size_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.channel.routing.conditions import AnyCondition, ReceiverCondition
    from heliograph.model.event import Event
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Clock, Tasks

Kept: TypeAlias = "tuple[Item, int]"
"""An event and what it took when it was kept: whoever changes it later changes no count."""

FEW: Final = 1_000
"""Entries about what is kept no more that are not worth clearing away."""


class MemoryHistory:
    """Kept events. Suppliers add to it at the same time; a replay happens while they are all held still."""

    def __init__(self, qos: QoS, clock: Clock, tasks: Tasks) -> None:
        self.keeps = qos.durability in ("transient-local", "transient")
        self._clock = clock
        self._per_supplier = qos.durability == "transient-local"
        self._depth = qos.history
        self._limit = qos.queue
        self._byte_limit = qos.queue_bytes
        self._tasks = tasks
        self._lock = tasks.lock("history")
        self.instances: InstanceStore | None = None
        """What keeps events in its place, where events have instances."""
        self._items: dict[tuple[Any, ...], deque[Kept]] = {}
        self._ages: deque[tuple[deque[Kept], Kept]] = deque()
        """What is kept, the oldest first; what `_items` has no more may still be among it."""
        self.kept = 0
        """Events that are kept."""
        self.bytes = 0
        """What they take."""
        self.forgotten = 0
        """Events that were kept no longer because of the bound in bytes."""

    def keep_instances(self, limits: InstanceLimits) -> InstanceStore:
        """Keep the last samples and the state of each instance from here on; what was kept moves there."""
        with self._lock:
            if self.instances is None:
                kept = sorted((item for one in self._items.values() for item, _ in one), key=_station_seq)
                store = InstanceStore(
                    limits, self._byte_limit, self._clock, self._tasks, per_supplier=self._per_supplier
                )
                for item in kept:
                    store.keep(item)
                self._items.clear()
                self._ages.clear()
                self.kept = self.bytes = 0
                self.instances = store
            return self.instances

    def counts(self) -> tuple[int, int, int]:
        """Events that are kept, what they take, and how many were forgotten."""
        store = self.instances
        if store is None:
            return self.kept, self.bytes, self.forgotten
        return store.kept, store.bytes, self.forgotten + store.forgotten

    def keep(self, item: Item) -> None:
        """Keep an event. A push that was interrupted asks again, and it is kept once."""
        if self.instances is not None:
            self.instances.keep(item)
            return
        header = item[1]
        owner = header.supplier if self._per_supplier else ""
        where = (owner,) if self._depth is None else (owner, header.type, header.key)
        with self._lock:
            kept = self._items.get(where)
            if kept is None:
                kept = self._items[where] = deque(maxlen=self._depth or self._limit)
            if not kept or kept[-1][0][1] is not header:
                self._add(kept, item)

    def _add(self, kept: deque[Kept], item: Item) -> None:
        """Under the lock. What belongs together is stored without a call, and so an interrupt, in between."""
        is_full = len(kept) == kept.maxlen
        size = size_of(item[0])
        more_bytes = size - (kept[0][1] if is_full else 0)
        more, append, entry = 0 if is_full else 1, kept.append, (item, size)
        self._ages.append((kept, entry))
        self.bytes += more_bytes
        self.kept += more
        append(entry)
        if self.bytes >= self._byte_limit:
            self._forget_oldest()
        if len(self._ages) > FEW and len(self._ages) > 2 * self.kept:
            self._forget_ages()

    def _forget_oldest(self) -> None:
        """Under the lock: keep less than the bound, or one event."""
        while self.bytes >= self._byte_limit and self.kept > 1:
            kept, entry = self._ages.popleft()
            if kept and kept[0] is entry:
                size, pop = entry[1], kept.popleft
                self.bytes -= size
                self.kept -= 1
                self.forgotten += 1
                pop()

    def _forget_ages(self) -> None:
        """Under the lock: of what is not kept any more."""
        here = {id(entry) for kept in self._items.values() for entry in kept}
        self._ages = deque(aged for aged in self._ages if id(aged[1]) in here)

    def supplier_left(self, name: str) -> None:
        if self.instances is not None:
            self.instances.supplier_left(name)
        elif self._per_supplier:
            with self._lock:
                self._items = {where: kept for where, kept in self._items.items() if where[0] != name}
                sizes = [size for kept in self._items.values() for _, size in kept]
                self.bytes, self.kept = sum(sizes), len(sizes)
                self._forget_ages()

    def replay(
        self, queue: EventQueue, conditions: Mapping[type[Event], ReceiverCondition | AnyCondition]
    ) -> int:
        """Give a new queue what it would have matched, in the order of intake; returns how many."""
        items = self.matching(conditions)
        for item in items:
            queue.put_extra(item)
        return len(items)

    def matching(self, conditions: Mapping[type[Event], ReceiverCondition | AnyCondition]) -> list[Item]:
        """What is kept and meets a condition, in the order of intake."""
        now = self._clock.monotonic_ns()
        if self.instances is not None:
            kept = self.instances.items()
        else:
            with self._lock:
                kept = [item for entries in self._items.values() for item, _ in entries]
        items = [item for item in kept if not item[2] or item[2] > now]
        return [item for item in sorted(items, key=_station_seq) if meets(conditions, item)]


def _station_seq(item: Item) -> int:
    return item[1].station_seq


def meets(conditions: Mapping[type[Event], ReceiverCondition | AnyCondition], item: Item) -> bool:
    """Whether the condition for an event's type holds for it; without one it does not."""
    condition = conditions.get(type(item[0]))
    return condition is not None and condition.holds(item[0], item[1])

"""One consumer's queue: bounded, highest priority first, with a named policy for when it is full.

Suppliers put, one taker at a time takes. Every change happens under the lane's own lock, which is held for
a few instructions and never while user code runs. `on_ready` is called, outside the lock, when a lane that
nobody was about to look at has something to take.

    block         the supplier waits (`reserve` says no, `wait_for_room` waits)
    drop_oldest   the oldest waiting event makes room
    drop_newest   the new event is dropped
    coalesce      it takes the place of a waiting event of its key; a full lane drops its oldest
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from heliograph.channel.ledger import LaneCounts
from heliograph.event import Event, Header
from heliograph.qos import LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.observer import Watch
    from heliograph.ports import Clock, Tasks

Item: TypeAlias = tuple[Event, Header, int]
"""An event, its header, and the monotonic instant in ns when its lifespan ends; 0 when it has none."""
LanePolicy: TypeAlias = Literal["block", "drop_oldest", "drop_newest", "coalesce"]

BATCH: Final = 64
"""Events taken at once: enough to share the cost of a lock, few enough to let others have a turn."""


class Lane:
    """See the module."""

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        tasks: Tasks,
        limit: int,
        policy: LanePolicy,
        priority: int | None = None,
        on_ready: Callable[[Lane], None],
    ) -> None:
        self.name = name
        self.limit = limit
        self.policy = policy
        self.priority = priority
        """Takes the place of the events' own priority."""
        self.blocking = policy == "block"
        self.closed = False
        self.watch: Watch | None = None
        """Told what is expired and dropped here; whoever takes events tells what became of those."""
        self._on_ready = on_ready
        self._clock = clock
        self._lock = tasks.lock(f"lane {name}")
        self._room = tasks.condition(self._lock, f"room in {name}")
        self._quiet = tasks.condition(self._lock, f"end of {name}")
        # Waiting events by priority; usually a single band. What a band is, only the five methods at the
        # end know.
        self._bands: dict[int, Any] = {}
        self._waiting = 0
        self._reserved = 0
        self._watched = False
        self._taken = 0
        self.done = 0
        """How many of the taken events were delivered. The taker alone writes it, without the lock."""
        self._observed: list[Item] = []
        self._waiters = 0
        self._delivered = 0
        self._failed = 0
        self._expired = 0
        self._dropped: Counter[str] = Counter()

    # The supplier's side

    def reserve(self) -> bool:
        """Keep a place for a `put` that will follow; False when the lane is full. For `block` lanes."""
        with self._lock:
            if self._waiting + self._reserved >= self.limit and not self.closed:
                return False
            self._reserved += 1
            return True

    def unreserve(self) -> None:
        """Give back a place, because the event cannot go to another consumer."""
        with self._lock:
            self._reserved -= 1
            self._room.notify()

    def wait_for_room(self, timeout: float) -> bool:
        """Wait until there may be room; False when the time ran out."""
        with self._lock:
            self._waiters += 1
            try:
                return self._room.wait_for(self._has_room, timeout)
            finally:
                self._waiters -= 1

    def put(self, item: Item) -> None:
        """Queue an event. On a `block` lane, in a place kept by `reserve`."""
        with self._lock:
            if self.blocking:
                self._reserved -= 1
            if self.closed:
                self._drop(item, "closed")
                return
            if not self._append(item) or self._watched:
                return
            self._watched = True
        self._on_ready(self)

    def offer(self, item: Item) -> bool:
        """Queue an event without a place kept for it; False when a `block` lane is full."""
        with self._lock:
            if self.closed:
                self._drop(item, "closed")
                return True
            if self.blocking and self._waiting + self._reserved >= self.limit:
                return False
            if not self._append(item) or self._watched:
                return True
            self._watched = True
        self._on_ready(self)
        return True

    def put_extra(self, item: Item) -> None:
        """Queue beyond the limit: history for a new consumer, or what another member of its group left."""
        with self._lock:
            if self.closed:
                self._drop(item, "closed")
                return
            if not self._append_extra(item) or self._watched:
                return
            self._watched = True
        self._on_ready(self)

    # The taker's side

    def take(self, most: int = BATCH) -> list[Item]:
        """The next events, which count as pending until `settle`. Empty: `on_ready` will call again."""
        with self._lock:
            items = self._pop_batch(most)
            if items:
                self._take_over(items)
            else:
                self._watched = False
                self._quiet.notify_all()
            if self._waiters:
                self._room.notify(len(items))
        return items

    def failed_one(self) -> None:
        """The callback raised."""
        with self._lock:
            self._failed += 1
            self._taken -= 1

    def settle(self) -> None:
        """The batch is finished; what was neither delivered nor failed counts as dropped: the lane closed."""
        with self._lock:
            self._delivered += self.done
            left = self._taken - self.done
            if left:
                self._dropped["closed"] += left
                if self.watch is not None:
                    for item in self._observed[-left:]:
                        self.watch(item[1], "dropped", "closed")
            self._taken = self.done = 0

    def hand_over(self) -> list[Item]:
        """Close, and give what waits to somebody else instead of dropping it."""
        with self._lock:
            self.closed = True
            items = self._pop_batch(self._waiting)
            self._room.notify_all()
            self._quiet.notify_all()
        return items

    # For both

    def close(self, reason: str = "closed") -> None:
        """Take nothing more in; what waits is dropped under `reason`."""
        with self._lock:
            self.closed = True
            if self._waiting:
                self._drop_all(reason)
            self._bands.clear()
            self._waiting = 0
            self._room.notify_all()
            self._quiet.notify_all()

    def wait_empty(self, timeout: float | None) -> bool:
        """Wait until nothing waits and nothing is being delivered; False when the time ran out."""
        with self._lock:
            return self._quiet.wait_for(lambda: not self._waiting and not self._watched, timeout)

    @property
    def progress(self) -> int:
        """Goes up whenever a callback came back; for who watches, so without the lock."""
        return self._delivered + self.done + self._failed

    def highest(self) -> int:
        """The highest priority that waits; the lowest when nothing does."""
        with self._lock:
            return max((p for p, band in self._bands.items() if band), default=LOWEST_PRIORITY)

    def counts(self) -> LaneCounts:
        with self._lock:
            return self._counts()

    def __len__(self) -> int:
        return self._waiting

    # All of these run under the lock.

    def _counts(self, from_history: int = 0) -> LaneCounts:
        done = self.done  # read once: the taker raises it meanwhile
        return LaneCounts(
            self._delivered + done,
            self._failed,
            self._expired,
            dict(self._dropped),
            self._waiting + self._taken - done,
            from_history,
        )

    def _take_over(self, items: list[Item]) -> None:
        """These count as taken; the last of them are dropped if the lane closes before their turn."""
        self._taken = len(items)
        if self.watch is not None:
            self._observed = items

    def _drop(self, item: Item, reason: str) -> None:
        self._dropped[reason] += 1
        if self.watch is not None:
            self.watch(item[1], "dropped", reason)

    def _drop_all(self, reason: str) -> None:
        if self.watch is None:
            self._dropped[reason] += self._waiting
            return
        for band in self._bands.values():
            while band:
                self._drop(self._pop_first(band), reason)

    def _has_room(self) -> bool:
        return self.closed or self._waiting + self._reserved < self.limit

    def _pop_batch(self, most: int) -> list[Item]:
        items: list[Item] = []
        for priority in sorted(self._bands, reverse=True) if len(self._bands) > 1 else self._bands:
            band = self._bands[priority]
            while band and len(items) < most:
                item = self._pop_first(band)
                self._waiting -= 1
                if item[2] and self._clock.monotonic_ns() > item[2]:
                    self._expired += 1
                    if self.watch is not None:
                        self.watch(item[1], "expired")
                else:
                    items.append(item)
            if len(items) == most:
                break
        return items

    def _drop_oldest(self) -> None:
        """Drop the oldest event of the lowest priority."""
        item = self._pop_first(self._bands[min(p for p, band in self._bands.items() if band)])
        self._waiting -= 1
        self._drop(item, "oldest")

    def _append(self, item: Item) -> bool:
        """Whether anything new waits now."""
        if self._waiting < self.limit:
            priority = self.priority or item[1].priority
            band = self._bands.get(priority)
            if band is None:
                band = self._bands[priority] = self._new_band()
            band.append(item)
            self._waiting += 1
            return True
        if not self.blocking:
            if self.policy == "drop_newest":
                self._drop(item, "newest")
                return False
            if self.policy == "drop_oldest":
                self._drop_oldest()
        return self._append_extra(item)

    def _append_extra(self, item: Item) -> bool:
        self._band_of(item).append(item)
        self._waiting += 1
        return True

    def _band_of(self, item: Item) -> Any:
        priority = self.priority or item[1].priority
        band = self._bands.get(priority)
        if band is None:
            band = self._bands[priority] = self._new_band()
        return band

    def _new_band(self) -> Any:
        return deque()

    def _pop_first(self, band: Any) -> Item:
        item: Item = band.popleft()
        return item


class CoalescingLane(Lane):
    """Keeps one waiting event per key, the latest, in the place of the first."""

    def _append(self, item: Item) -> bool:
        band = self._band_of(item)
        key = (item[1].type, item[1].key)
        if key in band:
            self._drop(band[key], "coalesced")
            band[key] = item
            return False
        if self._waiting >= self.limit:
            self._drop_oldest()
        band[key] = item
        self._waiting += 1
        return True

    def _append_extra(self, item: Item) -> bool:
        return self._append(item)

    def _new_band(self) -> Any:
        return {}

    def _pop_first(self, band: Any) -> Item:
        item: Item = band.pop(next(iter(band)))
        return item

"""One consumer's queue: bounded, highest priority first, with a named policy for when it is full.

One supplier at a time puts, under a lock that all who put share, and one taker at a time takes. Every change
happens under the lane's own lock as well, which is held for a few instructions and never while user code
runs. So whoever is about to put may look at `waiting` without that lock: it only gets less meanwhile.
`on_ready` is called, outside the lane's lock, when a lane that nobody was about to look at has something to
take.

    block         the supplier waits (`waiting >= blocks_at` says no, `wait_for_room` waits)
    drop_oldest   the oldest waiting event makes room
    drop_newest   the new event is dropped
    coalesce      it takes the place of a waiting event of its key; a full lane drops its oldest
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from heliograph.channel.ledger import LaneCounts
from heliograph.event import Event, Header
from heliograph.qos import LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from heliograph.channel.bulk import Bulk
    from heliograph.channel.observer import Watch
    from heliograph.ports import Clock, Tasks

Item: TypeAlias = tuple[Event, Header, int]
"""An event, its header, and the monotonic instant in ns when its lifespan ends; 0 when it has none."""
LanePolicy: TypeAlias = Literal["block", "drop_oldest", "drop_newest", "coalesce"]

DEADLINE: Final = itemgetter(2)

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
        self.blocks_at: float = limit if policy == "block" else inf
        """How many events wait when a supplier must wait too."""
        self.closed = False
        self.watch: Watch | None = None
        """Told what is expired and dropped here; whoever takes events tells what became of those."""
        self._on_ready = on_ready
        self._clock = clock
        self._lock = tasks.lock(f"lane {name}")
        self._acquire = self._lock.acquire
        self._release = self._lock.release
        self._room = tasks.condition(self._lock, f"room in {name}")
        self._quiet = tasks.condition(self._lock, f"end of {name}")
        # Waiting events by priority; usually a single band. What a band is, only the methods at the
        # end know.
        self._bands: defaultdict[int, Any] = defaultdict(self._new_band)
        self.waiting = 0
        """How many events wait."""
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

    def wait_for_room(self, timeout: float) -> bool:
        """Wait until there may be room; False when the time ran out."""
        with self._lock:
            self._waiters += 1
            try:
                return self._room.wait_for(self._has_room, timeout)
            finally:
                self._waiters -= 1

    def put(self, item: Item) -> None:
        """Queue an event; into a `block` lane, one that has room."""
        # Not `with`: for every delivery, it would take longer than all the rest.
        self._acquire()
        try:
            if self.closed:
                self._drop(item, "closed")
                return
            if self.waiting < self.limit:
                self._bands[self.priority or item[1].priority].append(item)
                self.waiting += 1
            elif not self._append(item):
                return
            if self._watched:
                return
            self._watched = True
        finally:
            self._release()
        self._on_ready(self)

    def put_many(self, items: Sequence[Item]) -> None:
        """Queue events of one priority, as `put` each of them."""
        with self._lock:
            if self.closed:
                self._drop_each(items, "closed")
                return
            if not self._append_all(items) or self._watched:
                return
            self._watched = True
        self._on_ready(self)

    def put_bulk(self, bulk: Bulk) -> None:
        """Queue events that were pushed together; into a `block` lane, one that has room for them."""
        self.put_many(list(bulk))

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

    def abandon(self, items: Iterable[Item]) -> None:
        """These were taken, and nobody will deliver them: the lane closed."""
        with self._lock:
            for item in items:
                self._taken -= 1
                self._drop(item, "closed")

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
            items = self._pop_batch(self.waiting)
            self._room.notify_all()
            self._quiet.notify_all()
        return items

    # For both

    def close(self, reason: str = "closed") -> None:
        """Take nothing more in; what waits is dropped under `reason`."""
        with self._lock:
            self.closed = True
            if self.waiting:
                for band in self._bands.values():
                    self._drop_each(self._pop(band, len(band)), reason)
            self._bands.clear()
            self.waiting = 0
            self._room.notify_all()
            self._quiet.notify_all()

    def wait_empty(self, timeout: float | None) -> bool:
        """Wait until nothing waits and nothing is being delivered; False when the time ran out."""
        with self._lock:
            return self._quiet.wait_for(lambda: not self.waiting and not self._watched, timeout)

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
        return self.waiting

    # All of these run under the lock.

    def _counts(self, from_history: int = 0) -> LaneCounts:
        done = self.done  # read once: the taker raises it meanwhile
        return LaneCounts(
            self._delivered + done,
            self._failed,
            self._expired,
            dict(self._dropped),
            self.waiting + self._taken - done,
            from_history,
        )

    def _take_over(self, items: list[Item]) -> None:
        """These count as taken; the last of them are dropped if the lane closes before their turn."""
        self._taken += len(items)
        if self.watch is not None:
            self._observed = items

    def _drop(self, item: Item, reason: str) -> None:
        self._drop_each((item,), reason)

    def _drop_each(self, items: Sequence[Item], reason: str) -> None:
        self._dropped[reason] += len(items)
        if self.watch is not None:
            for item in items:
                self.watch(item[1], "dropped", reason)

    def _has_room(self) -> bool:
        return self.closed or self.waiting < self.blocks_at

    def _pop_batch(self, most: int) -> list[Item]:
        items: list[Item] = []
        for priority in sorted(self._bands, reverse=True) if len(self._bands) > 1 else self._bands:
            band = self._bands[priority]
            while band and len(items) < most:
                popped = self._pop(band, most - len(items))
                self.waiting -= len(popped)
                if any(map(DEADLINE, popped)):
                    popped = self._in_time(popped)
                items = items + popped if items else popped
            if len(items) == most:
                break
        return items

    def _in_time(self, items: list[Item]) -> list[Item]:
        """Those whose lifespan is not over; the others are counted."""
        now = self._clock.monotonic_ns()
        alive = [item for item in items if not item[2] or now <= item[2]]
        self._expired += len(items) - len(alive)
        if self.watch is not None:
            for item in items:
                if item[2] and now > item[2]:
                    self.watch(item[1], "expired")
        return alive

    def _drop_oldest(self) -> None:
        """Drop the oldest event of the lowest priority."""
        items = self._pop(self._bands[min(p for p, band in self._bands.items() if band)], 1)
        self.waiting -= 1
        self._drop_each(items, "oldest")

    def _append(self, item: Item) -> bool:
        """Whether anything new waits now."""
        if self.waiting >= self.limit:
            if self.policy == "drop_newest":
                self._drop(item, "newest")
                return False
            if self.policy == "drop_oldest":
                self._drop_oldest()
        return self._append_extra(item)

    def _append_all(self, items: Sequence[Item]) -> bool:
        if self.waiting + len(items) > self.limit:
            return self._append_each(items)
        self._bands[self.priority or items[0][1].priority].extend(items)
        self.waiting += len(items)
        return True

    def _append_each(self, items: Sequence[Item]) -> bool:
        return sum([self._append(item) for item in items]) > 0

    def _append_extra(self, item: Item) -> bool:
        self._bands[self.priority or item[1].priority].append(item)
        self.waiting += 1
        return True

    def _new_band(self) -> Any:
        return deque()

    def _pop(self, band: Any, most: int) -> list[Item]:
        if len(band) <= most:
            items = list(band)
            band.clear()
            return items
        pop = band.popleft
        return [pop() for _ in range(most)]


class CoalescingLane(Lane):
    """Keeps one waiting event per key, the latest, in the place of the first."""

    def put(self, item: Item) -> None:
        self.put_many((item,))

    def _append(self, item: Item) -> bool:
        band = self._bands[self.priority or item[1].priority]
        key = (item[1].type, item[1].key)
        if key in band:
            self._drop(band[key], "coalesced")
            band[key] = item
            return False
        if self.waiting >= self.limit:
            self._drop_oldest()
        band[key] = item
        self.waiting += 1
        return True

    def _append_all(self, items: Sequence[Item]) -> bool:
        return self._append_each(items)

    def _append_extra(self, item: Item) -> bool:
        return self._append(item)

    def _new_band(self) -> Any:
        return {}

    def _pop(self, band: Any, most: int) -> list[Item]:
        return [band.pop(next(iter(band))) for _ in range(min(len(band), most))]

"""The time-based filter (`separation=`): at most one event of a key in a period.

    channel.subscribe(show, separation=0.1)         # of each track, no more than ten a second

The first event of a key passes. What comes of that key while it waits, and within `separation` seconds after
it was taken, is held back: only the latest of it, and the one before counts as dropped, `separated`. When the
time is over the one that is held passes, so the last value comes although no other follows. Since the time
begins when an event is taken, it is kept however slow the callback is; events are taken one by one for that.
Keys do not wait for each other; events of a type without a key are one key. When the channel is closed what
is held passes at once.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.channel.queueing.history_merge import LateLane
from heliograph.channel.queueing.queue import Lane, key_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from heliograph.channel.ledger import LaneCounts
    from heliograph.channel.queueing.queue import Item
    from heliograph.qos.dispatch_order import Waiting
    from heliograph.runtime.timers import Timers


class SeparatingLane(Lane):
    """See the module."""

    def __init__(self, name: str, *, separation: float, timers: Timers, **lane: Any) -> None:
        super().__init__(name, **lane)
        self._separation_ns = round(separation * 1e9)
        self._timers = timers
        self._free_at: dict[Hashable, float] = {}
        """When the next event of a key may pass; `inf` while one waits. Keys that are not there are free."""
        self._ends: deque[tuple[int, Hashable]] = deque()
        """The same, in the order of time, without those of which one waits."""
        self._early: dict[Hashable, Item] = {}
        """What is held back."""
        self._rings_at: int | None = None

    def put(self, item: Item) -> None:
        self.put_many((item,))

    def finish(self) -> None:
        self._let_pass(everything=True)

    def close(self, reason: str = "closed") -> None:
        with self._lock:
            early = list(self._early.values())
            self._early.clear()
            self._drop_each(early, reason)
        super().close(reason)

    # All of these run under the lock.

    def _counts(self, from_history: int = 0) -> LaneCounts:
        counts = super()._counts(from_history)
        return msgspec.structs.replace(counts, pending=counts.pending + len(self._early))

    def _append_all(self, items: Sequence[Item]) -> bool:
        return self._put_each(items)

    def _append(self, item: Item) -> bool:
        """What is held back needs no room in the queue."""
        return self._append_extra(item) if self._is_early(item) else super()._append(item)

    def _append_extra(self, item: Item) -> bool:
        if self._is_early(item):
            self._hold_back(item)
            return False
        self._free_at[key_of(item)] = inf
        return super()._append_extra(item)

    def _pop_next(self, most: int, chosen: Waiting | None) -> Sequence[Item]:
        items = super()._pop_next(min(most, 1), chosen)
        for item in items:
            self._begin_anew(key_of(item), self._clock.monotonic_ns() + self._separation_ns)
        return items

    def _in_time(self) -> None:
        taken = self._hand
        super()._in_time()
        self._free([item for item in taken if item not in self._hand])

    def _drop_each(self, items: Sequence[Item], reason: str) -> None:
        super()._drop_each(items, reason)
        if reason in ("oldest", "soonest"):  # it waited, or was held back
            self._free([item for item in items if self._free_at.get(key_of(item)) == inf])

    def _give_back(self, hand: Sequence[Item], left: int) -> None:
        keys = {key_of(item) for item in list(hand)[-left:]}
        if not self.closed:
            self._ends = deque(end for end in self._ends if end[1] not in keys)
            self._free_at.update(dict.fromkeys(keys, inf))
        super()._give_back(hand, left)

    def _free(self, items: Sequence[Item]) -> None:
        """These wait no more, and were not delivered: what is held of their keys may pass."""
        for item in items:
            if key_of(item) not in self._waiting_keys():
                self._begin_anew(key_of(item), self._clock.monotonic_ns())

    def _waiting_keys(self) -> set[Hashable]:
        return {key_of(held) for band in self._bands.values() for held in band}

    def _is_early(self, item: Item) -> bool:
        self._forget_free_keys(self._clock.monotonic_ns())
        return key_of(item) in self._free_at

    def _forget_free_keys(self, now: int) -> None:
        ends = self._ends
        while ends and ends[0][0] <= now and ends[0][1] not in self._early:
            self._free_at.pop(ends.popleft()[1], None)

    def _begin_anew(self, key: Hashable, free_at: int) -> None:
        self._free_at[key] = free_at
        if self._ends and self._ends[-1][0] > free_at:
            self._ends.appendleft((free_at, key))
        else:
            self._ends.append((free_at, key))
        if key in self._early:
            self._set_timer()

    def _hold_back(self, item: Item) -> None:
        key = key_of(item)
        before = self._early.pop(key, None)
        if before is not None:
            self._drop(before, "separated")
        elif len(self._early) >= self.limit:
            self._drop(self._early.pop(next(iter(self._early))), "oldest")
        self._early[key] = item
        self._set_timer()

    def _set_timer(self) -> None:
        """For the first key that gets free, whether anything of it is held or not: their order is known."""
        if not self._ends:
            return  # it is set when what waits is taken
        due = self._ends[0][0]
        if self._rings_at is None or due < self._rings_at:
            self._rings_at = due
            self._timers.at(due, self._ring, owed=True)

    # By a timer, or when the channel closes

    def _ring(self) -> None:
        self._rings_at = None
        self._let_pass(everything=False)

    def _let_pass(self, *, everything: bool) -> None:
        """What was held back for long enough."""
        with self._lock:
            now = self._clock.monotonic_ns()
            passed = False
            while self._ends and not self.closed and self._ends[0][0] <= now:
                self._free_at.pop(self._ends.popleft()[1], None)
            for key in [key for key in self._early if everything or key not in self._free_at]:
                passed = True
                self._free_at[key] = inf
                super()._append_extra(self._early.pop(key))
            if self._early and not self.closed:
                self._set_timer()
            if not passed or self._watched:
                return
            self.announced, self._watched = False, True
        self._on_ready(self)


class LateSeparatingLane(LateLane, SeparatingLane):
    """The same for who joins late: of what was kept, too, no more than one at a time."""

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
from typing import TYPE_CHECKING

from heliograph.channel.queueing.coalesce import key_of
from heliograph.channel.queueing.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from heliograph.channel.queueing.queue import Item
    from heliograph.runtime.ports import Clock
    from heliograph.runtime.timers import Timers


class Separation(Stage):
    """See the module."""

    paces = True

    def __init__(self, separation: float, timers: Timers, clock: Clock) -> None:
        super().__init__()
        self._separation_ns = round(separation * 1e9)
        self._timers = timers
        self._now = clock.monotonic_ns
        self._free_at: dict[Hashable, float] = {}
        """When the next event of a key may pass; `inf` while one waits. Keys that are not there are free."""
        self._ends: deque[tuple[int, Hashable]] = deque()
        """The same, in the order of time, without those of which one waits."""
        self._early: dict[Hashable, Item] = {}
        """What is held back."""
        self._early_bytes = 0
        """What it takes, where events are measured."""
        self._rings_at: int | None = None

    def __len__(self) -> int:
        """How many keys are not free."""
        return len(self._free_at)

    def admit(self, item: Item, *, beyond: bool) -> bool:
        """What is held back needs no room in the queue."""
        self._forget_free_keys(self._now())
        if key_of(item) in self._free_at:
            self._hold_back(item)
            return False
        return self._let_wait(item, beyond=beyond)

    def _let_wait(self, item: Item, *, beyond: bool) -> bool:
        is_new = self.pass_on(item, beyond=beyond)
        if is_new:
            self._free_at[key_of(item)] = inf
        return is_new

    def held_back(self) -> Collection[Item]:
        return self._early.values()

    def taken(self, items: Sequence[Item]) -> None:
        for item in items:
            self._begin_anew(key_of(item), self._now() + self._separation_ns)

    def returned(self, items: Sequence[Item]) -> None:
        keys = {key_of(item) for item in items}
        self._ends = deque(end for end in self._ends if end[1] not in keys)
        self._free_at.update(dict.fromkeys(keys, inf))

    def lost(self, items: Sequence[Item]) -> None:
        """What is held of their keys may pass."""
        for item in items:
            if key_of(item) not in self._waiting_keys():
                self._begin_anew(key_of(item), self._now())

    def mended(self) -> None:
        """Each key waits, has an end, or is free."""
        self._early_bytes = self.queue.measure(self._early.values())
        waiting, ends = self._waiting_keys(), {key for _, key in self._ends}
        again = self._now() + self._separation_ns
        for key in [key for key in self._free_at if key not in waiting and key not in ends]:
            self._begin_anew(key, again)
        self._free_at.update(dict.fromkeys(waiting, inf))
        self._rings_at = None
        if self._early:
            self._set_timer()

    def finish(self) -> None:
        self._let_pass(everything=True)

    def close(self, reason: str) -> None:
        early = list(self._early.values())
        self._early.clear()
        self._early_bytes = 0
        self.queue.drop_each(early, reason)

    def _waiting_keys(self) -> set[Hashable]:
        return set(map(key_of, self.queue.all_waiting()))

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
        if key in self._early:
            self.queue.drop_each((self._release_early(key),), "separated")
        while self._early and self._holds_too_much():
            self.queue.drop_each((self._release_early(next(iter(self._early))),), "oldest")
        self._early[key] = item
        self._early_bytes += self.queue.measure((item,))
        self._set_timer()

    def _holds_too_much(self) -> bool:
        """As a queue is full: in events or in bytes."""
        return len(self._early) >= self.queue.limit or self._early_bytes >= self.queue.byte_limit

    def _release_early(self, key: Hashable) -> Item:
        """What is held back of a key is so no more."""
        item = self._early.pop(key)
        self._early_bytes -= self.queue.measure((item,))
        if not self._early:
            self._early_bytes = 0
        return item

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
        self.queue.let_in(lambda: self._pass_early(everything=everything))

    def _pass_early(self, *, everything: bool) -> bool:
        """Whether anything passed. Under the lock."""
        now, closed = self._now(), self.queue.closed
        passed = False
        while self._ends and not closed and self._ends[0][0] <= now:
            self._free_at.pop(self._ends.popleft()[1], None)
        for key in [key for key in self._early if everything or key not in self._free_at]:
            passed = True
            self._let_wait(self._release_early(key), beyond=True)
        if self._early and not closed:
            self._set_timer()
        return passed

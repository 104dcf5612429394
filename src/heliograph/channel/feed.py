"""From the journal to consumers: what becomes durable is fed to lanes; a lane that falls behind reads on.

On a journalled channel nobody sees an event before it is on disk, and no consumer ever blocks a supplier.
The feed gets each batch when it has been synced and offers it to the lanes that want it. A lane is

    live      it takes what the feed offers, from the offset `position` on
    behind    it reads the journal from `position`: because it starts in the past, because it was full, or
              because a batch entered the journal that did not come through this process

A lane whose disk or keeper does not answer for now stays behind, and looks again in a while.

A live lane without room falls behind at the event it could not take. A lane that has read everything becomes
live again while the feed is held still, so between the two no event is lost or taken twice: the seam.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from heliograph.channel.lane import BATCH, Item, Lane
from heliograph.errors import DiskError, HeliographError, HistoryDamaged, HistoryGone, QueryFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from heliograph.channel.ledger import LaneCounts
    from heliograph.channel.pipeline import AnyOf, Condition, Route
    from heliograph.channel.store import Store
    from heliograph.event import Event
    from heliograph.ports import Tasks

log = logging.getLogger(__name__)

GAPS: Final = 1000
"""Gaps that a lane remembers."""
READ_AHEAD: Final = 512
"""Events read from the journal at once by a lane that is behind."""
READ_AGAIN: Final = 0.25
"""Seconds between two attempts of a lane to read what cannot be read for now."""


class Feed:
    """Offers durable events to lanes, in the order of offsets."""

    def __init__(self, tasks: Tasks) -> None:
        self.lock = tasks.lock("feed")
        self._routes: Mapping[type, Route] = {}
        self._matched = 0
        self._next = 0
        self._bounded: set[JournalLane] = set()
        self._lanes: WeakSet[JournalLane] = WeakSet()
        self.passing: Callable[[Item, list[str]], object] | None = None
        """Told to which receivers an event is passed, before it is, where `push` waits for them."""

    def begin(self, next_offset: int) -> None:
        """What is below has been durable before; called before the first push."""
        self._next = next_offset

    def durable(self, items: Iterable[Item] | None, next_offset: int) -> None:
        """These events, up to an offset, are on disk. Called in the journal's own task.

        They are not even looked at while nobody is there. None stands for events that did not come through
        this process: every lane reads them for itself.
        """
        rings: list[JournalLane] = []
        try:
            with self.lock:
                try:
                    self._pass_on(items, rings)
                except Exception:
                    # What was not offered to all is on disk: they read it.
                    self._pass_on(None, rings)
                    raise
                finally:
                    self._next = next_offset
                    for lane in tuple(self._bounded):
                        if lane.passed(self._next, rings):
                            self._bounded.discard(lane)
        finally:
            # Without the lock: who is rung may take at once, in this task, and a lane that takes may rejoin.
            for lane in rings:
                _ring(lane)

    def _pass_on(self, items: Iterable[Item] | None, rings: list[JournalLane]) -> None:
        """Under the lock: offer events one by one; `_next` is the first that not every lane was offered."""
        if items is None:
            for reader in self._lanes:
                reader.fall_behind(self._next, rings)
        elif self.passing is not None or any(r.queued is not None for r in self._routes.values()):
            for item in items:
                event, header, _ = item
                route = self._routes.get(event.__class__)
                if route is None:
                    continue
                assert header.offset is not None
                self._next = header.offset
                lanes = () if route.queued is None else route.queued(event, header)
                if self.passing is not None:
                    self.passing(item, [lane.name for lane in lanes])
                for lane in lanes:
                    assert isinstance(lane, JournalLane)
                    self._matched += lane.accept(item, rings)
                self._next = header.offset + 1

    # While still, that is, under the lock:

    @property
    def next_offset(self) -> int:
        return self._next

    @property
    def matched(self) -> int:
        return self._matched

    def use(self, routes: Mapping[type, Route]) -> None:
        self._routes = routes

    def join(self, lane: JournalLane) -> None:
        """Another lane is there from now on, for as long as somebody has it."""
        self._lanes.add(lane)

    def count_again(self) -> None:
        """An event was put into a lane a second time."""
        self._matched += 1

    def watch(self, lane: JournalLane) -> None:
        """Tell this lane when its end has been passed: the last events may not be for it."""
        self._bounded.add(lane)


def _ring(lane: JournalLane) -> None:
    """Whatever comes of it, the others are rung too."""
    try:
        lane.ring()
    except Exception:
        log.exception("%s could not be told that events wait", lane.name)


class JournalLane(Lane):
    """A lane that reads the journal when it is behind; see the module.

    Args:
        store: where to read.
        feed: what to rejoin.
        conditions: what the consumer wants, for events that are read instead of routed.
        position: the first offset that it wants; None: from the next one on.
        until: the offset at which it ends; None: it does not.
        on_gap: told when what it was about to read is gone or damaged; it goes on behind the gap.
    """

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        feed: Feed,
        conditions: Mapping[type[Event], Condition | AnyOf],
        position: int | None,
        until: int | None,
        on_gap: Callable[[HeliographError], object],
        tasks: Tasks,
        **lane: Any,
    ) -> None:
        super().__init__(name, policy="drop_newest", tasks=tasks, **lane)
        self._tasks = tasks
        self._store = store
        self._feed = feed
        self._conditions = conditions
        self._position = position or 0
        self._until = until
        self._on_gap = on_gap
        self._behind = position is not None
        self._watched = self._behind
        self._from_history = 0
        self._pausing = False
        self._failing = False
        self.raises_gaps = False
        """Whether `take` raises at a gap, once, instead of telling `on_gap`."""
        self.gaps: deque[HistoryGone | HistoryDamaged] = deque(maxlen=GAPS)
        """What it missed, the latest last."""
        self.failure: HeliographError | None = None
        """Why it could not read on; it is closed then."""

    @property
    def read_to(self) -> int | None:
        """With nothing waiting: the offset that it has read to, matching or not."""
        with self._lock:
            return None if self.waiting else self._position

    def lowest(self, default: int) -> int:
        """The first offset that waits. Each band is in the order of offsets."""
        with self._lock:
            return min((band[0][1].offset for band in self._bands.values() if band), default=default)

    @property
    def ended(self) -> bool:
        """Whether it has read up to `until`."""
        return self._until is not None and self._position >= self._until and not self.waiting

    def joined(self) -> None:
        """It is among the receivers from now on. While still."""
        self._feed.join(self)

    def start(self) -> None:
        """Once it has been joined: whoever delivers may look."""
        if self._behind:
            self.ring()

    def ring(self) -> None:
        """Tell whoever delivers to look. Never under the feed's lock, which the look may need."""
        self._on_ready(self)

    # What the feed says. A lane that must be rung for it adds itself to `rings`.

    def fall_behind(self, position: int, rings: list[JournalLane]) -> None:
        """Read on from an offset, because live events may have been missed from there on."""
        with self._lock:
            if self._behind or self.closed:
                return
            self._behind, self._position = True, max(self._position, position)
            self._watch(rings)

    def accept(self, item: Item, rings: list[JournalLane]) -> bool:
        """Take a live event; False when the lane will read it itself, or has."""
        offset = item[1].offset
        assert offset is not None
        with self._lock:
            if self._behind or self.closed or offset < self._position:
                return False
            if self._until is not None and offset >= self._until:
                return False
            if self.waiting >= self.limit:
                self._behind, self._position = True, offset
                return False
            self._append_extra(item)
            self._watch(rings)
            return True

    def passed(self, offset: int, rings: list[JournalLane]) -> bool:
        """The feed has come to this offset; True when that was all the lane waits for, or it is closed."""
        with self._lock:
            assert self._until is not None
            if self._behind:
                return True  # it reads up to its end by itself
            if offset < self._until and not self.closed:
                return False
            self._position = max(self._position, offset)
            self._behind = True
            self._watch(rings)
            return True

    def take(self, most: int = BATCH) -> list[Item]:
        """As in any lane. May raise HistoryGone or HistoryDamaged at a gap; the next call goes on."""
        while True:
            with self._lock:
                items = self._pop_batch(most)
                if items:
                    self._take_over(items)
                    return items
                if self.closed or not self._behind or self.ended or self._pausing:
                    self._watched = False
                    self._quiet.notify_all()
                    return []
                position = self._position
            self._read_on(position)

    def counts(self) -> LaneCounts:
        with self._lock:
            return self._counts(self._from_history)

    def _read_on(self, position: int) -> None:
        """Read the journal, or rejoin the feed when there is nothing more to read. Only the taker does."""
        try:
            items, reached = self._store.read(position, READ_AHEAD, self._until)
        except (HistoryGone, HistoryDamaged) as gap:
            with self._lock:
                self._position = gap.next_available
                self.gaps.append(gap)
            if self.raises_gaps:
                raise
            self._on_gap(gap)
            return
        except HeliographError as error:
            if isinstance(error, DiskError | QueryFailed) and error.retriable:
                self._pause(error)
                return
            # A class that cannot read what is kept: nothing behind it could be read either.
            self.failure = error
            self._on_gap(error)
            self.close("unreadable")
            return
        self._failing = False
        wanted = [item for item in items if self._wants(item)]
        with self._lock:
            for item in wanted:
                self._append_extra(item)
            self._from_history += len(wanted)
            self._position = reached
        if reached == position:
            with self._feed.lock, self._lock:
                if self._position >= self._feed.next_offset:
                    self._behind = False
                    if self._until is not None:
                        self._feed.watch(self)

    def _pause(self, error: HeliographError) -> None:
        """Stay behind and be rung again in a while; said once, however often it fails."""
        if not self._failing:
            log.warning("%s cannot read history now, and tries until it can: %s", self.name, error)
        self._failing = True
        with self._lock:
            self._pausing = True
        self._tasks.spawn(f"pause of {self.name}", self._resume)

    def _resume(self) -> None:
        self._tasks.sleep(READ_AGAIN)
        rings: list[JournalLane] = []
        with self._lock:
            self._pausing = False
            if not self.closed:
                self._watch(rings)
        for lane in rings:
            lane.ring()

    def _watch(self, rings: list[JournalLane]) -> None:
        """Under the lock: there is something to look at."""
        if not self._watched:
            self._watched = True
            rings.append(self)

    def _wants(self, item: Item) -> bool:
        condition = self._conditions.get(type(item[0]))
        return condition is not None and condition.holds(item[0], item[1])

"""Feeds durable events from the journal to receivers' queues; a queue that falls behind reads the journal.

On a journalled channel nobody sees an event before it is on disk, and no consumer ever blocks a supplier. The
history is a set of partitions, one per station that keeps the channel. The feed gets each batch of each
partition when it has been synced and offers it to the lanes that want it. In each partition a lane is

    live      it takes what the feed offers, from the offset `position` on
    behind    it reads the journal from `position`: because it starts in the past, because it was full, or
              because a batch entered the journal that did not come through this process

A partition whose disk or keeper does not answer for now stays behind, and is looked at again in a while; the
others go on. What another station keeps is read in a task of its own: who takes waits for it a moment, and is
rung when it has come.

A live lane without room falls behind at the event it could not take. A lane that has read everything becomes
live again while the feed is held still, so between the two no event is lost or taken twice: the seam.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

from heliograph.channel.history.positions import FairQueue, Place
from heliograph.channel.queueing.queue import BATCH, Item, Lane
from heliograph.channel.routing.conditions import Condition
from heliograph.errors import (
    CursorHeld,
    DiskError,
    HeliographError,
    HistoryDamaged,
    HistoryGone,
    HistoryReset,
    QueryFailed,
)
from heliograph.model.event import info_of
from heliograph.model.lives import parted_at
from heliograph.runtime.task_pool import TaskPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.history.positions import Begin
    from heliograph.channel.history.store import Answered, Partition
    from heliograph.channel.ledger import LaneCounts
    from heliograph.channel.receive.options import InOwnClass
    from heliograph.channel.routing.compiler import Found, Route
    from heliograph.channel.routing.conditions import AnyOf
    from heliograph.model.event import Event
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)

Offers: TypeAlias = "tuple[Mapping[type, Route], Iterable[tuple[Item, Found | None]]]"
"""Routes, and events with what `Route.early` has found by them."""

GAPS: Final = 1000
"""Gaps that a lane remembers."""
READ_AHEAD: Final = 512
"""Events read from the journal at once by a lane that is behind; and how many it hands out from its queue
before it reads on in a partition that is behind, while others keep it busy."""
MOMENT: Final = 0.1
"""Seconds that who takes waits for a page of another station's partition, before it looks at the others."""
READERS: Final = 64
"""Pages of a channel that are read at the same time: a keeper that is away keeps each of them waiting."""
READ_AGAIN: Final = 0.25
"""Seconds between two attempts of a lane to read what cannot be read for now."""


class Feed:
    """Offers durable events to lanes, each partition in the order of its offsets."""

    def __init__(self, tasks: Tasks) -> None:
        self.lock = tasks.lock("feed")
        self.readers = TaskPool(tasks, "history reader", limit=READERS)
        """Read pages of partitions that other stations keep. A page is short, so its task is used again."""
        self.partitions: dict[str, Partition] = {}
        """All that were met, whether their keeper is there or not."""
        self._own = ""
        self._routes: Mapping[type, Route] = {}
        self._arriving: Mapping[type, Route] = {}
        self._matched = 0
        self._next: dict[str, int] = {}
        self._bounded: set[tuple[JournalLane, str]] = set()
        self._lanes: WeakSet[JournalLane] = WeakSet()
        self.passing: Callable[[Item, list[str]], object] | None = None
        """Told to which receivers an event is passed, before it is, where `push` waits for them."""

    def begin(self, own: Partition) -> None:
        """The partition into which this station's pushes go; called before the first of them."""
        self._own = own.partition
        self.partitions[own.partition] = own
        self._next[own.partition] = own.watermark

    def durable(
        self,
        partition: str,
        items: Iterable[Item] | None,
        next_offset: int,
        asked: Answered = (),
    ) -> None:
        """These events of a partition, up to an offset, are on disk. Called by who synced or received them.

        They are not even looked at while nobody is there. None stands for events that did not come through
        this process: every lane reads them for itself. `asked` says whom each is for, as far as its supplier
        has found out; the others are asked about here, before the lock is taken.
        """
        events: Offers | None = None
        try:
            if items is not None:
                events = self._ask(partition, items, asked)
        finally:
            self._pass_all_on(partition, events, next_offset)

    def _ask(self, partition: str, items: Iterable[Item], asked: Answered) -> Offers:
        routes = self._routes_of(partition)
        if all(route.early is None for route in routes.values()):
            return routes, zip(items, repeat(None), strict=False)
        known = [answers[1] for _, answers in asked if answers is not None and answers[0] is routes]
        if asked and len(known) == len(asked):
            return routes, zip(items, chain.from_iterable(known), strict=True)
        items = list(items)
        found: list[Found | None] = []
        for how_many, answers in asked or ((len(items), None),):
            if answers is not None and answers[0] is routes:
                found += answers[1]
            else:
                found += [_find(routes, item) for item in items[len(found) : len(found) + how_many]]
        return routes, zip(items, found, strict=True)

    def read_as_pushed(self, partition: str, offset: int) -> None:
        """Events that another station keeps come in this station's class, which is another version.

        Lanes that hand them on as they were pushed read them from there on.
        """
        rings: list[JournalLane] = []
        with self.lock:
            for reader in self._lanes:
                if reader.as_kept:
                    reader.fall_behind(partition, offset, rings)
        ring_all(rings)

    def _routes_of(self, partition: str) -> Mapping[type, Route]:
        # What another station keeps was sent to the others by that one.
        return self._routes if partition == self._own else self._arriving

    def _pass_all_on(self, partition: str, events: Offers | None, next_offset: int) -> None:
        rings: list[JournalLane] = []
        try:
            with self.lock:
                try:
                    self._pass_on(partition, events, rings)
                except Exception:
                    # What was not offered to all is on disk: they read it.
                    self._pass_on(partition, None, rings)
                    raise
                finally:
                    self._next[partition] = max(next_offset, self.next_offset(partition))
                    for bounded in tuple(self._bounded):
                        lane, where = bounded
                        if where == partition and lane.passed(partition, next_offset, rings):
                            self._bounded.discard(bounded)
        finally:
            # Without the lock: who is rung may take at once, in this task, and a lane that takes may rejoin.
            ring_all(rings)

    def _pass_on(self, partition: str, events: Offers | None, rings: list[JournalLane]) -> None:
        """Under the lock: offer events one by one; `_next` is the first that not every lane was offered."""
        following, routes = self._next, self._routes_of(partition)
        # What is sent again, or was asked about for so long that a newer link was faster, takes nobody back.
        reached = following.get(partition, 0)
        if events is None:
            for reader in self._lanes:
                reader.fall_behind(partition, following.get(partition, 0), rings)
        elif self.passing is not None or any(route.has_queue for route in routes.values()):
            asked, offered = events
            if asked is not routes:
                offered = ((item, None) for item, _ in offered)
            for item, found in offered:
                event, header, _ = item
                route = routes.get(event.__class__)
                offset = header.offset
                assert offset is not None
                if offset >= reached:
                    following[partition] = offset
                if route is None:
                    # Another version of a class: who hands it on has it as it was pushed, others read it.
                    for reader in self._lanes:
                        self._matched += reader.accept_version(item, rings)
                    following[partition] = max(reached, offset + 1)
                    continue
                # Not by a call where what was found is lanes only: as most of it is, of most events.
                lanes: Any = found
                if found is None or route.late is not None:
                    lanes = route.lanes(event, header, found)
                if self.passing is not None:
                    self.passing(item, [lane.name for lane in lanes])
                for lane in lanes:
                    assert isinstance(lane, JournalLane)
                    self._matched += lane.accept(item, rings)
                if offset >= reached:
                    following[partition] = offset + 1

    # While still, that is, under the lock:

    def next_offset(self, partition: str) -> int:
        """The first of a partition that was not offered yet."""
        return self._next.get(partition, 0)

    @property
    def matched(self) -> int:
        return self._matched

    def use(self, routes: Mapping[type, Route], arriving: Mapping[type, Route]) -> None:
        """The routes from the next event on: of those kept here, and of those that other stations keep."""
        self._routes, self._arriving = routes, arriving

    def meet(self, partition: Partition, watermark: int, rings: list[JournalLane]) -> bool:
        """A keeper is there, or there again; whether its partition is a new one.

        Live events may have been missed since it was last there: lanes read on from the last that came.
        """
        name = partition.partition
        if name not in self.partitions:
            self.partitions[name] = partition
            self._next[name] = watermark
            for lane in self._lanes:
                lane.meet(partition, watermark, rings)
            return True
        known = self.partitions[name]
        parted = parted_at(known.lives, partition.lives, self._next[name])
        known.met_again(partition.lives)
        if parted is not None:
            self._next[name] = parted
        for lane in self._lanes:
            if parted is not None:
                lane.set_back(name, parted, rings)
            lane.fall_behind(name, self._next[name], rings)
        return False

    def join(self, lane: JournalLane) -> None:
        """Another lane is there from now on, for as long as somebody has it."""
        self._lanes.add(lane)
        for name, partition in self.partitions.items():
            lane.meet(partition, self._next[name], [])

    def count_again(self) -> None:
        """An event was put into a lane a second time."""
        self._matched += 1

    def watch(self, lane: JournalLane, partition: str) -> None:
        """Tell this lane when its end there has been passed: the last events may not be for it."""
        self._bounded.add((lane, partition))


def _find(routes: Mapping[type, Route], item: Item) -> Found | None:
    route = routes.get(item[0].__class__)
    return None if route is None or route.early is None else route.early(item[0], item[1])


def ring_all(lanes: Iterable[JournalLane]) -> None:
    """Whatever comes of one, the others are rung too."""
    for lane in lanes:
        try:
            lane.ring()
        except Exception:
            log.exception("%s could not be told that events wait", lane.name)


class JournalLane(Lane):
    """A lane that reads the journal where it is behind; see the module.

    Args:
        places: where it is in each partition.
        feed: what to rejoin.
        conditions: what the consumer wants, for events that are read instead of routed.
        ends: whether it ends, when it has done so in all of them.
        begin: where it begins in partitions that are met later; None: it wants none of those.
        of_version: the condition for another version of a class than it named; None: it wants none.
        on_gap: told when what it was about to read is gone or damaged; it goes on behind the gap.
    """

    _is_shared = False
    as_kept = False
    """Whether it hands events on in the versions in which they were pushed, as gateways and groups do."""

    def __init__(
        self,
        name: str,
        *,
        places: Iterable[Place],
        ends: bool = False,
        feed: Feed,
        conditions: Mapping[type[Event], Condition | AnyOf],
        begin: Begin | None = None,
        of_version: Callable[[type[Event]], Condition | AnyOf | InOwnClass | None] = lambda _: None,
        on_gap: Callable[[HeliographError], object],
        tasks: Tasks,
        **lane: Any,
    ) -> None:
        super().__init__(name, policy="drop_newest", tasks=tasks, **lane)
        self._tasks = tasks
        self._feed = feed
        self._conditions = conditions
        self._of_version = of_version
        self._versions: dict[type[Event], Condition | AnyOf | InOwnClass] = {}
        self._begin = begin
        self._on_gap = on_gap
        self._places = {place.partition.partition: place for place in places}
        self._is_shared = len(self._places) > 1
        self._turns = deque(self._places.values())
        self._ends = ends
        self._watched = any(place.behind for place in self._turns)
        self._from_history = 0
        self._handed_out = 0
        """Since it last read."""
        self.raises_gaps = False
        """Whether `take` raises at a gap, once, instead of telling `on_gap`."""
        self._to_raise: deque[HistoryGone | HistoryDamaged | HistoryReset] = deque()
        self.gaps: deque[HistoryGone | HistoryDamaged | HistoryReset] = deque(maxlen=GAPS)
        """What it missed, the latest last."""
        self.parted: dict[str, int] = {}
        """Partitions that went back in time, and where to: a taker that numbers by offsets begins anew."""
        self._untold: deque[HistoryReset] = deque()
        """What whoever takes is to be told of."""
        self.numbers_offsets = False
        """Whether its taker does, and goes on by `go_on_at`."""
        self.on_held: Callable[[str], object] = lambda _: None
        """Told of a partition in which another has the place of its consumer."""
        self.failure: HeliographError | None = None
        """Why it could not read on; it is closed then."""

    def read_to(self, partition: str) -> int:
        """With nothing of a partition waiting: the offset that it has read to, matching or not."""
        with self._lock:
            place = self._places.get(partition)
            if place is None or self._first(partition) is not None:
                return 0
            return place.position or 0

    def lowest(self, partition: str, default: int) -> int:
        """The first offset of a partition that waits."""
        with self._lock:
            first = self._first(partition)
            return default if first is None else min(first, default)

    def read_one(self, partition: str, offset: int) -> Item | None:
        """One event once more, whoever has taken it; None when it cannot be had any more."""
        place = self._places.get(partition)
        if place is None:
            return None
        items, _ = place.partition.read(offset, 1, offset + 1, as_kept=self.as_kept)
        return items[0] if items else None

    @property
    def ended(self) -> bool:
        """Whether it has read up to its end everywhere."""
        return self._ends and not self.waiting and all(place.ended for place in self._places.values())

    def joined(self) -> None:
        """It is among the receivers from now on. While still."""
        self._feed.join(self)

    def start(self) -> None:
        """Once it has been joined: whoever delivers may look."""
        if self._watched:
            self.ring()

    def ring(self) -> None:
        """Tell whoever delivers to look. Never under the feed's lock, which the look may need."""
        self._on_ready(self)

    # What the feed says. A lane that must be rung for it adds itself to `rings`.

    def meet(self, partition: Partition, watermark: int, rings: list[JournalLane]) -> None:
        """There is another partition: where to begin in it is found by who takes, since that may ask."""
        with self._lock:
            if self._begin is None or partition.partition in self._places or self.closed:
                return
            place = Place(partition, None, behind=True, met=watermark)
            self._places[partition.partition] = place
            self._turns.append(place)
            if not self._is_shared and len(self._places) > 1:
                self._is_shared = True
                for priority, band in list(self._bands.items()):
                    self._bands[priority] = FairQueue(band)
            self._watch(rings)

    def fall_behind(self, partition: str, position: int, rings: list[JournalLane]) -> None:
        """Read on from an offset, because live events may have been missed from there on."""
        with self._lock:
            place = self._places.get(partition)
            if place is None or place.behind or self.closed:
                return
            place.behind, place.position = True, max(place.position or 0, position)
            self._watch(rings)

    def set_back(self, partition: str, offset: int, rings: list[JournalLane]) -> None:
        """A history went back in time: whoever reads is told what is gone, and reads on at the offset."""
        with self._lock:
            place = self._places.get(partition)
            if place is None or self.closed or place.position is None or place.position <= offset:
                return
            reset = HistoryReset(partition, offset, place.position)
            waiting = self._pop_all()
            gone = [item for item in waiting if item[1].partition == partition and item[1].offset >= offset]  # type: ignore[operator]  # what is durable has one
            self._drop_each(gone, "set back")
            self._enter_again(item for item in waiting if item not in gone)
            place.position, place.behind = offset, True
            if self.numbers_offsets:
                place.held = True
                self.parted[partition] = min(offset, self.parted.get(partition, offset))
            self._untold.append(reset)  # not told here: the feed is held still
            self._watch(rings)

    def go_on_at(self, partition: str, offset: int) -> None:
        """Its taker has begun anew in a partition that went back in time."""
        with self._lock:
            self.parted.pop(partition, None)
            place = self._places[partition]
            place.position, place.behind, place.held = offset, True, False

    def _missed(self, gap: HistoryGone | HistoryDamaged | HistoryReset) -> None:
        self.gaps.append(gap)
        if self.raises_gaps:
            self._to_raise.append(gap)
        else:
            self._on_gap(gap)

    def accept(self, item: Item, rings: list[JournalLane]) -> bool:
        """Take a live event; False when the lane will read it itself, or has."""
        header = item[1]
        offset = header.offset
        assert offset is not None
        with self._lock:
            place = self._places.get(header.partition)  # type: ignore[arg-type]  # what is durable has one
            if place is None or place.behind or self.closed:
                return False
            if offset < place.position or (place.until is not None and offset >= place.until):  # type: ignore[operator]  # of what is live it is known
                return False
            if self.waiting >= self.limit or place.held:
                place.behind, place.position = True, offset
                return False
            self._append_extra(item)
            self._watch(rings)
            return True

    def accept_version(self, item: Item, rings: list[JournalLane]) -> bool:
        """The same for a live event of a version that the channel has no class of.

        A lane that hands events on as they were pushed takes it, unless a filter is to be asked, which may be
        slow, and whoever calls this holds the feed. Others read it.
        """
        cls = item[0].__class__
        condition = self._versions.get(cls) or self._wanted_version(cls) if self.as_kept else None
        if isinstance(condition, Condition) and condition.is_open:
            return self.accept(item, rings)
        assert item[1].offset is not None
        self.fall_behind(str(item[1].partition), item[1].offset, rings)
        return False

    def passed(self, partition: str, offset: int, rings: list[JournalLane]) -> bool:
        """The feed has come to this offset; True when that was all the lane waits for, or it is closed."""
        with self._lock:
            place = self._places[partition]
            assert place.until is not None
            assert place.position is not None
            if place.behind:
                return True  # it reads up to its end by itself
            if offset < place.until and not self.closed:
                return False
            place.position = max(place.position, offset)
            place.behind = True
            self._watch(rings)
            return True

    def hold(self, partition: str) -> None:
        """Bring no more of a partition, but for what waits already, until `let_go`."""
        with self._lock:
            place = self._places.get(partition)
            if place is not None:
                place.held = True

    def let_go(self, partition: str) -> None:
        """Go on where it was held."""
        rings: list[JournalLane] = []
        with self._lock:
            place = self._places.get(partition)
            if place is not None and not self.closed:
                place.held = False
                self._watch(rings)
        ring_all(rings)

    def take(self, most: int = BATCH) -> list[Item]:
        """As in any lane. May raise HistoryGone or HistoryDamaged at a gap; the next call goes on."""
        return super().take(most)

    def _take(self, most: int) -> Sequence[Item]:
        while True:
            while self._untold:
                self._missed(self._untold.popleft())
            if self._to_raise:
                raise self._to_raise.popleft()
            chosen = self.head()
            with self._lock:
                is_time = self._handed_out >= READ_AHEAD or not self.waiting
                place = self._next_to_read() if is_time else None
                if place is None:
                    items = self._pop_next(most, chosen)
                    if items:
                        self._handed_out += len(items)
                        return items
                    if self.waiting and most:
                        continue  # what was chosen has expired
                    place = self._next_to_read()
                if place is None:
                    self._watched = False
                    self._quiet.notify_all()
                    return ()
                self._handed_out = 0
            self._look_at(place)

    def counts(self) -> LaneCounts:
        with self._lock:
            return self._counts(self._from_history)

    def _next_to_read(self) -> Place | None:
        """Under the lock: the next place, in turns, that is behind."""
        if self.closed:
            return None
        for _ in range(len(self._turns)):
            place = self._turns[0]
            self._turns.rotate(-1)
            if place.reads:
                return place
        return None

    def _look_at(self, place: Place) -> None:
        """See to it that it is read on in a partition."""
        if not place.partition.kept_here:
            self._have_read_on(place)
        elif not self._read_on(place):
            with self._lock:
                place.pausing = True
            self._feed.readers.submit(partial(self._resume, place, READ_AGAIN))

    def _have_read_on(self, place: Place) -> None:
        """Read on in another task, and wait for it a moment, unless it has kept others waiting."""
        done = self._tasks.event(f"page for {self.name}")
        is_slow = place.slow

        def read() -> None:
            started = self._clock.monotonic_ns()
            can_be_read = True
            try:
                can_be_read = self._read_on(place)
            finally:
                place.slow = self._clock.monotonic_ns() - started > MOMENT * 1e9
                if can_be_read:
                    self._resume(place)
                done.set()
            if not can_be_read:
                self._resume(place, READ_AGAIN)

        with self._lock:
            place.pausing = True
        self._feed.readers.submit(read)
        if not is_slow:
            done.wait(MOMENT)

    def _read_on(self, place: Place) -> bool:
        """Read the journal, or rejoin the feed when there is nothing more to read; one task at a time does.

        False when it cannot be read for now.
        """
        position = place.position
        try:
            if position is None:
                self._find(place)
                return True
            wanted_types = {info_of(cls).name for cls in tuple(self._conditions)}
            items, reached = place.partition.read(
                position, READ_AHEAD, place.until, as_kept=self.as_kept, only=wanted_types
            )
        except (HistoryGone, HistoryDamaged) as gap:
            with self._lock:
                if place.position == position:  # else it was set back meanwhile
                    place.position = gap.next_available
            self._missed(gap)
            return True
        except HeliographError as error:
            if isinstance(error, DiskError | QueryFailed | CursorHeld) and error.retriable:
                if isinstance(error, CursorHeld):
                    self.on_held(place.partition.partition)
                self._say_failing(place, error)
                return False
            # A class that cannot read what is kept: nothing behind it could be read either.
            self.failure = error
            self._on_gap(error)
            self.close("unreadable")
            return True
        place.failing = False
        wanted = [item for item in items if self._wants(item)]
        with self._lock:
            if self.closed:
                return True
            if place.position != position:
                return True  # it was set back meanwhile
            for item in wanted:
                self._append_extra(item)
            self._from_history += len(wanted)
            place.position = reached
        if reached == position:
            self._rejoin(place)
        return True

    def _find(self, place: Place) -> None:
        """Where to begin in a partition that was met after this lane was opened."""
        assert self._begin is not None
        position = self._begin(place.partition, place.met)
        with self._lock:
            place.position = position

    def _rejoin(self, place: Place) -> None:
        """Be live again, unless more has come since it was read."""
        name = place.partition.partition
        with self._feed.lock, self._lock:
            if place.position is not None and place.position >= self._feed.next_offset(name):
                place.behind = False
                if place.until is not None:
                    self._feed.watch(self, name)

    def _say_failing(self, place: Place, error: HeliographError) -> None:
        """It stays behind, and is looked at again in a while; said once, however often it fails."""
        if not place.failing:
            log.warning("%s cannot read history now, and tries until it can: %s", self.name, error)
            if isinstance(error, CursorHeld):
                self._on_gap(error)
        place.failing = True

    def _resume(self, place: Place, seconds: float = 0.0) -> None:
        """It may be read again, after so long."""
        if seconds:
            self._tasks.sleep(seconds)
        rings: list[JournalLane] = []
        with self._lock:
            place.pausing = False
            if not self.closed:
                self._watch(rings)
        ring_all(rings)

    def _watch(self, rings: list[JournalLane]) -> None:
        """Under the lock: there is something to look at."""
        if not self._watched:
            self.announced, self._watched = False, True
            rings.append(self)

    def _wants(self, item: Item) -> bool:
        cls = type(item[0])
        condition = self._conditions.get(cls) or self._versions.get(cls) or self._wanted_version(cls)
        return condition is not None and condition.holds(item[0], item[1])

    def _wanted_version(self, cls: type[Event]) -> Condition | AnyOf | InOwnClass | None:
        condition = self._of_version(cls)
        if condition is not None:
            self._versions[cls] = condition
        return condition

    # Bands: of one partition they are in the order of offsets.

    def _first(self, partition: str) -> int | None:
        """Under the lock: the first offset of a partition that waits."""
        bands = [band for band in self._bands.values() if band]
        if self._is_shared:
            found = [first for band in bands if (first := band.first(partition)) is not None]
        else:
            found = [band[0][1].offset for band in bands]
        return min(found, default=None)

    def _new_band(self) -> Any:
        return FairQueue() if self._is_shared else super()._new_band()

    def _in_lines(self) -> bool:
        return not self._is_shared  # there partitions take turns

    def _head_of(self, band: Any) -> Any:
        return band.head if self._is_shared else super()._head_of(band)

    def _pop_held(self, band: Any, most: int) -> list[Any]:
        return band.pop(most) if self._is_shared else super()._pop_held(band, most)

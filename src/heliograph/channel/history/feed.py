"""Feeds durable events from the journal to receivers' queues; a queue that falls behind reads the journal.

On a journalled channel nobody sees an event before it is on disk, and no consumer ever blocks a supplier. The
history is a set of partitions, one per station that keeps the channel. The feed gets each batch of each
partition when it has been synced and offers it to the queues that want it. In each partition a queue is

    live      it takes what the feed offers, from the offset `position` on
    behind    it reads the journal from `position`: because it starts in the past, because it was full, or
              because a batch entered the journal that did not come through this process

A partition whose disk or keeper does not answer for now stays behind, and is looked at again in a while; the
others go on. What another station keeps is read in a task of its own: who takes waits for it a moment, and is
rung when it has come.

A live queue without room falls behind at the event it could not take. A queue that has read everything
becomes live again while the feed is held still, so between the two no event is lost or taken twice: the seam.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

from heliograph.channel.history.positions import TURNS, FairQueue, PartitionPosition
from heliograph.channel.queueing.queue import BATCH, EventQueue, Item
from heliograph.channel.routing.compiler import MatchedQueues, changes_of
from heliograph.channel.routing.conditions import ReceiverCondition
from heliograph.codec.sizes import size_of
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
from heliograph.model.history_epochs import parted_at
from heliograph.runtime.task_pool import TaskPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.batch import OutgoingBatch, QueueMatches
    from heliograph.channel.history.store import HistoryPartition, OnDurable
    from heliograph.channel.ledger import QueueCounts
    from heliograph.channel.routing.compiler import Route
    from heliograph.channel.routing.conditions import AnyCondition
    from heliograph.channel.selection import Begin, InOwnClass
    from heliograph.model.event import Event
    from heliograph.model.history_epochs import Epochs
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)

Offer: TypeAlias = "tuple[OutgoingBatch, QueueMatches | None]"
"""Events, and the queues that they are for; None: those that their route always gives."""
Lots: TypeAlias = "defaultdict[EventQueue, list[Item]]"
"""Events by queue."""

GAPS: Final = 1000
"""Gaps that a queue remembers."""
READ_AHEAD: Final = 512
"""Events read from the journal at once by a queue that is behind; and how many it hands out from its queue
before it reads on in a partition that is behind, while others keep it busy."""
MOMENT: Final = 0.1
"""Seconds that who takes waits for a page of another station's partition, before it looks at the others."""
READERS: Final = 64
"""Pages of a channel that are read at the same time: a keeper that is away keeps each of them waiting."""
READ_AGAIN: Final = 0.25
"""Seconds between two attempts of a queue to read what cannot be read for now."""


class Feed:
    """Offers durable events to queues, each partition in the order of its offsets."""

    def __init__(self, tasks: Tasks) -> None:
        self.lock = tasks.lock("feed")
        self.readers = TaskPool(tasks, "history reader", limit=READERS)
        """Read pages of partitions that other stations keep. A page is short, so its task is used again."""
        self.partitions: dict[str, HistoryPartition] = {}
        """All that were met, whether their keeper is there or not."""
        self._own = ""
        self._routes: Mapping[type, Route] = {}
        self._arriving: Mapping[type, Route] = {}
        self._matched = 0
        self._next: dict[str, int] = {}
        self._bounded: set[tuple[JournalQueue, str]] = set()
        self._queues: WeakSet[JournalQueue] = WeakSet()
        self.taps: list[OnDurable] = []
        """Told what has become durable in the partition of this station, after all receivers."""
        self.passing: Callable[[Item, list[str]], object] | None = None
        """Told to which receivers an event is passed, before it is, where `push` waits for them."""

    def begin(self, own: HistoryPartition) -> None:
        """The partition into which this station's pushes go; called before the first of them."""
        self._own = own.partition
        self.partitions[own.partition] = own
        self._next[own.partition] = own.watermark

    def durable(self, partition: str, batches: Sequence[OutgoingBatch] | None, next_offset: int) -> None:
        """These events of a partition, up to an offset, are on disk. Called by who synced or received them.

        They are not even looked at while nobody is there. None stands for events that did not come through
        this process: every queue reads them for itself. Where the supplier of a batch has not found the
        queues of its events, or routes have changed since, they are found here, before the lock is taken.
        """
        offers: list[Offer] | None = None
        try:
            if batches is not None:
                routes = self._routes_of(partition)
                offers = [(batch, _find(routes, batch)) for batch in batches]
        finally:
            self._pass_all_on(partition, offers, next_offset)
            if self.taps and partition == self._own:
                for tap in tuple(self.taps):
                    tap(partition, batches, next_offset)

    def read_as_pushed(self, partition: str, offset: int) -> None:
        """Events that another station keeps come in this station's class, which is another version.

        Queues that hand them on as they were pushed read them from there on.
        """
        rings: list[JournalQueue] = []
        with self.lock:
            for reader in self._queues:
                if reader.as_kept:
                    reader.fall_behind(partition, offset, rings)
        ring_all(rings)

    def _routes_of(self, partition: str) -> Mapping[type, Route]:
        # What another station keeps was sent to the others by that one.
        return self._routes if partition == self._own else self._arriving

    def _pass_all_on(self, partition: str, offers: list[Offer] | None, next_offset: int) -> None:
        rings: list[JournalQueue] = []
        try:
            with self.lock:
                try:
                    self._pass_on(partition, offers, rings)
                except Exception:
                    # What was not offered to all is on disk: they read it.
                    self._pass_on(partition, None, rings)
                    raise
                finally:
                    self._next[partition] = max(next_offset, self.next_offset(partition))
                    for bounded in tuple(self._bounded):
                        queue, where = bounded
                        if where == partition and queue.passed(partition, next_offset, rings):
                            self._bounded.discard(bounded)
        finally:
            # Without the lock: who is rung may take at once, in this task, and a queue that takes may rejoin.
            ring_all(rings)

    def _pass_on(self, partition: str, offers: list[Offer] | None, rings: list[JournalQueue]) -> None:
        """Under the lock: give every queue its share of these events, or have it read them itself."""
        routes = self._routes_of(partition)
        if offers is None:
            for reader in self._queues:
                reader.fall_behind(partition, self.next_offset(partition), rings)
        elif self.passing is not None or any(route.has_queue for route in routes.values()):
            lots: Lots = defaultdict(list)
            for batch, found in offers:
                self._allot(routes, batch, found, lots, rings)
            self._put(lots, rings)

    def _allot(
        self,
        routes: Mapping[type, Route],
        batch: OutgoingBatch,
        found: QueueMatches | None,
        lots: Lots,
        rings: list[JournalQueue],
    ) -> None:
        """Under the lock: add what each queue is to get of a batch to its lot.

        A header is made only for an event that somebody gets.
        """
        if found is None or not found.hold(routes):
            found = _find_again(routes, batch)
        if found is None:
            route = routes[batch.events[0].__class__]
            if route.always and self.passing is None:
                items = list(batch)
                for queue in route.always:
                    lots[queue] += items
                return
            found = MatchedQueues(routes, 0, [route.always or ()] * len(batch))
        # All at once is faster by far than one by one; few of many are not worth it.
        is_for_most = 2 * sum(map(bool, found.queues)) > len(batch) > 1
        item_at = list(batch).__getitem__ if is_for_most else batch.item
        for place, queues in enumerate(found.queues):
            event = batch.events[place]
            to = routes.get(event.__class__)
            if to is None:
                # Another version of a class: who hands it on has it as it was pushed, others read it.
                self._put(lots, rings)
                for reader in self._queues:
                    self._matched += reader.accept_version(item_at(place), rings)
            elif queues or self.passing is not None:
                item = item_at(place)
                entered = to.entered(queues, event, item[1])
                if self.passing is not None:
                    self.passing(item, [queue.name for queue in entered])
                for queue in entered:
                    lots[queue].append(item)

    def _put(self, lots: Lots, rings: list[JournalQueue]) -> None:
        for queue, items in lots.items():
            assert isinstance(queue, JournalQueue)
            self._matched += queue.accept(items, rings)
        lots.clear()

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

    def meet(self, partition: HistoryPartition, watermark: int, rings: list[JournalQueue]) -> bool:
        """A keeper is there, or there again; whether its partition is a new one.

        Live events may have been missed since it was last there: queues read on from the last that came.
        """
        name = partition.partition
        if name not in self.partitions:
            self.partitions[name] = partition
            self._next[name] = watermark
            for queue in self._queues:
                queue.meet(partition, watermark, rings)
            return True
        known = self.partitions[name]
        parted = parted_at(known.epochs, partition.epochs, self._next[name])
        if parted is not None:
            self._next[name] = parted
            for queue in self._queues:
                queue.set_back(name, parted, rings)
        # After they are set back: what a coordinator hands out till then it marks with the epochs of before.
        known.met_again(partition.epochs)
        for queue in self._queues:
            queue.fall_behind(name, self._next[name], rings)
        return False

    def join(self, queue: JournalQueue) -> None:
        """Another queue is there from now on, for as long as somebody has it."""
        self._queues.add(queue)
        for name, partition in self.partitions.items():
            queue.meet(partition, self._next[name], [])

    def count_again(self) -> None:
        """An event was put into a queue a second time."""
        self._matched += 1

    def watch(self, queue: JournalQueue, partition: str) -> None:
        """Tell this queue when its end there has been passed: the last events may not be for it."""
        self._bounded.add((queue, partition))


def _find(routes: Mapping[type, Route], batch: OutgoingBatch) -> QueueMatches | None:
    """The queues that the events of a batch are for: those that its supplier has found, if they still are."""
    found, batch.matches = batch.matches, None  # whoever keeps the receipt keeps no queues
    return found if found is not None and found.hold(routes) else _find_again(routes, batch)


def _find_again(routes: Mapping[type, Route], batch: OutgoingBatch) -> MatchedQueues | None:
    """None: those that a route always gives."""
    route = routes.get(batch.events[0].__class__)
    if batch.given is None and route is not None and route.always is not None:
        return None
    changes = changes_of(routes)
    queues = [
        () if (to := routes.get(event.__class__)) is None else to.find(event, header)
        for event, header, _ in batch
    ]
    return MatchedQueues(routes, changes, queues)


def ring_all(queues: Iterable[JournalQueue]) -> None:
    """Whatever comes of one, the others are rung too."""
    for queue in queues:
        try:
            queue.ring()
        except Exception:
            log.exception("%s could not be told that events wait", queue.name)


class JournalQueue(EventQueue):
    """A queue that reads the journal where it is behind; see the module.

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
    is_plain = False
    as_kept = False
    """Whether it hands events on in the versions in which they were pushed, as gateways and groups do."""

    def __init__(
        self,
        name: str,
        *,
        places: Iterable[PartitionPosition],
        ends: bool = False,
        feed: Feed,
        conditions: Mapping[type[Event], ReceiverCondition | AnyCondition],
        begin: Begin | None = None,
        of_version: Callable[
            [type[Event]], ReceiverCondition | AnyCondition | InOwnClass | None
        ] = lambda _: None,
        on_gap: Callable[[HeliographError], object],
        tasks: Tasks,
        **queue: Any,
    ) -> None:
        super().__init__(name, policy="drop_newest", tasks=tasks, **queue)
        self._tasks = tasks
        self._feed = feed
        self._conditions = conditions
        self._of_version = of_version
        self._versions: dict[type[Event], ReceiverCondition | AnyCondition | InOwnClass] = {}
        self._begin = begin
        self._on_gap = on_gap
        self._places = {place.partition.partition: place for place in places}
        self._share()
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

    @property
    def journal(self) -> JournalQueue:
        return self

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

    @property
    def failed_with(self) -> HeliographError | None:
        return self.failure

    @property
    def history_gaps(self) -> Sequence[HistoryGone | HistoryDamaged | HistoryReset]:
        return self.gaps

    def raise_gaps(self) -> None:
        self.raises_gaps = True

    def joined(self) -> None:
        """It is among the receivers from now on. While still."""
        self._feed.join(self)

    def start(self) -> None:
        """Once it has been joined: whoever delivers may look."""
        if self._watched:
            self.ring()

    def unread(self) -> int:
        with self._lock:
            places = [
                (place.partition.partition, place.position)
                for place in self._turns
                if place.behind and place.position is not None
            ]
        return sum(max(0, self._feed.next_offset(partition) - position) for partition, position in places)

    def ring(self) -> None:
        """Tell whoever delivers to look. Never under the feed's lock, which the look may need."""
        self._on_ready(self)

    # What the feed says. A queue that must be rung for it adds itself to `rings`.

    def meet(self, partition: HistoryPartition, watermark: int, rings: list[JournalQueue]) -> None:
        """There is another partition: where to begin in it is found by who takes, since that may ask."""
        with self._lock:
            if self._begin is None or partition.partition in self._places or self.closed:
                return
            place = PartitionPosition(partition, None, behind=True, met=watermark)
            self._places[partition.partition] = place
            self._turns.append(place)
            self._share()
            self._watch(rings)

    def fall_behind(self, partition: str, position: int, rings: list[JournalQueue]) -> None:
        """Read on from an offset, because live events may have been missed from there on."""
        with self._lock:
            place = self._places.get(partition)
            if place is None or place.behind or self.closed:
                return
            place.behind, place.position = True, max(place.position or 0, position, place.taken)
            self._watch(rings)

    def set_back(self, partition: str, offset: int, rings: list[JournalQueue]) -> None:
        """A history went back in time: whoever reads is told what is gone, and reads on at the offset."""
        with self._lock:
            place = self._places.get(partition)
            if place is None or self.closed or place.position is None or place.position <= offset:
                return
            reset = HistoryReset(partition, offset, place.position)
            waiting = self._pop_all()
            gone = [item for item in waiting if item[1].partition == partition and item[1].offset >= offset]  # type: ignore[operator]  # what is durable has one
            self.drop_each(gone, "set back")
            self._enter_again(item for item in waiting if item not in gone)
            place.position, place.behind, place.taken = offset, True, 0
            if self.numbers_offsets:
                place.held = True
                self.parted[partition] = min(offset, self.parted.get(partition, offset))
            self._untold.append(reset)  # not told here: the feed is held still
            self._watch(rings)

    def epochs(self) -> dict[str, Epochs]:
        """Of each partition: which writers wrote it, as far as is known here."""
        return {name: partition.epochs for name, partition in tuple(self._feed.partitions.items())}

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

    def accept(self, items: Sequence[Item], rings: list[JournalQueue]) -> int:
        """Take live events of one partition; how many, as the queue will read the others itself, or has."""
        taken = 0
        with self._lock:
            place = self._places.get(items[0][1].partition)  # type: ignore[arg-type]  # what is durable has one
            if place is None or place.behind or self.closed:
                return 0
            if self._takes_all(items, place) and self._extend(items):
                place.taken, taken = items[-1][1].offset + 1, len(items)  # type: ignore[operator]
                items = ()
            for item in items:
                offset: Any = item[1].offset  # what is durable has one
                if offset < place.position or (place.until is not None and offset >= place.until):
                    continue
                if self._is_full() or place.held:
                    place.behind, place.position = True, offset
                    break
                self._admit(item, beyond=True)
                place.taken = offset + 1
                taken += 1
            if taken:
                self._watch(rings)
        return taken

    def _takes_all(self, items: Sequence[Item], place: PartitionPosition) -> bool:
        """Under the lock: whether it wants all of these, if it has room for them, in one line."""
        first, last = items[0][1], items[-1][1]
        return (
            not (place.held or self._is_shared)
            and first.offset >= place.position  # type: ignore[operator]  # what is durable has one
            and (place.until is None or last.offset < place.until)  # type: ignore[operator]
            and (self.priority is not None or len({item[1].priority for item in items}) == 1)
        )

    def accept_version(self, item: Item, rings: list[JournalQueue]) -> int:
        """The same for a live event of a version that the channel has no class of.

        A queue that hands events on as they were pushed takes it, unless a filter is to be asked, which may
        be slow, and whoever calls this holds the feed. Others read it.
        """
        cls = item[0].__class__
        condition = self._versions.get(cls) or self._wanted_version(cls) if self.as_kept else None
        if isinstance(condition, ReceiverCondition) and condition.is_open:
            return self.accept((item,), rings)
        assert item[1].offset is not None
        self.fall_behind(str(item[1].partition), item[1].offset, rings)
        return 0

    def passed(self, partition: str, offset: int, rings: list[JournalQueue]) -> bool:
        """The feed has come to this offset; True when that was all the queue waits for, or it is closed."""
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
        rings: list[JournalQueue] = []
        with self._lock:
            place = self._places.get(partition)
            if place is not None and not self.closed:
                place.held = False
                self._watch(rings)
        ring_all(rings)

    def take(self, most: int = BATCH) -> list[Item]:
        """As in any queue. May raise HistoryGone or HistoryDamaged at a gap; the next call goes on."""
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

    def counts(self) -> QueueCounts:
        with self._lock:
            return self._counts(self._from_history)

    def _next_to_read(self) -> PartitionPosition | None:
        """Under the lock: the next place, in turns, that is behind."""
        if self.closed:
            return None
        for _ in range(len(self._turns)):
            place = self._turns[0]
            self._turns.rotate(-1)
            if place.reads:
                return place
        return None

    def _look_at(self, place: PartitionPosition) -> None:
        """See to it that it is read on in a partition."""
        if not place.partition.kept_here:
            self._have_read_on(place)
        elif not self._read_on(place):
            with self._lock:
                place.pausing = True
            self._feed.readers.submit(partial(self._resume, place, READ_AGAIN))

    def _have_read_on(self, place: PartitionPosition) -> None:
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

    def _read_on(self, place: PartitionPosition) -> bool:
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
                self._admit(item, beyond=True)
            self._from_history += len(wanted)
            place.position = reached
        if reached == position:
            self._rejoin(place)
        return True

    def _find(self, place: PartitionPosition) -> None:
        """Where to begin in a partition that was met after this queue was opened."""
        assert self._begin is not None
        position = self._begin(place.partition, place.met)
        with self._lock:
            place.position = position

    def _rejoin(self, place: PartitionPosition) -> None:
        """Be live again, unless more has come since it was read."""
        name = place.partition.partition
        with self._feed.lock, self._lock:
            if place.position is not None and place.position >= self._feed.next_offset(name):
                place.behind = False
                if place.until is not None:
                    self._feed.watch(self, name)

    def _say_failing(self, place: PartitionPosition, error: HeliographError) -> None:
        """It stays behind, and is looked at again in a while; said once, however often it fails."""
        if not place.failing:
            log.warning("%s cannot read history now, and tries until it can: %s", self.name, error)
            if isinstance(error, CursorHeld):
                self._on_gap(error)
        place.failing = True

    def _resume(self, place: PartitionPosition, seconds: float = 0.0) -> None:
        """It may be read again, after so long."""
        if seconds:
            self._tasks.sleep(seconds)
        rings: list[JournalQueue] = []
        with self._lock:
            place.pausing = False
            if self.failure is not None:
                rings.append(self)  # who waits for events is told why none come
            elif not self.closed:
                self._watch(rings)
        ring_all(rings)

    def _watch(self, rings: list[JournalQueue]) -> None:
        """Under the lock: there is something to look at."""
        if not self._watched:
            self.announced, self._watched = False, True
            rings.append(self)

    def _wants(self, item: Item) -> bool:
        cls = type(item[0])
        condition = self._conditions.get(cls) or self._versions.get(cls) or self._wanted_version(cls)
        return condition is not None and condition.holds(item[0], item[1])

    def _wanted_version(self, cls: type[Event]) -> ReceiverCondition | AnyCondition | InOwnClass | None:
        condition = self._of_version(cls)
        if condition is not None:
            self._versions[cls] = condition
        return condition

    def _size_function(self, types: tuple[type[Event], ...]) -> Callable[[Any], int]:  # noqa: ARG002 - there may be other versions of them
        return size_of

    # Bands: of one partition they are in the order of offsets.

    def _share(self) -> None:
        """With several partitions, have them take turns from now on."""
        if not self._is_shared and len(self._places) > 1:
            self._is_shared = True
            self._storage = TURNS
            for priority, band in list(self._bands.items()):
                self._bands[priority] = FairQueue(band)

    def _first(self, partition: str) -> int | None:
        """Under the lock: the first offset of a partition that waits."""
        bands = [band for band in self._bands.values() if band]
        if self._is_shared:
            found = [first for band in bands if (first := band.first(partition)) is not None]
        else:
            found = [band[0][1].offset for band in bands]
        return min(found, default=None)

"""The queue of one receiver: bounded, in a dispatch order, with a named policy for overflow.

One supplier at a time puts, under a lock that all who put share, and one taker at a time takes. Every change
happens under the lane's own lock as well, which is held for a few instructions and never while user code
runs. So whoever is about to put may look at `waiting` without that lock: it only gets less meanwhile.
`on_ready` is called, outside the lane's lock, when a lane that nobody was about to look at has something to
take.

    block         the supplier waits (`waiting >= blocks_at` says no, `wait_for_room` waits)
    drop_oldest   the oldest waiting event, of the lowest priority, makes room
    drop_soonest  with the order `deadline`: the one that is due first does, as it is the first to be late
    drop_newest   the new event is dropped
    coalesce      it takes the place of a waiting event of its key; a full lane drops its oldest

An exception may come at any instant of a call: Ctrl-C, or what a signal handler raises. CPython looks for
them after a call, at a jump back and when a function begins. So what belongs together is stored without a
call in between, and a call that moves an event comes last: what is seen at such an instant is whole. Where
that cannot be, `_mend` counts again. `last` is the header of the event that came in last: by that a put which
was interrupted knows whether it was done. A put out of a signal handler or a finalizer, in the middle of a
change, has to be refused before it is made, which `mine` is for.

Events wait in bands, one per priority, and are taken many at a time from the highest that has any. When one
of a higher priority comes meanwhile the lane is `halted`: its taker gives back, by `settle`, what it has not
delivered yet, so that from one callback to the next the highest always goes first. With another dispatch
order (`heliograph.qos.dispatch_order`) the bands are that order's lines, and events are taken one by one.
"""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from itertools import repeat, starmap
from math import inf
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from heliograph.channel.ledger import LaneCounts
from heliograph.model.event import Event, Header
from heliograph.qos.policies import LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from heliograph.channel.dispatch.reader_handover import Reader
    from heliograph.channel.observer import Watch
    from heliograph.channel.publish.batch import OutgoingBatch
    from heliograph.qos.dispatch_order import Ranking, Waiting
    from heliograph.runtime.ports import Clock, Tasks

A = TypeVar("A")
Item: TypeAlias = tuple[Event, Header, int]
"""An event, its header, and the monotonic instant in ns when its lifespan ends; 0 when it has none."""
LanePolicy: TypeAlias = Literal["block", "drop_oldest", "drop_soonest", "drop_newest", "coalesce"]

DEADLINE: Final = itemgetter(2)
ARRIVAL: Final = attrgetter("arrival")
LOWEST_AND_OLDEST: Final = attrgetter("priority", "arrival")
SOONEST: Final = attrgetter("due_ns", "priority", "arrival")

BATCH: Final = 64
"""Events taken at once: enough to share the cost of a lock, few enough to let others have a turn."""


class Caller(Protocol):
    """A receiver that a thread which read an event can call: see
    `heliograph.channel.dispatch.reader_handover`."""

    def call_one(self, event: Any, header_of: Callable[[Any], Header], said: Any, reader: Reader) -> None:
        """Call it with an event that its lane has in hand; HandedOver when another thread reads by now."""
        ...

    def call_many(self, events: list[Any], header_of: Callable[[int], Header], reader: Reader) -> None:
        """The same with several."""
        ...

    def is_free(self) -> bool:
        """Whether nobody waits before it."""
        ...


class Lane:
    """See the module."""

    takes_rows = False
    """Whether it is one of `heliograph.channel.publish.fast_path`."""

    # CPython finds the attributes of an instance fast up to 30 of them; slots are fast in any number.
    __slots__ = (
        "__weakref__",
        "_acquire",
        "_bands",
        "_clock",
        "_delivered",
        "_dropped",
        "_expired",
        "_failed",
        "_hand",
        "_in_hand",
        "_lock",
        "_on_ready",
        "_placed",
        "_plain_below",
        "_quiet",
        "_quiet_waiters",
        "_ranking",
        "_release",
        "_room",
        "_taken",
        "_waiters",
        "_watched",
        "_why",
        "announced",
        "blocks_at",
        "caller",
        "closed",
        "done",
        "halted",
        "last",
        "level",
        "limit",
        "mine",
        "name",
        "on_higher",
        "policy",
        "priority",
        "suspended",
        "waiting",
        "watch",
    )

    def __init__(  # noqa: PLR0915 - plain stores
        self,
        name: str,
        *,
        clock: Clock,
        tasks: Tasks,
        limit: int,
        policy: LanePolicy,
        priority: int | None = None,
        ranking: Ranking | None = None,
        on_ready: Callable[[Lane], None],
    ) -> None:
        self.name = name
        self.limit = limit
        self.policy = policy
        self.priority = priority
        """Takes the place of the events' own priority."""
        self._placed: tuple[int, int] | None = None
        self.blocks_at: float = limit if policy == "block" else inf
        """How many events wait when a supplier must wait too."""
        self.closed = False
        self.suspended = False
        """Whether what comes is dropped, because a callback does not return while the lane is full."""
        self.halted = False
        """Whether the taker should stop before the next event: closed, or something higher has come."""
        self.on_higher: Callable[[int], object] | None = None
        """Told, under the lane's lock, the priority of an event that is higher than all that waited."""
        self.watch: Watch | None = None
        """Told what is expired and dropped here; whoever takes events tells what became of those."""
        self.caller: Caller | None = None
        """Who can be called without queueing an event first, by a thread that read it from a link."""
        self._on_ready = on_ready
        self._clock = clock
        self._lock = tasks.lock(f"lane {name}")
        self._acquire = self._lock.acquire
        self._release = self._lock.release
        self.mine = self._lock.mine
        """Whether the calling thread is in the middle of a change, out of which it was called."""
        self._room = tasks.condition(self._lock, f"room in {name}")
        self._quiet = tasks.condition(self._lock, f"end of {name}")
        self._ranking = ranking
        # Waiting events by priority; usually a single band. What a band is, only the methods at the
        # end know.
        self._bands: dict[Any, Any] = {}
        self.level = LOWEST_PRIORITY
        """The priority that is delivered or, if it is higher, the highest that has come since."""
        # Below this many a put only has to find the band: with another order there is more to do.
        self._plain_below = limit if ranking is None else 0
        self.waiting = 0
        """How many events wait."""
        self._watched = False
        self.announced = False
        """Whether it stands among those that workers look at next; see `heliograph.channel.dispatch.pool`."""
        self.last: Header | None = None
        self._taken = 0
        self.done = 0
        """How many of the taken events were delivered. The taker alone writes it, without the lock."""
        self._hand: Sequence[Item] = ()
        """What was taken last."""
        self._in_hand: Waiting | None = None  # with an order, what was taken last
        self._waiters = 0
        self._quiet_waiters = 0
        self._delivered = 0
        self._failed = 0
        self._expired = 0
        self._dropped: Counter[str] = Counter()
        self._why = "closed"

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
        is_new = False
        try:
            self._acquire()
            if self.waiting < self._plain_below:
                header = item[1]
                priority = self.priority or header.priority
                try:
                    append = self._bands[priority].append
                except KeyError:
                    append = self._open_band(priority).append
                self.waiting += 1
                self.last = header
                append(item)
                if self._watched:
                    self._release()
                    return
            elif not self._put_each((item,)) or self._watched:
                self._release()
                return
            is_new, self.announced, self._watched = True, False, True
            self._release()
            self._on_ready(self)
        except BaseException:
            self._recover(is_new=is_new)
            raise

    def put_many(self, items: Sequence[Item]) -> None:
        """Queue events of one priority, as `put` each of them."""
        is_new = False
        try:
            with self._lock:
                if not self._append_all(items) or self._watched:
                    return
                is_new, self.announced, self._watched = True, False, True
            self._on_ready(self)
        except BaseException:
            self._recover(is_new=is_new)
            raise

    def put_bulk(self, bulk: OutgoingBatch) -> None:
        """Queue events that were pushed together; into a `block` lane, one that has room for them."""
        self.put_many(list(bulk))

    def supplier_left(self, supplier: str, epoch: int) -> None:
        """Nothing more comes from a supplier."""

    def put_extra(self, item: Item) -> None:
        """Queue beyond the limit: history for a new consumer, or what another member of its group left."""
        is_new = False
        try:
            with self._lock:
                if self.closed:
                    self._drop(item, "closed")
                    return
                if not self._append_extra(item) or self._watched:
                    return
                is_new, self.announced, self._watched = True, False, True
            self._on_ready(self)
        except BaseException:
            self._recover(is_new=is_new)
            raise

    def put_missing(self, items: Sequence[Item]) -> None:
        """Queue what an interrupted `put` or `put_many` of these did not come to."""
        done = self._done_of(items)
        if done < len(items):
            self.put_many(items[done:])

    def _done_of(self, items: Sequence[Item]) -> int:
        """How many of these have come in, as far as `last` tells."""
        last = self.last
        return next((n for n in range(len(items), 0, -1) if _is_same(items[n - 1][1], last)), 0)

    def _recover(self, *, is_new: bool) -> None:
        """After an exception at any instant of a put: let go of the lock, and have looked at what waits.

        Args:
            is_new: whether it was this put that has to call `on_ready`. That may be called again.
        """
        with self._lock:
            if self.waiting and not self._watched:  # it came in just before the exception
                is_new, self.announced, self._watched = True, False, True
        while self.mine():
            self._release()
        if is_new:
            self._on_ready(self)

    # The taker's side

    def take(self, most: int = BATCH) -> list[Item]:
        """The next events, which count as pending until `settle`. Empty: `on_ready` will call again.

        Those that do not arrive, since the call is interrupted, wait again after `settle`.
        """
        items = self._take(most)
        ranking = self._ranking
        if items and ranking is not None:
            ranking.told(items[0][1])
        return list(items)

    def _take(self, most: int) -> Sequence[Item]:
        while True:
            chosen = self.head()
            with self._lock:
                if self.suspended:
                    self.resume()
                items = self._pop_next(most, chosen)
                if not items:
                    if self.waiting and most:
                        continue  # what was chosen has expired
                    self._watched = False
                    self._quiet.notify_all()
                if self._waiters:
                    self._room.notify(len(items))
                return items

    def take_directly(self, events: int, priority: int) -> bool:
        """Have events in hand that were never queued, as if put and taken; until `settle_direct`.

        False when others wait before them, somebody is at it, or it goes by another order.
        """
        self._acquire()
        try:
            if self._watched or self.waiting or self.closed or self._ranking is not None:
                return False
            self._watched = True
            self._taken = events
            self.level = self.priority or priority
            if self._bands:
                self._bands.clear()  # so that the first event of a higher one is noticed
            return True
        finally:
            self._release()

    def settle_direct(self) -> bool:
        """What was taken directly is delivered: count it. Whether nothing waits, and nobody is at it now."""
        self._acquire()
        try:
            self._delivered += self.done
            self._taken = self.done = 0
            self.halted = self.closed
            if self.waiting:
                return False
            self._watched = False
            if self._quiet_waiters:
                self._quiet.notify_all()
            return True
        finally:
            self._release()

    def head(self) -> Waiting | None:
        """What an order other than `strict` chooses; None without. It may be the user's: no lock is held."""
        ranking = self._ranking
        if ranking is None:
            return None
        with self._lock:
            if self._ranking is not ranking:
                return None  # it has just been swapped, and the lines are no longer its own
            if ranking.heads is not None and self._in_lines():
                return ranking.heads.first(self._bands, self._head_of)
            heads = sorted(self._heads(), key=ARRIVAL)
        return heads[ranking.first(heads)] if heads else None

    def is_over(self, header: Header, deadline: int) -> bool:
        """Whether the lifespan of one that was taken has ended since; it counts as expired then.

        Asked right before it is handed out: those before it may have taken their time.
        """
        if self._clock.monotonic_ns() <= deadline:
            return False
        with self._lock:
            self._taken -= 1
            self._expired += 1
            if self.watch is not None:
                self.watch(header, "expired")
        return True

    def failed_one(self) -> None:
        """The callback raised."""
        with self._lock:
            self._failed += 1
            self._taken -= 1

    def abandon(self, items: Iterable[Item], reason: str = "closed") -> None:
        """These were taken, and nobody will deliver them: the lane closed, or for another reason."""
        with self._lock:
            for item in items:
                self._guarded(partial(self._abandon, item, reason))

    def settle(self, hand: Sequence[Item] = ()) -> None:
        """The batch is finished. Those of it which were neither delivered nor failed wait again.

        They are the last of it, or of `hand` where they were taken directly. In a lane that is closed they
        count as dropped.
        """
        with self._lock:
            self._hand = hand or self._hand
            done, left = self.done, self._taken - self.done
            self._delivered += done
            self._taken = left
            self.done = 0
            if left:
                self._give_back(self._hand, left)
            self._hand = ()
            self.halted = self.closed

    def use(self, ranking: Ranking | None) -> None:
        """Go by another order. What waits leaves the old lines before anything enters the new ones.

        It keeps the order in which it came, where that is known, and counts as having come now.
        """
        with self._lock:
            items = self._pop_all()
            if ranking is not None and self._placed is not None:
                ranking.place(*self._placed)
            self._ranking = ranking
            is_plain = ranking is None and not self.closed and not self.suspended
            self._plain_below = self.limit if is_plain else 0
            self._enter_again(items)

    def hand_over(self) -> list[Item]:
        """Close, and give what waits to somebody else instead of dropping it."""
        with self._lock:
            self._shut()
            items = self._pop_all()
            self._room.notify_all()
            self._quiet.notify_all()
        return items

    # For both

    def suspend(self) -> bool:
        """If it is full, drop what comes until it is taken from again: nobody waits. Whether that is new."""
        with self._lock:
            if self.suspended or self.closed or self.waiting < self.blocks_at:
                return False
            self.suspended = True
            self.blocks_at = inf
            self._plain_below = 0
            self._room.notify_all()
            return True

    def resume(self) -> None:
        """Take events in again."""
        with self._lock:
            if self.suspended:
                self.suspended = False
                self.blocks_at = self.limit
                is_plain = self._ranking is None and not self.closed
                self._plain_below = self.limit if is_plain else 0

    def finish(self) -> None:
        """Nothing more will come: hold nothing back."""

    def close(self, reason: str = "closed") -> None:
        """Take nothing more in; what waits, or was taken in vain, is dropped under `reason`."""
        with self._lock:
            self._why = reason
            self._shut()
            if self.waiting:
                self._guarded(lambda: self._drop_each(self._pop_all(), reason))
            self._bands.clear()
            self._room.notify_all()
            self._quiet.notify_all()

    def wait_empty(self, timeout: float | None) -> bool:
        """Wait until nothing waits and nothing is being delivered; False when the time ran out."""
        with self._lock:
            self._quiet_waiters += 1
            try:
                return self._quiet.wait_for(lambda: not self.waiting and not self._watched, timeout)
            finally:
                self._quiet_waiters -= 1

    def who_is_full(self) -> str:
        """Whom a supplier waits for."""
        return self.name

    @property
    def progress(self) -> int:
        """Goes up whenever a callback came back; for who watches, so without the lock."""
        return self._delivered + self.done + self._failed

    def highest(self) -> int:
        """The highest priority that waits; the lowest when it goes by another order.

        When nothing waits it is that of what was delivered last: what comes next may find the lane ready, and
        must not wait there behind anything lower.
        """
        with self._lock:
            if self._ranking is not None:
                return LOWEST_PRIORITY
            return max((p for p, band in self._bands.items() if band), default=self.priority or self.level)

    def place(self, priority: int, sub_priority: int) -> None:
        """Take the place of what events say. What waits moves too, or what comes later overtook it."""
        with self._lock:
            self._placed = priority, sub_priority  # for the orders to come as well
            is_new = self.priority != priority
            if self._ranking is not None:
                is_new = self._ranking.place(priority, sub_priority)
            if is_new:
                items = self._pop_all()
                self.priority = priority
                self._enter_again(items)

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

    def _shut(self) -> None:
        self.closed = self.halted = True
        self._plain_below = 0

    def _abandon(self, item: Item, reason: str) -> None:
        self._taken -= 1
        self._drop(item, reason)

    def _give_back(self, hand: Sequence[Item], left: int) -> None:
        """The last of what was taken is not delivered."""
        items = list(hand)[-left:] if hand else []
        if items and not self.closed:
            if self._ranking is None and type(band := self._band(self._held(items[0])[1])) is deque:
                back, more = band.extendleft, reversed(items)
                self._hand = ()
                self.waiting += left
                self._taken -= left
                back(more)
            else:
                self._hand = ()
                self._guarded(lambda: self._put_back(items))
            return
        self._dropped[self._why] += left
        self._taken -= left
        if self.watch is not None:
            for item in items:
                self.watch(item[1], "dropped", self._why)

    def _guarded(self, change: Callable[[], A], items: Sequence[Item] = ()) -> A:
        """Make a change in several steps: what one that is interrupted loses counts as dropped.

        Args:
            change: moves events about, or puts them in; none is delivered meanwhile.
            items: what it puts in; `last` says how far it came.
        """
        before = self._total()
        try:
            return change()
        except BaseException:
            self._mend(before, items)
            raise

    def _mend(self, before: int, items: Sequence[Item]) -> None:
        waiting = self._pop_all()
        self._enter_again(waiting)
        done = self._done_of(items)
        if done < len(items) and any(_is_same(item[1], items[done][1]) for item in waiting):
            self.last = items[done][1]
            done += 1
        lost = before + done - self._total()
        if lost:
            self._dropped["interrupted"] += lost

    def _total(self) -> int:
        """All that ever came in. What is delivered meanwhile, and not settled yet, is among the taken."""
        dropped = sum(self._dropped.values())
        return self._delivered + self._failed + self._expired + dropped + self.waiting + self._taken

    def _drop(self, item: Item, reason: str) -> None:
        self._drop_each((item,), reason)

    def _drop_each(self, items: Sequence[Item], reason: str) -> None:
        self._dropped[reason] += len(items)
        if self.watch is not None:
            for item in items:
                self.watch(item[1], "dropped", reason)

    def _has_room(self) -> bool:
        return self.closed or self.waiting < self.blocks_at

    def _pop_next(self, most: int, chosen: Waiting | None) -> Sequence[Item]:
        """Events of the highest band, or with an order the one it chose; those that expired are counted."""
        if self._ranking is not None and most:
            return self._guarded(lambda: self._pop_chosen(chosen))
        while self.waiting and most:
            self._move(self._highest_band(), most)
            if any(map(DEADLINE, self._hand)):
                self._in_time()
            if self._hand:
                return self._hand
        return ()

    def _move(self, band: Any, most: int) -> None:
        """From a band into the hand."""
        if type(band) is not deque:
            self._guarded(lambda: self._move_some(band, most))
            return
        others: deque[Item] = deque()
        hand: list[Item] = []
        extend, some = hand.extend, starmap(band.popleft, repeat((), most))
        waiting = len(band)
        if waiting <= most:
            self._bands[self.level] = others
            self._hand = band
            self.waiting -= waiting
            self._taken += waiting
        else:
            self._hand = hand
            self.waiting -= most
            self._taken += most
            extend(some)

    def _move_some(self, band: Any, most: int) -> None:
        hand = self._hand = self._pop_held(band, most)
        taken = len(hand)
        self.waiting -= taken
        self._taken += taken

    def _highest_band(self) -> Any:
        """Bands above it are not there, so that the first event of one is noticed: `_open_band`."""
        bands = self._bands
        if len(bands) > 1:
            for empty in [priority for priority, band in bands.items() if not band]:
                del bands[empty]
        self.level = max(bands) if len(bands) > 1 else next(iter(bands))
        return bands[self.level]

    def _pop_chosen(self, chosen: Waiting | None) -> Sequence[Item]:
        """What was chosen, or what stands in its place when it has gone meanwhile."""
        if not self.waiting:
            return []
        assert self._ranking is not None
        line = None if chosen is None else self._ranking.line(chosen)
        if not self._bands.get(line):
            line = self._ranking.line(min(self._heads(), key=ARRIVAL))
        band = self._bands[line]
        self._in_hand = held = self._pop_held(band, 1)[0]
        self._hand = [held[:3]]
        self.waiting -= 1
        self._taken += 1
        if not band:
            del self._bands[line]
            self._ranking.ended(line)
        if self._hand[0][2]:
            self._in_time()
        return self._hand

    def _pop_all(self) -> list[Item]:
        """All that waits: by priority, or with another order in the order in which it came."""
        lines = sorted(self._bands, reverse=True) if self._ranking is None else list(self._bands)
        held = [item for line in lines for item in self._pop_held(self._bands[line], self.waiting)]
        self.waiting = 0
        if self._ranking is None:
            return held
        self._bands.clear()
        self._ranking.ended(*lines)
        return [item[:3] for item in sorted(held, key=ARRIVAL)]

    def _enter_again(self, items: Iterable[Item]) -> None:
        """What `_pop_all` took, in the lines of now."""
        self._bands.clear()
        self.level = LOWEST_PRIORITY
        for item in items:
            held, line = self._held(item)
            self.waiting += 1
            self._add(line, held)

    def _put_back(self, items: Sequence[Item]) -> None:
        """These were taken and wait again, before the others of their band and as old as they were."""
        for item in reversed(items):
            held, line = self._held(item)
            if self._ranking is not None:
                held = self._ranking.returned(held, self._in_hand)
            band = self._band(line)
            self.waiting += 1
            self._taken -= 1
            self._push_left(band, held)
            if self._ranking is not None:
                self._ranking.began(line, self._head_of(self._bands[line]), anew=True)

    def _band(self, line: Hashable) -> Any:
        band = self._bands.get(line)
        return self._open_band(line) if band is None else band

    def _open_band(self, line: Any) -> Any:
        """The first event of a priority, or line, comes in."""
        if self._ranking is None:
            if not self.waiting and not self._watched:
                self._bands.clear()  # so that the first event of one of those is noticed, too
                self.level = line
            elif line > self.level:
                self.level = line
                self.halted = self.halted or self._taken > 0
                if self.on_higher is not None:
                    self.on_higher(line)
        band = self._bands[line] = self._new_band()
        return band

    def _held(self, item: Item) -> tuple[Any, Any]:
        """What stands in a band for an event, and which band that is."""
        if self._ranking is None:
            return item, self.priority or item[1].priority
        held = self._ranking.waiting(*item)
        return held, self._ranking.line(held)

    def _add(self, line: Hashable, held: Any) -> None:
        band = self._band(line)
        self._enter(band, held)
        if self._ranking is not None:
            self._ranking.began(line, self._head_of(band))

    def _in_lines(self) -> bool:
        """Whether the first of a line is the oldest of it."""
        return True

    def _heads(self) -> list[Waiting]:
        return [self._head_of(band) for band in self._bands.values() if band]

    def _in_time(self) -> None:
        """Leave in the hand what is not over; the rest is counted."""
        hand, now = self._hand, self._clock.monotonic_ns()
        alive = [item for item in hand if not item[2] or now <= item[2]]
        over = len(hand) - len(alive)
        if over:
            self._hand = alive
            self._taken -= over
            self._expired += over
            if self.watch is not None:
                for item in hand:
                    if item[2] and now > item[2]:
                        self.watch(item[1], "expired")

    def _drop_oldest(self) -> None:
        """Drop the oldest event of the lowest priority, or the one that is due first."""
        is_soonest = self.policy == "drop_soonest" and self._ranking is not None
        if self._ranking is None:
            line: Any = min(p for p, band in self._bands.items() if band)
        else:
            line = self._ranking.line(min(self._heads(), key=SOONEST if is_soonest else LOWEST_AND_OLDEST))
        items = self._pop_held(self._bands[line], 1)
        self.waiting -= 1
        if self._ranking is not None and not self._bands[line]:
            del self._bands[line]
            self._ranking.ended(line)
        self._drop_each(items, "soonest" if is_soonest else "oldest")

    def _append(self, item: Item) -> bool:
        """Whether anything new waits now."""
        if self.suspended:
            self._drop(item, "suspended")
            return False
        if self.waiting >= self.limit:
            if self.policy == "drop_newest":
                self._drop(item, "newest")
                return False
            if self.policy in ("drop_oldest", "drop_soonest"):
                self._drop_oldest()
        return self._append_extra(item)

    def _append_all(self, items: Sequence[Item]) -> bool:
        if self.waiting + len(items) > self._plain_below:
            return self._put_each(items)
        extend = self._band(self.priority or items[0][1].priority).extend
        last, more = items[-1][1], len(items)
        self.waiting += more
        self.last = last
        extend(items)
        return True

    def _put_each(self, items: Sequence[Item]) -> bool:
        return self._guarded(lambda: self._append_each(items), items)

    def _append_each(self, items: Sequence[Item]) -> bool:
        """Whether anything new waits now."""
        found = False
        for item in items:
            if self.closed:
                self._drop(item, "closed")
            elif self._append(item):
                found = True
            self.last = item[1]
        return found

    def _append_extra(self, item: Item) -> bool:
        held, line = self._held(item)
        self._add(line, held)
        self.waiting += 1
        return True

    def _new_band(self) -> Any:
        return deque()

    def _enter(self, band: Any, held: Any) -> None:
        band.append(held)

    def _head_of(self, band: Any) -> Any:
        return band[0]

    def _push_left(self, band: Any, held: Any) -> None:
        band.appendleft(held)

    def _pop_held(self, band: Any, most: int) -> list[Any]:
        if len(band) <= most:
            items = list(band)
            band.clear()
            return items
        pop = band.popleft
        return [pop() for _ in range(most)]


def _is_same(one: Header | None, two: Header | None) -> bool:
    """Whether two headers are of one event: those of a batch are made anew whenever somebody looks."""
    if one is two or one is None or two is None:
        return one is two
    return (one.sequence, one.epoch, one.supplier) == (two.sequence, two.epoch, two.supplier)


def key_of(item: Item) -> tuple[str, tuple[Any, ...]]:
    """Events of one key are states of one thing; those of a type without a key are all of one."""
    return item[1].type, item[1].key

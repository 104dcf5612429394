"""The queue of one receiver: bounded, in a dispatch order, with a named policy for overflow.

One supplier at a time puts, under a lock that all who put share, and one taker at a time takes. Every change
happens under the queue's own lock as well, which is held for a few instructions and never while user code
runs. So whoever is about to put may look at `waiting` without that lock: it only gets less meanwhile.
`on_ready` is called, outside the queue's lock, when a queue that nobody was about to look at has something to
take.

    block         the supplier waits (`waiting >= blocks_at` says no, `wait_for_room` waits)
    drop_oldest   the oldest waiting event, of the lowest priority, makes room
    drop_soonest  with the order `deadline`: the one that is due first does, as it is the first to be late
    drop_newest   the new event is dropped
    coalesce      it takes the place of a waiting event of its key; a full queue drops its oldest

A queue is full when `limit` events wait, or events of `byte_limit` bytes (`heliograph.codec.sizes`). An event
is taken in while less than that waits, so the last one may exceed the bound, and one that is larger than the
bound alone is taken in when nothing waits. Where all events of a channel have one size nothing is measured:
the bound in events is lowered when the queue is made. Else nothing is counted in bytes either while it is
plain that what waits does not reach the bound: no event is larger than `most_each`, and so many of that size
fit. When that is so no more, `bytes` counts what waits until the queue is empty; while it is full by them,
`blocks_at` is 0.

An exception may come at any instant of a call: Ctrl-C, or what a signal handler raises. CPython looks for
them after a call, at a jump back and when a function begins. So what belongs together is stored without a
call in between, and a call that moves an event comes last: what is seen at such an instant is whole. Where
that cannot be, `_mend` counts again. `last` is the header of the event that came in last: by that a put which
was interrupted knows whether it was done. A put out of a signal handler or a finalizer, in the middle of a
change, has to be refused before it is made, which `mine` is for.

Events wait in bands, one per priority, and are taken many at a time from the highest that has any. When one
of a higher priority comes meanwhile the queue is `halted`: its taker gives back, by `settle`, what it has not
delivered yet, so that from one callback to the next the highest always goes first. With another dispatch
order (`heliograph.qos.dispatch_order`) the bands are that order's lines, and events are taken one by one.

A queue is composed, when it is made, of parts that do not know each other:

    storage    how the events of a band wait: in a row, the latest of each key, partitions in turns
               (`heliograph.channel.queueing.storage`)
    stages     what an event passes before it waits: a minimum separation and the like
               (`heliograph.channel.queueing.stage`)
    policy     what makes room when it is full, see above
    ranking    which band is taken from next

Which parts there are is not asked for each event: where one has to look at it the bounds below which a put
only appends are 0, and it goes through `_admit`.
"""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from itertools import islice, repeat, starmap
from math import inf
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from heliograph.channel.batch import Item as Item  # noqa: PLC0414, TC001 - callers know it from here
from heliograph.channel.ledger import QueueCounts
from heliograph.channel.queueing.storage import Fifo
from heliograph.codec.sizes import SIZES, SMALL, bound_in_events, largest_of, largest_unmeasured, size_of
from heliograph.qos.policies import DEFAULT_QUEUE_BYTES, LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.observer import Watch
    from heliograph.channel.queueing.history_merge import LateJoin
    from heliograph.channel.queueing.journal_reading import JournalReading
    from heliograph.channel.queueing.stage import Stage
    from heliograph.channel.queueing.storage import Storage
    from heliograph.errors import HeliographError, HistoryDamaged, HistoryGone, HistoryReset
    from heliograph.model.event import Event, Header
    from heliograph.qos.dispatch_order import Ranking, Waiting
    from heliograph.runtime.ports import Clock, Lock, Tasks

A = TypeVar("A")
R_contra = TypeVar("R_contra", contravariant=True)
"""The reading of a link (`heliograph.channel.dispatch.reader_handover.Reader`)."""
QueuePolicy: TypeAlias = Literal["block", "drop_oldest", "drop_soonest", "drop_newest", "coalesce"]

DEADLINE: Final = itemgetter(2)
ARRIVAL: Final = attrgetter("arrival")
LOWEST_AND_OLDEST: Final = attrgetter("priority", "arrival")
SOONEST: Final = attrgetter("due_ns", "priority", "arrival")

BATCH: Final = 64
"""Events taken at once: enough to share the cost of a lock, few enough to let others have a turn."""
LOOK_AGAIN: Final = 0.1
"""Seconds between two looks of a push that waits for room at whether anything is taken."""
UNBOUNDED: Final = 1 << 62
FIFO: Final = Fifo()
TAKEN_BYTES: Final = 1 << 20
"""Bytes of events taken at once, if that is more than one."""


class Caller(Protocol[R_contra]):
    """A receiver that a thread which read an event can call: see
    `heliograph.channel.dispatch.reader_handover`."""

    def call_one(
        self, event: Any, header_of: Callable[[Any], Header], said: Any, reader: R_contra, now: int
    ) -> None:
        """Call it with an event that its queue has in hand; HandedOver when another thread reads by now."""
        ...

    def call_many(self, events: list[Any], header_of: Callable[[int], Header], reader: R_contra) -> None:
        """The same with several."""
        ...

    def is_free(self) -> bool:
        """Whether nobody waits before it."""
        ...


class EventQueue:
    """See the module."""

    def __init_subclass__(cls) -> None:
        if "put" in vars(cls):
            cls.put_small = cls.put  # type: ignore[method-assign]  # nothing passes by a `put` of its own

    takes_rows = False
    """Whether it is one of `heliograph.channel.publish.fast_path`."""

    # CPython finds the attributes of an instance fast up to 30 of them; slots are fast in any number.
    __slots__ = (
        "__weakref__",
        "_acquire",
        "_asked_limit",
        "_bands",
        "_clock",
        "_delivered",
        "_dropped",
        "_each_bytes",
        "_expired",
        "_failed",
        "_hand",
        "_in_hand",
        "_is_counted",
        "_least_each",
        "_lock",
        "_measured_below",
        "_most_taken",
        "_on_ready",
        "_paced",
        "_placed",
        "_plain_below",
        "_quiet",
        "_quiet_waiters",
        "_ranking",
        "_release",
        "_room",
        "_seen",
        "_seen_at",
        "_size",
        "_small_below",
        "_stages",
        "_storage",
        "_taken",
        "_waiters",
        "_watched",
        "_why",
        "_withheld",
        "announced",
        "blocks_at",
        "byte_limit",
        "bytes",
        "caller",
        "closed",
        "done",
        "halted",
        "last",
        "late",
        "level",
        "limit",
        "mine",
        "most_each",
        "name",
        "on_higher",
        "on_stalled",
        "policy",
        "priority",
        "suspended",
        "waiting",
        "watch",
    )

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        tasks: Tasks,
        limit: int,
        byte_limit: int = DEFAULT_QUEUE_BYTES,
        types: Iterable[type[Event]] = (),
        policy: QueuePolicy,
        priority: int | None = None,
        ranking: Ranking | None = None,
        storage: Storage = FIFO,
        stages: Sequence[Stage] = (),
        late: LateJoin | None = None,
        on_ready: Callable[[EventQueue], None],
    ) -> None:
        self.name = name
        self._asked_limit = self.limit = limit
        self.byte_limit = byte_limit
        self.policy = policy
        self.priority = priority
        """Takes the place of the events' own priority."""
        self._ranking = ranking
        self._storage = storage
        self._on_ready = on_ready
        self._clock = clock
        self._make_locks(tasks)
        self._begin_open()
        self._begin_empty()
        self._begin_counts()
        self.late = late
        """The first of its stages, where other stations may have kept events for its receiver."""
        self._join_stages(stages if late is None else (late, *stages))
        self.carry(types)

    def _make_locks(self, tasks: Tasks) -> None:
        self._lock = tasks.lock(f"queue {self.name}")
        self._acquire = self._lock.acquire
        self._release = self._lock.release
        self.mine = self._lock.mine
        """Whether the calling thread is in the middle of a change, out of which it was called."""
        self._room = tasks.condition(self._lock, f"room in {self.name}")
        self._quiet = tasks.condition(self._lock, f"end of {self.name}")
        self._waiters = 0
        self._quiet_waiters = 0

    def _begin_open(self) -> None:
        """It takes events in, and nobody is told anything of them yet."""
        self.closed = False
        self._why = "closed"
        self.suspended = False
        """Whether what comes is dropped, because a callback does not return while the queue is full."""
        self.halted = False
        """Whether the taker should stop before the next event: closed, or something higher has come."""
        self.on_higher: Callable[[int], object] | None = None
        """Told, under the queue's lock, the priority of an event that is higher than all that waited."""
        self.watch: Watch | None = None
        """Told what is expired and dropped here; whoever takes events tells what became of those."""
        self.caller: Caller[Any] | None = None
        """The receiver, if a thread that read an event from a link can call it past this queue."""
        self.on_stalled: Callable[[float, bool], object] | None = None
        """Told by a push that waits: how many seconds nothing was taken, and whether it waits no longer."""
        self._seen: tuple[int, int, int] | None = None
        self._seen_at = 0
        self._watched = False
        self.announced = False
        """Whether it stands among those that workers look at next; see `heliograph.channel.dispatch.pool`."""

    def _begin_empty(self) -> None:
        """Nothing waits; `carry` sets the bounds."""
        # Waiting events by priority; usually a single band. What a band is, only the storage knows.
        self._bands: dict[Any, Any] = {}
        self.waiting = 0
        """How many events wait."""
        self.bytes = 0
        """What the events take that wait, where they are counted so."""
        self._is_counted = False
        """Whether `bytes` counts what waits: else it does not reach the bound."""
        self._least_each = self.most_each = SMALL
        """What an event takes at most of those that wait, while they are not counted. It gets less when they
        begin to be, not when they are no longer: who is about to put may look at it, as at `waiting`."""
        self._size: Callable[[Any], int] | None = None
        """Measures an event; None where the bound in events is enough."""
        self._most_taken = UNBOUNDED
        self.blocks_at: float = inf
        """How many events wait when a supplier must wait too."""
        # Below this many a put only has to find the band: with another order there is more to do. Below the
        # next that is so for an event of no more than `most_each`; below the last it has to count its bytes.
        self._plain_below = self._small_below = self._measured_below = 0
        self._placed: tuple[int, int] | None = None
        self.level = LOWEST_PRIORITY
        """The priority that is delivered or, if it is higher, the highest that has come since."""
        self.last: Header | None = None
        self._hand: Sequence[Item] = ()
        """What was taken last."""
        self._in_hand: Waiting | None = None  # with an order, what was taken last

    def _begin_counts(self) -> None:
        """What the ledger asks for."""
        self._taken = 0
        self.done = 0
        """How many of the taken events were delivered. The taker alone writes it, without the lock."""
        self._delivered = 0
        self._failed = 0
        self._expired = 0
        self._dropped: Counter[str] = Counter()

    def _join_stages(self, stages: Sequence[Stage]) -> None:
        """Each stage passes on to the next, the last to this queue."""
        self._stages: tuple[Stage, ...] = tuple(stages)
        self._withheld = False
        for place, stage in enumerate(self._stages):
            stage.join(self, self._stages[place + 1] if place + 1 < len(self._stages) else None)
        self._paced = tuple(stage for stage in self._stages if stage.paces)

    def carry(self, types: Iterable[type[Event]]) -> None:
        """The channel carries these types: go by a lower bound in events, or measure them."""
        with self._lock:
            types = tuple(types)
            fitting = bound_in_events(types, self.byte_limit) if types else self._asked_limit
            self._size = None if fitting is not None else self._size_function(types)
            self.limit = min(self._asked_limit, fitting or self._asked_limit)
            self._most_taken = (bound_in_events(types, TAKEN_BYTES) if types else None) or UNBOUNDED
            self._each_bytes = largest_of(types) or 0
            self._least_each = largest_unmeasured(types)
            self.most_each = max(self.most_each, self._least_each)
            self._count_anew()

    # The supplier's side

    def wait_for_room(self, timeout: float) -> bool:
        """Wait until there may be room; False when the time ran out.

        Meanwhile `on_stalled` is told for how long nothing was taken, and whether the time ran out.
        """
        until = self._clock.monotonic_ns() + round(timeout * 1e9)
        while True:
            left = max(0.0, (until - self._clock.monotonic_ns()) / 1e9)
            is_last = self.on_stalled is None or left <= LOOK_AGAIN
            with self._lock:
                self._waiters += 1
                try:
                    has_room = self._room.wait_for(self._has_room, left if is_last else LOOK_AGAIN)
                finally:
                    self._waiters -= 1
            if not has_room and self.on_stalled is not None:
                self.on_stalled(self._stalled_seconds(), is_last)
            if has_room or is_last:
                return has_room

    def _stalled_seconds(self) -> float:
        """For how long nothing was taken or delivered, as far as those have seen who waited for room."""
        now, seen = self._clock.monotonic_ns(), (self.progress, self.waiting, self._taken)
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return (now - self._seen_at) / 1e9

    def put(self, item: Item) -> None:
        """Queue an event; into a `block` queue, one that has room."""
        # Not `with`: for every delivery, it would take longer than all the rest.
        is_new = False
        try:
            self._acquire()
            size = 0
            if self.waiting >= self._plain_below and self._size is not None:
                size = self._size(item[0])
                if not self._is_counted:
                    is_small = size <= self.most_each and self.waiting < self._small_below
                    size = 0 if is_small else self._bytes_of((item,))
            if self.waiting < (self._measured_below if size else self._small_below):
                header = item[1]
                priority = self.priority or header.priority
                try:
                    append = self._bands[priority].append
                except KeyError:
                    append = self._open_band(priority).append
                self.waiting += 1
                self.last = header
                self.bytes += size
                if size and self.bytes >= self.byte_limit:
                    self._measured_below = 0
                    if self.policy == "block":
                        self.blocks_at = 0
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

    def put_small(self, item: Item) -> None:
        """Queue an event of no more than `most_each` bytes, or of a class whose events have one size."""
        is_new = False
        try:
            self._acquire()
            if self.waiting >= self._small_below:
                self._release()
                self.put(item)
                return
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
            is_new, self.announced, self._watched = True, False, True
            self._release()
            self._on_ready(self)
        except BaseException:
            self._recover(is_new=is_new)
            raise

    def put_many(self, items: Sequence[Item], *, largest: int | None = None) -> None:
        """Queue events of one priority, as `put` each of them.

        Args:
            items: at least one.
            largest: what each takes at most, where that is known.
        """
        is_new = False
        try:
            with self._lock:
                if not (self._extend(items, largest=largest) or self._put_each(items)) or self._watched:
                    return
                is_new, self.announced, self._watched = True, False, True
            self._on_ready(self)
        except BaseException:
            self._recover(is_new=is_new)
            raise

    def put_bulk(self, bulk: OutgoingBatch) -> None:
        """Queue events that were pushed together; into a `block` queue, one that has room for them."""
        self.put_many(list(bulk), largest=bulk.largest)

    def supplier_left(self, supplier: str, epoch: int) -> None:
        """Nothing more comes from a supplier."""

    # What a history adds, where there is one

    @property
    def journal(self) -> JournalReading | None:
        """Itself, if it reads a journal."""
        return None

    @property
    def ended(self) -> bool:
        """Whether all of a history has been handed out that is to be."""
        return self.late is None or self.late.ended

    @property
    def failed_with(self) -> HeliographError | None:
        """Why it could not read on in a history; it is closed then."""
        return None

    @property
    def history_gaps(self) -> Sequence[HistoryGone | HistoryDamaged | HistoryReset]:
        """What of a history could not be had, the latest last."""
        return ()

    def raise_gaps(self) -> None:
        """Have `take` raise at what of a history could not be had, once, instead of telling the station."""

    def joined(self) -> None:
        """It is among the receivers from now on. While still."""

    def start(self) -> None:
        """Once it has been joined: whoever delivers may look."""

    def put_extra(self, item: Item) -> None:
        """Queue beyond the limit: history for a new consumer, or what another member of its group left."""
        is_new = False
        try:
            with self._lock:
                if self.closed:
                    self._drop(item, "closed")
                    return
                if not self._admit(item, beyond=True) or self._watched:
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
            self._set_bounds()
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
                if self._withheld:
                    most = 0
                if self.suspended and most:
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
            if ranking.heads is not None and self._storage.oldest_first:
                return ranking.heads.first(self._bands, self._storage.head)
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
        """These were taken, and nobody will deliver them: the queue closed, or for another reason."""
        with self._lock:
            for item in items:
                self.guarded(partial(self._abandon, item, reason))

    def drop_taken(self, item: Item, reason: str) -> None:
        """One of those in hand cannot be delivered."""
        with self._lock:
            hand, dropped = [other for other in self._hand if other is not item], self._dropped
            dropped.setdefault(reason, 0)
            self._hand = hand
            self._taken -= 1
            dropped[reason] += 1
            if self.watch is not None:
                self.watch(item[1], "dropped", reason)

    def settle(self, hand: Sequence[Item] = ()) -> None:
        """The batch is finished. Those of it which were neither delivered nor failed wait again.

        They are the last of it, or of `hand` where they were taken directly. In a queue that is closed they
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
            self._enter_again(items)
            self._set_bounds()

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
            self._set_bounds()
            self._room.notify_all()
            return True

    def resume(self) -> None:
        """Take events in again."""
        with self._lock:
            if self.suspended:
                self.suspended = False
                self._set_bounds()

    def finish(self) -> None:
        """Nothing more will come: hold nothing back."""
        for stage in self._stages:
            stage.finish()

    def close(self, reason: str = "closed") -> None:
        """Take nothing more in; what waits, or was taken in vain, is dropped under `reason`."""
        with self._lock:
            self._why = reason
            self._shut()
            for stage in self._stages:
                self.guarded(partial(stage.close, reason))
            if self.waiting:
                self.guarded(lambda: self.drop_each(self._pop_all(), reason))
            self._bands.clear()
            self._room.notify_all()
            self._quiet.notify_all()

    def unread(self) -> int:
        """How many events are in a history that it reads, and have not been looked at."""
        return 0

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

        When nothing waits it is that of what was delivered last: what comes next may find the queue ready,
        and must not wait there behind anything lower.
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

    def counts(self) -> QueueCounts:
        with self._lock:
            return self._counts()

    def __len__(self) -> int:
        return self.waiting

    @property
    def is_plain(self) -> bool:
        """Whether its events may be handed out as they come, without having waited: no part looks at them."""
        return not self._stages and self._storage.is_plain

    # For its stages

    @property
    def lock(self) -> Lock:
        return self._lock

    def withhold(self, withheld: bool) -> None:
        """Whether nothing is given out for now. Under the lock."""
        self._withheld = withheld

    def take_out(self) -> list[Item]:
        """All that waits, to be admitted again or dropped. Under the lock."""
        items = self._pop_all()
        for stage in self._stages:
            stage.lost(items)
        return items

    def let_in(self, change: Callable[[], bool]) -> None:
        """Make a change by which events may come to wait that were held back; it returns whether any did."""
        with self._lock:
            if not self.guarded(change) or self._watched:
                return
            self.announced, self._watched = False, True
        self._on_ready(self)

    def stages_changed(self) -> None:
        """One of them is idle, or no longer is. Under the lock."""
        self._set_bounds()

    def all_waiting(self) -> list[Item]:
        """Under the lock, in no order of priorities."""
        items = self._storage.items
        return [held for band in self._bands.values() for held in items(band)]

    # All of these run under the lock.

    def _counts(self, from_history: int = 0) -> QueueCounts:
        done = self.done  # read once: the taker raises it meanwhile
        return QueueCounts(
            self._delivered + done,
            self._failed,
            self._expired,
            dict(self._dropped),
            self.waiting + self._taken - done + self._held_back(),
            from_history,
            self._waiting_bytes(),
        )

    def _waiting_bytes(self) -> int:
        if self._size is None:
            return self.waiting * self._each_bytes
        return self.bytes if self._is_counted else self.measure(self.all_waiting())

    def _shut(self) -> None:
        self.closed = self.halted = True
        self._set_bounds()

    def _set_bounds(self) -> None:
        """How many events may wait before a put has more to do, and before a supplier has to wait."""
        is_full = self._is_counted and self.bytes >= self.byte_limit
        limit = self.limit if self._appends() else 0
        self._plain_below = limit if self._size is None else 0
        self._measured_below = limit if self._is_counted and not is_full else 0
        if self._size is not None:
            limit = 0 if self._is_counted else min(limit, (self.byte_limit - 1) // self.most_each)
        self._small_below = limit
        if self.policy != "block" or self.suspended:
            self.blocks_at = inf
        else:
            self.blocks_at = 0 if is_full else self.limit

    def _appends(self) -> bool:
        """Whether an event that comes in, and has room, is just appended to its band."""
        if self.closed or self.suspended or self._ranking is not None:
            return False
        return self._storage.is_plain and all(stage.idle for stage in self._stages)

    def _size_function(self, types: tuple[type[Event], ...]) -> Callable[[Any], int]:
        return SIZES[types[0]] if len(types) == 1 else size_of

    def measure(self, items: Iterable[Item]) -> int:
        size = self._size
        return 0 if size is None else sum([size(item[0]) for item in items])

    def _bytes_of(self, items: Sequence[Item]) -> int:
        """What these add to the bytes that wait: nothing while it is plain that there is room."""
        size = self._size
        if size is None:
            return 0
        sizes = [size(item[0]) for item in items]
        if not self._is_counted:
            if self._surely_fit(len(sizes), max(sizes)):
                return 0
            self._begin_to_count()
        return sum(sizes)

    def _surely_fit(self, more: int, largest: int) -> bool:
        """Whether it is plain that what waits does not reach the bound with so many more of this size."""
        each = max(self.most_each, 1 << (largest - 1).bit_length())
        below = min(self._small_below, (self.byte_limit - 1) // each)
        if (self.waiting + more) * each >= self.byte_limit:
            return False
        self.most_each = each
        self._small_below = below
        return True

    def _count_anew(self) -> None:
        if self._size is not None and self.waiting:
            self._begin_to_count()
        else:
            self._stop_counting()

    def _begin_to_count(self) -> None:
        """Know by `bytes` what waits."""
        waiting = self.measure(self.all_waiting())
        self.bytes = waiting
        self._is_counted = True
        self._small_below = 0
        self.most_each = self._least_each
        self._set_bounds()

    def _stop_counting(self) -> None:
        """Nothing waits, or nothing has to be measured."""
        self.bytes = 0
        self._is_counted = False
        self._measured_below = 0
        self._set_bounds()

    def _set_bytes(self, waiting: int) -> None:
        """So much waits now; with nothing that waits it is nothing, whatever was done to events meanwhile."""
        self.bytes = waiting if self.waiting and waiting > 0 else 0
        self._set_bounds()

    def _is_full(self) -> bool:
        return self.waiting >= self.limit or (self._is_counted and self.bytes >= self.byte_limit)

    def _abandon(self, item: Item, reason: str) -> None:
        self._taken -= 1
        self._drop(item, reason)

    def _give_back(self, hand: Sequence[Item], left: int) -> None:
        """The last of what was taken is not delivered."""
        items = list(hand)[-left:] if hand else []
        if items and not self.closed:
            for stage in self._stages:
                stage.returned(items)
            if self._ranking is None and type(band := self._band(self._held(items[0])[1])) is deque:
                back, more, size = band.extendleft, reversed(items), self._bytes_of(items)
                self._hand = ()
                self.waiting += left
                self.bytes += size
                self._taken -= left
                back(more)
                self._set_bounds()
            else:
                self._hand = ()
                self.guarded(lambda: self._put_back(items))
            return
        self._dropped[self._why] += left
        self._taken -= left
        if self.watch is not None:
            for item in items:
                self.watch(item[1], "dropped", self._why)

    def guarded(self, change: Callable[[], A], items: Sequence[Item] = ()) -> A:
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
        here = [*waiting, *(item for stage in self._stages for item in stage.held_back())]
        if done < len(items) and any(_is_same(item[1], items[done][1]) for item in here):
            self.last = items[done][1]
            done += 1
        lost = before + done - self._total()
        if lost:
            self._dropped["interrupted"] += lost
        for stage in self._stages:
            stage.mended()

    def _held_back(self) -> int:
        """How many have come in and neither wait nor were taken."""
        return sum(len(stage.held_back()) for stage in self._stages)

    def _total(self) -> int:
        """All that ever came in. What is delivered meanwhile, and not settled yet, is among the taken."""
        dropped, held_back = sum(self._dropped.values()), self._held_back() if self._stages else 0
        return (
            self._delivered + self._failed + self._expired + dropped + self.waiting + self._taken + held_back
        )

    def _drop(self, item: Item, reason: str) -> None:
        self.drop_each((item,), reason)

    def drop_each(self, items: Sequence[Item], reason: str) -> None:
        self._dropped[reason] += len(items)
        if self.watch is not None:
            for item in items:
                self.watch(item[1], "dropped", reason)

    def _has_room(self) -> bool:
        return self.closed or self.waiting < self.blocks_at

    @property
    def bytes_that_fill(self) -> int:
        """The bytes that wait, where the bound in bytes is what it is full by; else 0."""
        if self._size is not None:
            return self.bytes if self._is_counted and self.bytes >= self.byte_limit else 0
        return self.byte_limit if self.limit < self._asked_limit else 0

    def _pop_next(self, most: int, chosen: Waiting | None) -> Sequence[Item]:
        """Events of the highest band, or with an order the one it chose; those that expired are counted."""
        if self._paced:
            return self.guarded(lambda: self._pop_paced(min(most, 1), chosen))
        return self._pop_some(most, chosen)

    def _pop_paced(self, most: int, chosen: Waiting | None) -> Sequence[Item]:
        items = self._pop_some(most, chosen)
        for stage in self._paced:
            stage.taken(items)
        return items

    def _pop_some(self, most: int, chosen: Waiting | None) -> Sequence[Item]:
        if self._ranking is not None and most:
            return self.guarded(lambda: self._pop_chosen(chosen))
        most = self._most_at_once(most)
        while self.waiting and most:
            self._move(self._highest_band(), most)
            if any(map(DEADLINE, self._hand)):
                self._in_time()
            if self._hand:
                return self._hand
        return ()

    def _most_at_once(self, most: int) -> int:
        """Few where events are large: what was taken is not bounded, and others wait for the next turn."""
        if self._is_counted and self.bytes > TAKEN_BYTES:
            return min(most, max(1, self.waiting * TAKEN_BYTES // self.bytes))
        if self._size is not None:
            return min(most, max(1, TAKEN_BYTES // self.most_each))
        return min(most, self._most_taken)

    def _move(self, band: Any, most: int) -> None:
        """From a band into the hand."""
        if type(band) is not deque:
            self.guarded(lambda: self._move_some(band, most))
            return
        others: deque[Item] = deque()
        hand: list[Item] = []
        extend, some = hand.extend, starmap(band.popleft, repeat((), most))
        waiting = len(band)
        is_counted = self._is_counted
        size = 0
        if is_counted:
            size = self.bytes if waiting == self.waiting <= most else self.measure(islice(band, most))
        if waiting <= most:
            self._bands[self.level] = others
            self._hand = band
            self.waiting -= waiting
            self._taken += waiting
            self.bytes -= size
        else:
            self._hand = hand
            self.waiting -= most
            self._taken += most
            self.bytes -= size
            extend(some)
        if is_counted and not self.waiting:
            self._stop_counting()
        elif is_counted and self.bytes + size >= self.byte_limit:
            self._set_bytes(self.bytes)

    def _move_some(self, band: Any, most: int) -> None:
        hand = self._hand = self._storage.pop(band, most)
        taken = len(hand)
        self.waiting -= taken
        self._taken += taken
        self._count_out(hand)

    def _count_out(self, items: Sequence[Item]) -> None:
        """These wait no more."""
        if not self._is_counted:
            return
        if self.waiting:
            self._set_bytes(self.bytes - self.measure(items))
        else:
            self._stop_counting()

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
        self._in_hand = held = self._storage.pop(band, 1)[0]
        self._hand = [held[:3]]
        self.waiting -= 1
        self._taken += 1
        self._count_out(self._hand)
        if not band:
            del self._bands[line]
            self._ranking.ended(line)
        if self._hand[0][2]:
            self._in_time()
        return self._hand

    def _pop_all(self) -> list[Item]:
        """All that waits: by priority, or with another order in the order in which it came."""
        lines = sorted(self._bands, reverse=True) if self._ranking is None else list(self._bands)
        held = [item for line in lines for item in self._storage.pop(self._bands[line], self.waiting)]
        self.waiting = 0
        self._count_out(())
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
        self._count_anew()

    def _put_back(self, items: Sequence[Item]) -> None:
        """These were taken and wait again, before the others of their band and as old as they were."""
        for item in reversed(items):
            held, line = self._held(item)
            if self._ranking is not None:
                held = self._ranking.returned(held, self._in_hand)
            band = self._band(line)
            self.waiting += 1
            self._taken -= 1
            if (older := self._storage.add_first(band, held)) is None:
                self._count_in(item)
            else:
                self._drop(older, "coalesced")
                self.waiting -= 1
            if self._ranking is not None:
                self._ranking.began(line, self._storage.head(self._bands[line]), anew=True)

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
        band = self._bands[line] = self._storage.new_band()
        return band

    def _held(self, item: Item) -> tuple[Any, Any]:
        """What stands in a band for an event, and which band that is."""
        if self._ranking is None:
            return item, self.priority or item[1].priority
        held = self._ranking.waiting(*item)
        return held, self._ranking.line(held)

    def _add(self, line: Hashable, held: Any) -> None:
        band = self._band(line)
        if (before := self._storage.add(band, held)) is not None:
            self._drop(before, "coalesced")
            self.waiting -= 1
            self._count_out((before,))
        if self._ranking is not None:
            self._ranking.began(line, self._storage.head(band))

    def _heads(self) -> list[Waiting]:
        return [self._storage.head(band) for band in self._bands.values() if band]

    def _in_time(self) -> None:
        """Leave in the hand what is not over; the rest is counted."""
        hand, now = self._hand, self._clock.monotonic_ns()
        alive = [item for item in hand if not item[2] or now <= item[2]]
        over = len(hand) - len(alive)
        if over:
            self._hand = alive
            self._taken -= over
            self._expired += over
            gone = [item for item in hand if item[2] and now > item[2]]
            for stage in self._stages:
                stage.lost(gone)
            if self.watch is not None:
                for item in gone:
                    self.watch(item[1], "expired")

    def _drop_oldest(self) -> None:
        """Drop the oldest event of the lowest priority, or the one that is due first."""
        is_soonest = self.policy == "drop_soonest" and self._ranking is not None
        if self._ranking is None:
            line: Any = min(p for p, band in self._bands.items() if band)
        else:
            line = self._ranking.line(min(self._heads(), key=SOONEST if is_soonest else LOWEST_AND_OLDEST))
        items = self._storage.pop(self._bands[line], 1)
        self.waiting -= 1
        self._count_out(items)
        if self._ranking is not None and not self._bands[line]:
            del self._bands[line]
            self._ranking.ended(line)
        self.drop_each(items, "soonest" if is_soonest else "oldest")
        for stage in self._stages:
            stage.lost(items)

    def _admit(self, item: Item, *, beyond: bool) -> bool:
        """Through its stages, if there are any. Whether anything new waits now."""
        return self._stages[0].admit(item, beyond=beyond) if self._stages else self.store(item, beyond=beyond)

    def store(self, item: Item, *, beyond: bool) -> bool:
        """An event has passed all stages: have it wait, if there is room or that can be made.

        Whether anything new waits now. `beyond` is as in `Stage.admit`.
        """
        held, line = self._held(item)
        if (before := self._storage.swap(self._bands.get(line), held)) is not None:
            self._count_out((before,))
            self._count_in(item)
            self.drop_each((before,), "coalesced")
            return False
        # A coalescing queue is as large as there are keys: its bound holds for those of a history too.
        if (not beyond or self.policy == "coalesce") and not self._make_room(item):
            return False
        self._add(line, held)
        self.waiting += 1
        self._count_in(item)
        return True

    def _make_room(self, item: Item) -> bool:
        """False: the event that comes is dropped."""
        if self.suspended:
            self._drop(item, "suspended")
            return False
        if self._is_full():
            if self.policy == "drop_newest":
                self._drop(item, "newest")
                return False
            if self.policy != "block":
                while self.waiting and self._is_full():
                    self._drop_oldest()
        return True

    def _extend(self, items: Sequence[Item], *, largest: int | None = None) -> bool:
        """Append events of one priority; False, and none, when some do not fit or there is more to do."""
        last, more = items[-1][1], len(items)
        size = 0
        if self.waiting + more > self._plain_below:
            if not (self._small_below or self._measured_below):
                return False
            is_known = largest is not None and not self._is_counted and self._surely_fit(more, largest)
            size = 0 if is_known else self._bytes_of(items)
            if self.waiting + more > (self._measured_below if size else self._small_below):
                return False
            if size and self.bytes + size >= self.byte_limit:
                return False
        extend = self._band(self.priority or items[0][1].priority).extend
        self.waiting += more
        self.bytes += size
        self.last = last
        extend(items)
        return True

    def _put_each(self, items: Sequence[Item]) -> bool:
        return self.guarded(lambda: self._append_each(items), items)

    def _append_each(self, items: Sequence[Item]) -> bool:
        """Whether anything new waits now."""
        found, admit = False, self._stages[0].admit if self._stages else self.store
        for item in items:
            if self.closed:
                self._drop(item, "closed")
            elif admit(item, beyond=False):
                found = True
            self.last = item[1]
        return found

    def _count_in(self, item: Item) -> None:
        if self._is_counted:
            self._set_bytes(self.bytes + self.measure((item,)))
        elif self._size is not None and not self._surely_fit(0, self._size(item[0])):
            self._begin_to_count()


def _is_same(one: Header | None, two: Header | None) -> bool:
    """Whether two headers are of one event: those of a batch are made anew whenever somebody looks."""
    if one is two or one is None or two is None:
        return one is two
    return (one.sequence, one.epoch, one.supplier) == (two.sequence, two.epoch, two.supplier)

"""The ways out: a subscription is called, a consumer is asked.

    Subscription        queued: workers of the pool call it, isolated from suppliers and from each other
    AsyncSubscription   the same for `async def`, awaited one after the other on an event loop
    InlineSubscription  called in the pushing thread: fastest, not isolated
    Consumer            an iterator, an async iterator, `pull`, `read` or `deliveries`, as its user likes

All of them are `Receiver`s: they have a name, a condition and counts, and can be closed from anywhere, also
from inside their own callback.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar, Unpack

from heliograph.channel.deliveries import Deliveries, Delivery
from heliograph.channel.feed import JournalLane
from heliograph.channel.ledger import LaneCounts
from heliograph.channel.observer import watched, watched_async
from heliograph.channel.stamp import check_timeout
from heliograph.errors import Closed, NotPossible
from heliograph.event import Event, Header
from heliograph.options import insist_on_known, names_options
from heliograph.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from heliograph.channel.core import Channel
    from heliograph.channel.handing import Desk, Handed, HostDesk, Seat, Terms
    from heliograph.channel.lane import Item, Lane
    from heliograph.channel.observer import Watch
    from heliograph.channel.pools import Pool
    from heliograph.channel.selection import Selection, Wanted
    from heliograph.errors import HeliographError, HistoryDamaged, HistoryGone

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)
A = TypeVar("A")


def _signature(callback: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(callback)
    except SystemError:
        # Signatures of builtins are parsed, and CPython 3.11 now and then miscounts the depth of a parse
        # while other threads run (python/cpython#106905). The next parse counts anew.
        return inspect.signature(callback)


def takes_header(callback: Callable[..., object]) -> bool:
    """Whether a callback wants (event, header) rather than (event)."""
    try:
        parameters = _signature(callback).parameters.values()
    except (TypeError, ValueError):
        return False  # a builtin that does not tell: it gets the event
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if len(required) > 2 or (not positional and not any(p.kind is p.VAR_POSITIONAL for p in parameters)):
        raise TypeError(f"{callback!r} must take (event) or (event, header)")
    return len(required) == 2


class Receiver(ABC):
    """What the channel knows of anything that receives."""

    name: str
    selection: Selection
    group: str | None
    points: tuple[Selection, Selection] | None = None
    """What its admin and what it itself asks for, where it has an admin; `selection` is both."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._channel.name!r}>"

    def __init__(self, channel: Channel[Any], name: str, selection: Selection) -> None:
        self.name = name
        self.selection = selection
        self.group = selection.group
        self._channel = channel
        self._watch: Watch | None = None if channel.observer is None else channel.observer.watch(name)

    def close(self) -> None:
        """Receive nothing more. What is still waiting is dropped and counted; safe to call from anywhere."""
        self._channel.drop_receiver(self)

    def change(self, **wanted: Unpack[Wanted]) -> None:
        """Receive by another filter from the next push on; what both let through is not lost or repeated.

        Args:
            **wanted: `where` and `params`, `types`, `sources`, as when it was opened; what is left out wants
                all. What waits already was wanted when it came, and is delivered.
        """
        if not self._channel.change_receivers({self: self.could_want(**wanted)}):
            raise Closed(self.name)

    def could_want(self, **wanted: Unpack[Wanted]) -> Selection:
        """What `change` would have it want, checked."""
        if self.group is not None:
            raise NotPossible(self.name, "its group shares one stream; open a group of another name")
        return self._channel.select(**wanted)

    @abstractmethod
    def counts(self) -> LaneCounts:
        """What became of the events that matched."""

    @abstractmethod
    def shut(self, reason: str) -> None:
        """Called by the channel, once."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class QueuedReceiver(Receiver):
    """A receiver that has a lane."""

    lane: Lane

    def counts(self) -> LaneCounts:
        return self.lane.counts()

    def shut(self, reason: str) -> None:
        self.lane.close(reason)


class Subscription(QueuedReceiver):
    """A callback that the workers of the pool call."""

    def __init__(
        self,
        channel: Channel[Any],
        name: str,
        selection: Selection,
        callback: Callable[..., object],
        pool: Pool,
    ) -> None:
        super().__init__(channel, name, selection)
        self.callback = callback
        self._call = callback
        self._with_header = takes_header(callback)
        self._pool = pool
        # Whoever runs it next hands it to `_pool`, which may be another by now.
        self._is_moving = False
        # Pools whose workers may have it in hand, or be about to: left when the next batch is done.
        self._leaving: deque[Pool] = deque()
        self.lane = channel.new_lane(name, selection, self._schedule)
        self.lane.on_higher = partial(pool.raise_to, self)
        if self._watch is not None:
            self._call = watched(self._watch, callback, with_header=self._with_header)
            self._with_header = True
            self.lane.watch = self._watch

    def _schedule(self, lane: Lane) -> None:
        self._pool.schedule(self, lane.highest())

    def use(self, pool: Pool) -> None:
        """Be called by the workers of another pool; one of the old that is at it ends its batch."""
        before, self._pool = self._pool, pool
        self.lane.on_higher = partial(pool.raise_to, self)
        if before.withdraw(self):
            pool.schedule(self, self.lane.highest())
            self._channel.pools.leave(before)
        elif self.lane.wait_empty(0):  # no worker has it
            self._channel.pools.leave(before)
        else:
            self._is_moving = True
            self._leaving.append(before)

    def shut(self, reason: str) -> None:
        super().shut(reason)
        self._leaving.append(self._pool)
        if self.lane.wait_empty(0):
            self._leave(self._left_before())

    def run_batch(self) -> bool:
        """Deliver one batch, for the pool."""
        if not self._leaving:
            return self._run_batch()
        # Of those before now at most the worker's own has it in hand: it gives it away, or finds it empty.
        leaving = self._left_before()
        again = self._run_batch()
        self._leave(leaving)
        return again

    def _run_batch(self) -> bool:
        lane, callback, with_header = self.lane, self._call, self._with_header
        items = lane.take()
        for event, header, _ in items:
            if lane.halted:
                break
            try:
                if with_header:
                    callback(event, header)
                else:
                    callback(event)
            except BaseException as error:  # noqa: BLE001 - whatever a callback raises stays with it
                lane.failed_one()
                self._channel.report(self.name, header, error)
            else:
                lane.done += 1
        if items:
            lane.settle(items)
            if self._is_moving:
                self._is_moving = False
                self._schedule(lane)
                return False
        return bool(items)

    def _left_before(self) -> list[Pool]:
        leaving: list[Pool] = []
        with suppress(IndexError):
            while True:
                leaving.append(self._leaving.popleft())
        return leaving

    def _leave(self, pools: list[Pool]) -> None:
        for pool in pools:
            self._channel.pools.leave(pool)

    @property
    def progress(self) -> int:
        return self.lane.progress

    def stuck(self, seconds: float) -> None:
        """The callback does not come back: say so and detach, so that nothing queues up behind it."""
        log.error(
            "%s has not returned for %.1f s; it is detached, what waits for it is dropped and counted",
            self.name,
            seconds,
        )
        self._channel.drop_receiver(self, reason="stuck")


class AsyncSubscription(QueuedReceiver):
    """An `async def` callback, awaited one event after the other on one loop."""

    def __init__(
        self,
        channel: Channel[Any],
        name: str,
        selection: Selection,
        callback: Callable[..., Awaitable[object]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(channel, name, selection)
        self.callback = callback
        self._call = callback
        self._with_header = takes_header(callback)
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self.lane = channel.new_lane(name, selection, self._schedule)
        if self._watch is not None:
            self._call = watched_async(self._watch, callback, with_header=self._with_header)
            self._with_header = True
            self.lane.watch = self._watch

    def _schedule(self, _: Lane) -> None:
        try:
            self._loop.call_soon_threadsafe(self._start)
        except RuntimeError:  # the loop is closed: nobody will ever await this callback again
            self.lane.close()

    def _start(self) -> None:
        # The loop keeps only weak references to tasks.
        self._task = self._loop.create_task(self._drain(), name=self.name)

    async def _drain(self) -> None:
        lane = self.lane
        while items := lane.take():
            for event, header, _ in items:
                if lane.halted:
                    break
                try:
                    await (self._call(event, header) if self._with_header else self._call(event))
                except Exception as error:  # noqa: BLE001 - as in Subscription
                    lane.failed_one()
                    self._channel.report(self.name, header, error)
                else:
                    lane.done += 1
            lane.settle(items)


class InlineSubscription(Receiver):
    """A callback in the pushing thread. Its counts are handed in by the suppliers."""

    def __init__(
        self, channel: Channel[Any], name: str, selection: Selection, callback: Callable[..., object]
    ) -> None:
        super().__init__(channel, name, selection)
        if inspect.iscoroutinefunction(callback):
            raise NotPossible(name, "an async def cannot run inside push; leave out inline=True")
        self.callback = callback
        self.call = callback
        """What the generated function calls."""
        self.with_header = takes_header(callback)
        if self._watch is not None:
            self.call = watched(self._watch, callback, with_header=self.with_header)
            self.with_header = True
        self._delivered = 0
        self._failed = 0

    def add(self, times: int, *, failed: bool) -> None:
        """Under the channel's lock."""
        if failed:
            self._failed += times
        else:
            self._delivered += times

    def counts(self) -> LaneCounts:
        return LaneCounts(self._delivered, self._failed)

    def shut(self, reason: str) -> None:
        """Nothing waits for an inline callback."""

    def raised(self, header: Header, error: BaseException) -> None:
        self._channel.report(self.name, header, error)


class Consumer(QueuedReceiver, Generic[T]):
    """Asked for events by threads or by one task: the first use binds the way.

    Without a seat an event counts as delivered when it has been handed out, and that is all. With one, events
    are acknowledged: by a durable consumer, by one that shares its stream with a group, by one that is asked
    for deliveries, and by one whose `ack` is not "auto".

    Args:
        ends: whether it ends when all that there was has been handed out.
        raises_gaps: whether what it could not be given is raised where it would have been.
        open_desk: makes a desk that takes from this consumer's lane.
        terms: what was agreed about acknowledging; None: nothing, so it has no desk before it needs one.
        shared: the lane of a group, and its desk.
    """

    def __init__(
        self,
        channel: Channel[Any],
        name: str,
        selection: Selection,
        *,
        ends: bool = False,
        raises_gaps: bool = False,
        open_desk: Callable[[str, Lane, Sequence[Item]], Desk],
        terms: Terms | None = None,
        shared: tuple[Lane, Desk] | None = None,
    ) -> None:
        super().__init__(channel, name, selection)
        self._clock = channel.ports.clock
        self._bell = channel.ports.tasks.signal(f"events for {name}")
        self._hand = channel.ports.tasks.lock(f"hand of {name}")
        self._batch: Iterator[Item] = iter(())
        self._way: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rang: asyncio.Event | None = None
        self._ends = ends
        self._open_desk = open_desk
        self._auto = terms is None or terms.ack == "auto"
        self._handed: int | None = None
        self._seat: Seat | None = None
        self._desk: Desk | None = None
        self._left = False
        if shared is not None:
            self.lane, desk = shared
            self._seat = desk.sit(name, self._ring)
            return
        self.lane = channel.new_lane(name, selection, lambda _: self._ring())
        self.lane.watch = self._watch
        if isinstance(self.lane, JournalLane):
            self.lane.raises_gaps = raises_gaps
        if terms is not None:
            self._sit()

    @property
    def gaps(self) -> tuple[HistoryGone | HistoryDamaged, ...]:
        """What it could not be given: retention was faster, or a file is damaged. `ranges` says which."""
        return tuple(self.lane.gaps) if isinstance(self.lane, JournalLane) else ()

    def pull(self, timeout: float | None = None, **unknown: Never) -> T | None:
        """The next event, or None when none came in time or the consumer is closed."""
        if unknown:  # `names_options` would cost as much as half of this call
            insist_on_known("pull", unknown, ("timeout",))
        return self._next(self._take_event, timeout)

    @names_options
    def read(self, max: int = 100, timeout: float | None = None) -> list[T]:  # noqa: A002 - as the face says
        """Up to `max` events: waits for the first, then takes what is there."""
        if type(max) is not int or max < 1:
            raise ValueError(f"max={max!r}; it is a whole number above 0")
        first = self.pull(timeout)
        events: list[T] = [] if first is None else [first]
        while events and len(events) < max:
            event = self.pull(0)
            if event is None:
                break
            events.append(event)
        return events

    @names_options
    def deliveries(self, timeout: float | None = None) -> Deliveries[T]:
        """Events with their headers, to be acknowledged or refused one by one; for `for` and `async for`.

        Ends when the consumer is closed, or when none came in `timeout`. Unless `ack="manual"`, asking for
        the next acknowledges the one before, if nothing was said about it.
        """
        return Deliveries(
            partial(self._next, self._take_delivery, timeout),
            partial(self._arriving, self._take_delivery, timeout),
        )

    def __iter__(self) -> Iterator[T]:
        while (event := self.pull()) is not None:
            yield event

    def __aiter__(self) -> AsyncIterator[T]:
        return self._arriving(self._take_event, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)  # which may wait for the disk

    def close(self) -> None:
        """Receive nothing more. What waits is dropped and counted; what a member held goes to its group."""
        if self._desk is not None or self._seat is None:
            # First, and not in `shut`, which runs while the channel is held still: who takes may read the
            # journal, and waits for the channel to do so.
            try:
                if self._desk is not None:
                    self._desk.close()
            finally:
                # What could not be kept is raised, and it is closed all the same.
                super().close()
                with self._hand:
                    self._batch = iter(())
                    if self._desk is None:
                        self.lane.settle()
        elif not self._left:
            self._left = True
            self._seat.leave()
            self._ring()
            self._channel.asking.member_left(self)

    def shut(self, reason: str) -> None:
        super().shut(reason)
        self._ring()

    def _sit(self) -> None:
        """Have a desk between the lane and this consumer from here on."""
        self._desk = self._open_desk(self.name, self.lane, list(self._batch))
        self._seat = self._desk.sit(self.name, self._ring)

    def _bind(self, way: str) -> None:
        if self._way not in (None, way):
            raise NotPossible(self.name, f"is used the {self._way} way already; open a second consumer")
        self._way = way

    def _next(self, take: Callable[[], A | None], timeout: float | None) -> A | None:
        self._bind("blocking")
        found = take()
        if found is not None or timeout == 0:
            return found
        return self._wait_for(take, timeout)

    def _wait_for(self, take: Callable[[], A | None], timeout: float | None) -> A | None:
        """Take when the bell rings, or a delay or lease is over; None when the time has run out."""
        check_timeout(self.name, timeout)
        deadline = None if timeout is None else self._clock.monotonic_ns() + round(timeout * 1e9)
        while not self._closed() and not self._ended():
            left = None if deadline is None else seconds_until(self._clock, deadline)
            due = None if self._seat is None else self._seat.wait_seconds()
            is_due_first = due is not None and (left is None or due < left)
            rang = self._bell.wait(due if is_due_first else left)
            found = take()
            if found is not None or not (rang or is_due_first):
                return found
        self._check_failure()
        return None

    async def _arriving(self, take: Callable[[], A | None], patience: float | None) -> AsyncIterator[A]:
        """The same for a task on an event loop, again and again."""
        self._bind("async")
        check_timeout(self.name, patience)
        self._loop = asyncio.get_running_loop()
        self._rang = asyncio.Event()
        deadline = None
        while True:
            self._rang.clear()
            found = take()
            if found is not None:
                yield found
                deadline = None
                continue
            if self._closed() or self._ended():
                self._check_failure()
                return
            if patience is not None:
                deadline = deadline or self._clock.monotonic_ns() + round(patience * 1e9)
            left = None if deadline is None else seconds_until(self._clock, deadline)
            if left == 0:
                return
            due = None if self._seat is None else self._seat.wait_seconds()
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._rang.wait(), min((s for s in (due, left) if s is not None), default=None)
                )

    def _check_failure(self) -> None:
        if isinstance(self.lane, JournalLane) and self.lane.failure is not None:
            raise self.lane.failure

    def _closed(self) -> bool:
        return self._left or self.lane.closed

    def _ended(self) -> bool:
        """Whether all up to `until` has been handed out. Without a journal, "now" was when it was opened."""
        if not self._ends:
            return False
        if self._seat is not None:
            return self._seat.ended()
        return not isinstance(self.lane, JournalLane) or self.lane.ended

    def _take_event(self) -> T | None:
        """The next event without waiting. It counts as delivered from here on, unless it is acknowledged."""
        with self._hand:
            if self._seat is not None:
                handed = self._handed_to_me(self._seat)
                return None if handed is None else handed.event  # type: ignore[return-value]  # lanes hold what the channel carries
            is_overtaken = self.lane.halted and not self.lane.closed
            item = None if is_overtaken else next(self._batch, None)
            if item is None:
                self.lane.settle(list(self._batch))
                self._batch = iter(self.lane.take())
                item = next(self._batch, None)
            if item is None:
                return None
            self.lane.done += 1
            if self._watch is not None:
                self._watch(item[1], "delivered")
            return item[0]  # type: ignore[return-value]  # likewise

    def _take_delivery(self) -> Delivery[T] | None:
        with self._hand:
            if self._seat is None:
                self._sit()
            assert self._seat is not None
            handed = self._handed_to_me(self._seat)
            return None if handed is None else Delivery(handed, self._seat)

    def _handed_to_me(self, seat: Seat) -> Handed | None:
        if self._left:
            return None
        if self._handed is not None:
            seat.settle(self._handed)
        taken = seat.take()
        handed = taken[0] if taken else None
        self._handed = handed.number if self._auto and handed is not None else None
        return handed

    def _ring(self) -> None:
        if self._rang is not None and self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._rang.set)
            except RuntimeError:
                return  # the loop is closed, so nobody waits
        else:
            self._bell.notify()


class Shared(QueuedReceiver):
    """The receiver of a group that acknowledges: its members are consumers with a seat at one desk."""

    def __init__(
        self,
        channel: Channel[Any],
        name: str,
        selection: Selection,
        *,
        open_desk: Callable[[str, Lane, Sequence[Item]], HostDesk],
        terms: Terms,
    ) -> None:
        super().__init__(channel, name, selection)
        self.terms = terms
        self.lane = channel.new_lane(name, selection, self._ready)
        self.lane.watch = self._watch
        self.desk = open_desk(name, self.lane, ())

    @property
    def failure(self) -> HeliographError | None:
        """Why its lane could not read on; it is closed then."""
        return self.lane.failure if isinstance(self.lane, JournalLane) else None

    def close(self) -> None:
        try:
            self.desk.close()
        finally:
            super().close()

    def shut(self, reason: str) -> None:
        super().shut(reason)
        self._ready(self.lane)

    def _ready(self, lane: Lane) -> None:
        self.desk.ready(lane)

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
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from heliograph.channel.feed import JournalLane
from heliograph.channel.ledger import LaneCounts
from heliograph.channel.observer import watched, watched_async
from heliograph.errors import NotPossible
from heliograph.event import Event, Header
from heliograph.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from heliograph.channel.core import Channel
    from heliograph.channel.dispatch import DispatchPool
    from heliograph.channel.lane import Item, Lane
    from heliograph.channel.observer import Watch
    from heliograph.channel.selection import Selection
    from heliograph.channel.store import Cursor
    from heliograph.errors import HistoryDamaged, HistoryGone

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)


def takes_header(callback: Callable[..., object]) -> bool:
    """Whether a callback wants (event, header) rather than (event)."""
    try:
        parameters = inspect.signature(callback).parameters.values()
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
        pool: DispatchPool,
    ) -> None:
        super().__init__(channel, name, selection)
        self.callback = callback
        self._call = callback
        self._with_header = takes_header(callback)
        self._pool = pool
        self.lane = channel.new_lane(name, selection, self._schedule)
        if self._watch is not None:
            self._call = watched(self._watch, callback, with_header=self._with_header)
            self._with_header = True
            self.lane.watch = self._watch

    def _schedule(self, lane: Lane) -> None:
        self._pool.schedule(self, lane.highest())

    def run_batch(self) -> bool:
        """Deliver one batch, for the pool."""
        lane, callback, with_header = self.lane, self._call, self._with_header
        items = lane.take()
        for event, header, _ in items:
            if lane.closed:
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
            lane.settle()
        return bool(items)

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
                if lane.closed:
                    break
                try:
                    await (self._call(event, header) if self._with_header else self._call(event))
                except Exception as error:  # noqa: BLE001 - as in Subscription
                    lane.failed_one()
                    self._channel.report(self.name, header, error)
                else:
                    lane.done += 1
            lane.settle()


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


class Delivery(Generic[T]):
    """An event with its header."""

    __slots__ = ("event", "header")

    def __init__(self, event: T, header: Header) -> None:
        self.event = event
        self.header = header

    def __repr__(self) -> str:
        return f"Delivery({self.event!r}, id={self.header.id})"


class Consumer(QueuedReceiver, Generic[T]):
    """Asked for events by threads or by one task: the first use binds the way.

    An event counts as delivered when it has been handed out. A durable one acknowledges an event when the
    next is asked for, and makes that durable batch by batch, when it runs dry, and when it is closed: after a
    crash at most the last batch comes again.
    """

    def __init__(
        self,
        channel: Channel[Any],
        name: str,
        selection: Selection,
        *,
        ends: bool = False,
        cursor: Cursor | None = None,
        raises_gaps: bool = False,
    ) -> None:
        super().__init__(channel, name, selection)
        self._cursor = cursor
        self._handed: int | None = None
        self._acked: int | None = None
        self._clock = channel.ports.clock
        self._bell = channel.ports.tasks.signal(f"events for {name}")
        self._hand = channel.ports.tasks.lock(f"hand of {name}")
        self._batch: Iterator[Item] = iter(())
        self._way: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rang: asyncio.Event | None = None
        self._ends = ends
        self.lane = channel.new_lane(name, selection, self._ring)
        self.lane.watch = self._watch
        if isinstance(self.lane, JournalLane):
            self.lane.raises_gaps = raises_gaps

    @property
    def gaps(self) -> tuple[HistoryGone | HistoryDamaged, ...]:
        """What it could not be given: retention was faster, or a file is damaged. `ranges` says which."""
        return tuple(self.lane.gaps) if isinstance(self.lane, JournalLane) else ()

    def pull(self, timeout: float | None = None) -> T | None:
        """The next event, or None when none came in time or the consumer is closed."""
        item = self._next(timeout)
        return None if item is None else item[0]  # type: ignore[return-value]  # lanes hold what the channel carries

    def read(self, max: int = 100, timeout: float | None = None) -> list[T]:  # noqa: A002 - as the face says
        """Up to `max` events: waits for the first, then takes what is there."""
        first = self.pull(timeout)
        events: list[T] = [] if first is None else [first]
        while events and len(events) < max:
            event = self.pull(0)
            if event is None:
                break
            events.append(event)
        return events

    def deliveries(self, timeout: float | None = None) -> Iterator[Delivery[Any]]:
        """Events with their headers; ends when the consumer is closed, or when none came in `timeout`."""
        while (item := self._next(timeout)) is not None:
            yield Delivery(item[0], item[1])

    def __iter__(self) -> Iterator[T]:
        while (event := self.pull()) is not None:
            yield event

    async def __aiter__(self) -> AsyncIterator[T]:
        self._bind("async")
        self._loop = asyncio.get_running_loop()
        self._rang = asyncio.Event()
        while True:
            self._rang.clear()
            item = self._take_one()
            if item is not None:
                yield item[0]  # type: ignore[misc]  # as in pull
            elif self.lane.closed or self._ended():
                return
            else:
                await self._rang.wait()

    def shut(self, reason: str) -> None:
        super().shut(reason)
        with self._hand:
            self._batch = iter(())
            self.lane.settle()
            if self._cursor is not None:
                self._commit()
                self._cursor.close()
        self._ring(self.lane)

    def _bind(self, way: str) -> None:
        if self._way not in (None, way):
            raise NotPossible(self.name, f"is used the {self._way} way already; open a second consumer")
        self._way = way

    def _next(self, timeout: float | None) -> Item | None:
        self._bind("blocking")
        item = self._take_one()
        if item is not None or timeout == 0:
            return item
        deadline = None if timeout is None else self._clock.monotonic_ns() + round(timeout * 1e9)
        while not self.lane.closed and not self._ended():
            left = None if deadline is None else seconds_until(self._clock, deadline)
            rang = self._bell.wait(left)
            item = self._take_one()
            if item is not None or not rang:
                return item
        if isinstance(self.lane, JournalLane) and self.lane.failure is not None:
            raise self.lane.failure
        return None

    def _ended(self) -> bool:
        """Whether all up to `until` has been handed out. Without a journal, "now" was when it was opened."""
        return self._ends and (not isinstance(self.lane, JournalLane) or self.lane.ended)

    def _take_one(self) -> Item | None:
        """The next event without waiting. It counts as delivered from here on."""
        with self._hand:
            self._acked = self._handed
            item = next(self._batch, None)
            if item is None:
                self.lane.settle()
                if self._cursor is not None:
                    self._commit()
                self._batch = iter(self.lane.take())
                item = next(self._batch, None)
            if item is not None:
                self.lane.done += 1
                self._handed = item[1].offset
                if self._watch is not None:
                    self._watch(item[1], "delivered")
            elif self._cursor is not None:
                self._commit_read()
            return item

    def _commit(self) -> None:
        """Make durable what has been acknowledged."""
        assert self._cursor is not None
        if self._acked is not None:
            self._cursor.commit(self._acked + 1)
            self._acked = self._handed = None

    def _commit_read(self) -> None:
        """Nothing waits: also what did not match needs not be read again."""
        assert self._cursor is not None
        assert isinstance(self.lane, JournalLane)
        read_to = self.lane.read_to
        if read_to is not None and read_to != self._cursor.position:
            self._cursor.commit(read_to)

    def _ring(self, _: Lane) -> None:
        if self._rang is not None and self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._rang.set)
            except RuntimeError:
                return  # the loop is closed, so nobody waits
        else:
            self._bell.notify()

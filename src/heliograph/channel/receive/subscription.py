"""Subscriptions, which call a function with each event, and what all receivers share.

    Subscription        queued: workers of the pool call it, isolated from suppliers and from each other
    AsyncSubscription   the same for `async def`, awaited one after the other on an event loop
    InlineSubscription  called in the pushing thread: fastest, not isolated

They and the consumers, which are asked (`heliograph.channel.receive.consumer`), are `Receiver`s: they have a
name, a condition and counts, and can be closed from anywhere, also from inside their own callback.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Unpack

from heliograph.channel.dispatch.station_pools import SUSPEND_AFTER
from heliograph.channel.ledger import QueueCounts
from heliograph.channel.observer import watched, watched_async
from heliograph.errors import CallbackStuck, CallbackSuspended, Closed, NotPossible
from heliograph.model.event import Event, Header

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from heliograph.channel.dispatch.reader_handover import Reader
    from heliograph.channel.dispatch.station_pools import Pool
    from heliograph.channel.observer import Watch
    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.channel.receive.host import ReceiverHost
    from heliograph.channel.selection import Selection, Wanted
    from heliograph.errors import HeliographError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)
A = TypeVar("A")

CALLS: Final = 16
"""Calls of one callback between two looks at the clock, by a thread that reads a link."""


def _signature(callback: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(callback)
    except SystemError:
        # Signatures of builtins are parsed, and CPython 3.11 now and then miscounts the depth of a parse
        # while other threads run (python/cpython#106905). The next parse counts anew.
        return inspect.signature(callback)


def takes_header(callback: Callable[..., object], given: Literal["event", "match"] = "event") -> bool:
    """Whether a callback wants (event, header) rather than (event); TypeError says what it is called with."""
    try:
        parameters = _signature(callback).parameters.values()
    except (TypeError, ValueError):
        return False  # a builtin that does not tell: it gets the event
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if len(required) > 2 or (not positional and not any(p.kind is p.VAR_POSITIONAL for p in parameters)):
        header = ", or with the event and its header: `lambda event, header: ...`" if given == "event" else ""
        raise TypeError(f"{callback!r} is called with the {given}; write `lambda {given}: ...`{header}")
    return len(required) == 2


class Receiver(ABC):
    """What the channel knows of anything that receives."""

    name: str
    selection: Selection
    group: str | None
    points: tuple[Selection, Selection] | None = None
    """What its admin and what it itself asks for, where it has an admin; `selection` is both."""
    resync: Any = None
    """How it heals, where it was opened with `resync=`: `resync.stats()`, and by state `resync.state()`."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._channel.name!r}>"

    def __init__(self, channel: ReceiverHost, name: str, selection: Selection) -> None:
        self.name = name
        self.selection = selection
        self.group = selection.group
        self._channel = channel
        self._watch: Watch | None = None if channel.observer is None else channel.observer.watch(name)

    @property
    def known_as(self) -> Receiver:
        """What stands in the channel's routes for it."""
        return self

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
    def counts(self) -> QueueCounts:
        """What became of the events that matched."""

    @property
    def is_final(self) -> bool:
        """Whether its counts stay as they are, once it is closed and nothing is pending."""
        return True

    @abstractmethod
    def shut(self, reason: str) -> None:
        """Called by the channel, once."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class QueuedReceiver(Receiver):
    """A receiver that has a queue."""

    queue: EventQueue

    def counts(self) -> QueueCounts:
        return self.queue.counts()

    def wait_confirmed(self, timeout: float) -> bool:  # noqa: ARG002 - one of this station has nothing to say
        """Wait until it is known what became of all that was taken from its queue; False when it is not."""
        return True

    def shut(self, reason: str) -> None:
        self.queue.close(reason)

    def suspend_if_sick(self, error: Callable[[str, float], HeliographError], seconds: float) -> None:
        """If its queue is full and it took nothing for long, have what comes dropped until it takes again."""
        if seconds >= SUSPEND_AFTER and self.queue.suspend():
            report = partial(self._channel.report, self.name, None, error(self.name, seconds))
            # In a task of its own: `on_error` may hang as well.
            self._channel.ports.tasks.spawn_soon(f"reports {self.name}", report)


class Subscription(QueuedReceiver):
    """A callback that the workers of the pool call."""

    def __init__(
        self,
        channel: ReceiverHost,
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
        self._strict = channel.pools.strict
        # Whoever runs it next hands it to `_pool`, which may be another by now.
        self._is_moving = False
        # Pools whose workers may have it in hand, or be about to: left when the next batch is done.
        self._leaving: deque[Pool] = deque()
        self.queue = channel.new_queue(name, selection, self._schedule)
        self.queue.on_higher = partial(pool.raise_to, self)
        if self._watch is not None:
            self._call = watched(self._watch, callback, with_header=self._with_header)
            self._with_header = True
            self.queue.watch = self._watch
        elif self.queue.is_plain:
            self.queue.caller = self

    def _schedule(self, queue: EventQueue) -> None:
        self._pool.schedule(self, queue.highest())

    def use(self, pool: Pool) -> None:
        """Be called by the workers of another pool; one of the old that is at it ends its batch."""
        before, self._pool = self._pool, pool
        self.queue.on_higher = partial(pool.raise_to, self)
        if before.withdraw(self):
            pool.schedule(self, self.queue.highest())
            self._channel.pools.leave(before)
        elif self.queue.wait_empty(0):  # no worker has it
            self._channel.pools.leave(before)
        else:
            self._is_moving = True
            self._leaving.append(before)

    def shut(self, reason: str) -> None:
        super().shut(reason)
        self._leaving.append(self._pool)
        if self.queue.wait_empty(0):
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
        queue, callback, with_header = self.queue, self._call, self._with_header
        items = queue.take()
        for event, header, deadline in items:
            if queue.halted:
                break
            if deadline and queue.is_over(header, deadline):
                continue
            try:
                if with_header:
                    callback(event, header)
                else:
                    callback(event)
            except BaseException as error:  # noqa: BLE001 - whatever a callback raises stays with it
                queue.failed_one()
                self._channel.report(self.name, header, error)
            else:
                queue.done += 1
        if items:
            queue.settle()
            if self._is_moving:
                self._is_moving = False
                queue.announced = False
                self._schedule(queue)
                return False
        return bool(items)

    # For threads that read links

    def is_free(self) -> bool:
        strict = self._strict
        return not (self._pool is not strict or self._leaving or self._is_moving) and strict.is_free_for(self)

    def call_one(
        self, event: Any, header_of: Callable[[Any], Header], said: Any, reader: Reader, now: int
    ) -> None:
        # As `call_many`, with all of its calls written out: for one event somebody waits.
        worker, queue, pool = reader.worker, self.queue, self._strict
        reader.is_taking = False
        worker.running = self
        worker.marks.append(now)
        if pool.is_watch_asleep:
            pool.wake_watch()
        try:
            if self._with_header:
                self._call(event, header_of(said))
            else:
                self._call(event)
        except BaseException as error:  # noqa: BLE001 - as in `_run_batch`
            queue.failed_one()
            self._channel.report(self.name, header_of(said), error)
        else:
            queue.done += 1
        is_quiet = queue.settle_direct()
        if self._leaving or not is_quiet:
            self._rest(is_quiet=is_quiet)
        worker.running = None
        try:
            worker.marks.pop()
        except IndexError:
            raise pool.handed_over(worker) from None
        reader.is_taking = True

    def call_many(self, events: list[Any], header_of: Callable[[int], Header], reader: Reader) -> None:
        queue, callback, worker, begun = self.queue, self._call, reader.worker, reader.now()
        left, is_halted = iter(events), queue.halted
        self._strict.begin_run(reader, self, begun)
        while not is_halted and length_hint(left):
            for event in islice(left, CALLS):
                try:
                    if self._with_header:
                        callback(event, header_of(len(events) - length_hint(left) - 1))
                    else:
                        callback(event)
                except BaseException as error:  # noqa: BLE001 - as in `_run_batch`
                    queue.failed_one()
                    self._channel.report(self.name, header_of(len(events) - length_hint(left) - 1), error)
                else:
                    queue.done += 1
                if queue.halted:
                    is_halted = True
                    break
            reader.renew_mark(worker, begun)
        if rest := length_hint(left):
            first = len(events) - rest
            queue.settle([(events[n], header_of(n), 0) for n in range(first, len(events))])
        self._rest(is_quiet=queue.settle_direct())
        self._strict.end_run(worker)
        reader.is_taking = True

    def _rest(self, *, is_quiet: bool) -> None:
        """What was in hand without a queue is delivered; workers have what came meanwhile."""
        if not is_quiet:
            self._is_moving = False
            self.queue.announced = False
            self._schedule(self.queue)
        elif self._leaving:
            self._is_moving = False
            self._leave(self._left_before())

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
        return self.queue.progress

    def suspended(self, seconds: float) -> None:
        self._tell(CallbackSuspended(self.name, seconds))

    def stuck(self, seconds: float) -> None:
        """The callback does not come back: say so and detach, so that nothing queues up behind it."""
        self._channel.drop_receiver(self, reason="stuck")
        self._tell(CallbackStuck(self.name, seconds))

    def _tell(self, error: CallbackStuck | CallbackSuspended) -> None:
        # In a task of its own: who watches has others to watch, and `on_error` may hang as well.
        self._channel.ports.tasks.spawn_soon(
            f"reports {self.name}", partial(self._channel.report, self.name, None, error)
        )


class AsyncSubscription(QueuedReceiver):
    """An `async def` callback, awaited one event after the other on one loop."""

    def __init__(
        self,
        channel: ReceiverHost,
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
        self.queue = channel.new_queue(name, selection, self._schedule)
        self.queue.on_stalled = lambda seconds, _: self.suspend_if_sick(CallbackSuspended, seconds)
        if self._watch is not None:
            self._call = watched_async(self._watch, callback, with_header=self._with_header)
            self._with_header = True
            self.queue.watch = self._watch

    def _schedule(self, _: EventQueue) -> None:
        try:
            self._loop.call_soon_threadsafe(self._start)
        except RuntimeError:  # the loop is closed: nobody will ever await this callback again
            self.queue.close()

    def _start(self) -> None:
        if self._task is not None and not self._task.done():
            return  # whoever announced it was interrupted, and has announced it again
        # The loop keeps only weak references to tasks.
        self._task = self._loop.create_task(self._drain(), name=self.name)

    async def _drain(self) -> None:
        queue = self.queue
        while items := queue.take():
            for event, header, deadline in items:
                if queue.halted:
                    break
                if deadline and queue.is_over(header, deadline):
                    continue
                try:
                    await (self._call(event, header) if self._with_header else self._call(event))
                except Exception as error:  # noqa: BLE001 - as in Subscription
                    queue.failed_one()
                    self._channel.report(self.name, header, error)
                else:
                    queue.done += 1
            queue.settle()


class InlineSubscription(Receiver):
    """A callback in the pushing thread. Its counts are handed in by the suppliers."""

    def __init__(
        self,
        channel: ReceiverHost,
        name: str,
        selection: Selection,
        callback: Callable[..., object],
        *,
        views: bool = False,
    ) -> None:
        super().__init__(channel, name, selection)
        self.views = views
        """Whether arrays may be views of memory that is another's when it has returned."""
        if inspect.iscoroutinefunction(callback):
            raise NotPossible(name, "an async def cannot run inside push; leave out inline=True")
        self.callback = callback
        self.call = callback
        """What the generated function calls."""
        self.with_header = takes_header(callback)
        if self._watch is not None:
            self.call = watched(self._watch, callback, with_header=self.with_header)
            self.with_header = True
        self._counts = QueueCounts()

    def add(self, counts: QueueCounts) -> None:
        """Under the channel's lock."""
        self._counts += counts

    def counts(self) -> QueueCounts:
        return self._counts

    def shut(self, reason: str) -> None:
        """Nothing waits for an inline callback."""

    def is_late(self, header: Header) -> None:
        """It is not called: the event's lifespan ended on its way from another station."""
        if self._watch is not None:
            self._watch(header, "expired")

    def raised(self, header: Header, error: BaseException) -> None:
        self._channel.report(self.name, header, error)

"""A subscription that acknowledges: a function of a group's member, or of a durable consumer.

The function acknowledges an event by returning. If it raises, the event is redelivered after a delay, to any
member of the group, until it was handed out `max_deliveries` times.

An `async def` is awaited on an event loop. Any other function is called by the threads of a pool that all
such functions of a station share (`Pools.acknowledging`). A membership wakes its subscription when there may
be something to take; the subscription is then scheduled once, a thread of the pool takes and calls until
nothing is left or the turn is over, and gives the thread back. A timer wakes it for redeliveries and leases.
So a function at rest has no thread, only one thread calls it at a time, and the pool adds threads while calls
block.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from heliograph.channel.ledger import QueueCounts
from heliograph.channel.receive.subscription import Receiver, takes_header
from heliograph.errors import CallbackStuck, Closed, HeliographError
from heliograph.qos.policies import LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.channel.receive.consumer import Consumer
    from heliograph.channel.receive.delivery import Delivery
    from heliograph.channel.receive.host import ReceiverHost
    from heliograph.channel.selection import Wanted
    from heliograph.runtime.timers import Timer

IN_HAND_LIMIT: Final = 5.0
"""Seconds that closing waits for the callback that is running."""
FIRST_DELAY: Final = 0.1
"""Seconds after which an event is redelivered that a callback raised for; twice as many each time."""
LONGEST_DELAY: Final = 30.0
LOOK_AGAIN: Final = 0.005
"""Seconds between two looks at whether a durable function has acknowledged what it was given."""
TURN_NS: Final = 5_000_000
"""For how long a thread of the pool calls one function before it looks whether others wait."""

_calling: ContextVar[AckingSubscription | None] = ContextVar("calling", default=None)
"""The subscription whose function this thread or task runs."""


def durable_function_here(channel: object) -> str | None:
    """The durable function of a channel that this thread is inside of: nobody else takes its events."""
    one = _calling.get()
    return one.name if one is not None and one.group is None and one.is_of(channel) else None


class PoolEntry:
    """What the pool knows of a subscription without a queue of its own: see
    `heliograph.channel.dispatch.pool.ReadyQueue`."""

    suspended = False

    def __init__(self, priority: int) -> None:
        self.level = priority
        self.announced = False
        self.halted = False

    def highest(self) -> int:
        return self.level

    def head(self) -> None:
        """Nothing is known of its events before they are taken."""

    def suspend(self) -> bool:
        """Nobody waits for room: what is not taken stays with the coordinator."""
        return False

    def resume(self) -> None:
        """It is never suspended."""


class AckingSubscription(Receiver):
    """See the module."""

    def __init__(
        self,
        channel: ReceiverHost,
        member: Consumer[Any],
        callback: Callable[..., Any],
        loop: asyncio.AbstractEventLoop | None,
        on_end: Callable[[AckingSubscription], object],
    ) -> None:
        super().__init__(channel, member.name, member.selection)
        self.callback = callback
        self._with_header = takes_header(callback)
        self._member = member
        self._loop = loop
        self._on_end = on_end
        tasks = channel.ports.tasks
        self._lock = tasks.lock(f"calls of {member.name}")
        self._ended = tasks.event(f"end of {member.name}")
        self._is_busy = self._is_closing = False
        self._asks_on = True
        """Whether to ask for the next event when a call is over."""
        self._delivered = self._failed = 0
        self.queue = PoolEntry(member.selection.priority or LOWEST_PRIORITY)
        self.progress = 0
        """Goes up when a call begins and when it returns: for the watch of the pool."""
        self._is_running = False
        """Whether a thread of the pool is taking or calling."""
        self._is_woken = False
        """Whether there may be something to take that came since a thread began to look."""
        self._timer: Timer | None = None
        self.left = 0
        """Of a durable function, when it was stopped: how many events it had not dealt with, or not read."""
        self._task: asyncio.Task[None] | None = None

    def wait_settled(self, timeout: float | None, *, but_put_off: bool = False) -> bool:
        """Wait until a durable function has been given all that waits; False when the time ran out.

        Args:
            timeout: seconds.
            but_put_off: not for what it raised for and that comes again after a while, nor for itself.
        """
        if but_put_off and self._is_called_here():
            return False
        clock, tasks = self._channel.ports.clock, self._channel.ports.tasks
        deadline = None if timeout is None else clock.monotonic_ns() + round(timeout * 1e9)
        if not self._member.queue.wait_empty(timeout):
            return False
        while not self._is_closing and self._member.counts().pending > (
            self._member.put_off() if but_put_off else 0
        ):
            if deadline is not None and clock.monotonic_ns() > deadline:
                return False
            tasks.sleep(LOOK_AGAIN)
        return True

    def is_of(self, channel: object) -> bool:
        return self._channel is channel

    @property
    def known_as(self) -> Receiver:
        return self._member.known_as

    def change(self, **wanted: Unpack[Wanted]) -> None:
        self._member.change(**wanted)

    def begin(self) -> None:
        if self._loop is None:
            self._channel.pools.prepare_acknowledging()
            self._member.wake_by(self._wake)
            self._wake()
        else:
            self._loop.call_soon_threadsafe(self._start)

    def counts(self) -> QueueCounts:
        """What became of the calls here; the group's own counts are in the station that hands out."""
        return QueueCounts(self._delivered, self._failed)

    def close(self) -> None:
        """Be called no more. Waits for the call that is running; from inside of it, it is the last."""
        self.stop(IN_HAND_LIMIT)

    def finish(self) -> bool:
        """Begin no other call; whether one is running."""
        with self._lock:
            self._is_closing = True
            return self._is_busy

    def stop(self, seconds: float) -> bool:
        """As `close`, waiting so long at most; whether the call that was running has returned.

        If not, its event comes again, to another member.
        """
        has_returned = True
        if self.finish():
            if self._is_called_here():
                self._note_left()
                return True  # it ends when the call does
            has_returned = self._ended.wait(seconds)
        self._end()
        return has_returned

    def shut(self, reason: str) -> None:
        """It is no receiver of the channel: its group is."""

    # In threads of the pool

    def _wake(self) -> None:
        """Have a thread look for what can be taken. From any thread; an exception may come at any instant."""
        self._is_woken = True
        if self._is_running or self.queue.announced:
            return  # who is at it looks again, or has not looked yet
        try:
            self._channel.pools.run_acknowledging(self)
        except BaseException:
            self._channel.pools.run_acknowledging(self)
            raise

    def run_batch(self) -> bool:
        """Take and call for a turn; whether to come back for more. For the pool."""
        self.queue.announced = False
        with self._lock:
            if self._is_running:
                self._is_woken = True
                return False  # scheduled twice: who is at it looks again
            self._is_running, self._is_woken = True, False
        token = _calling.set(self)
        again = False
        try:
            again = self._run_turn()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end a thread of others
            self._channel.report(self.name, None, error)
            self._end()
        finally:
            _calling.reset(token)
            with self._lock:
                self._is_running = False
        return again or (self._is_woken and not self._is_closing)

    def _run_turn(self) -> bool:
        """Whether more can be taken."""
        clock = self._channel.ports.clock
        until = clock.monotonic_ns() + TURN_NS
        self.queue.halted = False
        self._cancel_timer()
        while not self._is_closing:
            try:
                delivery = self._member.take_delivery()
                if delivery is None:
                    if self._member.is_over():
                        break
                    return self._rest(self._member.wait_seconds())
                if self._enter(delivery):
                    with self._call(delivery):
                        self.callback(*self._arguments(delivery))
            except HeliographError as error:
                if not self._goes_on_after(error):
                    break
                return self._rest(FIRST_DELAY)
            if self.queue.halted or clock.monotonic_ns() > until:
                return True
        self._end()
        return False

    def _rest(self, seconds: float | None) -> bool:
        """Until it is woken, or after so many seconds; whether that is now."""
        if seconds is None or self._is_closing:
            return False
        if seconds <= 0:
            return True
        due = self._channel.ports.clock.monotonic_ns() + round(seconds * 1e9)
        with suppress(Closed):  # the station is being closed, and waits for nothing that comes later
            self._timer = self._channel.timers.at(due, self._wake, owed=True)
        return False

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def suspended(self, seconds: float) -> None:
        """Its entry is never suspended."""

    def stuck(self, seconds: float) -> None:
        """The call does not come back. While it takes, it waits for a disk or a keeper, and goes on then."""
        with self._lock:
            is_called = self._is_busy and not self._is_closing
        if is_called:
            self._channel.ports.tasks.spawn_soon(f"reports {self.name}", partial(self._give_up, seconds))

    # On a loop

    def _start(self) -> None:
        assert self._loop is not None
        # The loop keeps only weak references to tasks.
        self._task = self._loop.create_task(self._run_async(), name=self.name)

    async def _run_async(self) -> None:
        _calling.set(self)
        try:
            while not self._is_closing:
                try:
                    async for delivery in self._member.deliveries():
                        if not self._enter(delivery):
                            break
                        with self._call(delivery):
                            await self.callback(*self._arguments(delivery))
                        if not self._asks_on:
                            break
                    else:
                        break
                except HeliographError as error:
                    if not self._goes_on_after(error):
                        break
                    await asyncio.sleep(FIRST_DELAY)
        finally:
            self._end()

    # Both

    def _arguments(self, delivery: Delivery[Any]) -> tuple[Any, ...]:
        return (delivery.event, delivery.header) if self._with_header else (delivery.event,)

    def _enter(self, delivery: Delivery[Any]) -> bool:
        """Whether to call; what was taken when it was closed goes to another member."""
        with self._lock:
            self._is_busy = not self._is_closing
            self.progress += 1
        if not self._is_busy:
            delivery.nak()
        return self._is_busy

    def _give_up(self, seconds: float) -> None:
        """The call does not come back: detach it, so that its events are free for others, and report it."""
        try:
            self.stop(0.0)
        finally:
            self._channel.report(self.name, None, CallbackStuck(self.name, seconds, comes_again=True))

    @contextmanager
    def _call(self, delivery: Delivery[Any]) -> Iterator[None]:
        """Around a call. Whatever it raises stays with it, but for what ends a task on a loop.

        That ends this member too, and who leaves gives back what it had in hand.
        """
        has_returned = False
        try:
            yield
            has_returned = True
        except BaseException as error:
            if self._loop is not None and not isinstance(error, Exception):
                raise
            self._raised(delivery, error)
        finally:
            with self._lock:
                self._is_busy, self._asks_on = False, not self._is_closing
                self.progress += 1
        if has_returned:
            self._delivered += 1
            if not self._asks_on:
                delivery.ack()  # as asking for the next would

    def _raised(self, delivery: Delivery[Any], error: BaseException) -> None:
        self._failed += 1
        self._channel.report(self.name, delivery.header, error)
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(delivery.attempt - 1, 16))
        delivery.nak(delay, f"{type(error).__name__}: {error}")

    def _goes_on_after(self, error: HeliographError) -> bool:
        """A disk or keeper that cannot keep what is acknowledged, for now or for good."""
        if error is not self._member.queue.failed_with:  # that was told when its queue could not read on
            self._channel.report(self.name, None, error)
        return error.retriable

    def _is_called_here(self) -> bool:
        """Whether this thread is inside the call, or runs the loop that it needs."""
        if _calling.get() is self:
            return True
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _note_left(self) -> None:
        with self._lock:
            if self.group is None and not self._member.queue.closed:
                self.left = self._member.counts().pending + self._member.queue.unread()

    def _end(self) -> None:
        self._is_closing = True
        self._note_left()
        self._cancel_timer()
        try:
            self._member.close()
        finally:
            self._ended.set()
            self._on_end(self)

"""Opens subscriptions: queued, inline, async, and in groups that acknowledge.

    inline      in the pushing thread
    queued      by the workers of the station's pool
    awaited     `async def`, on an event loop
    in a group  that acknowledges: by a member of the group, in a task of its own or on an event loop

The last is what `group=` means on a persistent channel, where `push` waits for consumers, and wherever it is
said how to acknowledge: the function acknowledges an event by returning. If it raises, the event comes again,
to any member and after a while, until it was handed out `max_deliveries` times.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from heliograph.channel.ledger import LaneCounts
from heliograph.channel.receive.consumer_factory import ConsumerRequest
from heliograph.channel.receive.options import QUEUE_OPTIONS
from heliograph.channel.receive.subscription import (
    AsyncSubscription,
    InlineSubscription,
    Receiver,
    Subscription,
    takes_header,
)
from heliograph.errors import HeliographError, NotPossible
from heliograph.model.event import Event
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.channel.channel import Channel
    from heliograph.channel.context import ChannelContext
    from heliograph.channel.history.positions import Point
    from heliograph.channel.receive.ack_protocol import Acking
    from heliograph.channel.receive.consumer import Consumer
    from heliograph.channel.receive.consumer_factory import ConsumerFactory
    from heliograph.channel.receive.delivery import Delivery
    from heliograph.channel.receive.options import Selection
    from heliograph.channel.registry import Registry

T = TypeVar("T", bound=Event)
Function = TypeVar("Function", bound="Callable[..., object]")

IN_HAND_LIMIT: Final = 5.0
"""Seconds that closing waits for the callback that is running."""
FIRST_DELAY: Final = 0.1
"""Seconds after which an event comes again that a callback raised for; twice as many each time."""
LONGEST_DELAY: Final = 30.0

_calling: ContextVar[GroupSubscription | None] = ContextVar("calling", default=None)
"""The subscription whose function this thread or task runs."""


DECORATES: Final[Any] = object()
"""In place of a function: one follows."""


def decorator(subscribe: Callable[..., object], **options: Any) -> Callable[[Function], Function]:
    """Subscribes the function that follows, and leaves it as it is."""

    def decorate(callback: Function) -> Function:
        subscribe(callback, **options)
        return callback

    return decorate


class SubscriptionFactory(Generic[T]):
    """Opens the subscriptions of one channel."""

    def __init__(
        self, channel: Channel[T], members: Registry[T], asking: ConsumerFactory[T], services: ChannelContext
    ) -> None:
        self._channel = channel
        self._members = members
        self._asking = asking
        self._services = services
        self._in_groups: set[GroupSubscription] = set()

    def open(
        self,
        callback: Callable[..., Any],
        selection: Selection,
        acking: Acking,
        *,
        inline: bool | None,
        views: bool,
        name: str | None,
        start: Point,
    ) -> Receiver:
        own_name: str = getattr(callback, "__name__", type(callback).__name__)
        if inline is None:
            threads = self._channel.qos.threads
            inline = threads.kind == "inline" and not inspect.iscoroutinefunction(callback)
        if inline:
            self._check_inline(selection)
        elif views:
            raise NotPossible(
                self._channel.name, "views=True holds while push runs: give inline=True as well"
            )
        if self._asking.acknowledges(selection, acking):
            return self._open_acknowledging(callback, name or own_name, selection, acking, start)
        if acking and name is not None and selection.group is None and self._channel.qos.journalled:
            return self._open_acknowledging(callback, name, selection, acking, start)  # durable
        if acking:
            raise NotPossible(
                self._channel.name,
                f"{min(acking)}= is for functions that acknowledge: give group= as well, or name= on a "
                "persistent channel",
            )
        full_name = self._members.claim_name(name or own_name)
        receiver: Receiver
        if inline:
            receiver = InlineSubscription(self._channel, full_name, selection, callback, views=views)
        elif inspect.iscoroutinefunction(callback):
            receiver = AsyncSubscription(self._channel, full_name, selection, callback, self._loop())
        else:
            return self._join_workers(full_name, selection, callback, start)
        self._channel.join(receiver, start)
        return receiver

    def _join_workers(
        self, name: str, selection: Selection, callback: Callable[..., object], start: Point
    ) -> Subscription:
        channel = self._channel
        order = channel.qos.dispatch if selection.dispatch is None else selection.dispatch
        pool = channel.pools.of(order, channel.qos.threads)
        try:
            receiver = Subscription(channel, name, selection, callback, pool)
            channel.join(receiver, start)
        except BaseException:
            if name not in self._members.receivers:
                channel.pools.leave(pool)
            raise
        return receiver

    def unsubscribe(self, callback: Callable[..., object]) -> None:
        """Close every subscription of a function."""
        with self._members.lock:
            found = [r for r in self._members.receivers.values() if getattr(r, "callback", None) == callback]
        found += [one for one in tuple(self._in_groups) if one.callback == callback]
        if not found:
            raise NotPossible(self._channel.name, f"{callback!r} is not subscribed here")
        for receiver in found:
            receiver.close()

    def close(self, seconds: float) -> dict[str, int]:
        """Have no function of a group called any more; those whose call had not returned in time."""
        clock = self._channel.ports.clock
        deadline = clock.monotonic_ns() + round(seconds * 1e9)
        called = tuple(self._in_groups)
        for one in called:
            one.finish()
        return {one.name: 1 for one in called if not one.stop(seconds_until(clock, deadline))}

    def left(self, one: GroupSubscription) -> None:
        self._in_groups.discard(one)

    def _check_inline(self, selection: Selection) -> None:
        name = self._channel.name
        if self._channel.monitor is not None:
            raise NotPossible(name, "inline=True: where push waits for consumers they are queued")
        if self._channel.qos.journalled:
            raise NotPossible(name, "inline=True: on a persistent channel nobody runs inside push")
        if any(getattr(selection, option) is not None for option in QUEUE_OPTIONS):
            raise NotPossible(name, f"inline=True has no queue, so no {'=, '.join(QUEUE_OPTIONS)}=")

    def _open_acknowledging(
        self, callback: Callable[..., Any], name: str, selection: Selection, acking: Acking, start: Point
    ) -> Receiver:
        if acking.get("ack") == "manual":
            raise NotPossible(
                self._channel.name, "ack='manual': a function acknowledges by returning; use consumer()"
            )
        takes_header(callback)  # refused before anything is opened
        loop = self._loop() if inspect.iscoroutinefunction(callback) else None
        how = ConsumerRequest(name, start, ends=False, raises_gaps=False)
        member = self._asking.open(how, selection, acking)
        subscription = GroupSubscription(self._channel, member, callback, loop, self.left)
        self._in_groups.add(subscription)
        subscription.begin()
        return subscription

    def _loop(self) -> asyncio.AbstractEventLoop:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return self._services.loop()


class GroupSubscription(Receiver):
    """A function that acknowledges by returning: of a member of a group, or of a durable consumer."""

    def __init__(
        self,
        channel: Channel[Any],
        member: Consumer[Any],
        callback: Callable[..., Any],
        loop: asyncio.AbstractEventLoop | None,
        on_end: Callable[[GroupSubscription], object],
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
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._loop is None:
            self._channel.ports.tasks.spawn(f"calls of {self.name}", self._run)
        else:
            self._loop.call_soon_threadsafe(self._start)

    def counts(self) -> LaneCounts:
        """What became of the calls here; the group's own counts are in the station that hands out."""
        return LaneCounts(self._delivered, self._failed)

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
            if _calling.get() is self or self._is_on_loop():
                return True  # it ends when the call does
            has_returned = self._ended.wait(seconds)
        self._end()
        return has_returned

    def shut(self, reason: str) -> None:
        """It is no receiver of the channel: its group is."""

    # In a task

    def _run(self) -> None:
        _calling.set(self)
        try:
            while not self._is_closing:
                try:
                    for delivery in self._member.deliveries():
                        if not self._enter(delivery):
                            break
                        with self._call(delivery):
                            self.callback(*self._arguments(delivery))
                        if not self._asks_on:
                            break
                    else:
                        break
                except HeliographError as error:
                    if not self._goes_on_after(error):
                        break
                    self._channel.ports.tasks.sleep(FIRST_DELAY)
        finally:
            self._end()

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
        if not self._is_busy:
            delivery.nak()
        return self._is_busy

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
        if has_returned:
            self._delivered += 1
            if not self._asks_on:
                delivery.ack()  # as asking for the next would

    def _raised(self, delivery: Delivery[Any], error: BaseException) -> None:
        self._failed += 1
        self._channel.report(self.name, delivery.header, error)
        delivery.nak(min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(delivery.attempt - 1, 16)))

    def _goes_on_after(self, error: HeliographError) -> bool:
        """A disk or keeper that cannot keep what is acknowledged, for now or for good."""
        self._channel.report(self.name, None, error)
        return error.retriable

    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _end(self) -> None:
        self._is_closing = True
        try:
            self._member.close()
        finally:
            self._ended.set()
            self._on_end(self)

"""Opens subscriptions: queued, inline, async, and in groups that acknowledge.

    inline      in the pushing thread
    queued      by the workers of the station's pool
    awaited     `async def`, on an event loop
    acking      by a durable consumer or a member of a group, in a shared pool or on an event loop

The last (`heliograph.channel.receive.acking_subscription`) is what `name=` and `group=` mean on a persistent
channel, and `group=` where `push` waits for consumers and wherever it is said how to acknowledge.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from heliograph.channel.receive.acking_subscription import AckingSubscription
from heliograph.channel.receive.consumer_factory import ConsumerRequest
from heliograph.channel.receive.subscription import (
    AsyncSubscription,
    InlineSubscription,
    Receiver,
    Subscription,
    takes_header,
)
from heliograph.channel.selection import QUEUE_OPTIONS
from heliograph.errors import NoThreadLeft, NotPossible
from heliograph.model.event import Event
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.ack_protocol import Acking
    from heliograph.channel.receive.consumer_factory import ConsumerFactory
    from heliograph.channel.receive.host import ReceiverHost, ReceiverNames, ReceiverServices
    from heliograph.channel.selection import Point, Selection

T = TypeVar("T", bound=Event)
Function = TypeVar("Function", bound="Callable[..., object]")

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
        self,
        channel: ReceiverHost,
        members: ReceiverNames,
        asking: ConsumerFactory[T],
        services: ReceiverServices,
    ) -> None:
        self._channel = channel
        self._members = members
        self._asking = asking
        self._services = services
        self._acking: set[AckingSubscription] = set()

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
        is_durable = name is not None and selection.group is None and self._channel.qos.journalled
        if is_durable or self._asking.acknowledges(selection, acking):
            return self._open_acknowledging(callback, name or own_name, selection, acking, start)
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
        found += [one for one in tuple(self._acking) if one.callback == callback]
        if not found:
            raise NotPossible(self._channel.name, f"{callback!r} is not subscribed here")
        for receiver in found:
            receiver.close()

    def close(self, seconds: float) -> dict[str, int]:
        """Have no such function called any more, durable ones once they were given all that waits.

        Returns:
            Of durable functions, how many events they had not dealt with in time: those come again. Of
            functions of groups, those whose call had not returned.
        """
        clock = self._channel.ports.clock
        deadline = clock.monotonic_ns() + round(seconds * 1e9)
        called = tuple(self._acking)
        for one in called:
            if one.group is not None:
                one.finish()
        for one in called:
            if one.group is None:
                one.wait_settled(seconds_until(clock, deadline), but_put_off=True)
        left: dict[str, int] = {}
        for one in called:
            one.finish()
        for one in called:
            has_returned = one.stop(seconds_until(clock, deadline))
            if waiting := one.left if one.group is None else int(not has_returned):
                left[one.name] = waiting
        return left

    def raised(self) -> dict[str, int]:
        """How often each function that acknowledges has raised; what it raised for comes again."""
        return {one.name: one.counts().failed for one in tuple(self._acking)}

    def settle(self, timeout: float | None) -> bool:
        """See `Channel.settle`: durable functions are waited for; groups are not, they may be elsewhere."""
        clock = self._channel.ports.clock
        deadline = None if timeout is None else clock.monotonic_ns() + round(timeout * 1e9)
        return all(
            one.wait_settled(None if deadline is None else seconds_until(clock, deadline))
            for one in tuple(self._acking)
            if one.group is None
        )

    def left(self, one: AckingSubscription) -> None:
        self._acking.discard(one)

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
        subscription = AckingSubscription(self._channel, member, callback, loop, self.left)
        self._acking.add(subscription)
        try:
            subscription.begin()
        except NoThreadLeft:
            subscription.close()
            raise
        return subscription

    def _loop(self) -> asyncio.AbstractEventLoop:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return self._services.loop()

"""A consumer: events are pulled, read in batches, iterated (also by asyncio) or taken as deliveries."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, Never, Self, TypeVar

from heliograph.channel.receive.delivery import Deliveries, Delivery
from heliograph.channel.receive.subscription import QueuedReceiver
from heliograph.errors import ConsumerSuspended, NotPossible
from heliograph.model.event import Event
from heliograph.runtime.option_names import insist_on_known, names_options
from heliograph.runtime.ports import seconds_until
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from heliograph.channel.ack_protocol import (
        AckOptions,
        CoordinatorPort,
        GroupMembership,
        Handed,
        HostCoordinator,
    )
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.channel.receive.host import ReceiverHost
    from heliograph.channel.selection import Selection
    from heliograph.errors import HeliographError, HistoryDamaged, HistoryGone, HistoryReset

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)
A = TypeVar("A")


def leave_behind(consumer: QueuedReceiver, channel: ReceiverHost, seconds: float, is_refused: bool) -> None:
    """A push was refused since a consumer with a full queue is not asked: others get the next without it.

    As long as it is the only receiver nobody is held up but the supplier, who is told with each push.
    """
    if is_refused and len(channel.receivers()) > 1:
        consumer.suspend_if_sick(ConsumerSuspended, seconds)


class Consumer(QueuedReceiver, Generic[T]):
    """Asked for events by threads or by one task: the first use binds the way.

    Without a membership an event counts as delivered when it has been handed out, and that is all. With one,
    events are acknowledged: by a durable consumer, by one that shares its stream with a group, by one that is
    asked for deliveries, and by one whose `ack` is not "auto".

    Args:
        ends: whether it ends when all that there was has been handed out.
        raises_gaps: whether what it could not be given is raised where it would have been.
        open_desk: makes a coordinator that takes from this consumer's queue.
        terms: what was agreed about acknowledging; None: nothing, so it has none until it needs one.
        shared: the queue of a group, and its coordinator.
    """

    def __init__(
        self,
        channel: ReceiverHost,
        name: str,
        selection: Selection,
        *,
        ends: bool = False,
        raises_gaps: bool = False,
        open_desk: Callable[[str, EventQueue, Sequence[Item]], HostCoordinator],
        terms: AckOptions | None = None,
        shared: tuple[EventQueue, CoordinatorPort] | None = None,
    ) -> None:
        super().__init__(channel, name, selection)
        self._clock = channel.ports.clock
        self._bell = channel.ports.tasks.signal(f"events for {name}")
        self._wake: Callable[[], object] = self._bell.notify
        self._hand = channel.ports.tasks.lock(f"hand of {name}")
        self._batch: Sequence[Item] = ()
        self._next_in_batch = 0
        self._way: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rang: asyncio.Event | None = None
        self._ends = ends
        self._open_desk = open_desk
        self._auto = terms is None or terms.ack == "auto"
        self._manual = terms is not None and terms.ack == "manual"
        self._handed: int | None = None
        self._seat: GroupMembership | None = None
        self._desk: HostCoordinator | None = None
        self._left = False
        if shared is not None:
            self.queue, desk = shared
            self._seat = desk.sit(name, self._ring)
            return
        self.queue = channel.new_queue(name, selection, lambda _: self._ring())
        self.queue.on_stalled = partial(leave_behind, self, channel)
        self.queue.watch = self._watch
        if raises_gaps:
            self.queue.raise_gaps()
        if terms is not None:
            self._sit()

    @property
    def gaps(self) -> tuple[HistoryGone | HistoryDamaged | HistoryReset, ...]:
        """What it could not be given: retention was faster, a file is damaged, or a copy was put back.

        `ranges` says which.
        """
        return tuple(self.queue.history_gaps)

    def put_off(self) -> int:
        """How many events were refused and come again after a while."""
        return 0 if self._desk is None else self._desk.put_off()

    # For a subscription whose function is called with what this consumer takes

    def wake_by(self, wake: Callable[[], object]) -> None:
        """Have this called, instead of waking a thread that waits, when there may be something to take."""
        self._wake = wake

    def is_over(self) -> bool:
        """Whether nothing more comes; raises why, where a history could not be read on."""
        if not self._closed() and not self._ended():
            return False
        self._check_failure()
        return True

    def wait_seconds(self) -> float | None:
        """After how many seconds to take again, though it was not woken; None: never."""
        return None if self._seat is None else self._seat.wait_seconds()

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
        check_timeout(self.name, timeout)
        return Deliveries(
            partial(self._next, self.take_delivery, timeout),
            partial(self._arriving, self.take_delivery, timeout),
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
                    self._batch = ()
                    if self._desk is None:
                        self.queue.settle()
        elif not self._left:
            self._left = True
            self._seat.leave()
            self._ring()
            self._channel.asking.member_left(self)

    def shut(self, reason: str) -> None:
        super().shut(reason)
        self._ring()

    def _sit(self) -> None:
        """Have a coordinator between the queue and this consumer from here on."""
        self._desk = self._open_desk(self.name, self.queue, self._left_in_batch())
        self._seat = self._desk.sit(self.name, self._ring)

    def _bind(self, way: str) -> None:
        if self._way not in (None, way):
            raise NotPossible(self.name, f"is used the {self._way} way already; open a second consumer")
        self._way = way

    def _next(self, take: Callable[[], A | None], timeout: float | None) -> A | None:
        self._bind("blocking")
        if timeout is not None and timeout != 0:  # `read` asks with 0 for each event
            check_timeout(self.name, timeout)
        found = take()
        if found is not None or timeout == 0:
            return found
        return self._wait_for(take, timeout)

    def _wait_for(self, take: Callable[[], A | None], timeout: float | None) -> A | None:
        """Take when the bell rings, or a delay or lease is over; None when the time has run out."""
        deadline = None if timeout is None else self._clock.monotonic_ns() + round(timeout * 1e9)
        while not self._closed() and not self._ended():
            left = None if deadline is None else seconds_until(self._clock, deadline)
            due = self.wait_seconds()
            is_due_first = due is not None and (left is None or due < left)
            rang = self._bell.wait(due if is_due_first else left)
            found = take()
            if found is not None:
                return found
            if not (rang or is_due_first):
                break
        self._check_failure()
        return None

    async def _arriving(self, take: Callable[[], A | None], patience: float | None) -> AsyncIterator[A]:
        """The same for a task on an event loop, again and again."""
        self._bind("async")
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
            due = self.wait_seconds()
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._rang.wait(), min((s for s in (due, left) if s is not None), default=None)
                )

    def _check_failure(self) -> None:
        if (failure := self.queue.failed_with) is not None:
            raise failure

    def _closed(self) -> bool:
        return self._left or self.queue.closed

    def _ended(self) -> bool:
        """Whether all up to `until` has been handed out, of what stations that were asked have kept, too."""
        if not self._ends:
            return False
        if self._seat is not None:
            return self._seat.ended()
        return self.queue.ended

    def _take_event(self) -> T | None:
        """The next event without waiting. It counts as delivered from here on, unless it is acknowledged."""
        with self._hand:
            if self._seat is not None:
                if self._manual:
                    raise NotPossible(
                        self.name,
                        "ack='manual': an event alone has nothing to acknowledge it by; use deliveries()",
                    )
                handed = self._handed_to_me(self._seat)
                return None if handed is None else handed.event  # type: ignore[return-value]  # queues hold what the channel carries
            item = self._next_item()
            while item is not None and item[2] and self.queue.is_over(item[1], item[2]):
                self._next_in_batch += 1
                item = self._next_item()
            if item is None:
                return None
            # An interrupt finds both done, or neither: no call is between them.
            self._next_in_batch += 1
            self.queue.done += 1
            if self._watch is not None:
                self._watch(item[1], "delivered")
            return item[0]  # type: ignore[return-value]  # likewise

    def _next_item(self) -> Item | None:
        queue = self.queue
        if self._next_in_batch >= len(self._batch) or (queue.halted and not queue.closed):
            self._batch, self._next_in_batch = (), 0
            queue.settle()
            self._batch = queue.take()
            if not self._batch:
                return None
        return self._batch[self._next_in_batch]

    def _left_in_batch(self) -> Sequence[Item]:
        return self._batch[self._next_in_batch :]

    def take_delivery(self) -> Delivery[T] | None:
        """The next delivery without waiting; acknowledges the one before, as `deliveries` says."""
        with self._hand:
            if self._seat is None:
                self._sit()
            assert self._seat is not None
            handed = self._handed_to_me(self._seat)
            return None if handed is None else Delivery(handed, self._seat)

    def _handed_to_me(self, seat: GroupMembership) -> Handed | None:
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
            self._wake()


class GroupReceiver(QueuedReceiver):
    """The receiver of a group that acknowledges: its members are consumers with one coordinator."""

    def __init__(
        self,
        channel: ReceiverHost,
        name: str,
        selection: Selection,
        *,
        open_desk: Callable[[str, EventQueue, Sequence[Item]], HostCoordinator],
        terms: AckOptions,
    ) -> None:
        super().__init__(channel, name, selection)
        self.terms = terms
        self.queue = channel.new_queue(name, selection, self._ready)
        self.queue.on_stalled = partial(leave_behind, self, channel)
        self.queue.watch = self._watch
        self.desk = open_desk(name, self.queue, ())

    @property
    def failure(self) -> HeliographError | None:
        """Why its queue could not read on; it is closed then."""
        return self.queue.failed_with

    def close(self) -> None:
        try:
            self.desk.close()
        finally:
            super().close()

    def shut(self, reason: str) -> None:
        super().shut(reason)
        self._ready(self.queue)

    def _ready(self, queue: EventQueue) -> None:
        self.desk.ready(queue)

"""A gateway: the receiver of a channel that sends to one peer what anybody there wants.

However many consumers the other station has, an event crosses once, and it crosses only if the condition of
at least one of them holds here. Its queue is a consumer's queue: bounded, by priority, and full it does what
the channel's quality of service says. On a persistent channel it goes by offset instead.

An event that finds its gateway empty is sent by the pushing thread at once if the link is quiet (`send_now`),
and so is a batch (`send_bulk`). Else it is queued, the link is told (`ready`) and decides who sends it: the
pushing thread, which saves waking another one, or the link's own task.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import msgspec

from heliograph.channel.queueing.queue import EventQueue
from heliograph.channel.receive.subscription import QueuedReceiver
from heliograph.links.session.confirmation import Account
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.channel import Channel
    from heliograph.channel.ledger import QueueCounts
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.selection import Selection
    from heliograph.links.session.confirmation import Owed
    from heliograph.model.event import Header


class Direct:
    """Events that were sent without having been queued."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = 0
        """Counted by who sends them, in the step in which they are numbered."""


class GatewayQueue(EventQueue):
    """A queue that is emptied many events at a time, by the thread that fills it if that is soonest."""

    expires = False
    """Whether its events have a lifespan."""
    called = ""
    """How users see it where it is full: with the name of the other station, if that has one."""
    send_now: Callable[[Item], bool]
    """Sends an event that finds the queue empty, and counts it; False when it has to be queued."""
    send_bulk: Callable[[OutgoingBatch], bool]
    """Likewise events that were pushed together."""
    ring_at = 0
    """How many events must wait for `on_ready` to be called, besides the first one in an empty queue."""

    def __init__(self, name: str, **queue: Any) -> None:
        super().__init__(name, **queue)
        self.direct = Direct()

    def rest(self, ring_at: int) -> None:
        """Call `on_ready` again when so many events wait, and for the next ones that are put together."""
        self._watched = False
        self.ring_at = ring_at

    def put(self, item: Item) -> None:
        header, direct = item[1], self.direct
        before = direct.done
        try:
            if not (self.waiting or item[2] or self.closed) and self.send_now(item):
                return
            with self._lock:
                size = 0 if self.waiting < self._plain_below else self._bytes_of((item,))
                fits = self.waiting < (self._measured_below if size else self._small_below)
                if fits:
                    append = self._band(self.priority or header.priority).append
                    self.waiting += 1
                    self.bytes += size
                    self.last = header
                    append(item)
                    if size and self.bytes >= self.byte_limit:
                        self._set_bounds()
                # In a burst `on_ready` is not called for each event.
                is_quiet = fits and 1 < self.waiting < self.ring_at
            if is_quiet:
                return
            if fits:
                self._on_ready(self)
        except BaseException:
            if self.last is header:  # it waits, and perhaps nobody was told
                self._on_ready(self)
            raise
        finally:
            if direct.done != before:
                self.last = header
        if not fits:
            super().put(item)

    def put_bulk(self, bulk: OutgoingBatch) -> None:
        last, direct = _last_header(bulk), self.direct
        before = direct.done
        try:
            if not (self.waiting or bulk.deadline or self.closed) and self.send_bulk(bulk):
                return
        finally:
            if direct.done != before:
                self.last = last
        super().put_bulk(bulk)

    def who_is_full(self) -> str:
        return self.called or self.name

    def settle(self, hand: Sequence[Item] = ()) -> None:
        super().settle(hand)
        with self._lock:
            if not self.waiting:
                self._watched = False
                self._quiet.notify_all()

    def drain(self, most: int) -> tuple[int, list[Item]]:
        """Events of the highest priority that waits, and that priority. They count as handed to the link."""
        with self._lock:
            before = self.waiting
            priority, items = self._pop_highest(most)
            self._delivered += len(items)
            if self._waiters:
                self._room.notify(before - self.waiting)
            if not self.waiting:
                self._watched = False
                self._quiet.notify_all()
        return priority, items

    def drop_drained(self, item: Item) -> None:
        """One that was taken cannot be sent."""
        with self._lock:
            self._delivered -= 1
            self._drop(item, "unwritable")

    def _pop_highest(self, most: int) -> tuple[int, list[Item]]:
        """Those in time; empty only when nothing waits any more."""
        while self.waiting:
            priority = max(p for p, band in self._bands.items() if band)
            items = self._storage.pop(self._bands[priority], self._most_at_once(most))
            self.waiting -= len(items)
            self._count_out(items)
            if self.expires:
                self._hand = items
                self._taken += len(items)
                self._in_time()
                items = list(self._hand)
                self._taken -= len(items)
                self._hand = ()
            if items:
                return priority, items
        return 0, []

    def _counts(self, from_history: int = 0) -> QueueCounts:
        counts = super()._counts(from_history)
        return msgspec.structs.replace(counts, delivered=counts.delivered + self.direct.done)


def _last_header(bulk: OutgoingBatch) -> Header:
    """That of the last event of a batch, as far as it says which event it is."""
    sequences = bulk.sequences
    last = bulk.first.sequence + len(bulk) - 1 if sequences is None else sequences[-1]
    return msgspec.structs.replace(bulk.first, sequence=last)


class Sender(Protocol):
    """What a gateway asks of its link."""

    def ready(self, gateway: PeerGateway) -> None:
        """Events wait."""
        ...

    def send_now(self, gateway: PeerGateway, item: Item) -> bool: ...

    def send_bulk(self, gateway: PeerGateway, bulk: OutgoingBatch) -> bool: ...

    def ask(self) -> None:
        """Have the other station say soon what it has taken in."""
        ...


ASK_AGAIN: Final = 0.05
"""Seconds after which a station that is waited for is asked once more what it has taken in."""


class PeerGateway(QueuedReceiver):
    """See the module."""

    queue_kind: ClassVar[type[GatewayQueue]] = GatewayQueue

    def __init__(
        self,
        channel: Channel[Any],
        peer: str,
        selection: Selection,
        sender: Sender,
        *,
        called: str = "",
    ) -> None:
        super().__init__(channel, f"link to {peer}", selection)
        self.channel = channel
        self.paused = False
        self.listed = False
        """Whether it stands in the link's list of those that have something to send."""
        self.burst_at = 0
        """How many events must wait for the next pushing thread to send them itself."""
        self._sender = sender
        self.account = Account()
        """What the other station said of the events that were handed over."""
        self.owed: Owed | None = None
        """The session in which it said so; None: none that reports."""
        self.queue = channel.new_queue(
            self.name, selection, lambda _: self._sender.ready(self), kind=self.queue_kind
        )
        self.bypassed = self.queue if isinstance(self.queue, GatewayQueue) else None
        """Its queue, if a pushed event may pass by it; None where that reads a history or coalesces."""
        if self.bypassed is not None:
            self.bypassed.called = f"link to {called or peer}"
            self.bypassed.expires = channel.qos.lifespan is not None
            self.bind(sender)
        elif self.queue.journal is not None:
            # The other station takes a history up by offsets: here no event may overtake another. The queues
            # of its consumers go by priority.
            self.queue.priority = channel.qos.priority
            self.queue.journal.as_kept = True

    def bind(self, sender: Sender) -> None:
        """Send through this link from now on."""
        self._sender = sender
        if self.bypassed is not None:
            self.bypassed.send_now = partial(sender.send_now, self)
            self.bypassed.send_bulk = partial(sender.send_bulk, self)

    def drop(self, reason: str) -> None:
        """Close it; what waits is dropped under the reason."""
        self.channel.drop_receiver(self, reason)

    def report_in(self, owed: Owed) -> None:
        """The session in which the other station says what it has taken in."""
        if self.owed is not None:
            self.account = self.account.followed(self.handed())
        self.owed = owed
        owed.open(self.channel.name, self)

    def handed(self) -> int:
        return self.queue.counts().delivered

    def counts(self) -> QueueCounts:
        """As the queue counts; what was handed to the link is delivered once the other station says so."""
        counts = self.queue.counts()
        return counts if self.owed is None else self.account.applied_to(counts)

    @property
    def sends_again(self) -> bool:
        """Whether what is lost with a session reaches its receivers after all, from the history."""
        return self.queue.journal is not None

    @property
    def is_final(self) -> bool:
        """Whether no report can change its counts: a station that was lost may come back and send one."""
        return self.owed is None or self.account.is_final or not self.account.unconfirmed(self.handed())

    def wait_confirmed(self, timeout: float) -> bool:
        """Ask the other station what it has taken in, until that is all, or nothing more can be heard."""
        clock = self.channel.ports.clock
        until = clock.monotonic_ns() + round(timeout * 1e9)
        while self.owed is not None:
            self._sender.ask()
            left = seconds_until(clock, until)
            if self.owed.wait(self, max(0.0, min(ASK_AGAIN, left))):
                break
            if left <= 0:
                return False
        return True

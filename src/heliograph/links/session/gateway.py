"""A gateway: the receiver of a channel that sends to one peer what anybody there wants.

However many consumers the other station has, an event crosses once, and it crosses only if the condition of
at least one of them holds here. Its lane is a consumer's lane: bounded, by priority, and full it does what
the channel's quality of service says. On a persistent channel it goes by offset instead.

An event that finds its gateway empty is sent by the pushing thread at once if the link is quiet (`send_now`),
and so is a batch (`send_bulk`). Else it is queued, the link is told (`ready`) and decides who sends it: the
pushing thread, which saves waking another one, or the link's own task.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from heliograph.channel.history.feed import JournalLane
from heliograph.channel.queueing.queue import Lane
from heliograph.channel.receive.subscription import QueuedReceiver
from heliograph.links.session.confirmation import Account
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.ledger import LaneCounts
    from heliograph.channel.publish.batch import OutgoingBatch
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.receive.options import Selection
    from heliograph.links.session.confirmation import Owed


class GatewayLane(Lane):
    """A lane that is emptied many events at a time, by the thread that fills it if that is soonest."""

    expires = False
    """Whether its events have a lifespan."""
    send_now: Callable[[Item], bool]
    """Sends an event that finds the lane empty; False when it has to be queued."""
    send_bulk: Callable[[OutgoingBatch], bool]
    """Likewise events that were pushed together."""
    ring_at = 0
    """How many events must wait for `on_ready` to be called, besides the first one in an empty lane."""

    def rest(self, ring_at: int) -> None:
        """Call `on_ready` again when so many events wait, and for the next ones that are put together."""
        self._watched = False
        self.ring_at = ring_at

    def put(self, item: Item) -> None:
        header = item[1]
        try:
            if not (self.waiting or item[2] or self.closed) and self.send_now(item):
                # Nobody else counts meanwhile: whoever takes from the lane finds it empty, and who puts holds
                # the lock that all who put share.
                self._delivered += 1
                self.last = header
                return
            self._acquire()
            fits = self.waiting < self.limit and not self.closed
            if fits:
                append = self._band(self.priority or header.priority).append
                self.waiting += 1
                self.last = header
                append(item)
            # In a burst `on_ready` is not called for each event.
            is_quiet = fits and 1 < self.waiting < self.ring_at
            self._release()
            if is_quiet:
                return
            if fits:
                self._on_ready(self)
        except BaseException:
            self._recover(is_new=True)
            raise
        if not fits:
            super().put(item)

    def put_bulk(self, bulk: OutgoingBatch) -> None:
        if self.waiting or bulk.deadline or self.closed or not self.send_bulk(bulk):
            super().put_bulk(bulk)
        else:
            last, sent = bulk[len(bulk) - 1][1], len(bulk)
            self._delivered += sent
            self.last = last

    def drain(self, most: int) -> tuple[int, list[Item]]:
        """Events of the highest priority that waits, and that priority. They count as handed to the link."""
        with self._lock:
            before = self.waiting
            priority, items = self._pop_highest(most)
            if items:  # else a thread that finds the lane empty may be counting, see `put`
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
            items = self._pop_held(self._bands[priority], most)
            self.waiting -= len(items)
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


class Sender(Protocol):
    """What a gateway asks of its link."""

    def ready(self, gateway: Gateway) -> None:
        """Events wait."""
        ...

    def send_now(self, gateway: Gateway, item: Item) -> bool: ...

    def send_bulk(self, gateway: Gateway, bulk: OutgoingBatch) -> bool: ...

    def ask(self) -> None:
        """Have the other station say soon what it has taken in."""
        ...


ASK_AGAIN: Final = 0.05
"""Seconds after which a station that is waited for is asked once more what it has taken in."""


class Gateway(QueuedReceiver):
    """See the module."""

    lane_kind: ClassVar[type[GatewayLane]] = GatewayLane

    def __init__(
        self,
        channel: Channel[Any],
        peer: str,
        selection: Selection,
        sender: Sender,
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
        self.lane = channel.new_lane(
            self.name, selection, lambda _: self._sender.ready(self), kind=self.lane_kind
        )
        if isinstance(self.lane, GatewayLane):
            self.lane.expires = channel.qos.lifespan is not None
            self.bind(sender)
        elif isinstance(self.lane, JournalLane):
            # The other station takes a history up by offsets: here no event may overtake another. The queues
            # of its consumers go by priority.
            self.lane.priority = channel.qos.priority
            self.lane.as_kept = True

    def bind(self, sender: Sender) -> None:
        """Send through this link from now on."""
        self._sender = sender
        if isinstance(self.lane, GatewayLane):
            self.lane.send_now = partial(sender.send_now, self)
            self.lane.send_bulk = partial(sender.send_bulk, self)

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
        return self.lane.counts().delivered

    def counts(self) -> LaneCounts:
        """As the queue counts; what was handed to the link is delivered once the other station says so."""
        counts = self.lane.counts()
        return counts if self.owed is None else self.account.applied_to(counts)

    @property
    def sends_again(self) -> bool:
        """Whether what is lost with a session reaches its receivers after all, from the history."""
        return isinstance(self.lane, JournalLane)

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

"""Runs the event monitor of a channel: timers, resends and acknowledgements around the pure state machine.

A channel whose `push` waits for consumers has one. Each receiver's watch tells what became of an event there:

    delivered    is the acknowledgement, steps 4 and 5
    failed       the callback raised, or nobody acknowledged in time: it is sent again when the timer rings
    dropped, expired   likewise

What still waits in a receiver's queue, or is being delivered, is on its way and is not sent again. When the
monitor gives up, the event goes to the dead-letter channel, or is reported, and its push returns False. It
returns False, too, when a receiver leaves, or is lost with its station, before it has acknowledged the event.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from heliograph.delivery.monitor import MAX_WATCHED, Delete, End, GiveUp, Monitor, Pass, Resend, StartTimer
from heliograph.errors import HeliographError, QueueFull
from heliograph.runtime.ports import seconds_until, wait_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.observer import Outcome, Watch
    from heliograph.channel.queueing.queue import Item
    from heliograph.delivery.monitor import Action
    from heliograph.model.event import EventId, Header
    from heliograph.runtime.ports import Ports

    Trace: TypeAlias = Callable[[str, EventId, str], object]

log = logging.getLogger(__name__)

DEAD: Final = "dead"
"""The reason of a receiver that has itself given up on an event."""


class WatchStats(msgspec.Struct, frozen=True):
    """What the monitor of a channel has counted."""

    watched: int
    """Events that wait for acknowledgements now."""
    delivered: int
    resent: int
    """Receivers that were sent an event again."""
    given_up: int
    late: int
    """Acknowledgements of events that were watched no more."""
    ended: int = 0
    """Events that were not delivered because a receiver left before it had acknowledged them."""


class EventRow(NamedTuple):
    """One row of the event array: an event that is under way."""

    supplier: str
    event: EventId
    data: Any
    """The event itself."""
    state: dict[str, bool]
    """Whether each consumer has acknowledged it."""
    priority: int
    elapsed: float
    """Seconds since it was passed to its consumers."""
    resends: int


class Watching:
    """See the module; `heliograph.channel.publish.acks.AckMonitor` says what for.

    Args:
        timeout: seconds for all acknowledgements of an event.
        resends: how often it is sent again.
        resend: sends an event again to receivers, given by name.
        bury: called with an event, how often it was sent, and who lacks it, when the monitor has given up.
        trace: told each step: its name, the event, and the receiver where there is one.
    """

    def __init__(
        self,
        ports: Ports,
        channel: str,
        *,
        timeout: float,
        resends: int,
        resend: Callable[[Item, tuple[str, ...]], object],
        add_dead_letter: Callable[[Item, int, tuple[str, ...]], object],
        trace: Trace | None = None,
    ) -> None:
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._channel = channel
        self._resend = resend
        self._bury = add_dead_letter
        self.trace = trace
        """Told each step, under the monitor's lock: it must neither wait nor push."""
        self._lock = ports.tasks.lock(f"monitor of {channel}")
        self._monitor: Monitor[EventId] = Monitor(timeout_ns=round(timeout * 1e9), resends=resends)
        self._tickets: dict[EventId, WatchTicket] = {}
        self._items: dict[EventId, Item] = {}
        self._since: dict[EventId, int] = {}
        self._refused: dict[EventId, set[str]] = {}
        """Receivers that had an event and could not do with it: only to those it is sent again."""
        self._upward: deque[Callable[[], object]] = deque()
        """Whom to tell of events that everybody has, said by the monitor's own task: others hold locks."""
        self._bell = ports.tasks.signal(f"monitor of {channel}")
        self._ringing = False
        self._closed = False

    # What the channel says

    def expect(self, event: EventId, on_all: Callable[[], object] | None = None) -> WatchTicket:
        ticket = WatchTicket(self, event, on_all)
        with self._lock:
            if len(self._tickets) >= MAX_WATCHED:
                raise QueueFull(f"the monitor of {self._channel}", len(self._tickets), 0.0)
            self._tickets[event] = ticket
        return ticket

    def passing(self, item: Item, receivers: Iterable[str]) -> None:
        header = item[1]
        with self._lock:
            if header.id not in self._tickets:
                return
            self._say("notify", header.id)
            self._items[header.id] = item
            now = self._since[header.id] = self._clock.monotonic_ns()
            actions = self._monitor.notify(header.id, receivers, now, header.supplier)
            start = not self._ringing and not self._closed
            self._ringing = self._ringing or start
        if start:
            self._tasks.spawn_soon(f"monitor of {self._channel}", self._ring_timers)
        self._do(actions)

    def watch(self, receiver: str) -> Watch:
        def watch(header: Header, outcome: Outcome, reason: str = "", sends: int = 1) -> None:  # noqa: ARG001 - as a watch is called
            if outcome == "delivered":
                self.acked(header.id, receiver)
            elif reason != DEAD:
                with self._lock:
                    if header.id in self._items:
                        self._refused.setdefault(header.id, set()).add(receiver)

        return watch

    def acked(self, event: EventId, receiver: str) -> None:
        with self._lock:
            if event not in self._tickets:
                return
            self._say("ack", event, receiver)
            self._say("ack upward", event, receiver)
            actions = self._monitor.acked(event, receiver)
        self._do(actions)

    def left(self, receiver: str) -> None:
        with self._lock:
            actions = self._monitor.left(receiver)
        self._do(actions)
        # Before other stations hear that it has left: what it had acknowledged would be lost with it.
        self._tell_upward()

    def forget(self, event: EventId) -> None:
        with self._lock:
            self._monitor.forget(event)
            self._drop(event)

    def forget_unpassed(self, event: EventId) -> None:
        with self._lock:
            if event not in self._items:
                self._drop(event)

    def array(self) -> tuple[EventRow, ...]:
        """The events that are under way, in the order in which they were passed on."""
        with self._lock:
            now = self._clock.monotonic_ns()
            return tuple(
                EventRow(
                    row.supplier,
                    row.event,
                    self._items[row.event][0],
                    row.state,
                    self._items[row.event][1].priority,
                    (now - self._since[row.event]) / 1e9,
                    row.resends,
                )
                for row in self._monitor.array()
                if row.event in self._items
            )

    def stats(self) -> WatchStats:
        with self._lock:
            m = self._monitor
            return WatchStats(len(m), m.deleted, m.resent, m.given_up, m.late, m.ended)

    def tick(self) -> None:
        """Timers that are due ring."""
        with self._lock:
            actions = self._monitor.tick(self._clock.monotonic_ns())
        self._do(actions)

    def close(self) -> None:
        """Nobody waits any longer: what is not acknowledged by now was not delivered."""
        with self._lock:
            self._closed = True
            tickets, self._tickets = self._tickets, {}
            self._items.clear()
            self._since.clear()
            self._refused.clear()
        for ticket in tickets.values():
            ticket.end(delivered=False)
        self._tell_upward()  # a station that waits for these must not take them for lost with this one
        self._bell.notify()

    # What the monitor says

    def _do(self, actions: list[Action[EventId]]) -> None:
        for action in actions:
            match action:
                case StartTimer(event, _):
                    self._say("timer", event)
                    self._bell.notify()
                case Pass(event, receivers):
                    for receiver in receivers:
                        self._say("pass", event, receiver)
                case Delete(event):
                    self._say("delete", event)
                    self._end(event, delivered=True)
                case End(event, _):
                    self._say("end", event)
                    self._end(event, delivered=False)
                case Resend(event, receivers, _):
                    self._send_again(event, receivers)
                case GiveUp(event, lacking, attempts):
                    self._say("give up", event)
                    self._give_up(event, lacking, attempts)

    def _send_again(self, event: EventId, lacking: tuple[str, ...]) -> None:
        with self._lock:
            refused = self._refused.pop(event, set())
            item = self._items.get(event)
        receivers = tuple(receiver for receiver in lacking if receiver in refused)
        if item is None or not receivers:
            return
        for receiver in receivers:
            self._say("resend", event, receiver)
        header = msgspec.structs.replace(item[1], redelivered=True)
        self._resend((item[0], header, item[2]), receivers)

    def _give_up(self, event: EventId, lacking: tuple[str, ...], attempts: int) -> None:
        item = self._items.get(event)
        if item is not None:
            try:
                self._bury(item, attempts + 1, lacking)
            except HeliographError:
                log.exception("%s: event %s could not be given away", self._channel, event)
        self._end(event, delivered=False)

    def _end(self, event: EventId, *, delivered: bool) -> None:
        with self._lock:
            ticket = self._drop(event)
        if ticket is None:
            return
        ticket.end(delivered=delivered)
        if delivered and ticket.on_all is not None:
            self._upward.append(ticket.on_all)
            self._bell.notify()

    def _drop(self, event: EventId) -> WatchTicket | None:
        self._items.pop(event, None)
        self._since.pop(event, None)
        self._refused.pop(event, None)
        return self._tickets.pop(event, None)

    def _say(self, step: str, event: EventId, receiver: str = "") -> None:
        if self.trace is not None:
            self.trace(step, event, receiver)

    def _ring_timers(self) -> None:
        while not self._closed:
            with self._lock:
                due = self._monitor.next_due
            self._bell.wait(None if due is None else max(0.0, seconds_until(self._clock, due)))
            self.tick()
            self._tell_upward()

    def _tell_upward(self) -> None:
        with suppress(IndexError):  # two tasks may be at it when the channel closes
            while True:
                self._upward.popleft()()


class WatchTicket:
    """What becomes of one event."""

    __slots__ = ("_delivered", "_done", "_event", "_watching", "on_all")

    def __init__(self, watching: Watching, event: EventId, on_all: Callable[[], object] | None) -> None:
        self._watching = watching
        self._event = event
        self.on_all = on_all
        self._done = watching._tasks.event("delivery")  # noqa: SLF001 - of this room
        self._delivered = False

    def wait(self, timeout: float | None = None) -> bool | None:
        tasks = self._watching._tasks  # noqa: SLF001 - of this room
        return self._delivered if wait_outside(tasks, self._done, timeout, str(self._event)) else None

    def forget(self) -> None:
        self._watching.forget(self._event)

    def forget_unpassed(self) -> None:
        self._watching.forget_unpassed(self._event)

    def end(self, *, delivered: bool) -> None:
        self._delivered = delivered
        self._done.set()

"""Ingress: events that arrive over a link enter this station's channels, and wait aside where a queue is
full.

A consumer's full queue must not hold up other channels. What cannot be queued is kept aside here, the other
station is told to pause this channel, and a task of its own queues it as soon as there is room. What is on
its way meanwhile is limited by what the other station keeps for resending.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from heliograph.channel.routing.forwarding import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.channel import Channel
    from heliograph.channel.publish.worker_acks import Supervisor
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.session.wire_events import Refused
    from heliograph.model.event import EventId
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)


class Ingress:
    """What came in over one link for one channel."""

    def __init__(
        self,
        channel: Channel[Any],
        peer: str,
        tasks: Tasks,
        on_pause: Callable[[str, bool], None],
        on_acked: Callable[[EventId], None],
        *,
        on_left_out: Callable[[int], None],
        supervisor: Supervisor | None = None,
        behind: object | None = None,
        is_derived_here: bool = False,
    ) -> None:
        self.channel = channel
        origin = Origin(is_here=False, worker=behind, is_derived_here=is_derived_here)
        self.intake = channel.neighbours.intake(f"link from {peer}", on_acked, supervisor, origin)
        self._tasks = tasks
        self._on_pause = on_pause
        self._on_left_out = on_left_out
        self.name = f"channel {channel.name} from station {peer}"
        self._closed = False
        self.unreadable = 0
        """Lone events that do not fit this station's class."""
        self._too_late = 0
        self._repeated = 0
        """Copies of events that other gateways between domains have brought before."""
        self._untold = 0
        """Those of which it cannot be told whether they are such copies: nobody gets them."""
        self._lock = tasks.lock(f"aside of {channel.name}")
        self._in_hand = 0
        """How many of `aside` the task that queues them is busy with: it counts those itself."""
        self._is_cut = False
        """Whether the session has ended though events were put aside."""
        self.aside: deque[Item] = deque()
        """What waits for room; nothing may be handed on past it."""

    def add(self, events: Sequence[Item], until: int = 0) -> None:
        """Queue events for this station's consumers. Called by the link's reader alone.

        When inline callbacks have not returned by an instant of the monotonic clock, the rest is put aside.
        """
        if self.channel.store is None:  # of a history its keeper has looked for copies
            events, repeated, untold = self.channel.neighbours.first_arrivals.only_first(events)
            self._repeated += repeated
            self._untold += untold
            if not events:
                return
        # The reader alone puts something aside, so what it sees to be empty stays so; else the lock decides.
        if self.aside:
            with self._lock:
                if self.aside:
                    self.aside.extend(events)
                    return
        taken = self.intake.take_in(events, until=until)
        if taken < len(events):
            self._put_aside(events[taken:])

    def refuse(self, events: Sequence[Item], refused: Sequence[Refused], until: int = 0) -> None:
        """Take in a run of which some events cannot be read here; told by name, once for each format.

        Where a history is kept each receiver reads on by itself, up to what it cannot read.
        """
        if not self.intake.reads_on(events, refused):
            header, error = refused[0]
            self.channel.neighbours.unreadable(header.format_id, header, error)
            if events:  # last: another thread may have taken the reading over when their callbacks return
                self.add(events, until)

    def close(self, *, is_last: bool) -> None:
        """Nothing more comes; what was put aside is still queued if nothing of its suppliers can follow."""
        with self._lock:
            self._closed = True
            if is_last and self.aside:
                return  # the task that queues it ends the intake
            left = len(self.aside) - self._in_hand
            self._is_cut = True
            self._too_late += left
            self.aside.clear()
        self.intake.close()
        self._leave_out(left)

    @property
    def received(self) -> int:
        """Events that receivers were given, now or before; what waits here for room is not among them."""
        return self.intake.pushed + self._repeated

    @property
    def refused(self) -> int:
        """Events that nobody here will get: the channel was closed, they came too late, or do not fit."""
        return self._too_late + self.unreadable + self._untold + self.intake.let_go

    def _leave_out(self, events: int) -> None:
        if events:
            self._on_left_out(events)
            log.warning("%s: %d events of the session before had no room and are dropped", self.name, events)

    def _put_aside(self, events: Sequence[Item]) -> None:
        with self._lock:
            if self._closed:
                self._too_late += len(events)
                self._on_left_out(len(events))
                log.warning("%s: %d events came too late", self.name, len(events))
                return
            self.aside.extend(events)
            self._on_pause(self.channel.name, True)
        self._tasks.spawn_soon(f"aside of {self.channel.name}", self._queue_aside)

    def _queue_aside(self) -> None:
        """Queue what was put aside as room comes; ends when all of it is queued."""
        while True:
            with self._lock:
                events = list(self.aside)
                self._in_hand = len(events)
            let_go = self.intake.let_go
            taken = self.intake.take_in(events, wait=True)
            if self._is_cut:
                self._leave_out(self.intake.let_go - let_go)
            with self._lock:
                self._in_hand = 0
                for _ in range(min(taken, len(self.aside))):
                    self.aside.popleft()
                if not self.aside:
                    self._on_pause(self.channel.name, False)
                    is_over = self._closed
                    break
        if is_over:
            self.intake.close()

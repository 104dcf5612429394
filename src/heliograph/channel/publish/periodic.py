"""A supplier that makes an event every period, on a grid and without drift.

    beats = station.channel("site.beats", Beat).supplier("roof")
    ticking = beats.every(0.1, lambda: Beat("roof"))
    ticking.cancel()

The grid is that of the clock on the wall: the multiples of the period since 1970. So it is the same after a
restart, and in every station; what falls into the time between is skipped. From the first tick on it is kept
by the monotonic clock: a call that comes late moves none of the later ones.

A timer only says that it is time. The event is made and pushed by a worker of the dispatch pool, at its
priority; while that is still busy with an earlier one, instants are skipped, and counted.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from heliograph.channel.publish.options import stamp
from heliograph.channel.queueing.queue import EventQueue
from heliograph.errors import Closed, ForkedStation, NotPossible
from heliograph.model.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.publish.host import SupplierHost
    from heliograph.channel.publish.supplier import Supplier

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)

MIN_PERIOD: Final = 1e-6


class PeriodicStats(msgspec.Struct, frozen=True):
    """What became of the instants so far.

    Attributes:
        pushed: events that were made and pushed.
        empty: times that nothing was made: the function returned None.
        failed: times that it raised, or that its event could not be pushed.
        skipped: instants that passed while an earlier one was being dealt with.
    """

    pushed: int
    empty: int
    failed: int
    skipped: int


class Periodic(Generic[T]):
    """Made by `supplier.every`."""

    def __init__(
        self,
        supplier: Supplier[T],
        channel: SupplierHost,
        period: float,
        make: Callable[[], T | None],
        priority: int | None,
    ) -> None:
        if not callable(make):
            raise NotPossible(channel.name, f"{make!r:.60} cannot be called; every(0.1, lambda: Beat(...))")
        if type(period) not in (int, float) or not MIN_PERIOD <= period <= 1e9:
            raise NotPossible(channel.name, f"a period of {period!r:.60}: seconds from {MIN_PERIOD:g} to 1e9")
        stamp(priority=priority)  # refused here as by a push
        self.name = f"{supplier.name} every {period:g} s"
        self._supplier = supplier
        self._channel = channel
        self._make = make
        self._said: dict[str, Any] = {} if priority is None else {"priority": priority}
        self._clock = channel.ports.clock
        self._pushed = self._empty = self._failed = self._skipped = 0
        self.queue = EventQueue(
            self.name,
            clock=self._clock,
            tasks=channel.ports.tasks,
            limit=1,
            policy="drop_newest",
            priority=priority or channel.qos.priority,
            on_ready=partial(channel.pools.run_timed, self),
        )
        channel.timed.add(self.queue)
        self._period = round(period * 1e9)
        now, wall = self._clock.monotonic_ns(), self._clock.time_ns()
        self._next = now + self._period - wall % self._period
        self._wall = wall - now
        self._timer = channel.timers.every(period, self._ring, first=self._next)

    def cancel(self) -> bool:
        """Make no more; False when it had been cancelled before."""
        cancelled = self._timer.cancel()
        self.queue.close()
        self._supplier.forget_periodic(self)
        return cancelled

    def stats(self) -> PeriodicStats:
        dropped = sum(self.queue.counts().dropped.values())
        return PeriodicStats(self._pushed, self._empty, self._failed, self._skipped + dropped)

    def _ring(self) -> None:
        """In the task of the timers."""
        now = self._clock.monotonic_ns()
        missed = max(0, (now - self._next) // self._period)
        self._skipped += missed
        instant = self._next + missed * self._period
        self._next = instant + self._period
        self.queue.put((instant, None, 0))  # type: ignore[arg-type]  # an instant, no event yet

    # For the workers

    def run_batch(self) -> bool:
        items: Sequence[Any] = self.queue.take()
        for instant, _, _ in items:
            try:
                event = self._make()
                if event is None:
                    self._empty += 1
                else:
                    self._supplier.push(event, source_ts=instant + self._wall, **self._said)
                    self._pushed += 1
            except (Closed, ForkedStation):
                self.cancel()
            except BaseException as error:  # noqa: BLE001 - whatever user code raises stays with it
                self._failed += 1
                self._channel.report(self.name, None, error)
            self.queue.done += 1
        if items:
            self.queue.settle()
        return bool(items)

    @property
    def progress(self) -> int:
        return self.queue.progress

    def suspended(self, seconds: float) -> None:
        """No supplier waits for it."""

    def stuck(self, seconds: float) -> None:
        log.error("%s has not returned for %.1f s; it is cancelled", self.name, seconds)
        self.cancel()

"""The pure state machine of a watchdog: when a service is asked for a sign of life, ended and begun again.

    machine = WatchdogMachine(ping=1.0, now=clock.monotonic_ns())
    for action in machine.due(now): ...           # Start(), Ping(), EndService()
    machine.started(now), machine.answered(now), machine.ended(now)

A service that ends is begun again at once; one that does not answer for two ping periods is ended first. One
that ends soon after it was begun and has never answered waits longer each time, so that a mistake in its
folder does not keep a machine busy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SOON: Final = 5_000_000_000
"""Nanoseconds within which a service that ended is taken for one that cannot begin."""
FIRST_WAIT: Final = 50_000_000
LONGEST_WAIT: Final = 10_000_000_000


class Start(NamedTuple):
    """Begin the service."""


class Ping(NamedTuple):
    """Ask the service for a sign of life."""


class EndService(NamedTuple):
    """End the service, which hangs."""


class WatchdogMachine:
    """See the module. Times are nanoseconds; `ping` is seconds."""

    def __init__(self, *, ping: float, now: int) -> None:
        self._period = round(ping * 1e9)
        self._is_running = False
        self._is_ending = False
        self._start_at: int | None = now
        self._started = now
        self._heard = now
        self._asked = now
        self._has_answered = False
        self._wait = FIRST_WAIT
        self.starts = 0
        """How often it was begun."""

    def due(self, now: int) -> list[Start | Ping | EndService]:
        """What to do now."""
        if self._start_at is not None and now >= self._start_at:
            self._start_at = None
            return [Start()]
        if not self._is_running or self._is_ending:
            return []
        if now - self._heard >= 2 * self._period:
            self._is_ending = True
            return [EndService()]
        if now - self._asked >= self._period // 2:
            self._asked = now
            return [Ping()]
        return []

    def started(self, now: int) -> None:
        """It was begun, and has a process."""
        self.starts += 1
        self._is_running, self._is_ending = True, False
        self._started = self._heard = self._asked = now
        self._has_answered = False

    def answered(self, now: int) -> None:
        """It has given a sign of life."""
        self._heard = now
        self._has_answered = True

    def ended(self, now: int) -> None:
        """Its process has ended, whoever ended it."""
        self._is_running = self._is_ending = False
        cannot_begin = not self._has_answered and now - self._started < SOON
        if not cannot_begin:
            self._wait = FIRST_WAIT
        self._start_at = now + self._wait
        if cannot_begin:
            self._wait = min(2 * self._wait, LONGEST_WAIT)

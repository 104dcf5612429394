"""How long events may live here that another station says have so much of their lifetime left.

Monotonic clocks of two stations have nothing in common: they may be hours apart. So no instant crosses a
link as a deadline. An event carries the lifetime that it had left when its frame was made, and a stamp of
the sender's clock that says when that was. Stamps are only ever compared with each other: the shortest time
that any of them seemed to take is what the two clocks differ by, and the way when nothing waits. What a
later one takes beyond that, it has waited on the way, in a queue, a socket or a ring, and its lifetime is
reduced by that.

    clock = PeerClock(now)
    clock.heard(stamp)                      # with every heartbeat
    clock.deadline(left, stamp)             # an instant of this station's clock
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

DeadlineOf: TypeAlias = "Callable[[int, int], int]"
"""The instant of this station's monotonic clock, never 0, at which a lifetime ends; given the nanoseconds
that were left of it, and the sender's stamp of when that was."""


class PeerClock:
    """The monotonic clock of one other station, as far as lifetimes need it."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._ahead: int | None = None
        """The least that this station's clock was ahead of a stamp when that came."""

    def heard(self, stamp: int) -> None:
        # Several threads may read what one station sent; the next heartbeat puts right what they lose.
        ahead = self._now() - stamp
        if self._ahead is None or ahead < self._ahead:
            self._ahead = ahead

    def deadline(self, left: int, stamp: int) -> int:
        self.heard(stamp)
        assert self._ahead is not None
        return max(1, stamp + self._ahead + left)


def own_deadline(left: int, stamp: int) -> int:
    """For records that this station has written itself."""
    return stamp + left


def from_now(now: Callable[[], int]) -> DeadlineOf:
    """For answers to questions, whose stamps nobody compares: those that are late are given up anyway."""
    return lambda left, _: now() + left

"""How one side of a ring waits for the other: spin, then sleep on a futex, and never miss a wake-up.

    "poll"      look all the time: the fastest, and a core of its own
    "spin"      look for about 50 µs, then sleep: fast while events flow, nothing at rest
    "block"     sleep at once

Going to sleep takes four steps, whose order is the point:

    1. read the bell
    2. raise the flag
    3. a full barrier in every process
    4. look once more; then sleep on the bell, if it still says what was read in step 1

Waking, after the thing that is waited for was stored, takes three: see the flag up, take it down, ring the
bell. The waker has no barrier between its store and its look at the flag, which costs it nothing; the
sleeper's barrier of step 3 stands in for it. docs/adr says why no wake-up is lost. Should one be, the sleeper
looks again after `look_every` seconds, and counts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from heliograph.ring import futex
from heliograph.ring.layout import MASK32

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.ring.segment import RingSegment
    from heliograph.runtime.ports import Clock

WaitMode = Literal["poll", "spin", "block"]

SPIN_NS: Final = {"poll": 1 << 62, "spin": 50_000, "block": 0}
LOOKS_PER_CLOCK: Final = 16
"""Looks between two readings of the clock, which cost about as much as a look."""
LOOK_EVERY: Final = 0.1
"""Seconds of sleep after which a sleeper looks whether the other side is alive, if not told otherwise."""
FOREVER: Final = 1 << 62


class Waiter:
    """One side's waiting: which flag it raises, on which bell it sleeps, and what came of it."""

    def __init__(
        self,
        segment: RingSegment,
        flag: int,
        bell: int,
        clock: Clock,
        mode: WaitMode,
        *,
        look_every: float = LOOK_EVERY,
    ) -> None:
        self._words = segment.words
        self._bells = segment.bells
        self._flag = flag
        self._bell = bell
        self._address = segment.address_of_bell(bell)
        self._clock = clock
        self._spin_ns = SPIN_NS[mode]
        self._look_every = look_every
        self.sleeps = 0
        self.woken_by_timeout = 0

    def wait(self, is_ready: Callable[[], object], deadline_ns: int, on_idle: Callable[[], None]) -> bool:
        """Whether it was ready in time; `on_idle` is called now and then meanwhile, and may raise."""
        while not self._look(is_ready, deadline_ns, on_idle):
            left_ns = deadline_ns - self._clock.monotonic_ns()
            if left_ns <= 0:
                return False
            if self._sleep(is_ready, min(left_ns / 1e9, self._look_every), on_idle):
                return True
        return True

    def _look(self, is_ready: Callable[[], object], deadline_ns: int, on_idle: Callable[[], None]) -> bool:
        if is_ready():
            return True
        now = self._clock.monotonic_ns()
        until = min(deadline_ns, now + self._spin_ns)
        idle_at = now + int(self._look_every * 1e9)
        while now < until:
            for _ in range(LOOKS_PER_CLOCK):
                if is_ready():
                    return True
            now = self._clock.monotonic_ns()
            if now > idle_at:
                on_idle()
                idle_at = now + int(self._look_every * 1e9)
        return False

    def _sleep(self, is_ready: Callable[[], object], seconds: float, on_idle: Callable[[], None]) -> bool:
        heard = self._bells[self._bell]  # 1
        self._words[self._flag] = 1  # 2
        futex.order_all_processes()  # 3
        if is_ready():  # 4
            return True
        self.sleeps += 1
        rang = futex.sleep_on(self._address, heard, seconds)
        if is_ready():
            # Not if the bell was rung just as the time ran out.
            self.woken_by_timeout += not rang and self._bells[self._bell] == heard
            return True
        if not rang:
            on_idle()
        return False


def ring_bell(segment: RingSegment, flag: int, bell: int, value: int) -> None:
    """The flag was seen up: take it down, ring. The value must differ from all that were rung of late."""
    address = segment.address_of_bell(bell)
    try:
        segment.words[flag] = 0
        segment.bells[bell] = value & MASK32
        futex.wake(address)
    except BaseException:  # an interrupt: nobody else rings for a flag that is down
        futex.wake(address)
        raise


def deadline(clock: Clock, timeout: float | None) -> int:
    """The monotonic instant at which a time-out ends."""
    return FOREVER if timeout is None else clock.monotonic_ns() + int(timeout * 1e9)

"""Timers of a station: one heap and one thread.

    timers = Timers(clock, tasks)
    timer = timers.after(5.0, ring)            # or timers.at(instant, ring), timers.every(0.1, tick)
    timer.cancel()                             # True when it had not rung yet

The task sleeps until the first instant and calls what is due, in the order of instants; without a timer there
is no task. A call must be short and must not wait: it hands on to queues that have workers of their own, so
that each consumer is told at its own priority. One that raises is logged and hurts nobody.

`every` keeps to its grid: a call that comes late moves none of the later ones, and what was missed altogether
is skipped. A cancelled timer leaves its place in the heap when half of the heap is such places, so scheduling
and cancelling stay logarithmic and memory stays bounded by the live timers.
"""

from __future__ import annotations

import heapq
import logging
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from heliograph.errors import Closed, NotPossible, TooManyTimers
from heliograph.runtime.option_names import is_number, names_options
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.runtime.ports import Clock, Tasks

log = logging.getLogger(__name__)

MAX_TIMERS: Final = 1_000_000
"""Timers of one station that wait at the same time."""
LONGEST: Final = 1e9
"""Seconds that a timer may be ahead, about thirty years."""
FEW: Final = 64
"""Cancelled places that are not worth clearing away."""


def _nanoseconds(call: str, seconds: float) -> int:
    if not is_number(seconds) or not -LONGEST <= seconds <= LONGEST:
        raise NotPossible("timers", f"{call}({seconds!r:.60}, ...): a number of seconds, such as 0.5")
    return round(seconds * 1e9)


class Timer:
    """One thing to happen. Made by `Timers`."""

    __slots__ = ("_timers", "call", "due", "period")

    def __init__(self, timers: Timers, due: int, call: Callable[[], object], period: int | None) -> None:
        self._timers = timers
        self.due = due
        self.call: Callable[[], object] | None = call
        self.period = period

    def cancel(self) -> bool:
        """Not to happen; False when it has happened, or was cancelled before."""
        return self._timers.cancel(self)


class Timers:
    """See the module."""

    def __init__(self, clock: Clock, tasks: Tasks, *, limit: int = MAX_TIMERS) -> None:
        self._clock = clock
        self._tasks = tasks
        self._limit = limit
        self._lock = tasks.lock("timers")
        self._changed = tasks.condition(self._lock, "first timer")
        self._numbers = count()
        self._heap: list[tuple[int, int, Timer]] = []
        self._cancelled = 0
        self._running = False
        self._turn = 0
        """Counts the tasks that were begun."""
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    @names_options
    def after(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Once, in so many seconds."""
        return self.at(self._clock.monotonic_ns() + _nanoseconds("after", seconds), call)

    @names_options
    def every(self, seconds: float, call: Callable[[], object], first: int | None = None) -> Timer:
        """Again and again, for the first time at an instant of the monotonic clock, or in so many seconds."""
        period = _nanoseconds("every", seconds)
        if period < 1:
            raise NotPossible("timers", f"every({seconds!r}, ...): a period is above 0")
        due = self._clock.monotonic_ns() + period if first is None else first
        return self._add(Timer(self, due, call, period))

    def at(self, due: int, call: Callable[[], object], *, owed: bool = False) -> Timer:
        """At an instant of the monotonic clock, in nanoseconds; at once when it has passed.

        What is `owed` was promised before, by an earlier life: it counts, and is not refused.
        """
        return self._add(Timer(self, due, call, None), owed=owed)

    def cancel(self, timer: Timer) -> bool:
        with self._lock:
            if timer.call is None:
                return False
            timer.call = None
            self._cancelled += 1
            if self._cancelled > FEW and self._cancelled * 2 > len(self._heap):
                self._clear_away()
            return True

    def run_due(self) -> int:
        """Call what is due by now; how many that were. The task does this; a clock that jumps does too."""
        called = 0
        while (call := self._next_due()) is not None:
            called += 1
            try:
                call()
            except Exception:  # what it calls is not ours
                log.exception("a timer's call raised")
        return called

    def first_due(self) -> int | None:
        """The instant of the monotonic clock at which the next timer is due; None when none waits."""
        with self._lock:
            self._drop_cancelled()
            return self._heap[0][0] if self._heap else None

    def close(self) -> None:
        """Forget what waits; the task ends."""
        with self._lock:
            self._closed = True
            self._heap.clear()
            self._cancelled = 0
            self._changed.notify_all()

    def _add(self, timer: Timer, *, owed: bool = False) -> Timer:
        with self._lock:
            if self._closed:
                raise Closed("timers")
            if len(self) >= self._limit and not owed:
                raise TooManyTimers(self._limit)
            try:
                self._push(timer)
                if not self._running:
                    self._begin()
                elif self._heap[0][2] is timer:
                    self._changed.notify()
            except BaseException:  # an interrupt: the timer is there, and its task is to know
                self._changed.notify_all()
                raise
        return timer

    def _begin(self) -> None:
        """Have a task; one whose start was interrupted may have begun, and ends when the next one has."""
        self._turn += 1
        try:
            self._running = True
            self._tasks.spawn_soon("timers", partial(self._run, self._turn))
        except BaseException:
            self._running = False
            raise

    def _push(self, timer: Timer) -> None:
        heapq.heappush(self._heap, (timer.due, next(self._numbers), timer))

    def _next_due(self) -> Callable[[], object] | None:
        """Take the next call that is due out of the heap; a periodic one goes back in."""
        with self._lock:
            self._drop_cancelled()
            now = self._clock.monotonic_ns()
            if not self._heap or self._heap[0][0] > now:
                return None
            _, _, timer = heapq.heappop(self._heap)
            call = timer.call
            if timer.period is None:
                timer.call = None
            else:
                missed = (now - timer.due) // timer.period
                timer.due += (missed + 1) * timer.period
                self._push(timer)
            return call

    def _run(self, turn: int) -> None:
        while True:
            self.run_due()
            with self._lock:
                if turn != self._turn:
                    return
                self._drop_cancelled()
                if not self._heap:
                    self._running = False
                    return
                left = seconds_until(self._clock, self._heap[0][0])
                if left > 0:
                    self._changed.wait(left)

    # Under the lock.

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0][2].call is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1

    def _clear_away(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].call is not None]
        heapq.heapify(self._heap)
        self._cancelled = 0

"""Timers: what setting, cancelling and ringing cost while a thousand to a million others wait.

Each call works on a heap of a fixed size, so that every case has as much in it at the end as at the start:

    hold      the first timer rings, and one is set at a random instant behind it (the "hold model" of
              Vaucher and Duval 1975, by which event lists are compared)
    cancel    a timer is set at a random instant and cancelled again; its place is cleared away later, with as
              many others as there are timers, and that is part of the time when it happens

Beside them the heap alone: `heapq` with the same number of tuples, pushed and popped in the same way. Its own
growth from a thousand to a million is the raw limit: one level per doubling, and caches that no longer hold
it. No task runs: instants are made to pass by hand.
"""

from __future__ import annotations

import heapq
import random
from functools import partial
from typing import TYPE_CHECKING

from bench.harness import Benchmark, Case, Size, Target, benchmark
from heliograph.runtime.ports import ThreadTasks
from heliograph.runtime.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.runtime.ports import Task

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SPAN = 10**12
"""Nanoseconds over which timers are spread."""
CHOICES = 100_000
"""Random distances that are used again and again: drawing one would be a part of the time."""


class _ByHand(ThreadTasks):
    """Starts nothing: whoever measures lets time pass."""

    def spawn(self, name: str, run: Callable[[], object]) -> Task:  # type: ignore[override]  # there is no task
        return None  # type: ignore[return-value]


class _Clock:
    now = 0

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now


def _nothing() -> None:
    """What a timer calls."""


class Waiting:
    """So many timers, and the two things done with them."""

    def __init__(self, timers: int, chance: random.Random) -> None:
        self._clock = _Clock()
        self._timers = Timers(self._clock, _ByHand(), limit=timers + 1)
        self._distances = _cycle(chance)
        for _ in range(timers):
            self._timers.at(chance.randrange(SPAN), _nothing)

    def hold(self) -> None:
        timers = self._timers
        self._clock.now = timers._heap[0][0]  # noqa: SLF001 - the instant of the first
        timers.run_due()
        timers.at(self._clock.now + next(self._distances), _nothing)

    def cancel(self) -> None:
        self._timers.at(self._clock.now + next(self._distances), _nothing).cancel()


class RawHeap:
    """The same with tuples in a `heapq`."""

    def __init__(self, entries: int, chance: random.Random) -> None:
        self._distances = _cycle(chance)
        self._heap = [(chance.randrange(SPAN), n, _nothing) for n in range(entries)]
        heapq.heapify(self._heap)
        self._number = entries

    def hold(self) -> None:
        due, _, call = heapq.heappop(self._heap)
        call()
        self._number += 1
        heapq.heappush(self._heap, (due + next(self._distances), self._number, _nothing))


def _cycle(chance: random.Random) -> _Distances:
    return _Distances([chance.randrange(SPAN) for _ in range(CHOICES)])


class _Distances:
    def __init__(self, values: list[int]) -> None:
        self._values = values
        self._place = -1

    def __next__(self) -> int:
        self._place = (self._place + 1) % CHOICES
        return self._values[self._place]


@benchmark("timers", "Timers, while others wait: one rings and one is set; one is set and cancelled")
def timers(size: Size) -> Benchmark:
    cases = []
    for number in SIZES:
        n = size.scaled(number)
        holding, cancelling = Waiting(n, random.Random(size.seed)), Waiting(n, random.Random(size.seed))
        raw = RawHeap(n, random.Random(size.seed))
        label = f"{number:,}"
        cases += [
            Case(f"hold {label}", holding.hold, ((),)),
            Case(f"cancel {label}", cancelling.cancel, ((),)),
            Case(f"heapq {label}", raw.hold, ((),), "the raw limit of hold"),
        ]
    first, last = f"{SIZES[0]:,}", f"{SIZES[-1]:,}"
    target = partial(Target, direction="at most")
    return Benchmark(
        cases=tuple(cases),
        baseline=f"hold {first}",
        targets=(
            target("a million against a thousand, hold", f"hold {last}", limit=6.0, base=f"hold {first}"),
            target(
                "a million against a thousand, cancel", f"cancel {last}", limit=6.0, base=f"cancel {first}"
            ),
        ),
    )

"""The order `deadline`, where pushes say many different latencies: one event comes, and the earliest goes.

As many events wait at the end of a call as before it. Each latency makes a line of its own, so that ten and
ten thousand different ones show what choosing among lines costs. Beside them `heapq` alone, with a tuple for
each event: the raw limit.
"""

from __future__ import annotations

import heapq
import random
from itertools import count, cycle

import heliograph as hg
from bench.harness import Benchmark, Case, Size, Target, benchmark
from heliograph.channel.queueing.queue import EventQueue
from heliograph.model.event import LATENCY, Header
from heliograph.qos.dispatch_order import Ranking, order_named
from heliograph.runtime.ports import SystemClock, ThreadTasks

WAITING = 10_000
"""Events that wait."""
FEW, MANY = 10, 10_000
"""Different latencies."""


class Note(hg.Event, name="bench.deadline"):
    n: int


class Queued:
    """A consumer's queue with so many different latencies in it."""

    def __init__(self, latencies: int, waiting: int, chance: random.Random) -> None:
        clock = SystemClock()
        order = order_named("deadline")
        assert order is not None
        self._queue = EventQueue(
            "bench",
            clock=clock,
            tasks=ThreadTasks(),
            limit=2 * waiting,
            policy="block",
            ranking=Ranking(order, clock.monotonic_ns),
            on_ready=lambda _: None,
        )
        numbers = [n * 10**6 for n in range(1, latencies + 1)]
        chance.shuffle(numbers)
        self._items = cycle([(Note(n), _header(n), 0) for n in numbers])
        for _ in range(waiting):
            self._queue.put(next(self._items))

    def one_in_one_out(self) -> None:
        self._queue.put(next(self._items))
        self._queue.take(1)
        self._queue.done += 1
        self._queue.settle()


class RawHeap:
    """The same with tuples in a `heapq`."""

    def __init__(self, waiting: int, chance: random.Random) -> None:
        self._number = count()
        self._chance = cycle([chance.randrange(10**10) for _ in range(10_000)])
        self._heap = [(next(self._chance), next(self._number)) for _ in range(waiting)]
        heapq.heapify(self._heap)

    def one_in_one_out(self) -> None:
        heapq.heappush(self._heap, (next(self._chance), next(self._number)))
        heapq.heappop(self._heap)


def _header(latency_ns: int) -> Header:
    return Header("c", "bench.deadline", "s", 1, 1, 0, b"", 3, headers={LATENCY: str(latency_ns)})


@benchmark("dispatch-deadline", "By deadline: one event comes, and the earliest of those that wait goes")
def deadlines(size: Size) -> Benchmark:
    waiting = size.scaled(WAITING)
    few = Queued(FEW, waiting, random.Random(size.seed))
    many = Queued(size.scaled(MANY), waiting, random.Random(size.seed))
    raw = RawHeap(waiting, random.Random(size.seed))
    return Benchmark(
        cases=(
            Case(f"{FEW:,} latencies", few.one_in_one_out, ((),)),
            Case(f"{MANY:,} latencies", many.one_in_one_out, ((),)),
            Case("heapq", raw.one_in_one_out, ((),), "the raw limit"),
        ),
        baseline=f"{FEW:,} latencies",
        targets=(
            Target(
                "10,000 latencies against ten",
                f"{MANY:,} latencies",
                "at most",
                2.0,
                base=f"{FEW:,} latencies",
            ),
        ),
    )

"""The pools of workers of a station: one for each dispatch order and thread arrangement that is in use.

Channels that go by the same order and arrangement share workers (`heliograph.channel.dispatch`). Between
pools there is no order: the interpreter, or the OS, decides.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from heliograph.channel.dispatch import CALLBACK_LIMIT, Band, DispatchPool, Runnable
from heliograph.order import order_named
from heliograph.qos import HIGHEST_PRIORITY, LOWEST_PRIORITY
from heliograph.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.lane import Lane
    from heliograph.order import Order, OrderName
    from heliograph.ports import Clock, Tasks
    from heliograph.realtime import RealTime


class BandPools:
    """A pool of one worker for each priority: a lane goes to that of the highest that waits in it."""

    def __init__(self, new_pool: Callable[[str, Band], DispatchPool], real_time: RealTime | None) -> None:
        self._real_time = real_time
        self._pools = {
            priority: new_pool(f"band {priority}", self._band(priority))
            for priority in range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1)
        }

    def schedule(self, run: Runnable, priority: int) -> None:
        self._pools[priority].schedule(run, priority)

    def raise_to(self, run: Runnable, priority: int) -> None:
        """Something higher waits in a lane that may be ready in a lower band."""
        for lower in range(LOWEST_PRIORITY, priority):
            if self._pools[lower].withdraw(run):
                self.schedule(run, priority)
                return

    def withdraw(self, run: Runnable) -> bool:
        return any(pool.withdraw(run) for pool in self._pools.values())

    def runs_here(self, lane: Lane) -> bool:
        return any(pool.runs_here(lane) for pool in self._pools.values())

    def workers(self) -> int:
        return sum(pool.workers() for pool in self._pools.values())

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        if self._real_time is not None:
            self._real_time.close()

    def _band(self, priority: int) -> Band:
        if self._real_time is None:
            return Band(priority, self.schedule, lambda: None, lambda: None)
        return Band(priority, self.schedule, partial(self._real_time.enter, priority), self._real_time.leave)


Pool: TypeAlias = DispatchPool | BandPools


class Pools:
    """See the module."""

    def __init__(self, clock: Clock, tasks: Tasks, *, callback_limit: float = CALLBACK_LIMIT) -> None:
        self._clock = clock
        self._tasks = tasks
        self._callback_limit = callback_limit
        self._lock = tasks.lock("pools")
        self.strict = self._new("dispatch")
        # With the order, so that its identity stays its own.
        self._others: dict[tuple[int, Threads], tuple[Order | None, Pool]] = {}

    def of(self, order: OrderName | Order, threads: Threads) -> Pool:
        """The pool of an order and arrangement; orders of the user's own are told apart by identity."""
        chosen = order_named(order)
        if threads.kind == "inline" or (threads.kind == "bands" and chosen is not None):
            threads = Threads()  # for a receiver that has a queue, or goes by another order, even so
        if chosen is None and threads == Threads():
            return self.strict
        key = (0 if chosen is None else id(chosen), threads)
        with self._lock:
            found = self._others.get(key)
            if found is None:
                found = self._others[key] = (chosen, self._opened(order, chosen, threads))
            return found[1]

    def runs_here(self, lane: Lane) -> bool:
        """Whether the calling thread is just delivering from this lane."""
        return any(pool.runs_here(lane) for pool in self._all())

    def close(self) -> None:
        for pool in self._all():
            pool.close()

    def _opened(self, order: OrderName | Order, chosen: Order | None, threads: Threads) -> Pool:
        if threads.kind == "bands":
            return BandPools(lambda name, band: self._new(name, workers=1, band=band), _real_time(threads))
        name = order if isinstance(order, str) else type(order).__name__
        return self._new(f"dispatch {name}", order=chosen, workers=threads.workers)

    def _new(
        self,
        name: str,
        *,
        order: Order | None = None,
        workers: int | None = None,
        band: Band | None = None,
    ) -> DispatchPool:
        return DispatchPool(
            self._clock,
            self._tasks,
            name=name,
            callback_limit=self._callback_limit,
            order=order,
            workers=workers,
            band=band,
        )

    def _all(self) -> list[Pool]:
        with self._lock:
            return [self.strict, *(pool for _, pool in self._others.values())]


def _real_time(threads: Threads) -> RealTime | None:
    if not threads.os_priorities:
        return None
    from heliograph.realtime import RealTime  # noqa: PLC0415 - few programs ask for it

    return RealTime(threads.core)

"""A worker for each priority: a higher one is called while a lower one is inside a callback."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from heliograph.channel.dispatch.pool import Band, DispatchPool, Runnable
from heliograph.qos.policies import HIGHEST_PRIORITY, LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.runtime.realtime import RealTime


class BandPools:
    """A pool of one worker for each priority: a queue goes to that of the highest that waits in it."""

    def __init__(self, new_pool: Callable[[str, Band], DispatchPool], real_time: RealTime | None) -> None:
        self._real_time = real_time
        self._pools = {
            priority: new_pool(f"band {priority}", self._band(priority))
            for priority in range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1)
        }

    def schedule(self, run: Runnable, priority: int) -> None:
        self._pools[priority].schedule(run, priority)

    def raise_to(self, run: Runnable, priority: int) -> None:
        """Something higher waits in a queue that may be ready in a lower band."""
        try:
            for lower in range(LOWEST_PRIORITY, priority):
                if self._pools[lower].withdraw(run):
                    self.schedule(run, priority)
                    return
        except BaseException:
            if not run.queue.announced:  # interrupted between the two
                self.schedule(run, priority)
            raise

    def withdraw(self, run: Runnable) -> bool:
        return any(pool.withdraw(run) for pool in self._pools.values())

    def runs_here(self, queue: EventQueue) -> bool:
        return any(pool.runs_here(queue) for pool in self._pools.values())

    def busy_ns(self) -> int:
        return max(pool.busy_ns() for pool in self._pools.values())

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

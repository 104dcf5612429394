"""Workers for each priority, one or as many as a strategy says: a higher one is called while a lower one is
inside a callback.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Literal

from heliograph.channel.dispatch.pool import Band, DispatchPool, Runnable
from heliograph.errors import NotPossible
from heliograph.qos.policies import HIGHEST_PRIORITY, LOWEST_PRIORITY
from heliograph.qos.threads import MAX_POOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.qos.threads import ThreadStrategy
    from heliograph.runtime.realtime import RealTime


log = logging.getLogger(__name__)


def _workers(strategy: ThreadStrategy | None, priority: int) -> int:
    if strategy is None:
        return 1
    workers = strategy.workers(priority)
    if type(workers) is not int or not 1 <= workers <= MAX_POOL:
        raise NotPossible(
            f"threads of {type(strategy).__name__}",
            f"workers({priority}) is {workers!r}: a whole number from 1 to {MAX_POOL}",
        )
    return workers


def _tell(strategy: ThreadStrategy, priority: int, what: Literal["begin", "end"]) -> None:
    """A strategy that raises costs no callback: what it wanted of the thread is not so, and that is said."""
    try:
        getattr(strategy, what)(priority)
    except Exception:
        log.exception("%s.%s(%d) raised; its worker goes on", type(strategy).__name__, what, priority)


class BandPools:
    """A pool of one worker for each priority: a queue goes to that of the highest that waits in it."""

    def __init__(
        self,
        new_pool: Callable[[str, int, Band], DispatchPool],
        real_time: RealTime | None,
        strategy: ThreadStrategy | None = None,
    ) -> None:
        self._real_time = real_time
        self._strategy = strategy
        priorities = range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1)
        workers = {priority: _workers(strategy, priority) for priority in priorities}
        self._pools = {
            priority: new_pool(f"band {priority}", workers[priority], self._band(priority))
            for priority in priorities
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
        if self._strategy is not None:
            told = partial(_tell, self._strategy, priority)
            return Band(priority, self.schedule, partial(told, "begin"), partial(told, "end"))
        if self._real_time is None:
            return Band(priority, self.schedule, lambda: None, lambda: None)
        return Band(priority, self.schedule, partial(self._real_time.enter, priority), self._real_time.leave)

"""The dispatch pools of a station: one for each dispatch order and thread arrangement in use.

Channels that go by the same order and arrangement share workers (`heliograph.channel.dispatch.pool`). Between
pools there is no order: the interpreter, or the OS, decides. A pool ends with the last who uses it;
the usual one, and the few with a worker for each priority, end with the station.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from heliograph.errors import NotPossible
from heliograph.qos.dispatch_order import order_named
from heliograph.qos.threads import Threads

if TYPE_CHECKING:
    from heliograph.channel.dispatch.pool import Band, DispatchPool, Runnable
    from heliograph.channel.dispatch.priority_workers import BandPools
    from heliograph.channel.dispatch.reader_handover import Reader
    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.qos.dispatch_order import Order, OrderName
    from heliograph.runtime.ports import Clock, Tasks
    from heliograph.runtime.realtime import RealTime


Pool: TypeAlias = "DispatchPool | BandPools"

CALLBACK_LIMIT: Final = 30.0
"""Seconds after which a callback counts as stuck."""
SUSPEND_AFTER: Final = 1.0
"""Seconds after which a callback that has not returned, and whose queue is full, holds up nobody any more."""


class _Used:
    """A pool and how many use it, with its order, so that the identity of that stays its own."""

    def __init__(self, order: Order | None, pool: Pool) -> None:
        self.order = order
        self.pool = pool
        self.users = 0


class Pools:
    """See the module."""

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        *,
        callback_limit: float = CALLBACK_LIMIT,
        dispatching: bool = True,
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self.callback_limit = callback_limit
        self.dispatching = dispatching
        """Whether there are workers at all; without, callbacks run inside push."""
        self._lock = tasks.lock("pools")
        self._others: dict[tuple[int, Threads], _Used] = {}
        self.readers: dict[int, Reader] = {}
        """Those of links, by the thread that reads; see `heliograph.channel.dispatch.reader_handover`."""

    @cached_property
    def strict(self) -> DispatchPool:
        """The usual one. Its module is loaded when the first callback is queued."""
        return self._new("dispatch", readers=self.readers)

    @cached_property
    def _acknowledging(self) -> DispatchPool:
        return self._new("acknowledging")

    def prepare_acknowledging(self) -> None:
        """Have a pool for functions that acknowledge, where there is dispatching; or NoThreadLeft.

        All of them share it, and nothing else does: their threads wait for disks and for other stations.
        """
        if self.dispatching:
            _ = self._acknowledging

    def run_acknowledging(self, run: Runnable) -> None:
        """Run what takes and acknowledges by itself; without dispatching in a task of its own."""
        if self.dispatching:
            self._acknowledging.schedule(run, run.queue.highest())
        else:
            self._drain(run)

    def reader(self, name: str, *, is_direct: bool = False) -> Reader:
        """What a thread that reads a link runs callbacks with."""
        from heliograph.channel.dispatch.reader_handover import Reader  # noqa: PLC0415 - stations on their own read no links

        return Reader(name, self.readers, self._clock, self._tasks, is_direct=is_direct)

    def of(self, order: OrderName | Order, threads: Threads) -> Pool:
        """The pool of an order and arrangement, until `leave`; a user's own orders go by identity."""
        chosen = order_named(order)
        if threads.kind == "inline" or (threads.kind == "bands" and chosen is not None):
            threads = Threads()  # for a receiver that has a queue, or goes by another order, even so
        if chosen is None and threads == Threads():
            return self.strict
        key = (0 if chosen is None else id(chosen), threads)
        with self._lock:
            found = self._others.get(key)
            if found is None:
                found = self._others[key] = _Used(chosen, self._opened(order, chosen, threads))
            found.users += 1
            return found.pool

    def run_timed(self, run: Runnable, queue: EventQueue) -> None:
        """Run what a timer has made ready: by the usual workers, or without any in a task of its own."""
        if self.dispatching:
            self.strict.schedule(run, queue.highest())
            return

        self._drain(run, queue.name)

    def _drain(self, run: Runnable, name: str = "acknowledging") -> None:
        def drain() -> None:
            while run.run_batch():
                pass

        self._tasks.spawn_soon(name, drain)

    def leave(self, pool: Pool) -> None:
        """One who asked for it needs it no more. Without any its workers end, after what they are at."""
        with self._lock:
            key = next((key for key, used in self._others.items() if used.pool is pool), None)
            if key is None:
                return
            used = self._others[key]
            used.users -= 1
            if used.users or key[1].kind == "bands":
                return
            del self._others[key]
        pool.close()

    def check(self, order: OrderName | Order, threads: Threads) -> None:
        """Raise what asking for this pool would."""
        self.leave(self.of(order, threads))

    def runs_here(self, queue: EventQueue) -> bool:
        """Whether the calling thread is just delivering from this queue."""
        return any(pool.runs_here(queue) for pool in self._all())

    def busy(self) -> float:
        """Seconds that the queued callback has been running that runs longest."""
        return max((pool.busy_ns() for pool in self._all()), default=0) / 1e9

    def close(self) -> None:
        for pool in self._all():
            pool.close()

    def _opened(self, order: OrderName | Order, chosen: Order | None, threads: Threads) -> Pool:
        if threads.kind == "bands":
            from heliograph.channel.dispatch.priority_workers import BandPools  # noqa: PLC0415 - few channels have them

            def new_pool(name: str, workers: int, band: Band) -> DispatchPool:
                return self._new(name, workers=workers, band=band)

            return BandPools(new_pool, _real_time(threads), threads.strategy)
        name = order if isinstance(order, str) else type(order).__name__
        return self._new(f"dispatch {name}", order=chosen, workers=threads.workers)

    def _new(
        self,
        name: str,
        *,
        order: Order | None = None,
        workers: int | None = None,
        band: Band | None = None,
        readers: dict[int, Reader] | None = None,
    ) -> DispatchPool:
        if not self.dispatching:
            raise NotPossible(
                "dispatch",
                "this station's configuration has no dispatching: callbacks run inside push, inline=",
            )
        from heliograph.channel.dispatch.pool import DispatchPool  # noqa: PLC0415 - not every configuration has it

        return DispatchPool(
            self._clock,
            self._tasks,
            name=name,
            callback_limit=self.callback_limit,
            order=order,
            workers=workers,
            band=band,
            readers=readers,
        )

    def _all(self) -> list[Pool]:
        with self._lock:
            others = [used.pool for used in self._others.values()]
        # Looked up where they are kept: to ask for them would make them.
        own = [pool for name in ("strict", "_acknowledging") if (pool := self.__dict__.get(name)) is not None]
        return [*own, *others]


def _real_time(threads: Threads) -> RealTime | None:
    if not threads.os_priorities:
        return None
    from heliograph.runtime.realtime import RealTime  # noqa: PLC0415 - few programs ask for it

    return RealTime(threads.core, background=threads.background)

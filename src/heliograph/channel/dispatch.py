"""The workers that call queued callbacks, and the watch that keeps one callback from hurting the others.

A lane with something to take is *ready*. Ready lanes wait by priority; a worker takes the first of the
highest, delivers one batch and puts it back if more waits. A lane is ready once at most, so one callback
never runs twice at the same time and its events keep their order. When a lane gets ready that is higher than
one that is being delivered, and every worker is busy, that one stops after its callback and waits again.
With an order other than `strict` (`heliograph.order`) that chooses among the heads of all ready lanes.

Few workers are best under CPython's one interpreter lock. The watch adds one when ready lanes wait while
every worker is inside a callback (a sleep, a slow request), and reports and detaches a subscription whose
callback has not come back for `callback_limit` seconds. When nothing is ready nothing runs at all.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import get_ident  # only to know a thread again; threads themselves come from the port
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from heliograph.errors import QueueClosed
from heliograph.order import choose
from heliograph.qos import HIGHEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.lane import Lane
    from heliograph.order import Order
    from heliograph.ports import Clock, Queue, Tasks

WORKERS: Final = 2
"""Workers at rest."""
MAX_WORKERS: Final = 256
"""Workers when callbacks block; each is a thread that mostly sleeps."""
WATCH_EVERY: Final = 0.02
"""Seconds: how long ready lanes wait behind blocked callbacks before a worker is added."""
LINGER: Final = 5.0
"""Seconds that an extra worker waits for work before it ends."""


class Runnable(Protocol):
    """What the pool runs: a subscription whose lane is ready."""

    lane: Lane

    @property
    def progress(self) -> int:
        """Goes up with every callback that came back."""
        ...

    def run_batch(self) -> bool:
        """Deliver one batch; whether to come back for more."""
        ...

    def stuck(self, seconds: float) -> None:
        """The callback has not returned for so long: report, detach."""
        ...


class _Worker:
    """What the watch knows of one worker."""

    __slots__ = ("replaced", "running", "seen", "since_ns", "thread")

    def __init__(self) -> None:
        self.running: Runnable | None = None
        self.thread = 0
        self.replaced = False
        # The watch alone writes these two: what it saw last, and since when it sees no change.
        self.seen: tuple[Runnable, int] | None = None
        self.since_ns = 0


class _ByPriority:
    """Ready lanes, those of the highest priority first."""

    def __init__(self, tasks: Tasks) -> None:
        self._lock = tasks.lock("ready")
        self._bands: list[deque[Runnable]] = [deque() for _ in range(HIGHEST_PRIORITY + 1)]

    def add(self, run: Runnable, priority: int) -> None:
        self._bands[priority].append(run)

    def remove(self, run: Runnable) -> bool:
        """Whether it was there."""
        with self._lock:
            for band in self._bands:
                with suppress(ValueError):
                    band.remove(run)
                    return True
        return False

    def raise_to(self, run: Runnable, priority: int) -> None:
        """Something higher waits in a lane that may be ready."""
        with self._lock:
            for band in self._bands[:priority]:
                with suppress(ValueError):
                    band.remove(run)
                    self._bands[priority].append(run)
                    return

    def pop(self) -> Runnable | None:
        with self._lock:
            for band in reversed(self._bands):
                if band:
                    return band.popleft()
        return None


class _ByOrder:
    """Ready lanes, of which an order chooses by what stands first in each."""

    def __init__(self, order: Order, clock: Clock, tasks: Tasks) -> None:
        self._order = order
        self._clock = clock
        self._lock = tasks.lock("ready")
        self._runs: list[Runnable] = []

    def add(self, run: Runnable, priority: int) -> None:  # noqa: ARG002 - the order decides
        with self._lock:
            self._runs.append(run)

    def raise_to(self, run: Runnable, priority: int) -> None:
        """The order looks at each lane when it chooses."""

    def remove(self, run: Runnable) -> bool:
        """Whether it was there."""
        with self._lock:
            found = run in self._runs
            if found:
                self._runs.remove(run)
        return found

    def pop(self) -> Runnable | None:
        """No lock is held while the order chooses."""
        while True:
            with self._lock:
                runs = list(self._runs)
            if not runs:
                return None
            chosen = self._chosen(runs) if len(runs) > 1 else runs[0]
            if self.remove(chosen):
                return chosen

    def _chosen(self, runs: list[Runnable]) -> Runnable:
        """A lane that was emptied meanwhile, or has to read the journal, goes first: it is no work."""
        heads = []
        for run in runs:
            head = run.lane.head()
            if head is None:
                return run
            heads.append((head, run))
        heads.sort(key=lambda pair: pair[0].arrival)
        return heads[choose(self._order, [head for head, _ in heads], self._clock.monotonic_ns())][1]


class Band(NamedTuple):
    """What a pool must know that has one priority among several pools."""

    priority: int
    schedule: Callable[[Runnable, int], object]
    """Gives a lane back whose priority may have changed."""
    enter: Callable[[], object]
    """Called by each worker when it begins, and `leave` when it ends."""
    leave: Callable[[], object]


class DispatchPool:
    """See the module."""

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        *,
        name: str = "dispatch",
        callback_limit: float,
        order: Order | None = None,
        workers: int | None = None,
        band: Band | None = None,
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._name = name
        self._callback_limit = callback_limit
        self._at_rest = workers
        self._band = band
        self._again = self.schedule if band is None else band.schedule
        self._lock = tasks.lock("dispatch")
        self._ready = _ByPriority(tasks) if order is None else _ByOrder(order, clock, tasks)
        self.raise_to = self._ready.raise_to
        # One token per ready entry, or more when one was withdrawn.
        self._tokens: Queue[int] = tasks.queue("ready lanes", 1 << 30)
        self._workers: list[_Worker] = []
        self._idle = 0
        self._work_came = tasks.signal("work for the watch")
        self._watching = False
        self._closed = False

    def schedule(self, run: Runnable, priority: int) -> None:
        """Have a worker run a batch. The caller sees to it that it is not scheduled twice at a time."""
        self._ready.add(run, priority)
        try:
            self._tokens.put(1)
        except QueueClosed:
            return
        if self._idle == 0:
            self._halt_below(priority)
            self._add_worker(self._at_rest or WORKERS)
        self._work_came.notify()

    def withdraw(self, run: Runnable) -> bool:
        """Whether it was ready, and is no more."""
        return self._ready.remove(run)

    def _halt_below(self, priority: int) -> None:
        """Every worker is busy: one that delivers something lower gives way after its callback.

        It looks for a token when it has stopped. So one that goes on with its next batch at this very instant
        finds this one.
        """
        running = [run.lane for worker in self._workers if (run := worker.running) is not None]
        lowest = min(running, key=lambda lane: lane.level, default=None)
        if lowest is not None and lowest.level < priority:
            lowest.halted = True

    def runs_here(self, lane: Lane) -> bool:
        """Whether the calling thread is just delivering from this lane."""
        here = get_ident()
        return any(
            w.thread == here and w.running is not None and w.running.lane is lane for w in self._workers
        )

    def close(self) -> None:
        """Let workers end when nothing is ready; those inside a stuck callback end with the process."""
        with self._lock:
            self._closed = True
        self._tokens.close()
        self._work_came.notify()

    def workers(self) -> int:
        with self._lock:
            return len(self._workers)

    def busy_ns(self) -> int:
        """How long the callback has been running that runs longest, as far as the watch has seen."""
        now = self._clock.monotonic_ns()
        with self._lock:
            since = [w.since_ns for w in self._workers if w.running is not None and w.seen is not None]
        return now - min(since, default=now)

    def _add_worker(self, most: int) -> None:
        with self._lock:
            if len(self._workers) >= most or self._closed:
                return
            worker = _Worker()
            self._workers.append(worker)
            number = len(self._workers)
            start_watch = not self._watching
            self._watching = True
        extra = number > (self._at_rest or WORKERS)
        self._tasks.spawn(f"{self._name}-{number}", lambda: self._work(worker, extra))
        if start_watch:
            self._tasks.spawn(f"{self._name}-watch", self._watch)

    def _work(self, worker: _Worker, extra: bool) -> None:
        worker.thread = get_ident()
        if self._band is not None:
            self._band.enter()
        try:
            while not worker.replaced and self._next_token(extra):
                run = worker.running = self._ready.pop()
                if run is not None:
                    self._deliver(worker, run)
        finally:
            if self._band is not None:
                self._band.leave()
            with self._lock:
                if worker in self._workers:
                    self._workers.remove(worker)

    def _deliver(self, worker: _Worker, run: Runnable) -> None:
        # It was empty when it came here, and what has come since may belong to another band.
        again = run.run_batch() if self._is_mine(run) else True
        while again and not len(self._tokens) and not worker.replaced and self._is_mine(run):
            again = run.run_batch()  # nobody else waits: going round by the queue would only cost
        worker.running = None
        if again:
            self._again(run, run.lane.highest())

    def _is_mine(self, run: Runnable) -> bool:
        return self._band is None or run.lane.highest() == self._band.priority

    def _next_token(self, extra: bool) -> bool:
        with self._lock:
            self._idle += 1
        try:
            return self._tokens.get(LINGER if extra else None) is not None
        except QueueClosed:
            return False
        finally:
            with self._lock:
                self._idle -= 1

    def _watch(self) -> None:
        while not self._closed:
            if self._all_quiet():
                self._work_came.wait()
            self._tasks.sleep(WATCH_EVERY)
            self._look()

    def _all_quiet(self) -> bool:
        with self._lock:
            return not len(self._tokens) and not any(worker.running for worker in self._workers)

    def _look(self) -> None:
        now = self._clock.monotonic_ns()
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            run = worker.running
            seen = None if run is None else (run, run.progress)
            if run is None or seen != worker.seen:
                worker.seen, worker.since_ns = seen, now
            elif now - worker.since_ns > self._callback_limit * 1e9:
                self._give_up(worker, run, (now - worker.since_ns) / 1e9)
        if len(self._tokens) and self._idle == 0:
            self._add_worker(MAX_WORKERS)

    def _give_up(self, worker: _Worker, run: Runnable, seconds: float) -> None:
        """Leave a worker to its callback: it ends when that returns, if ever."""
        worker.replaced = True
        with self._lock:
            self._workers.remove(worker)
        run.stuck(seconds)

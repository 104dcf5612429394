"""The workers that call queued callbacks, and the watch that keeps one callback from hurting the others.

A lane with something to take is *ready*. Ready lanes wait by priority; a worker takes the first of the
highest, delivers one batch and puts it back if more waits. A lane is ready once at most, so one callback
never runs twice at the same time and its events keep their order.

Few workers are best under CPython's one interpreter lock. The watch adds one when ready lanes wait while
every worker is inside a callback (a sleep, a slow request), and reports and detaches a subscription whose
callback has not come back for `callback_limit` seconds. When nothing is ready nothing runs at all.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import get_ident  # only to know a thread again; threads themselves come from the port
from typing import TYPE_CHECKING, Final, Protocol

from heliograph.errors import QueueClosed
from heliograph.qos import HIGHEST_PRIORITY

if TYPE_CHECKING:
    from heliograph.channel.lane import Lane
    from heliograph.ports import Clock, Queue, Tasks

WORKERS: Final = 2
"""Workers at rest."""
MAX_WORKERS: Final = 256
"""Workers when callbacks block; each is a thread that mostly sleeps."""
WATCH_EVERY: Final = 0.02
"""Seconds: how long ready lanes wait behind blocked callbacks before a worker is added."""
LINGER: Final = 5.0
"""Seconds that an extra worker waits for work before it ends."""
CALLBACK_LIMIT: Final = 30.0
"""Seconds after which a callback counts as stuck."""


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


class DispatchPool:
    """See the module."""

    def __init__(
        self, clock: Clock, tasks: Tasks, *, name: str = "dispatch", callback_limit: float = CALLBACK_LIMIT
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._name = name
        self._callback_limit = callback_limit
        self._lock = tasks.lock("dispatch")
        self._ready: list[deque[Runnable]] = [deque() for _ in range(HIGHEST_PRIORITY + 1)]
        # One token per ready entry: a worker that gets one is sure to find something.
        self._tokens: Queue[int] = tasks.queue("ready lanes", 1 << 30)
        self._workers: list[_Worker] = []
        self._idle = 0
        self._work_came = tasks.signal("work for the watch")
        self._watching = False
        self._closed = False

    def schedule(self, run: Runnable, priority: int) -> None:
        """Have a worker run a batch. The caller sees to it that it is not scheduled twice at a time."""
        self._ready[priority].append(run)
        try:
            self._tokens.put(1)
        except QueueClosed:
            return
        if self._idle == 0:
            self._add_worker(WORKERS)
        self._work_came.notify()

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

    def _add_worker(self, most: int) -> None:
        with self._lock:
            if len(self._workers) >= most or self._closed:
                return
            worker = _Worker()
            self._workers.append(worker)
            number = len(self._workers)
            start_watch = not self._watching
            self._watching = True
        self._tasks.spawn(f"{self._name}-{number}", lambda: self._work(worker, number > WORKERS))
        if start_watch:
            self._tasks.spawn(f"{self._name}-watch", self._watch)

    def _work(self, worker: _Worker, extra: bool) -> None:
        worker.thread = get_ident()
        try:
            while not worker.replaced and self._next_token(extra):
                run = worker.running = self._pop_highest()
                again = run.run_batch()
                while again and not len(self._tokens) and not worker.replaced:
                    again = run.run_batch()  # nobody else waits: going round by the queue would only cost
                worker.running = None
                if again:
                    self.schedule(run, run.lane.highest())
        finally:
            with self._lock:
                if worker in self._workers:
                    self._workers.remove(worker)

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

    def _pop_highest(self) -> Runnable:
        # A token stands for an entry, so this ends; another worker may only be faster at the first band.
        while True:
            for band in reversed(self._ready):
                if band:
                    with suppress(IndexError):
                        return band.popleft()

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

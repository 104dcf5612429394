"""Tasks that many share: a call is run by one that is free, or by a new one up to a limit.

    pool = TaskPool(tasks, "journal committer", limit=8)
    pool.submit(commit)
    pool.close()                             # when what was submitted has run

A task ends when nobody has wanted it for a while, but for the last `resident` ones. Calls beyond the limit
wait in the order in which they were submitted, and so do those for which the host has no thread left. A call
that is about to wait for something other than the machine, such as user code, steps aside meanwhile: its task
no longer counts, so that others are served however long it takes, and calls that wait for each other cannot
use up all tasks.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from heliograph.errors import Closed, NoThreadLeft

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.runtime.ports import Task, Tasks

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 1.0
"""How long a task waits for another call before it ends: starting one costs about 0.1 ms."""


class _Worker:
    """One task of a pool, and the call that it was handed while it was idle."""

    __slots__ = ("bell", "call", "task")

    def __init__(self, tasks: Tasks, name: str, call: Callable[[], object]) -> None:
        self.bell = tasks.signal(name)
        self.call: Callable[[], object] | None = call
        self.task: Task | None = None


class TaskPool:
    """See the module.

    Args:
        tasks: starts them.
        name: of the pool and its tasks.
        limit: calls that run at the same time, apart from those that stepped aside; as many may have stepped
            back.
        resident: tasks that stay when there is nothing to do, once they were started.
        idle_seconds: how long the others stay.
    """

    def __init__(
        self, tasks: Tasks, name: str, *, limit: int, resident: int = 0, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._tasks = tasks
        self._name = name
        self._limit = limit
        self._resident = resident
        self._idle_seconds = idle_seconds
        self._lock = tasks.lock(f"pool {name}")
        self._fewer = tasks.condition(self._lock, f"pool {name}")
        self._waiting: deque[Callable[[], object]] = deque()
        self._idle: list[_Worker] = []
        """The last to become idle comes last, and is taken first: those before it may end."""
        self._workers: set[_Worker] = set()
        self._busy = 0
        self._is_late = False
        """Whether a task is being started for calls that wait, as soon as a thread is left."""
        self._closed = False

    def start(self) -> None:
        """Have one task there, if there is none: NoThreadLeft when that cannot be."""
        with self._lock:
            if not self._workers:
                self._spawn(lambda: None)

    @property
    def crowded(self) -> bool:
        """Whether calls wait for a task. A long call that can be divided lets them go first."""
        return bool(self._waiting)

    def __len__(self) -> int:
        """Tasks that are there."""
        return len(self._workers)

    def submit(self, call: Callable[[], object]) -> None:
        """Have this called soon. What it raises is logged."""
        with self._lock:
            if self._closed:
                raise Closed(f"pool {self._name}")
            if self._idle:
                worker = self._idle.pop()
                worker.call = call
                self._busy += 1
                worker.bell.notify()
            else:
                self._waiting.append(call)
                self._serve_waiting()

    def step_aside(self) -> None:
        """Called inside a call that may wait for long: another takes its place until `step_back`."""
        with self._lock:
            self._busy -= 1
            self._serve_waiting()

    def step_back(self) -> None:
        """The call goes on, beside the one that took its place if there is one."""
        with self._lock:
            self._busy += 1

    def close(self) -> None:
        """Run what was submitted, then end all tasks. Not to be called by one of them."""
        with self._lock:
            self._closed = True
            for worker in self._idle:
                worker.bell.notify()
            self._idle.clear()
            workers = tuple(self._workers)
        for worker in workers:
            if worker.task is not None:
                worker.task.join()
        with self._lock:
            self._fewer.wait_for(lambda: not self._workers)
            left, self._waiting = self._waiting, deque()
        for call in left:  # no thread was left for them, and here is one
            self._run(call)

    # Under the lock.

    def _spawn(self, call: Callable[[], object]) -> None:
        worker = self._added(call)
        try:
            worker.task = self._tasks.spawn(self._name, lambda: self._work(worker))
        except BaseException:
            self._workers.discard(worker)
            self._busy -= 1
            raise

    def _added(self, call: Callable[[], object]) -> _Worker:
        worker = _Worker(self._tasks, self._name, call)
        self._workers.add(worker)
        self._busy += 1
        return worker

    def _gone(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        self._fewer.notify_all()

    def _serve_waiting(self) -> None:
        """Start a task for the call that waits longest. Where none can be started now, those that are there
        come to it, or one that is started later.
        """
        if not self._waiting or self._busy >= self._limit or self._is_late:
            return
        call = self._waiting.popleft()
        try:
            self._spawn(call)
        except NoThreadLeft:
            self._waiting.appendleft(call)
            self._tasks.spawn_soon(self._name, self._work_late)
            self._is_late = True

    def _is_closed(self) -> bool:
        return self._closed

    # In a task.

    def _work_late(self) -> None:
        with self._lock:
            self._is_late = False
            if not self._waiting or self._busy >= self._limit:
                return
            worker = self._added(self._waiting.popleft())
            self._serve_waiting()
        self._work(worker)

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            log.exception("%s: a call failed", self._name)

    def _work(self, worker: _Worker) -> None:
        call, worker.call = worker.call, None
        try:
            while call is not None:
                self._run(call)
                call = self._next(worker)
        except BaseException:
            # What a call raised that must not be caught ends the task; the calls that wait need another.
            with self._lock:
                self._gone(worker)
                self._busy -= 1
                self._serve_waiting()
            raise

    def _next(self, worker: _Worker) -> Callable[[], object] | None:
        """The next call, for which the task counts as busy; None when the task is to end."""
        with self._lock:
            if self._waiting:
                # Also where another took its place while it was aside: to end this one would only mean that
                # the next that steps aside starts another.
                return self._waiting.popleft()
            self._busy -= 1
            if self._closed:
                self._gone(worker)
                return None
            self._idle.append(worker)
        while True:
            worker.bell.wait(self._idle_seconds)
            with self._lock:
                call, worker.call = worker.call, None
                if call is not None:
                    return call
                if len(self._workers) > self._resident or self._is_closed():
                    if worker in self._idle:
                        self._idle.remove(worker)
                    self._gone(worker)
                    return None

"""What tasks wait on, simulated: the contracts of `Tasks` in `heliograph.runtime.ports` over a `Scheduler`.

Every call is a place where the scheduler may let another task run: before a lock is taken and after it is
released, before a flag is looked at, before a queue is changed. The queue itself is the real one, running on
simulated locks, so its own code is explored along with its users'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from heliograph.errors import NoThreadLeft
from heliograph.runtime.late_starts import FIRST_PAUSE, LONGEST_PAUSE, StartStalls, starts
from heliograph.runtime.ports import BoundedQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from heliograph.runtime.ports import Lock
    from heliograph.sim.scheduler import ScheduledTask, Scheduler

T = TypeVar("T")


class SimLock:
    """A lock that any waiter may win when it is released, as with threads."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self._scheduler = scheduler
        self._locked = False
        self._holder: object = None
        self._waiters: list[ScheduledTask] = []

    def mine(self) -> bool:
        return self._locked and self._holder is self._scheduler.current

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self._scheduler
        scheduler.step("lock", self.name)
        deadline_ns = None if timeout < 0 else scheduler.now_ns + round(timeout * 1e9)
        while self._locked:
            left = None if deadline_ns is None else (deadline_ns - scheduler.now_ns) / 1e9
            if not blocking or (left is not None and left <= 0):
                return False
            _wait_among(self._waiters, scheduler, f"lock {self.name!r}", left)
        self._locked = True
        self._holder = scheduler.current
        return True

    def release(self) -> None:
        if self._scheduler.halted():
            if self.mine():  # of a process that died: others that share it, as a network is, go on
                self.open()
            return
        if self._locked and not self.mine():
            raise RuntimeError(f"lock {self.name!r} is another task's")
        self.open()
        self._scheduler.step("unlock", self.name)

    def open(self) -> None:
        """Release without letting others run yet."""
        if not self._locked:
            raise RuntimeError("release unlocked lock")
        self._locked = False
        _wake(self._waiters, self._scheduler, 1)

    def locked(self) -> bool:
        return self._locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimCondition:
    """A condition that wakes its waiters in the order in which they came."""

    def __init__(self, scheduler: Scheduler, lock: SimLock, name: str) -> None:
        self.name = name
        self._scheduler = scheduler
        self._lock = lock
        self._waiters: list[ScheduledTask] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._insist_on_lock("wait")
        self._lock.open()
        try:
            return _wait_among(self._waiters, self._scheduler, f"condition {self.name!r}", timeout)
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        deadline_ns = None if timeout is None else self._scheduler.now_ns + round(timeout * 1e9)
        result = predicate()
        while not result:
            left = None if deadline_ns is None else (deadline_ns - self._scheduler.now_ns) / 1e9
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        if self._scheduler.halted():
            return
        self._insist_on_lock("notify")
        _wake(self._waiters, self._scheduler, n)

    def notify_all(self) -> None:
        self.notify(len(self._waiters))

    def _insist_on_lock(self, what: str) -> None:
        if not self._lock.locked():
            raise RuntimeError(f"cannot {what} on un-acquired lock")


class SimEvent:
    """A flag that stays up."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self._scheduler = scheduler
        self._set = False
        self._waiters: list[ScheduledTask] = []

    def is_set(self) -> bool:
        self._scheduler.step("event.is_set", self.name)
        return self._set

    def set(self) -> None:
        self._scheduler.step("event.set", self.name)
        self._set = True
        _wake(self._waiters, self._scheduler, len(self._waiters))

    def clear(self) -> None:
        self._scheduler.step("event.clear", self.name)
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._scheduler.step("event.wait", self.name)
        return self._set or _wait_among(self._waiters, self._scheduler, f"event {self.name!r}", timeout)


class SimSignal:
    """A bell for one waiter."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self._scheduler = scheduler
        self._rung = False
        self._waiters: list[ScheduledTask] = []

    def notify(self) -> None:
        self._scheduler.step("signal.notify", self.name)
        self._rung = True
        _wake(self._waiters, self._scheduler, 1)

    def wait(self, timeout: float | None = None) -> bool:
        self._scheduler.step("signal.wait", self.name)
        if not self._rung:
            _wait_among(self._waiters, self._scheduler, f"signal {self.name!r}", timeout)
        rung, self._rung = self._rung, False
        return rung


class SimTask:
    """The handle of a task."""

    def __init__(self, scheduler: Scheduler, task: ScheduledTask) -> None:
        self.name = task.name
        self._scheduler = scheduler
        self._task = task

    def join(self, timeout: float | None = None) -> bool:
        scheduler, task = self._scheduler, self._task
        scheduler.step("task.join", self.name)
        if task is scheduler.current:
            raise RuntimeError("cannot join current thread")
        if not task.ended:
            _wait_among(task.joiners, scheduler, f"task {self.name!r}", timeout)
        if not task.ended:
            return False
        if task.error is not None:
            task.joined = True
            raise task.error
        return True

    def done(self) -> bool:
        self._scheduler.step("task.done", self.name)
        return self._task.ended


class SimTasks:
    """Tasks of one simulated process.

    Attributes:
        refused: the attempts to start a task, counted from 1, for which no thread is left.
        attempts: how many there were.
    """

    def __init__(self, scheduler: Scheduler, process: object) -> None:
        self._scheduler = scheduler
        self._process = process
        self.refused: Container[int] = ()
        self.attempts = 0
        self.stalls = StartStalls(self.lock("stalls"))

    def spawn(self, name: str, run: Callable[[], object]) -> SimTask:
        self._scheduler.step("spawn", name)
        self.attempts += 1
        if self.attempts in self.refused:
            raise NoThreadLeft(name, "the simulation has none")
        return self._add(name, run)

    def prepare(self) -> None:
        """There is nothing to prepare: what starts the others is started beside them."""

    def spawn_soon(self, name: str, run: Callable[[], object]) -> None:
        try:
            self.spawn(name, run)
        except NoThreadLeft as error:
            self.stalls.begin(error)
            self._add(f"late start of {name}", lambda: self._start_late(name, run))

    def _start_late(self, name: str, run: Callable[[], object]) -> None:
        self.sleep(FIRST_PAUSE)
        while not starts(lambda: self.spawn(name, run)):
            self.sleep(LONGEST_PAUSE)
        self.stalls.end()

    def _add(self, name: str, run: Callable[[], object]) -> SimTask:
        return SimTask(self._scheduler, self._scheduler.add(name, run, self._process))

    def sleep(self, seconds: float) -> None:
        self._scheduler.step("sleep", f"{seconds:g}")
        self._scheduler.park("the clock", max(0.0, seconds))

    def lock(self, name: str = "lock", *, outer: bool = False) -> SimLock:  # noqa: ARG002 - see `holds_lock`
        return SimLock(self._scheduler, name)

    def condition(self, lock: Lock | None = None, name: str = "condition") -> SimCondition:
        if lock is None:
            lock = self.lock(name)
        if not isinstance(lock, SimLock):
            raise TypeError(f"a simulated condition needs a lock made by the same tasks, not {lock!r}")
        return SimCondition(self._scheduler, lock, name)

    def event(self, name: str = "event") -> SimEvent:
        return SimEvent(self._scheduler, name)

    def signal(self, name: str = "signal") -> SimSignal:
        return SimSignal(self._scheduler, name)

    def queue(self, name: str, limit: int) -> BoundedQueue[T]:
        return BoundedQueue(name, limit, self.lock(name), lambda lock: self.condition(lock, name))

    def holds_lock(self) -> bool:
        return False  # nothing interrupts a simulated task


def _wait_among(
    waiters: list[ScheduledTask], scheduler: Scheduler, waits_for: str, timeout: float | None
) -> bool:
    """Park in a list of waiters until one of `_wake`'s picks us; leave the list however that ends."""
    task = scheduler.current
    if task is not None:
        waiters.append(task)
    try:
        return scheduler.park(waits_for, timeout)
    finally:
        if task in waiters:
            waiters.remove(task)


def _wake(waiters: list[ScheduledTask], scheduler: Scheduler, n: int) -> None:
    """End the waits of the first `n`; as with threads, one whose time has just run out counts too."""
    for task in waiters[:n]:
        waiters.remove(task)
        scheduler.wake(task)

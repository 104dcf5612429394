"""Ports to the outside: clock, disk, tasks and random numbers; and their real implementations.

Nothing below the station reads a clock, opens a file, starts a thread or rolls a die by itself. It is given
a `Ports` and goes through it, so that the same code runs on the machine and, under one seed, in
`heliograph.sim`, where the clock jumps, the disk forgets what was not synced and tasks take turns.

    ports = system_ports("data")
    queue: Queue[bytes] = ports.tasks.queue("frames", 1024)
    writer = ports.tasks.spawn("writer", lambda: write(ports.disk, queue))

The contracts come first, the real implementations after them; the real disk has a room of its own. What a
contract says holds for both worlds and is checked by one suite for both. Time-outs are seconds, `None`
waits without end. Every wait can be interrupted by Ctrl-C.
"""

from __future__ import annotations

import logging
import queue
import random
import secrets
import threading
import time
from _thread import RLock
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, Self, TypeAlias, TypeVar
from weakref import ref

from heliograph.errors import NoThreadLeft, NotReentrant, QueueClosed
from heliograph.runtime.late_starts import LATE_STARTS, StartStalls
from heliograph.runtime.local_disk import LocalDisk, LocalFile, LocalLock

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator
    from types import TracebackType

__all__ = [
    "BoundedQueue",
    "Buffer",
    "Clock",
    "ConditionVariable",
    "Disk",
    "File",
    "FileLock",
    "Flag",
    "LocalDisk",
    "LocalFile",
    "LocalLock",
    "Lock",
    "Ports",
    "Queue",
    "Random",
    "Signal",
    "SystemClock",
    "SystemRandom",
    "Task",
    "Tasks",
    "ThreadTasks",
    "seconds_until",
    "system_ports",
    "wait_outside",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")

log = logging.getLogger(__name__)

CLEAR_AT: Final = 256
"""Locks that are made before those that are gone are forgotten."""
INSIDE: Final = 5.0
"""Seconds after which whoever waits for other tasks looks whether these may be waiting for it.

Longer than a sync takes on a busy disk: what holds a lock of ours while it waits for one is not stuck.
"""


class Clock(Protocol):
    """Two clocks: one that never goes back, and the one on the wall."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since some instant; for intervals and deadlines."""
        ...

    def time_ns(self) -> int:
        """Nanoseconds since 1970 UTC; may jump either way. For timestamps, never for waiting."""
        ...


def seconds_until(clock: Clock, deadline_ns: int) -> float:
    """The time-out that lasts until a monotonic instant; 0 when it has passed."""
    return max(0, deadline_ns - clock.monotonic_ns()) / 1e9


def wait_outside(tasks: Tasks, event: Flag, timeout: float | None, name: str) -> bool:
    """Wait for an event that other tasks set; whether it is set.

    NotReentrant when this task has one of their locks, and so was interrupted by whoever waits here.
    """
    if timeout is not None and timeout <= INSIDE:
        return event.wait(timeout)
    if event.wait(INSIDE):
        return True
    if tasks.holds_lock():
        raise NotReentrant(name)
    return event.wait(None if timeout is None else timeout - INSIDE)


class File(Protocol):
    """An open file. One task writes it; others may read and sync meanwhile.

    Bytes are safe from a power loss after `sync()` returned, and only those that were written before it was
    called. A write that raised may have left a part of itself; the next append starts where it did. After a
    `sync()` that raised, the handle takes no more writes: nobody knows what the disk holds, and a second sync
    would not tell.
    """

    name: str

    def append(self, *buffers: Buffer) -> int:
        """Write the buffers, joined, behind the end that this handle knows; returns where they start."""
        ...

    def write_at(self, offset: int, data: Buffer) -> None:
        """Overwrite in place; beyond the end, the gap reads as zeros."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer, down to none, when the file ends first."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Cut, or extend by zeros. What is mapped must not be cut."""
        ...

    def sync(self) -> None:
        """Return when everything written so far would survive a power loss. Says nothing about the name."""
        ...

    def close(self) -> None:
        """Let go of the file, as often as you like; syncs nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class FileLock(Protocol):
    """A lock that is held until it is released or its process ends, however it ends."""

    name: str

    def release(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Disk(Protocol):
    """The files below one folder.

    Names are relative, with `/` between parts: `partition-3/head-0001`. Creating, renaming and removing take
    effect at once but survive a power loss only after `sync_folder()` of the folder that holds the name.
    """

    def create(self, name: str) -> File:
        """A new, empty file; `FileExists` when the name is taken."""
        ...

    def open(self, name: str, *, readonly: bool = False) -> File:
        """An existing file; `NoSuchFile` when there is none."""
        ...

    def read(self, name: str) -> bytes:
        """All of a file."""
        ...

    def map(self, name: str) -> memoryview:
        """A read-only view of a file at its present size; later writes within it show. Ends with the view."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic: before and after a power loss there is the old or the new, whole. Replaces a file."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; those who have it open keep it."""
        ...

    def exists(self, name: str) -> bool: ...

    def list(self, folder: str = "") -> tuple[str, ...]:
        """The names in a folder, sorted; those of folders end in `/`."""
        ...

    def make_folder(self, name: str) -> None:
        """One new folder in a folder that exists; `FileExists` when the name is taken."""
        ...

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        ...

    def sync_folder(self, folder: str = "") -> None:
        """Return when the names in this folder would survive a power loss."""
        ...

    def lock(self, name: str, *, note: str = "") -> FileLock:
        """Take the lock of that name, or raise `FileLocked` with what the holder wrote about itself."""
        ...

    def free(self) -> int:
        """Bytes that can still be written."""
        ...


class Lock(Protocol):
    """Mutual exclusion, for `with`: that lets go whatever is raised in its block, at whichever instant.

    `acquire` is for who cannot afford `with`; then it stands inside of a `try`, and who leaves asks `mine`.
    No task takes a lock twice, except out of a signal handler or a finalizer that interrupts it while it
    holds the lock: that must not wait for itself, so there it gets in. Whoever changes what an interrupted
    change has left half done asks `mine` first, and refuses.
    """

    def mine(self) -> bool:
        """Whether the calling task has it."""
        ...

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...

    def locked(self) -> bool: ...

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class ConditionVariable(Protocol):
    """Wait under a lock until somebody notifies, as `threading.Condition`.

    A waiter whose time runs out may take a notification with it. So look at what was waited for after each
    wait, as `wait_for` does, instead of trusting the answer.
    """

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """False when the time ran out first."""
        ...

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until the predicate holds; returns its last value."""
        ...

    def notify(self, n: int = 1) -> None: ...

    def notify_all(self) -> None: ...


class Flag(Protocol):
    """A flag that stays up, for any number of waiters: a stop sign, an ending."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the flag is up."""
        ...


class Signal(Protocol):
    """A bell for one waiter: what it needs to watch several queues at once.

    Ringing is cheap and is remembered. Several rings may be heard as one, and, when rung from several tasks
    at the same instant, one more often than needed: look at the queues after each.
    """

    def notify(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """True when it rang since the last wait, False when the time ran out first."""
        ...


class Queue(Protocol[T]):
    """A bounded first-in, first-out queue. `None` cannot be an item: it says that nothing came in time.

    Closing is how a task that reads it is told to end: it still gets what is inside, then `QueueClosed`.
    """

    @property
    def items(self) -> Collection[T]:
        """What is inside, always the same object: for who looks often, and takes nothing."""
        ...

    def put(self, item: T, timeout: float | None = None) -> bool:
        """False when no room came in time (0: at once); `QueueClosed` after `close()`."""
        ...

    def put_evicting(self, item: T) -> T | None:
        """Put without waiting; when full, the oldest item makes room and is returned."""
        ...

    def get(self, timeout: float | None = None) -> T | None:
        """The oldest item, or None when none came in time; `QueueClosed` when closed and empty."""
        ...

    def take(self, limit: int, timeout: float | None = None) -> list[T]:
        """Wait as `get` does, then all that is there, up to `limit`; empty when none came in time."""
        ...

    def close(self) -> None: ...

    def __len__(self) -> int: ...


class Task(Protocol):
    """A running function. It cannot be stopped from outside: close what it waits for."""

    name: str

    def join(self, timeout: float | None = None) -> bool:
        """True when it has ended, False when the time ran out first; raises what ended it."""
        ...

    def done(self) -> bool: ...


class Tasks(Protocol):
    """Starts tasks and makes what they wait on. Names appear in errors, traces and debuggers.

    The host may have no thread left for a moment. What a caller needs now is started by `spawn`, and the
    caller gets the error; everything else is started by `spawn_soon`.
    """

    stalls: StartStalls
    """What `spawn_soon` could not start at once."""

    def spawn(self, name: str, run: Callable[[], object]) -> Task:
        """Start a task; NoThreadLeft when that cannot be. It ends with the process: join it if its work must
        be finished."""
        ...

    def spawn_soon(self, name: str, run: Callable[[], object]) -> None:
        """Start a task that nobody waits for: now, or as soon as a thread is left for it.

        NoThreadLeft only where nothing was started before and `prepare` was not called.
        """
        ...

    def prepare(self) -> None:
        """See to it that `spawn_soon` works, whatever comes; NoThreadLeft when it cannot."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def lock(self, name: str = "lock", *, outer: bool = False) -> Lock:
        """An outer one is held while other tasks are waited for, none of which ever wants it: `holds_lock`
        does not count it."""
        ...

    def condition(self, lock: Lock | None = None, name: str = "condition") -> ConditionVariable:
        """With a lock of its own, or one that `lock()` made."""
        ...

    def event(self, name: str = "event") -> Flag: ...

    def signal(self, name: str = "signal") -> Signal: ...

    def queue(self, name: str, limit: int) -> Queue[T]: ...

    def holds_lock(self) -> bool:
        """Whether the calling task has a lock of these tasks that is no outer one.

        Looks at each: for who waits for long.
        """
        ...


class Random(Protocol):
    """Chance. Outside of a simulation it is fit for secrets."""

    def bits(self, n: int) -> int:
        """An integer of `n` random bits."""
        ...

    def below(self, n: int) -> int:
        """An integer from 0 up to, not including, `n`."""
        ...

    def uniform(self) -> float:
        """From 0.0 up to, not including, 1.0."""
        ...

    def bytes(self, n: int) -> bytes: ...

    def id64(self) -> int:
        """A random 64-bit id; never 0, so that 0 can mean none."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What a part of Heliograph is given of the world. Without a disk nothing can persist."""

    clock: Clock
    tasks: Tasks
    random: Random
    disk: Disk | None = None


class SystemClock:
    """The machine's clocks. The methods are the builtins themselves: a reading costs no extra call."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    time_ns = staticmethod(time.time_ns)


class SystemRandom:
    """The operating system's generator."""

    bits = staticmethod(secrets.randbits)
    below = staticmethod(secrets.randbelow)
    uniform = staticmethod(random.SystemRandom().random)
    bytes = staticmethod(secrets.token_bytes)

    @staticmethod
    def id64() -> int:
        return secrets.randbelow(2**64 - 1) + 1


class BoundedQueue(Generic[T]):
    """`Queue` over any lock and conditions; both worlds use this one.

    Writers hold the lock, which keeps the limit exact. A reader that finds an item takes it without the
    lock, since `popleft` is atomic; it needs the lock only to wait and to wake a waiting writer. A waiter
    counts itself before it looks again, so whoever changes the queue after that look sees the count.
    """

    __slots__ = (
        "_closed",
        "_drained",
        "_filled",
        "_getters",
        "_limit",
        "_lock",
        "_putters",
        "items",
        "name",
    )

    def __init__(
        self, name: str, limit: int, lock: Lock, condition: Callable[[Lock], ConditionVariable]
    ) -> None:
        if limit < 1:
            raise ValueError(f"queue {name!r} needs room for at least one item, not {limit}")
        self.name = name
        self._limit = limit
        self.items: deque[T] = deque()
        self._closed = False
        self._lock = lock
        self._filled = condition(lock)
        self._drained = condition(lock)
        self._getters = 0
        self._putters = 0

    def put(self, item: T, timeout: float | None = None) -> bool:
        if item is None:
            raise TypeError(f"None cannot go into queue {self.name!r}: get() returns it when nothing came")
        with self._lock:
            if self._closed:
                raise QueueClosed(self.name)
            if len(self.items) >= self._limit and not self._wait_for_room(timeout):
                return False
            self._add(item)
        return True

    def put_evicting(self, item: T) -> T | None:
        if item is None:
            raise TypeError(f"None cannot go into queue {self.name!r}: get() returns it when nothing came")
        evicted = None
        with self._lock:
            if self._closed:
                raise QueueClosed(self.name)
            if len(self.items) >= self._limit:
                evicted = self._pop()
            self._add(item)
        return evicted

    def get(self, timeout: float | None = None) -> T | None:
        item = self._first(timeout)
        if self._putters:
            self._wake_putters(1)
        return item

    def take(self, limit: int, timeout: float | None = None) -> list[T]:
        first = self._first(timeout)
        if first is None:
            return []
        items = [first]
        with suppress(IndexError):
            while len(items) < limit:
                items.append(self.items.popleft())
        if self._putters:
            self._wake_putters(len(items))
        return items

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._filled.notify_all()
            self._drained.notify_all()

    def __len__(self) -> int:
        return len(self.items)

    def _add(self, item: T) -> None:
        try:
            self.items.append(item)
            if self._getters:
                self._filled.notify()
        except BaseException:
            self._filled.notify_all()  # an interrupt may have come between the two
            raise

    def _pop(self) -> T | None:
        try:
            return self.items.popleft()
        except IndexError:
            return None

    def _first(self, timeout: float | None) -> T | None:
        item = self._pop()
        if item is not None:
            return item
        with self._lock:
            self._getters += 1
            try:
                popped = self._filled.wait_for(self._popped_or_closed, timeout)
            except BaseException:
                self._filled.notify()  # an interrupted waiter hands on the wake-up it may have been given
                raise
            finally:
                self._getters -= 1
        return popped[0] if popped else None

    def _popped_or_closed(self) -> tuple[T] | None:
        item = self._pop()
        if item is not None:
            return (item,)
        if self._closed:
            raise QueueClosed(self.name)
        return None

    def _wait_for_room(self, timeout: float | None) -> bool:
        self._putters += 1
        try:
            return self._drained.wait_for(self._room_or_closed, timeout)
        except BaseException:
            self._drained.notify()  # as above
            raise
        finally:
            self._putters -= 1

    def _room_or_closed(self) -> bool:
        if self._closed:
            raise QueueClosed(self.name)
        return len(self.items) < self._limit

    def _wake_putters(self, n: int) -> None:
        with self._lock:
            self._drained.notify(n)


class ThreadLock(RLock):  # type: ignore[misc]  # it can be derived from, though typeshed says not
    """`Lock` as the standard library's reentrant lock, which knows who has it.

    What `with` calls is C: no signal handler runs between the lock being taken and the block being entered.
    """

    __slots__ = ()

    mine = RLock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 - `threading.Condition` asks it, too

    def locked(self) -> bool:
        if self.mine():
            return True
        free: bool = self.acquire(False)
        if free:
            self.release()
        return not free


class ThreadCondition:
    """`ConditionVariable` that a signal handler may end at any instant by an exception.

    That of the standard library gives the lock back before it is ready for one, and may not get it again: who
    has waited would then leave a lock that is somebody else's.
    """

    __slots__ = ("_lock", "_waiters")

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._waiters: deque[threading.Lock] = deque()

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    def wait(self, timeout: float | None = None) -> bool:
        self._insist_on_lock("wait")
        waiter = threading.Lock()
        waiter.acquire()
        try:
            self._waiters.append(waiter)
            self._lock.release()
            return waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:
            # Whatever comes, it has the lock again and waits no more; an interrupt is raised after that.
            late: BaseException | None = None
            is_back = False
            while not is_back:
                try:
                    if not self._lock.mine():
                        self._lock.acquire()
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)
                    is_back = True
                except BaseException as error:  # noqa: BLE001 - raised below
                    late = error
            if late is not None:
                raise late

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        deadline = None if timeout is None else time.monotonic() + timeout
        result = predicate()
        while not result:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        self._insist_on_lock("notify")
        while n > 0 and self._waiters:
            waiter = self._waiters[0]
            with suppress(RuntimeError):  # it was woken by one who was interrupted before the line below
                waiter.release()
                n -= 1
            with suppress(ValueError):
                self._waiters.remove(waiter)

    def notify_all(self) -> None:
        self.notify(len(self._waiters))

    def _insist_on_lock(self, what: str) -> None:
        if not self._lock.mine():
            raise RuntimeError(f"cannot {what} on un-acquired lock")


class ThreadEvent:
    """`Flag`; that of the standard library takes its lock in Python, where an exception may come between."""

    __slots__ = ("_is_set", "_lock", "_was_set")

    def __init__(self, lock: Lock) -> None:
        self._is_set = False
        self._lock = lock
        self._was_set = ThreadCondition(self._lock)

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        try:
            with self._lock:
                self._was_set.notify_all()
        except BaseException:
            with self._lock:
                self._was_set.notify_all()
            raise

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        with self._lock:
            return self._is_set or self._was_set.wait(timeout) or self._is_set


class ThreadSignal:
    """`Signal` over the C queue, whose put needs no lock of ours."""

    __slots__ = ("_rings",)

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def notify(self) -> None:
        # One remembered ring is enough; ringers that race past the check add at most one each.
        if not self._rings.qsize():
            self._rings.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        try:
            self._rings.get(True, timeout if timeout is None else max(0.0, timeout))
        except queue.Empty:
            return False
        return True


class ThreadTask:
    """`Task` as a daemon thread."""

    __slots__ = ("_error", "_run", "_thread", "name")

    def __init__(self, name: str, run: Callable[[], object]) -> None:
        self.name = name
        self._run = run
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        try:
            self._run()
        except BaseException as error:  # whatever ended the task belongs to who joins it
            self._error = error
            log.exception("task %r failed", self.name)

    def join(self, timeout: float | None = None) -> bool:
        self._thread.join(timeout if timeout is None else max(0.0, timeout))
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def done(self) -> bool:
        return not self._thread.is_alive()


class ThreadTasks:
    """`Tasks` as threads, with the standard library's locks."""

    new_lock: Callable[[str], ThreadLock] = staticmethod(lambda _: ThreadLock())
    """Makes the locks; `heliograph.runtime.lock_order` puts another in its place."""

    def __init__(self) -> None:
        self._locks: list[ref[ThreadLock]] = []
        self._clear_at = CLEAR_AT
        self.stalls = StartStalls(self.lock("stalls"))

    def spawn(self, name: str, run: Callable[[], object]) -> ThreadTask:
        self.prepare()
        with _no_thread_left(name):
            return ThreadTask(name, run)

    def prepare(self) -> None:
        with _no_thread_left("late starts"):
            LATE_STARTS.run()

    def spawn_soon(self, name: str, run: Callable[[], object]) -> None:
        try:
            self.spawn(name, run)
        except NoThreadLeft as error:
            if not LATE_STARTS.is_running:
                raise
            self.stalls.begin(error)
            LATE_STARTS.add(partial(self._start_late, name, run))

    def _start_late(self, name: str, run: Callable[[], object]) -> None:
        self.spawn(name, run)
        self.stalls.end()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def lock(self, name: str = "lock", *, outer: bool = False) -> Lock:
        if outer:
            return self.new_lock(name)
        if len(self._locks) >= self._clear_at:
            self._locks = [known for known in self._locks if known() is not None]
            self._clear_at = 2 * len(self._locks) + CLEAR_AT
        lock = self.new_lock(name)
        self._locks.append(ref(lock))
        return lock

    def condition(self, lock: Lock | None = None, name: str = "condition") -> ConditionVariable:
        return ThreadCondition(self.lock(name) if lock is None else lock)

    def event(self, name: str = "event") -> Flag:
        return ThreadEvent(self.lock(name))

    def signal(self, name: str = "signal") -> Signal:  # noqa: ARG002 - it has no lock to be named
        return ThreadSignal()

    def queue(self, name: str, limit: int) -> BoundedQueue[T]:
        return BoundedQueue(name, limit, self.lock(name), self.condition)

    def holds_lock(self) -> bool:
        return any((lock := known()) is not None and lock.mine() for known in self._locks)


@contextmanager
def _no_thread_left(task: str) -> Iterator[None]:
    """NoThreadLeft for what the interpreter raises when it cannot start a thread."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        raise NoThreadLeft(task, str(error) or type(error).__name__) from error


def system_ports(folder: str | os.PathLike[str] | None = None) -> Ports:
    """The machine itself, with the disk confined to `folder`."""
    disk = None if folder is None else LocalDisk(folder)
    return Ports(SystemClock(), ThreadTasks(), SystemRandom(), disk)

"""The lock-order checker: finds kinds of lock that are taken in both orders, before two threads deadlock.

    order = LockOrder()
    with lock_order.checking(order):
        ...                              # locks that `ThreadTasks` makes meanwhile are watched
    assert not order.inversions

A kind is the place in the code that makes a lock, such as `channel.queueing.queue.EventQueue`: all queues
have one kind. Taking a lock while others are held says that their kinds come before its own. The checker
remembers each such pair with the stack that showed it first, and reports an inversion as soon as a pair
contradicts what was seen before, in whatever thread and however long ago: no deadlock has to happen. Two
locks of one kind are compared one by one.

Only waits that can last for ever count: `acquire(blocking=False)` and `acquire(timeout=...)` cannot deadlock.
Nothing is watched unless a checker is active when a lock is made, and then a lock costs about a microsecond
more: this is for tests.
"""

from __future__ import annotations

import itertools
import sys
import threading
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from heliograph.runtime.ports import ThreadLock, ThreadTasks

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator
    from types import TracebackType

_numbers: Final = itertools.count(1)


@contextmanager
def checking(order: LockOrder) -> Iterator[None]:
    """Have this checker watch the locks that `ThreadTasks` makes in this block."""
    before = ThreadTasks.__dict__["new_lock"]
    ThreadTasks.new_lock = staticmethod(lambda name: CheckedLock(order, _kind(name)))
    try:
        yield
    finally:
        ThreadTasks.new_lock = before


class LockOrder:
    """Which kinds of lock were taken while which were held, and where that contradicts itself."""

    def __init__(self) -> None:
        self.inversions: list[str] = []
        """What went wrong, with the stacks of both orders."""
        self.pairs: set[tuple[str, str]] = set()
        """The first was held when the second was taken."""
        self._after: dict[Hashable, dict[Hashable, str]] = {}
        """By what was held: what was taken then, with the stack that showed it first."""
        self._guard = threading.Lock()
        self._threads = threading.local()

    def held(self) -> list[CheckedLock]:
        """The locks that this thread has, in the order in which it took them."""
        try:
            found: list[CheckedLock] = self._threads.held
        except AttributeError:
            found = self._threads.held = []
        return found

    def about_to_wait(self, lock: CheckedLock) -> None:
        for other in self.held():
            if other.kind == lock.kind:
                self._note((other.kind, other.number), (lock.kind, lock.number))
            elif (other.kind, lock.kind) not in self.pairs:
                self._note(other.kind, lock.kind)
                self.pairs.add((other.kind, lock.kind))

    def _note(self, before: Hashable, after: Hashable) -> None:
        with self._guard:
            if after in self._after.get(before, ()):
                return
            here = "".join(traceback.format_stack(sys._getframe(3), 12))  # noqa: SLF001 - who takes the lock
            path = self._path(after, before)
            if path is not None:
                there = self._after[path[0]][path[1]]
                steps = " -> ".join(map(str, path))
                self.inversions.append(
                    f"{after} is taken while {before} is held:\n{here}\nand elsewhere {steps}:\n{there}"
                )
            self._after.setdefault(before, {})[after] = here

    def _path(self, start: Hashable, end: Hashable) -> list[Hashable] | None:
        """How the order so far leads from one kind to another."""
        came_from: dict[Hashable, Hashable] = {start: start}
        waiting = [start]
        while waiting:
            here = waiting.pop()
            if here == end:
                path = [end]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            for step in self._after.get(here, ()):
                if step not in came_from:
                    came_from[step] = here
                    waiting.append(step)
        return None


class CheckedLock(ThreadLock):  # type: ignore[misc]  # as `ThreadLock` itself
    """A lock that tells its checker who waits for it while holding what."""

    __slots__ = ("_order", "kind", "number")

    def __init__(self, order: LockOrder, kind: str) -> None:
        self.kind = kind
        self.number = next(_numbers)
        self._order = order

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking and timeout < 0 and not self.mine():
            self._order.about_to_wait(self)
        taken: bool = super().acquire(blocking, timeout)
        if taken:
            self._order.held().append(self)
        return taken

    def release(self) -> None:
        held = self._order.held()
        super().release()
        # The last of them: the lock is reentrant.
        for place in reversed(range(len(held))):
            if held[place] is self:
                del held[place]
                break

    def __enter__(self) -> bool:  # type: ignore[override]  # that of RLock is `acquire` itself
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.release()


def _kind(name: str) -> str:
    """The place that makes a lock, and what it calls it where it makes several."""
    frame = sys._getframe(3)  # noqa: SLF001 - whoever called `tasks.lock`
    module = frame.f_globals.get("__name__", "").removeprefix("heliograph.")
    if module == "runtime.ports":  # a condition, event or queue with a lock of its own
        frame = sys._getframe(4)  # noqa: SLF001 - as above
        module = frame.f_globals.get("__name__", "").removeprefix("heliograph.")
    owner = frame.f_code.co_qualname.removesuffix(".__init__")
    return f"{module}.{owner} ({name.split(' ', maxsplit=1)[0]})"

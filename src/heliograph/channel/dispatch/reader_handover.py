"""The reading of a link: the thread that received an event runs its callback, as long as that delays nobody.

To hand an event to a worker costs more than most callbacks take: a thread is woken, and both then want the
interpreter. So a thread that reads a link runs what it has made ready itself. When that takes longer than
`HAND_OVER_NS` the watch of the pool (`heliograph.channel.dispatch.pool`) hands the *reading* over: another
thread goes on where this one left off, and this one has become a worker that ends with what it has in hand.

There are two ways from the bytes to the callback, and both leave order, priorities and counts as they are
with workers:

    claimed     the event is queued as ever. Its receiver, which the pool would give to a worker, is kept for
                this thread, which runs it when all that it has read is queued.
    direct      where nothing waits for the receiver and it is the only one, the event is in hand at once, as
                if it had been queued and taken, and is called before the next one is looked at. Only for
                readers that another thread can relieve between two events (`Reader.is_direct`).

Nothing is run here while a ready receiver waits for a worker, or when the receiver has cost a thread the
reading of late: then workers have it, and nobody waits even for a millisecond.
"""

from __future__ import annotations

from collections import deque
from threading import get_ident  # only to know a thread again; threads themselves come from the port
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.dispatch.pool import DispatchPool, Runnable
    from heliograph.runtime.ports import Clock, Tasks

LOOK_EVERY: Final = 0.0005
"""Seconds between two looks of the watch at the threads that read, while callbacks run in them."""
HAND_OVER_NS: Final = 500_000
"""How long one callback may keep a thread from reading; seen at the next look, so a millisecond at most."""
TURN_NS: Final = 10_000_000
"""How long many short callbacks may, together."""
FIRST_PAUSE_NS: Final = 1_000_000
"""For how long workers have a receiver whose callback has cost a thread the reading, the first time."""
LONGEST_PAUSE_NS: Final = 50_000_000
RARELY: Final = 100
"""Calls between two that cost a thread the reading, from which on the second one counts as the first."""
REMEMBERED_NS: Final = 1_000_000_000
"""How long it is known of a receiver how long its last pause was."""


class HandedOver(Exception):
    """In a thread that has run a callback for so long that another one reads by now."""


class Worker:
    """What the watch knows of a thread that runs callbacks."""

    __slots__ = ("marks", "replaced", "running", "seen", "since_ns", "thread")

    def __init__(self) -> None:
        self.marks: list[int] = []
        """Of a thread that reads: since when a callback runs, while one does. Whoever pops it, the thread or
        the watch, decides who reads. Its own: the thread that takes over has another.
        """
        self.running: Runnable | None = None
        self.thread = 0
        self.replaced = False
        # The watch alone writes these two: what it saw last, and since when it sees no change.
        self.seen: tuple[Runnable, int] | None = None
        self.since_ns = 0


class Reader:
    """The reading of one link, by one thread at a time.

    Args:
        name: of its threads.
        readers: those of the station, by thread.
        is_direct: whether another thread can go on between any two events.
    """

    __slots__ = (
        "_readers",
        "_tasks",
        "begun_ns",
        "claims",
        "direct_until",
        "go_on",
        "is_direct",
        "is_taking",
        "name",
        "now",
        "pool",
        "worker",
    )

    def __init__(
        self, name: str, readers: dict[int, Reader], clock: Clock, tasks: Tasks, *, is_direct: bool = False
    ) -> None:
        self.name = name
        self.is_direct = is_direct
        self.go_on: Callable[[], object] = lambda: None
        """Reads on, in the thread that takes over."""
        self.now = clock.monotonic_ns
        self.worker = Worker()
        self.is_taking = False
        """Whether what gets ready in its thread now has come over the link."""
        self.claims: deque[Runnable] = deque()
        self.begun_ns = 0
        """Since when something is claimed."""
        self.direct_until = 0
        """Until when callbacks may be called directly, of all that was read together."""
        self.pool: DispatchPool | None = None
        self._readers = readers
        self._tasks = tasks

    def begin(self) -> None:
        """The calling thread reads from now on."""
        self.worker = Worker()
        self.worker.thread = get_ident()
        self._readers[self.worker.thread] = self

    def end(self) -> None:
        """Nothing more is read. What was claimed is left to workers."""
        self._readers.pop(self.worker.thread, None)
        self.is_taking = False
        self.release_claims()

    def received(self) -> None:
        """Something was read, and is about to be taken in."""
        if self.is_direct:
            self.direct_until = self.now() + TURN_NS
        self.is_taking = True

    def run_claims(self) -> None:
        """All that was read is taken in: run what that made ready. HandedOver when another thread reads."""
        self.is_taking = False
        if self.claims and self.pool is not None:
            self.pool.run_claims(self)

    def renew_mark(self, worker: Worker, begun_ns: int) -> bool:
        """Between short callbacks: whether that thread still reads, and may run more of them."""
        now = self.now()
        if now - begun_ns >= TURN_NS:
            return False
        try:
            worker.marks[0] = now
        except IndexError:  # another thread reads
            return False
        return True

    def relieve(self) -> None:
        """By the watch, after it took the mark: have another thread read on."""
        self._readers.pop(self.worker.thread, None)
        self.release_claims()
        self._tasks.spawn_soon(self.name, self.go_on)

    def release_claims(self) -> None:
        """Leave what is claimed to workers; from any thread."""
        while self.claims:
            try:
                run = self.claims.popleft()
            except IndexError:  # its own thread was faster
                return
            assert self.pool is not None
            self.pool.schedule(run, run.queue.highest())


class SlowReceivers:
    """Receivers whose callbacks have cost a thread the reading: workers have them for a while.

    A short while at first: on a busy host the thread may just have been kept from running, and a worker for
    each event costs ten times as much as the callback. Twice as long each time that it happens again soon, so
    that a callback which always takes long costs one thread in 50 ms.
    """

    def __init__(self) -> None:
        self.until: dict[Runnable, int] = {}
        """Until when workers have each."""
        self._last: dict[Runnable, tuple[int, int, int]] = {}
        """When it happened last, how long the pause was, and how many calls there had been."""

    def add(self, run: Runnable, now: int) -> None:
        _, last, calls = self._last.get(run, (0, 0, 0))
        is_first = not last or run.progress - calls >= RARELY
        pause = FIRST_PAUSE_NS if is_first else min(2 * last, LONGEST_PAUSE_NS)
        self._last[run] = now, pause, run.progress
        self.until[run] = now + pause

    def forget(self, now: int) -> None:
        """Those whose time is over."""
        for run in [run for run, until in self.until.items() if until < now]:
            del self.until[run]
        for run in [run for run, (at, _, _) in self._last.items() if at + REMEMBERED_NS < now]:
            del self._last[run]


class NewReader(Protocol):
    """Makes what a thread that reads a link runs callbacks with."""

    def __call__(self, name: str, *, is_direct: bool = False) -> Reader: ...

"""What the partitions of a station share: committers, maintenance, timers, and the files that they have open.

A task and some open files per partition would be simpler, and ten thousand channels could not work like that.
A partition is served by one task at a time, whichever it is. Several commit at once, so that a partition
whose sync takes long holds up no other; syncs that happen together are one write of the file system's own
journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from heliograph.runtime.task_pool import TaskPool
from heliograph.runtime.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.journal.published.publisher import SegmentPublisher
    from heliograph.runtime.ports import Ports, Tasks

COMMITTERS: Final = 8
"""Commits at the same time."""
MAINTAINERS: Final = 2
"""Seals and rewritings at the same time: each is a process at full speed."""
MAX_OPEN: Final = 128
"""Partitions, and readers of them, that have files open, about three each: many processes may have 1,024."""
ATTEMPTS: Final = 8
"""How many are asked to let go of their files before one more than the limit is accepted."""


class OpenFiles:
    """Those that have files open; beyond the limit, the one that opened them first lets go of its own.

    A partition that needs its files again opens them, which is cheap next to a sync.
    """

    def __init__(self, tasks: Tasks, limit: int = MAX_OPEN) -> None:
        self._lock = tasks.lock("open files")
        self._limit = limit
        self._holders: dict[Callable[[], bool], None] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, let_go: Callable[[], bool]) -> None:
        """Files were opened. `let_go` closes them, without waiting for anybody; False if they are in use."""
        with self._lock:
            self._holders[let_go] = None
        for _ in range(ATTEMPTS):
            with self._lock:
                if len(self._holders) <= self._limit:
                    return
                oldest = next(iter(self._holders))
                del self._holders[oldest]
            # Without the lock: it takes that of the files, under which this is called for others.
            if oldest == let_go or not oldest():
                with self._lock:
                    self._holders[oldest] = None

    def closed(self, let_go: Callable[[], bool]) -> None:
        """The files were closed by their partition."""
        with self._lock:
            self._holders.pop(let_go, None)


class SharedThreads:
    """See the module."""

    def __init__(self, ports: Ports, publisher: SegmentPublisher | None = None) -> None:
        self.publisher = publisher
        """Puts sealed segments into a store; None: they stay in the folder only."""
        self.committers = TaskPool(ports.tasks, "journal committer", limit=COMMITTERS, resident=1)
        self.maintenance = TaskPool(ports.tasks, "journal maintenance", limit=MAINTAINERS)
        self.timers = Timers(ports.clock, ports.tasks)
        self.files = OpenFiles(ports.tasks)

    def start(self) -> None:
        """Have a committer there, which stays; NoThreadLeft when there can be none. No append needs another,
        so that none fails for want of a thread."""
        self.committers.start()

    def close(self) -> None:
        """End the tasks; the partitions are closed by then."""
        self.timers.close()
        self.maintenance.close()
        self.committers.close()
        if self.publisher is not None:
            self.publisher.close()

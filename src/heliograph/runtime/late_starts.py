"""Starts tasks that could not be started at once, because the host had no thread or memory left.

Most tasks are nobody's caller: a worker for callbacks, a look at timers, a report. Nobody would notice that
one is missing, so `Tasks.spawn_soon` does not fail. What cannot be started now is started by a thread that
every process with tasks has from its first task on, because none could be started for this when it is needed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from heliograph.errors import NoThreadLeft

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.runtime.ports import Lock

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.02
"""Seconds before the second try; each further failure doubles it."""
LONGEST_PAUSE: Final = 1.0


class StartStalls:
    """What could not be started at once: counted by name, and the first of each row told."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self.waiting = 0
        """How many wait to be started now."""
        self.counts: Counter[str] = Counter()
        self.tell: Callable[[NoThreadLeft], object] | None = None
        """Told besides the log; called under locks of whoever starts tasks, so it hands on and returns."""

    def begin(self, error: NoThreadLeft) -> None:
        """One waits to be started."""
        with self._lock:
            self.counts[error.task] += 1
            self.waiting += 1
            is_first = self.waiting == 1
        if is_first:
            log.error("%s; it is tried again by itself", error)
            if self.tell is not None:
                self.tell(error)

    def end(self) -> None:
        """One that waited has been started."""
        with self._lock:
            self.waiting -= 1


def starts(start: Callable[[], object]) -> bool:
    try:
        start()
    except NoThreadLeft:
        return False
    return True


class LateStarts:
    """The thread of a process that starts what could not be started at once."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.RLock()
        self.is_running = False

    def run(self) -> None:
        """Have the thread there; RuntimeError or MemoryError when it cannot be started."""
        if self.is_running:
            return
        with self._lock:
            if not self.is_running:
                threading.Thread(target=self._start_all, name="late starts", daemon=True).start()
                self.is_running = True

    def add(self, start: Callable[[], object]) -> None:
        """Have this called until it raises NoThreadLeft no more."""
        self._waiting.put(start)

    def _start_all(self) -> None:
        waiting: list[Callable[[], object]] = []
        pause = FIRST_PAUSE
        while True:
            if not waiting:
                waiting.append(self._waiting.get())
                pause = FIRST_PAUSE
            time.sleep(pause)
            while not self._waiting.empty():
                waiting.append(self._waiting.get())
            left = [start for start in waiting if not starts(start)]
            pause = FIRST_PAUSE if len(left) < len(waiting) else min(2 * pause, LONGEST_PAUSE)
            waiting = left

    def forget(self) -> None:
        """In the child of a fork, which has none of the threads."""
        self.__init__()  # type: ignore[misc]  # begins anew, for all who have it


LATE_STARTS: Final = LateStarts()
os.register_at_fork(after_in_child=LATE_STARTS.forget)

"""OS priorities for threads, on request: SCHED_FIFO, one core for the process, a short switch interval.

    with RealTime(core=1) as real_time:      # refused with RealTimeRefused where the OS forbids it
        real_time.enter(5)                   # in the thread whose priority it is

Under CPython's interpreter lock a thread of high priority still waits for one of low priority that holds the
lock. It gets it soon if all threads share one core, so that the OS runs the higher one whenever both could
run, and if the lock is given up every 0.1 ms. What is changed is changed for the whole process, and undone by
`close`.

The kernel keeps a part of each second for ordinary threads, 5 % by default, and takes it from all threads
under SCHED_FIFO at once. With `background` the lowest band is itself an ordinary thread, at the highest
niceness that the OS allows: it lives on that part and on what is left, so that the others can have all the
rest of the core.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Final, Self

from heliograph.errors import RealTimeRefused

SWITCH_INTERVAL: Final = 1e-4
"""Seconds after which a thread gives up the interpreter's lock when another wants it."""
BASE: Final = 10
"""The OS priority below those of bands: above ordinary threads, far below the kernel's own."""

LOWEST: Final = 1
"""The band that is left to the ordinary scheduler, if one is."""
MOST_FAVOURED: Final = -20
"""The niceness of it: other processes of the core must not stop it while it holds the interpreter's lock."""


class RealTime:
    """See the module. One at a time in a process."""

    _current: RealTime | None = None
    _guard = threading.Lock()

    def __init__(self, core: int | None = None, *, background: bool = False) -> None:
        self._background = background
        with RealTime._guard:
            if RealTime._current is not None:
                raise RealTimeRefused(
                    "OS priorities", "this process has them already: close that station first"
                )
            self._core = _chosen_core(core)
            _try_out()
            self._interval = sys.getswitchinterval()
            self._before = {thread: os.sched_getaffinity(thread) for thread in _threads()}
            self._own = os.sched_getaffinity(0)
            self._closed = False
            RealTime._current = self
        for thread in self._before:
            _pin(thread, {self._core})
        sys.setswitchinterval(SWITCH_INTERVAL)

    @property
    def core(self) -> int:
        return self._core

    def enter(self, priority: int) -> None:
        """Give the calling thread the OS priority of a band, 1 to 5."""
        if self._closed:
            return
        _pin(0, {self._core})
        if self._background and priority == LOWEST:
            # A thread has the policy of the one that started it, which may be a real-time thread.
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), MOST_FAVOURED)
        else:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(BASE + priority))

    def leave(self) -> None:
        """Make the calling thread an ordinary one."""
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    def close(self) -> None:
        """Undo it, as often as you like."""
        with RealTime._guard:
            if self._closed:
                return
            self._closed = True
            RealTime._current = None
        for thread in _threads():
            with suppress(OSError):
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
            _pin(thread, self._before.get(thread, self._own))
        sys.setswitchinterval(self._interval)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _chosen_core(core: int | None) -> int:
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if not allowed:
        raise RealTimeRefused("OS priorities", "this system has no SCHED_FIFO; leave out os_priorities=True")
    if core is None:
        return max(allowed)
    if core not in allowed:
        cores = ", ".join(map(str, sorted(allowed)))
        raise RealTimeRefused(f"core {core}", f"this process may use {cores}; name one of those")
    return core


def _try_out() -> None:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(BASE))
    except OSError as error:
        remedy = (
            "give the program CAP_SYS_NICE (setcap cap_sys_nice+ep), or its user a real-time limit "
            "(rtprio in /etc/security/limits.conf, LimitRTPRIO= of systemd), or leave out os_priorities=True"
        )
        raise RealTimeRefused("SCHED_FIFO", f"the OS forbids it ({error.strerror}): {remedy}") from error
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _threads() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208 - names of threads, no files


def _pin(thread: int, cores: set[int]) -> None:
    with suppress(OSError):  # it has ended meanwhile
        os.sched_setaffinity(thread, cores)

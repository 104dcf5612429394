"""A priority band's consumers in a process of their own: started, watched, started again, closed.

    worker = station.band_worker("plant.alarms:listen", priority=5)     # returns when its consumers are there
    worker.stats()                                                      # its process, and how often it died
    worker.close()                                                      # or the station does

The process imports `plant.alarms` and calls `listen(station)` with a station of its own, of the same domain
and carrier (`transport="ring"`: shared memory). What that subscribes without naming a priority is of the
band. No other band can keep its interpreter; on request it has a core and a real-time priority of its own.

The two processes hold the ends of a socket. The worker says there when it is ready, or why not; whoever
sees the other's end closed knows that it is gone. So a worker ends with its station's process, however that
ends. When a worker dies the station's `on_error` is told (`WorkerDied`), and it is started again, at once and
then after longer and longer pauses; after `MOST_DEATHS` within `WINDOW` seconds it is given up.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from heliograph.errors import HeliographError, NotPossible, WorkerDied, WorkerFailed
from heliograph.link import Carrier  # noqa: TC001 - msgspec looks it up when it reads an order
from heliograph.ports import seconds_until
from heliograph.qos import HIGHEST_PRIORITY, LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.ports import Ports

MOST_DEATHS: Final = 5
WINDOW: Final = 60.0
"""Seconds. A worker that dies `MOST_DEATHS` times within them is given up."""
FIRST_PAUSE: Final = 0.1
"""Seconds before the second start in a row; each further one waits twice as long."""
START_LIMIT: Final = 10.0
"""Seconds that a worker may take to be ready."""
END_LIMIT: Final = 5.0
"""Seconds that a worker has to deliver what waits, once it is told to end."""
MAX_REPORT: Final = 1 << 16
"""Bytes of what a worker may say when it is ready or fails."""


class Order(msgspec.Struct, frozen=True):
    """What a worker's process is told."""

    name: str
    domain: str
    transport: Carrier
    setup: str
    priority: int
    fifo: int | None
    core: int | None
    path: tuple[str, ...]


class Report(msgspec.Struct, frozen=True):
    """What it answers: the id of its station, or what went wrong."""

    station: int = 0
    failed: str = ""


class WorkerStats(msgspec.Struct, frozen=True):
    """One instant of a worker."""

    name: str
    state: Literal["starting", "running", "pausing", "given up", "closed"]
    process: int
    """Its process id, or that of the one before; 0 before the first."""
    station: str
    """The id of its station, as `mesh.stats()` names the peer; empty before it is ready."""
    restarts: int


class Deaths:
    """When to start a worker again: facts in, an answer out."""

    def __init__(self) -> None:
        self._instants: deque[int] = deque()

    def pause_after(self, now_ns: int) -> float | None:
        """It died now: the seconds to wait before the next start, or None to give it up."""
        while self._instants and now_ns - self._instants[0] > WINDOW * 1e9:
            self._instants.popleft()
        self._instants.append(now_ns)
        if len(self._instants) >= MOST_DEATHS:
            return None
        return 0.0 if len(self._instants) == 1 else FIRST_PAUSE * 2 ** (len(self._instants) - 2)


class BandWorker:
    """See the module. Made by `station.band_worker`."""

    def __init__(
        self,
        order: Order,
        ports: Ports,
        start_limit: float,
        on_error: Callable[[str, None, HeliographError], None],
        on_closed: Callable[[BandWorker], object],
    ) -> None:
        self._order = order
        self._clock = ports.clock
        self._start_limit = start_limit
        self._on_error = on_error
        self._on_closed = on_closed
        self._changed = ports.tasks.condition(None, f"worker {order.name}")
        self._state: Literal["starting", "running", "pausing", "given up", "closed"] = "starting"
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: socket.socket | None = None
        self._station = ""
        self._failed: WorkerFailed | None = None
        self._restarts = 0
        self._deaths = Deaths()
        self._task = ports.tasks.spawn(f"worker {order.name}", self._watch)

    @property
    def name(self) -> str:
        return self._order.name

    def wait_ready(self, timeout: float = START_LIMIT) -> bool:
        """Wait until its consumers are subscribed and known here; WorkerFailed when they will not be."""
        with self._changed:
            self._changed.wait_for(lambda: self._state in ("running", "given up", "closed"), timeout)
            if self._failed is not None:
                raise self._failed
            return self._state == "running"

    def stats(self) -> WorkerStats:
        with self._changed:
            process = 0 if self._process is None else self._process.pid
            return WorkerStats(self.name, self._state, process, self._station, self._restarts)

    def close(self, timeout: float = END_LIMIT) -> None:
        """Let it deliver what it has for up to `timeout` seconds, then end it. As often as you like."""
        with self._changed:
            self._state = "closed"
            self._changed.notify_all()
            if self._wire is not None:
                with suppress(OSError):
                    self._wire.shutdown(socket.SHUT_RDWR)
        deadline = self._clock.monotonic_ns() + round(timeout * 1e9)
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds_until(self._clock, deadline))
            self._process.kill()
        self._task.join(END_LIMIT)
        self._on_closed(self)

    def abandon(self) -> None:
        """In the child of a fork: the parent's worker goes on, and must see when the parent ends."""
        if self._wire is not None:
            self._wire.close()

    def _watch(self) -> None:
        """The watching task. Should it fail itself, the worker is given up: nobody would notice its end."""
        try:
            self._keep_alive()
        except Exception as error:  # noqa: BLE001 - no process to be had, no descriptor left, ...
            with self._changed:
                was_there = bool(self._station)
                self._failed = WorkerFailed(self.name, f"cannot be kept running: {error!r}")
                if self._state != "closed":
                    self._state = "given up"
                if self._wire is not None:  # a process that is there ends by that
                    self._wire.close()
                    self._wire = None
                self._changed.notify_all()
            if was_there:  # else `wait_ready` raises it
                self._on_error(f"band worker {self.name}", None, self._failed)

    def _keep_alive(self) -> None:
        """One life of the process after the other."""
        while self._start():
            reason = self._live()
            pause = self._deaths.pause_after(self._clock.monotonic_ns())
            with self._changed:
                if self._state == "closed":
                    return
                first = self._failed is not None and not self._station
                self._state = "given up" if pause is None or first else "pausing"
                self._changed.notify_all()
            if first:
                return  # `wait_ready` raises what it said: a mistake that no other start would mend
            assert self._process is not None
            died = WorkerDied(self.name, reason, self._process.pid, self._restarts, is_given_up=pause is None)
            self._on_error(f"band worker {self.name}", None, died)
            if pause is None:
                return
            with self._changed:
                self._changed.wait_for(lambda: self._state == "closed", pause)

    def _start(self) -> bool:
        """Start the process and hand it its order; False when the worker was closed meanwhile."""
        with self._changed:
            if self._state == "closed":
                return False
            self._restarts += self._process is not None
            self._state, self._failed = "starting", None
            self._wire, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own module, run by our own interpreter
                    [sys.executable, "-m", "heliograph.bandprocess", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                )
            with suppress(OSError):  # should it be dead already, its silence tells
                self._wire.sendall(msgspec.json.encode(self._order) + b"\n")
            return True

    def _live(self) -> str:
        """Wait for the end of the process; returns how it ended."""
        assert self._wire is not None
        assert self._process is not None
        self._wire.settimeout(self._start_limit)
        report = self._first_report(self._wire)
        if report is not None:
            with self._changed:
                if report.failed:
                    self._failed = WorkerFailed(self.name, report.failed)
                elif self._state == "starting":
                    self._state, self._station = "running", f"{report.station:016x}"
                self._changed.notify_all()
            self._wire.settimeout(None)
            _line(self._wire)  # it says nothing more; this returns when its end is closed
        try:
            code = self._process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with self._changed:
            self._wire.close()
            self._wire = None
        if self._failed is not None:
            return f"failed: {self._failed.reason}"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    def _first_report(self, wire: socket.socket) -> Report | None:
        """What it says first; None when it ends before. One that says nothing in time is killed."""
        assert self._process is not None
        try:
            said = _line(wire)
            return msgspec.json.decode(said, type=Report) if said else None
        except (TimeoutError, BlockingIOError):
            reason = f"is not ready after {self._start_limit} seconds"
        except msgspec.DecodeError as error:
            reason = f"said what is no report: {error}"
        self._process.kill()
        return Report(failed=reason)


def new_order(
    setup: str | Callable[..., object],
    *,
    domain: str | None,
    transport: Carrier | Callable[..., object],
    priority: int,
    name: str | None,
    fifo: int | None,
    core: int | None,
) -> Order:
    """Check what a worker is asked to be, where it is written."""
    path = _importable(setup)
    called = name or path.rpartition(":")[0]
    if domain is None or callable(transport):
        raise NotPossible(
            f"band worker {called}",
            "it is a station of its own, which must find this one: hg.Station(domain=..., transport='ring')",
        )
    if priority not in range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1):
        raise NotPossible(f"band worker {called}", f"a priority is 1 (low) to 5 (high), not {priority!r}")
    if core is not None and core not in os.sched_getaffinity(0):
        raise NotPossible(
            f"band worker {called}",
            f"core={core!r} is none of those that this process may use: {sorted(os.sched_getaffinity(0))}",
        )
    if fifo is not None and (type(fifo) is not int or not 1 <= fifo <= 99 or core is None):
        raise NotPossible(
            f"band worker {called}",
            f"fifo={fifo!r}: a real-time priority is 1 to 99 and needs core=, since threads of one "
            "interpreter on several cores hold each other up",
        )
    return Order(called, domain, transport, path, priority, fifo, core, tuple(sys.path))


def _importable(setup: str | Callable[..., object]) -> str:
    """A function as `module:name`; NotPossible when another process could not import it."""
    if callable(setup):
        setup = f"{getattr(setup, '__module__', '')}:{getattr(setup, '__qualname__', '')}"
    module, _, function = setup.partition(":")
    if not module or not function or module == "__main__" or "<" in function:
        raise NotPossible(
            f"band worker {setup!r:.80}",
            "another process must be able to import it: write 'module:function', at the top of a module",
        )
    return setup


def resolve(setup: str) -> Callable[[Any], object]:
    """The function that `module:name` names; called in the worker's process."""
    module, _, function = setup.partition(":")
    found: Any = import_module(module)
    for part in function.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{setup} is no function")
    return found  # type: ignore[no-any-return] # whatever it is, it can be called


def _line(wire: socket.socket) -> bytes:
    """The next line; empty when the other end is closed first. TimeoutError when the socket has a limit."""
    data = b""
    with suppress(ConnectionError):
        while not data.endswith(b"\n") and len(data) < MAX_REPORT:
            more = wire.recv(4096)
            if not more:
                return b""
            data += more
    return data

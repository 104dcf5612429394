"""Supervises a band worker: consumers of one priority in a process that is started, watched and restarted.

    worker = station.band_worker("plant.alarms:listen", priority=5)     # returns when its consumers are there
    worker.stats()                                                      # its process, and how often it died
    worker.close()                                                      # or the station does

The process imports `plant.alarms` and calls `listen(station)` with a station of its own, of the same domain
and carrier. What that subscribes without naming a priority is of the
band. No other band can keep its interpreter; on request it has a core and a real-time priority of its own.

The two processes hold the ends of a socket. The worker says there when it is ready, or why not; whoever
sees the other's end closed knows that it is gone. So a worker ends with its station's process, however that
ends. When a worker dies the station's `on_error` is told (`WorkerDied`), and it is started again, at once and
then after longer and longer pauses; after `MOST_DEATHS` within `WINDOW` seconds it is given up.

Over the socket the worker also gives signs of life, with how long its longest callback has been running. One
that gives none for `hang_after` seconds, or is in one callback for longer, is reported (`WorkerHung`) and, on
request, killed. Whatever was requested, one that is in a callback for `callback_limit` seconds is killed: to
detach the callback, as other stations do, would drop what waits for it. What a process that died had been
handed and had not settled goes to the next one; see `heliograph.links.mesh.worker_redelivery`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections import deque
from contextlib import suppress
from functools import partial
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, Required, TypeAlias, TypedDict, get_args

import msgspec

from heliograph.channel.dispatch.station_pools import CALLBACK_LIMIT
from heliograph.channel.publish.worker_acks import ALONE
from heliograph.errors import (
    NotPossible,
    WorkerDied,
    WorkerFailed,
    WorkerHung,
)
from heliograph.links import Carrier  # noqa: TC001 - msgspec looks it up when it reads an order
from heliograph.links.mesh.worker_redelivery import WorkerRedelivery
from heliograph.model.event import EventId
from heliograph.qos.policies import HIGHEST_PRIORITY, LOWEST_PRIORITY
from heliograph.runtime.child_process import import_path_for, python_command
from heliograph.runtime.error_reporting import ErrorReports
from heliograph.runtime.option_names import insist_on_known
from heliograph.runtime.ports import seconds_until
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.context import ChannelContext
    from heliograph.links.mesh.egress import Egress
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.model.event import Header
    from heliograph.runtime.ports import Ports

MOST_DEATHS: Final = 5
WINDOW: Final = 60.0
"""Seconds. A worker that dies `MOST_DEATHS` times within them is given up."""
FIRST_PAUSE: Final = 0.1
"""Seconds before the second start in a row; each further one waits twice as long."""
LONGEST_PAUSE: Final = 1.0
"""Seconds between two tries to start a process again while the host has none left."""
START_LIMIT: Final = 10.0
"""Seconds that a worker may take to be ready."""
END_LIMIT: Final = 5.0
"""Seconds that a worker has to deliver what waits, once it is told to end."""
HANG_AFTER: Final = 10.0
"""Seconds after which a worker counts as hung, unless it says otherwise."""
BEATS: Final = 4
"""Signs of life within the seconds after which a worker counts as hung, and at least one a second."""
BLAME_SLACK: Final = ALONE / 2
"""Seconds by which a callback may have begun later than it seems; the next event is begun later by more."""
MEET_LIMIT: Final = 3.0
"""Seconds for which a worker that begins waits for stations other than its own: one may stand still."""
MAX_REPORT: Final = 1 << 16
"""Bytes of what a worker may say when it is ready or fails."""


OnHang: TypeAlias = Literal["report", "restart"]


class WorkerOptions(TypedDict, total=False):
    """What `station.band_worker` takes.

    Attributes:
        priority: of its consumers that name none; required.
        name: in statistics and errors; else the module's.
        core: pin the process to this one.
        fifo: run it at this real-time priority (SCHED_FIFO), which needs a core and the right to.
        timeout: seconds that each start may take; WorkerFailed then, or with what went wrong there.
        hang_after: seconds without a sign of life, or in one callback, after which it is reported to
            `on_error` (WorkerHung); None: never.
        on_hang: "restart" to kill it then, and start it again.
        redeliver: False: do not hand to the next process what one that died had not settled.
    """

    priority: Required[int]
    name: str | None
    core: int | None
    fifo: int | None
    timeout: float
    hang_after: float | None
    on_hang: OnHang
    redeliver: bool


class WorkerOrder(msgspec.Struct, frozen=True):
    """What a worker's process is told."""

    name: str
    domain: str
    transport: Carrier | None
    setup: str
    priority: int
    fifo: int | None
    core: int | None
    path: tuple[str, ...]
    supervisor: int
    """The station that is told of what is settled; 0: none."""
    is_relayed: bool
    """Whether that one hands on what others push."""
    hang_after: float | None
    callback_limit: float
    """Seconds in one callback after which the process is killed."""

    @property
    def beat(self) -> float:
        """Seconds between two signs of life."""
        return min(1.0, (self.hang_after or inf) / BEATS, self.callback_limit / BEATS)


class WorkerReport(msgspec.Struct, frozen=True):
    """What it answers: the id of its station, or what went wrong; then signs of life and what is settled."""

    station: int = 0
    failed: str = ""
    busy: float = 0.0
    """Seconds that its longest callback has been running."""
    begun: tuple[str, tuple[str, int, int]] | None = None
    """The channel and id of an event that came again."""
    settled: tuple[str, tuple[str, int, int]] | None = None


State: TypeAlias = Literal["starting", "running", "hung", "pausing", "given up", "closed"]


class WorkerStats(msgspec.Struct, frozen=True):
    """One instant of a worker."""

    name: str
    state: State
    process: int
    """Its process id, or that of the one before; 0 before the first."""
    station: str
    """The id of its station, as `mesh.stats()` names the peer; empty before it is ready."""
    restarts: int
    hangs: int = 0
    """How often it was reported as hung."""
    unacknowledged: int = 0
    """Events that were handed to it and that it has not settled."""
    redelivered: int = 0
    """Events that were handed to another process because the one before had not settled them."""
    lost: int = 0
    """Events that it had been handed, and that nobody will settle."""


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
        order: WorkerOrder,
        ports: Ports,
        gates: Egress,
        *,
        meet: Callable[[], object],
        on_error: Callable[[str, Header | None, BaseException], None],
        start_limit: float,
        restarts_hung: bool,
    ) -> None:
        self._order = order
        self._clock = ports.clock
        self._gates = gates
        self._report = ErrorReports(ports.tasks, on_error).tell
        self._handed = WorkerRedelivery(order.name, gates.lock, on_lost=self._report, retell=gates.retell)
        self._meet = meet
        self._start_limit = start_limit
        self._restarts_hung = restarts_hung
        self._hangs = 0
        self.on_closed: Callable[[BandWorker], object] = lambda _: None
        self._changed = ports.tasks.condition(None, f"worker {order.name}")
        self._state: State = "starting"
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
        check_timeout("wait_ready", timeout)
        with self._changed:
            self._changed.wait_for(lambda: self._state in ("running", "hung", "given up", "closed"), timeout)
            if self._failed is not None:
                raise self._failed
            return self._state in ("running", "hung")

    def wait_begun(self) -> None:
        """Wait for its first start, as long as that may take; closed when it raises WorkerFailed."""
        try:
            is_ready = self.wait_ready(self._start_limit)
        except BaseException:
            self.close(0.0)
            raise
        if not is_ready:
            self.close(0.0)
            raise WorkerFailed(self.name, f"is not ready after {self._start_limit} seconds")

    def stats(self) -> WorkerStats:
        with self._changed:
            process = 0 if self._process is None else self._process.pid
            state, station, restarts, hangs = self._state, self._station, self._restarts, self._hangs
        handed = self._handed
        return WorkerStats(
            self.name,
            state,
            process,
            station,
            restarts,
            hangs,
            handed.unacknowledged,
            handed.redelivered,
            handed.lost,
        )

    def close(self, timeout: float = END_LIMIT) -> None:
        """Let it deliver what it has for up to `timeout` seconds, then end it. As often as you like."""
        check_timeout("close", timeout, ends=True)
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
        self._handed.end(is_lost=False)
        self.on_closed(self)

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
            self._handed.end(is_lost=True)
            if was_there:  # else `wait_ready` raises it
                self._report(f"band worker {self.name}", None, self._failed)

    def _keep_alive(self) -> None:
        """One life of the process after the other."""
        while self._start_at_last():
            reason = self._live()
            pause = self._deaths.pause_after(self._clock.monotonic_ns())
            with self._changed:
                if self._state == "closed":
                    return
                first = self._failed is not None and not self._station
                self._state = "given up" if first else "pausing"
                self._changed.notify_all()
            if first:
                return  # `wait_ready` raises what it said: a mistake that no other start would mend
            assert self._process is not None
            if pause is None:
                self._handed.end(is_lost=True)
            died = WorkerDied(self.name, reason, self._process.pid, self._restarts, is_given_up=pause is None)
            self._report(f"band worker {self.name}", None, died)
            with self._changed:
                if pause is None and self._state == "pausing":  # whoever sees that has been told
                    self._state = "given up"
                    self._changed.notify_all()
                if pause is None:
                    return
                self._changed.wait_for(lambda: self._state == "closed", pause)

    def _start_at_last(self) -> bool:
        """As `_start`; again and again where it has been there and the host has no process or descriptor."""
        pause = FIRST_PAUSE
        while True:
            try:
                return self._start()
            except OSError as error:
                if not self._station:  # whoever opens it is told
                    raise
                if pause == FIRST_PAUSE:
                    failed = WorkerFailed(
                        self.name, f"cannot be started for now, and is tried again: {error}"
                    )
                    self._report(f"band worker {self.name}", None, failed)
            with self._changed:
                self._changed.wait_for(lambda: self._state == "closed", pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _start(self) -> bool:
        """Start the process and hand it its order; False when the worker was closed meanwhile."""
        with self._changed:
            if self._state == "closed":
                return False
            self._state, self._failed = "starting", None
            self._wire, theirs = socket.socketpair()
            restarts = self._restarts + (self._process is not None)
            with theirs:
                try:
                    self._process = subprocess.Popen(  # noqa: S603 - our own module, run by our own interpreter
                        python_command("heliograph.workers.process", str(theirs.fileno())),
                        stdin=subprocess.DEVNULL,
                        pass_fds=(theirs.fileno(),),
                    )
                except BaseException:
                    self._wire.close()
                    self._wire = None
                    raise
            self._restarts = restarts
            if self._order.supervisor:  # before it can have dialled
                self._gates.supervise(self._process.pid, self._handed)
            with suppress(OSError):  # should it be dead already, its silence tells
                self._wire.sendall(msgspec.json.encode(self._order) + b"\n")
            return True

    def _live(self) -> str:
        """Wait for the end of the process; returns how it ended."""
        assert self._wire is not None
        assert self._process is not None
        self._wire.settimeout(self._start_limit)
        lines = _Lines(self._wire)
        report = self._first_report(lines)
        hung = ""
        if report is not None:
            self._ready(report)
            self._wire.settimeout(self._order.hang_after)
            hung = self._watch_signs(lines)  # returns when its end is closed, or when it is to be killed
        try:
            code = self._process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._gates.supervise(self._process.pid, None)
        with self._changed:
            self._wire.close()
            self._wire = None
        if hung:
            return hung
        if self._failed is not None:
            return f"failed: {self._failed.reason}"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    def _ready(self, report: WorkerReport) -> None:
        with self._changed:
            if report.failed:
                self._failed = WorkerFailed(self.name, report.failed)
            is_ready = not report.failed and self._state == "starting"
            if is_ready:
                self._station = f"{report.station:016x}"
        if is_ready:
            self._handed.resume(report.station)
            if not self._restarts:  # the stations that are there know what to send here for it
                self._meet()
        with self._changed:
            if is_ready and self._state == "starting":
                self._state = "running"
            self._changed.notify_all()

    def _watch_signs(self, lines: _Lines) -> str:
        """Look at its signs of life until it ends; why it was killed, if it was."""
        limit = self._order.hang_after
        while True:
            try:
                said = lines.next()
                if not said:
                    return ""
                report = msgspec.json.decode(said, type=WorkerReport)
                if report.begun is not None or report.settled is not None:
                    self._note(report)
                    continue
                seconds, is_over = report.busy, report.busy >= self._order.callback_limit
            except (TimeoutError, BlockingIOError):
                seconds, is_over = limit or 0.0, False
            if limit is not None and self._looked(seconds, is_hung=seconds >= limit):
                is_over = True
            if is_over:
                assert self._process is not None
                self._process.kill()
                self._handed.hung(self._clock.monotonic_ns() - round((seconds - BLAME_SLACK) * 1e9))
                return f"hung for {seconds:.1f} seconds and was killed"

    def _note(self, report: WorkerReport) -> None:
        """It says what it does with an event that came again."""
        if report.begun is not None:
            self._handed.begun(report.begun[0], EventId(*report.begun[1]), self._clock.monotonic_ns())
        if report.settled is not None:
            self._handed.settled(report.settled[0], EventId(*report.settled[1]))

    def _looked(self, seconds: float, *, is_hung: bool) -> bool:
        """Note how it is, and report when it hangs; whether to kill it."""
        with self._changed:
            before = self._state
            if before not in ("running", "hung"):
                return False
            self._state = "hung" if is_hung else "running"
            is_news = is_hung and before == "running"
            self._hangs += is_news
            process = 0 if self._process is None else self._process.pid
        if is_news:
            hung = WorkerHung(self.name, process, seconds, is_killed=self._restarts_hung)
            self._report(f"band worker {self.name}", None, hung)
        return is_news and self._restarts_hung

    def _first_report(self, lines: _Lines) -> WorkerReport | None:
        """What it says first; None when it ends before. One that says nothing in time is killed."""
        assert self._process is not None
        try:
            said = lines.next()
            return msgspec.json.decode(said, type=WorkerReport) if said else None
        except (TimeoutError, BlockingIOError):
            reason = f"is not ready after {self._start_limit} seconds"
        except msgspec.DecodeError as error:
            reason = f"said what is no report: {error}"
        self._process.kill()
        return WorkerReport(failed=reason)


def new_order(
    setup: str | Callable[..., object],
    *,
    domain: str | None,
    transport: Carrier | Callable[..., object] | None,
    priority: int,
    name: str | None,
    fifo: int | None,
    core: int | None,
    supervisor: int = 0,
    is_relayed: bool = False,
    hang_after: float | None = None,
    callback_limit: float = CALLBACK_LIMIT,
) -> WorkerOrder:
    """Check what a worker is asked to be, where it is written."""
    path = _importable(setup)
    called = name or path.rpartition(":")[0]
    if domain is None or callable(transport):
        raise NotPossible(
            f"band worker {called}",
            "it is a station of its own, which must find this one: hg.Station(domain=...), without a "
            "transport= of your own",
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
    if hang_after is not None and (type(hang_after) not in (int, float) or not 0.01 <= hang_after < inf):
        raise NotPossible(f"band worker {called}", f"hang_after={hang_after!r}: seconds from 0.01, or None")
    return WorkerOrder(
        called,
        domain,
        transport,
        path,
        priority,
        fifo,
        core,
        tuple(import_path_for(path.partition(":")[0])),
        supervisor,
        is_relayed,
        hang_after,
        callback_limit,
    )


def open_worker(
    setup: str | Callable[..., object],
    mesh: Mesh | None,
    transport: Carrier | Callable[..., object] | None,
    services: ChannelContext,
    options: WorkerOptions,
) -> BandWorker:
    """Check what a worker is asked to be, and start it; `wait_begun` waits for that."""
    insist_on_known("band_worker", options, tuple(WorkerOptions.__annotations__))
    on_hang = options.get("on_hang", "report")
    is_kept = mesh is not None and options.get("redeliver", True)
    order = new_order(
        setup,
        domain=None if mesh is None else mesh.identity.domain,
        transport=transport,
        priority=options.get("priority", 0),
        name=options.get("name"),
        fifo=options.get("fifo"),
        core=options.get("core"),
        supervisor=mesh.identity.station if mesh is not None and is_kept else 0,
        # A worker that has workers itself settles what its own receivers are done with, and nobody else's.
        is_relayed=is_kept and mesh is not None and not mesh.gates.supervisor,
        hang_after=options.get("hang_after", HANG_AFTER),
        callback_limit=services.pools.callback_limit,
    )
    if on_hang not in get_args(OnHang):
        raise NotPossible(
            f"band worker {order.name}", f"on_hang={on_hang!r:.60}: one of {', '.join(get_args(OnHang))}"
        )
    assert mesh is not None, "a domain has been asked for"
    return BandWorker(
        order,
        services.ports,
        mesh.gates,
        meet=partial(mesh.meet_all, MEET_LIMIT),
        on_error=services.on_error,
        start_limit=options.get("timeout", START_LIMIT),
        restarts_hung=on_hang == "restart",
    )


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


class _Lines:
    """What comes over a socket, line by line."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._data = b""

    def next(self) -> bytes:
        """The next line; empty when the other end is closed first. TimeoutError as the socket says."""
        with suppress(ConnectionError):
            while b"\n" not in self._data and len(self._data) < MAX_REPORT:
                more = self._wire.recv(4096)
                if not more:
                    return b""
                self._data += more
            line, _, self._data = self._data.partition(b"\n")
            return line
        return b""

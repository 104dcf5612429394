"""Runs tasks one at a time under a seed, in a time of its own.

Each task is a thread, but only the one that holds the baton runs. It gives the baton away at port calls
only: `step()` may hand it to any task that can run, chosen by the seed; `park()` waits for a wake-up or a
deadline. When all tasks wait, time jumps to the first deadline; when there is none, that is a deadlock and is
reported with what each task waits for. So a seed decides the whole run, and the trace of port calls shows it.

Nothing here knows about disks or queues; `heliograph.sim.tasks` builds those on `step`, `park` and `wake`.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random as Generator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from heliograph.errors import SimDeadlock, SimStuck, SimTaskFailed, SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

STEPS_AT_ONE_INSTANT: Final = 1_000_000
"""So many port calls without time passing are taken for polling that never ends."""

CALLS_KEPT: Final = 10_000
"""The trace shows so many of the last port calls; its digest covers all of them."""

SECONDS_TO_UNWIND: Final = 10.0
"""How long, in real time, an ended task may take to leave its `finally` blocks before it is named."""


class Killed(BaseException):
    """Ends a task of a simulated process that died. No port answers a task that was killed."""


class PortCall(NamedTuple):
    """One port call, as the trace keeps it."""

    at_ns: int
    task: str
    operation: str
    subject: str


class Trace:
    """Which task called which port when: the last calls, and a digest and count of all of them."""

    def __init__(self) -> None:
        self.last: deque[PortCall] = deque(maxlen=CALLS_KEPT)
        self.count = 0
        self.digest = 0

    def add(self, call: PortCall) -> None:
        self.count += 1
        self.digest = zlib.crc32(repr(call).encode(), self.digest)
        self.last.append(call)


@dataclass(eq=False, slots=True)
class ScheduledTask:
    """A task and what it is doing."""

    name: str
    run: Callable[[], object]
    process: object
    baton: threading.Lock = field(default_factory=threading.Lock)
    thread: threading.Thread | None = None
    ended: bool = False
    killed: bool = False
    error: BaseException | None = None
    joined: bool = False
    waits_for: str = ""
    parked: bool = False
    woken: bool = False
    wait_number: int = 0
    """Counts its waits: an entry among the timers that has another number is void."""
    joiners: list[ScheduledTask] = field(default_factory=list)
    reaper: threading.Lock | None = None


class Scheduler:
    """One baton, one time, one seed.

    `step_ns` is the most that one port call may take: with 0 no time passes while any task can run, which
    makes times exact; with more, time-outs overtake work as they do on a busy machine.
    """

    def __init__(self, seed: int, *, step_ns: int = 0) -> None:
        self.seed = seed
        self.now_ns = 0
        self.trace = Trace()
        self.current: ScheduledTask | None = None
        self._step_ns = step_ns
        self._chance = Generator(f"{seed}/schedule").random  # noqa: S311 - repeatable by intent
        self._tasks: list[ScheduledTask] = []
        self._names: dict[str, int] = {}
        self._ready: list[ScheduledTask] = []
        self._paused: dict[object, list[ScheduledTask]] = {}
        """Processes that stand still, with their tasks that could run."""
        self._timers: list[tuple[int, int, int, ScheduledTask]] = []
        self._timer_count = 0
        self._steps_at_instant = 0
        self._stopping = False
        self._outcome: SimulationError | None = None
        self._first: ScheduledTask | None = None
        self._over = threading.Event()

    def run(self, main: Callable[[], T], process: object = None) -> T:
        """Run `main` as a task until it returns; then every other task ends where it is."""
        if self.current is not None:
            raise SimulationError("run() was called inside of a run", seed=self.seed)
        result: list[T] = []
        self._outcome = None
        self._over.clear()
        first = self._first = self.add("main", lambda: result.append(main()), process)
        self._ready.remove(first)
        try:
            self._give(first)
            self._over.wait()
        except BaseException:
            # Ctrl-C: the task that runs stops at its next port call.
            self._stopping = True
            self._over.wait()
            raise
        finally:
            failed = self._finish()
        self._report(first, failed)
        return result[0]

    def add(self, name: str, run: Callable[[], object], process: object) -> ScheduledTask:
        """A new task, ready to run. A name that is taken gets a number."""
        number = self._names[name] = self._names.get(name, 0) + 1
        task = ScheduledTask(name if number == 1 else f"{name}#{number}", run, process)
        task.baton.acquire()
        self._tasks.append(task)
        self._paused.get(task.process, self._ready).append(task)
        return task

    def step(self, operation: str, subject: str = "") -> None:
        """A port call begins: note it, and perhaps let others run first. Outside of a run it does nothing."""
        task = self._running()
        if task is None:
            return
        self.trace.add(PortCall(self.now_ns, task.name, operation, subject))
        self._steps_at_instant += 1
        if self._steps_at_instant > STEPS_AT_ONE_INSTANT:
            self._outcome = SimStuck(task.name, STEPS_AT_ONE_INSTANT, seed=self.seed)
            self._halt(task)
        if self._step_ns:
            self._advance(self.now_ns + int(self._chance() * (self._step_ns + 1)))
        if self._ready:
            chosen = int(self._chance() * (len(self._ready) + 1))
            if chosen < len(self._ready):
                # The task that steps back takes the place of the one that goes on.
                following, self._ready[chosen] = self._ready[chosen], task
                self._hand_over(task, following)

    def park(self, waits_for: str, timeout: float | None = None) -> bool:
        """Wait until `wake()`; False when the time ran out first."""
        task = self._running()
        if task is None:
            raise SimulationError(f"waiting for {waits_for} outside of run()", seed=self.seed)
        task.waits_for = waits_for
        task.parked = True
        task.woken = False
        if timeout is not None:
            self._set_timer(task, self.now_ns + max(0, round(timeout * 1e9)))
        following = self._next()
        if following is not task:
            self._hand_over(task, following)
        task.waits_for = ""
        return task.woken

    def wake(self, task: ScheduledTask) -> None:
        """End the wait of a task, unless its time has already run out."""
        if task.parked:
            task.woken = True
            self._make_ready(task)

    def kill(self, process: object) -> None:
        """End every task of a process where it is, as `kill -9` does; its ports answer no more."""
        caller = self._running()
        for task in [t for t in self._tasks if t.process is process and t is not caller]:
            self._reap(task)
        if caller is not None and caller.process is process:
            caller.killed = True
            raise Killed

    def pause(self, process: object) -> None:
        """Have no task of a process run until `go_on`, as SIGSTOP does; its clock runs on."""
        waiting = self._paused.setdefault(process, [])
        waiting += [task for task in self._ready if task.process is process]
        self._ready = [task for task in self._ready if task.process is not process]

    def go_on(self, process: object) -> None:
        """As SIGCONT does."""
        self._ready += [task for task in self._paused.pop(process, ()) if not task.ended]

    def halted(self) -> bool:
        """True for a task that was killed: what it still calls while unwinding must have no effect."""
        return self.current is not None and self.current.killed

    def waits(self) -> dict[str, str]:
        """What each task waits for that has not ended."""
        return {task.name: task.waits_for or "its turn" for task in self._tasks if not task.ended}

    def _running(self) -> ScheduledTask | None:
        task = self.current
        if task is None:
            return None
        if task.thread is not threading.current_thread():
            raise SimulationError(
                f"thread {threading.current_thread().name!r} called a simulated port, but it is no task; "
                "start it with tasks.spawn()",
                seed=self.seed,
            )
        if self._stopping and not task.killed:
            self._halt(task)
        if task.killed:
            raise Killed
        return task

    def _halt(self, task: ScheduledTask) -> None:
        """End the run from inside: the task waits here until it is reaped."""
        self._over.set()
        task.baton.acquire()
        raise Killed

    def _make_ready(self, task: ScheduledTask) -> None:
        task.parked = False
        task.wait_number += 1
        self._paused.get(task.process, self._ready).append(task)

    def _set_timer(self, task: ScheduledTask, deadline_ns: int) -> None:
        if len(self._timers) > 1000 + 2 * len(self._tasks):
            self._timers = [timer for timer in self._timers if timer[2] == timer[3].wait_number]
            heapify(self._timers)
        self._timer_count += 1
        heappush(self._timers, (deadline_ns, self._timer_count, task.wait_number, task))

    def _advance(self, now_ns: int) -> None:
        """Let time pass, and end the waits whose time ran out."""
        if now_ns > self.now_ns:
            self.now_ns = now_ns
            self._steps_at_instant = 0
        while self._timers and self._timers[0][0] <= now_ns:
            _, _, wait_number, task = heappop(self._timers)
            if task.wait_number == wait_number:
                self._make_ready(task)

    def _next(self) -> ScheduledTask | None:
        """Take a task that can run, letting time jump if it must; None when there is none for ever."""
        while not self._ready:
            if not self._timers:
                self._outcome = SimDeadlock(self.waits(), seed=self.seed)
                return None
            self._advance(max(self.now_ns, self._timers[0][0]))
        return self._ready.pop(int(self._chance() * len(self._ready)))

    def _hand_over(self, task: ScheduledTask, following: ScheduledTask | None) -> None:
        if following is None:
            self._over.set()
        else:
            self._give(following)
        task.baton.acquire()
        if task.killed:
            raise Killed

    def _give(self, task: ScheduledTask) -> None:
        self.current = task
        if task.thread is None:
            task.thread = threading.Thread(target=self._main, args=(task,), name=task.name, daemon=True)
            task.thread.start()
        else:
            task.baton.release()

    def _main(self, task: ScheduledTask) -> None:
        try:
            task.run()
        except Killed:
            task.killed = True
        except BaseException as error:  # noqa: BLE001 - whatever ended the task belongs to who joins it
            if not task.killed:  # what goes wrong while unwinding happens to nobody
                task.error = error
        task.ended = True
        if task.reaper is not None:
            task.reaper.release()
            return
        for joiner in task.joiners:
            self.wake(joiner)
        following = None if task is self._first or self._stopping else self._next()
        if following is None:
            self._over.set()
        else:
            self._give(following)

    def _reap(self, task: ScheduledTask) -> None:
        """Unwind one task while everybody else holds still."""
        if task.ended:
            return
        for waiting in (self._ready, self._paused.get(task.process, [])):
            if task in waiting:
                waiting.remove(task)
        task.parked = False
        task.wait_number += 1
        task.killed = True
        if task.thread is not None:
            self._unwind(task, task.thread)
        task.ended = True
        for joiner in task.joiners:
            self.wake(joiner)

    def _unwind(self, task: ScheduledTask, thread: threading.Thread) -> None:
        caller = self.current
        task.reaper = threading.Lock()
        task.reaper.acquire()
        self._give(task)
        if not task.reaper.acquire(timeout=SECONDS_TO_UNWIND):
            raise SimulationError(f"task {task.name!r} does not end when it is killed", seed=self.seed)
        thread.join()
        self.current = caller

    def _finish(self) -> list[ScheduledTask]:
        """End what still runs; returns the tasks whose errors nobody has heard of."""
        self.current = None
        self._stopping = False
        failed = [task for task in self._tasks if task.error is not None and not task.joined]
        for task in self._tasks:
            self._reap(task)
            if task.thread is not None:
                task.thread.join()
        self._tasks.clear()
        self._names.clear()
        self._ready.clear()
        self._paused.clear()
        self._timers.clear()
        self._steps_at_instant = 0
        return failed

    def _report(self, main: ScheduledTask, failed: list[ScheduledTask]) -> None:
        others = [task for task in failed if task is not main]
        notes = [f"task {task.name!r} had failed: {task.error!r}" for task in others]
        error = self._outcome or main.error
        if error is None and main.killed:
            error = SimulationError("the process of the main task was killed", seed=self.seed)
        if error is None and others:
            first = others[0]
            error = SimTaskFailed(first.name, cast("BaseException", first.error), seed=self.seed)
            error.__cause__ = first.error
        if error is not None:
            for note in (f"simulation seed {self.seed}, after {self.trace.count} port calls", *notes):
                error.add_note(note)
            raise error

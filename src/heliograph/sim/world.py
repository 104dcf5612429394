"""One seed, one world: simulated processes with their clocks, disks, tasks and chance.

    simulation = Simulation(seed=7)
    queue = simulation.tasks.queue("work", 10)
    simulation.run(main)                    # until main returns; the same seed gives the same run

The ports of `simulation` itself are those of a first process, to which `main` belongs. More processes, each
with a disk and a wall clock of its own, come from `process()`; they can be killed and can lose power:

    keeper = simulation.process("keeper", faults=[PowerCut("sync", at=3)])
    task = keeper.tasks.spawn("writer", lambda: write(keeper.ports))
    task.join()                             # the power went: the task is gone
    keeper = simulation.process("keeper", medium=keeper.crash("random"))
"""

from __future__ import annotations

from random import Random as Generator
from typing import TYPE_CHECKING, Final, TypeVar

from heliograph.runtime.ports import Ports
from heliograph.sim.disk import SimDisk
from heliograph.sim.scheduler import Scheduler
from heliograph.sim.tasks import SimTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.sim.disk import Keep
    from heliograph.sim.faults import Fault
    from heliograph.sim.medium import Medium
    from heliograph.sim.scheduler import Trace

T = TypeVar("T")

EPOCH_NS: Final = 1_767_225_600_000_000_000
"""2026-01-01 UTC: when every simulated world begins."""

BOOT_NS: Final = 1_000_000_000
"""What the monotonic clock shows then; not 0, which programs like to take for "never"."""


class SimClock:
    """A clock that jumps. Its wall may be wrong by an offset and a drift, and can be set."""

    def __init__(self, scheduler: Scheduler, *, offset_ns: int = 0, drift_ppm: int = 0) -> None:
        self._scheduler = scheduler
        self._offset_ns = offset_ns
        self._drift_ppm = drift_ppm

    def monotonic_ns(self) -> int:
        self._scheduler.step("clock.monotonic")
        return BOOT_NS + self._scheduler.now_ns

    def time_ns(self) -> int:
        self._scheduler.step("clock.time")
        now_ns = self._scheduler.now_ns
        return EPOCH_NS + now_ns + self._offset_ns + now_ns * self._drift_ppm // 1_000_000

    def set_wall(self, *, by_ns: int) -> None:
        """Somebody sets the wall clock forward or back."""
        self._offset_ns += by_ns


class SimRandom:
    """Chance by the seed."""

    def __init__(self, seed: str) -> None:
        self._generator = Generator(seed)  # noqa: S311 - repeatable by intent

    def bits(self, n: int) -> int:
        return self._generator.getrandbits(n)

    def below(self, n: int) -> int:
        return self._generator.randrange(n)

    def uniform(self) -> float:
        return self._generator.random()

    def bytes(self, n: int) -> bytes:
        return self._generator.randbytes(n)

    def id64(self) -> int:
        return self._generator.randrange(1, 2**64)


class Process:
    """A simulated process: its ports, and the ways in which it can end."""

    def __init__(
        self, scheduler: Scheduler, name: str, disk: Callable[[Process], SimDisk], clock: SimClock
    ) -> None:
        self.name = name
        self.clock = clock
        self.tasks = SimTasks(scheduler, self)
        self.random = SimRandom(f"{scheduler.seed}/random {name}")
        self.disk = disk(self)
        self._scheduler = scheduler

    @property
    def ports(self) -> Ports:
        return Ports(self.clock, self.tasks, self.random, self.disk)

    def pause(self) -> None:
        """As SIGSTOP: none of its tasks runs until `go_on`. Not of the process of who calls this."""
        self._scheduler.pause(self)

    def go_on(self) -> None:
        """As SIGCONT."""
        self._scheduler.go_on(self)

    def kill(self) -> Medium:
        """As `kill -9`: tasks end where they are, locks are free. Returns the disk as it stands."""
        self.disk.kill()
        self._scheduler.kill(self)
        return self.disk.medium

    def crash(self, keep: Keep = "random") -> Medium:
        """Power loss: as `kill`, and what was not synced may be gone; returns the disk as it comes back."""
        self.disk.crash(keep)
        self._scheduler.kill(self)
        return self.disk.medium


class Simulation:
    """A world under one seed.

    Args:
        seed: decides turns, chance and what survives a crash.
        step_ns: the most time that a port call may take. With 0, times are exact: the clock moves only when
            all tasks wait. With more, time-outs overtake work as they do on a busy machine.
        capacity: of the first process's disk, in bytes.
        faults: of the first process's disk.
    """

    def __init__(
        self, seed: int = 0, *, step_ns: int = 0, capacity: int | None = None, faults: Iterable[Fault] = ()
    ) -> None:
        self.seed = seed
        self._scheduler = Scheduler(seed, step_ns=step_ns)
        self._incarnations: dict[str, int] = {}
        self.first = self.process("first", capacity=capacity, faults=faults)
        self.clock = self.first.clock
        self.tasks = self.first.tasks
        self.random = self.first.random
        self.disk = self.first.disk
        self.ports = self.first.ports

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the world began; no port call."""
        return self._scheduler.now_ns

    @property
    def trace(self) -> Trace:
        """The port calls so far."""
        return self._scheduler.trace

    def process(
        self,
        name: str,
        *,
        medium: Medium | None = None,
        capacity: int | None = None,
        faults: Iterable[Fault] = (),
        wall_offset_ns: int = 0,
        wall_drift_ppm: int = 0,
    ) -> Process:
        """A new process, or the next incarnation of one, on the `medium` that the last one left."""
        number = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        label = name if number == 1 else f"{name}#{number}"

        def disk(process: Process) -> SimDisk:
            return SimDisk(
                medium,
                seed=self.seed,
                capacity=capacity,
                faults=faults,
                process=label,
                step=self._scheduler.step,
                on_power_loss=lambda: self._scheduler.kill(process),
            )

        clock = SimClock(self._scheduler, offset_ns=wall_offset_ns, drift_ppm=wall_drift_ppm)
        return Process(self._scheduler, label, disk, clock)

    def run(self, main: Callable[[], T]) -> T:
        """Run `main` as a task of the first process until it returns; then every other task ends."""
        return self._scheduler.run(main, self.first)

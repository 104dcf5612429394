"""The worlds that the conformance suites of the ports run in: the machine, and simulations of it.

A test takes the fixture `world` over `WORLDS` and tells a story; where the story waits or starts tasks it
goes through `world.run`, which is a plain call on the machine and a run under a seed in a simulation.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from heliograph.runtime.ports import Clock, Disk, Random, Tasks, system_ports
from heliograph.sim import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = TypeVar("T")

WORLDS = ("machine", "simulation 1", "simulation 2", "busy simulation 3")


@dataclass(frozen=True)
class World:
    clock: Clock
    tasks: Tasks
    random: Random
    disk: Disk
    simulation: Simulation | None

    def run(self, story: Callable[[], T]) -> T:
        return story() if self.simulation is None else self.simulation.run(story)


def make_world(kind: str, folder: Path) -> World:
    simulation = None
    if kind == "machine":
        ports = system_ports(folder / "disk")
    else:
        seed = int(kind.rsplit(" ", 1)[1])
        # On a busy machine a port call takes time, so time-outs and work overtake each other.
        simulation = Simulation(seed, step_ns=50_000 if "busy" in kind else 0)
        ports = simulation.ports
    assert ports.disk is not None
    return World(ports.clock, ports.tasks, ports.random, ports.disk, simulation)


@contextmanager
def ctrl_c_until_heard() -> Iterator[Callable[[], None]]:
    """Yields a function for another thread, which interrupts the main thread once.

    CPython does not see a signal that comes just before it blocks until something else wakes it, so the
    signal is repeated; the handler takes the first that is heard for the Ctrl-C and the others for nothing.
    """
    heard = threading.Event()

    def interrupt(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def send() -> None:
        while not heard.wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield send
    finally:
        signal.signal(signal.SIGINT, before)

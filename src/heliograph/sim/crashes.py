"""Cuts the power at every operation of a program, and looks at what every outcome leaves.

    class Writing:
        def run(self, disk): ...        # writes, and remembers what it promised to keep
        def check(self, disk): ...      # reads after the restart; asserts that the promises hold

    explore_crashes(Writing)            # raises CrashViolation where one does not

A crash leaves many possible disks, since each unsynced change may be lost, kept or cut at any byte. Where
they are few enough all of them are tried; elsewhere nothing, everything and a sample by the seed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import prod
from random import Random as Generator
from typing import TYPE_CHECKING, Protocol

from heliograph.errors import CrashViolation
from heliograph.sim.disk import SimDisk, random_outcome
from heliograph.sim.faults import PowerCut, PowerLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.sim.medium import Decide


class Scenario(Protocol):
    """A program with promises. A new one is made for each crash, and must do the same each time."""

    def run(self, disk: SimDisk) -> None: ...

    def check(self, disk: SimDisk) -> None: ...


@dataclass(frozen=True, slots=True)
class Explored:
    """How much was tried."""

    points: int
    outcomes: int
    sampled_points: int


class Choices:
    """Goes through all sequences of decisions, one sequence per round, as an odometer does."""

    def __init__(self) -> None:
        self._chosen: list[int] = []
        self._outcomes: list[int] = []
        self._asked = 0

    def __call__(self, outcomes: int) -> int:
        if self._asked == len(self._chosen):
            self._chosen.append(0)
            self._outcomes.append(outcomes)
        self._asked += 1
        return self._chosen[self._asked - 1]

    def advance(self) -> bool:
        """Set up the next round; False when all were seen."""
        self._asked = 0
        while self._chosen:
            self._chosen[-1] += 1
            if self._chosen[-1] < self._outcomes[-1]:
                return True
            self._chosen.pop()
            self._outcomes.pop()
        return False


def explore_crashes(scenario: Callable[[], Scenario], *, seed: int = 0, outcomes: int = 1000) -> Explored:
    """Try every operation of the scenario as the last, and up to `outcomes` disks that it may leave."""
    whole = SimDisk(seed=seed)
    scenario().run(whole)
    points = whole.calls + 1  # the last one lies behind the last operation
    tried = sampled = 0
    for point in range(1, points + 1):
        exhaustive = _count_outcomes(scenario(), point, seed) <= outcomes
        sampled += not exhaustive
        for outcome, decide in _every_outcome() if exhaustive else _sample(seed, point, outcomes):
            attempt = scenario()
            disk = _run_until(attempt, point, seed).crash(decide)
            tried += 1
            try:
                attempt.check(disk)
            except Exception as error:
                raise CrashViolation(point, outcome, error, seed=seed) from error
    return Explored(points, tried, sampled)


def _run_until(attempt: Scenario, point: int, seed: int) -> SimDisk:
    disk = SimDisk(seed=seed, faults=[PowerCut("any", at=point)])
    with suppress(PowerLoss):
        attempt.run(disk)
    return disk


def _count_outcomes(attempt: Scenario, point: int, seed: int) -> int:
    """At most so many disks a crash there may leave: keeping everything, every decision is asked for."""
    asked: list[int] = []

    def keep(outcomes: int) -> int:
        asked.append(outcomes)
        return 1

    _run_until(attempt, point, seed).crash(keep)
    return prod(asked)


def _every_outcome() -> Iterator[tuple[str, Decide]]:
    choices = Choices()
    number = 1
    yield "outcome 1", choices
    while choices.advance():
        number += 1
        yield f"outcome {number}", choices


def _sample(seed: int, point: int, count: int) -> Iterator[tuple[str, Decide]]:
    yield "nothing unsynced kept", lambda _outcomes: 0
    yield "everything kept", lambda _outcomes: 1
    for number in range(1, count - 1):
        yield f"sample {number}", random_outcome(Generator(f"{seed}/{point}/{number}"))  # noqa: S311 - repeatable by intent

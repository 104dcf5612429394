"""Simulated runs that went wrong."""

from __future__ import annotations

from heliograph.errors.base import HeliographError


class SimulationError(HeliographError):
    """A simulated run went wrong."""

    reason: str
    """What happened."""
    seed: int
    """The seed that repeats the run, step by step."""

    def __str__(self) -> str:
        return f"{self.reason} (seed {self.seed})"


class SimDeadlock(SimulationError):
    """Every task waits, and no time-out will ever end one of the waits.

    Attributes:
        waits: task name to what it waits for.
    """

    def __init__(self, waits: dict[str, str], *, seed: int) -> None:
        lines = "".join(f"\n  {task} waits for {what}" for task, what in waits.items())
        super().__init__("every task waits and no time-out ends it:" + lines, seed=seed)
        self.waits = waits


class SimStuck(SimulationError):
    """Port calls went on and on while the simulated time stood still: a task polls instead of waiting.

    Attributes:
        task: the task that made the last call.
        steps: how many port calls were made at that instant.
    """

    def __init__(self, task: str, steps: int, *, seed: int) -> None:
        super().__init__(
            f"{steps} port calls without any time passing, the last by task {task!r}; "
            "wait with a time-out instead of polling",
            seed=seed,
        )
        self.task = task
        self.steps = steps


class SimTaskFailed(SimulationError):
    """An exception ended a task, and no other task joined it to hear of it.

    Attributes:
        task: the name of the task; the exception is the cause (`__cause__`).
    """

    def __init__(self, task: str, error: BaseException, *, seed: int) -> None:
        super().__init__(f"task {task!r} failed: {error!r}", seed=seed)
        self.task = task


class CrashViolation(SimulationError):
    """A promise did not survive a simulated power loss.

    Attributes:
        operation: the disk operation, counted from 1, at which the power went.
        outcome: how that operation and the survivors were chosen, for reading and for repeating it.
    """

    def __init__(self, operation: int, outcome: str, error: BaseException, *, seed: int) -> None:
        super().__init__(f"power loss at disk operation {operation} ({outcome}): {error}", seed=seed)
        self.operation = operation
        self.outcome = outcome


class PromiseBroken(SimulationError):
    """A promise did not hold in a simulated federation; `python -m heliograph.sim SEED` repeats it."""

    def __init__(self, promise: str, *, seed: int) -> None:
        super().__init__(promise, seed=seed)

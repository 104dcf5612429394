"""A process of its own for consumers could not be started, or has ended."""

from __future__ import annotations

from heliograph.errors.base import HeliographError


class WorkerError(HeliographError):
    """A band worker is not there."""

    worker: str
    """Its name."""
    reason: str
    """What happened."""

    def __str__(self) -> str:
        return f"band worker {self.worker}: {self.reason}"


class WorkerFailed(WorkerError):
    """Its process could not begin its work; the reason is what went wrong there."""


class WorkerDied(WorkerError):
    """Its process ended by itself.

    Attributes:
        process: the id it had.
        restarts: how often it was started again before.
        is_given_up: whether it will not be started again.
    """

    def __init__(self, worker: str, reason: str, process: int, restarts: int, *, is_given_up: bool) -> None:
        then = "it died too often and is not started again" if is_given_up else "it is started again"
        super().__init__(worker, f"process {process} {reason}; {then}")
        self.process = process
        self.restarts = restarts
        self.is_given_up = is_given_up


class WorkerHung(WorkerError):
    """Its process gives no sign of life, or does not come back from a callback.

    Attributes:
        process: its id.
        seconds: for how long.
        is_killed: whether it is killed for that, and started again.
    """

    def __init__(self, worker: str, process: int, seconds: float, *, is_killed: bool) -> None:
        then = (
            "it is killed, and started again"
            if is_killed
            else "it is left alone, in a callback up to callback_limit: on_hang='restart' kills it at once"
        )
        super().__init__(worker, f"process {process} hangs since {seconds:.1f} seconds; {then}")
        self.process = process
        self.seconds = seconds
        self.is_killed = is_killed

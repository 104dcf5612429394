"""The passes of a job, and what it tells meanwhile."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from heliograph.errors import InvalidOption
from heliograph.spark.jobs.following import Passes


@dataclass
class Done:
    left: int = 0
    seconds: float = 0.0


def test_there_is_one_pass_without_follow() -> None:
    assert list(Passes(Done())) == [0]


def test_a_job_that_follows_goes_on_until_it_is_stopped() -> None:
    stop, seen = threading.Event(), []
    for number in Passes(Done(), follow=True, every=0.0, stop=stop):
        seen.append(number)
        if number == 3:
            stop.set()
    assert seen == [0, 1, 2, 3]


def test_whoever_looks_is_told_how_much_is_left() -> None:
    seen: list[int] = []
    done = Done()
    passes = Passes(done, progress=lambda so_far: seen.append(so_far.left))
    for _ in passes:
        passes.tell(7)
        passes.tell(0)
    assert seen == [7, 0]
    assert done.seconds > 0


def test_seconds_between_passes_are_not_negative() -> None:
    with pytest.raises(InvalidOption, match="every"):
        Passes(Done(), every=-1)

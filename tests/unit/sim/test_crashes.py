"""The exploration of crashes: that it leaves nothing out, and how it reports."""

from __future__ import annotations

from itertools import product

import pytest

from heliograph.errors import CrashViolation
from heliograph.sim import Explored, SimDisk, explore_crashes
from heliograph.sim.crashes import Choices


def test_choices_go_through_every_combination_once() -> None:
    choices = Choices()
    seen = []
    while True:
        seen.append((choices(2), choices(3), choices(1), choices(2)))
        if not choices.advance():
            break
    assert seen == list(product(range(2), range(3), range(1), range(2)))


def test_choices_follow_questions_that_depend_on_earlier_answers() -> None:
    choices = Choices()
    seen = []
    while True:
        first = choices(3)
        seen.append((first, choices(2) if first == 1 else None))
        if not choices.advance():
            break
    assert seen == [(0, None), (1, 0), (1, 1), (2, None)]


class TwoWrites:
    """Two unsynced writes to a file that is there; collects every disk that a crash leaves."""

    left: set[bytes | None]

    def run(self, disk: SimDisk) -> None:
        with disk.create("a") as file:
            disk.sync_folder()
            file.append(b"ab")
            file.append(b"c")

    def check(self, disk: SimDisk) -> None:
        self.left.add(disk.read("a") if disk.exists("a") else None)


def test_every_disk_that_a_crash_may_leave_is_looked_at() -> None:
    TwoWrites.left = set()
    explored = explore_crashes(TwoWrites)
    assert TwoWrites.left == {None, b"", b"a", b"ab", b"\0\0c", b"a\0c", b"abc"}
    # Before create 1, before sync_folder 2, before each append 1 and 3, behind the last 3 times 2.
    assert explored == Explored(points=5, outcomes=1 + 2 + 1 + 3 + 6, sampled_points=0)


def test_where_there_are_too_many_outcomes_nothing_everything_and_a_sample_are_looked_at() -> None:
    TwoWrites.left = set()
    explored = explore_crashes(TwoWrites, outcomes=4)
    assert explored == Explored(points=5, outcomes=1 + 2 + 1 + 3 + 4, sampled_points=1)
    assert {b"", b"abc"} <= TwoWrites.left


def test_a_violation_names_the_operation_the_outcome_and_the_seed() -> None:
    class Unlucky(TwoWrites):
        def check(self, disk: SimDisk) -> None:
            if disk.exists("a") and disk.read("a") == b"a\0c":
                raise ValueError("holes are not expected")

    with pytest.raises(
        CrashViolation, match=r"operation 5 \(outcome 6\): holes are not expected \(seed 9\)"
    ) as caught:
        explore_crashes(Unlucky, seed=9)
    assert (caught.value.operation, caught.value.outcome, caught.value.seed) == (5, "outcome 6", 9)
    assert isinstance(caught.value.__cause__, ValueError)

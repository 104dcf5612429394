"""The keeper that hands out to a group is stopped with SIGSTOP and goes on: the group goes on as well."""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from heliograph.links import PEER_LIMIT
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, wait_until
from tests.faults.test_group_kill import SEED, Crew, check_marks, crew
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["crew"]

WORKERS = 2
BURST = 2_000
"""Orders, more than are done before the keeper is stopped."""
LEASE = 60.0
"""Seconds, of the members: what a ghost holds would come again only then."""


class Host:
    """The keeper: takes orders, and says how many members sit at the group's desk."""

    def __init__(self, folder: Path) -> None:
        self.program = Program("host", str(folder), module="tests.faults.group_process")
        self.program.says("keeping")

    def take(self, orders: int) -> None:
        assert self.program.process.stdin is not None
        self.program.process.stdin.write(f"{orders}\n")
        self.program.process.stdin.flush()

    def members(self) -> int:
        before = len(self.program.said)
        self.take(0)
        assert wait_until(lambda: len(self.program.said) > before)
        return int(self.program.said[-1].removeprefix("members "))

    def stop(self, seconds: float) -> None:
        self.program.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.program.process.send_signal(signal.SIGCONT)


@pytest.fixture
def host(crew: Crew, tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "data")
    yield host
    host.program.process.send_signal(signal.SIGCONT)
    host.program.clean_up()


@pytest.mark.parametrize("seconds", [PEER_LIMIT - 1, PEER_LIMIT + 2])
def test_a_group_goes_on_when_its_keeper_was_stopped_and_goes_on(
    crew: Crew, host: Host, seconds: float
) -> None:
    """And no seat is left that nobody asks from: what it was handed would be missing for a whole lease."""
    chance = random.Random(SEED)
    for _ in range(WORKERS):
        crew.hire()
    for worker in crew.workers:
        worker.says("working")
    total = 0
    for _ in range(examples(1)):
        host.take(BURST)
        total += BURST
        time.sleep(chance.random() * 0.3)
        host.stop(seconds)

        def numbers() -> set[int]:
            return {number for _, number, _ in crew.done()}

        is_done = wait_until(lambda: len(numbers()) == total, LEASE - 10)  # noqa: B023 - called at once
        assert is_done, f"{total - len(numbers())} are missing"
        assert wait_until(lambda: host.members() == WORKERS, LIMIT), "a ghost has a seat"
    check_marks(crew.done())

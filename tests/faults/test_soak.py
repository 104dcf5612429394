"""Hours in little: a keeper, a supplier, consumers and a worker that is killed, under a mixed load.

CI runs it for seconds, `make soak` for half an hour, `HELIO_SOAK=28800 make soak` for a day. From three
minutes on a process that holds more and more memory, descriptors or threads fails it.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.link_programs import Program
from tests.e2e.link_support import own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = float(os.environ.get("HELIO_SOAK", "8"))
KILL_EVERY = 10.0
LONG = 180.0
"""A shorter run says nothing about slopes: caches and pools are still being filled."""
FEW = 5
"""Heads that are read, and threads that wait, come and go with the load of the host. What leaks one with
each kill, or with each head that is closed, leaks dozens in a quarter of half an hour."""
PAGE = os.sysconf("SC_PAGESIZE")


def held(process: int) -> tuple[int, int, int]:
    """What a process holds: bytes of memory, descriptors, threads."""
    folder = Path(f"/proc/{process}")
    memory = int((folder / "statm").read_text().split()[1]) * PAGE
    return memory, len(os.listdir(folder / "fd")), len(os.listdir(folder / "task"))  # noqa: PTH208 - how many


class Watch:
    """What each process held, over time."""

    def __init__(self) -> None:
        self.samples: dict[str, list[tuple[float, int, int, int]]] = {}
        self._next = 0.0

    def look(self, roles: dict[str, Program]) -> None:
        """Once a second at most."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + 1
        for role, program in roles.items():
            self.samples.setdefault(role, []).append((now, *held(program.process.pid)))

    def growing(self) -> list[str]:
        """Which process holds more in each quarter of its time than in the one before, and of what.

        A library that is loaded late, such as Arrow for the first read of a sealed file, is one step.
        """
        found = []
        for role, samples in self.samples.items():
            quarter = len(samples) // 4
            quarters = [samples[n * quarter : (n + 1) * quarter] for n in (1, 2, 3)]
            for what, column, step in (("memory", 1, 1 << 20), ("descriptors", 2, FEW), ("threads", 3, FEW)):
                second, third, last = (statistics.median(row[column] for row in rows) for rows in quarters)
                if third >= second + step and last >= third + step:
                    found.append(f"{role}: {what} {second:.0f}, {third:.0f}, {last:.0f}")
        return found

    def __str__(self) -> str:
        rows = (
            f"{role} {[row[1:] for row in s[:: max(1, len(s) // 6)]]}" for role, s in self.samples.items()
        )
        return "; ".join(rows)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    own_meeting_folder(monkeypatch, tmp_path)
    programs: list[Program] = []

    def program(*arguments: str) -> Program:
        programs.append(Program(*arguments, module="tests.faults.soak_process"))
        return programs[-1]

    yield program
    for running in programs:
        running.clean_up()


def test_under_a_mixed_load_counts_agree_and_nothing_grows(
    start: Callable[..., Program], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keeper = start("keeper", str(tmp_path / "data"))
    keeper.says("ready")
    consumer, worker = start("consumer"), start("worker")
    consumer.says("ready")
    supplier, watch, kills = start("supplier"), Watch(), 0
    roles = {"keeper": keeper, "consumer": consumer, "supplier": supplier}
    begun = last_kill = time.monotonic()

    def is_over() -> bool:
        nonlocal worker, last_kill, kills
        now = time.monotonic()
        watch.look(roles)
        if now - last_kill > KILL_EVERY:
            worker.kill()
            worker.clean_up()
            worker, last_kill, kills = start("worker"), now, kills + 1
        return now - begun > SECONDS

    assert wait_until(is_over, SECONDS + 60)
    growing = watch.growing() if SECONDS >= LONG else []
    assert supplier.end() == 0
    _, live, kept, balanced, *dropped = supplier.says("pushed").split(maxsplit=4)
    assert consumer.end() == 0
    assert keeper.end() == 0
    with capsys.disabled():
        if SECONDS >= LONG:
            print(f"\n{live} live and {kept} kept events, {kills} kills of a worker; {watch}")
    assert (balanced, dropped) == ("True", ["{}"])
    assert consumer.says("got").split() == ["got", live, "0", kept, "True"]
    assert keeper.says("kept") == "kept True"
    assert not growing

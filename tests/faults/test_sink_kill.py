"""SIGKILL for everybody on the way of a batch, at every named point and at random: each row is there once.

CI kills somebody twice at each point and a few at random; with HELIO_EXAMPLES=10 it is everybody ten times at
each point, and 50 at random.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import heliograph as hg
from heliograph.journal.station_folder import FOR_A_MOMENT, Keeping
from heliograph.runtime.fault_points import POINTS, VARIABLE
from heliograph.runtime.ports import system_ports
from tests.e2e.link_support import wait_until
from tests.faults.sink_player import CHANNEL, ROWS, TASKS, Total
from tests.support import EXAMPLES_FACTOR

PLAYER = Path(__file__).with_name("sink_player.py")
LIMIT = 150.0
"""Seconds for anything that is waited for, and for 25 batches."""
VICTIMS = ("driver", "worker", "station")
BATCHES = 4
CASES = [
    (point, victim)
    for place, point in enumerate(POINTS)
    for turn, victim in enumerate(VICTIMS)
    if EXAMPLES_FACTOR > 1 or turn != place % 3
]


class Theatre:
    """The two processes, and what can happen to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.folder.mkdir()
        self.token = folder / "token"
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, part: str, *args: object, fault: str = "") -> None:
        env = {**os.environ, VARIABLE: fault, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, str(PLAYER), part, str(self.folder), *map(str, args)]
        process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._running[part] = process
        if part == "station":
            assert process.stdout is not None
            assert process.stdout.readline() == b"here\n"

    def kill(self, victim: str) -> None:
        """A driver takes its workers with it; workers are those processes that the driver has just now."""
        if victim == "worker":
            for child in self._children():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            return
        process = self._running[victim]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT)

    def is_over(self, part: str) -> bool:
        return self._running[part].poll() is not None

    def to_the_end(self, batches: int) -> None:
        """Start again whatever is not there, as often as needed, until the query has come to its end."""
        for _ in range(20):
            if "station" not in self._running or self.is_over("station"):
                self.close("station")
                self.start("station")
            if self._running["driver"].wait(LIMIT * max(1, batches // 25)) == 0:
                # A batch is taken in before its files are removed, and after the last one nobody comes again.
                assert wait_until(lambda: not left_in_inbox(self.folder), LIMIT)
                return
            self.close("driver")
            self.start("driver", batches)
        pytest.fail("the query did not come to its end")

    def close(self, *parts: str) -> None:
        for part in parts or tuple(self._running):
            process = self._running.pop(part, None)
            if process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(LIMIT)
                assert process.stdout is not None
                process.stdout.close()

    def _children(self) -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[1]) == self._running["driver"].pid:
                    found.append(int(stat.parent.name))
        return found


def left_in_inbox(folder: Path) -> list[str]:
    found = [name for _, _, names in os.walk(folder / "inbox") for name in names]
    return [name for name in found if not name.endswith(".tmp")]


def check(folder: Path, batches: int) -> None:
    """Event by event: all there, each once, numbered without a gap, and nothing left in the inbox."""
    tidied = Keeping(system_ports(folder), note=FOR_A_MOMENT)
    tidied.take_in()
    tidied.close()
    with hg.Station(folder) as station:
        totals = station.channel(CHANNEL, Total, mode="open")
        with totals.consumer(start="earliest", until="now") as consumer:
            found = [(d.event.id, d.header.supplier, d.header.sequence) for d in consumer.deliveries()]
    assert found == [(n, "w", n + 1) for n in range(batches * TASKS * ROWS)]
    assert left_in_inbox(folder) == []


def kill_at(point: str, victim: str, folder: Path, *, later: bool) -> None:
    """One run with one kill, in its first batch or later, and everything after it."""
    stage = Theatre(folder)
    told = stage.token.with_name("token.pid")
    fault = f"stop:{point}@{stage.token}"
    at_the_station = point.endswith(("adoption", "unlink"))
    try:
        stage.start("station", fault=fault if at_the_station else "")
        stage.start("driver", BATCHES, fault="" if at_the_station else fault)
        if later:
            assert wait_until((folder / "checkpoint" / "0.committed").exists, LIMIT)
        stage.token.touch()
        assert wait_until(lambda: told.exists() or stage.is_over("driver"), LIMIT)
        assert told.exists(), "the point was reached"
        stage.kill(victim)
        with suppress(ProcessLookupError):
            os.kill(int(told.read_text()), signal.SIGCONT)
        stage.to_the_end(BATCHES)
    finally:
        stage.close()
    check(stage.folder, BATCHES)


@pytest.mark.timeout(300 * EXAMPLES_FACTOR)
@pytest.mark.parametrize(("point", "victim"), CASES)
def test_whoever_is_killed_at_a_point_each_row_is_there_once(point: str, victim: str, tmp_path: Path) -> None:
    for attempt in range(EXAMPLES_FACTOR):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        kill_at(point, victim, folder, later=bool(attempt % 2))


@pytest.mark.timeout(300 * EXAMPLES_FACTOR)
def test_kills_at_random_instants_leave_each_row_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    kills, batches = 5 * EXAMPLES_FACTOR, 25 * EXAMPLES_FACTOR
    stage = Theatre(tmp_path)
    struck = 0
    try:
        stage.start("station")
        stage.start("driver", batches)
        while struck < kills:
            time.sleep(chance.uniform(0.0, 0.4))
            stage.kill(chance.choice(VICTIMS))
            struck += 1
            for part in ("station", "driver"):
                if stage.is_over(part):
                    stage.close(part)
                    stage.start(part, *([batches] if part == "driver" else []))
        stage.to_the_end(batches)
    finally:
        stage.close()
    check(stage.folder, batches)

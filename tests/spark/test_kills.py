"""A stream into a table while its driver, a Python worker and the station are killed: each event once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.dataset as ds
import pytest

from heliograph.journal.format.folder import StationFolder
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 200.0
"""Seconds for anything that is waited for."""


class Program:
    """One of the programs in a session of its own, its output in a file."""

    def __init__(self, name: str, log: Path, *arguments: str) -> None:
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAMS / name), *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def batches(self) -> int:
        return sum(line.startswith("batch ") for line in self.lines)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, done: Callable[[Program], bool]) -> None:
        """Until that is so, or the program has ended."""
        end = time.monotonic() + LIMIT
        while not done(self) and not self.ended:
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)

    def wait_for_batches(self, more: int) -> None:
        wanted = self.batches() + more
        self.wait(lambda program: program.batches() >= wanted)

    def kill(self) -> None:
        """All of it: Java and Python workers stay in its session."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_a_worker(self) -> None:
        """The process that Python workers are forked from, and with it what they were at."""
        found = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _is_worker(entry, self.process.pid)
        ]
        random.shuffle(found)
        for worker in found:
            with suppress(ProcessLookupError):  # one that has just ended by itself
                os.kill(worker, signal.SIGKILL)
                return
        assert self.ended, "there is no worker"


def _is_worker(entry: Path, session: int) -> bool:
    try:
        command = (entry / "cmdline").read_bytes()
        return b"pyspark.daemon" in command and os.getsid(int(entry.name)) == session
    except (OSError, ProcessLookupError):
        return False


@pytest.mark.timeout(0)
def test_each_event_is_in_the_table_once_whatever_was_killed(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    out.mkdir()
    runs = count()
    acked = 0

    def produce() -> Program:
        started = Program("produce.py", tmp_path / f"produce-{next(runs)}.log", str(data), str(acked))
        started.wait(lambda program: len(program.lines) > 2)
        assert not started.ended, started.log.read_text()
        return started

    def stream() -> Program:
        return Program("table.py", tmp_path / f"table-{next(runs)}.log", str(data), str(out))

    station = produce()
    table = stream()
    try:
        for victim in examples(1) * ["worker", "driver", "station"]:
            table.wait_for_batches(random.randint(1, 3))
            match victim:
                case "driver":
                    table.kill()
                case "worker":
                    table.kill_a_worker()
                case "station":
                    station.kill()
                    acked = int(station.lines[-1])
                    station = produce()
            if table.ended:
                table = stream()
        station.kill()
        (out / "end").touch()
        table.wait(lambda _: False)
        while table.process.returncode:  # the worker's death has reached it only now
            table = stream()
            table.wait(lambda _: False)
    finally:
        for program in (station, table):
            if not program.ended:
                program.kill()
    acked = int(station.lines[-1])
    files = [str(path) for path in (out / "rows").rglob("*.parquet")]
    found = ds.dataset(files).to_table(columns=["partition", "offset", "id"]).to_pydict()
    assert sorted(zip(*found.values(), strict=True)) == journalled(data)
    assert set(found["id"]) >= set(range(acked))


def journalled(data: Path) -> list[tuple[str, int, int]]:
    """What is durable, read without Spark."""
    folder = StationFolder(data)
    rows = []
    for partition in folder.partitions("air.tracks"):
        with folder.reader("air.tracks", partition) as reader:
            position = reader.earliest
            while found := reader.read(position, max_events=10_000):
                rows += [(partition, r.offset, msgspec.msgpack.decode(r.record.body)[0]) for r in found]
                position = found[-1].offset + 1
    return sorted(rows)

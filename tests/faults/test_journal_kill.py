"""kill -9 of a real writer at random instants, with a reader looking on all the while."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import pytest

from heliograph.errors import NoSuchFile
from heliograph.journal.format import manifest as manifests
from heliograph.journal.reading.reader import PartitionReader
from heliograph.runtime.ports import LocalDisk
from tests.e2e.link_support import wait_until
from tests.support import examples
from tests.unit.journal.helpers import FOLDER, recovered

ROOT = Path(__file__).parents[2]
VICTIM = Path(__file__).with_name("journal_victim.py")
ONLOOKER = Path(__file__).with_name("journal_onlooker.py")
KILLS = 40
LIMIT = 60.0
SEALING = 8
"""Every so many lives the victim also seals."""


class Onlooker:
    """Reads everything as soon as it is visible, and remembers what stood where."""

    def __init__(self, folder: Path) -> None:
        self.seen: dict[int, tuple[str, int, int]] = {}
        self._disk = LocalDisk(folder)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _look(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    reader = PartitionReader(self._disk, FOLDER)
                except NoSuchFile:
                    continue  # the first victim has not got so far yet
                with reader:
                    self._follow(reader)
        except BaseException as error:  # noqa: BLE001 - raised again where the test waits for it
            self.error = error

    def _follow(self, reader: PartitionReader) -> None:
        position = 0
        while not self._stop.is_set():
            if reader.wait(position, timeout=0.05):
                for row in reader.read(position):
                    assert row.offset == position
                    self.seen[position] = (row.record.supplier, row.record.epoch, row.record.sequence)
                    position += 1


class Watcher:
    """A process of its own that reads everything as soon as it is visible."""

    def __init__(self, folder: Path, partition: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(ONLOOKER), str(folder), partition], stdout=subprocess.PIPE, env=environment()
        )
        self._said: list[bytes] = []
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._listener.join()
        self._process.__exit__(None, None, None)

    def seen(self) -> dict[int, tuple[str, int, int]]:
        """What it saw where, once it has ended."""
        whole, _, _ = b"".join(self._said).rpartition(b"\n")  # the last line may have been cut
        words = [line.split() for line in whole.decode().splitlines()]
        return {int(offset): (name, int(life), int(number)) for offset, name, life, number in words}

    @property
    def lines(self) -> int:
        """How many it has seen by now."""
        return len(self._said)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)  # one by one: somebody may count them


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}


def has_sealed(folder: Path) -> bool:
    return bool(manifests.load(LocalDisk(folder), FOLDER).segments)


def one_life(folder: Path, life: int, chance: random.Random) -> list[tuple[str, int, int, int]]:
    """Start a victim, let it run for a random while, kill it; returns what it was told is durable.

    The first is not killed before it has sealed something.
    """
    arguments = [sys.executable, str(VICTIM), str(folder), str(life)]
    if life % SEALING == 0:
        arguments.append("seal")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment()) as victim:
        assert victim.stdout is not None
        said = os.read(victim.stdout.fileno(), 1 << 16)  # it lives
        assert said, "the victim died by itself"
        until = time.monotonic() + chance.uniform(0, 1.5 if "seal" in arguments else 0.12)
        while (left := until - time.monotonic()) > 0 or (life == 0 and not has_sealed(folder)):
            assert left > -LIMIT, "it never seals"
            if select.select([victim.stdout], [], [], max(left, 0.01))[0]:
                said += os.read(victim.stdout.fileno(), 1 << 16)
        victim.kill()
        said += victim.stdout.read()
    acked = []
    for line in said.decode().splitlines():
        name, epoch, sequence, offset = line.split()
        acked.append((name, int(epoch), int(sequence), int(offset)))
    return acked


@pytest.mark.timeout(examples(300))
def test_a_killed_writer_loses_nothing_that_it_acknowledged_or_that_a_reader_saw(tmp_path: Path) -> None:
    chance = random.Random(2026)
    acked: dict[tuple[str, int, int], int] = {}
    with Watcher(tmp_path, FOLDER) as watcher, Onlooker(tmp_path) as onlooker:
        for life in range(examples(KILLS)):
            for name, epoch, sequence, offset in one_life(tmp_path, life, chance):
                assert (name, epoch, sequence) not in acked
                acked[name, epoch, sequence] = offset
        assert wait_until(lambda: watcher.lines > 1), "another process looked on"
    watched = watcher.seen()

    disk = LocalDisk(tmp_path)
    recovered(disk)
    found: list[tuple[str, int, int]] = []
    with PartitionReader(disk, FOLDER) as reader:
        while rows := reader.read(len(found), max_events=5000):
            assert [row.offset for row in rows] == list(range(len(found), len(found) + len(rows)))
            found += [(row.record.supplier, row.record.epoch, row.record.sequence) for row in rows]
        assert reader.manifest.damage == ()
    assert len(set(found)) == len(found), "nothing is there twice"
    for event, offset in acked.items():
        assert found[offset] == event
    for offset, event in (*onlooker.seen.items(), *watched.items()):
        assert found[offset] == event
    for supplier in "ab":
        mine = [event for event in found if event[0] == supplier]
        assert mine == sorted(mine), "the order of each supplier is kept"
    assert len(acked) > 100

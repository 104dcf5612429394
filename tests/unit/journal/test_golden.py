"""Files of every format version so far can be read, written on and sealed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from heliograph.journal.consumers.cursors import CursorStore
from heliograph.journal.format import frames
from heliograph.journal.tools.inspection import verify
from heliograph.runtime.ports import LocalDisk
from tests.unit.journal.golden.make import ACKS, EVENTS, FRAMES, MARKS, POSITIONS
from tests.unit.journal.helpers import FOLDER, commit, history, partition, ports, seal_everything, track

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if path.name.startswith("v"))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def disk(version: str, tmp_path: Path) -> LocalDisk:
    shutil.copytree(GOLDEN / version, tmp_path / "golden")
    return LocalDisk(tmp_path / "golden")


def test_there_is_a_golden_partition_of_every_version() -> None:
    assert [f"v{version}" for version in frames.READABLE] == VERSIONS


def test_an_old_partition_reads_as_it_was_written(disk: LocalDisk, version: str) -> None:
    assert history(disk) == EVENTS[version]
    report = verify(disk, FOLDER)
    assert report.sound
    assert (report.files, report.frames, report.epoch) == (2, FRAMES[version], 1)


def test_an_old_partition_is_written_on_and_sealed(disk: LocalDisk, version: str) -> None:
    writer = partition(disk)
    assert writer.marks == MARKS[version]
    assert commit(writer, [track(99)]) == len(EVENTS[version])
    assert seal_everything(writer, disk) == 1
    assert history(disk) == [*EVENTS[version], track(99)]


def test_old_cursors_go_on_where_they_were(disk: LocalDisk) -> None:
    with CursorStore(ports(disk), "consumers") as store:
        cursor = store.open("billing", "you")
        assert cursor.positions() == POSITIONS
        assert cursor.acks("a1") == frozenset(ACKS["a1"])
        assert cursor.epoch == 2

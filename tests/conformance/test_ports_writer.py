"""A small writer that keeps its word through any power loss, and the same writer with one sync left out.

The writer keeps records in segments and a summary beside them. It syncs at four places. The power is cut at
every disk operation, every disk that may be left is looked at, and with any of the four syncs removed there
is one that breaks a promise: this is what the simulated disk is for.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import CrashViolation
from heliograph.runtime.ports import LocalDisk
from heliograph.sim import SimDisk, explore_crashes

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.runtime.ports import Disk, File

FRAME = struct.Struct("<HI")
RECORDS = [b"a", b"bb", b"", b"ccc", b"d"]
RECORDS_PER_SEGMENT = 2

SYNCS = ("record", "segment name", "summary", "summary name")


class Writer:
    """Appends records; a record is promised once `acked` holds it, a summary once `summarised` counts it."""

    def __init__(self, left_out: str = "") -> None:
        self.left_out = left_out
        self.acked: list[bytes] = []
        self.summarised = 0

    def run(self, disk: Disk) -> None:
        for start in range(0, len(RECORDS), RECORDS_PER_SEGMENT):
            with disk.create(f"segment-{start:04}") as segment:
                if self.left_out != "segment name":
                    disk.sync_folder()
                for record in RECORDS[start : start + RECORDS_PER_SEGMENT]:
                    self.append(segment, record)
            self.summarise(disk)

    def append(self, segment: File, record: bytes) -> None:
        segment.append(FRAME.pack(len(record), zlib.crc32(record)), record)
        if self.left_out != "record":
            segment.sync()
        self.acked.append(record)

    def summarise(self, disk: Disk) -> None:
        count = len(self.acked)
        with disk.create("summary.new") as file:
            file.append(struct.pack("<Q", count))
            if self.left_out != "summary":
                file.sync()
        disk.rename("summary.new", "summary")
        if self.left_out != "summary name":
            disk.sync_folder()
        self.summarised = count

    def check(self, disk: Disk) -> None:
        records = recovered(disk)
        assert records[: len(self.acked)] == self.acked, "an acked record is missing"
        assert records == RECORDS[: len(records)], "a record appeared that was never written"
        assert len(records) <= len(self.acked) + 1, "more records than were ever appended"
        if self.summarised:
            assert struct.unpack("<Q", disk.read("summary"))[0] >= self.summarised, "an old summary came back"


def recovered(disk: Disk) -> list[bytes]:
    """The sound frames of all segments, each segment up to its first bad one."""
    records = []
    for name in disk.list():
        if name.startswith("segment-"):
            data = disk.read(name)
            while len(data) >= FRAME.size:
                size, checksum = FRAME.unpack_from(data)
                record = data[FRAME.size : FRAME.size + size]
                if len(record) < size or zlib.crc32(record) != checksum:
                    break
                records.append(record)
                data = data[FRAME.size + size :]
    return records


def test_the_whole_writer_keeps_every_promise_at_every_crash() -> None:
    explored = explore_crashes(Writer)
    assert explored.sampled_points == 0, "every outcome of every crash was tried"
    assert explored.points > 25
    assert explored.outcomes > 3 * explored.points


@pytest.mark.parametrize("left_out", SYNCS)
def test_leaving_out_one_sync_is_found(left_out: str) -> None:
    with pytest.raises(CrashViolation) as caught:
        explore_crashes(lambda: Writer(left_out))
    assert caught.value.operation > 1
    assert isinstance(caught.value.__cause__, Exception)


@pytest.mark.parametrize("left_out", SYNCS)
def test_a_found_violation_is_also_found_by_sampling(left_out: str) -> None:
    with pytest.raises(CrashViolation):
        explore_crashes(lambda: Writer(left_out), outcomes=3, seed=1)


@pytest.mark.parametrize("left_out", ["", *SYNCS])
def test_without_a_crash_each_writer_looks_right_on_both_disks(left_out: str, tmp_path: Path) -> None:
    disks: list[Disk] = [SimDisk(), LocalDisk(tmp_path)]
    for disk in disks:
        writer = Writer(left_out)
        writer.run(disk)
        writer.check(disk)
        assert recovered(disk) == RECORDS

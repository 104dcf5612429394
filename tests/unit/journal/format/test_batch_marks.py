"""Batches from outside in a partition: rows and mark together, once, whatever becomes of the files."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import AppendFailed, DiskError
from heliograph.journal.format.batch_marks import MAX_MARKS, Mark, decode_marks, encode_marks, remembered
from heliograph.journal.limits import Limits
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.sim import Fails, SimDisk
from tests.unit.journal.helpers import (
    FOLDER,
    FORMATS,
    HandClock,
    chunk,
    commit,
    history,
    partition,
    ports,
    seal_everything,
    track,
    tracks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.journal.format.records import Record
    from heliograph.journal.writing.partition import Chunk

MARK = Mark("totals", "checkpoint-1", 7, rows=6)
BATCH = [tracks(0, 2), tracks(2, 3), tracks(5, 1)]
ROWS = list(chain(*BATCH))


def frames(batch: list[list[Record]]) -> list[list[Chunk]]:
    return [[chunk(records)] for records in batch]


def test_marks_come_back_from_a_frame_as_they_were() -> None:
    marks = [MARK, Mark("other", "x", 0, 2, 5, ("a", "b"), once=True)]
    assert decode_marks(encode_marks(marks)) == marks
    assert decode_marks(b"") == []


def test_the_newest_mark_of_a_writer_is_remembered() -> None:
    table = remembered(remembered({}, MARK), Mark("other", "x", 0))
    newer = Mark("totals", "checkpoint-1", 8, rows=9)
    assert list(remembered(table, newer).values()) == [Mark("other", "x", 0), newer]


def test_beyond_the_limit_the_oldest_run_is_forgotten_and_no_stream() -> None:
    table = {f"stream-{n}": Mark(f"stream-{n}", "x", 0) for n in range(MAX_MARKS - 2)}
    for name in ("run-a", "run-b", "run-c"):
        table = remembered(table, Mark(name, name, 0, once=True))
    assert len(table) == MAX_MARKS
    assert "run-a" not in table
    assert {"stream-0", "run-b", "run-c"} <= table.keys()


@pytest.mark.parametrize("batch", [[ROWS], BATCH], ids=["one frame", "three frames"])
def test_a_batch_and_its_mark_survive_a_crash_together(batch: list[list[Record]]) -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, [track(90)])
    written = writer.adopt(frames(batch), MARK)
    assert (written.first, written.events, writer.watermark) == (1, 6, 7)
    for restarted in (SimDisk.kill, SimDisk.crash):
        disk = restarted(disk)
        assert partition(disk).marks == {"totals": MARK}
        assert history(disk) == [track(90), *ROWS]


@pytest.mark.parametrize("last", [1, 2])
def test_a_batch_that_was_not_written_to_its_end_does_not_count(last: int) -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, [track(90)])

    def until_the_power_goes() -> Iterator[list[Chunk]]:
        yield from frames(BATCH)[:last]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.adopt(until_the_power_goes(), MARK)
    assert history(disk) == [track(90)]
    again = partition(disk.kill())
    assert (again.next, again.marks, again.recovery.damage) == (1, {}, ())


def test_a_batch_whose_last_frame_is_torn_is_cut_off_whole() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, [track(90)])
    writer.adopt(frames(BATCH), MARK)
    disk = disk.kill()
    (name,) = disk.list(f"{FOLDER}/heads")
    with disk.open(f"{FOLDER}/heads/{name}") as file:
        file.truncate(file.size() - 1)
    disk.remove(f"{FOLDER}/commit")  # else it would know that this is damage
    again = partition(disk)
    assert (again.next, again.marks, again.recovery.damage) == (1, {}, ())
    assert again.recovery.cut_bytes > 0
    assert history(disk) == [track(90)]


HEAD = f"{FOLDER}/heads/{0:020d}-{1:08x}-{1:04x}.log"


@pytest.mark.parametrize(
    "fault",
    [
        Fails("append", at=3, file=HEAD),  # its header and a first frame were before
        Fails("append", at=5, file=HEAD, partial=20),
        Fails("sync", at=3, file=HEAD),
    ],
    ids=["first frame", "last frame", "sync"],
)
def test_a_batch_that_the_disk_refuses_leaves_nothing_and_can_be_tried_again(fault: Fails) -> None:
    disk = SimDisk(faults=[fault])
    writer = partition(disk)
    commit(writer, [track(90)])
    with pytest.raises(DiskError):
        writer.adopt(frames(BATCH), MARK)
    assert (writer.next, writer.marks) == (1, {})
    assert writer.adopt(frames(BATCH), MARK).first == 1
    assert history(disk) == [track(90), *ROWS]
    assert partition(disk.kill()).marks == {"totals": MARK}


def test_marks_outlive_their_rows() -> None:
    """Rotation, sealing, retention and a new writer: the rows have gone, and the batch is still known."""
    disk, clock = SimDisk(), HandClock()
    limits = Limits(keep_seconds=1.0)
    writer = partition(disk, limits, clock)
    writer.adopt(frames(BATCH), MARK)
    assert seal_everything(writer, disk) == 1
    clock.now += 2_000_000_000
    writer.retain()
    assert writer.manifest.earliest == 6
    for restarted in (SimDisk.kill, SimDisk.crash):
        disk = restarted(disk)
        assert partition(disk, limits, clock).marks == {"totals": MARK}


def test_a_broken_batch_is_nothing_to_those_behind_it() -> None:
    disk = SimDisk()

    def broken() -> Iterator[list[Chunk]]:
        yield [chunk([track(1)])]
        raise ValueError("the staged file ends early")

    with PartitionWriter(ports(disk), FOLDER, FORMATS, sealer=None) as writer:
        receipts = [
            writer.append([track(90)]),
            writer.adopt(broken(), 2, MARK),
            writer.adopt(frames(BATCH), 6, MARK),
            writer.append([track(91)]),
        ]
        with pytest.raises(AppendFailed, match="ends early"):
            receipts[1].result(5.0)
        assert [receipts[n].result(5.0) for n in (0, 2, 3)] == [0, 1, 7]
        assert writer.marks == {"totals": MARK}
    assert history(disk) == [track(90), *ROWS, track(91)]

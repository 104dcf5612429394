"""Segments that are merged or compacted: the same rows at the same offsets, or the last of each key."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.keys import key_bytes
from heliograph.journal.format.records import TOMBSTONE, Record
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.compactor import rewrite
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.tools.inspection import verify
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.journal.writing.partition import WritablePartition
from heliograph.runtime.ports import LocalDisk, system_ports
from heliograph.sim import SimDisk
from tests.unit.journal.helpers import (
    FOLDER,
    FORMATS,
    TRACK,
    HandClock,
    alarm,
    commit,
    history,
    ports,
    seal_everything,
    tracks,
)

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.runtime.ports import Disk

SECOND = 10**9
COMPACT = Limits(keep_bytes=None, compact=True, tombstone_seconds=10)
MERGE = Limits(keep_bytes=None, grace_seconds=0)


def value(n: int, key: int) -> Record:
    return Record("radar", 1, n, 0, TRACK.id, msgspec.msgpack.encode([key, str(n)]))


def forgotten(n: int, key: int) -> Record:
    return Record("radar", 1, n, 0, TRACK.id, b"", kind=TOMBSTONE, key=key_bytes([key]))


def opened(disk: Disk, limits: Limits, clock: HandClock | None = None) -> WritablePartition:
    return WritablePartition(ports(disk, clock), FOLDER, FORMATS, limits)


def tidy(writer: WritablePartition, disk: Disk) -> int:
    """Rewrite until there is nothing to gain; returns how often that was."""
    settled: set[str] = set()
    times = 0
    while (job := writer.rewrite_job(settled)) is not None:
        made = rewrite(disk, job)
        writer.replace_segments(job, made)
        settled |= {segment.name for segment in made if segment in job.segments}
        times += 1
        assert times < 100, "it ends"
    return times


def rows(disk: Disk) -> dict[int, Record]:
    with PartitionReader(disk, FOLDER) as reader:
        return {row.offset: row.record for row in reader.read(reader.earliest, 100_000)}


def sealed(writer: WritablePartition, disk: Disk, *batches: list[Record]) -> None:
    for batch in batches:
        commit(writer, batch)
        seal_everything(writer, disk)


def test_small_segments_are_merged_into_one_with_the_same_rows() -> None:
    disk = SimDisk()
    writer = opened(disk, MERGE)
    sealed(writer, disk, *(tracks(5 * n, 5) for n in range(20)))
    assert tidy(writer, disk) == 2
    assert len(writer.manifest.segments) == 6
    assert all(one.next == other.first for one, other in pairwise(writer.manifest.segments))
    assert history(disk) == tracks(0, 100)
    assert verify(disk, FOLDER).sound
    assert len(disk.list(f"{FOLDER}/sealed")) == 6, "the old ones are gone"


def test_the_old_files_stay_for_their_grace() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = opened(disk, Limits(keep_bytes=None, grace_seconds=10), clock)
    sealed(writer, disk, *(tracks(5 * n, 5) for n in range(8)))
    planned = writer.manifest.segments
    tidy(writer, disk)
    assert len(writer.manifest.segments) == 1
    assert all(disk.exists(f"{FOLDER}/{segment.name}") for segment in planned)
    clock.now += 10 * SECOND
    writer.retain()
    assert len(disk.list(f"{FOLDER}/sealed")) == 1
    assert history(disk) == tracks(0, 40)


def test_times_and_formats_of_a_merged_segment_are_those_of_its_parts() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = opened(disk, MERGE, clock)
    starts = []
    for n in range(8):
        starts.append(clock.now)
        sealed(writer, disk, tracks(2 * n, 2))
        clock.now += SECOND
    tidy(writer, disk)
    (segment,) = writer.manifest.segments
    assert (segment.first_ts, segment.last_ts, segment.formats) == (starts[0], starts[-1], (TRACK.id,))
    with PartitionReader(disk, FOLDER) as reader:
        assert [reader.offset_at(start) for start in starts] == list(range(0, 16, 2))


def test_segments_of_other_formats_are_left_as_they_are() -> None:
    disk = SimDisk()
    writer = opened(disk, MERGE)
    for n in range(10):
        sealed(writer, disk, tracks(n, 1) if n % 2 else [alarm(n)])
    assert tidy(writer, disk) == 0


def test_segments_that_do_not_go_together_are_tried_once() -> None:
    disk = SimDisk()
    writer = opened(disk, MERGE)
    for n in range(8):
        large = n % 2 * (1 << 63)  # a number that needs another type of column
        records = [msgspec.structs.replace(track, station_seq=large + n) for track in tracks(n, 1)]
        sealed(writer, disk, records)
    before = history(disk)
    assert tidy(writer, disk) == 1
    assert history(disk) == before


def test_compaction_keeps_the_last_of_each_key_at_its_offset() -> None:
    disk = SimDisk()
    writer = opened(disk, COMPACT)
    records = [value(n, key=n % 3) for n in range(12)]
    sealed(writer, disk, records[:5], records[5:10])
    commit(writer, records[10:])
    assert tidy(writer, disk) == 1
    # What the head holds is not looked at: these are the last of what is sealed.
    assert rows(disk) == {n: records[n] for n in (7, 8, 9, 10, 11)}
    (segment,) = writer.manifest.segments
    assert (segment.first, segment.next, segment.rows) == (0, 10, 3)
    report = verify(disk, FOLDER)
    assert report.sound
    assert report.compacted == 7
    seal_everything(writer, disk)
    assert tidy(writer, disk) == 1
    assert rows(disk) == {n: records[n] for n in (9, 10, 11)}


def test_events_without_a_key_and_bodies_that_do_not_decode_stay() -> None:
    disk = SimDisk()
    writer = opened(disk, COMPACT)
    broken = Record("radar", 1, 9, 0, TRACK.id, b"\xc1")
    records = [alarm(0), alarm(0), alarm(0), broken, value(4, 1), value(5, 1)]
    sealed(writer, disk, records)
    tidy(writer, disk)
    assert rows(disk) == {n: records[n] for n in (0, 1, 2, 3, 5)}


def test_a_tombstone_removes_what_came_before_and_goes_itself_after_its_time() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = opened(disk, COMPACT, clock)
    records = [value(0, 1), value(1, 2), forgotten(2, 1), value(3, 3)]
    sealed(writer, disk, records)
    tidy(writer, disk)
    assert rows(disk) == {n: records[n] for n in (1, 2, 3)}
    clock.now += 11 * SECOND
    sealed(writer, disk, [value(4, 3), value(5, 3)])
    tidy(writer, disk)
    assert sorted(rows(disk)) == [1, 5]


def test_a_key_that_was_forgotten_can_come_back() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = opened(disk, COMPACT, clock)
    sealed(writer, disk, [value(0, 1), forgotten(1, 1), value(2, 1)])
    tidy(writer, disk)
    assert sorted(rows(disk)) == [2]


def test_everything_may_go_and_the_next_event_has_the_next_offset() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = opened(disk, COMPACT, clock)
    sealed(writer, disk, [value(0, 1), forgotten(1, 1)])
    clock.now += 11 * SECOND
    tidy(writer, disk)
    assert rows(disk) == {}
    assert verify(disk, FOLDER).sound
    writer.close()
    writer = opened(disk, COMPACT, clock)
    assert commit(writer, [value(2, 1)]) == 2
    assert sorted(rows(disk)) == [2]


def test_while_an_older_part_cannot_be_read_tombstones_stay() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = opened(disk, COMPACT, clock)
    sealed(writer, disk, [value(0, 1)], [forgotten(1, 1), value(2, 2)])
    clock.now += 11 * SECOND
    damaged = manifests.load(disk, FOLDER).segments[0].name
    flipped = bytearray(disk.read(f"{FOLDER}/{damaged}"))
    flipped[100] ^= 1
    disk.remove(f"{FOLDER}/{damaged}")
    with disk.create(f"{FOLDER}/{damaged}") as file:
        file.append(bytes(flipped))
    tidy(writer, disk)
    with PartitionReader(disk, FOLDER) as reader:
        assert [row.offset for row in reader.read(1)] == [1, 2]
    assert [(found.first, found.next) for found in verify(disk, FOLDER).damaged] == [(0, 1)]


def test_when_retention_was_faster_the_new_files_are_dropped() -> None:
    disk, clock = SimDisk(), HandClock()
    limits = Limits(keep_bytes=None, keep_seconds=10, grace_seconds=0)
    writer = opened(disk, limits, clock)
    sealed(writer, disk, *(tracks(5 * n, 5) for n in range(8)))
    job = writer.rewrite_job()
    assert job is not None
    made = rewrite(disk, job)
    clock.now += 11 * SECOND
    writer.retain()
    writer.replace_segments(job, made)
    assert writer.manifest.segments == ()
    commit(writer, tracks(40, 1))
    assert disk.list(f"{FOLDER}/sealed") == ()
    assert history(disk) == tracks(40, 1)


def test_any_parquet_reader_reads_what_was_compacted() -> None:
    disk = SimDisk()
    writer = opened(disk, COMPACT)
    sealed(writer, disk, [value(n, key=n % 2) for n in range(10)], [value(n, key=0) for n in range(10, 20)])
    tidy(writer, disk)
    (segment,) = writer.manifest.segments
    table = pq.read_table(pa.BufferReader(disk.read(f"{FOLDER}/{segment.name}")))
    assert table.column("_offset").to_pylist() == [9, 19]


def test_a_process_of_its_own_merges_and_compacts(tmp_path: Path) -> None:
    limits = Limits(compact=True)
    with PartitionWriter(system_ports(tmp_path), FOLDER, FORMATS, limits=limits) as writer:
        writer.append([value(n, key=n % 10) for n in range(1000)]).result(timeout=10)
        assert writer.seal() == 1
        writer.tidy()  # unless the keeper was faster
        stats = writer.stats()
        assert stats.compacted == 990
        assert stats.retired_bytes > 0
    assert sorted(rows(LocalDisk(tmp_path))) == list(range(990, 1000))

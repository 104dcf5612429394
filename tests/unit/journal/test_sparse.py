"""Segments in which some offsets have no row any more: read, searched by time and verified like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heliograph.errors import HistoryDamaged
from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.frames import checksum
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.tools.inspection import verify
from heliograph.sim import SimDisk
from tests.unit.journal.helpers import FOLDER, HandClock, commit, partition, seal_everything, track, tracks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

SECOND = 10**9
ROWS = 30


def thin_out(disk: SimDisk, keep: Collection[int], row_group: int = 4) -> None:
    """Leave out all rows of the only segment but those at some offsets."""
    manifest = manifests.load(disk, FOLDER)
    (segment,) = manifest.segments
    table = pq.read_table(pa.BufferReader(disk.read(f"{FOLDER}/{segment.name}")))
    offsets = table.column("_offset").to_pylist()
    sink = pa.BufferOutputStream()
    kept = table.filter(pa.array([offset in keep for offset in offsets]))
    pq.write_table(kept, sink, row_group_size=row_group)
    data = sink.getvalue().to_pybytes()
    name = f"{segment.name}-thin"
    with disk.create(f"{FOLDER}/{name}") as file:
        file.append(data)
    thin = msgspec.structs.replace(
        segment, name=name, size=len(data), crc=checksum(data), rows=len(keep), pieces=()
    )
    changed = msgspec.structs.replace(manifest, segments=(thin,), generation=manifest.generation + 100)
    manifests.publish(disk, FOLDER, changed)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    """Rows 0 to 29 sealed, one second each, and rows 30 to 32 in the head."""
    made, clock = SimDisk(), HandClock()
    writer = partition(made, clock=clock)
    for n in range(ROWS):
        commit(writer, [track(n)])
        clock.now += SECOND
    seal_everything(writer, made)
    commit(writer, tracks(ROWS, 3))
    yield made
    writer._lock.release()


def offsets(disk: SimDisk, start: int = 0, below: int | None = None, most: int = 1000) -> list[int]:
    with PartitionReader(disk, FOLDER) as reader:
        rows = reader.read(start, most, below=below)
    assert [row.record for row in rows] == [track(row.offset) for row in rows]
    return [row.offset for row in rows]


KEPT = (3, 4, 5, 11, 12, 20, 28)
HEAD = [30, 31, 32]


def test_every_start_finds_the_rows_behind_it(disk: SimDisk) -> None:
    thin_out(disk, KEPT)
    for start in range(ROWS + 3):
        assert offsets(disk, start) == [n for n in (*KEPT, *HEAD) if n >= start]


def test_every_end_is_kept_and_reached(disk: SimDisk) -> None:
    thin_out(disk, KEPT)
    with PartitionReader(disk, FOLDER) as reader:
        for end in range(ROWS + 4):
            assert offsets(disk, 0, end) == [n for n in (*KEPT, *HEAD) if n < end]
            runs, reached = reader.read_on(0, below=end)
            assert reached == end
            assert sum(len(rows.records) for rows in runs) == len(offsets(disk, 0, end))


def test_reading_a_few_at_a_time_gives_all(disk: SimDisk) -> None:
    thin_out(disk, KEPT)
    found, position = [], 0
    with PartitionReader(disk, FOLDER) as reader:
        while position < reader.watermark:
            runs, position = reader.read_on(position, 2)
            found += [rows.first + n for rows in runs for n in range(len(rows.records))]
    assert found == [*KEPT, *HEAD]


def test_a_segment_without_any_row_is_passed(disk: SimDisk) -> None:
    thin_out(disk, ())
    assert offsets(disk) == HEAD
    assert offsets(disk, 0, 10) == []
    assert verify(disk, FOLDER).sound


def test_what_is_compacted_is_no_damage(disk: SimDisk) -> None:
    thin_out(disk, KEPT)
    report = verify(disk, FOLDER)
    assert report.sound
    assert (report.events, report.compacted) == (len(KEPT) + 3, ROWS - len(KEPT))


def test_a_time_finds_the_first_row_at_or_after_it(disk: SimDisk) -> None:
    thin_out(disk, KEPT)
    with PartitionReader(disk, FOLDER) as reader:
        begin = manifests.load(disk, FOLDER).segments[0].first_ts
        for n in range(ROWS + 1):
            expected = next(kept for kept in (*KEPT, *HEAD) if kept >= n)
            assert reader.offset_at(begin + n * SECOND) == expected


def test_a_sparse_segment_with_a_wrong_number_of_rows_is_damage(disk: SimDisk) -> None:
    thin_out(disk, KEPT)
    manifest = manifests.load(disk, FOLDER)
    wrong = msgspec.structs.replace(manifest.segments[0], rows=3)
    changed = msgspec.structs.replace(manifest, segments=(wrong,), generation=manifest.generation + 1)
    manifests.publish(disk, FOLDER, changed)
    with PartitionReader(disk, FOLDER) as reader, pytest.raises(HistoryDamaged) as caught:
        reader.read(7)
    assert caught.value.ranges == {FOLDER: (7, ROWS)}

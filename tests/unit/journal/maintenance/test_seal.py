"""Sealing: the same rows before and after, whatever the formats, and files that plain Parquet tools read."""

from __future__ import annotations

import subprocess
import sys
import threading
from io import BytesIO
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq
import pytest

from heliograph.errors import BadJournalFile, HistoryDamaged, HistoryGone
from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.records import Record
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.seal import seal, seal_in_process
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.tools.inspection import verify
from heliograph.journal.writing import segment_writer as segmentwriter
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.journal.writing.partition import WritablePartition
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format, FormatRegistry
from heliograph.runtime.ports import LocalDisk, system_ports
from heliograph.sim import SimDisk
from tests.unit.journal.helpers import (
    ALARM,
    FOLDER,
    FORMATS,
    TRACK,
    HandClock,
    alarm,
    commit,
    history,
    partition,
    ports,
    seal_everything,
    track,
    tracks,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


def sealed_table(disk: SimDisk) -> pa.Table:
    (name,) = disk.list(f"{FOLDER}/sealed")
    return pq.read_table(BytesIO(disk.read(f"{FOLDER}/sealed/{name}")))


def sealed_with(formats: list[Format], records: list[Record]) -> SimDisk:
    registry = FormatRegistry()
    for fmt in formats:
        registry.register(fmt)
    disk = SimDisk()
    writer = WritablePartition(ports(disk), FOLDER, registry, Limits())
    commit(writer, records)
    assert seal_everything(writer, disk) == 1
    assert history(disk) == records
    return disk


def test_sealed_rows_are_the_same_rows_at_the_same_offsets() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = partition(disk, Limits(head_events=10), clock)
    full = Record(
        "s", 2, 3, -4, TRACK.id, b"\x92\x01\xa0", 5, 6, 7, "c", {"a": "b", "": "é"}, 2, 1, b"\x91\x01"
    )
    for n in range(25):
        clock.now += 10
        commit(writer, [track(n)], [full])
    with PartitionReader(disk, FOLDER) as reader:
        before = reader.read(0)
    assert seal_everything(writer, disk) >= 3
    assert disk.list(f"{FOLDER}/heads") == ()
    with PartitionReader(disk, FOLDER) as reader:
        assert reader.read(0) == before
        assert reader.read(17, max_events=5) == before[17:22]
        assert reader.offset_at(1000 + 10 * 13) == 24
        assert reader.formats[TRACK.id] == TRACK
    commit(writer, [track(99)])
    assert len(history(disk)) == 51


def test_columns_have_the_names_of_the_fields_and_ours_begin_with_an_underscore() -> None:
    disk = sealed_with([TRACK], [track(5, "hello")])
    row = sealed_table(disk).to_pylist()[0]
    assert (row["id"], row["note"]) == (5, "hello")
    assert (row["_offset"], row["_type"], row["_supplier"], row["_sequence"]) == (0, "air.track", "radar", 5)


def test_formats_of_one_channel_share_the_columns_that_fit() -> None:
    wider = Format("air.track", (Field("id", ft.Scalar("i64")), Field("extra", ft.Scalar("f64"))))
    newer = Record("r", 1, 2, 0, wider.id, msgspec.msgpack.encode([7, 1.5]))
    disk = sealed_with([TRACK, wider], [track(5, "x"), newer])
    table = sealed_table(disk)
    assert table.column("id").to_pylist() == [5, 7]
    assert table.column("note").to_pylist() == ["x", None]
    assert table.column("extra").to_pylist() == [None, 1.5]


def test_formats_that_conflict_get_a_struct_each() -> None:
    disk = sealed_with([TRACK, ALARM], [track(5, "x"), alarm(6)])
    table = sealed_table(disk)
    assert table.column(TRACK.id.hex()).to_pylist() == [{"id": 5, "note": "x"}, None]
    assert table.column(ALARM.id.hex()).to_pylist() == [None, {"id": "6", "level": 6}]


def test_a_field_that_is_called_like_a_column_of_ours_goes_into_a_struct() -> None:
    sly = Format("sly", (Field("_offset", ft.Scalar("i64")),))
    disk = sealed_with([sly], [Record("r", 1, 1, 0, sly.id, msgspec.msgpack.encode([77]))])
    table = sealed_table(disk)
    assert table.column("_offset").to_pylist() == [0]
    assert table.column(sly.id.hex()).to_pylist() == [{"_offset": 77}]


def test_what_parquet_cannot_hold_is_sealed_as_bodies() -> None:
    empty = Format("empty", ())
    disk = sealed_with(
        [empty], [Record("r", 1, n, 0, empty.id, msgspec.msgpack.encode([])) for n in range(3)]
    )
    assert sealed_table(disk).column("_body").to_pylist() == [b"\x90"] * 3


def test_bodies_that_do_not_decode_and_numbers_beyond_int64_are_sealed_all_the_same() -> None:
    bad = Record("r", 1, 1, 0, TRACK.id, b"\xc1 nonsense")
    huge = Record("r", 2**64 - 1, 2**63, 0, TRACK.id, track(1).body)
    disk = sealed_with([TRACK], [track(0), bad, huge])
    assert sealed_table(disk).column("id").to_pylist() == [0, None, 1]


def test_small_heads_wait_for_each_other_until_they_are_old() -> None:
    disk, clock = SimDisk(), HandClock()
    for n in range(3):
        writer = partition(disk, clock=clock)
        commit(writer, [track(n)])
        writer.close()
    writer = partition(disk, clock=clock)
    assert writer.seal_job(ripe=True) is None
    clock.now += 601 * 10**9
    job = writer.seal_job(ripe=True)
    assert job is not None
    assert len(job.heads) == 3
    writer.install(job, seal(disk, job))
    assert history(disk) == tracks(0, 3)


def test_a_damaged_head_is_left_for_repair_and_its_neighbours_are_sealed() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    assert writer._head is not None
    name, at = writer._head.file.name, writer._head.end
    commit(writer, tracks(2, 2))
    commit(writer, tracks(4, 2))
    disk = disk.kill()
    disk.flip(name, at + 90, 1)
    writer = partition(disk)
    commit(writer, tracks(6, 2))
    assert seal_everything(writer, disk) == 1
    assert [(s.first, s.next) for s in writer.manifest.segments] == [(6, 8)]
    assert [(h.first, h.next) for h in writer.manifest.heads] == [(0, 6)]
    assert history(disk, 4) == tracks(4, 4)


def test_a_flipped_bit_anywhere_in_a_segment_costs_its_row_group_and_no_other_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segmentwriter, "ROW_GROUP", 16)
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 40))
    seal_everything(writer, disk)
    (segment,) = writer.manifest.segments
    groups = [(0, 16), (16, 32), (32, 40)]
    for at in range(0, segment.size, 7):
        disk.flip(f"{FOLDER}/{segment.name}", at, at % 8)
        hit = next(n for n, (end, _) in enumerate(segment.pieces) if at < end)
        report = verify(disk, FOLDER)
        assert not report.sound, at
        expected = [groups[hit]] if hit < len(groups) else []
        assert [(found.first, found.next) for found in report.damaged] == expected, at
        assert report.events == 40 - sum(end - first for first, end in expected)
        disk.flip(f"{FOLDER}/{segment.name}", at, at % 8)
    assert history(disk) == tracks(0, 40)


def test_a_time_inside_of_a_damaged_row_group_is_at_its_first_row() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = partition(disk, clock=clock)
    for n in range(3):
        clock.now = 1_000 * (n + 1)
        commit(writer, tracks(2 * n, 2))
    seal_everything(writer, disk)
    (segment,) = writer.manifest.segments
    disk.flip(f"{FOLDER}/{segment.name}", 40, 1)
    with PartitionReader(disk, FOLDER) as reader:
        assert reader.offset_at(2_000) == 0
        with pytest.raises(HistoryDamaged):
            reader.read(0)


@pytest.mark.parametrize(("missing", "readable"), [(0, True), (1, False)])
def test_a_segment_cut_short_is_whole_up_to_its_first_footer(missing: int, readable: bool) -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 4))
    seal_everything(writer, disk)
    (segment,) = writer.manifest.segments
    with disk.open(f"{FOLDER}/{segment.name}") as file:
        file.truncate(segment.pieces[-2][0] - missing)
    report = verify(disk, FOLDER)
    assert not report.sound
    assert [(found.first, found.next) for found in report.damaged] == ([] if readable else [(0, 4)])


def test_retention_drops_whole_segments_by_size_and_counts_them() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = partition(disk, Limits(head_events=10, keep_bytes=20_000), clock)
    for n in range(20):
        commit(writer, tracks(10 * n, 10))
        seal_everything(writer, disk)
        writer.retain()
        assert writer.size <= 20_000
    manifest = manifests.load(disk, FOLDER)
    assert manifest.earliest == manifest.dropped_events > 0
    assert manifest.earliest % 10 == 0
    assert len(disk.list(f"{FOLDER}/sealed")) == len(manifest.segments)
    with PartitionReader(disk, FOLDER) as reader, pytest.raises(HistoryGone) as caught:
        reader.read(0)
    assert (caught.value.first, caught.value.next_available) == (0, manifest.earliest)
    assert history(disk) == tracks(manifest.earliest, 200 - manifest.earliest)
    writer.close()
    assert partition(disk).next == 200


def test_retention_by_age_leaves_heads_alone() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = partition(disk, Limits(keep_seconds=5), clock)
    commit(writer, tracks(0, 2))
    seal_everything(writer, disk)
    commit(writer, tracks(2, 2))
    writer.rotate()
    clock.now += 6 * 10**9
    writer.retain()
    assert writer.manifest.earliest == 2
    assert history(disk) == tracks(2, 2)


def test_a_reader_that_holds_a_file_open_reads_on_after_it_was_sealed_or_dropped() -> None:
    disk = SimDisk()
    writer = partition(disk, Limits(keep_bytes=0))
    commit(writer, tracks(0, 5))
    with PartitionReader(disk, FOLDER) as reader:
        assert len(reader.read(0, max_events=2)) == 2
        seal_everything(writer, disk)
        assert [row.record for row in reader.read(2, max_events=2)] == tracks(2, 2)
        commit(writer, tracks(5, 1))
        writer.retain()
        with pytest.raises(HistoryGone) as caught:
            reader.read(4)
        assert caught.value.next_available == 5
        assert [row.offset for row in reader.read(5)] == [5]


def test_a_process_of_its_own_makes_the_same_segment(tmp_path: Path) -> None:
    with PartitionWriter(system_ports(tmp_path), FOLDER, FORMATS) as writer:
        writer.append(tracks(0, 100)).result(timeout=10)
        assert writer.seal() == 1
        stats = writer.stats()
        assert (stats.heads, stats.segments) == (0, 1)
        writer.append([track(100)]).result(timeout=10)
    assert history(LocalDisk(tmp_path)) == tracks(0, 101)


def test_a_process_that_seals_loads_neither_pandas_nor_arrows_functions(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    writer = partition(disk)
    commit(writer, tracks(0, 3))
    writer.rotate()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "heliograph.journal.maintenance.seal", str(tmp_path)],
        input=msgspec.msgpack.encode(writer.seal_job()),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert msgspec.msgpack.decode(done.stdout, type=manifests.Segment).next == 3
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "pyarrow.parquet" in loaded
    assert not {"pandas.core", "pyarrow.compute"} & loaded  # pandas itself was asked for, and refused


def test_a_sealing_process_that_fails_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    writer = partition(disk)
    commit(writer, tracks(0, 3))
    writer.rotate()
    job = writer.seal_job()
    assert job is not None
    disk.rename(f"{FOLDER}/{job.heads[0].name}", f"{FOLDER}/elsewhere")
    with pytest.raises(BadJournalFile, match="NoSuchFile"):
        seal_in_process(disk, job)
    disk.rename(f"{FOLDER}/elsewhere", f"{FOLDER}/{job.heads[0].name}")
    assert history(disk) == tracks(0, 3)


def test_closing_does_not_wait_long_for_a_sealing_process_that_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended, and what it should have sealed is sealed by the next writer."""
    disk = LocalDisk(tmp_path)
    monkeypatch.setattr("heliograph.journal.maintenance.maintenance.CLOSE_SECONDS", 0.05)
    started = threading.Event()

    def hanging(*_: str) -> list[str]:
        started.set()
        return [sys.executable, "-c", "import time; time.sleep(600)"]

    limits = Limits(head_events=3)
    with monkeypatch.context() as stuck:
        stuck.setattr("heliograph.journal.maintenance.seal.python_command", hanging)
        writer = PartitionWriter(system_ports(tmp_path), FOLDER, FORMATS, limits=limits)
        for first in (0, 3):
            writer.append(tracks(first, 3)).result(10.0)
        assert started.wait(10.0)
        closing = threading.Thread(target=writer.close, daemon=True)
        closing.start()
        closing.join(30.0)
        assert not closing.is_alive()
    assert history(disk) == tracks(0, 6)

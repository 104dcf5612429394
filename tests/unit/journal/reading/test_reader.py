"""Readers: exact ranges, only durable rows, formats, time."""

from __future__ import annotations

import pytest

from heliograph.errors import HistoryDamaged, NoSuchFile
from heliograph.journal.limits import Limits
from heliograph.journal.reading.reader import PartitionReader
from heliograph.sim import SimDisk, Simulation
from tests.unit.journal.helpers import (
    ALARM,
    FOLDER,
    TRACK,
    HandClock,
    alarm,
    chunk,
    commit,
    history,
    partition,
    track,
    tracks,
)


def test_a_reader_never_sees_rows_that_are_not_durable() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    with PartitionReader(disk, FOLDER) as reader:
        writer.write([chunk(tracks(2, 3))])
        assert reader.watermark == 2
        assert len(reader.read(0)) == 2
        assert reader.read(2) == []
        writer.sync()
        assert [row.record for row in reader.read(2)] == tracks(2, 3)


def test_limits_hold_and_the_first_row_always_comes() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, [track(n, "x" * 100) for n in range(10)])
    with PartitionReader(disk, FOLDER) as reader:
        assert len(reader.read(0, max_events=3)) == 3
        assert len(reader.read(0, max_bytes=250)) == 2
        assert len(reader.read(0, max_bytes=1)) == 1
        assert [row.offset for row in reader.read(4, below=6)] == [4, 5]
        assert [row.offset for row in reader.read(8)] == [8, 9]


def test_reading_goes_on_over_rotated_heads_with_one_manifest_old() -> None:
    disk = SimDisk()
    writer = partition(disk, Limits(head_events=4))
    commit(writer, tracks(0, 3))
    with PartitionReader(disk, FOLDER) as reader:
        for n in range(3, 30):
            commit(writer, [track(n)])
        assert [row.record for row in reader.read(0)] == tracks(0, 30)
    assert history(disk, 17) == tracks(17, 13)


def test_formats_of_the_rows_are_known_after_reading_even_from_the_middle() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, [track(0)])
    commit(writer, [alarm(1)])
    commit(writer, [track(2)])
    with PartitionReader(disk, FOLDER) as reader:
        reader.read(2)
        assert reader.formats[TRACK.id] == TRACK
        assert reader.formats[ALARM.id] == ALARM


def test_formats_of_all_rows_of_one_read_are_known() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, [track(0)])
    commit(writer, [alarm(1)])
    with PartitionReader(disk, FOLDER) as reader:
        assert all(row.record.format_id in reader.formats for row in reader.read(0))


def test_times_lead_to_offsets_across_heads() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = partition(disk, Limits(head_events=4), clock)
    for n in range(20):
        clock.now = 1000 + 10 * (n // 2)
        commit(writer, [track(2 * n), track(2 * n + 1)])
    with PartitionReader(disk, FOLDER) as reader:
        for n in range(0, 20, 2):
            assert reader.offset_at(1000 + 10 * (n // 2)) == 2 * n
            assert reader.offset_at(1000 + 10 * (n // 2) - 1) == 2 * n
        assert reader.offset_at(0) == 0
        assert reader.offset_at(5000) == 40


def test_waiting_ends_when_the_row_is_there_or_the_time_is_over() -> None:
    simulation = Simulation(seed=2)
    writer = partition(simulation.disk)
    commit(writer, [track(0)])

    def main() -> None:
        clock, tasks = simulation.clock, simulation.tasks
        with PartitionReader(simulation.disk, FOLDER, clock=clock, tasks=tasks) as reader:
            assert reader.wait(0)
            start = clock.monotonic_ns()
            assert not reader.wait(1, timeout=2.0)
            assert clock.monotonic_ns() - start == 2_000_000_000

            def later() -> None:
                tasks.sleep(1.0)
                commit(writer, [track(1)])

            tasks.spawn("later", later)
            assert reader.wait(1)

    simulation.run(main)


def test_a_flipped_bit_is_reported_with_the_exact_range_while_the_writer_runs() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    assert writer._head is not None
    at = writer._head.end
    commit(writer, tracks(2, 3))
    commit(writer, tracks(5, 1))
    disk.flip(writer._head.file.name, at + 80, 2)
    with PartitionReader(disk, FOLDER) as reader:
        assert [row.offset for row in reader.read(0)] == [0, 1]
        with pytest.raises(HistoryDamaged) as caught:
            reader.read(2)
        assert (caught.value.first, caught.value.next_available) == (2, 5)
        assert [row.offset for row in reader.read(5)] == [5]


def test_a_damaged_last_frame_is_reported_up_to_the_watermark() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    assert writer._head is not None
    disk.flip(writer._head.file.name, writer._head.end - 1, 2)
    with PartitionReader(disk, FOLDER) as reader, pytest.raises(HistoryDamaged) as caught:
        reader.read(1)
    assert (caught.value.first, caught.value.next_available) == (1, 2)


def test_a_lost_file_is_reported_with_its_range() -> None:
    disk = SimDisk()
    writer = partition(disk, Limits(head_events=2))
    for n in range(3):
        commit(writer, tracks(2 * n, 2))
    disk.remove(f"{FOLDER}/{writer.manifest.heads[1].name}")
    with PartitionReader(disk, FOLDER) as reader:
        assert [row.offset for row in reader.read(0)] == [0, 1]
        with pytest.raises(HistoryDamaged, match="missing") as caught:
            reader.read(2)
        assert (caught.value.first, caught.value.next_available) == (2, 4)
        assert [row.offset for row in reader.read(4)] == [4, 5]


def test_a_partition_that_is_not_there_cannot_be_read() -> None:
    with pytest.raises(NoSuchFile):
        PartitionReader(SimDisk(), FOLDER)

"""What a writer makes of what the last one left."""

from __future__ import annotations

import pytest

from heliograph.errors import BadJournalFile, DiskError, HistoryDamaged
from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.frames import HEAD_SIZE
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.tools.inspection import verify
from heliograph.journal.writing import head_scan as survey
from heliograph.sim import Fails, SimDisk
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
    recovered,
    track,
    tracks,
)


def killed(*sizes: int) -> tuple[SimDisk, str, list[int]]:
    """A disk whose writer was killed after these commits; its head, and where the frames in it end."""
    disk = SimDisk()
    writer = partition(disk)
    total, ends = 0, [HEAD_SIZE]
    for size in sizes:
        commit(writer, tracks(total, size))
        total += size
        assert writer._head is not None
        ends.append(writer._head.end)
    assert writer._head is not None
    name = writer._head.file.name
    return disk.kill(), name, ends


def test_a_killed_writer_leaves_everything_to_the_next() -> None:
    disk, _, _ = killed(3, 2)
    writer = partition(disk)
    assert writer.recovery.cut_bytes == 0
    assert writer.next == 5
    assert history(disk) == tracks(0, 5)


def test_a_torn_tail_is_cut_at_every_byte_of_the_last_frame() -> None:
    disk, name, ends = killed(3, 2)
    whole = disk.read(name)
    for size in range(ends[1], ends[2]):
        disk, name, _ = killed(3)
        with disk.open(name) as file:
            file.append(whole[ends[1] : size])
        writer = partition(disk)
        assert writer.recovery.cut_bytes == size - ends[1]
        assert writer.recovery.damage == ()
        assert commit(writer, [track(3)]) == 3
        assert history(disk) == tracks(0, 4)


def test_a_frame_that_was_whole_but_never_promised_is_kept() -> None:
    disk, name, ends = killed(3, 2)
    tail = disk.read(name)[ends[1] :]
    disk, name, _ = killed(3)
    with disk.open(name) as file:
        file.append(tail)
    assert partition(disk).next == 5
    assert history(recovered(disk.crash("none"))) == tracks(0, 5)


def test_rows_in_doubt_are_copied_and_their_file_is_left_as_it_was() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    assert writer._head is not None
    name = writer._head.file.name
    writer.write([chunk([*tracks(2, 1), alarm(3)])])
    disk = SimDisk(disk.kill().medium, faults=[Fails("sync", at=1)])
    before = disk.read(name)
    with pytest.raises(DiskError):
        partition(disk)
    assert partition(disk).next == 4
    assert disk.read(name) == before
    after = disk.crash("none")
    assert history(recovered(after)) == [*tracks(0, 3), alarm(3)]
    with PartitionReader(after, FOLDER) as reader:
        reader.read(2)
        assert TRACK.id in reader.formats
        assert ALARM.id in reader.formats


def test_a_bad_frame_below_the_watermark_is_damage_with_exact_offsets() -> None:
    disk, name, ends = killed(3, 2, 4)
    disk.flip(name, ends[1] + 70, 3)
    writer = partition(disk)
    assert [(d.first, d.next) for d in writer.recovery.damage] == [(3, 5)]
    assert commit(writer, [track(9)]) == 9
    with PartitionReader(disk, FOLDER) as reader:
        assert [row.offset for row in reader.read(0)] == [0, 1, 2]
        with pytest.raises(HistoryDamaged) as caught:
            reader.read(4)
        assert (caught.value.first, caught.value.next_available) == (4, 5)
        assert [row.record for row in reader.read(5)] == tracks(5, 5)


def test_a_bad_last_frame_is_damage_when_the_commit_file_promised_it() -> None:
    disk, name, ends = killed(3, 2)
    disk.flip(name, ends[1] + 70, 3)
    writer = partition(disk)
    assert [(d.first, d.next) for d in writer.recovery.damage] == [(3, 5)]
    assert writer.next == 5


def test_without_a_commit_file_the_frames_themselves_tell_damage_from_a_torn_tail() -> None:
    disk, name, ends = killed(3, 2, 4)
    disk.remove(f"{FOLDER}/commit")
    disk.flip(name, ends[1] + 70, 3)
    disk.flip(name, ends[2] + 70, 3)
    writer = partition(disk)
    assert writer.recovery.damage == ()
    assert writer.next == 3

    disk, name, ends = killed(3, 2, 4)
    disk.remove(f"{FOLDER}/commit")
    disk.flip(name, ends[1] + 70, 3)
    writer = partition(disk)
    assert [(d.first, d.next) for d in writer.recovery.damage] == [(3, 5)]
    assert writer.next == 9


def test_a_head_whose_header_is_damaged_is_read_by_what_the_manifest_knows_of_it() -> None:
    for at in range(HEAD_SIZE):
        disk, name, _ = killed(3)
        disk.flip(name, at, 1)
        assert history(disk) == tracks(0, 3), at
        assert not verify(disk, FOLDER).sound
        writer = partition(disk)
        assert (writer.next, writer.recovery.damage) == (3, ()), at


def test_another_head_under_the_name_of_one_is_refused() -> None:
    disk = SimDisk()
    writer = partition(disk)
    for n in range(2):
        commit(writer, tracks(2 * n, 2))
        writer.rotate()
    first, second = (f"{FOLDER}/{head.name}" for head in writer.manifest.heads)
    disk.rename(first, f"{FOLDER}/heads/aside")
    disk.rename(second, first)
    disk.rename(f"{FOLDER}/heads/aside", second)
    assert [(found.first, found.next) for found in verify(disk, FOLDER).damaged] == [(0, 2), (2, 4)]


def test_a_manifest_older_than_the_one_that_was_published_is_refused() -> None:
    """Going by it would sweep away everything that was written since."""
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    old = disk.read(f"{FOLDER}/manifest")
    writer.rotate()
    commit(writer, tracks(2, 2))
    disk = disk.kill()
    with disk.open(f"{FOLDER}/manifest") as file:
        file.truncate(0)
        file.append(old)
    before = disk.list(f"{FOLDER}/heads")
    with pytest.raises(BadJournalFile, match="an old one"):
        partition(disk)
    assert disk.list(f"{FOLDER}/heads") == before


def test_an_open_head_that_is_missing_is_refused_by_name() -> None:
    disk, name, _ = killed(3)
    disk.remove(name)
    with pytest.raises(BadJournalFile, match="missing"):
        partition(disk)


def test_recovering_twice_changes_nothing_more() -> None:
    disk, name, ends = killed(3, 2, 4)
    disk.flip(name, ends[1] + 70, 3)
    partition(disk).close()
    first = manifests.load(disk, FOLDER)
    writer = partition(disk)
    assert writer.recovery.damage == ()
    writer.close()
    second = manifests.load(disk, FOLDER)
    assert (second.heads, second.damage, second.next) == (first.heads, first.damage, first.next)


def test_temporary_and_unlisted_files_are_removed() -> None:
    disk, _, _ = killed(1)
    for name in ("manifest-00000009.tmp", "heads/x.log", "sealed/y.parquet", "sealed/z.parquet.tmp"):
        disk.create(f"{FOLDER}/{name}").close()
    writer = partition(disk)
    assert set(writer.recovery.removed) >= {"heads/x.log", "sealed/y.parquet", "manifest-00000009.tmp"}
    assert disk.list(f"{FOLDER}/sealed") == ()
    assert len(disk.list(f"{FOLDER}/heads")) == 1


def test_recovery_reads_a_head_of_many_frames_a_few_times_only() -> None:
    """Also when one of them is damaged: each is checked where it stands, not searched for."""
    disk, name, ends = killed(*[1] * 3000)
    disk.flip(name, ends[10] + 70, 3)
    before = disk.calls
    writer = partition(disk)
    assert [(d.first, d.next) for d in writer.recovery.damage] == [(10, 11)]
    assert writer.next == 3000
    assert disk.calls - before < 100


def test_frames_in_doubt_are_found_behind_many_that_are_not() -> None:
    disk = SimDisk()
    writer = partition(disk)
    for n in range(2100):
        writer.write([chunk([track(n)])])
        if n % 1050 == 1000:
            writer.sync()
    disk = disk.kill()
    disk.remove(f"{FOLDER}/commit")
    writer = partition(disk)
    assert writer.next == 2100
    entry, rescued = writer.manifest.heads
    assert (entry.next, rescued.first, rescued.next) == (2051, 2051, 2100)
    assert history(recovered(disk.crash("none"))) == tracks(0, 2100)


def test_a_frame_longer_than_what_is_checked_at_once_is_checked_by_itself() -> None:
    disk = SimDisk()
    writer = partition(disk)
    large = track(1, "x" * (survey.WINDOW + 1))
    for records in ([track(0)], [large], [track(2)]):
        commit(writer, records)
    writer = partition(disk.kill())
    assert (writer.next, writer.recovery.damage, writer.recovery.cut_bytes) == (3, (), 0)


def test_times_go_on_behind_those_of_rows_in_doubt() -> None:
    disk, clock = SimDisk(), HandClock()
    clock.now = 5_000
    writer = partition(disk, clock=clock)
    commit(writer, tracks(0, 1))
    clock.now = 9_000
    writer.write([chunk(tracks(1, 1))])
    disk = disk.kill()
    writer = partition(disk, clock=HandClock())
    assert writer.write([chunk(tracks(2, 1))]).append_ts == 9_000


def test_a_damaged_frame_takes_no_format_from_the_frames_behind_it() -> None:
    disk, name, ends = killed(2, 2, 2)
    disk.flip(name, ends[0] + 70, 3)
    with PartitionReader(disk, FOLDER) as reader:
        assert [row.record for row in reader.read(2)] == tracks(2, 4)
        assert TRACK.id in reader.formats

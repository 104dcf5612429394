"""The files of a partition: what is written when, and what is left when something fails."""

from __future__ import annotations

import errno

import pytest

from heliograph.errors import BadJournalFile, DiskError, DiskFull, PartitionInUse
from heliograph.journal.format import manifest as manifests
from heliograph.journal.limits import Limits
from heliograph.sim import Fails, SimDisk
from tests.unit.journal.helpers import (
    FOLDER,
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

HEAD = f"{FOLDER}/heads/00000000000000000000-00000001-0001.log"


def heads(disk: SimDisk) -> tuple[str, ...]:
    return disk.list(f"{FOLDER}/heads")


def test_offsets_are_dense_and_go_on_after_reopening() -> None:
    disk = SimDisk()
    first = partition(disk)
    assert commit(first, tracks(0, 3), tracks(3, 2)) == 0
    assert commit(first, tracks(5, 1)) == 5
    first.close()
    second = partition(disk)
    assert commit(second, tracks(6, 1)) == 6
    assert history(disk) == tracks(0, 7)


def test_each_writer_has_the_next_epoch_and_a_head_of_its_own() -> None:
    disk = SimDisk()
    for epoch in (1, 2, 3):
        writer = partition(disk)
        assert writer.epoch == epoch
        commit(writer, [track(epoch)])
        writer.close()
    assert [head.epoch for head in manifests.load(disk, FOLDER).heads] == [1, 2, 3]
    assert len(set(heads(disk))) == 3


def test_a_second_writer_is_refused_and_told_who_has_it() -> None:
    disk = SimDisk(process="keeper")
    writer = partition(disk)
    with pytest.raises(PartitionInUse, match=r"keeper.*domain="):
        partition(disk)
    writer.close()
    partition(disk).close()


def test_a_writer_without_appends_leaves_no_head() -> None:
    disk = SimDisk()
    partition(disk).close()
    partition(disk).close()
    assert heads(disk) == ()


def test_append_times_never_decrease_even_when_the_clock_is_set_back() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = partition(disk, clock=clock)
    times = [writer.write([chunk([track(0)])]).append_ts]
    writer.sync()
    clock.now -= 500
    times.append(writer.write([chunk([track(1)])]).append_ts)
    writer.sync()
    writer.close()
    writer = partition(disk, clock=clock)
    times.append(writer.write([chunk([track(2)])]).append_ts)
    assert times == [1000, 1000, 1000]


def test_heads_rotate_by_events_bytes_and_age() -> None:
    for limits in (Limits(head_events=3), Limits(head_bytes=300), Limits(head_seconds=1e-6)):
        disk, clock = SimDisk(), HandClock()
        writer = partition(disk, limits, clock)
        for n in range(8):
            clock.now += 400
            commit(writer, [track(n)])
        assert 2 <= len(heads(disk)) <= 4
        assert history(disk) == tracks(0, 8)
        manifest = manifests.load(disk, FOLDER)
        assert [head.next for head in manifest.heads[:-1]] == [head.first for head in manifest.heads[1:]]


def test_formats_are_described_again_in_each_head() -> None:
    disk = SimDisk()
    writer = partition(disk, Limits(head_events=2))
    commit(writer, [track(0)], [alarm(1)])
    commit(writer, [track(2)], [alarm(3)])
    first, second = (disk.read(f"{FOLDER}/heads/{name}") for name in heads(disk))
    assert first.count(b"air.track") == second.count(b"air.track") == 1
    assert first.count(b"air.alarm") == second.count(b"air.alarm") == 1


def test_a_full_disk_fails_the_append_and_the_journal_goes_on_when_there_is_room() -> None:
    disk = SimDisk(faults=[Fails("append", at=3, file=HEAD, error=errno.ENOSPC, partial=30)])
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    with pytest.raises(DiskFull):
        writer.write([chunk(tracks(2, 5))])
    assert writer.next == 2
    assert commit(writer, tracks(2, 1)) == 2
    assert history(disk) == tracks(0, 3)


def test_after_a_failed_sync_the_rows_go_to_a_new_head_and_the_old_one_is_left_alone() -> None:
    disk = SimDisk(faults=[Fails("sync", at=3, file=HEAD)])
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    size = len(disk.read(HEAD))
    assert commit(writer, tracks(2, 2)) == 2
    assert commit(writer, tracks(4, 1)) == 4
    assert len(heads(disk)) == 2
    entry = manifests.load(disk, FOLDER).heads[0]
    assert (entry.next, entry.size) == (2, size)
    assert history(disk) == tracks(0, 5)
    assert history(recovered(disk.crash("none"))) == tracks(0, 5)


def test_when_the_new_head_fails_too_nothing_is_acknowledged_and_offsets_are_given_again() -> None:
    second = f"{FOLDER}/heads/00000000000000000002-00000001-0002.log"
    disk = SimDisk(faults=[Fails("sync", at=3, file=HEAD), Fails("create", file=second)])
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    with pytest.raises(DiskError):
        commit(writer, tracks(2, 2))
    assert (writer.next, writer.watermark) == (2, 2)
    assert commit(writer, tracks(7, 1)) == 2
    assert history(disk) == [*tracks(0, 2), track(7)]
    writer.close()
    assert partition(disk).next == 3


@pytest.mark.parametrize("fault", [Fails("rename", at=4), Fails("sync_folder", at=5)])
def test_a_manifest_that_could_not_be_published_is_not_relied_on(fault: Fails) -> None:
    disk = SimDisk(faults=[fault])
    writer = partition(disk, Limits(head_events=2))
    commit(writer, tracks(0, 2))
    with pytest.raises(DiskError):
        commit(writer, tracks(2, 1))
    assert commit(writer, tracks(2, 2)) == 2
    assert history(recovered(disk.crash("none"))) == tracks(0, 4)


def test_a_lost_manifest_is_not_replaced_by_an_empty_one() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    writer.close()
    disk.remove(f"{FOLDER}/manifest")
    with pytest.raises(BadJournalFile, match="missing"):
        partition(disk)

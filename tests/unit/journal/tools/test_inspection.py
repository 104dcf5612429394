"""Looking at a partition from outside."""

from __future__ import annotations

import pytest

from heliograph.errors import HistoryDamaged
from heliograph.journal.limits import Limits
from heliograph.journal.tools.inspection import VerifiedRange, cat, ls, partitions, verify
from heliograph.sim import SimDisk
from tests.unit.journal.helpers import FOLDER, commit, partition, seal_everything, track, tracks


def mixed() -> SimDisk:
    """Two segments, a closed head and an open one, of ten events each."""
    disk = SimDisk()
    writer = partition(disk, Limits(head_events=10))
    for n in range(2):
        commit(writer, tracks(10 * n, 10))
        seal_everything(writer, disk)
    commit(writer, tracks(20, 10))
    commit(writer, tracks(30, 4))
    commit(writer, tracks(34, 6))
    return disk


def test_ls_shows_what_the_manifest_lists() -> None:
    files = ls(mixed(), FOLDER)
    assert [(f.kind, f.first, f.next) for f in files] == [
        ("segment", 0, 10),
        ("segment", 10, 20),
        ("head", 20, 30),
        ("open head", 30, 40),
    ]
    assert all(f.size > 100 for f in files)


def test_cat_gives_the_records_of_a_range() -> None:
    disk = mixed()
    assert [row.record for row in cat(disk, FOLDER)] == tracks(0, 40)
    assert [row.offset for row in cat(disk, FOLDER, 8, 23)] == list(range(8, 23))


def test_a_sound_partition_is_found_so() -> None:
    report = verify(mixed(), FOLDER)
    assert report.sound
    assert (report.files, report.frames, report.events, report.watermark) == (4, 3, 40, 40)
    assert report.unlisted == ()


def test_all_that_is_damaged_is_named_and_the_rest_is_counted() -> None:
    disk = mixed()
    files = ls(disk, FOLDER)
    disk.flip(f"{FOLDER}/{files[1].name}", 200, 1)
    disk.flip(f"{FOLDER}/{files[3].name}", 64 + 100, 1)
    disk.create(f"{FOLDER}/sealed/rest.parquet").close()
    report = verify(disk, FOLDER)
    assert not report.sound
    assert [(r.first, r.next) for r in report.damaged] == [(10, 20), (30, 34)]
    assert isinstance(report.damaged[0], VerifiedRange)
    assert "checksum" in report.damaged[0].reason
    assert report.events == 26
    assert report.unlisted == ("sealed/rest.parquet",)
    with pytest.raises(HistoryDamaged):
        list(cat(disk, FOLDER, 10))


def test_a_lost_file_is_named() -> None:
    disk = mixed()
    disk.remove(f"{FOLDER}/{ls(disk, FOLDER)[2].name}")
    assert [(r.first, r.next) for r in verify(disk, FOLDER).damaged] == [(20, 30)]


def test_partitions_are_folders_with_a_manifest() -> None:
    disk = SimDisk()
    disk.make_folder("channel")
    disk.make_folder("channel/stray")
    disk.create("channel/file").close()
    from heliograph.journal.writing.partition import WritablePartition
    from tests.unit.journal.helpers import FORMATS, ports

    writer = WritablePartition(ports(disk), "channel/a1", FORMATS, Limits())
    commit(writer, [track(0)])
    assert partitions(disk, "channel") == ("channel/a1",)

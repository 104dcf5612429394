"""Files that are damaged, cut, missing, swapped or old: found, located, confined, and put right on request.

The history is 30 events: two segments of 10 with row groups of 4, a closed head and an open one with 5 each,
in frames of 2, 2 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from heliograph.errors import BadJournalFile, HistoryDamaged
from heliograph.journal.format import manifest as manifests
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.tools.inspection import verify
from heliograph.journal.tools.repair import plan_repair, repair
from heliograph.journal.writing import segment_writer as segmentwriter
from heliograph.sim import SimDisk, SimRandom
from tests.support import examples
from tests.unit.journal.helpers import FOLDER, commit, partition, ports, seal_everything, tracks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.journal.format.records import Record

EVENTS = 30
Ranges = list[tuple[int, int]]


@pytest.fixture(scope="module")
def aged() -> Iterator[SimDisk]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segmentwriter, "ROW_GROUP", 4)
        disk = SimDisk()
        writer = partition(disk)
        for n in range(2):
            commit(writer, tracks(10 * n, 10))
            seal_everything(writer, disk)
        for first in (20, 25):
            for start, count in ((0, 2), (2, 2), (4, 1)):
                commit(writer, tracks(first + start, count))
            if first == 20:
                writer.rotate()
        yield disk.kill()


def copied(disk: SimDisk, change: Callable[[str, bytes], bytes | None] = lambda _, data: data) -> SimDisk:
    """The same files on another disk, except for what `change` makes of them."""
    copy = SimDisk()
    for folder in (FOLDER, f"{FOLDER}/heads", f"{FOLDER}/sealed"):
        copy.make_folder(folder)
        for name in disk.list(folder):
            if not name.endswith("/") and name != "lock":
                data = change(f"{folder}/{name}", disk.read(f"{folder}/{name}"))
                if data is not None:
                    with copy.create(f"{folder}/{name}") as file:
                        file.append(data)
    return copy


def flipped(disk: SimDisk, name: str, at: int) -> SimDisk:
    def flip(there: str, data: bytes) -> bytes:
        if there != name:
            return data
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        return bytes(changed)

    return copied(disk, flip)


def listed(disk: SimDisk, kind: str) -> list[str]:
    return [f"{FOLDER}/{kind}/{name}" for name in disk.list(f"{FOLDER}/{kind}")]


def what_is_there(disk: SimDisk) -> tuple[dict[int, Record], Ranges]:
    """What a reader gets that goes on behind each gap, and the gaps."""
    found: dict[int, Record] = {}
    gaps: Ranges = []
    with PartitionReader(disk, FOLDER) as reader:
        position = reader.earliest
        while position < reader.watermark:
            try:
                rows = reader.read(position, 7)
            except HistoryDamaged as gap:
                gaps.append((position, gap.next_available))
                position = gap.next_available
            else:
                found.update({row.offset: row.record for row in rows})
                position = rows[-1].offset + 1
    return found, gaps


def assert_only_these_are_lost(disk: SimDisk, lost: Ranges, end: int = EVENTS) -> None:
    found, gaps = what_is_there(disk)
    assert gaps == lost
    missing = {offset for first, behind in lost for offset in range(first, behind)}
    truth = dict(enumerate(tracks(0, EVENTS)))
    assert found == {offset: record for offset, record in truth.items() if offset not in missing}
    with PartitionReader(disk, FOLDER) as reader:
        assert reader.watermark == end


def assert_repair_leaves(disk: SimDisk, lost: Ranges, end: int = EVENTS) -> None:
    """A plan changes nothing; a repair loses nothing that could be read, and can be repeated."""
    before = {name: disk.read(name) for kind in ("heads", "sealed") for name in listed(disk, kind)}
    plan = plan_repair(disk, FOLDER, SimRandom("plan"))
    assert plan.steps
    assert [(r.first, r.next) for r in plan.lost] == lost
    assert before == {name: disk.read(name) for kind in ("heads", "sealed") for name in listed(disk, kind)}
    assert repair(ports(disk), FOLDER).steps == plan.steps
    assert_only_these_are_lost(disk, lost, end)
    report = verify(disk, FOLDER)
    assert report.sound
    assert [(r.first, r.next) for r in report.lost] == lost
    assert repair(ports(disk), FOLDER).steps == ()
    kept = [name for name in disk.list(FOLDER) if name.startswith("damaged-")]
    assert kept, "what was replaced is kept"
    writer = partition(disk)
    assert commit(writer, tracks(EVENTS, 1)) == end
    seal_everything(writer, disk)
    assert what_is_there(disk)[1] == lost


def frame_ranges(disk: SimDisk, head: str) -> list[tuple[int, tuple[int, int]]]:
    """Where the frames of a head end, and their offsets."""
    first = 20 if head == listed(disk, "heads")[0] else 25
    data = disk.read(head)
    starts = [at for at in range(len(data)) if data[at : at + 4] == b"HgFr"]
    ranges = [(first, first + 2), (first + 2, first + 4), (first + 4, first + 5)]
    return list(zip([*starts[1:], len(data)], ranges, strict=True))


@pytest.mark.parametrize("which", [0, 1], ids=["closed", "open"])
def test_a_flipped_bit_in_a_head_costs_its_frame(aged: SimDisk, which: int) -> None:
    name = listed(aged, "heads")[which]
    frames = frame_ranges(aged, name)
    for at in range(0, len(aged.read(name)), 7):
        disk = flipped(aged, name, at)
        lost = [next(offsets for end, offsets in frames if at < end)] if at >= 64 else []
        report = verify(disk, FOLDER)
        assert not report.sound, at
        assert [(r.first, r.next) for r in report.damaged] == lost, at
        assert_only_these_are_lost(disk, lost)
        if at % 70 == 0:
            assert_repair_leaves(disk, lost)


@pytest.mark.parametrize("which", [0, 1])
def test_a_flipped_bit_in_a_segment_costs_its_row_group(aged: SimDisk, which: int) -> None:
    name = listed(aged, "sealed")[which]
    segment = manifests.load(aged, FOLDER).segments[which]
    groups = [(10 * which + first, 10 * which + end) for first, end in ((0, 4), (4, 8), (8, 10))]
    for number, at in enumerate(range(0, segment.size, max(1, 197 // examples(1)))):
        disk = flipped(aged, name, at)
        hit = next(n for n, (end, _) in enumerate(segment.pieces) if at < end)
        lost = groups[hit : hit + 1]
        report = verify(disk, FOLDER)
        assert not report.sound, at
        assert [(r.first, r.next) for r in report.damaged] == lost, at
        if number % 10 == 0:
            assert_repair_leaves(disk, lost)


def test_a_flipped_bit_in_the_manifest_is_refused_and_the_files_tell_all_of_it(aged: SimDisk) -> None:
    name = f"{FOLDER}/manifest"
    for number, at in enumerate(range(0, len(aged.read(name)), 9)):
        disk = flipped(aged, name, at)
        if at not in (10, 11):  # of no meaning yet
            with pytest.raises(BadJournalFile):
                PartitionReader(disk, FOLDER)
            with pytest.raises(BadJournalFile):
                partition(disk)
        if number % 10 == 0 and at != 10:
            assert_repair_leaves(disk, [])


def test_a_flipped_bit_in_the_commit_file_costs_nothing(aged: SimDisk) -> None:
    name = f"{FOLDER}/commit"
    for at in range(len(aged.read(name))):
        disk = flipped(aged, name, at)
        try:
            found, gaps = what_is_there(disk)
        except BadJournalFile:
            pass
        else:
            assert gaps == []
            assert list(found.values()) == tracks(0, len(found)), "less at most, never something else"
        partition(disk).close()
        assert_only_these_are_lost(disk, [])


def without(*names: str) -> Callable[[str, bytes], bytes | None]:
    return lambda name, data: None if name in names else data


@pytest.mark.parametrize(
    ("kind", "which", "lost"), [("heads", 0, [(20, 25)]), ("sealed", 0, [(0, 10)]), ("sealed", 1, [(10, 20)])]
)
def test_a_missing_file_costs_its_own_events(aged: SimDisk, kind: str, which: int, lost: Ranges) -> None:
    disk = copied(aged, without(listed(aged, kind)[which]))
    assert_only_these_are_lost(disk, lost)
    assert_repair_leaves_nothing_aside_but(disk, lost)


def assert_repair_leaves_nothing_aside_but(disk: SimDisk, lost: Ranges) -> None:
    plan = repair(ports(disk), FOLDER)
    assert [(r.first, r.next) for r in plan.lost] == lost
    assert_only_these_are_lost(disk, lost)
    assert verify(disk, FOLDER).sound


def test_a_missing_open_head_stops_writers_until_somebody_decides(aged: SimDisk) -> None:
    disk = copied(aged, without(listed(aged, "heads")[1]))
    with pytest.raises(BadJournalFile, match="missing"):
        partition(disk)
    plan = plan_repair(disk, FOLDER, SimRandom("plan"))
    ((first, end),) = [(r.first, r.next) for r in plan.lost]
    assert first == 25
    assert end > EVENTS, "no offset that may have been given out is given out again"
    assert_repair_leaves(disk, [(25, end)], end)


@pytest.mark.parametrize("keep", ["none of it", "an old one"])
def test_a_manifest_that_is_lost_or_old_is_made_anew_from_the_files(aged: SimDisk, keep: str) -> None:
    old = manifests.load(aged, FOLDER)
    disk = copied(aged, without(f"{FOLDER}/manifest"))
    if keep == "an old one":
        manifests.publish(disk, FOLDER, manifests.Manifest(partition=old.partition, generation=1))
    with pytest.raises(BadJournalFile):
        partition(disk)
    plan = repair(ports(disk), FOLDER)
    assert plan.beginning
    assert_only_these_are_lost(disk, [])
    assert verify(disk, FOLDER).sound
    new = manifests.load(disk, FOLDER)
    assert new.segments == old.segments
    assert new.partition == old.partition
    assert new.epoch > old.epoch
    assert new.generation > old.generation


@pytest.mark.parametrize("kind", ["heads", "sealed"])
def test_swapped_files_are_found_out_and_found_again(aged: SimDisk, kind: str) -> None:
    one, other = listed(aged, kind)
    swap = {one: aged.read(other), other: aged.read(one)}
    disk = copied(aged, swap.get)
    span = [(20, 25), (25, 30)] if kind == "heads" else [(0, 10), (10, 20)]
    assert [(r.first, r.next) for r in verify(disk, FOLDER).damaged] == span
    assert plan_repair(disk, FOLDER, SimRandom("plan")).lost == ()
    repair(ports(disk), FOLDER)
    assert_only_these_are_lost(disk, [])
    assert verify(disk, FOLDER).sound


def test_a_file_of_another_partition_is_not_taken_for_one_of_this(aged: SimDisk) -> None:
    stranger = SimDisk()
    writer = partition(stranger)
    commit(writer, tracks(0, 5))
    (foreign,) = listed(stranger, "heads")
    head = listed(aged, "heads")[0]
    data = bytearray(stranger.read(foreign))
    disk = copied(aged, lambda name, there: bytes(data) if name == head else there)
    assert_only_these_are_lost(disk, [(20, 25)])


@pytest.mark.parametrize("which", [0, 1], ids=["closed", "open"])
def test_a_head_cut_at_any_byte_loses_the_frames_that_are_not_whole(aged: SimDisk, which: int) -> None:
    name = listed(aged, "heads")[which]
    frames = frame_ranges(aged, name)
    first, end = frames[0][1][0], frames[-1][1][1]
    for size in range(64, len(aged.read(name)), 11):
        disk = copied(aged, lambda there, data, size=size: data[:size] if there == name else data)  # type: ignore[misc]  # bound now
        whole = [offsets[1] for behind, offsets in frames if behind <= size]
        lost = [(whole[-1] if whole else first, end)]
        assert_only_these_are_lost(disk, lost)
        if size % 5 == 4:
            assert_repair_leaves(disk, lost)

"""What goes and what stays: by size, by age, by what consumers have read, and for how long on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from heliograph.errors import HistoryGone
from heliograph.journal import CursorStore
from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.manifest import Damage, Head, Manifest, Retired, Segment
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.retention import ConsumerPosition, Decision, Overtaken, decide
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.tools.inspection import ls, verify
from heliograph.sim import SimDisk
from tests.unit.journal.helpers import (
    FOLDER,
    HandClock,
    commit,
    history,
    partition,
    ports,
    seal_everything,
    tracks,
)

if TYPE_CHECKING:
    from heliograph.journal.writing.partition import WritablePartition

SECOND = 10**9
HOUR = 3600
NOW = 1000 * HOUR * SECOND


def segment(n: int, *, age: float = 0, size: int = 100) -> Segment:
    """The n-th of segments with ten events each; its last event has that age in seconds."""
    ts = NOW - round(age * SECOND)
    return Segment(f"sealed/{n}", 10 * n, 10 * n + 10, size, ts, ts)


def made(*segments: Segment, heads: tuple[Head, ...] = (), retired: tuple[Retired, ...] = ()) -> Manifest:
    earliest = segments[0].first if segments else 0
    return Manifest(partition=b"p" * 16, earliest=earliest, segments=segments, heads=heads, retired=retired)


def decided(manifest: Manifest, limits: Limits, *places: ConsumerPosition) -> Decision:
    size = sum(source.size for source in manifest.sources)
    return decide(manifest, places, limits, now=NOW, size=size)


def dropped(manifest: Manifest, limits: Limits, *places: ConsumerPosition) -> list[int]:
    return [source.first // 10 for source in decided(manifest, limits, *places).drop]


KEEP_ALL = Limits(keep_bytes=None, keep_seconds=None)
AN_HOUR = Limits(keep_bytes=None, keep_seconds=HOUR)


def test_without_limits_nothing_goes() -> None:
    assert dropped(made(segment(0, age=10**6), segment(1)), KEEP_ALL) == []


def test_by_age_the_oldest_go_and_the_first_young_one_ends_it() -> None:
    manifest = made(segment(0, age=3 * HOUR), segment(1, age=2 * HOUR), segment(2), segment(3, age=2 * HOUR))
    assert dropped(manifest, AN_HOUR) == [0, 1]


def test_by_size_the_oldest_go_until_the_rest_fits_and_an_eighth_stays_for_the_grace() -> None:
    manifest = made(*(segment(n) for n in range(10)))
    assert dropped(manifest, Limits(keep_bytes=800, keep_seconds=None)) == [0, 1, 2]
    assert dropped(manifest, Limits(keep_bytes=800, keep_seconds=None, grace_seconds=0)) == [0, 1]


def test_what_a_consumer_lacks_is_held_beyond_its_age() -> None:
    manifest = made(*(segment(n, age=2 * HOUR) for n in range(4)))
    assert dropped(manifest, AN_HOUR, ConsumerPosition("billing", 20, NOW)) == [0, 1]
    assert (
        dropped(manifest, AN_HOUR, ConsumerPosition("billing", 20, NOW), ConsumerPosition("audit", 5, NOW))
        == []
    )


def test_a_segment_read_in_part_is_held_whole() -> None:
    manifest = made(*(segment(n, age=2 * HOUR) for n in range(3)))
    assert dropped(manifest, AN_HOUR, ConsumerPosition("billing", 19, NOW)) == [0]


def test_a_consumer_that_was_not_heard_of_for_its_lease_holds_nothing_and_is_named() -> None:
    manifest = made(*(segment(n, age=2 * HOUR) for n in range(3)))
    idle = ConsumerPosition("billing", 13, NOW - round(AN_HOUR.hold_seconds * SECOND) - 1)
    decision = decided(manifest, AN_HOUR, idle)
    assert [source.first for source in decision.drop] == [0, 10, 20]
    assert decision.overtaken == (Overtaken("billing", 13, 30),)


def test_nobody_holds_anything_beyond_the_quota() -> None:
    manifest = made(*(segment(n) for n in range(10)))
    limits = Limits(keep_bytes=800, keep_seconds=None)
    decision = decided(manifest, limits, ConsumerPosition("billing", 0, NOW))
    assert len(decision.drop) == 3
    assert decision.overtaken == (Overtaken("billing", 0, 30),)


def test_holding_can_be_left_out() -> None:
    manifest = made(*(segment(n, age=2 * HOUR) for n in range(3)))
    limits = Limits(keep_bytes=None, keep_seconds=HOUR, hold_unread=False)
    assert dropped(manifest, limits, ConsumerPosition("billing", 0, NOW)) == [0, 1, 2]


def test_what_every_consumer_has_read_can_go_at_once() -> None:
    manifest = made(*(segment(n) for n in range(4)))
    limits = Limits(keep_bytes=None, keep_seconds=None, drop_read=True)
    assert dropped(
        manifest, limits, ConsumerPosition("billing", 30, NOW), ConsumerPosition("audit", 20, NOW)
    ) == [0, 1]


def test_nothing_counts_as_read_while_no_consumer_is_known() -> None:
    manifest = made(*(segment(n) for n in range(4)))
    limits = Limits(keep_bytes=None, keep_seconds=None, drop_read=True)
    assert dropped(manifest, limits) == []
    assert dropped(manifest, limits, ConsumerPosition("gone", 30, 0)) == []


def test_heads_are_never_dropped_unless_they_are_damaged() -> None:
    old = NOW - 2 * HOUR * SECOND
    head = Head("heads/1", 10, 1, 20, 100, old, old)
    manifest = made(segment(0, age=2 * HOUR), heads=(head,))
    assert dropped(manifest, AN_HOUR) == [0]
    damaged = Manifest(
        partition=manifest.partition,
        segments=manifest.segments,
        heads=(head,),
        damage=(Damage(12, 14, head.name, "a bad frame"),),
    )
    decision = decided(damaged, AN_HOUR)
    assert [source.name for source in decision.drop] == ["sealed/0", "heads/1"]
    assert decision.remove == ("heads/1",), "heads need no grace"


def test_files_in_their_grace_stay_until_it_is_over() -> None:
    files = tuple(Retired(f"sealed/{age}", 10, NOW - age * SECOND) for age in (700, 601, 599, 0))
    decision = decided(made(retired=files), KEEP_ALL)
    assert decision.remove == ("sealed/700", "sealed/601")
    assert [file.name for file in decision.retired] == ["sealed/599", "sealed/0"]


def test_files_in_their_grace_that_need_more_than_an_eighth_of_the_quota_go_early() -> None:
    files = tuple(Retired(f"sealed/{age}", 10, NOW - age * SECOND) for age in (3, 2, 1))
    decision = decided(made(retired=files), Limits(keep_bytes=8 * 25))
    assert decision.remove == ("sealed/3",)


def sealed(disk: SimDisk, limits: Limits, clock: HandClock, segments: int) -> WritablePartition:
    writer = partition(disk, limits, clock)
    for n in range(segments):
        commit(writer, tracks(10 * n, 10))
        seal_everything(writer, disk)
        clock.now += HOUR * SECOND
    return writer


def files(disk: SimDisk) -> int:
    return len(disk.list(f"{FOLDER}/sealed"))


def test_a_dropped_file_can_be_read_by_name_until_its_grace_is_over_also_after_a_restart() -> None:
    disk, clock = SimDisk(), HandClock()
    limits = Limits(keep_bytes=None, keep_seconds=1.5 * HOUR, grace_seconds=600)
    writer = sealed(disk, limits, clock, 3)
    planned = manifests.load(disk, FOLDER).segments
    writer.retain()
    assert writer.manifest.earliest == 20
    assert files(disk) == 3
    assert [file.kind for file in ls(disk, FOLDER)] == ["retired", "retired", "segment"]
    assert verify(disk, FOLDER).sound
    assert verify(disk, FOLDER).unlisted == ()
    writer.close()
    clock.now += 599 * SECOND
    writer = partition(disk, limits, clock)
    writer.retain()
    assert all(disk.exists(f"{FOLDER}/{segment.name}") for segment in planned)
    clock.now += SECOND
    writer.retain()
    assert files(disk) == 1
    assert writer.manifest.retired == ()


def test_a_consumer_holds_what_it_lacks_across_restarts_until_its_lease_is_over() -> None:
    disk, clock = SimDisk(), HandClock()
    limits = Limits(keep_bytes=None, keep_seconds=HOUR, hold_seconds=10 * HOUR, grace_seconds=0)
    writer = sealed(disk, limits, clock, 4)
    with CursorStore(ports(disk, clock), "c") as cursors:
        cursors.open("billing", "me").commit({"a1": 10})
    with CursorStore(ports(disk, clock), "c") as cursors:
        clock.now += 9 * HOUR * SECOND
        writer.retain(cursors.places("a1"))
        assert writer.manifest.earliest == 10
        clock.now += 2 * HOUR * SECOND
        writer.retain(cursors.places("a1"))
        assert writer.manifest.earliest == 40
        back = cursors.open("billing", "me again").position("a1")
    with PartitionReader(disk, FOLDER) as reader, pytest.raises(HistoryGone) as caught:
        reader.read(back)
    assert caught.value.ranges == {FOLDER: (10, 40)}


def test_renewing_a_lease_holds_as_well_as_progress_does() -> None:
    disk, clock = SimDisk(), HandClock()
    with CursorStore(ports(disk, clock), "c") as cursors:
        cursor = cursors.open("billing", "me")
        cursor.commit({"a1": 10})
        clock.now += SECOND
        cursor.renew()
        assert cursors.places("a1") == (ConsumerPosition("billing", 10, clock.now),)
        assert cursors.places("another") == ()


def test_what_was_kept_is_whole_after_each_retention() -> None:
    disk, clock = SimDisk(), HandClock()
    writer = sealed(disk, Limits(keep_bytes=None, keep_seconds=3 * HOUR), clock, 8)
    writer.retain()
    earliest = writer.manifest.earliest
    assert 0 < earliest < 80
    assert history(disk) == tracks(earliest, 80 - earliest)

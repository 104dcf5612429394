"""Power loss at every port operation of a trace: what was acknowledged is there, once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from heliograph.journal.limits import Limits
from heliograph.journal.maintenance import compaction_policy as tidying
from heliograph.journal.maintenance.compactor import rewrite
from heliograph.journal.maintenance.seal import seal
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.tools.inspection import verify
from heliograph.sim import SimDisk, explore_crashes
from tests.support import examples
from tests.unit.journal.helpers import FOLDER, HandClock, chunk, commit, history, partition, track, tracks

if TYPE_CHECKING:
    import pytest

    from heliograph.journal.format.records import Record
    from heliograph.journal.writing.partition import WritablePartition


class Journalling:
    """Commits, rotations, seals and reopenings; remembers what was acknowledged and what is in doubt."""

    LIMITS = Limits(head_events=8)

    def __init__(self) -> None:
        self.acked: list[Record] = []
        self.doubtful: list[Record] = []
        self.epochs: list[int] = []

    def run(self, disk: SimDisk) -> None:
        writer = self._opened(disk)
        for step in range(24):
            self._commit(writer, 1 + step % 3)
            if step == 4:
                self._seal(writer, disk)
            if step == 8:
                writer.close()
                writer = self._opened(disk)
            if step == 11:
                self._seal(writer, disk)

    def check(self, disk: SimDisk) -> None:
        for _ in range(2):  # recovering again changes nothing
            writer = self._opened(disk)
            assert writer.recovery.damage == ()
            found = history(disk)
            writer.close()
            assert found in (self.acked, self.acked + self.doubtful)
        writer = self._opened(disk)
        following = tracks(1000, 1)
        assert commit(writer, following) == len(found)
        assert history(disk) == found + following
        assert self.epochs == sorted(set(self.epochs)), "no epoch is used twice"

    def _opened(self, disk: SimDisk) -> WritablePartition:
        writer = partition(disk, self.LIMITS, HandClock())
        self.epochs.append(writer.epoch)
        return writer

    def _commit(self, writer: WritablePartition, count: int) -> None:
        self.doubtful = tracks(len(self.acked), count)
        commit(writer, self.doubtful)
        self.acked += self.doubtful
        self.doubtful = []

    def _seal(self, writer: WritablePartition, disk: SimDisk) -> None:
        writer.rotate()
        job = writer.seal_job()
        assert job is not None
        writer.install(job, seal(disk, job))


class Retaining(Journalling):
    """As above, with so little room that segments are dropped and have a grace."""

    LIMITS = Limits(head_events=4, keep_bytes=20_000, grace_seconds=2.5)

    def __init__(self) -> None:
        super().__init__()
        self.dropped = 0

    def run(self, disk: SimDisk) -> None:
        writer = self._opened(disk)
        for _ in range(6):
            self._commit(writer, 4)
            self._seal(writer, disk)
            self._retain(writer)
            self.dropped = writer.manifest.earliest
        assert self.dropped > 0
        assert writer.recovery.removed == ()

    def _retain(self, writer: WritablePartition) -> None:
        clock = writer._clock
        assert isinstance(clock, HandClock)
        clock.now += 10**9
        writer.retain()

    def check(self, disk: SimDisk) -> None:
        writer = self._opened(disk)
        earliest = writer.manifest.earliest
        everything = self.acked + self.doubtful
        assert earliest >= self.dropped
        assert history(disk) in (self.acked[earliest:], everything[earliest:])
        assert writer.next in {len(self.acked), len(everything)}
        in_grace = [file.name for file in writer.manifest.retired]
        assert all(disk.exists(f"{FOLDER}/{name}") for name in in_grace)
        segments = [segment.name for segment in writer.manifest.segments]
        found = [f"sealed/{name}" for name in disk.list(f"{FOLDER}/sealed")]
        assert sorted(found) == sorted(in_grace + segments), "nothing else is left over"


class Merging(Retaining):
    """Small segments become one, and the grace of those that it was made from ends."""

    LIMITS = Limits(head_events=2, keep_bytes=None, keep_seconds=32.0, grace_seconds=1.5)

    def run(self, disk: SimDisk) -> None:
        writer = self._opened(disk)
        merged = 0
        for _ in range(4):
            self._commit(writer, 2)
            self._seal(writer, disk)
            job = writer.rewrite_job()
            if job is not None:
                writer.replace_segments(job, rewrite(disk, job))
                merged += 1
            self._retain(writer)
            self.dropped = writer.manifest.earliest
        assert merged > 1


class Compacting(Journalling):
    """A few keys, written again and again; what is there after a crash is the last of each that was acked."""

    LIMITS = Limits(head_events=8, keep_bytes=None, compact=True, grace_seconds=2.5)
    KEYS = 3

    def run(self, disk: SimDisk) -> None:
        writer = self._opened(disk)
        for _ in range(3):
            self._commit(writer, 4)
            self._seal(writer, disk)
            job = writer.rewrite_job()
            assert job is not None
            writer.replace_segments(job, rewrite(disk, job))
            self._retain_later(writer)

    def check(self, disk: SimDisk) -> None:
        for _ in range(2):
            writer = self._opened(disk)
            assert writer.recovery.damage == ()
            report = verify(disk, FOLDER)
            assert report.sound
            assert report.watermark in {len(self.acked), len(self.acked) + len(self.doubtful)}
            with PartitionReader(disk, FOLDER) as reader:
                found = {row.offset: row.record for row in reader.read(0)}
            everything = (self.acked + self.doubtful)[: report.watermark]
            assert found == {offset: everything[offset] for offset in found}, "offsets stay"
            latest = {offset % self.KEYS: offset for offset in range(report.watermark)}
            assert set(latest.values()) <= found.keys(), "the last of each key is there"
            writer.close()

    def _commit(self, writer: WritablePartition, count: int) -> None:
        first = len(self.acked)
        self.doubtful = [keyed(n, n % self.KEYS) for n in range(first, first + count)]
        commit(writer, self.doubtful)
        self.acked += self.doubtful
        self.doubtful = []

    def _retain_later(self, writer: WritablePartition) -> None:
        clock = writer._clock
        assert isinstance(clock, HandClock)
        clock.now += 10**9
        writer.retain()


def keyed(n: int, key: int) -> Record:
    return msgspec.structs.replace(track(n), body=msgspec.msgpack.encode([key, ""]))


def test_no_crash_during_merging_loses_repeats_or_reorders_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "TOGETHER", 2)
    explored = explore_crashes(Merging, outcomes=examples(1))
    assert explored.points > 100


def test_no_crash_during_compaction_loses_the_last_event_of_a_key() -> None:
    explored = explore_crashes(Compacting, outcomes=examples(1))
    assert explored.points > 80


def test_no_crash_loses_repeats_or_reorders_what_was_acknowledged() -> None:
    explored = explore_crashes(Journalling, outcomes=examples(4))
    assert explored.points > 200


def test_no_crash_during_retention_loses_more_than_was_dropped() -> None:
    explored = explore_crashes(Retaining, outcomes=examples(2))
    assert explored.points > 200


class Recovering(Journalling):
    """A writer dies between append and sync, the next in mid-append; the power goes while they recover.

    Readers see what a recovery has kept, so from then on it must stay.
    """

    def run(self, disk: SimDisk) -> None:
        writer = self._opened(disk)
        for _ in range(3):
            self._commit(writer, 2)
        self.doubtful = tracks(6, 2)
        writer.write([chunk(self.doubtful)])
        writer._lock.release()
        writer = self._opened(disk)
        self.acked += self.doubtful
        self._commit(writer, 1)
        assert writer._head is not None
        with disk.open(writer._head.file.name) as file:
            file.append(b"HgFr torn")
        writer._lock.release()
        self._commit(self._opened(disk), 1)


def test_a_crash_inside_of_recovery_is_recovered_from() -> None:
    explored = explore_crashes(Recovering, outcomes=examples(10))
    assert explored.points > 80

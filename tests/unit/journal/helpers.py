"""What the tests of the journal share: a clock set by hand, records, and ports over a simulated disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from heliograph.journal.format.records import Record, RecordRun, encode_rows
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.seal import seal
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.writing.partition import Chunk, WritablePartition
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format, FormatRegistry
from heliograph.runtime.ports import Ports, ThreadTasks
from heliograph.sim import SimRandom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.runtime.ports import Disk

AnyDisk = TypeVar("AnyDisk", bound="Disk")
FOLDER = "a1"
TRACK = Format("air.track", (Field("id", ft.Scalar("i64")), Field("note", ft.Scalar("str"))), key=("id",))
ALARM = Format("air.alarm", (Field("id", ft.Scalar("str")), Field("level", ft.Scalar("i64"))))
FORMATS = FormatRegistry()
for known in (TRACK, ALARM):
    FORMATS.register(known)


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now


def track(n: int, note: str = "") -> Record:
    """The n-th record of one supplier."""
    return Record("radar", 1, n, n * 10, TRACK.id, msgspec.msgpack.encode([n, note]), station_seq=n)


def alarm(n: int) -> Record:
    return Record("radar", 1, n, n * 10, ALARM.id, msgspec.msgpack.encode([str(n), n]))


def tracks(first: int, count: int) -> list[Record]:
    return [track(n) for n in range(first, first + count)]


def ports(disk: Disk, clock: HandClock | None = None) -> Ports:
    return Ports(clock or HandClock(), ThreadTasks(), SimRandom("journal"), disk)


def partition(disk: Disk, limits: Limits | None = None, clock: HandClock | None = None) -> WritablePartition:
    return WritablePartition(ports(disk, clock), FOLDER, FORMATS, limits or Limits())


def chunk(records: Sequence[Record]) -> Chunk:
    return Chunk(len(records), encode_rows(records), frozenset(r.format_id for r in records))


def run_chunk(run: RecordRun) -> Chunk:
    return Chunk(len(run), encode_rows([run]), frozenset({run.format_id}), is_run=True)


def commit(target: WritablePartition, *batches: Sequence[Record]) -> int:
    """Write and sync the batches as one frame; returns the first offset."""
    written = target.write([chunk(batch) for batch in batches])
    target.sync()
    return written.first


def seal_everything(target: WritablePartition, disk: Disk) -> int:
    """Close the head and seal all closed ones; returns how many segments that made."""
    target.rotate()
    made = 0
    while (job := target.seal_job()) is not None:
        target.install(job, seal(disk, job))
        made += 1
    return made


def history(disk: Disk, start: int | None = None) -> list[Record]:
    """Everything that a new reader finds, which must be dense."""
    with PartitionReader(disk, FOLDER) as reader:
        position = reader.earliest if start is None else start
        found: list[Record] = []
        while rows := reader.read(position, max_events=7):
            assert [row.offset for row in rows] == list(range(position, position + len(rows)))
            found += [row.record for row in rows]
            position += len(rows)
        assert position == max(reader.watermark, position)
    return found


def recovered(disk: AnyDisk) -> AnyDisk:
    """The disk after another writer has opened and closed the partition."""
    partition(disk).close()
    return disk

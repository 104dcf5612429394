"""Looks at a partition from outside: what is there, what it says, whether all of it can be read.

    ls(disk, "air.tracks/a1")                   the files
    cat(disk, "air.tracks/a1", 100, 200)        the records
    verify(disk, "air.tracks/a1").sound         every byte of every file

Nothing here takes a lock or changes a file; a partition may be written meanwhile.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from heliograph.errors import BadJournalFile, DiskError, HistoryDamaged, HistoryGone
from heliograph.journal.format.frames import Frame, HeadFile
from heliograph.journal.format.manifest import Head, files_in
from heliograph.journal.names import HEADS, MANIFEST, SEALED
from heliograph.journal.reading.reader import PartitionReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.journal.format.manifest import Segment
    from heliograph.journal.format.records import JournalRecord
    from heliograph.runtime.ports import Disk

AT_ONCE: Final = 16_384
"""Rows read in one go."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file with rows, as the manifest has it."""

    name: str
    kind: Literal["head", "open head", "segment", "retired"]
    """Retired: no longer part of the history, and kept for its grace. Its offsets are 0."""
    first: int
    next: int
    """Of an open head: the watermark."""
    size: int
    first_ts: int
    last_ts: int
    """Times are 0 for a head that is being written; of a retired file, both are when it left the history."""


@dataclass(frozen=True, slots=True)
class VerifiedRange:
    """Offsets from `first` up to, not including, `next`, and what is wrong with them."""

    first: int
    next: int
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What `verify` found."""

    folder: str
    epoch: int
    earliest: int
    watermark: int
    files: int
    frames: int
    """In heads; segments have none."""
    events: int
    """Read, of `watermark - earliest`."""
    compacted: int
    """Offsets that have no row any more."""
    damaged: tuple[VerifiedRange, ...]
    """What cannot be read, ascending."""
    lost: tuple[VerifiedRange, ...]
    """What could not be read when the partition was repaired, and was accepted as lost."""
    remarks: tuple[str, ...]
    """What is wrong with files though all their rows can be read: `repair` puts it right."""
    unlisted: tuple[str, ...]
    """Files that the manifest does not list: rests of something interrupted, or being made just now."""

    @property
    def sound(self) -> bool:
        """Every event that should be there is, and no file has a wrong byte."""
        known = self.compacted + sum(lost.next - lost.first for lost in self.lost)
        complete = self.events + known == self.watermark - self.earliest
        return complete and not self.damaged and not self.remarks


def partitions(disk: Disk, folder: str) -> tuple[str, ...]:
    """The partitions in a channel's folder."""
    inner = [f"{folder}/{name[:-1]}" for name in disk.list(folder) if name.endswith("/")]
    return tuple(name for name in inner if disk.exists(f"{name}/{MANIFEST}"))


def ls(disk: Disk, folder: str) -> list[FileInfo]:
    """The files of a partition: those in their grace, then those with its rows by their offsets."""
    with PartitionReader(disk, folder) as reader:
        manifest = reader.manifest
        retired = [FileInfo(f.name, "retired", 0, 0, f.size, f.left_ts, f.left_ts) for f in manifest.retired]
        return [*retired, *(_info(disk, folder, source, reader.watermark) for source in manifest.sources)]


def cat(
    disk: Disk, folder: str, start: int | None = None, stop: int | None = None
) -> Iterator[JournalRecord]:
    """The records from `start` (the earliest) to `stop` (the watermark); raises where one cannot be read."""
    with PartitionReader(disk, folder) as reader:
        position = reader.earliest if start is None else start
        end = reader.watermark if stop is None else stop
        while rows := reader.read(position, AT_ONCE, below=end):
            yield from rows
            position = rows[-1].offset + 1


def verify(disk: Disk, folder: str) -> VerifyReport:
    """Read everything, and say exactly what could not be read."""
    with PartitionReader(disk, folder) as reader:
        manifest, watermark = reader.manifest, reader.watermark
        events, unreadable = _read_all(reader, manifest.earliest, watermark)
        accepted = {(known.first, known.next) for known in manifest.damage if known.accepted}
        sources = manifest.sources
        remarks = tuple(filter(None, map(reader.remark, sources)))
    listed = {file.name for file in (*sources, *manifest.retired)}
    found = [f"{inner}/{name}" for inner in (HEADS, SEALED) for name in files_in(disk, folder, inner)]
    return VerifyReport(
        folder=folder,
        epoch=manifest.epoch,
        earliest=manifest.earliest,
        watermark=watermark,
        files=len(sources),
        frames=sum(
            _frames(disk, folder, s, manifest.partition, watermark) for s in sources if isinstance(s, Head)
        ),
        events=events,
        compacted=sum(s.next - s.first - s.events for s in manifest.segments),
        damaged=tuple(found for found in unreadable if (found.first, found.next) not in accepted),
        lost=tuple(found for found in unreadable if (found.first, found.next) in accepted),
        remarks=remarks,
        unlisted=tuple(name for name in found if name not in listed),
    )


def _info(disk: Disk, folder: str, source: Head | Segment, watermark: int) -> FileInfo:
    if source.next is not None:
        kind: Literal["head", "segment"] = "head" if isinstance(source, Head) else "segment"
        end, size = source.next, source.size
        return FileInfo(source.name, kind, source.first, end, size, source.first_ts, source.last_ts)
    with disk.open(f"{folder}/{source.name}", readonly=True) as file:
        return FileInfo(source.name, "open head", source.first, watermark, file.size(), 0, 0)


def _read_all(reader: PartitionReader, position: int, end: int) -> tuple[int, list[VerifiedRange]]:
    events = 0
    damaged: list[VerifiedRange] = []
    while position < end:
        try:
            runs, position = reader.read_on(position, AT_ONCE, below=end)
        except HistoryDamaged as error:
            damaged.append(VerifiedRange(error.first, error.next_available, error.reason))
            position = error.next_available
        except HistoryGone as error:
            position = error.next_available  # retention came by while this was reading
        else:
            events += sum(len(rows.records) for rows in runs)
    return events, damaged


def _frames(disk: Disk, folder: str, head: Head, partition: bytes, watermark: int) -> int:
    """How many good frames the head has; one that has been sealed since, or cannot be opened, has none."""
    end = watermark if head.next is None else head.next
    try:
        with closing(disk.open(f"{folder}/{head.name}", readonly=True)) as file:
            expected = head.header(partition)
            return sum(
                isinstance(found, Frame) and found.base < end
                for found in HeadFile(file, partition, expected).frames()
            )
    except (DiskError, BadJournalFile):
        return 0

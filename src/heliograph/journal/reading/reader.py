"""Reads a partition from any process, without a lock and without disturbing the writer.

    reader = PartitionReader(disk, "air.tracks/a1")
    position = reader.earliest
    while reader.wait(position, timeout=1.0):
        for row in reader.read(position, max_events=1000):
            position = row.offset + 1

Only rows below the durable watermark are ever returned. Which file holds them is looked up in the manifest at
each read; when a file has gone since, because it was sealed or dropped, the manifest is read again, so that a
reader gets its rows from the new file or is told exactly which are gone.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, Self

from heliograph.errors import BadJournalFile, DiskError, HistoryDamaged, HistoryGone, NoSuchFile
from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.commit_file import CommitView, age
from heliograph.journal.format.manifest import Head
from heliograph.journal.format.records import JournalRecord, Rows
from heliograph.journal.names import COMMIT
from heliograph.journal.reading.head_reader import HeadReader
from heliograph.journal.reading.segment_reader import SegmentReader
from heliograph.model.formats import FormatRegistry
from heliograph.runtime.ports import SystemClock, ThreadTasks, seconds_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.journal.format.compacted_ids import CompactedIds
    from heliograph.journal.format.manifest import Manifest, Segment
    from heliograph.runtime.ports import Clock, Disk, Tasks

MAX_OPEN: Final = 16
"""Files that a reader keeps open."""

SHORTEST_PAUSE: Final = 0.000_1
LONGEST_PAUSE: Final = 0.005
"""`wait` looks at the watermark at these intervals, doubling from the one to the other."""


_BODY_OF: Final = attrgetter("body")


class RowFile(Protocol):
    """A file with rows, head or sealed."""

    dense: bool
    """Whether every one of its offsets has a row; others have been compacted."""

    @property
    def remark(self) -> str | None:
        """What is wrong with the file though it harms no row."""
        ...

    def rows(self, start: int, below: int) -> Iterator[Rows]:
        """Rows from an offset on, in runs; HistoryDamaged when the row at `start` cannot be read."""
        ...

    def offset_at(self, append_ts: int, below: int) -> int | None: ...

    def close(self) -> None: ...


class PartitionReader:
    """Opens a partition for reading; NoSuchFile when there is none. Not for several tasks at once."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        *,
        formats: FormatRegistry | None = None,
        clock: Clock | None = None,
        tasks: Tasks | None = None,
    ) -> None:
        self.folder = folder
        self.formats = formats if formats is not None else FormatRegistry()
        """Filled with the formats of the rows that were read."""
        self._disk = disk
        self._clock: Clock = clock or SystemClock()
        self._tasks: Tasks = tasks or ThreadTasks()
        self._manifest = manifests.load(disk, folder)
        self._commit = CommitView(disk, folder)
        if self._commit.partition != self._manifest.partition:
            raise BadJournalFile(f"{folder}/{COMMIT}", "it belongs to another partition")
        self._open: dict[str, HeadReader | SegmentReader] = {}

    @property
    def watermark(self) -> int:
        """Rows below this offset are durable and can be read."""
        return max(self._commit.watermark(), self._manifest.next)

    @property
    def earliest(self) -> int:
        """The first offset that retention has left."""
        return self.manifest.earliest

    @property
    def manifest(self) -> Manifest:
        """The files as they are now."""
        if self._commit.current().generation > self._manifest.generation:
            self._reload()
        return self._manifest

    def is_replaced(self) -> bool:
        """Whether other files lie in this folder by now, such as an older copy that was put back."""
        before = self._commit.current()
        try:
            with closing(CommitView(self._disk, self.folder)) as there:
                found, partition = there.current(), there.partition
        except (DiskError, BadJournalFile):
            return False  # reading on finds out
        return partition != self._commit.partition or not (
            age(before) <= age(found) <= age(self._commit.current())
        )

    def read(
        self, start: int, max_events: int = 1000, max_bytes: int = 16 << 20, below: int | None = None
    ) -> list[JournalRecord]:
        """Rows from `start` on, in order; none when there are none below the watermark.

        Offsets without a row have been compacted. Stops at the offset `below` and before the bodies exceed
        `max_bytes`, but never before the first row.
        Raises HistoryGone or HistoryDamaged, with the range, when the row at `start` cannot be had.
        """
        return [
            JournalRecord(offset, rows.append_ts, record)
            for rows in self.read_rows(start, max_events, max_bytes, below)
            for offset, record in enumerate(rows.records, rows.first)
        ]

    def read_rows(
        self, start: int, max_events: int = 1000, max_bytes: int = 16 << 20, below: int | None = None
    ) -> list[Rows]:
        """As `read`, in runs of one time each: cheaper for callers that take many."""
        while True:
            found, reached = self.read_on(start, max_events, max_bytes, below)
            if found or reached == start:
                return found
            start = reached

    def read_on(
        self, start: int, max_events: int = 1000, max_bytes: int = 16 << 20, below: int | None = None
    ) -> tuple[list[Rows], int]:
        """As `read_rows`, with the offset to go on at: there is no other row below it.

        It may be beyond the last row that was found, also when none was: what lies between was compacted.
        """
        found: list[Rows] = []
        reached = start
        for rows in self._runs(start, below):
            if not rows.records:
                reached = rows.first
                continue
            taken, size = _within(rows, max_events, max_bytes, first=not found)
            if taken.records:
                found.append(taken)
                reached = taken.first + len(taken.records)
            max_events -= len(taken.records)
            max_bytes -= size
            if len(taken.records) < len(rows.records) or max_events <= 0:
                break
        return found, reached

    def sealed_at(self, offset: int) -> tuple[SegmentReader, int] | None:
        """The sealed file with the row at an offset, and the offset behind it; None when it is in a head."""
        source, end = self.source_at(offset)
        return (source, end) if isinstance(source, SegmentReader) else None

    def source_at(self, offset: int) -> tuple[HeadReader | SegmentReader, int]:
        """The file with the row at an offset, and the offset behind what is durable in it.

        For callers that want columns. Raises HistoryGone or HistoryDamaged as `read` does.
        """
        return self._source_of(offset, self.watermark)

    def learn(self, segment: Segment) -> None:
        """Fill `formats` with those of a sealed file; one that cannot be read says nothing."""
        with suppress(BadJournalFile, NoSuchFile):
            self._opened(segment, self._manifest.partition)

    def left_out(self, start: int) -> list[CompactedIds]:
        """The ids of events from an offset on that were compacted; those of a damaged file are unknown."""
        found: list[CompactedIds] = []
        for segment in self.manifest.segments:
            if segment.rows is not None and segment.next > start:
                with suppress(BadJournalFile, NoSuchFile):
                    source = self._opened(segment, self._manifest.partition)
                    assert isinstance(source, SegmentReader)
                    found += (one for one in source.left_out() if one.offset >= start)
        return found

    def left_behind(self, offset: int) -> tuple[SegmentReader, int] | None:
        """As `sealed_at`, of a file that has left the history and still lies there, in its grace; or None.

        The caller closes it. For readers that planned with rows that retention has dropped since.
        """
        for gone in self.manifest.retired:
            segment = gone.segment
            if segment is not None and segment.first <= offset < segment.next:
                with suppress(NoSuchFile, BadJournalFile):
                    return SegmentReader(self._disk, self.folder, segment, self.formats), segment.next
        return None

    def offset_at(self, append_ts: int) -> int:
        """The first offset appended at that time (ns) or later; the watermark when there is none yet."""
        below = self.watermark
        position = self.earliest
        while position < below:
            entry = self._entry_of(self.manifest, position)
            if entry.next is None or entry.last_ts >= append_ts:
                source, end = self._source_of(position, below)
                found = source.offset_at(append_ts, end)
                if found is not None:
                    return found
            position = entry.next or below
        return below

    def remark(self, entry: Head | Segment) -> str | None:
        """What is wrong with a file of the manifest though it harms no row; None also when it has gone."""
        try:
            remark = self._opened(entry, self._manifest.partition).remark
        except (BadJournalFile, NoSuchFile):
            return None
        return remark and f"{entry.name}: {remark}"

    def sizes(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """A range in pieces, one per file: (first, next, about how many bytes of the file its rows take).

        What no file holds any more is in no piece.
        """
        watermark = self.watermark
        found = []
        for source in self.manifest.sources:
            stop = source.next or watermark
            low, high = max(first, source.first), min(end, stop)
            if low < high:
                size = source.size or self._size_now(source.name)
                found.append((low, high, size * (high - low) // (stop - source.first)))
        return found

    def _size_now(self, name: str) -> int:
        try:
            with self._disk.open(f"{self.folder}/{name}", readonly=True) as file:
                return file.size()
        except NoSuchFile:
            return 0

    def wait(self, offset: int, timeout: float | None = None) -> bool:
        """Wait until the row at `offset` can be read; False when the time ran out first."""
        deadline = None if timeout is None else self._clock.monotonic_ns() + round(timeout * 1e9)
        pause = SHORTEST_PAUSE
        while self.watermark <= offset:
            if deadline is not None:
                left = seconds_until(self._clock, deadline)
                if not left:
                    return False
                pause = min(pause, left)
            self._tasks.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return True

    def close(self) -> None:
        for source in self._open.values():
            source.close()
        self._open.clear()
        self._commit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _runs(self, start: int, below: int | None) -> Iterator[Rows]:
        """Rows from `start` to the watermark, across files. Trouble behind the first row just ends it.

        No rows at all, at an offset, say that everything up to there was compacted.
        """
        end = self.watermark if below is None else min(below, self.watermark)
        first = start
        while start < end:
            try:
                source, source_end = self._source_of(start, end)
                for rows in source.rows(start, source_end):
                    start = rows.first + len(rows.records)
                    if start > source_end:
                        rows = Rows(rows.first, rows.append_ts, rows.records[: source_end - rows.first])  # noqa: PLW2901 - cut at the end that was asked for
                    yield rows
                if start < source_end and not source.dense:
                    start = source_end
                    yield Rows(start, 0, [])
                elif start < source_end:
                    raise HistoryDamaged(self.folder, start, source_end, "their file ends before them")  # noqa: TRY301 - handled as damage inside of the file is
            except (HistoryGone, HistoryDamaged):
                if start == first:
                    raise
                return

    def _reload(self) -> None:
        self._manifest = manifests.load(self._disk, self.folder)
        listed = {source.name for source in self._manifest.sources}
        for name in self._open.keys() - listed:
            self._open.pop(name).close()

    def _source_of(self, offset: int, end: int) -> tuple[HeadReader | SegmentReader, int]:
        """The file with the row at an offset, and where its rows stop or those that are wanted do."""
        while True:
            manifest = self.manifest
            entry = self._entry_of(manifest, offset)
            entry_end = entry.next or self.watermark
            try:
                return self._opened(entry, manifest.partition), min(end, entry_end)
            except BadJournalFile as error:
                raise HistoryDamaged(self.folder, offset, entry_end, str(error)) from error
            except NoSuchFile:
                # Either the manifest has been replaced since it was read, or the file is lost.
                self._reload()
                if self._manifest.generation == manifest.generation:
                    reason = f"{entry.name} is missing"
                    raise HistoryDamaged(self.folder, offset, entry_end, reason) from None

    def _entry_of(self, manifest: Manifest, offset: int) -> Head | Segment:
        if offset < manifest.earliest:
            raise HistoryGone(self.folder, offset, manifest.earliest)
        for damage in manifest.damage:
            if damage.first <= offset < damage.next:
                raise HistoryDamaged(self.folder, offset, damage.next, damage.reason)
        sources = manifest.sources
        at = bisect_right(sources, offset, key=lambda source: source.first) - 1
        if at < 0 or offset >= (sources[at].next or self.watermark):
            following = sources[at + 1].first if at + 1 < len(sources) else self.watermark
            raise HistoryDamaged(self.folder, offset, following, "no file holds them")
        return sources[at]

    def _opened(self, entry: Head | Segment, partition: bytes) -> HeadReader | SegmentReader:
        source = self._open.get(entry.name)
        if source is None:
            while len(self._open) >= MAX_OPEN:
                self._open.pop(next(iter(self._open))).close()
            if isinstance(entry, Head):
                source = HeadReader(self._disk, self.folder, entry, partition, self.formats)
            else:
                source = SegmentReader(self._disk, self.folder, entry, self.formats)
            self._open[entry.name] = source
        return source


def _within(rows: Rows, max_events: int, max_bytes: int, *, first: bool) -> tuple[Rows, int]:
    """As many of the rows as fit, and the bytes of their bodies; the very first row always fits."""
    records = rows.records[:max_events] if len(rows.records) > max_events else rows.records
    size = sum(map(len, map(_BODY_OF, records)))
    if size <= max_bytes:
        return Rows(rows.first, rows.append_ts, records), size
    size = 0
    for count, record in enumerate(records):
        if size + len(record.body) > max_bytes and not (first and count == 0):
            return Rows(rows.first, rows.append_ts, records[:count]), size
        size += len(record.body)
    return Rows(rows.first, rows.append_ts, records), size

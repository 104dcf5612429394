"""Tasks of a read: ranges of offsets, read from head or sealed segments, wherever the rows are by then.

A slice knows no file, only a partition and two offsets, and looks up the rest in the manifest: rows that
were in a head when a read was planned may have been sealed since, and sealed files merged. Rows that
retention has taken, or that are damaged, are an error with the exact range, unless the job says to go on
without them.

Everything a task needs is in its job, and it imports the formats, the codec and the journal's reader only:
any executor that can import `heliograph` and sees the folder can run it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from heliograph.errors import HistoryDamaged, HistoryGone
from heliograph.journal.format.folder import disk_at
from heliograph.journal.format.records import count_events
from heliograph.journal.reading.head_columns import grouped
from heliograph.journal.reading.head_reader import HeadReader
from heliograph.journal.reading.reader import PartitionReader
from heliograph.model.formats import Format, FormatRegistry
from heliograph.spark.source.columns import ColumnShape
from heliograph.spark.source.filters import parsed
from heliograph.spark.source.options import BadRecords, Evolution  # noqa: TC001 - a Job is decoded by them
from heliograph.spark.source.rows import BatchMaker, PartitionFolder, schema
from heliograph.spark.source.schema_evolution import Evolving
from heliograph.spark.source.segments import SegmentColumns

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import pyarrow as pa

    from heliograph.journal.format.records import Piece
    from heliograph.journal.reading.segment_reader import SegmentReader

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 10_000
"""Rows per Arrow batch: few enough to hold, and many enough that each costs little on its way into Java."""
BATCH_BYTES: Final = 16 << 20


class Slice(msgspec.Struct, frozen=True):
    """Rows for one task: those of a partition from `first` up to, not including, `next`."""

    partition: str
    place: str
    """The partition's folder, counted from the station's."""
    first: int
    next: int
    channel: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of one read share."""

    folder: str
    formats: tuple[bytes, ...]
    """Descriptions of the formats that were known at planning."""
    joined: bytes | None
    """Description of the format that has room for all events; None for envelopes."""
    types: tuple[str, ...] | None
    fail_on_data_loss: bool
    slices: tuple[Slice, ...] = ()
    where: str | None = None
    params: dict[str, Any] | list[Any] | None = None
    evolution: Evolution = "fail"
    explicit: bool = False
    """Whether the user chose the columns."""
    bad_records: BadRecords | Literal["null"] = "null"

    def known(self) -> list[Format]:
        return [Format.from_description(description) for description in self.formats]

    def shape(self, wanted: pa.Schema | None) -> ColumnShape:
        """The columns; all of them unless some are wanted."""
        joined = None if self.joined is None else Format.from_description(self.joined)
        types: dict[str, list[Format]] = {}
        for fmt in self.known():
            if self.types is None or fmt.name in self.types:
                types.setdefault(fmt.name, []).append(fmt)
        filters = () if self.where is None or (joined and not types) else (parsed(self.where, self.params),)
        return ColumnShape(schema(joined) if wanted is None else wanted, joined, types, filters)


def batches(job: Job, part: Slice, wanted: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of one slice."""
    with PartitionReader(disk_at(job.folder), part.place, formats=_registry(job)) as reader:
        yield from _Task(job, part, reader, wanted).batches()


def _registry(job: Job) -> FormatRegistry:
    formats = FormatRegistry()
    for fmt in job.known():
        formats.register(fmt)
    return formats


class _Task:
    """One slice being read."""

    def __init__(self, job: Job, part: Slice, reader: PartitionReader, wanted: pa.Schema | None) -> None:
        self._job = job
        self._part = part
        self._reader = reader
        self._shape = job.shape(wanted)
        place = PartitionFolder(part.channel, part.partition, part.place)
        types = None if job.types is None else frozenset(job.types)
        known = [fmt.id for fmt in job.known()]
        joined = None if job.joined is None else Format.from_description(job.joined)
        self._maker = BatchMaker(
            place,
            self._shape,
            types=types,
            formats=reader.formats,
            evolving=None
            if joined is None
            else Evolving(job.evolution, known, joined, explicit=job.explicit),
            bad_records=job.bad_records,
        )
        self._columns = SegmentColumns(place, self._shape, types, self._maker)

    def batches(self) -> Iterator[pa.RecordBatch]:
        position = self._part.first
        while position < self._part.next:
            try:
                position = yield from self._some(position)
            except (HistoryGone, HistoryDamaged) as gap:
                if self._job.fail_on_data_loss:
                    raise
                log.warning("%s; they are left out", gap)
                position = max(gap.next_available, position + 1)
        if self._maker.skipped:
            log.warning(
                "%d events of %s do not decode and are left out", self._maker.skipped, self._part.place
            )

    def _some(self, position: int) -> Generator[pa.RecordBatch, None, int]:
        """Batches of the file that holds a row; returns the offset behind them."""
        source, end = self._source(position)
        end = min(end, self._part.next)
        if isinstance(source, HeadReader):
            return (yield from self._some_of_head(source, position, end))
        if source is not None and self._columns.can_read(source):
            for batch in self._columns.batches(source, position, end):
                yield from self._finished(batch)
            return end
        runs, reached = self._reader.read_on(position, BATCH_ROWS, BATCH_BYTES, self._part.next)
        if reached == position:
            reason = "the history ends before them: is this the folder that was planned for?"
            raise HistoryDamaged(self._part.place, position, self._part.next, reason)
        if runs:
            yield from self._finished(self._maker.batch(runs))
        return reached

    def _some_of_head(
        self, head: HeadReader, position: int, end: int
    ) -> Generator[pa.RecordBatch, None, int]:
        start = position
        for pieces in grouped(_up_to_trouble(head.pieces(start, end)), BATCH_ROWS, BATCH_BYTES):
            yield from self._finished(self._maker.batch_of_head(pieces))
            first, _, rows = pieces[-1]
            position = first + count_events(rows)
        if position == start:
            raise HistoryDamaged(self._part.place, start, end, "their file ends before them")
        return position

    def _source(self, position: int) -> tuple[HeadReader | SegmentReader | None, int]:
        """The file with a row, also one that retention has dropped and whose grace is not over; or None."""
        if position >= self._reader.watermark:
            return None, position
        try:
            return self._reader.source_at(position)
        except HistoryGone:
            found = self._reader.left_behind(position)
            if found is None or not self._columns.can_read(found[0]):
                raise
            return found

    def _finished(self, work: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = self._shape.finish(work)
        if batch.num_rows:
            yield batch


def _up_to_trouble(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """What comes before damage; only when that is nothing is the damage told. The next look will be at it."""
    found = False
    try:
        for piece in pieces:
            found = True
            yield piece
    except HistoryDamaged:
        if not found:
            raise

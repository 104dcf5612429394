"""Decides what a read consists of, before Spark runs anything.

For every partition the durable watermark is pinned; what lies below it, from `start` and up to `until`, is
divided into sealed files, which are immutable and which Spark reads by itself, and ranges of offsets for our
own source. The schema joins the formats of everything that the channel has kept, so that it does not change
with `start` and `until`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from heliograph.errors import FormatError, HistoryDamaged, HistoryGone, NotPossible
from heliograph.journal.format.folder import (
    StationFolder,
    learn_formats_of_heads,
    offset_of,
    partition_folder,
)
from heliograph.journal.format.footer import LAYOUT_KEY, formats_in
from heliograph.journal.format.records import EVENT
from heliograph.journal.reading.segment_reader import is_whole
from heliograph.journal.writing.segment_writer import INTEGERS, ROW_GROUP
from heliograph.model.formats import Format, FormatRegistry
from heliograph.runtime.object_store import is_remote
from heliograph.spark.source.pruning import Statistics
from heliograph.spark.source.tasks import Slice

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from heliograph.journal.format.manifest import Manifest, Segment
    from heliograph.journal.reading.reader import PartitionReader
    from heliograph.spark.source.head_copies import HeadCopies
    from heliograph.spark.source.options import SourceOptions

SLICE_ROWS: Final = 4 * ROW_GROUP
"""Rows per task of our source: about half a second of work."""


LEAST_ROWS: Final = ROW_GROUP // 4
"""Rows for which it pays to start one more task."""


def rows_per_task(events: int, options: SourceOptions, cores: int = 1) -> int:
    """How many rows a task of a read of so many events gets at most.

    Args:
        cores: on which tasks can run; each gets one, if that is not a task for a handful of rows.
    """
    shared = max(LEAST_ROWS, -(-events // cores))
    return max(1, min(SLICE_ROWS, shared, options.max_in_task or SLICE_ROWS, -(-events // options.min_tasks)))


def divided(ranges: Sequence[Slice], cores: int) -> tuple[Slice, ...]:
    """Ranges in parts of a size for one task."""
    events = sum(part.next - part.first for part in ranges)
    rows = min(SLICE_ROWS, max(LEAST_ROWS, -(-events // cores)))
    return tuple(
        small
        for part in ranges
        for small in slices_of(part.channel, part.partition, part.first, part.next, rows=rows)
    )


def slices_of(
    channel: str,
    partition: str,
    first: int,
    end: int,
    segments: Sequence[Segment] = (),
    *,
    rows: int | None = None,
) -> Iterator[Slice]:
    """A range in parts of a size for one task.

    With the sealed files given, they are cut between row groups, so that no group is decoded by two tasks;
    unless the parts are smaller than that.
    """
    place = partition_folder(channel, partition)
    rows = SLICE_ROWS if rows is None else rows
    while first < end:
        stop = first + rows
        at = bisect_right(segments, stop, key=lambda segment: segment.first) - 1
        if rows >= ROW_GROUP and stop < end and at >= 0 and stop < segments[at].next:
            stop = max(stop - (stop - segments[at].first) % ROW_GROUP, first + ROW_GROUP)
        yield Slice(partition, place, first, min(stop, end), channel)
        first = stop


class SealedFile(NamedTuple):
    """A sealed file, or the part of it that is wanted."""

    channel: str
    partition: str
    place: str
    path: str
    layout: str
    formats: tuple[Format, ...]
    first: int
    next: int
    whole: bool
    """Whether all its rows are wanted."""
    only_events: bool
    """Whether its statistics say that it has no tombstones."""

    def slice(self) -> Slice:
        """The same rows for our own source."""
        return Slice(self.partition, self.place, self.first, self.next, self.channel)


class Plan(NamedTuple):
    """What to read: files and ranges do not overlap, and together are all that was asked for."""

    folder: str
    formats: tuple[Format, ...]
    """All formats of the channel's history, also of parts that are not read, then those of its classes."""
    files: tuple[SealedFile, ...]
    slices: tuple[Slice, ...]


def plan_read(
    folder: str | os.PathLike[str],
    channel: str,
    start: Any,
    until: Any,
    *,
    fail_on_data_loss: bool,
    copies: HeadCopies | None = None,
) -> Plan:
    """The plan for a channel; NoHistory, HistoryGone or HistoryDamaged when there cannot be one.

    Who allows for loss has damaged files: each is read once here, so that only those that are whole go to
    Spark, which would fail, and our source takes what is left of the others. With `copies`, rows that are not
    sealed are copied into files that Spark can read too.
    """
    station = StationFolder(folder)
    formats = FormatRegistry()
    files: list[SealedFile] = []
    slices: list[Slice] = []
    for name in station.partitions(channel):
        with station.reader(channel, name, formats) as reader:
            partition = _Partition(station, channel, name, reader, trusts_files=fail_on_data_loss)
            partition.bound(start, until)
            if fail_on_data_loss:
                partition.insist_on_all()
            files += partition.files(copies)
            slices += partition.slices()
    for fmt in station.declared(channel):
        formats.register(fmt)
    return Plan(station.path, formats.formats(), tuple(files), tuple(slices))


def learn_formats(reader: PartitionReader) -> None:
    """Fill `reader.formats` with the formats of everything that is kept.

    A file that cannot be read is passed over: whoever reads its rows is told what is wrong.
    """
    for segment in reader.manifest.segments:
        if any(format_id not in reader.formats for format_id in segment.formats):
            reader.learn(segment)
    learn_formats_of_heads(reader)


class _Footer(NamedTuple):
    schema: pa.Schema
    layout: str
    formats: tuple[Format, ...]
    only_events: bool


def _footer(path: str) -> _Footer | None:
    """What the end of a sealed file says; None when it has gone or cannot be read."""
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            statistics = Statistics(file)
            kinds = {statistics.only_value(at, "_kind") for at in range(file.metadata.num_row_groups)}
        formats = tuple(formats_in(schema.metadata))
    except (pa.ArrowException, OSError, FormatError):
        return None
    return _Footer(schema, schema.metadata.get(LAYOUT_KEY, b"").decode(), formats, kinds <= {EVENT})


def _cut(file: SealedFile, first: int, end: int) -> SealedFile:
    """The part of a file between two offsets in it."""
    return file._replace(first=first, next=end, whole=(first, end) == (file.first, file.next))


class _Partition:
    """One partition being planned."""

    def __init__(
        self, station: StationFolder, channel: str, name: str, reader: PartitionReader, *, trusts_files: bool
    ) -> None:
        # In this order: a manifest that is newer than the watermark still lists everything below it.
        self._watermark = reader.watermark
        self._manifest: Manifest = reader.manifest
        self._name = name
        self._channel = channel
        self._place = partition_folder(channel, name)
        self._station = station
        self._is_far = is_remote(station.path)
        """Whether Spark's own reader does not get at the files: its Java would need the store's, too."""
        self._trusts_files = trusts_files
        self._reader = reader
        self._first = self._next = 0
        self._asked = 0
        self._files: list[SealedFile] = []

    def bound(self, start: Any, until: Any) -> None:
        """Turn the two points into offsets."""
        self._asked = self._offset("earliest" if start is None else start)
        self._first = max(self._asked, self._manifest.earliest)
        end = self._watermark if until is None or until in ("now", "latest") else self._offset(until)
        self._next = min(end, self._watermark)

    def insist_on_all(self) -> None:
        """Raise when a part of the range is known to be gone or damaged."""
        if self._asked < self._first and self._asked < self._next:
            raise HistoryGone(self._place, self._asked, self._first)
        for damage in self._manifest.damage:
            first, end = max(damage.first, self._first), min(damage.next, self._next)
            if first < end:
                raise HistoryDamaged(self._place, first, end, damage.reason)

    def files(self, copies: HeadCopies | None) -> list[SealedFile]:
        """The sealed files that Spark can read, and copies of heads; also learns the formats of all files."""
        for segment in self._manifest.segments:
            first, end = max(segment.first, self._first), min(segment.next, self._next)
            known = all(format_id in self._reader.formats for format_id in segment.formats)
            if first >= end and known:
                continue
            if self._is_far:
                self._reader.learn(segment)
                continue
            found = self._look_into(segment)
            if found is not None and first < end:
                self._files.append(_cut(found, first, end))
        learn_formats_of_heads(self._reader)
        if copies is not None:
            self._files += self._copied(copies)
            self._files.sort(key=lambda file: file.first)
        return self._files

    def _copied(self, copies: HeadCopies) -> Iterator[SealedFile]:
        for head in self._manifest.heads:
            first, end = max(head.first, self._first), min(head.next or self._watermark, self._next)
            if first < end:
                for copy in copies.files(self._reader, self._station.path, head, first, end):
                    found = self._file_at(copy.path, copy.first, copy.next)
                    if found is not None:
                        # Not beyond the head: it may have been longer before an older copy was put back.
                        yield _cut(found, max(first, copy.first), min(end, copy.next))

    def slices(self) -> Iterator[Slice]:
        """What the files leave over."""
        position = self._first
        for first, end in [*((file.first, file.next) for file in self._files), (self._next, self._next)]:
            yield from slices_of(self._channel, self._name, position, first)
            position = max(position, end)

    def _offset(self, point: Any) -> int:
        if isinstance(point, Mapping):
            # A partition that did not exist when the offsets were taken is at its beginning.
            point = point.get(self._name, "earliest")
        return offset_of(self._reader, point, self._channel)

    def _look_into(self, segment: Segment) -> SealedFile | None:
        """What its footer says; None when it has gone, cannot be read, or must be read row by row.

        Its rows are then left to our source, which finds them elsewhere or says what is wrong.
        """
        path = str(Path(self._station.path, self._place, segment.name))
        if not self._trusts_files and not is_whole(self._station.disk, self._place, segment):
            return None
        return self._file_at(path, segment.first, segment.next)

    def _file_at(self, path: str, first: int, end: int) -> SealedFile | None:
        found = _footer(path)
        if found is None:
            return None
        for fmt in found.formats:
            self._reader.formats.register(fmt)
        schema = found.schema
        plain = all(schema.field(name).type == pa.int64() for name in INTEGERS)
        if not plain or len({name.lower() for name in schema.names}) < len(schema.names):
            return None
        place = (self._channel, self._name, self._place)
        return SealedFile(
            *place, path, found.layout, found.formats, first, end, whole=True, only_events=found.only_events
        )


def chosen_types(
    channel: str, formats: Iterable[Format], types: Iterable[str | type] | str | type | None
) -> dict[str, list[Format]]:
    """The formats of each event type that was asked for, by its name; all of them for None."""
    known: dict[str, list[Format]] = {}
    for fmt in formats:
        known.setdefault(fmt.name, []).append(fmt)
    if types is None:
        return known
    chosen: dict[str, list[Format]] = {}
    for wanted in [types] if isinstance(types, str | type) else types:
        if isinstance(wanted, str):
            if wanted not in known:
                there = ", ".join(sorted(known)) or "no events yet"
                raise NotPossible(channel, f"its history has no events of type {wanted!r}; it has {there}")
            chosen[wanted] = known[wanted]
        else:
            from heliograph.model.event import info_of  # noqa: PLC0415 - only callers that have the class need it

            fmt = info_of(wanted).format
            chosen[fmt.name] = [fmt, *(other for other in known.get(fmt.name, ()) if other.id != fmt.id)]
    return chosen

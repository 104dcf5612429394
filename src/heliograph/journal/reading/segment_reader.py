"""Reads rows back from a sealed segment, exactly as they were appended.

A segment that was compacted has no row for some of its offsets; where rows lie is then looked up in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, Final, Never, Protocol, runtime_checkable

from heliograph.errors import BadJournalFile, FormatError, HistoryDamaged, NoSuchFile
from heliograph.journal.format.compacted_ids import KEY, unpacked
from heliograph.journal.format.footer import READABLE, VERSION_KEY, formats_in
from heliograph.journal.format.frames import checksum
from heliograph.journal.format.records import Record, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq

    from heliograph.journal.format.compacted_ids import CompactedIds
    from heliograph.journal.format.manifest import Segment
    from heliograph.model.formats import FormatRegistry
    from heliograph.runtime.ports import Disk

RUN: Final = 4096
"""Rows that are turned into records at once."""

_RECORD_COLUMNS: Final = [f"_{name}" for name in Record.__struct_fields__]


def is_whole(disk: Disk, folder: str, entry: Segment) -> bool:
    """Whether every byte of a sealed file is as it was written."""
    try:
        view = disk.map(f"{folder}/{entry.name}")
    except NoSuchFile:
        return False
    return len(view) == entry.size and checksum(view) == entry.crc


@runtime_checkable
class Ranged(Protocol):
    """A disk that is far away: of a file it gives what is asked for."""

    def map_ranges(self, name: str, size: int) -> tuple[memoryview, Callable[[int, int], None]]:
        """A view of a file of that size, and what fetches a range of it: until then it holds zeros."""
        ...


def _mapped(disk: Disk, name: str, size: int) -> tuple[memoryview, Callable[[int, int], None]]:
    return disk.map_ranges(name, size) if isinstance(disk, Ranged) else (disk.map(name), lambda *_: None)


class SegmentReader:
    """One sealed file; BadJournalFile when it is none.

    The row group read last is kept, because readers go on where they were.
    """

    def __init__(self, disk: Disk, folder: str, entry: Segment, formats: FormatRegistry) -> None:
        self._folder = folder
        self._entry = entry
        self._view, self._fetch = _mapped(disk, f"{folder}/{entry.name}", entry.size)
        self._group: tuple[int, Any] = (-1, None)
        self._columns = ["_append_ts", *_RECORD_COLUMNS, *([] if entry.rows is None else ["_offset"])]
        self._good: dict[int, bool] = {}
        """Which pieces of the file were looked at, and whether they are as they were written."""
        self._learn(formats)
        groups = self._file.metadata.num_row_groups
        sizes = [self._file.metadata.row_group(i).num_rows for i in range(groups)]
        if sum(sizes) != entry.events:
            self._refuse(f"it has {sum(sizes)} rows, not {entry.events}")
        self.dense = entry.rows is None
        """Whether every one of its offsets has a row."""
        self._firsts = (
            list(accumulate(sizes, initial=entry.first)) if self.dense else self._stated_firsts(groups)
        )
        """The first offset of each row group, and the one behind the last."""

    def rows(self, start: int, below: int) -> Iterator[Rows]:
        """Rows from an offset on, in runs of one time each."""
        for at, place, count in self.groups(start, below):
            table = self._row_group(at, max(start, self._firsts[at]))
            offsets = self.offsets(at)[place : place + count]
            for first in range(0, count, RUN):
                part = offsets[first : first + RUN]
                yield from _runs(part, table.slice(place + first, len(part)))

    def groups(self, start: int, below: int) -> Iterator[tuple[int, int, int]]:
        """The row groups with the rows from an offset on: which, the first row wanted in it, and how many."""
        for at in range(max(0, bisect_right(self._firsts, start) - 1), len(self._firsts) - 1):
            if self._firsts[at] >= below:
                return
            offsets = self.offsets(at, start)
            place = bisect_left(offsets, start)
            count = bisect_left(offsets, below) - place
            if count > 0:
                yield at, place, count

    def spans(self, start: int, below: int) -> Iterator[tuple[int, int, int]]:
        """The row groups between two offsets, without looking into them: from, to, and which."""
        for at in range(max(0, bisect_right(self._firsts, start) - 1), len(self._firsts) - 1):
            low, high = max(self._firsts[at], start), min(self._firsts[at + 1], below)
            if low < high:
                yield low, high, at

    def offsets(self, at: int, wanted: int = 0) -> Sequence[int]:
        """The offsets of the rows of a row group. `wanted` is named when they cannot be read."""
        if self.dense:
            return range(self._firsts[at], self._firsts[at + 1])
        first = max(wanted, self._firsts[at])
        offsets: list[int] = self._row_group(at, first).column("_offset").to_pylist()
        return offsets

    def left_out(self) -> list[CompactedIds]:
        """The ids of rows that compaction has left out of it, as far as they are kept."""
        return unpacked((self._file.metadata.metadata or {}).get(KEY))

    @property
    def formats(self) -> tuple[bytes, ...]:
        """Ids of the formats of its rows."""
        return self._entry.formats

    @property
    def parquet(self) -> pq.ParquetFile:
        """The file, for callers that want columns; `groups` and `offsets` say where its rows are."""
        return self._file

    def offset_at(self, append_ts: int, below: int) -> int | None:
        """The first offset appended at that time or later. Times never decrease, so halving finds it."""
        for at in range(len(self._firsts) - 1):
            statistics = self._file.metadata.row_group(at).column(self._time_column).statistics
            if statistics is not None and statistics.has_min_max and int(statistics.max) < append_ts:
                continue
            if not self._is_good(at):
                damaged: int = min(self._firsts[at], below)  # a reader that comes there is told
                return damaged
            times = self._row_group(at, self._firsts[at]).column("_append_ts").to_pylist()
            place = bisect_right(times, append_ts - 1)
            if place < len(times):
                found = self.offsets(at)[place]
                return found if found < below else None
        return None

    def close(self) -> None:
        """The mapping ends with the last batch that points into it."""
        self._group = (-1, None)

    @cached_property
    def _file(self) -> pq.ParquetFile:
        import pyarrow as pa  # noqa: PLC0415 - only sealed history needs Arrow
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        try:
            return pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._sound_part())))
        except (pa.ArrowException, OSError) as error:
            self._refuse(str(error))

    def _sound_part(self) -> memoryview:
        """The file up to a footer that is good. Row groups are looked at when they are read: who wants a few
        rows of a large file does not wait for all of it."""
        pieces = self._entry.pieces
        if not pieces:  # written before each piece had a checksum
            wrong = self._wrong
            if wrong is not None:
                self._refuse(wrong)
            return self._view
        footer, copy = len(pieces) - 2, len(pieces) - 1
        if not self._is_good(copy) and not self._is_good(footer):
            self._refuse(self._wrong or "its footer does not end it")
        return self._view[: pieces[copy if self._is_good(copy) else footer][0]]

    @cached_property
    def _wrong(self) -> str | None:
        """What is wrong with the file as a whole."""
        self._fetch(0, len(self._view))
        if len(self._view) != self._entry.size:
            return f"it has {len(self._view)} bytes and should have {self._entry.size}"
        return None if checksum(self._view) == self._entry.crc else "its checksum is wrong"

    @cached_property
    def remark(self) -> str | None:
        """What is wrong with the file though it harms no row; looks at all of it."""
        groups = range(self._file.metadata.num_row_groups)
        if self._wrong is None or not all(map(self._is_good, groups)):
            return None
        return f"{self._wrong}, but all of its row groups are good"

    def _is_good(self, piece: int) -> bool:
        """Whether a row group, or what comes after the last of them, is as it was written."""
        pieces = self._entry.pieces
        if not pieces:
            return True  # the whole file was looked at
        if piece not in self._good:
            start = pieces[piece - 1][0] if piece else 0
            end, crc = pieces[piece]
            self._fetch(start, end)
            self._good[piece] = end <= len(self._view) and checksum(self._view[start:end]) == crc
        return self._good[piece]

    @cached_property
    def _time_column(self) -> int:
        index: int = self._file.schema_arrow.get_field_index("_append_ts")
        return index

    def _stated_firsts(self, groups: int) -> list[int]:
        """Which offsets the row groups begin with, as the file says; the first begins with the segment."""
        if not self._entry.rows:
            return [self._entry.first, self._entry.next][: groups + 1]
        column = self._file.schema_arrow.get_field_index("_offset")
        statistics = [self._file.metadata.row_group(at).column(column).statistics for at in range(groups)]
        if any(stated is None or not stated.has_min_max for stated in statistics):
            self._refuse("it does not say where its offsets are")
        firsts = [int(stated.min) for stated in statistics]
        return [self._entry.first, *firsts[1:], self._entry.next]

    def _refuse(self, reason: str) -> Never:
        raise BadJournalFile(self._entry.name, reason)

    def _learn(self, formats: FormatRegistry) -> None:
        metadata = self._file.schema_arrow.metadata or {}
        version = metadata.get(VERSION_KEY)
        if version not in READABLE:
            self._refuse(f"it has version {version!r}; this program reads versions 1 and 2")
        try:
            for fmt in formats_in(metadata):
                formats.register(fmt)
        except FormatError as error:
            self._refuse(str(error))

    def table(self, at: int, start: int, columns: Sequence[str]) -> pa.Table:
        """Columns of a row group; HistoryDamaged, from `start` on, when they cannot be read."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        if not self._is_good(at):
            reason = f"the checksum of a row group in {self._entry.name} is wrong"
            raise HistoryDamaged(self._folder, start, self._firsts[at + 1], reason)
        try:
            return self._file.read_row_group(at, columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise HistoryDamaged(self._folder, start, self._firsts[at + 1], str(error)) from error

    def _row_group(self, at: int, start: int) -> pa.Table:
        if self._group[0] != at:
            self._group = (at, self.table(at, start, self._columns))
        return self._group[1]


def _runs(offsets: Sequence[int], table: pa.Table) -> Iterator[Rows]:
    """Rows with one time and offsets without a gap, together."""
    values = {name: table.column(name).to_pylist() for name in _RECORD_COLUMNS}
    for name in ("_source_ts", "_epoch", "_sequence", "_priority", "_station_seq", "_lifetime_ns", "_hops"):
        if str(table.schema.field(name).type) != "int64":  # written as decimals, because some are too large
            values[name] = [None if value is None else int(value) for value in values[name]]
    values["_headers"] = [None if value is None else dict(value) for value in values["_headers"]]
    records = list(map(Record, *values.values()))
    times = table.column("_append_ts").to_pylist()
    belongs: Iterable[Any] = times
    if not isinstance(offsets, range):
        belongs = ((time, offset - at) for at, (time, offset) in enumerate(zip(times, offsets, strict=True)))
    at = 0
    for _, group in groupby(belongs):
        end = at + sum(1 for _ in group)
        yield Rows(offsets[at], times[at], records[at:end])
        at = end

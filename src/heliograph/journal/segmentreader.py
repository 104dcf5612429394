"""Reads rows back from a sealed segment, exactly as they were appended."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Never

import msgspec

from heliograph.errors import BadJournalFile, FormatError, HistoryDamaged
from heliograph.formats import Format
from heliograph.journal.frames import checksum
from heliograph.journal.records import Record, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    import pyarrow.parquet as pq

    from heliograph.formats import FormatRegistry
    from heliograph.journal.manifest import Segment
    from heliograph.ports import Disk

RUN: Final = 4096
"""Rows that are turned into records at once."""

_RECORD_COLUMNS: Final = [f"_{name}" for name in Record.__struct_fields__]
_FIRST_OF = itemgetter(0)


class SegmentReader:
    """One sealed file; BadJournalFile when it is none.

    The row group read last is kept, because readers go on where they were.
    """

    def __init__(self, disk: Disk, folder: str, entry: Segment, formats: FormatRegistry) -> None:
        self._folder = folder
        self._entry = entry
        self._view = disk.map(f"{folder}/{entry.name}")
        self._group: tuple[int, Any] = (-1, None)
        self._learn(formats)
        groups = self._file.metadata.num_row_groups
        sizes = (self._file.metadata.row_group(i).num_rows for i in range(groups))
        self._firsts = list(accumulate(sizes, initial=entry.first))
        """The first offset of each row group, and the one behind the last."""
        if self._firsts[-1] != entry.next:
            self._refuse(f"it has {self._firsts[-1] - entry.first} rows, not {entry.next - entry.first}")

    def rows(self, start: int, below: int) -> Iterator[Rows]:
        """Rows from an offset on, in runs of one time each."""
        while start < min(below, self._entry.next):
            at = bisect_right(self._firsts, start) - 1
            table = self._row_group(at, start)
            first = self._firsts[at]
            stop = min(start + RUN, below, self._firsts[at + 1])
            yield from _runs(start, table.slice(start - first, stop - start))
            start = stop

    def offset_at(self, append_ts: int, below: int) -> int | None:
        """The first offset appended at that time or later. Times never decrease, so halving finds it."""
        for at in range(len(self._firsts) - 1):
            statistics = self._file.metadata.row_group(at).column(self._time_column).statistics
            if statistics is not None and statistics.has_min_max and int(statistics.max) < append_ts:
                continue
            times = self._row_group(at, self._firsts[at]).column("_append_ts").to_pylist()
            found = self._firsts[at] + bisect_right(times, append_ts - 1)
            if found < self._firsts[at + 1]:
                return found if found < below else None
        return None

    def close(self) -> None:
        """The mapping ends with the last batch that points into it."""
        self._group = (-1, None)

    @cached_property
    def _file(self) -> pq.ParquetFile:
        import pyarrow as pa  # noqa: PLC0415 - only sealed history needs Arrow
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        if len(self._view) != self._entry.size:
            self._refuse(f"it has {len(self._view)} bytes and should have {self._entry.size}")
        # Parquet's own checksums leave out its footer and the headers of its pages.
        if checksum(self._view) != self._entry.crc:
            self._refuse("its checksum is wrong")
        try:
            return pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._view)))
        except (pa.ArrowException, OSError) as error:
            self._refuse(str(error))

    @cached_property
    def _time_column(self) -> int:
        index: int = self._file.schema_arrow.get_field_index("_append_ts")
        return index

    def _refuse(self, reason: str) -> Never:
        raise BadJournalFile(self._entry.name, reason)

    def _learn(self, formats: FormatRegistry) -> None:
        metadata = self._file.schema_arrow.metadata or {}
        version = metadata.get(b"heliograph.version")
        if version != b"1":
            self._refuse(f"it has version {version!r}; this program reads version 1")
        try:
            for description in msgspec.msgpack.decode(metadata[b"heliograph.formats"], type=list[bytes]):
                formats.register(Format.from_description(description))
        except (KeyError, msgspec.MsgspecError, FormatError) as error:
            self._refuse(f"its formats cannot be read: {error}")

    def _row_group(self, at: int, start: int) -> pa.Table:
        if self._group[0] != at:
            import pyarrow as pa  # noqa: PLC0415 - as above

            try:
                table = self._file.read_row_group(at, columns=["_append_ts", *_RECORD_COLUMNS])
            except (pa.ArrowException, OSError) as error:
                raise HistoryDamaged(self._folder, start, self._firsts[at + 1], str(error)) from error
            self._group = (at, table)
        return self._group[1]


def _runs(first: int, table: pa.Table) -> Iterator[Rows]:
    values = {name: table.column(name).to_pylist() for name in _RECORD_COLUMNS}
    for name in ("_source_ts", "_epoch", "_sequence", "_priority", "_station_seq", "_lifetime_ns", "_hops"):
        if str(table.schema.field(name).type) != "int64":  # written as decimals, because some are too large
            values[name] = [None if value is None else int(value) for value in values[name]]
    values["_headers"] = [None if value is None else dict(value) for value in values["_headers"]]
    records = map(Record, *values.values())
    for append_ts, group in groupby(
        zip(table.column("_append_ts").to_pylist(), records, strict=True), _FIRST_OF
    ):
        run = [record for _, record in group]
        yield Rows(first, append_ts, run)
        first += len(run)

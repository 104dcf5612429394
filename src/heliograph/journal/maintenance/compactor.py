"""Turns sealed segments into fewer or smaller ones, in a process of its own. Offsets stay as they are.

    python -m heliograph.journal.maintenance.compactor FOLDER < job > segments

Compaction leaves out every row that a later one of its key supersedes, and tombstones that are old enough;
their ids stay for as long as pushes under them are recognised.
The steps, numbered in the code and of the same order as those of a seal:

    1 read the segments              4 sync the folder
    2 write and sync new files       5 (the writer) publish a manifest that lists them, and the old as retired
    3 rename them into `sealed/`     6 (the writer) remove the old ones when their grace is over

Whatever is interrupted leaves files that no manifest lists, which the next writer removes. A segment that
cannot be read stays as it is.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from heliograph.errors import BadJournalFile, DiskError
from heliograph.journal.format.compacted_ids import COLUMNS, CompactedIds, left_out
from heliograph.journal.format.footer import renewed
from heliograph.journal.format.frames import checksum
from heliograph.journal.format.keys import KeyReader
from heliograph.journal.format.manifest import Segment
from heliograph.journal.format.records import EVENT
from heliograph.journal.maintenance.compaction_policy import RewriteJob
from heliograph.journal.maintenance.seal import begin_work, install_file
from heliograph.journal.names import segment_name
from heliograph.journal.reading.segment_reader import SegmentReader, is_whole
from heliograph.journal.writing.segment_writer import ROW_GROUP, pieces_of, rewritten_file
from heliograph.model.formats import FormatRegistry
from heliograph.runtime.ports import LocalDisk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from heliograph.journal.maintenance.compaction_policy import Compaction
    from heliograph.runtime.ports import Disk

MAX_KEYS: Final = 4_000_000
"""Keys that one compaction remembers, about 100 bytes each; rows of further ones stay as they are."""
KEY_COLUMNS: Final = ["_append_ts", "_format_id", "_kind", "_key", "_body"]


def rewrite(disk: Disk, job: RewriteJob) -> tuple[Segment, ...]:
    """The segments that replace those of the job. One that would not change comes back as it is."""
    formats = FormatRegistry()
    inputs = [_Input(disk, job.folder, segment, formats) for segment in job.segments]  # 1
    if job.compaction is not None:
        _choose(inputs, job.compaction, KeyReader(formats), job.ids_from)
    return tuple(_written(disk, job, group) for group in _groups(inputs, job))


class _Input:
    """One segment that is read, and which of its rows stay."""

    def __init__(self, disk: Disk, folder: str, entry: Segment, formats: FormatRegistry) -> None:
        self.entry = entry
        self.keep: list[Any] | None = None
        """A mask for each row group; None: all rows stay."""
        self.events = entry.events
        self.reader: SegmentReader | None = None
        """None when it cannot be read."""
        self.left_out: list[CompactedIds] = []
        """The ids of rows that are not in it any more."""
        with suppress(BadJournalFile, DiskError):
            if is_whole(disk, folder, entry):
                self.reader = SegmentReader(disk, folder, entry, formats)
                self.left_out = self.reader.left_out()

    @property
    def schema(self) -> pa.Schema | None:
        """Its columns and footer, as a file of them is written today."""
        if self.reader is None:
            return None
        schema = self.reader.parquet.schema_arrow
        return schema.with_metadata(renewed(schema.metadata))

    def tables(self) -> Iterator[pa.Table]:
        """The rows that stay."""
        assert self.reader is not None
        for at in range(self.reader.parquet.num_row_groups):
            table = self.reader.parquet.read_row_group(at)
            yield table if self.keep is None else table.filter(self.keep[at])

    def thin_out(self, compaction: Compaction, keys: KeyReader, seen: set[bytes]) -> None:
        """Keep the last row of each key that was not seen before, from the last row to the first."""
        assert self.reader is not None
        masks = []
        for at in reversed(range(self.reader.parquet.num_row_groups)):
            columns = self.reader.parquet.read_row_group(at, columns=KEY_COLUMNS).to_pydict()
            rows = list(zip(*(columns[name] for name in KEY_COLUMNS), strict=True))
            mask = [_stays(row, compaction, keys, seen) for row in reversed(rows)]
            masks.append(pa.array(mask[::-1], pa.bool_()))
        self.keep = masks[::-1]
        self.events = sum(mask.true_count for mask in masks)

    def remember(self, ids_from: int) -> None:
        """Keep the ids of rows that do not stay, from an offset on."""
        assert self.reader is not None
        assert self.keep is not None
        for _, _, at in self.reader.spans(ids_from, self.entry.next):
            rows = self.reader.parquet.read_row_group(at, columns=COLUMNS)
            gone = pc.and_(pc.invert(self.keep[at]), pc.greater_equal(rows["_offset"], ids_from))
            values = rows.filter(gone).to_pydict()
            self.left_out += map(left_out, zip(*(values[name] for name in COLUMNS), strict=True))


def _stays(row: tuple[Any, ...], compaction: Compaction, keys: KeyReader, seen: set[bytes]) -> bool:
    append_ts, format_id, kind, key, body = row
    found = keys.of(format_id, kind, key, body)
    if found is None:
        return True
    if found in seen:
        return False
    if len(seen) >= MAX_KEYS:
        return True
    seen.add(found)
    over = kind != EVENT and append_ts < compaction.tombstones_before
    return not (over and compaction.complete)


def _choose(inputs: Sequence[_Input], compaction: Compaction, keys: KeyReader, ids_from: int) -> None:
    """Decide which rows stay, from the newest segment to the oldest."""
    if any(source.reader is None for source in inputs):
        # An event in there may be what a tombstone stands for.
        compaction = msgspec.structs.replace(compaction, complete=False)
    seen: set[bytes] = set()
    for source in reversed(inputs):
        if source.reader is not None:
            source.thin_out(compaction, keys, seen)
            source.remember(ids_from)


def _groups(inputs: Sequence[_Input], job: RewriteJob) -> Iterator[list[_Input]]:
    """Neighbours that become one file: alike in their columns, and together not too large."""
    group: list[_Input] = []
    events = size = 0
    for source in inputs:
        entry = source.entry
        its_size = entry.size * source.events // max(1, entry.events)
        if group and not (
            source.reader is not None
            and group[-1].entry.next == entry.first
            and group[0].schema is not None
            and group[0].schema.equals(source.schema, check_metadata=True)
            and events + source.events <= job.most_events
            and size + its_size <= job.most_bytes
        ):
            yield group
            group, events, size = [], 0, 0
        group.append(source)
        events, size = events + source.events, size + its_size
    if group:
        yield group


def _written(disk: Disk, job: RewriteJob, group: Sequence[_Input]) -> Segment:
    first, last = group[0], group[-1]
    events = sum(source.events for source in group)
    compacted = events if job.compaction is not None else None
    if len(group) == 1 and (first.reader is None or events == first.entry.events):
        return first.entry if first.reader is None else msgspec.structs.replace(first.entry, rows=compacted)
    if compacted is None and any(source.entry.rows is not None for source in group):
        compacted = events
    gone = [one for source in group for one in source.left_out if one.offset >= job.ids_from]
    parquets = [source.reader.parquet for source in group if source.reader]
    data = rewritten_file(parquets, _rechunked(group), sorted(gone, key=lambda one: one.offset))
    name = segment_name(first.entry.first, last.entry.next, job.generation)
    install_file(disk, job.folder, name, data)  # 2, 3, 4
    return Segment(
        name=name,
        first=first.entry.first,
        next=last.entry.next,
        size=len(data),
        first_ts=first.entry.first_ts,
        last_ts=last.entry.last_ts,
        formats=first.entry.formats,
        crc=checksum(data),
        rows=compacted,
        pieces=pieces_of(data),
    )


def _rechunked(group: Sequence[_Input]) -> Iterator[pa.Table]:
    """The rows that stay, in tables that make good row groups."""
    waiting: list[pa.Table] = []
    rows = 0
    for source in group:
        for table in source.tables():
            waiting.append(table)
            rows += table.num_rows
            if rows >= ROW_GROUP:
                whole = pa.concat_tables(waiting)
                full = rows - rows % ROW_GROUP
                yield whole.slice(0, full)
                waiting, rows = [whole.slice(full)], rows - full
    yield pa.concat_tables(waiting)


def main() -> None:
    """What the process does."""
    begin_work()
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=RewriteJob)
    segments = rewrite(LocalDisk(sys.argv[1], create=False), job)
    sys.stdout.buffer.write(msgspec.msgpack.encode(segments))


if __name__ == "__main__":
    main()

"""Sealed files as Arrow batches: their columns as they are, not their rows one by one.

Only the columns that are wanted are read, and row groups in which no row can pass the filters are not read at
all. A file whose columns are not simply those of the read, such as one with formats that do not go together,
is refused by `can_read`; its rows are then decoded one by one, as those of a head are.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from heliograph.codec.columnar import columns
from heliograph.codec.columnar.unify import unified
from heliograph.errors import BadRecord
from heliograph.filters.arrow_columns import HEADER_COLUMN
from heliograph.journal.format.footer import LAYOUT_KEY, formats_in
from heliograph.journal.format.records import EVENT
from heliograph.journal.writing.segment_writer import INTEGERS, OTHERS
from heliograph.model import field_types as ft
from heliograph.model.compatibility import split_optional
from heliograph.model.formats import Field, Format
from heliograph.spark.source.columns import BAD
from heliograph.spark.source.pruning import CONSTANT, Skipping, Statistics, stored
from heliograph.spark.source.rows import microseconds, struct_of
from heliograph.spark.source.schema_evolution import tolerant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow.parquet as pq

    from heliograph.journal.reading.segment_reader import SegmentReader
    from heliograph.spark.source.columns import ColumnShape
    from heliograph.spark.source.rows import BatchMaker, PartitionFolder

BATCH_ROWS: Final = 16_384
"""Rows per batch: a quarter of a row group."""


OF_HEADER: Final = frozenset({*INTEGERS, *OTHERS})
"""Columns that every file has."""


@lru_cache(maxsize=64)
def repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """A column of one value; kept, because batch after batch has the same."""
    return pa.repeat(pa.scalar(value, kind), count)


class SegmentColumns:
    """Makes batches of the work columns of a shape from sealed files of one partition.

    Args:
        maker: judges formats, and says what becomes of bodies that do not decode.
    """

    def __init__(
        self, place: PartitionFolder, shape: ColumnShape, types: frozenset[str] | None, maker: BatchMaker
    ) -> None:
        self._place = place
        self._shape = shape
        self._types = types
        self._maker = maker

    def can_read(self, segment: SegmentReader) -> bool:
        """Whether the columns of a file are, or can be cast to, those that are wanted."""
        if self._shape.fields is None:
            return _has_plain_integers(segment.parquet)
        formats = _formats(segment)
        if any(self._maker.loses(fmt) for fmt in formats if self._types is None or fmt.name in self._types):
            return False
        layout = segment.parquet.schema_arrow.metadata.get(LAYOUT_KEY)
        if layout != b"unified" or not _has_plain_integers(segment.parquet):
            return False
        mine = unified(formats).by_name
        if len(_telling(formats)) < len(formats):
            return False
        return all(
            _casts(mine[field.name].type, field.type)
            for field in self._shape.fields.fields
            if field.name in mine
        )

    def batches(self, segment: SegmentReader, start: int, below: int) -> Iterator[pa.RecordBatch]:
        """The wanted rows from an offset on; HistoryDamaged when some cannot be read."""
        telling = {} if self._shape.fields is None else _telling(_formats(segment))
        wanted = self._columns(segment, telling)
        statistics = Statistics(segment.parquet)
        skipping = Skipping(statistics, self._shape.predicates())
        for group, first, count in segment.groups(start, below):
            if skipping.skips(group):
                continue
            offsets = segment.offsets(group)[first : first + count]
            part = _Part(segment, statistics, group, first, offsets)
            done = 0
            for batch in part.read(wanted).to_batches(max_chunksize=BATCH_ROWS):
                yield self._work(batch, part, done, telling)
                done += batch.num_rows

    def _columns(self, segment: SegmentReader, telling: Mapping[bytes, str]) -> list[str]:
        """Columns to read: for the header, for the event, and to know which rows are wanted and good."""
        names = {stored(name) for name in self._shape.header if name not in CONSTANT}
        if self._types is not None:
            names.add("_type")
        if self._shape.fields is None:
            names.update(f"_{field.name}" for field in list(self._shape.work)[1:])
        else:
            names.update(field.name for field in self._shape.fields.fields)
            names.add("_kind")
            names.update(telling.values())
            if len(set(telling.values())) > 1:
                names.add("_format_id")
        return [name for name in segment.parquet.schema_arrow.names if name in names]

    def _work(
        self, batch: pa.RecordBatch, part: _Part, done: int, telling: Mapping[bytes, str]
    ) -> pa.RecordBatch:
        """The work columns of the rows that are wanted; so many of the part came before this batch."""
        keep = _every(*self._choices(batch))
        looks = telling and self._maker.bad_records != "null"
        bad = _undecoded(batch, telling, keep) if looks else None
        bodies: pa.Array | None = None
        if bad is not None:
            rows = pc.indices_nonzero(bad).to_pylist()
            if self._maker.bad_records == "fail":
                raise BadRecord(
                    self._place.folder, part.offsets[done + rows[0]], "its body is not what its format says"
                )
            if self._maker.bad_records == "skip":
                self._maker.skipped += len(rows)
                keep = _every(keep, pc.invert(bad))
            else:
                bodies = pc.if_else(bad, part.bodies(done, batch.num_rows), pa.scalar(None, pa.binary()))
        if keep is not None and not pc.all(keep).as_py():
            batch = batch.filter(keep)
            bodies = None if bodies is None else bodies.filter(keep)
        work = self._shape.work
        arrays = [self._header(batch, work.field(HEADER_COLUMN).type)]
        for field in list(work)[1:]:
            if field.name == BAD and bodies is not None:
                arrays.append(bodies)
            else:
                name = f"_{field.name}" if self._shape.fields is None else field.name
                arrays.append(_taken(batch, name, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=work)

    def _choices(self, batch: pa.RecordBatch) -> Iterator[Any]:
        if self._types is not None:
            yield pc.is_in(batch.column("_type"), pa.array(sorted(self._types), pa.string()))
        if self._shape.fields is not None:
            yield pc.equal(batch.column("_kind"), EVENT)

    def _header(self, batch: pa.RecordBatch, kind: pa.StructType) -> pa.Array:
        constants = {
            "channel": self._place.channel,
            "partition": self._place.partition,
            "redelivered": False,
        }
        arrays = []
        for field in kind:
            if field.name in CONSTANT:
                arrays.append(repeated(constants[field.name], field.type, batch.num_rows))
                continue
            array = batch.column(stored(field.name))
            if field.name in ("source_ts", "append_ts"):
                array = microseconds(array)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return struct_of(arrays, list(kind), batch.num_rows)


class _Part(NamedTuple):
    """Rows of a row group, one behind the other from `first` on, and their offsets."""

    segment: SegmentReader
    statistics: Statistics
    group: int
    first: int
    offsets: Sequence[int]

    def read(self, names: Sequence[str]) -> pa.Table:
        """These columns. Those of a header that have one value in all rows, as most have, are not decoded."""
        alike = {name: self.statistics.only_value(self.group, name) for name in names if name in OF_HEADER}
        kept = [name for name in names if alike.get(name) is None] or list(names)
        table = self.segment.table(self.group, self.offsets[0], kept)
        table = table.slice(self.first, len(self.offsets)).combine_chunks()
        kinds = self.segment.parquet.schema_arrow
        for name in names:
            if name not in table.schema.names:
                table = table.append_column(name, repeated(alike[name], kinds.field(name).type, len(table)))
        return table

    def bodies(self, first: int, count: int) -> pa.Array:
        """The bytes of some events, read by themselves: only bad ones are ever asked for."""
        column = self.read(["_body"]).column(0).slice(first, count)
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _formats(segment: SegmentReader) -> list[Format]:
    return formats_in(segment.parquet.schema_arrow.metadata)


def _has_plain_integers(file: pq.ParquetFile) -> bool:
    """Numbers that do not fit 64 bits are kept as decimals, and only our own code reads those."""
    return all(file.schema_arrow.field(name).type == pa.int64() for name in INTEGERS)


def _casts(source: ft.FieldType, target: ft.FieldType) -> bool:
    """Whether Arrow turns a column of one type into one of the other without a change of values."""
    mine, wanted = (
        columns.schema(tolerant(Format("column", (Field("column", kind),))), spark_safe=True).field(0).type
        for kind in (source, target)
    )
    if mine == wanted:
        return not isinstance(split_optional(target)[0], ft.Anything) or isinstance(
            split_optional(source)[0], ft.Anything
        )
    return isinstance(split_optional(target)[0], ft.Scalar) and not pa.types.is_nested(mine)


def _telling(formats: Sequence[Format]) -> dict[bytes, str]:
    """For each format a column that is null only when the body did not decode; without one, none at all."""
    found: dict[bytes, str] = {}
    required = [
        [f.name for f in sorted(fmt.fields, key=_cost) if not isinstance(f.type, ft.Optional | ft.Anything)]
        for fmt in formats
    ]
    common = [name for name in required[0] if all(name in names for names in required)]
    for fmt, names in zip(formats, required, strict=True):
        if names:
            found[fmt.id] = common[0] if common else names[0]
    return found


def _cost(field: Field) -> int:
    """Numbers are read faster than text, and text faster than lists."""
    match field.type:
        case ft.Scalar(name=name):
            return 0 if name in ft.NUMBERS else 1
        case _:
            return 2


def _undecoded(batch: pa.RecordBatch, telling: Mapping[bytes, str], keep: Any) -> Any | None:
    """Which of the wanted rows have a body that did not decode; None when, as nearly always, none has."""
    if len(set(telling.values())) == 1:
        column = batch.column(next(iter(telling.values())))
        bad = column.is_null() if column.null_count else None
    else:
        ids = batch.column("_format_id")
        parts = [
            pc.and_(pc.equal(ids, format_id), batch.column(name).is_null())
            for format_id, name in telling.items()
        ]
        bad = reduce(pc.or_, parts)
    bad = _every(bad, keep) if bad is not None else None
    return bad if bad is not None and pc.any(bad).as_py() else None


def _every(*masks: Any) -> Any | None:
    found = [mask for mask in masks if mask is not None]
    return reduce(pc.and_, found) if found else None


def _taken(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    at = batch.schema.get_field_index(name)
    if at < 0:
        return pa.nulls(batch.num_rows, kind)
    array = batch.column(at)
    return array if array.type == kind else array.cast(kind)

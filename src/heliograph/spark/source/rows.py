"""Rows of a journal as Arrow batches, with the columns that Spark sees.

    typed      header, and a column per field of the event, formats joined by field name
    envelope   header, kind, format_id, body and key: everything as it was kept, nothing decoded

`header` is the struct that filters know (`heliograph.filters.schema`) with four fields more: the two times in
nanoseconds, what was left of the lifespan, and the id of the format. Executors import this, and nothing that
it does not need.
"""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from heliograph.codec import mapping_decoder
from heliograph.codec.columnar import columns
from heliograph.codec.columnar.body_columns import Bodies, NotPlain, columns_decoder, columns_of, fits
from heliograph.errors import BadRecord, DecodeError
from heliograph.filters.arrow_columns import HEADER_COLUMN, KIND_TYPES
from heliograph.filters.schema import HEADER_FIELDS, USER_HEADERS
from heliograph.journal.format.records import EVENT, Record, Rows, decode_large
from heliograph.journal.reading.head_columns import HeadColumns
from heliograph.spark.source.schema_evolution import rescued

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.codec.columnar.body_columns import Decoder
    from heliograph.journal.format.records import Piece
    from heliograph.model.formats import Format, FormatRegistry
    from heliograph.spark.source.columns import ColumnShape
    from heliograph.spark.source.options import BadRecords
    from heliograph.spark.source.schema_evolution import Evolving

Columns: TypeAlias = Literal["typed", "envelope"]

USER_HEADERS_TYPE: Final = pa.map_(pa.string(), pa.string())
MORE_HEADER_FIELDS: Final = {
    "source_ns": pa.int64(),
    "append_ns": pa.int64(),
    "lifetime_ns": pa.int64(),
    "format_id": pa.binary(),
}
HEADER_TYPE: Final = pa.struct(
    {
        **{
            name: USER_HEADERS_TYPE if name == USER_HEADERS else KIND_TYPES[field.kind]
            for name, field in HEADER_FIELDS.items()
        },
        **MORE_HEADER_FIELDS,
    }
)
ENVELOPE: Final = {"kind": pa.int32(), "format_id": pa.binary(), "body": pa.binary(), "key": pa.binary()}

_FIELD_OF: Final = {name: attrgetter(name) for name in Record.__struct_fields__}

MIN_INT64: Final = -(1 << 63)
MAX_INT64: Final = (1 << 63) - 1


def schema(joined: Format | None) -> pa.Schema:
    """The columns of the events of a format, or of envelopes when there is none."""
    header = pa.field(HEADER_COLUMN, HEADER_TYPE)
    if joined is None:
        return pa.schema([header, *(pa.field(name, kind) for name, kind in ENVELOPE.items())])
    return pa.schema([header, *columns.schema(joined, spark_safe=True)])


class PartitionFolder(NamedTuple):
    """A partition: of which channel, and its folder counted from the station's."""

    channel: str
    partition: str
    folder: str


class BatchMaker:
    """Makes batches of the work columns of a shape from the rows of one partition.

    Args:
        place: whose rows.
        shape: the columns to make.
        types: names of the event types that are wanted; None: all.
        formats: knows the formats of the rows that will come.
        evolving: judges formats that are new; None for envelopes, which take any.
        bad_records: what becomes of a body that does not decode.
    """

    def __init__(
        self,
        place: PartitionFolder,
        shape: ColumnShape,
        *,
        types: frozenset[str] | None,
        formats: FormatRegistry,
        evolving: Evolving | None,
        bad_records: BadRecords | Literal["null"],
    ) -> None:
        self._place = place
        self._shape = shape
        self._header_fields = list(shape.work.field(HEADER_COLUMN).type)
        self._types = types
        self._formats = formats
        self._evolving = evolving
        self.bad_records = bad_records
        self._names: dict[bytes, str] = {}
        self._lost: dict[bytes, tuple[str, ...]] = {}
        self._decoders: dict[bytes, Callable[[Any], dict[str, Any]]] = {}
        self._plain: dict[bytes, Decoder] = {}
        self.skipped = 0
        """Events that were left out because they do not decode."""

    def batch_of_head(self, pieces: Sequence[Piece]) -> pa.RecordBatch:
        """The wanted rows among these, which stand in a head."""
        rows = HeadColumns(pieces)
        fields = self._shape.fields
        ids = set(rows.of("format_id"))
        self._learn_all(ids)
        if fields is not None and ids <= self._plain.keys() and self._wants_all(rows):
            with suppress(NotPlain):
                arrays = self._decoded_quickly(fields, rows)
                special = self._special({}, {}, len(rows))
                header = self._header(pa.array(rows.offsets()), pa.array(rows.append_ts()), rows)
                return pa.RecordBatch.from_arrays([header, *arrays, *special], schema=self._shape.work)
        return self.batch(
            [Rows(first, append_ts, decode_large(stored)) for first, append_ts, stored in pieces]
        )

    def batch(self, runs: Sequence[Rows]) -> pa.RecordBatch:
        """The wanted rows among these."""
        offsets: list[int] = []
        times: list[int] = []
        records: list[Record] = []
        for rows in runs:
            offsets += range(rows.first, rows.first + len(rows.records))
            times += [rows.append_ts] * len(rows.records)
            records += rows.records
        self._learn_all(set(_all("format_id", records)))
        if not self._wants_all(HeadColumns([(0, 0, records)])):
            wanted = [place for place, record in enumerate(records) if self._wants(record)]
            offsets = [offsets[place] for place in wanted]
            times = [times[place] for place in wanted]
            records = [records[place] for place in wanted]
        fields = self._shape.fields
        bodies = None if fields is None else self._bodies(fields, offsets, records)
        if bodies is None:
            rest = [pa.array(_all(name, records), kind) for name, kind in self._envelope()]
        else:
            rest = bodies.arrays
            if bodies.rows is not None:
                offsets = [offsets[place] for place in bodies.rows]
                times = [times[place] for place in bodies.rows]
                records = [records[place] for place in bodies.rows]
        header = self._header(
            pa.array(offsets, pa.int64()), pa.array(times, pa.int64()), HeadColumns([(0, 0, records)])
        )
        return pa.RecordBatch.from_arrays([header, *rest], schema=self._shape.work)

    def learn(self, fmt: Format) -> None:
        """Judge a format, if it is new; SchemaChanged when the query has no place for it."""
        if fmt.id in self._names:
            return
        if self._evolving is not None and (self._types is None or fmt.name in self._types):
            self._lost[fmt.id] = self._evolving.lost(fmt)
            self._shape.learn(fmt)
        self._names[fmt.id] = fmt.name
        self._decoders[fmt.id] = mapping_decoder(fmt)
        plain = columns_decoder(fmt)
        fields = self._shape.fields
        if plain is not None and fields is not None and not self._lost.get(fmt.id) and fits(fmt, fields):
            self._plain[fmt.id] = plain

    def loses(self, fmt: Format) -> bool:
        """Whether a format has fields without a column."""
        self.learn(fmt)
        return bool(self._lost.get(fmt.id))

    def _learn_all(self, ids: set[bytes]) -> None:
        for format_id in ids - self._names.keys():
            self.learn(self._formats[format_id])

    def _wants_all(self, rows: HeadColumns) -> bool:
        """Whether no row is left out, which it is quicker to find out of all together."""
        if self._types is not None:
            names = {self._names[format_id] for format_id in set(rows.of("format_id"))}
            if not names <= self._types:
                return False
        return self._shape.fields is None or set(rows.of("kind")) <= {EVENT}

    def _wants(self, record: Record) -> bool:
        if self._types is not None and self._names[record.format_id] not in self._types:
            return False
        return self._shape.fields is None or record.kind == EVENT

    def _envelope(self) -> list[tuple[str, pa.DataType]]:
        return [(field.name, field.type) for field in list(self._shape.work)[1:]]

    def _header(self, offsets: pa.Array, times: pa.Array, rows: HeadColumns) -> pa.StructArray:
        arrays = [self._header_column(field, offsets, times, rows) for field in self._header_fields]
        return struct_of(arrays, self._header_fields, len(offsets))

    def _header_column(
        self, field: pa.Field, offsets: pa.Array, times: pa.Array, rows: HeadColumns
    ) -> pa.Array:
        match field.name:
            case "channel":
                return pa.repeat(self._place.channel, len(offsets))
            case "partition":
                return pa.repeat(self._place.partition, len(offsets))
            case "redelivered":
                return pa.repeat(False, len(offsets))
            case "offset":
                return offsets
            case "append_ns":
                return times
            case "append_ts":
                return microseconds(times)
            case "source_ns":
                return _integers("source_ts", rows)
            case "source_ts":
                return microseconds(_integers("source_ts", rows))
            case "type":
                return rows.column([self._names[one] for one in rows.of("format_id")], field.type)
            case "user":
                users = [None if headers is None else list(headers.items()) for headers in rows.of("headers")]
                return rows.column(users, field.type)
            case name if field.type == pa.int64():
                return _integers(name, rows)
            case name:
                return rows.column(rows.of(name), field.type)

    def _bodies(self, fields: Format, offsets: Sequence[int], records: Sequence[Record]) -> _Bodies:
        """The columns of the fields, and of what goes beside them."""
        ids = set(_all("format_id", records))
        if ids and ids <= self._plain.keys():
            with suppress(NotPlain):
                arrays = self._decoded_quickly(fields, HeadColumns([(0, 0, records)]))
                return _Bodies([*arrays, *self._special({}, {}, len(records))], None)
        mappings: list[dict[str, Any]] = []
        places: list[int | None] = []
        bad: dict[int, bytes] = {}
        lost: dict[int, str] = {}
        for row, record in enumerate(records):
            try:
                mapping = self._decoders[record.format_id](record.body)
            except DecodeError as error:
                if self.bad_records == "fail":
                    raise BadRecord(self._place.folder, offsets[row], str(error)) from error
                bad[row] = record.body
                places.append(None)
                continue
            names = self._lost.get(record.format_id)
            if names:
                if self._shape.wants_rescued:
                    lost[row] = rescued(self._formats[record.format_id], names, mapping)
                for name in names:
                    del mapping[name]
            places.append(len(mappings))
            mappings.append(mapping)
        arrays = columns.to_batch(fields, mappings, spark_safe=True).columns if fields.fields else []
        if not bad:
            return _Bodies([*arrays, *self._special({}, lost, len(records))], None)
        if self.bad_records == "skip":
            self.skipped += len(bad)
            kept = [row for row in range(len(records)) if row not in bad]
            again = {place: lost[row] for place, row in enumerate(kept) if row in lost}
            return _Bodies([*arrays, *self._special({}, again, len(kept))], kept)
        spread = [array.take(pa.array(places, pa.int64())) for array in arrays]
        return _Bodies([*spread, *self._special(bad, lost, len(records))], None)

    def _special(self, bad: dict[int, bytes], lost: dict[int, str], count: int) -> list[pa.Array]:
        found = []
        if self._shape.wants_rescued:
            found.append(pa.array([lost.get(row) for row in range(count)], pa.string()))
        if self._shape.wants_bad:
            found.append(pa.array([bad.get(row) for row in range(count)], pa.binary()))
        return found

    def _decoded_quickly(self, fields: Format, rows: HeadColumns) -> list[pa.Array]:
        """For events of formats that can be decoded side by side; NotPlain when one cannot."""
        wanted = [field for field in self._shape.work if field.name in fields.by_name]
        return columns_of(Bodies(rows.bodies()), rows.by_format(), self._plain, wanted)


class _Bodies(NamedTuple):
    """Decoded columns, and which rows they are of; None: all."""

    arrays: list[pa.Array]
    rows: list[int] | None


def _all(name: str, records: Sequence[Record]) -> list[Any]:
    """One field of all records, without a step of Python for each."""
    return list(map(_FIELD_OF[name], records))


def struct_of(arrays: list[pa.Array], fields: list[pa.Field], count: int) -> pa.StructArray:
    """A struct of columns, also of none."""
    if not arrays:
        return pa.Array.from_buffers(pa.struct([]), count, [None])
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _integers(name: str, rows: HeadColumns) -> pa.Array:
    """A column of 64-bit integers, null for the few that msgpack can carry and 64 bits cannot."""
    try:
        return rows.integers(name)
    except OverflowError:
        values = _all(name, rows.records())
        return pa.array([v if v is not None and MIN_INT64 <= v <= MAX_INT64 else None for v in values])


def microseconds(nanoseconds: pa.Array) -> pa.Array:
    """What is below a microsecond is dropped, towards the past, as in filters."""
    mask = nanoseconds.is_null().to_numpy(zero_copy_only=False)
    floored = np.floor_divide(nanoseconds.fill_null(0).to_numpy(), 1000)
    return pa.array(floored, pa.int64(), mask=mask).cast(pa.timestamp("us", tz="UTC"))

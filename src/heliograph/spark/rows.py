"""Rows of a journal as Arrow batches, with the columns that Spark sees.

    typed      header, and a column per field of the event, formats joined by field name
    envelope   header, kind, format_id, body and key: everything as it was kept, nothing decoded

`header` is the struct that filters know (`heliograph.expr.schema`) with four fields more: the two times in
nanoseconds, what was left of the lifespan, and the id of the format. Executors import this, and nothing that
it does not need.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from heliograph import columns
from heliograph.codec import mapping_decoder
from heliograph.errors import DecodeError, FormatError, InvalidEvent
from heliograph.expr.arrow_columns import HEADER_COLUMN, KIND_TYPES
from heliograph.expr.schema import HEADER_FIELDS, USER_HEADERS
from heliograph.journal.records import EVENT
from heliograph.journal.segmentwriter import TRANSPOSED_AT_ONCE, plain_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.formats import Format, FormatRegistry
    from heliograph.journal.records import Record, Rows

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

MIN_INT64: Final = -(1 << 63)
MAX_INT64: Final = (1 << 63) - 1


def schema(joined: Format | None) -> pa.Schema:
    """The columns of the events of a format, or of envelopes when there is none."""
    header = pa.field(HEADER_COLUMN, HEADER_TYPE)
    if joined is None:
        return pa.schema([header, *(pa.field(name, kind) for name, kind in ENVELOPE.items())])
    return pa.schema([header, *columns.schema(joined, spark_safe=True)])


class BatchMaker:
    """Makes batches of the rows of one partition.

    Args:
        channel: whose rows; a column of the header.
        partition: likewise.
        joined: the format that has room for all events, or None for envelopes.
        types: names of the event types that are wanted; None: all.
        formats: knows the formats of the rows that will come.
    """

    def __init__(
        self,
        channel: str,
        partition: str,
        *,
        joined: Format | None,
        types: frozenset[str] | None,
        formats: FormatRegistry,
    ) -> None:
        self.schema = schema(joined)
        self._channel = channel
        self._partition = partition
        self._joined = joined
        self._types = types
        self._formats = formats
        self._names: dict[bytes, str] = {}
        self._decoders: dict[bytes, Callable[[Any], dict[str, Any]]] = {}
        self._plain: dict[bytes, Callable[[bytes], tuple[Any, ...]]] = {}

    def batch(self, runs: Sequence[Rows]) -> pa.RecordBatch:
        """The wanted rows among these."""
        offsets: list[int] = []
        times: list[int] = []
        records: list[Record] = []
        for rows in runs:
            offsets += range(rows.first, rows.first + len(rows.records))
            times += [rows.append_ts] * len(rows.records)
            records += rows.records
        if not self._wants_all(records):
            wanted = [place for place, record in enumerate(records) if self._wants(record)]
            offsets = [offsets[place] for place in wanted]
            times = [times[place] for place in wanted]
            records = [records[place] for place in wanted]
        header = self._header(offsets, times, records)
        rest = self._envelope(records) if self._joined is None else self._typed(self._joined, records)
        return pa.RecordBatch.from_arrays([header, *rest], schema=self.schema)

    def _wants_all(self, records: Sequence[Record]) -> bool:
        """Whether no row is left out, which it is quicker to find out of all together."""
        ids = {record.format_id for record in records}
        for format_id in ids - self._names.keys():
            self._learn(self._formats[format_id])
        if self._types is not None and not {self._names[format_id] for format_id in ids} <= self._types:
            return False
        return self._joined is None or {record.kind for record in records} <= {EVENT}

    def _learn(self, fmt: Format) -> None:
        self._names[fmt.id] = fmt.name
        self._decoders[fmt.id] = mapping_decoder(fmt)
        plain = plain_decoder(fmt)
        if plain is not None:
            self._plain[fmt.id] = plain

    def _wants(self, record: Record) -> bool:
        if self._types is not None and self._names[record.format_id] not in self._types:
            return False
        return self._joined is None or record.kind == EVENT

    def _header(self, offsets: list[int], times: list[int], records: Sequence[Record]) -> pa.StructArray:
        count = len(records)
        source_ns = _integers([record.source_ts for record in records])
        append_ns = _integers(times)
        users = [None if record.headers is None else list(record.headers.items()) for record in records]
        arrays = {
            "channel": pa.repeat(self._channel, count),
            "type": pa.array([self._names[record.format_id] for record in records], pa.string()),
            "supplier": pa.array([record.supplier for record in records], pa.string()),
            "epoch": _integers([record.epoch for record in records]),
            "sequence": _integers([record.sequence for record in records]),
            "source_ts": _microseconds(source_ns),
            "append_ts": _microseconds(append_ns),
            "station_seq": _integers([record.station_seq for record in records]),
            "offset": _integers(offsets),
            "partition": pa.repeat(self._partition, count),
            "priority": _integers([record.priority for record in records]),
            "hops": _integers([record.hops for record in records]),
            "correlation_id": pa.array([record.correlation_id for record in records], pa.string()),
            "redelivered": pa.repeat(False, count),
            USER_HEADERS: pa.array(users, USER_HEADERS_TYPE),
            "source_ns": source_ns,
            "append_ns": append_ns,
            "lifetime_ns": _integers([record.lifetime_ns for record in records]),
            "format_id": pa.array([record.format_id for record in records], pa.binary()),
        }
        return pa.StructArray.from_arrays(
            [arrays[field.name] for field in HEADER_TYPE], fields=list(HEADER_TYPE)
        )

    def _envelope(self, records: Sequence[Record]) -> list[pa.Array]:
        return [
            pa.array([getattr(record, name) for record in records], kind) for name, kind in ENVELOPE.items()
        ]

    def _typed(self, joined: Format, records: Sequence[Record]) -> list[pa.Array]:
        """The columns of the fields; all null for a body that does not decode, as in sealed files."""
        ids = {record.format_id for record in records}
        if len(ids) == 1 and ids <= self._plain.keys():
            with suppress(msgspec.MsgspecError, FormatError, InvalidEvent):
                return self._typed_quickly(joined, records)
        mappings: list[dict[str, Any]] = []
        places: list[int | None] = []
        decoders = self._decoders
        for record in records:
            try:
                mapping = decoders[record.format_id](record.body)
            except DecodeError:
                places.append(None)
            else:
                places.append(len(mappings))
                mappings.append(mapping)
        arrays: list[pa.Array] = columns.to_batch(joined, mappings, spark_safe=True).columns
        if len(mappings) == len(records):
            return arrays
        return [array.take(pa.array(places, pa.int64())) for array in arrays]

    def _typed_quickly(self, joined: Format, records: Sequence[Record]) -> list[pa.Array]:
        """The same for events of one format that is all numbers and text; raises when one is not so plain."""
        format_id = records[0].format_id
        decode = self._plain[format_id]
        values: list[list[Any]] = [[] for _ in self._formats[format_id].fields]
        for start in range(0, len(records), TRANSPOSED_AT_ONCE):
            rows = [decode(record.body) for record in records[start : start + TRANSPOSED_AT_ONCE]]
            for column, part in zip(values, zip(*rows, strict=True), strict=True):
                column.extend(part)
        by_name = dict(zip(self._formats[format_id].by_name, values, strict=True))
        nothing = [None] * len(records)
        named = [by_name.get(field.name, nothing) for field in joined.fields]
        arrays: list[pa.Array] = columns.columns_to_batch(joined, named, spark_safe=True).columns
        return arrays


def _integers(values: Sequence[int | None]) -> pa.Array:
    """A column of 64-bit integers, null for the few that msgpack can carry and 64 bits cannot."""
    try:
        return pa.array(values, pa.int64())
    except OverflowError:
        fitting = [v if v is not None and MIN_INT64 <= v <= MAX_INT64 else None for v in values]
        return pa.array(fitting, pa.int64())


def _microseconds(nanoseconds: pa.Array) -> pa.Array:
    """What is below a microsecond is dropped, towards the past, as in filters."""
    mask = nanoseconds.is_null().to_numpy(zero_copy_only=False)
    floored = np.floor_divide(nanoseconds.fill_null(0).to_numpy(), 1000)
    return pa.array(floored, pa.int64(), mask=mask).cast(pa.timestamp("us", tz="UTC"))

"""Rows as a Parquet file: what a sealed segment holds.

Every row has its header in columns that begin with `_`, the columns of its event under their own names, and
its body as it was in `_body`, so that reading a segment gives back exactly what was appended. The columns are
for Spark and anything else that reads Parquet; nothing of a record depends on them. They come in the first of
these layouts that the events allow:

    unified   one column per field, formats joined by field name
    structs   one struct column per format, named after its id: types that conflict, or a name that we use
    bodies    no columns but ours: fields that Parquet cannot hold

The footer, without which nothing of a Parquet file can be read, stands there twice: what ends with the first
is a whole file too.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from heliograph.codec import mapping_decoder
from heliograph.codec.columnar import columns
from heliograph.codec.columnar.body_columns import Bodies, NotPlain, columns_decoder, columns_of, fits
from heliograph.codec.columnar.unify import unified
from heliograph.errors import DecodeError, FormatError
from heliograph.journal.format import compacted_ids as leftout
from heliograph.journal.format.footer import footer_of, renewed
from heliograph.journal.format.frames import checksum
from heliograph.journal.reading.head_columns import HeadColumns, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.journal.format.compacted_ids import CompactedIds
    from heliograph.journal.format.records import Piece, Record
    from heliograph.model.formats import Format, FormatRegistry

log = logging.getLogger(__name__)

ROW_GROUP: Final = 65_536
"""Rows per row group: the unit in which a reader decodes. 100 rows out of one cost a few milliseconds."""

INTEGERS: Final = ("_offset", "_append_ts", "_source_ts", "_epoch", "_sequence", "_priority", "_station_seq",
                   "_lifetime_ns", "_hops", "_kind")  # fmt: skip
RISING: Final = ("_offset", "_append_ts", "_source_ts", "_sequence", "_station_seq")
"""Columns in which neighbours are close to each other."""
FEW_VALUES: Final = ("_supplier", "_type", "_format_id", "_epoch", "_priority", "_hops", "_kind")
OTHERS: Final = {
    "_supplier": pa.string(),
    "_type": pa.string(),
    "_format_id": pa.binary(),
    "_correlation_id": pa.string(),
    "_headers": pa.map_(pa.string(), pa.string()),
    "_key": pa.binary(),
    "_body": pa.binary(),
}
HEADER_COLUMNS: Final = frozenset(INTEGERS) | OTHERS.keys()

Typed = list[tuple[pa.Field, pa.Array]]


def segment_file(pieces: Iterable[Piece], formats: FormatRegistry) -> tuple[bytes, tuple[bytes, ...]]:
    """A Parquet file with these rows, and the ids of the formats in it."""
    groups = list(map(HeadColumns, grouped(pieces, ROW_GROUP)))
    ids = tuple(sorted({format_id for group in groups for format_id in group.of("format_id")}))
    used = [formats[format_id] for format_id in ids]
    for layout, typed in (("unified", _unified), ("structs", _structs)):
        try:
            return _written(groups, used, layout, typed(used)), ids
        except (FormatError, pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            log.info("no %s layout for %s: %s", layout, ", ".join(map(str, used)), error)
    return _written(groups, used, "bodies", lambda _: []), ids


def rewritten_file(
    files: Sequence[pq.ParquetFile], tables: Iterable[pa.Table], left_out: Sequence[CompactedIds] = ()
) -> bytes:
    """A file with rows of others, which have one schema, and statistics where all of these have them."""
    sink = pa.BufferOutputStream()
    schema = files[0].schema_arrow
    with _parquet_writer(sink, schema.with_metadata(renewed(schema.metadata)), _stated(files)) as writer:
        for table in tables:
            if table.num_rows:
                writer.write_table(table, row_group_size=ROW_GROUP)
        if left_out:
            writer.add_key_value_metadata({leftout.KEY: leftout.packed(left_out)})
    data: bytes = sink.getvalue().to_pybytes()
    return data + data[-_footer_size(data) :]


def _stated(files: Sequence[pq.ParquetFile]) -> list[str]:
    """The columns of which every row group has statistics, by their Parquet paths."""
    groups = [file.metadata.row_group(at) for file in files for at in range(file.metadata.num_row_groups)]
    leaves = files[0].metadata.schema
    return [
        leaves.column(i).path
        for i in range(len(leaves))
        if all(group.column(i).is_stats_set for group in groups)
    ]


def _written(
    groups: Sequence[HeadColumns],
    formats: Sequence[Format],
    layout: str,
    typed: Callable[[Events], Typed],
) -> bytes:
    names = {fmt.id: fmt.name for fmt in formats}
    metadata = footer_of(formats, layout)
    tables: list[pa.Table] = []
    for group in groups:
        events = Events(group)
        pairs = _header(events, names) + typed(events)
        schema = pa.schema([field for field, _ in pairs], metadata)
        tables.append(pa.Table.from_arrays([array for _, array in pairs], schema=schema))
    assert tables, "a segment has rows"
    sink = pa.BufferOutputStream()
    with _parquet_writer(sink, tables[0].schema, _with_statistics(tables)) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=ROW_GROUP)
    data: bytes = sink.getvalue().to_pybytes()
    return data + data[-_footer_size(data) :]


def _footer_size(data: bytes) -> int:
    """Bytes of a Parquet file's footer, with its length and the magic behind it."""
    return int.from_bytes(data[-8:-4], "little") + 8


def pieces_of(data: bytes) -> tuple[tuple[int, int], ...]:
    """Where each row group of a segment file ends, then its two footers, and the checksum of each piece.

    Parquet's own checksums leave out the headers of pages and the footer. None for a file without the copy.
    """
    footer = _footer_size(data)
    if data[-footer:] != data[-2 * footer : -footer]:
        return ()  # written before there was a copy
    metadata = pq.read_metadata(pa.BufferReader(data))
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    starts = [min(_start(group.column(c)) for c in range(group.num_columns)) for group in groups]
    ends = [*starts[1:], len(data) - 2 * footer, len(data) - footer, len(data)]
    view = memoryview(data)
    return tuple((end, checksum(view[start:end])) for start, end in zip([0, *ends], ends, strict=False))


def _start(column: pq.ColumnChunkMetaData) -> int:
    """Where a column of a row group begins."""
    at: int = column.data_page_offset
    return at if column.dictionary_page_offset is None else min(at, column.dictionary_page_offset)


def _with_statistics(tables: Sequence[pa.Table]) -> list[str]:
    """The columns whose smallest and largest values may be written down, by their Parquet paths.

    Statistics leave NaN out, and a reader that goes by them would not look for it: Spark takes NaN for the
    largest number of all, and passes over a row group whose largest is 200 when it wants more than 300.
    """
    empty = pa.BufferOutputStream()
    pq.write_table(tables[0].schema.empty_table(), empty)
    leaves = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
    return [
        leaf.path
        for leaf in map(leaves.column, range(len(leaves)))
        if leaf.physical_type not in ("FLOAT", "DOUBLE") or not _may_hold_nan(tables, leaf.path)
    ]


def _may_hold_nan(tables: Sequence[pa.Table], path: str) -> bool:
    """Whether a column of floats has NaN in it; structs and lists are not looked into."""
    if path not in tables[0].schema.names:
        return True
    # By numpy, as far as possible: to load Arrow's functions takes as long as to seal 20,000 events.
    chunks = (chunk for table in tables for chunk in table.column(path).chunks)
    found = (chunk.drop_null() if chunk.null_count else chunk for chunk in chunks)
    return any(np.isnan(chunk.to_numpy(zero_copy_only=False)).any() for chunk in found)


def _parquet_writer(
    sink: pa.BufferOutputStream, schema: pa.Schema, with_statistics: list[str]
) -> pq.ParquetWriter:
    texts = [field.name for field in schema if field.name not in HEADER_COLUMNS and field.type == pa.string()]
    rising = {name: "DELTA_BINARY_PACKED" for name in RISING if schema.field(name).type == pa.int64()}
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[*FEW_VALUES, *texts],
        column_encoding=rising,
        write_statistics=with_statistics,
        write_page_checksum=True,
    )


class Events:
    """The events of a row group, and their bodies in one piece."""

    def __init__(self, group: HeadColumns) -> None:
        self.group = group
        self.bodies = Bodies(group.bodies())

    @cached_property
    def records(self) -> list[Record]:
        """Each for itself, for what cannot be done with all at once."""
        return self.group.records()


def _header(events: Events, names: dict[bytes, str]) -> Typed:
    group = events.group
    known = {
        "_offset": pa.array(group.offsets()),
        "_append_ts": pa.array(group.append_ts()),
        "_type": group.column([names[format_id] for format_id in group.of("format_id")], pa.string()),
        "_headers": group.column(
            [None if headers is None else list(headers.items()) for headers in group.of("headers")],
            OTHERS["_headers"],
        ),
        "_body": events.bodies.array(),
    }
    arrays = [
        *((name, known[name] if name in known else _integers(events, name[1:])) for name in INTEGERS),
        *(
            (name, known[name] if name in known else group.column(group.of(name[1:]), kind))
            for name, kind in OTHERS.items()
        ),
    ]
    return [(pa.field(name, array.type), array) for name, array in arrays]


def _integers(events: Events, name: str) -> pa.Array:
    try:
        return events.group.integers(name)
    except OverflowError:  # what msgpack can carry and int64 cannot
        return pa.array([getattr(record, name) for record in events.records], pa.decimal128(20, 0))


def _unified(formats: Sequence[Format]) -> Callable[[Events], Typed]:
    joined = unified(formats)
    taken = [field.name for field in joined.fields if field.name in HEADER_COLUMNS]
    if taken:
        raise FormatError(f"{taken[0]!r} is a column of ours")
    decoders = {fmt.id: mapping_decoder(fmt) for fmt in formats}
    quick = {fmt.id: decode for fmt in formats if (decode := columns_decoder(fmt)) and fits(fmt, joined)}
    schema = columns.schema(joined, spark_safe=True)

    def typed(events: Events) -> Typed:
        by_format = events.group.by_format()
        if by_format.keys() <= quick.keys():
            with suppress(NotPlain):
                arrays = columns_of(events.bodies, by_format, quick, list(schema))
                return list(zip(schema, arrays, strict=True))
        array = _structs_of(joined, decoders, events.records, range(len(events.records)))
        return list(zip(array.type, array.flatten(), strict=True))

    return typed


def _structs(formats: Sequence[Format]) -> Callable[[Events], Typed]:
    decoders = {fmt.id: mapping_decoder(fmt) for fmt in formats}

    def typed(events: Events) -> Typed:
        records = events.records
        pairs = []
        for fmt in formats:
            places = [place for place, record in enumerate(records) if record.format_id == fmt.id]
            array = _structs_of(unified([fmt]), decoders, records, places)
            pairs.append((pa.field(fmt.id.hex(), array.type), array))
        return pairs

    return typed


def _structs_of(
    fmt: Format,
    decoders: Mapping[bytes, Callable[[bytes], dict[str, Any]]],
    records: Sequence[Record],
    places: Sequence[int],
) -> pa.StructArray:
    """One struct per record: null for those that are not at `places` or do not decode."""
    mappings: list[dict[str, Any]] = []
    source: list[int | None] = [None] * len(records)
    for place in places:
        record = records[place]
        try:
            mapping = decoders[record.format_id](record.body)
        except DecodeError:
            continue  # a supplier's bad bytes; they stay readable as `_body`
        source[place] = len(mappings)
        mappings.append(mapping)
    structs = columns.to_batch(fmt, mappings, spark_safe=True).to_struct_array()
    return structs if len(mappings) == len(records) else structs.take(pa.array(source, pa.int64()))

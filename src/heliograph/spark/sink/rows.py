"""From rows of a data frame to bodies of events: which format, and whether the rows fit it.

The format is that of a class (`event`), or the one that the channel's history has seen last, or, before its
first event, that of the class that the channel was opened with; for a channel that is to be made, it follows
from the data frame's own columns. Columns go to fields by name; a field without a column has the default of
its class, if the class was named.

A row that does not fit is refused with its field before anything of its batch can enter a journal: a null
where the field has no None, an integer out of range, a text that its enum does not have.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - the name that all of Spark's documents use
from pyspark.sql.pandas.types import to_arrow_schema

from heliograph.codec import encoder
from heliograph.codec.columnar import columns
from heliograph.codec.dynamic.classes import class_for
from heliograph.codec.dynamic.plain import ValuePath
from heliograph.codec.dynamic.reflect import event_from_mapping, to_plain
from heliograph.errors import (
    FormatError,
    IncompatibleFormats,
    InvalidEvent,
    InvalidOption,
    NoHistory,
    WrongEventType,
)
from heliograph.errors.sentences import hint
from heliograph.filters.arrow_columns import HEADER_COLUMN
from heliograph.journal.format.folder import StationFolder
from heliograph.journal.names import CHANNELS
from heliograph.model import field_types as ft
from heliograph.model.compatibility import split_optional, why_apart
from heliograph.model.event import Event, info_of
from heliograph.model.formats import Field, Format, FormatRegistry
from heliograph.spark.sink.header_columns import HEADER_COLUMNS, insist_on_types
from heliograph.spark.source.plan import chosen_types, plan_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.spark.sink.options import SinkOptions

LAST_ROWS: Final = 1000
"""Rows at the end of a history in which the newest version of a type is looked for."""

_CREATED: Final[dict[type[T.DataType], ft.ScalarName]] = {
    T.ByteType: "i8",
    T.ShortType: "i16",
    T.IntegerType: "i32",
    T.LongType: "i64",
    T.FloatType: "f32",
    T.DoubleType: "f64",
    T.BooleanType: "bool",
    T.StringType: "str",
    T.BinaryType: "bytes",
    T.TimestampType: "datetime",
    T.DateType: "date",
}


class RowTarget(NamedTuple):
    """What rows become."""

    format: Format
    defaults: pa.RecordBatch | None = None
    """One row, with the fields that have no column and take the default of their class."""


def sink_target(options: SinkOptions, schema: T.StructType) -> RowTarget:
    """How rows of this schema are written; what does not go together is refused."""
    cls = _event_class(options)
    insist_on_channel(options)
    # Looked up for every batch of a stream: a class may have changed since the last one.
    fmt = info_of(cls).format if cls else _format_of_history(options) or _format_of(schema, options)
    _insist_on_type(options, fmt)
    target = RowTarget(fmt, None if cls is None else _defaults(cls, schema))
    _insist_on_columns(target, schema)
    return target


def body_maker(target: RowTarget) -> Callable[[pa.RecordBatch], list[bytes]]:
    """What makes bodies of the rows of a batch; InvalidEvent names the field of one that does not fit."""
    fmt = target.format
    if fmt.body == "packed" and all(_is_flat(field.type) for field in fmt.fields):
        encode = msgspec.msgpack.Encoder().encode

        def make_flat(batch: pa.RecordBatch) -> list[bytes]:
            if not fmt.fields:
                return [encode(())] * batch.num_rows
            return list(
                map(encode, zip(*columns.columns_from_batch(fmt, _completed(batch, target)), strict=True))
            )

        return make_flat
    cls = class_for(fmt)
    write = encoder(cls).encode

    def make(batch: pa.RecordBatch) -> list[bytes]:
        rows = columns.from_batch(fmt, _completed(batch, target))
        return [write(event_from_mapping(cls, row)) for row in rows]

    return make


def _is_flat(kind: ft.FieldType) -> bool:
    """Whether its plain value is what a packed body holds."""
    return isinstance(split_optional(kind)[0], ft.Scalar | ft.Decimal | ft.Enum)


def _completed(batch: pa.RecordBatch, target: RowTarget) -> pa.RecordBatch:
    """With the defaults of the class beside what there is."""
    batch = _in_utc(batch)
    if target.defaults is None:
        return batch
    first_row = pa.array([0] * batch.num_rows, pa.int32())
    for name in target.defaults.schema.names:
        batch = batch.append_column(name, target.defaults.column(name).take(first_row))
    return batch


def _defaults(cls: type[Event], schema: T.StructType) -> pa.RecordBatch | None:
    info, there = info_of(cls), set(schema.fieldNames())
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        if field.name not in there and not field.required:
            made = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                made = field.default_factory()
            values[field.name] = to_plain(made, ValuePath(info.name).inside(field.name))
    fields = tuple(Field(name, info.format.by_name[name].type) for name in values)
    return columns.to_batch(Format(info.name, fields), [values]) if fields else None


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spark hands times over in the zone of the session; the instants are the same.

    Columns that say something about the event are left out.
    """
    batch = batch.select([name for name in batch.schema.names if name not in HEADER_COLUMNS])
    fields = [field.with_type(_utc_type(field.type)) for field in batch.schema]
    return batch.cast(pa.schema(fields))


def _utc_type(kind: pa.DataType) -> pa.DataType:
    """The type with the zone UTC for all times in it."""
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_utc_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_utc_type(kind.item_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_utc_type(field.type)) for field in kind])
    return kind


def _event_class(options: SinkOptions) -> type[Event] | None:
    if options.event is None:
        return None
    module, _, name = options.event.partition(":")
    found: Any
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        allowed = f"an event class that the driver can import as 'package.module:Class' ({error})"
        raise InvalidOption("event", options.event, allowed) from None
    if not (isinstance(found, type) and issubclass(found, Event)):
        raise InvalidOption("event", options.event, "an event class, that is, a subclass of hg.Event")
    name = info_of(found).name
    if options.type not in (None, name):
        raise InvalidOption("type", options.type, f"{name}, which is the name of that class")
    return found


def insist_on_channel(options: SinkOptions) -> None:
    """NoHistory, with how to make it, for a channel that is not there and that nobody asked to make."""
    if options.creates:
        return
    try:
        StationFolder(options.path).partitions(options.channel)
    except NoHistory as error:
        kind = "" if options.event else '.option("type", "a name for its events")'
        error.instead = f'.option("create", "true"){kind}'
        raise


def _insist_on_type(options: SinkOptions, fmt: Format) -> None:
    """Refuse, as `push` and opening the channel do, what has no place beside the classes that it carries."""
    if options.creates and not Path(options.path, CHANNELS).is_dir():
        return
    carried = {one.name: one for one in StationFolder(options.path).declared(options.channel)}
    if carried and fmt.name not in carried:
        raise WrongEventType(options.channel, fmt.name, tuple(carried))
    if carried and (apart := why_apart(carried[fmt.name], fmt)):
        raise IncompatibleFormats(fmt.name, fmt.name, apart, options.channel)


def _format_of_history(options: SinkOptions) -> Format | None:
    """The newest format of the type in the channel's history; None when it may be made instead."""
    try:
        plan = plan_read(options.path, options.channel, "latest", None, fail_on_data_loss=False)
    except NoHistory:
        if options.creates:
            return None
        raise
    known = chosen_types(options.channel, plan.formats, None)
    if options.type is None and len(known) > 1:
        raise InvalidOption("type", None, f"one of {', '.join(sorted(known))}: the channel carries several")
    name = options.type or next(iter(known), None)
    if name not in known:
        if options.creates:
            return None
        there = ", ".join(sorted(known)) or "no events yet"
        allowed = f"a class: the history of {options.channel!r} does not know the type; it has {there}"
        raise InvalidOption("event", None, allowed)
    versions = known[name]
    return versions[0] if len(versions) == 1 else _newest(options, name)


def _newest(options: SinkOptions, name: str) -> Format:
    folder, formats = StationFolder(options.path), FormatRegistry()
    newest: tuple[int, Format] | None = None
    for partition in folder.partitions(options.channel):
        with folder.reader(options.channel, partition, formats) as reader:
            start = max(reader.earliest, reader.watermark - LAST_ROWS)
            for row in reader.read(start, LAST_ROWS):
                fmt = formats[row.record.format_id]
                if fmt.name == name and (newest is None or row.append_ts >= newest[0]):
                    newest = row.append_ts, fmt
    if newest is None:
        declared = [fmt for fmt in folder.declared(options.channel) if fmt.name == name]
        if declared:
            return declared[0]
        allowed = f"a class: there are several versions of {name}, none among the last {LAST_ROWS} events"
        raise InvalidOption("event", None, allowed)
    return newest[1]


def _format_of(schema: T.StructType, options: SinkOptions) -> Format:
    """A format for columns as they are."""
    if options.type is None:
        raise InvalidOption("type", None, "a name for the events of the new channel, such as 'air.total'")
    fields = tuple(
        _created_field(field, required=field.name in options.key)
        for field in schema.fields
        if field.name not in HEADER_COLUMNS
    )
    fmt = Format(options.type, fields, key=options.key)
    class_for(fmt)  # what no class could have, no consumer could read
    return fmt


def _created_field(field: T.StructField, *, required: bool = False) -> Field:
    """A column that may be null becomes optional; not in a key, where a null is refused when it comes."""
    kind = _created_type(field.name, field.dataType)
    return Field(field.name, ft.Optional(kind) if field.nullable and not required else kind)


def _created_type(name: str, kind: T.DataType) -> ft.FieldType:
    if type(kind) in _CREATED:
        return ft.Scalar(_CREATED[type(kind)])
    if isinstance(kind, T.ArrayType):
        item = _created_type(name, kind.elementType)
        return ft.List(ft.Optional(item) if kind.containsNull else item)
    if isinstance(kind, T.DecimalType) and 0 <= kind.scale <= kind.precision:
        return ft.Decimal(kind.precision, kind.scale)
    if isinstance(kind, T.MapType):
        key, value = _created_type(name, kind.keyType), _created_type(name, kind.valueType)
        if not isinstance(key, ft.Scalar) or not ft.is_map_key(key):
            raise FormatError(
                f"column {name!r} is {kind.simpleString()}; the keys of maps in events are text or integers: "
                "cast them"
            )
        return ft.Map(key, ft.Optional(value) if kind.valueContainsNull else value)
    if isinstance(kind, T.StructType):
        return ft.NestedEvent(Format(name, tuple(_created_field(inner) for inner in kind.fields)))
    raise FormatError(f"column {name!r} is {kind.simpleString()}, for which events have no type; cast it")


def _insist_on_columns(target: RowTarget, schema: T.StructType) -> None:
    """Names and types, before there is a row: what is wrong here is wrong in every row."""
    fmt = target.format
    arrow = to_arrow_schema(schema, timezone="UTC")
    insist_on_types(fmt.name, arrow)
    names = set(schema.fieldNames()) - HEADER_COLUMNS.keys()
    if unknown := sorted(names - fmt.by_name.keys()):
        free = fmt.by_name.keys() - names
        advice = ' (drop it: df.drop("header"))' if HEADER_COLUMN in unknown else hint(unknown[0], free)
        raise InvalidEvent(
            fmt.name, f"there are columns that it has no field for: {', '.join(unknown)}{advice}"
        )
    empty = pa.RecordBatch.from_pylist([], schema=arrow)
    columns.from_batch(fmt, _completed(empty, target))

"""Events as Arrow columns: for reflection, for Parquet and for Spark.

    schema(fmt)                      the Arrow schema of a format
    to_batch(fmt, rows)              events or plain data to a RecordBatch
    columns_to_batch(fmt, columns)   the same from one sequence of values per field
    from_batch(fmt, batch)           a RecordBatch to plain data
    columns_from_batch(fmt, batch)   the same with one sequence of values per field
    unify(formats)                   one schema for a channel whose event class has changed

| field               | Arrow                        | Arrow with `spark_safe=True`                   |
|---------------------|------------------------------|------------------------------------------------|
| i8 i16 i32 i64      | int8 … int64                 | the same                                       |
| u8 u16 u32 u64      | uint8 … uint64               | int16 int32 int64 decimal128(20, 0)            |
| f32 f64 bool        | float32 float64 bool         | the same                                       |
| str bytes           | string binary                | the same                                       |
| datetime            | timestamp[us, UTC]           | the same                                       |
| date                | date32                       | the same                                       |
| uuid                | string, with dashes          | the same                                       |
| decimal             | decimal128 of its digits     | the same                                       |
| enum                | int64 or string: the value   | the same                                       |
| T or None           | T, null                      | the same                                       |
| record              | struct                       | the same                                       |
| list                | list                         | the same                                       |
| map                 | map                          | the same                                       |
| array, 1 dimension  | list                         | the same                                       |
| array, other shapes | struct<shape: list<int32>, data: list<item>>, items in C order                |
| any                 | string: JSON as in `heliograph.codec.dynamic.json`; None is null
  |

Spark has no unsigned integers, no type for UUIDs and no list of fixed size. All columns are nullable, as
Spark wants them; a null where the format has no None is refused in both directions. Parquet cannot hold a
record without fields.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain, pairwise
from operator import attrgetter, itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa

from heliograph.codec.columnar.unify import unified
from heliograph.codec.decimals import from_unscaled
from heliograph.codec.dynamic.json import anything_from_json, anything_to_json
from heliograph.codec.dynamic.plain import (
    ValuePath,
    check_count,
    check_record,
    item_dtype,
    shape_fits,
    shaped,
)
from heliograph.codec.dynamic.reflect import event_to_mapping, to_plain
from heliograph.errors import FormatError, InvalidEvent
from heliograph.errors.sentences import listed
from heliograph.model import field_types as ft
from heliograph.model.compatibility import split_optional, widens
from heliograph.model.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from heliograph.model.formats import Field, Format

_TYPES: Final = {
    "i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64(),
    "u8": pa.uint8(), "u16": pa.uint16(), "u32": pa.uint32(), "u64": pa.uint64(),
    "f32": pa.float32(), "f64": pa.float64(), "bool": pa.bool_(), "str": pa.string(), "bytes": pa.binary(),
    "datetime": pa.timestamp("us", tz="UTC"), "date": pa.date32(), "uuid": pa.string(),
}  # fmt: skip
_SPARK_TYPES: Final = _TYPES | {
    "u8": pa.int16(), "u16": pa.int32(), "u32": pa.int64(), "u64": pa.decimal128(20, 0)
}  # fmt: skip
_PYTHON_TYPES: Final[dict[str, set[type]]] = {
    **{name: {int} for name in ft.INTEGER_RANGES},
    **{name: {float, int} for name in ft.FLOATS},
    "bool": {bool},
    "str": {str},
    "bytes": {bytes},
    "datetime": {datetime},
    "date": {date},
    "uuid": {UUID},
}
_SHAPE: Final = ft.List(ft.Scalar("i32"))
MAX_ITEMS: Final = (1 << 31) - 1
"""What the 32-bit offsets of an Arrow list can count within one batch."""


def schema(fmt: Format, *, spark_safe: bool = False) -> pa.Schema:
    """The Arrow schema of a format; see the table at the top of this module."""
    return pa.schema([(field.name, arrow_type(field.type, spark_safe=spark_safe)) for field in fmt.fields])


def unify(formats: Sequence[Format], *, spark_safe: bool = False) -> pa.Schema:
    """The schema of `heliograph.codec.columnar.unify.unified`, which is also the format to give to
    `to_batch`."""
    return schema(unified(formats), spark_safe=spark_safe)


def to_batch(
    fmt: Format, rows: Sequence[Event | Mapping[str, Any]], *, spark_safe: bool = False
) -> pa.RecordBatch:
    """One batch with a row per event. Fields that the format lacks are left out; optional ones may miss.

    InvalidEvent names the row and the field of a value that does not fit, such as `$[3].position.lat`.
    """
    try:
        return _batch(fmt, _columns(fmt, rows), len(rows), spark_safe)
    except _OFF_THE_FAST_PATH:
        return _checked_batch(fmt, rows, spark_safe)


def columns_to_batch(
    fmt: Format, columns: Sequence[Sequence[Any]], *, spark_safe: bool = False
) -> pa.RecordBatch:
    """One batch from the values of each field, in the order of the format's fields."""
    if len(columns) != len(fmt.fields) or len({len(column) for column in columns}) > 1:
        sizes = [len(column) for column in columns]
        raise FormatError(f"{fmt.name} needs {len(fmt.fields)} columns of one length, not lengths {sizes}")
    try:
        return _batch(fmt, columns, len(columns[0]) if columns else 0, spark_safe)
    except _OFF_THE_FAST_PATH:
        names = [field.name for field in fmt.fields]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        return _checked_batch(fmt, rows, spark_safe)


def from_batch(fmt: Format, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as plain data. Columns that the format lacks are ignored; optional ones may miss.

    Arrays of numbers are views into the batch where its items have the type of the field.
    """
    return _records(fmt, batch.to_struct_array(), ValuePath(fmt.name))


def columns_from_batch(fmt: Format, batch: pa.RecordBatch) -> list[Sequence[Any]]:
    """As `from_batch`, with one sequence of values per field of the format."""
    return _field_columns(fmt, batch.to_struct_array(), ValuePath(fmt.name))


def arrow_type(kind: ft.FieldType, *, spark_safe: bool = False) -> pa.DataType:
    """The Arrow type of a field; see the table at the top of this module."""
    match kind:
        case ft.Scalar(name=name):
            return (_SPARK_TYPES if spark_safe else _TYPES)[name]
        case ft.Optional(item=item):
            return arrow_type(item, spark_safe=spark_safe)
        case ft.Enum(base=base):
            return _TYPES[base]
        case ft.NestedEvent(format=fmt):
            return pa.struct(list(schema(fmt, spark_safe=spark_safe)))
        case ft.List(item=item):
            return pa.list_(arrow_type(item, spark_safe=spark_safe))
        case ft.Decimal(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case ft.Map(key=key, value=value):
            return pa.map_(arrow_type(key, spark_safe=spark_safe), arrow_type(value, spark_safe=spark_safe))
        case ft.Array(item=name):
            items = pa.list_(arrow_type(ft.Scalar(name), spark_safe=spark_safe))
            return (
                items
                if is_list_of_items(kind)
                else pa.struct([("shape", pa.list_(pa.int32())), ("data", items)])
            )
        case ft.Anything():
            return pa.string()


def is_list_of_items(kind: ft.Array) -> bool:
    """Whether a column of such arrays needs no shape beside the items."""
    return kind.shape is not None and len(kind.shape) == 1


# Rows to columns. The fast path looks at the set of Python types of each column and leaves ranges to Arrow.


class _DoesNotFit(Exception):
    """Some value of a column is not what the fast path takes."""


_OFF_THE_FAST_PATH: Final = (
    _DoesNotFit, InvalidEvent, pa.ArrowException,
    LookupError, AttributeError, TypeError, ValueError, OverflowError,
)  # fmt: skip


def _checked_batch(fmt: Format, rows: Sequence[Any], spark_safe: bool) -> pa.RecordBatch:
    """Find the value that is wrong, or bring all to the types of their fields, as numpy scalars need it."""
    plain = []
    for i, row in enumerate(rows):
        at = ValuePath(fmt.name, f"$[{i}]")
        plain.append(check_record(fmt, _plain_record(fmt, row, at), at))
    return _batch(fmt, _columns(fmt, plain), len(plain), spark_safe)


def _batch(fmt: Format, columns: Sequence[Sequence[Any]], count: int, spark_safe: bool) -> pa.RecordBatch:
    if not fmt.fields:
        return pa.RecordBatch.from_struct_array(_no_fields(count))
    arrays = [
        _column(field.type, values, spark_safe) for field, values in zip(fmt.fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema(fmt, spark_safe=spark_safe))


def _no_fields(count: int) -> pa.StructArray:
    return pa.array([{}] * count, pa.struct([]))


def _columns(fmt: Format, rows: Sequence[Any]) -> list[list[Any]]:
    """The values of each field of records, which are events or mappings."""
    kinds = set(map(type, rows))
    if not kinds <= {dict} and not all(issubclass(kind, Event) for kind in kinds):
        if not all(issubclass(kind, Event | Mapping) for kind in kinds):
            raise _DoesNotFit
        rows = [row if isinstance(row, Mapping) else event_to_mapping(row) for row in rows]
        kinds = {dict}
    getter = itemgetter if kinds == {dict} else _attribute
    return [_values_of(field, rows, getter(field.name)) for field in fmt.fields]


def _attribute(name: str) -> Callable[[Any], Any]:
    # A dot would lead attrgetter into the value; no event has a field with one, nor with a blank.
    return attrgetter(name.replace(".", " "))


def _values_of(field: Field, rows: Sequence[Any], get: Callable[[Any], Any]) -> list[Any]:
    """The values of one field, with None where an optional one is missing."""
    try:
        return list(map(get, rows))
    except (KeyError, AttributeError):
        if not _takes_none(field.type):
            raise
    name = field.name
    return [row.get(name) if isinstance(row, Mapping) else getattr(row, name, None) for row in rows]


def _takes_none(kind: ft.FieldType) -> bool:
    return isinstance(kind, ft.Optional | ft.Anything)


def _column(kind: ft.FieldType, values: Sequence[Any], spark_safe: bool) -> pa.Array:
    item = split_optional(kind)[0]
    kinds = set(map(type, values))
    if NoneType in kinds:
        if not _takes_none(kind):
            raise _DoesNotFit
        kinds.discard(NoneType)
        if not isinstance(item, ft.Scalar):
            present = [value for value in values if value is not None]
            return _spread(_column(item, present, spark_safe), values)
    match item:
        case ft.Scalar(name=name):
            return _scalar_column(name, values, kinds, spark_safe)
        case ft.Enum():
            return _enum_column(item, values)
        case ft.NestedEvent(format=fmt):
            return _batch(fmt, _columns(fmt, values), len(values), spark_safe).to_struct_array()
        case ft.List():
            return _list_column(item, values, kinds, spark_safe)
        case ft.Decimal():
            return _decimal_column(item, values, kinds)
        case ft.Map():
            return _map_column(item, values, kinds, spark_safe)
        case ft.Array():
            return _array_column(item, values, spark_safe)
        case _:
            at = ValuePath("any")
            return pa.array([anything_to_json(_plain(item, value, at), at) for value in values], pa.string())


def _spread(array: pa.Array, values: Sequence[Any]) -> pa.Array:
    """The array with a null for each None among the values."""
    present = np.fromiter((value is not None for value in values), bool, len(values))
    return array.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _scalar_column(name: str, values: Sequence[Any], kinds: set[type], spark_safe: bool) -> pa.Array:
    if not kinds <= _PYTHON_TYPES[name]:
        raise _DoesNotFit
    if name == "datetime" and any(value is not None and value.tzinfo is None for value in values):
        raise _DoesNotFit
    if name == "uuid":
        values = [None if value is None else str(value) for value in values]
    array = pa.array(values, _TYPES[name])
    if name == "f32" and _has_overflowed(array, values):
        raise _DoesNotFit
    return array.cast(_SPARK_TYPES[name]) if spark_safe else array


def _has_overflowed(array: pa.FloatArray, values: Sequence[Any]) -> bool:
    """Whether Arrow made infinities of floats that are too large for 32 bits."""
    infinite = np.isinf(array.to_numpy(zero_copy_only=False))
    if not infinite.any():
        return False
    return not np.array_equal(
        infinite, np.isinf(pa.array(values, pa.float64()).to_numpy(zero_copy_only=False))
    )


def _enum_column(kind: ft.Enum, values: Sequence[Any]) -> pa.Array:
    plain = [value.value if isinstance(value, enum.Enum) else value for value in values]
    if not set(plain) <= kind.values or not set(map(type, plain)) <= _PYTHON_TYPES[kind.base]:
        raise _DoesNotFit
    return pa.array(plain, _TYPES[kind.base])


def _list_column(kind: ft.List, values: Sequence[Any], kinds: set[type], spark_safe: bool) -> pa.Array:
    lengths = [len(value) for value in values]
    if not kinds <= {list} or (kind.length is not None and not set(lengths) <= {kind.length}):
        raise _DoesNotFit
    return _lists(lengths, _column(kind.item, list(chain.from_iterable(values)), spark_safe))


def _decimal_column(kind: ft.Decimal, values: Sequence[Any], kinds: set[type]) -> pa.Array:
    if not kinds <= {Decimal, int}:
        raise _DoesNotFit
    return pa.array(values, arrow_type(kind))  # refuses what it would have to round


def _map_column(kind: ft.Map, values: Sequence[Any], kinds: set[type], spark_safe: bool) -> pa.MapArray:
    if not kinds <= {dict}:
        raise _DoesNotFit
    lengths = [len(value) for value in values]
    if lengths and max(lengths) > ft.MAX_ENTRIES:
        raise _DoesNotFit
    keys = _column(kind.key, list(chain.from_iterable(values)), spark_safe)
    items = _column(kind.value, [item for value in values for item in value.values()], spark_safe)
    return maps(_offsets(lengths), keys, items)


def maps(offsets: NDArray[np.int32], keys: pa.Array, items: pa.Array) -> pa.MapArray:
    """A column of maps; the keys and values of all of them, one behind the other."""
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items)


def _array_column(kind: ft.Array, values: Sequence[NDArray[Any]], spark_safe: bool) -> pa.Array:
    dtype = item_dtype(kind.item)
    if any(value.dtype != dtype for value in values):
        values = [_widened(value, kind.item) for value in values]
    shapes = [value.shape for value in values]
    if {value.dtype for value in values} - {dtype} or not all(shape_fits(kind.shape, s) for s in set(shapes)):
        raise _DoesNotFit
    flat = np.concatenate([value.ravel() for value in values]) if values else np.empty(0, dtype)
    data = pa.array(flat, _TYPES[kind.item])
    data = _lists(
        [value.size for value in values], data.cast(_SPARK_TYPES[kind.item]) if spark_safe else data
    )
    if is_list_of_items(kind):
        return data
    sizes = pa.array(list(chain.from_iterable(shapes)), pa.int32())
    return pa.StructArray.from_arrays([_lists([len(s) for s in shapes], sizes), data], ["shape", "data"])


def _widened(value: NDArray[Any], item: ft.ScalarName) -> NDArray[Any]:
    """An array of an older, narrower item type as one of this type; another array as it is."""
    narrower = [name for name in ft.ARRAY_ITEMS if item_dtype(name) == value.dtype and widens(name, item)]
    return value.astype(item_dtype(item), copy=False) if narrower else value


def _lists(lengths: Sequence[int], items: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(_offsets(lengths)), items)


def _offsets(lengths: Sequence[int]) -> NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > MAX_ITEMS:
        raise FormatError(f"{offsets[-1]} items in one list column; at most {MAX_ITEMS} go into one batch")
    return offsets.astype(np.int32)


def _plain_record(fmt: Format, row: Any, at: ValuePath) -> dict[str, Any]:
    """The fields of the format out of an event or a mapping; what is missing but optional is None."""
    if not isinstance(row, Event | Mapping):
        raise at.expected(f"an event or a mapping with the fields of {fmt.name}", row)
    plain: dict[str, Any] = {}
    for field in fmt.fields:
        found = field.name in row if isinstance(row, Mapping) else hasattr(row, field.name)
        if found:
            value = row[field.name] if isinstance(row, Mapping) else getattr(row, field.name)
            plain[field.name] = _plain(field.type, value, at.inside(field.name))
        elif _takes_none(field.type):
            plain[field.name] = None
    return plain


def _plain(kind: ft.FieldType, value: Any, at: ValuePath) -> Any:
    kind = split_optional(kind)[0]
    match kind, value:
        case ft.NestedEvent(), Event() | Mapping():
            return _plain_record(kind.format, value, at)
        case ft.List(), list():
            return [_plain(kind.item, v, at.inside(i)) for i, v in enumerate(value)]
        case ft.Map(), dict():
            return {to_plain(key, at): _plain(kind.value, item, at.entry(key)) for key, item in value.items()}
        case ft.Array(), np.ndarray():
            return _widened(value, kind.item)
        case _:
            return to_plain(value, at)


# Columns to rows.


def _records(fmt: Format, array: pa.StructArray, at: ValuePath) -> list[dict[str, Any]]:
    names = [field.name for field in fmt.fields]
    if not names:
        return [{} for _ in range(len(array))]
    columns = _field_columns(fmt, array, at)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _field_columns(fmt: Format, array: pa.StructArray, at: ValuePath) -> list[Sequence[Any]]:
    children = dict(zip((f.name for f in array.type), array.flatten(), strict=True))
    return [_field_values(field, children.get(field.name), len(array), at) for field in fmt.fields]


def _field_values(field: Field, array: pa.Array | None, count: int, at: ValuePath) -> Sequence[Any]:
    if array is not None:
        return _values(field.type, array, at.inside(field.name))
    if _takes_none(field.type):
        return [None] * count
    raise at.inside(field.name).refuse(f"has no column in this batch; needs {field.type}")


def _values(kind: ft.FieldType, array: pa.Array, at: ValuePath) -> list[Any]:
    """The plain values of a column."""
    item = split_optional(kind)[0]
    if array.null_count:
        if not _takes_none(kind):
            raise at.refuse(f"has {array.null_count} nulls, but {kind} has no None")
        present = iter(_values(item, array.drop_null(), at))
        return [next(present) if valid else None for valid in array.is_valid().to_pylist()]
    match item:
        case ft.Scalar(name=name):
            return _scalar_values(name, array, at)
        case ft.Enum(base=base):
            values = _scalar_values(base, array, at)
            if not set(values) <= item.values:
                raise at.expected(f"values of {item}", min(set(values) - item.values))
            return values
        case ft.NestedEvent(format=fmt):
            return _records(fmt, _of_type(array, pa.types.is_struct, item, at), at)
        case ft.List():
            return _list_values(item, _of_type(array, pa.types.is_list, item, at), at)
        case ft.Decimal():
            return _decimal_values(item, array, at)
        case ft.Map():
            return _map_values(item, _of_type(array, pa.types.is_map, item, at), at)
        case ft.Array():
            return _array_values(item, array, at)
        case _:
            texts = _of_type(array, pa.types.is_string, item, at).to_pylist()
            return [anything_from_json(text, at) for text in texts]


def _of_type(
    array: pa.Array, is_type: Callable[[pa.DataType], bool], kind: ft.FieldType, at: ValuePath
) -> pa.Array:
    if not is_type(array.type):
        raise at.refuse(f"has a column of {array.type}; {kind} needs {arrow_type(kind, spark_safe=False)}")
    return array


def _scalar_values(name: ft.ScalarName, array: pa.Array, at: ValuePath) -> list[Any]:
    array = _scalar_array(name, array, at)
    if name == "datetime":
        try:
            return [ft.EPOCH + timedelta(microseconds=n) for n in array.cast(pa.int64()).to_numpy().tolist()]
        except OverflowError:
            raise at.refuse("has times outside the years 1 to 9999") from None
    if name == "uuid":
        try:
            return [msgspec.convert(text, UUID) for text in array.to_pylist()]
        except msgspec.ValidationError:
            raise at.refuse("has text that is no UUID") from None
    if name == "date" and len(array):
        days = array.cast(pa.int32()).to_numpy()
        if days.min() < ft.FIRST_DAY or days.max() > ft.LAST_DAY:
            raise at.refuse("has dates outside the years 1 to 9999")
    if name in ft.ARRAY_ITEMS:
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return values
    return array.to_pylist()  # type: ignore[no-any-return]


def _scalar_array(name: ft.ScalarName, array: pa.Array, at: ValuePath) -> pa.Array:
    """The array in the Arrow type of a scalar, also from Spark-safe types and numbers of other widths.

    What is cast is checked: no integer loses a digit on its way into a float.
    """
    is_number = name in ft.NUMBERS and pa.types.is_integer(array.type)
    is_wider = name == "f64" and array.type == pa.float32()
    if array.type not in (_TYPES[name], _SPARK_TYPES[name]) and not is_number and not is_wider:
        fitting = dict.fromkeys((_TYPES[name], _SPARK_TYPES[name]))
        raise at.refuse(f"has a column of {array.type}; {name} needs {listed(fitting, joint=' or ')}")
    try:
        return array.cast(_TYPES[name])
    except pa.ArrowInvalid as error:
        raise at.refuse(f"has values out of the range of {name}: {error}") from None


def _list_values(kind: ft.List, array: pa.ListArray, at: ValuePath) -> list[Any]:
    items = _values(kind.item, array.flatten(), at)
    rows = [items[start:end] for start, end in pairwise(_ends(array))]
    if kind.length is not None and any(len(row) != kind.length for row in rows):
        raise at.refuse(f"has a list of another length than {kind}")
    return rows


def _decimal_values(kind: ft.Decimal, array: pa.Array, at: ValuePath) -> list[Any]:
    """Also from integers and from decimals of other digits, but for values that would be rounded."""
    if not (pa.types.is_decimal(array.type) or pa.types.is_integer(array.type)):
        raise at.refuse(f"has a column of {array.type}; {kind} needs {arrow_type(kind)}")
    try:
        return array.cast(arrow_type(kind)).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        if not pa.types.is_integer(array.type):
            raise at.refuse(f"has values with more digits than {kind}") from None
    try:  # Arrow makes decimals of integers only where all integers of their type would fit
        plain = [from_unscaled(number * 10**kind.scale, kind.scale) for number in array.to_pylist()]
        return pa.array(plain, arrow_type(kind)).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        raise at.refuse(f"has values with more digits than {kind}") from None


def _map_values(kind: ft.Map, array: pa.MapArray, at: ValuePath) -> list[Any]:
    # Keys and items are those of the whole column, of which this may be a part.
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = _values(kind.key, array.keys.slice(start, count), at)
    items = _values(kind.value, array.items.slice(start, count), at)
    lengths = np.diff(offsets).tolist()
    rows, first = [], 0
    for length in lengths:
        check_count(length, at)
        row = dict(zip(keys[first : first + length], items[first : first + length], strict=True))
        if len(row) < length:
            raise at.refuse("has a map with a key twice")
        rows.append(row)
        first += length
    return rows


def _ends(array: pa.ListArray) -> list[int]:
    """Where the lists of an array start and end among its flattened items."""
    return [0, *np.cumsum(array.value_lengths().to_numpy(zero_copy_only=False)).tolist()]


def _array_values(kind: ft.Array, array: pa.Array, at: ValuePath) -> list[Any]:
    if is_list_of_items(kind):
        data = _of_type(array, pa.types.is_list, kind, at)
        shapes = [(int(n),) for n in data.value_lengths().to_pylist()]
    else:
        parts = _of_type(array, pa.types.is_struct, kind, at)
        data = parts.field("data")
        shapes = [tuple(shape) for shape in _values(_SHAPE, parts.field("shape"), at)]
    items = data.flatten()
    if items.null_count or data.null_count:
        raise at.refuse(f"has nulls, but {kind} has none")
    flat = _scalar_array(kind.item, items, at).to_numpy(zero_copy_only=False)
    rows = [flat[start:end] for start, end in pairwise(_ends(data))]
    for shape in shapes:
        if not shape_fits(kind.shape, shape):
            raise at.refuse(f"has an array of shape {shape}, which is no {kind}")
    return [shaped(row, shape, at) for row, shape in zip(rows, shapes, strict=True)]

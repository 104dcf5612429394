"""Takes the value of a column out of a record batch: fields, elements, and what makes them values.

The layout is described in `heliograph.filters.schema`. Other Arrow types that hold the same kind of value are
cast: dictionaries and large strings to strings, unsigned integers and decimals to decimal(20, 0), and so on.
A column of another kind than the format says is refused: a cast would answer another question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from heliograph.filters.schema import HEADER_COLUMN
from heliograph.filters.typed import digits_of

__all__ = [
    "HEADER_COLUMN",
    "KIND_TYPES",
    "WrongColumn",
    "arrow_kind",
    "column",
    "contains",
    "element",
    "length",
]

if TYPE_CHECKING:
    from heliograph.filters import typed as k

KIND_TYPES: Final[dict[str, Any]] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "wide": pa.decimal128(20, 0),
    "float": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "datetime": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "uuid": pa.string(),
}
"""The Arrow type of each kind of value."""


def arrow_kind(node: k.Node) -> Any:
    """The Arrow type of a node's values."""
    if node.kind == "decimal":
        precision, scale = digits_of(node)
        return pa.decimal128(max(precision, 1), scale)
    return KIND_TYPES[node.kind]


class WrongColumn(Exception):
    """A column that is not there, or not once, or not of the type that the format says."""


def column(batch: Any, node: k.Column) -> Any:
    """The values of a column, one per row; WrongColumn when the batch has none that fits."""
    first, *rest = node.steps
    name = str(first.key)
    value = _field(_top(batch, HEADER_COLUMN), name) if node.header else _top(batch, name)
    for step in rest:
        value = _step(value, step)
    return _loaded(value, node)


def _top(batch: Any, name: str) -> Any:
    positions = batch.schema.get_all_field_indices(name)
    if len(positions) != 1:
        raise WrongColumn(f"the batch has {len(positions) or 'no'} column{'s' * bool(positions)} {name!r}")
    return batch.column(positions[0])


def _field(value: Any, name: str) -> Any:
    if pa.types.is_null(value.type):
        return value
    _insist(pa.types.is_struct(value.type), value, f"a struct with a field {name!r}")
    position = value.type.get_field_index(name)
    if position < 0:
        raise WrongColumn(f"the batch has no column {name!r}")
    return pc.struct_field(value, [position])


def _step(value: Any, step: k.Step) -> Any:
    if pa.types.is_null(value.type):
        return value
    match step.how:
        case "field":
            return _field(value, str(step.key))
        case "map" | "enum_map":
            _insist_on_map(value, step)
            return pc.map_lookup(value, pa.scalar(step.key, value.type.key_type), "first")
        case "item":
            return element(value, step.key)
        case "array":
            assert isinstance(step.key, tuple)
            return element(value, step.key[0])
        case "tensor":
            assert isinstance(step.key, tuple)
            return _tensor_item(value, step.key)


def _insist_on_map(value: Any, step: k.Step) -> None:
    kind: k.Kind = "text" if isinstance(step.key, str) else "wide"
    fits = pa.types.is_map(value.type) and _holds(kind, value.type.key_type)
    _insist(fits, value, f"a map whose keys are {'text' if kind == 'text' else 'integers'}")


def contains(value: Any, step: k.Step) -> Any:
    """Whether each map has an entry with a key, be its value NULL; NULL where there is no map."""
    if pa.types.is_null(value.type):
        return pc.cast(value, pa.bool_())
    _insist_on_map(value, step)
    found = pc.is_valid(pc.map_lookup(value, pa.scalar(step.key, value.type.key_type), "all"))
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def _insist(fits: bool, value: Any, needed: str) -> None:
    if not fits:
        raise WrongColumn(f"the batch has {value.type} where {needed} is needed")


def _insist_on_list(value: Any) -> None:
    kind = value.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    _insist(is_list, value, "a list")


def _holds(kind: k.Kind, found: Any) -> bool:
    """Whether an Arrow type has values of a kind, so that nothing but the encoding is left to cast."""
    match kind:
        case "bool":
            fits = pa.types.is_boolean(found)
        case "int":
            fits = pa.types.is_integer(found) and found != pa.uint64()
        case "wide":
            fits = pa.types.is_integer(found) or (pa.types.is_decimal(found) and found.scale == 0)
        case "decimal":
            fits = pa.types.is_decimal(found)
        case "float":
            fits = pa.types.is_floating(found)
        case "text" | "uuid":
            fits = (
                pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
            )
        case "bytes":
            fits = pa.types.is_binary(found) or pa.types.is_large_binary(found)
            fits = fits or pa.types.is_binary_view(found) or pa.types.is_fixed_size_binary(found)
        case "datetime":
            fits = pa.types.is_timestamp(found) and found.tz is not None
        case "date":
            fits = pa.types.is_date(found)
        case _:
            fits = True
    return bool(fits)


def element(value: Any, position: Any) -> Any:
    """The element of each list at a position (one number, or one per row); NULL where there is none."""
    _insist_on_list(value)
    rows = len(value)
    if pa.types.is_fixed_size_list(value.type):
        size = value.type.list_size
        starts = (np.arange(rows, dtype=np.int64) + value.offset) * size
        sizes = np.full(rows, size, dtype=np.int64)
    else:
        offsets = np.asarray(value.offsets).astype(np.int64)
        starts, sizes = offsets[:-1], np.diff(offsets)
    positions = np.broadcast_to(np.asarray(position, dtype=np.int64), rows)
    there = np.asarray(pc.is_valid(value)) & (positions >= 0) & (positions < sizes)
    places = pa.array(np.where(there, starts + positions, 0), mask=~there)
    return value.values.take(places)


def _tensor_item(value: Any, positions: tuple[int, ...]) -> Any:
    # Row-major: each further dimension multiplies what came before by its size.
    shape, data = _field(value, "shape"), _field(value, "data")
    inside = np.asarray(pc.fill_null(pc.equal(pc.list_value_length(shape), len(positions)), False))
    flat = np.zeros(len(value), dtype=np.int64)
    for dimension, position in enumerate(positions):
        sizes = np.asarray(pc.fill_null(pc.cast(element(shape, dimension), pa.int64()), 0))
        inside = inside & (position < sizes)
        flat = flat * sizes + position
    return element(data, np.where(inside, flat, -1))


def length(value: Any, of: k.Node) -> Any:
    """How many characters, bytes or elements."""
    if of.kind == "text":
        count = pc.utf8_length(value)
    elif of.kind == "bytes":
        count = pc.binary_length(value)
    elif pa.types.is_null(value.type):
        count = value
    elif of.kind == "map":
        _insist(pa.types.is_map(value.type), value, "a map")
        sizes = pa.array(np.diff(np.asarray(value.offsets).astype(np.int64)))
        count = pc.if_else(pc.is_valid(value), sizes, pa.scalar(None, pa.int64()))
    elif getattr(of, "rank", 1) is None:
        count = element(_field(value, "shape"), 0)
    else:
        _insist_on_list(value)
        sizes = pc.list_value_length(value)
        count = pc.if_else(pc.is_valid(value), sizes, pa.scalar(None, sizes.type))
    return pc.cast(count, pa.int64())


def _loaded(value: Any, node: k.Column) -> Any:
    if node.kind in ("list", "map", "other"):
        return value
    wanted = arrow_kind(node)
    found = value.type.value_type if pa.types.is_dictionary(value.type) else value.type
    _insist(_holds(node.kind, found) or pa.types.is_null(found), value, str(wanted))
    if node.load == "f32" and not pa.types.is_float32(value.type):
        value = pc.cast(value, pa.float32(), safe=False)
    if pa.types.is_timestamp(value.type) and value.type.unit == "ns":
        value = pc.floor_temporal(value, unit="microsecond")
    return value if value.type == wanted else pc.cast(value, wanted, safe=False)

"""Takes the value of a column out of a record batch: fields, elements, and what makes them values.

The layout is described in `heliograph.expr.schema`. Narrower or wider Arrow types than the expected ones are
cast: dictionaries and large strings to strings, unsigned integers and decimals to decimal(20, 0), and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from heliograph.expr import typed as k

KIND_TYPES: Final[dict[str, Any]] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "wide": pa.decimal128(20, 0),
    "float": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "datetime": pa.timestamp("us", "UTC"),
}
"""The Arrow type of each kind of value."""

HEADER_COLUMN: Final = "header"


def column(batch: Any, node: k.Column) -> Any:
    """The values of a column, one per row; KeyError with the name of a column that is not there."""
    first, *rest = node.steps
    name = str(first.key)
    value = _field(_top(batch, HEADER_COLUMN), name) if node.header else _top(batch, name)
    for step in rest:
        value = _step(value, step)
    return _loaded(value, node)


def _top(batch: Any, name: str) -> Any:
    position = batch.schema.get_field_index(name)
    if position < 0:
        raise KeyError(name)
    return batch.column(position)


def _field(value: Any, name: str) -> Any:
    position = value.type.get_field_index(name)
    if position < 0:
        raise KeyError(name)
    return pc.struct_field(value, [position])


def _step(value: Any, step: k.Step) -> Any:
    match step.how:
        case "field":
            return _field(value, str(step.key))
        case "map":
            return pc.map_lookup(value, pa.scalar(step.key, value.type.key_type), "first")
        case "item":
            return element(value, step.key)
        case "array":
            assert isinstance(step.key, tuple)
            return element(value, step.key[0])
        case "tensor":
            assert isinstance(step.key, tuple)
            return _tensor_item(value, step.key)


def element(value: Any, position: Any) -> Any:
    """The element of each list at a position (one number, or one per row); NULL where there is none."""
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
    elif getattr(of, "rank", 1) is None:
        count = element(_field(value, "shape"), 0)
    else:
        sizes = pc.list_value_length(value)
        count = pc.if_else(pc.is_valid(value), sizes, pa.scalar(None, sizes.type))
    return pc.cast(count, pa.int64())


def _loaded(value: Any, node: k.Column) -> Any:
    if node.kind in ("list", "other"):
        return value
    wanted = KIND_TYPES[node.kind]
    if node.load == "f32" and not pa.types.is_float32(value.type):
        value = pc.cast(value, pa.float32(), safe=False)
    if pa.types.is_timestamp(value.type) and value.type.unit == "ns":
        value = pc.floor_temporal(value, unit="microsecond")
    return value if value.type == wanted else pc.cast(value, wanted, safe=False)

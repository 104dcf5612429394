"""Columns of native bodies: every field stands at a fixed place, so numpy takes it from all bodies at once.

A reader of a type is given which bodies have a value, and at which offset. What has no fixed size is referred
to by two u32, its place in the body and its length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from heliograph.codec.columnar import body_bytes as made
from heliograph.codec.columnar.body_bytes import Bodies, insist
from heliograph.codec.columnar.columns import arrow_type
from heliograph.codec.native import has_references
from heliograph.model import field_types as ft
from heliograph.model.layout import LONG_DECIMAL, SCALAR_SIZES, size_and_align

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from heliograph.codec.columnar.body_bytes import Places
    from heliograph.model.formats import ByteOrder, Format

    Reader: TypeAlias = Callable[["_Native", Places, int], pa.Array]


class _Native:
    """Native bodies that are being read; readers are given numbers of some of them."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies = bodies
        self.sizes = bodies.ends - bodies.starts
        self.unused = self.sizes.copy()

    def referred(self, rows: Places, offset: int, order: ByteOrder) -> tuple[Places, Places]:
        """Where something begins and ends that these bodies refer to."""
        at = self.bodies.starts[rows] + offset
        places = self.bodies.numbers(at, f"{order}u4").astype(np.int64)
        lengths = self.bodies.numbers(at + 4, f"{order}u4").astype(np.int64)
        insist((places + lengths <= self.sizes[rows]).all())
        np.subtract.at(self.unused, rows, lengths)
        starts = self.bodies.starts[rows] + places
        return starts, starts + lengths


def native_decoder(fmt: Format) -> Callable[[Bodies, Collection[str]], dict[str, pa.Array]]:
    """What makes the named columns of native bodies."""
    readers = [(field.name, field.offset or 0, _reader(field.type, fmt.byte_order)) for field in fmt.fields]
    refers = has_references(fmt)

    def decode(bodies: Bodies, wanted: Collection[str]) -> dict[str, pa.Array]:
        native = _Native(bodies)
        insist((native.sizes >= fmt.size).all() if refers else (native.sizes == fmt.size).all())
        rows = np.arange(len(bodies))
        # All are read, because each says how much of its body nothing else may be in.
        found = {name: read(native, rows, offset) for name, offset, read in readers}
        insist((native.unused >= 0).all())
        return {name: array for name, array in found.items() if name in wanted}

    return decode


def _reader(kind: ft.FieldType, order: ByteOrder) -> Reader:
    match kind:
        case ft.Scalar(name="str" | "bytes"):
            return _text(arrow_type(kind, spark_safe=True), order)
        case ft.Scalar(name="uuid"):
            return _uuids
        case ft.Scalar(name=name):
            return _scalar(name, order)
        case ft.Decimal():
            return _decimals(kind, order)
        case ft.Enum():
            return _enum(kind, order)
        case ft.Optional(item=item):
            return _optional(item, order)
        case ft.NestedEvent(format=fmt):
            return _record(fmt, order)
        case ft.Array() if kind.fixed_count is not None:
            return _fixed_array(kind, order)
        case ft.Array():
            return _free_array(kind, order)
    raise AssertionError(kind)


def _scalar(name: ft.ScalarName, order: ByteOrder) -> Reader:
    arrow = arrow_type(ft.Scalar(name), spark_safe=True)
    code = {"bool": "u1", "datetime": "i8", "date": "i4"}.get(name) or f"{name[0]}{SCALAR_SIZES[name]}"

    def read(native: _Native, rows: Places, offset: int) -> pa.Array:
        values = native.bodies.numbers(native.bodies.starts[rows] + offset, f"{order}{code}")
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        if name == "bool":
            return pa.array(values != 0)
        if name == "datetime":
            return made.times(values)
        if name == "date":
            return made.dates(values)
        return pa.array(values) if name in ft.FLOATS else made.integers(values, arrow)

    return read


def _decimals(kind: ft.Decimal, order: ByteOrder) -> Reader:
    arrow = arrow_type(kind)

    def read_short(native: _Native, rows: Places, offset: int) -> pa.Array:
        values = native.bodies.numbers(native.bodies.starts[rows] + offset, f"{order}i8")
        return made.short_decimals(values.astype(np.int64), arrow)

    def read_long(native: _Native, rows: Places, offset: int) -> pa.Array:
        data = native.bodies.rows(native.bodies.starts[rows] + offset, LONG_DECIMAL)
        return made.long_decimals(data if order == "<" else data[:, ::-1], arrow)

    return read_short if kind.is_short else read_long


def _uuids(native: _Native, rows: Places, offset: int) -> pa.Array:
    return made.uuids(native.bodies.rows(native.bodies.starts[rows] + offset, ft.UUID_SIZE))


def _text(kind: pa.DataType, order: ByteOrder) -> Reader:
    def read(native: _Native, rows: Places, offset: int) -> pa.Array:
        return made.texts(native.bodies, *native.referred(rows, offset, order), kind)

    return read


def _enum(kind: ft.Enum, order: ByteOrder) -> Reader:
    inner = _scalar("i64", order) if kind.base == "i64" else _text(pa.string(), order)

    def read(native: _Native, rows: Places, offset: int) -> pa.Array:
        array = inner(native, rows, offset)
        made.insist_on_members(kind, array.to_numpy() if kind.base == "i64" else array)
        return array

    return read


def _optional(item: ft.FieldType, order: ByteOrder) -> Reader:
    inner = _reader(item, order)
    _, align = size_and_align(item, "$", order)

    def read(native: _Native, rows: Places, offset: int) -> pa.Array:
        present = native.bodies.byte(native.bodies.starts[rows] + offset) != 0
        array = inner(native, rows[present], offset + align)
        return array if present.all() else made.spread(array, present)

    return read


def _record(fmt: Format, order: ByteOrder) -> Reader:
    readers = [(field.offset or 0, _reader(field.type, order)) for field in fmt.fields]
    kind = arrow_type(ft.NestedEvent(fmt), spark_safe=True)

    def read(native: _Native, rows: Places, offset: int) -> pa.Array:
        arrays = [inner(native, rows, offset + place) for place, inner in readers]
        return made.structs(arrays, kind, len(rows))

    return read


def _fixed_array(kind: ft.Array, order: ByteOrder) -> Reader:
    assert kind.shape is not None
    count = kind.fixed_count or 0
    size = count * SCALAR_SIZES[kind.item]
    shape = np.array(kind.shape, np.int64)

    def read(native: _Native, rows: Places, offset: int) -> pa.Array:
        starts = native.bodies.starts[rows] + offset
        _, data = native.bodies.gathered(starts, starts + size)
        ranks = np.full(len(rows), len(shape), np.int64)
        counts = np.full(len(rows), count, np.int64)
        return made.array_column(kind, data, order, counts, (ranks, np.tile(shape, len(rows))))

    return read


def _free_array(kind: ft.Array, order: ByteOrder) -> Reader:
    size = SCALAR_SIZES[kind.item]

    def read(native: _Native, rows: Places, offset: int) -> pa.Array:
        starts, ends = native.referred(rows, offset, order)
        insist((ends - starts >= 4).all())
        ranks = native.bodies.numbers(starts, f"{order}u4").astype(np.int64)
        insist((4 + 4 * ranks <= ends - starts).all())
        shapes = made.Shapes(kind, native.bodies, starts + 4, ranks, order)
        data_starts = starts + -(-(4 + 4 * ranks) // 8) * 8
        insist((data_starts + shapes.items * size == ends).all())
        _, data = native.bodies.gathered(data_starts, ends)
        return shapes.column(data, order)

    return read

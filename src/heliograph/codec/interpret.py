"""The interpreted decoder: reads a body value by value, looking up the format each time.

It is what the generated decoders are measured against and held equal to, and shares nothing with them but
the description of the format: it parses msgpack itself and unpacks native fields one at a time. Being slow
and careful it also knows where it is, so when a generated decoder fails, this one is asked for the path.
"""

from __future__ import annotations

import math
import struct
import typing
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

from heliograph.codec.any_values import MAX_DEPTH
from heliograph.codec.msgpack import MsgpackReader
from heliograph.errors import ROOT, DecodeError, InvalidEvent
from heliograph.model import field_types as ft
from heliograph.model.annotations import bare, strip_none
from heliograph.model.event import info_of
from heliograph.model.layout import SCALAR_SIZES, round_up, size_and_align

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.model.event import Event
    from heliograph.model.formats import ByteOrder, Field, Format

_MAX_DIMENSIONS: Final = 32
_EXACT: Final = Context(prec=100, traps=[Inexact])
_CODES: Final = {
    "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "f32": "f", "f64": "d", "bool": "?", "datetime": "q", "date": "i", "uuid": "16s",
}  # fmt: skip


def interpreted_decoder(wire: Format, cls: type[Event] | None) -> Callable[[Any], Any]:
    """Like `codec.decoder`, or `codec.mapping_decoder` without a class, but interpreted."""
    read = _read_packed if wire.body == "packed" else _read_native
    wanted = None if cls is None else info_of(cls).format

    def decode(body: Any) -> Any:
        mapping = read(wire, wanted, memoryview(body).toreadonly())
        return mapping if cls is None else build_event(mapping, cls)

    return decode


def build_event(mapping: dict[str, Any], cls: type[Event], path: str = ROOT) -> Event:
    """An event from the plain form of one that was written in a compatible format."""
    values: dict[str, Any] = {}
    for name, field in info_of(cls).fields.items():
        if name in mapping:
            values[name] = _fit(mapping[name], field.type, field.annotation, f"{path}.{name}")
    try:
        return cls(**values)
    except InvalidEvent as error:
        raise DecodeError(error.reason, path=path + error.path.removeprefix(ROOT)) from error
    except MemoryError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise DecodeError(f"the class {cls.__name__} refuses it: {reason}", path=path) from error


def _fit(value: Any, kind: ft.FieldType, annotation: Any, path: str) -> Any:
    match kind:
        case ft.Optional(item=item):
            return None if value is None else _fit(value, item, strip_none(annotation), path)
        case ft.NestedEvent():
            return build_event(value, bare(annotation), path)
        case ft.List(item=item):
            inner = typing.get_args(bare(annotation))[0]
            return [_fit(each, item, inner, f"{path}[{index}]") for index, each in enumerate(value)]
        case ft.Decimal(scale=scale):
            return Decimal(value).quantize(Decimal((0, (1,), -scale)), context=_EXACT)
        case ft.Map(key=key, value=item):
            of_key, of_value = typing.get_args(bare(annotation))
            return {
                _fit(name, key, of_key, path): _fit(each, item, of_value, f"{path}[{name!r}]")
                for name, each in value.items()
            }
        case ft.Enum():
            return bare(annotation)(value)
        case ft.Scalar(name="f32" | "f64"):
            return float(value)
        case ft.Array(item=item):
            return _fit_array(value, item)
        case _:
            return value


def _fit_array(array: Any, item: ft.ScalarName) -> Any:
    import numpy as np  # noqa: PLC0415 - numpy is for formats that have arrays

    wanted = _dtype(item, "=")
    if array.dtype != wanted:
        with np.errstate(invalid="ignore"):  # a NaN that signals becomes one that does not
            array = array.astype(wanted)
        array.flags.writeable = False
    return array


def _dtype(item: ft.ScalarName, order: str) -> Any:
    import numpy as np  # noqa: PLC0415 - numpy is for formats that have arrays

    return np.dtype("?" if item == "bool" else f"{order}{item[0]}{SCALAR_SIZES[item]}")


def _array(data: memoryview, item: ft.ScalarName, order: str, shape: tuple[int, ...]) -> Any:
    """A read-only view in this machine's byte order if the wire has it, else a converted copy."""
    import numpy as np  # noqa: PLC0415 - as above

    return _fit_array(np.frombuffer(data, _dtype(item, order)).reshape(shape), item)


def _check_shape(shape: tuple[int, ...], kind: ft.Array, path: str) -> None:
    wanted = kind.shape
    if len(shape) > _MAX_DIMENSIONS:
        raise DecodeError(f"{len(shape)} dimensions; at most {_MAX_DIMENSIONS} are allowed", path=path)
    if wanted is not None and (
        len(wanted) != len(shape) or any(n not in (None, got) for n, got in zip(wanted, shape, strict=True))
    ):
        raise DecodeError(f"shape {shape} where {kind} is declared", path=path)
    # Numpy refuses some shapes although a zero among the dimensions means that they need no bytes.
    if math.prod(max(n, 1) for n in shape) >= 1 << 60:
        raise DecodeError(f"shape {shape} is too large", path=path)


# What the receiver does not want is not looked at: only bytes that end too early are wrong in it.


def _is_wanted(field: Field, wanted: Format | None) -> bool:
    return wanted is None or field.name in wanted.by_name


def _reader_of(field: Field, wanted: Format | None) -> ft.FieldType | None:
    return None if wanted is None else wanted.by_name[field.name].type


def _record_of(reader: ft.FieldType | None) -> Format | None:
    inner = reader.item if isinstance(reader, ft.Optional) else reader
    return inner.format if isinstance(inner, ft.NestedEvent) else None


def _item_of(reader: ft.FieldType | None) -> ft.FieldType | None:
    inner = reader.item if isinstance(reader, ft.Optional) else reader
    if isinstance(inner, ft.Map):
        return inner.value
    return inner.item if isinstance(inner, ft.List) else None


# Packed


def _read_packed(wire: Format, wanted: Format | None, body: memoryview) -> dict[str, Any]:
    start, end = 0, len(body)
    if _has_arrays(wire):
        start, end = 4, 4 + int.from_bytes(body[:4], "little")
    # A body that ends too early is read as far as it goes, to learn in which field it ends.
    cursor = MsgpackReader(body[start:end])
    mapping = _Packed(cursor, body[round_up(end, 8) :]).record(wire, wanted, ROOT)
    cursor.expect_end(ROOT)
    if end > len(body):
        raise DecodeError(f"the body has {len(body)} bytes and should have at least {end}")
    return mapping


def _has_arrays(fmt: Format) -> bool:
    return any(_may_be_array(field.type) for field in fmt.fields)


def _may_be_array(kind: ft.FieldType) -> bool:
    match kind:
        case ft.Optional(item=item) | ft.List(item=item) | ft.Map(value=item):
            return _may_be_array(item)
        case ft.NestedEvent(format=fmt):
            return _has_arrays(fmt)
        case _:
            return isinstance(kind, ft.Array)


class _Packed:
    """A packed body that is being read: the msgpack, and the data of arrays behind it."""

    def __init__(self, cursor: MsgpackReader, arrays: memoryview) -> None:
        self._cursor = cursor
        self._arrays = arrays
        self._unused = len(arrays)

    def record(self, wire: Format, wanted: Format | None, path: str) -> dict[str, Any]:
        count = self._cursor.array_size(path)
        if count != len(wire.fields):
            raise DecodeError(
                f"a record of {count} fields where {wire.name!r} has {len(wire.fields)}", path=path
            )
        values: dict[str, Any] = {}
        for field in wire.fields:
            where = f"{path}.{field.name}"
            if _is_wanted(field, wanted):
                values[field.name] = self._value(field.type, _reader_of(field, wanted), where)
            else:
                self._cursor.skip(where)
        return values

    def _value(self, kind: ft.FieldType, reader: ft.FieldType | None, path: str) -> Any:
        match kind:
            case ft.Scalar(name=name):
                return self._cursor.scalar(name, path)
            case ft.Optional(item=item):
                return None if self._cursor.skip_nil(path) else self._value(item, reader, path)
            case ft.Enum(base=base):
                return _member(self._cursor.scalar(base, path), kind, path)
            case ft.NestedEvent(format=fmt):
                return self.record(fmt, _record_of(reader), path)
            case ft.List(item=item, length=length):
                count = self._cursor.array_size(path)
                if length not in (None, count):
                    raise DecodeError(f"a list of {count} where {kind} is declared", path=path)
                inner = _item_of(reader)
                return [self._value(item, inner, f"{path}[{index}]") for index in range(count)]
            case ft.Decimal():
                return _decimal(self._cursor.scalar("str", path), kind, path)
            case ft.Map():
                return self._map(kind, reader, path)
            case ft.Array():
                return self._array(self._cursor.scalar("bytes", path), kind, path)
            case ft.Anything():
                return self._cursor.anything(path, MAX_DEPTH)

    def _map(self, kind: ft.Map, reader: ft.FieldType | None, path: str) -> dict[Any, Any]:
        count = self._cursor.map_size(path)
        if count > ft.MAX_ENTRIES:
            raise DecodeError(f"{count} entries; a map holds at most {ft.MAX_ENTRIES}", path=path)
        inner = _item_of(reader)
        found: dict[Any, Any] = {}
        for _ in range(count):
            key = self._value(kind.key, None, path)
            found[key] = self._value(kind.value, inner, f"{path}[{key!r}]")
        return found

    def _array(self, descriptor: bytes, kind: ft.Array, path: str) -> Any:
        if len(descriptor) < 4 or len(descriptor) % 4:
            raise DecodeError(f"the place of an array in {len(descriptor)} bytes", path=path)
        place, *dimensions = struct.unpack(f"<{len(descriptor) // 4}I", descriptor)
        shape = tuple(dimensions)
        _check_shape(shape, kind, path)
        size = math.prod(shape) * SCALAR_SIZES[kind.item]
        self._unused -= size
        if place + size > len(self._arrays) or self._unused < 0:
            raise DecodeError(
                f"its {size} bytes at byte {place} are not there, or belong to other arrays", path=path
            )
        return _array(self._arrays[place : place + size], kind.item, "<", shape)


def _member(value: int | str, kind: ft.Enum, path: str) -> int | str:
    if value not in kind.values:
        raise DecodeError(f"{value!r} is no value of {kind}", path=path)
    return value


def _decimal(text: str, kind: ft.Decimal, path: str) -> Decimal:
    """Exactly as Python writes a number of the type's digits."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise DecodeError(f"{text[:40]!r} is no {kind}", path=path) from None
    _, digits, exponent = value.as_tuple()
    if exponent != -kind.scale or len(digits) > kind.precision or str(value) != text:
        raise DecodeError(f"{text[:40]!r} is no {kind}", path=path)
    return value


# Native


def _read_native(wire: Format, wanted: Format | None, body: memoryview) -> dict[str, Any]:
    if len(body) < wire.size:
        late = [field for field in wire.fields if _end_of(field.type, field.offset, wire) > len(body)]
        path = f"{ROOT}.{late[0].name}" if late else ROOT
        raise DecodeError(f"the body has {len(body)} bytes and should have {wire.size}", path=path)
    if len(body) > wire.size and not any(_is_reference(field.type) for field in wire.fields):
        raise DecodeError(f"the body has {len(body)} bytes and should have {wire.size}")
    return _Native(body, wire.byte_order).record(wire, wanted, 0, ROOT)


def _end_of(kind: ft.FieldType, offset: int | None, wire: Format) -> int:
    return (offset or 0) + size_and_align(kind, ROOT, wire.byte_order)[0]


def _is_reference(kind: ft.FieldType) -> bool:
    match kind:
        case ft.Optional(item=item):
            return _is_reference(item)
        case ft.NestedEvent(format=fmt):
            return any(_is_reference(field.type) for field in fmt.fields)
        case ft.Array():
            return kind.fixed_count is None
        case _:
            return kind in (ft.Scalar("str"), ft.Scalar("bytes")) or getattr(kind, "base", None) == "str"


class _Native:
    """A native body that is being read."""

    def __init__(self, body: memoryview, order: ByteOrder) -> None:
        self._body = body
        self._order = order
        self._unused = len(body)

    def record(self, wire: Format, wanted: Format | None, base: int, path: str) -> dict[str, Any]:
        return {
            field.name: self._value(
                field.type, _reader_of(field, wanted), base + (field.offset or 0), f"{path}.{field.name}"
            )
            for field in wire.fields
            if _is_wanted(field, wanted)
        }

    def _value(self, kind: ft.FieldType, reader: ft.FieldType | None, offset: int, path: str) -> Any:
        match kind:
            case ft.Scalar(name="str"):
                return _text(self._referred(offset, path), path)
            case ft.Scalar(name="bytes"):
                return bytes(self._referred(offset, path))
            case ft.Scalar(name="datetime"):
                return _moment(self._number("q", offset), path)
            case ft.Scalar(name="date"):
                return _day(self._number("i", offset), path)
            case ft.Scalar(name="uuid"):
                return UUID(bytes=self._number("16s", offset))
            case ft.Scalar(name=name):
                return self._number(_CODES[name], offset)
            case ft.Decimal():
                return self._decimal(kind, offset, path)
            case ft.Enum(base="str"):
                return _member(_text(self._referred(offset, path), path), kind, path)
            case ft.Enum():
                return _member(self._number("q", offset), kind, path)
            case ft.Optional(item=item):
                _, align = size_and_align(item, path, self._order)
                return self._value(item, reader, offset + align, path) if self._body[offset] else None
            case ft.NestedEvent(format=fmt):
                return self.record(fmt, _record_of(reader), offset, path)
            case ft.Array() if kind.fixed_count is not None and kind.shape is not None:
                shape = tuple(n for n in kind.shape if n is not None)
                size = kind.fixed_count * SCALAR_SIZES[kind.item]
                return _array(self._body[offset : offset + size], kind.item, self._order, shape)
            case ft.Array():
                return self._free_array(self._referred(offset, path), kind, path)
        raise AssertionError(kind)

    def _decimal(self, kind: ft.Decimal, offset: int, path: str) -> Decimal:
        size, _ = size_and_align(kind, path, self._order)
        order: Literal["little", "big"] = "little" if self._order == "<" else "big"
        number = int.from_bytes(self._body[offset : offset + size], order, signed=True)
        digits = str(abs(number))
        if len(digits) > kind.precision:
            raise DecodeError(f"{number} has more digits than {kind}", path=path)
        return Decimal((int(number < 0), tuple(map(int, digits)), -kind.scale))

    def _number(self, code: str, offset: int) -> Any:
        return struct.unpack_from(self._order + code, self._body, offset)[0]

    def _referred(self, offset: int, path: str) -> memoryview:
        place, length = struct.unpack_from(f"{self._order}2I", self._body, offset)
        self._unused -= length
        if place + length > len(self._body) or self._unused < 0:
            raise DecodeError(
                f"its {length} bytes at byte {place} are not there, or belong to other fields", path=path
            )
        return self._body[place : place + length]

    def _free_array(self, data: memoryview, kind: ft.Array, path: str) -> Any:
        if len(data) < 4:
            raise DecodeError(f"an array in {len(data)} bytes", path=path)
        (count,) = struct.unpack_from(f"{self._order}I", data)
        if count > _MAX_DIMENSIONS or 4 + 4 * count > len(data):
            raise DecodeError(f"{count} dimensions in {len(data)} bytes", path=path)
        shape = struct.unpack_from(f"{self._order}{count}I", data, 4)
        _check_shape(shape, kind, path)
        start = round_up(4 + 4 * count, 8)
        if start + math.prod(shape) * SCALAR_SIZES[kind.item] != len(data):
            raise DecodeError(f"{len(data)} bytes, which is not what shape {shape} needs", path=path)
        return _array(data[start:], kind.item, self._order, shape)


def _text(data: memoryview, path: str) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"no UTF-8 text: {error.reason}", path=path) from None


def _moment(microseconds: int, path: str) -> datetime:
    try:
        return ft.EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise DecodeError(
            f"{microseconds} µs since 1970 is no time in the years 1 to 9999", path=path
        ) from None


def _day(days: int, path: str) -> date:
    if not ft.FIRST_DAY <= days <= ft.LAST_DAY:
        raise DecodeError(f"{days} days since 1970 is no date in the years 1 to 9999", path=path)
    return date.fromordinal(ft.EPOCH_DAY + days)

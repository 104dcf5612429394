"""Where the bytes of a native body stand.

A native body is laid out as a C compiler would lay out a struct: each field aligned to its own size, in the
sender's byte order. What has no fixed size (text, bytes, arrays with a free dimension) stands behind the
fixed part and is referred to by two u32: offset from the start of the body, and length in bytes.

    i8 … u64, f32, f64       as in C
    bool                     1 byte, 0 or 1
    datetime                 i64, microseconds since 1970 in UTC
    date                     i32, days since 1970
    uuid                     16 bytes, the most significant first
    decimal                  its digits without the point as an integer with a sign: i64 up to 18 digits, else
                             16 bytes, aligned to 8
    enum                     i64, or as text
    str, bytes               reference
    optional                 1 byte (0: None), padding, then the value
    record                   inline; must be native in the same byte order
    array, fixed shape       inline
    array, free dimensions   reference to: u32 count of dimensions, the u32 dimensions, padding to 8, items

Lists, maps and `any` have no native form: use an array, or a packed body.
"""

from __future__ import annotations

from typing import Final

from heliograph.errors import FormatError
from heliograph.model import field_types as ft
from heliograph.model.formats import ByteOrder, Field, Format

REFERENCE_SIZE: Final = 8
REFERENCE_ALIGN: Final = 4
SCALAR_SIZES: Final[dict[str, int]] = {
    "bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4,
    "i64": 8, "u64": 8, "f32": 4, "f64": 8, "datetime": 8, "date": 4, "uuid": ft.UUID_SIZE,
}  # fmt: skip
LONG_DECIMAL: Final = 16
"""Bytes of a decimal that does not fit into eight."""
MAX_FIXED: Final = 1 << 26
"""The largest fixed part of a native body, in bytes; the same as the default limit of an event."""


def native_format(
    name: str, fields: list[tuple[str, ft.FieldType]], key: tuple[str, ...] = (), byte_order: ByteOrder = "<"
) -> Format:
    """A native format with these fields, each at its natural alignment."""
    placed: list[Field] = []
    end, align = 0, 1
    for field_name, kind in fields:
        size, own = size_and_align(kind, f"$.{field_name}", byte_order)
        start = round_up(end, own)
        placed.append(Field(field_name, kind, start))
        end, align = start + size, max(align, own)
    return Format(name, tuple(placed), key, "native", byte_order, round_up(end, align), align)


def size_and_align(kind: ft.FieldType, path: str, byte_order: ByteOrder) -> tuple[int, int]:
    """Bytes in the fixed part, and alignment; FormatError for what has no native form."""
    match kind:
        case ft.Scalar(name="str" | "bytes") | ft.Enum(base="str"):
            return REFERENCE_SIZE, REFERENCE_ALIGN
        case ft.Scalar(name="uuid"):
            return SCALAR_SIZES["uuid"], 1
        case ft.Scalar(name=name):
            return SCALAR_SIZES[name], SCALAR_SIZES[name]
        case ft.Decimal():
            return (8 if kind.is_short else LONG_DECIMAL), 8
        case ft.Enum():
            return 8, 8
        case ft.Optional(item=item):
            size, align = size_and_align(item, path, byte_order)
            return align + size, align
        case ft.NestedEvent(format=fmt):
            if fmt.body != "native" or fmt.byte_order != byte_order:
                raise FormatError(
                    f"a native record can hold only native records in its own byte order, "
                    f"and {fmt.name!r} is {fmt.body}",
                    path=path,
                )
            return fmt.size, fmt.align
        case ft.Array(item=scalar):
            count = kind.fixed_count
            if count is None:
                return REFERENCE_SIZE, REFERENCE_ALIGN
            return SCALAR_SIZES[scalar] * count, SCALAR_SIZES[scalar]
        case ft.Map():
            raise FormatError(
                f"{kind} has no native form, for it has no fixed size and no order of entries; use "
                "body='packed', or a field for each key",
                path=path,
            )
        case ft.List() | ft.Anything():
            raise FormatError(f"{kind} has no native form; use an array, or body='packed'", path=path)


def round_up(n: int, align: int) -> int:
    return -(-n // align) * align


def check_layout(fmt: Format, path: str) -> None:
    """Refuse a description whose fields overlap or leave its fixed part. Gaps are fine."""
    if fmt.body == "packed":
        if fmt.size != 0 or fmt.align != 1 or any(field.offset is not None for field in fmt.fields):
            raise FormatError("a packed body has no offsets, size 0 and alignment 1", path=path)
        return
    if fmt.size > MAX_FIXED:
        raise FormatError(
            f"a fixed part of {fmt.size} bytes is not possible: at most {MAX_FIXED} are allowed; "
            "leave a dimension free, or choose body='packed'",
            path=path,
        )
    if fmt.size < 0 or fmt.align not in (1, 2, 4, 8) or fmt.size % fmt.align:
        raise FormatError(f"size {fmt.size} or alignment {fmt.align} is not possible", path=path)
    spans: list[tuple[int, int, str]] = []
    for field in fmt.fields:
        where = f"{path}.{field.name}"
        if field.offset is None:
            raise FormatError("a field of a native body needs an offset", path=where)
        size, _ = size_and_align(field.type, where, fmt.byte_order)
        if field.offset < 0 or field.offset + size > fmt.size:
            raise FormatError(
                f"offset {field.offset} is outside the fixed part of {fmt.size} bytes", path=where
            )
        spans.append((field.offset, field.offset + size, where))
    occupied = 0
    for start, stop, where in sorted(spans):
        if start < occupied and stop > start:
            raise FormatError("overlaps another field", path=where)
        occupied = max(occupied, stop)

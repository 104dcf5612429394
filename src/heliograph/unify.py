"""One format that has room for the events of several: the columns of a channel whose event class has changed.

    unified([hg.format_of(TrackV1), hg.format_of(TrackV2)])

Fields are matched by name. A field has the smallest type that all its types widen to, as in
`heliograph.evolution`; a field that some formats lack becomes optional. Enums that differ become the plain
type of their values. Types that nothing can hold together are refused with both of them named.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, cast

from heliograph import fieldtypes as ft
from heliograph.errors import ROOT, FormatError
from heliograph.evolution import holds_array, split_optional, widens
from heliograph.formats import Field, Format

if TYPE_CHECKING:
    from collections.abc import Sequence

_SMALLEST_FIRST: Final = cast(
    "tuple[ft.ScalarName, ...]", ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64")
)


def unified(formats: Sequence[Format]) -> Format:
    """A packed format for the events of all these; FormatError names a field that cannot hold them all."""
    if not formats:
        raise FormatError("unifying needs at least one format")
    return reduce(lambda a, b: _join(a, b, ROOT), formats, _packed(formats[0]))


def _packed(fmt: Format) -> Format:
    return Format(fmt.name, tuple(Field(field.name, field.type) for field in fmt.fields), fmt.key)


def _join(a: Format, b: Format, path: str) -> Format:
    fields = []
    for name in {**a.by_name, **b.by_name}:
        left, right = a.by_name.get(name), b.by_name.get(name)
        if left and right:
            kind = _common(left.type, right.type, f"{path}.{name}")
        else:
            kind = _optional((left or right).type)  # type: ignore[union-attr]  # the name came from one of them
        fields.append(Field(name, kind))
    return Format(a.name, tuple(fields), a.key if a.key == b.key else ())


def _optional(kind: ft.FieldType) -> ft.FieldType:
    return kind if isinstance(kind, ft.Optional | ft.Anything) else ft.Optional(kind)


def _common(a: ft.FieldType, b: ft.FieldType, path: str) -> ft.FieldType:
    if a == b:
        return a
    left, left_none = split_optional(a)
    right, right_none = split_optional(b)
    kind = _common_item(left, right, path)
    if kind is None:
        raise FormatError(f"the types {a} and {b} have no common one; rename one of the fields", path=path)
    return _optional(kind) if left_none or right_none else kind


def _common_item(a: ft.FieldType, b: ft.FieldType, path: str) -> ft.FieldType | None:
    match a, b:
        case _ if a == b:
            return a
        case ft.Scalar(), ft.Scalar():
            name = _common_scalar(a.name, b.name)
            return ft.Scalar(name) if name else None
        case ft.Enum(), ft.Enum() if a.base == b.base:
            return ft.Scalar(a.base)
        case (ft.Enum(base=base), ft.Scalar(name=name)) | (ft.Scalar(name=name), ft.Enum(base=base)):
            common = _common_scalar(base, name)
            return ft.Scalar(common) if common == base else None
        case ft.Record(), ft.Record():
            return ft.Record(_join(a.format, b.format, path))
        case ft.List(), ft.List():
            length = a.length if a.length == b.length else None
            return ft.List(_common(a.item, b.item, f"{path}[]"), length)
        case ft.Array(), ft.Array():
            name = _common_scalar(a.item, b.item)
            return ft.Array(name, _common_shape(a.shape, b.shape)) if name else None
        case (ft.Anything(), other) | (other, ft.Anything()):
            return None if holds_array(other) else ft.Anything()
        case _:
            return None


def _common_scalar(a: ft.ScalarName, b: ft.ScalarName) -> ft.ScalarName | None:
    if a == b:
        return a
    return next((c for c in _SMALLEST_FIRST if widens(a, c) and widens(b, c)), None)


def _common_shape(
    a: tuple[int | None, ...] | None, b: tuple[int | None, ...] | None
) -> tuple[int | None, ...] | None:
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(n if n == m else None for n, m in zip(a, b, strict=True))

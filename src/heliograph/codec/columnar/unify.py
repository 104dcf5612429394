"""One format that holds the events of several: the columns of a channel whose event class has changed.

    unified([hg.format_of(TrackV1), hg.format_of(TrackV2)])

Fields are matched by name. A field has the smallest type that all its types widen to, as in
`heliograph.model.compatibility`; a field that some formats lack becomes optional. Enums that differ become
the plain type of their values. Types that nothing can hold together are refused with all of them named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from heliograph.errors import ROOT, FormatError
from heliograph.errors.sentences import listed
from heliograph.model import field_types as ft
from heliograph.model.compatibility import split_optional, widens
from heliograph.model.formats import Field, Format

if TYPE_CHECKING:
    from collections.abc import Sequence

K = TypeVar("K")

_SMALLEST_FIRST: Final = cast(
    "tuple[ft.ScalarName, ...]", ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64")
)


def unified(formats: Sequence[Format]) -> Format:
    """A packed format for the events of all these; FormatError names a field that cannot hold them all.

    Names and the order of fields are those of the first format that has them; types do not depend on order.
    """
    if not formats:
        raise FormatError("unifying needs at least one format")
    return _joined(formats, ROOT)


def _joined(formats: Sequence[Format], path: str) -> Format:
    kinds: dict[str, list[ft.FieldType]] = {}
    for fmt in formats:
        for field in fmt.fields:
            kinds.setdefault(field.name, []).append(field.type)
    fields = []
    for name, found in kinds.items():
        kind = _common(found, f"{path}.{name}")
        fields.append(Field(name, kind if len(found) == len(formats) else _optional(kind)))
    keys = {fmt.key for fmt in formats}
    return Format(formats[0].name, tuple(fields), formats[0].key if len(keys) == 1 else ())


def _optional(kind: ft.FieldType) -> ft.FieldType:
    return kind if isinstance(kind, ft.Optional | ft.Anything) else ft.Optional(kind)


def _common(kinds: Sequence[ft.FieldType], path: str) -> ft.FieldType:
    """The smallest type for all of them. Joining them two by two would depend on their order."""
    different = list(dict.fromkeys(kinds))
    if len(different) == 1:
        return different[0]
    items, nullable = zip(*map(split_optional, different), strict=True)
    common = _common_item(list(dict.fromkeys(items)), path)
    if common is None:
        names = listed(different, joint=" and ")
        raise FormatError(f"the types {names} have no common one; rename one of the fields", path=path)
    return _optional(common) if any(nullable) else common


def _common_item(kinds: Sequence[ft.FieldType], path: str) -> ft.FieldType | None:
    if len(kinds) == 1:
        return kinds[0]
    if any(isinstance(kind, ft.Anything) for kind in kinds):
        return ft.Anything() if all(map(ft.fits_any, kinds)) else None
    if records := _all_of(ft.NestedEvent, kinds):
        return ft.NestedEvent(_joined([record.format for record in records], path))
    if lists := _all_of(ft.List, kinds):
        lengths = {one.length for one in lists}
        return ft.List(
            _common([one.item for one in lists], f"{path}[]"), lengths.pop() if len(lengths) == 1 else None
        )
    if maps := _all_of(ft.Map, kinds):
        key = _common_plain(list(dict.fromkeys(one.key for one in maps)))
        return None if key is None else ft.Map(key, _common([one.value for one in maps], f"{path}[]"))
    if any(isinstance(kind, ft.Decimal) for kind in kinds):
        return _common_decimal(kinds)
    if arrays := _all_of(ft.Array, kinds):
        name = _common_scalar([array.item for array in arrays])
        return ft.Array(name, _common_shape([array.shape for array in arrays])) if name else None
    return _common_plain(kinds)


def _common_decimal(kinds: Sequence[ft.FieldType]) -> ft.Decimal | None:
    found = [ft.decimal_for(kind) for kind in kinds]
    decimals = [kind for kind in found if kind is not None]
    whole, scale = max(one.whole_digits for one in decimals), max(one.scale for one in decimals)
    fits = len(decimals) == len(found) and whole + scale <= ft.MAX_DIGITS
    return ft.Decimal(whole + scale, scale) if fits else None


def _all_of(cls: type[K], kinds: Sequence[ft.FieldType]) -> list[K]:
    """All the types, if they are of this class; else none."""
    found: list[Any] = [kind for kind in kinds if isinstance(kind, cls)]
    return found if len(found) == len(kinds) else []


def _common_plain(kinds: Sequence[ft.FieldType]) -> ft.Scalar | ft.Enum | None:
    """For scalars and enums. What an enum widens to is the type of its values and no other."""
    if len(kinds) == 1 and isinstance(kinds[0], ft.Scalar | ft.Enum):
        return kinds[0]
    names: list[ft.ScalarName] = []
    bases = set()
    for kind in kinds:
        if isinstance(kind, ft.Scalar):
            names.append(kind.name)
        elif isinstance(kind, ft.Enum):
            names.append(kind.base)
            bases.add(kind.base)
        else:
            return None
    common = _common_scalar(names)
    return None if common is None or bases - {common} else ft.Scalar(common)


def _common_scalar(names: Sequence[ft.ScalarName]) -> ft.ScalarName | None:
    if len(set(names)) == 1:
        return names[0]
    return next((wide for wide in _SMALLEST_FIRST if all(widens(name, wide) for name in names)), None)


def _common_shape(shapes: Sequence[tuple[int | None, ...] | None]) -> tuple[int | None, ...] | None:
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or len({len(shape) for shape in known}) > 1:
        return None
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*known, strict=True))

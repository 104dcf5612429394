"""From the annotations of an event class to field types.

Allowed are `int`, `float`, `str`, `bytes`, `bool`, `Decimal`, `datetime`, `date`, `UUID`, the widths (`hg.i8`
… `hg.u64`, `hg.f32`), `T | None`, enums over int or str, nested event classes, `list[T]`, `dict[K, T]`, numpy
arrays and `hg.Any`:

    temperature: hg.f32
    price: Annotated[Decimal, hg.Digits(18, 4)]                   # 18 digits, 4 of them behind the point
    attributes: dict[str, str]                                    # keys are text, integers or an enum
    samples: NDArray[np.float64]                                  # any shape
    pose: Annotated[NDArray[np.float64], hg.Shape(4, 4)]          # exactly 4 x 4
    cloud: Annotated[NDArray[np.float32], hg.Shape(None, 3)]      # any number of points
    rgb: Annotated[list[hg.u8], hg.Length(3)]

A bare `Decimal` has 38 digits, 18 of them behind the point, as Spark takes it to have. These are plain
`Annotated` types, which every type checker accepts. Numpy is recognised without importing it.
"""

from __future__ import annotations

import enum
import types
import typing
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, TypeAlias, cast
from uuid import UUID

import msgspec

from heliograph.errors import FormatError
from heliograph.model import field_types as ft
from heliograph.model.formats import MAX_DEPTH, checked_enum, is_digits, is_dimension

ALLOWED: Final = (
    "int, float, str, bytes, bool, Decimal, datetime, date, UUID, hg.i8 to hg.u64, hg.f32, T | None, "
    "an Enum over int or str, a nested hg.Event class, list[T], dict[K, T], numpy NDArray[...] and hg.Any"
)


class Width(msgspec.Struct, frozen=True):
    """Marks an int or float that has a narrower or unsigned form on the wire."""

    name: ft.ScalarName


class Shape:
    """The dimensions of an array field; None leaves one free."""

    def __init__(self, *dimensions: int | None) -> None:
        if not 1 <= len(dimensions) <= MAX_DEPTH or any(
            n is not None and not is_dimension(n) for n in dimensions
        ):
            raise FormatError(
                f"Shape takes 1 to {MAX_DEPTH} dimensions, each a size or None, not {dimensions}"
            )
        self.dimensions = dimensions

    def __repr__(self) -> str:
        return f"Shape({', '.join(map(str, self.dimensions))})"


class Length(msgspec.Struct, frozen=True):
    """The exact length of a list field."""

    items: int


class Digits(msgspec.Struct, frozen=True):
    """How many digits a decimal field has, and how many of them stand behind the point."""

    precision: int
    scale: int = 0

    def __post_init__(self) -> None:
        if not is_digits(self.precision, self.scale):
            raise FormatError(
                f"Digits takes a precision of 1 to {ft.MAX_DIGITS} and a scale of 0 to the precision, "
                f"not {self.precision!r} and {self.scale!r}"
            )


BARE_DIGITS: Final = Digits(38, 18)
"""Of a bare `Decimal`."""

i8: TypeAlias = Annotated[int, Width("i8")]
i16: TypeAlias = Annotated[int, Width("i16")]
i32: TypeAlias = Annotated[int, Width("i32")]
i64: TypeAlias = Annotated[int, Width("i64")]
u8: TypeAlias = Annotated[int, Width("u8")]
u16: TypeAlias = Annotated[int, Width("u16")]
u32: TypeAlias = Annotated[int, Width("u32")]
u64: TypeAlias = Annotated[int, Width("u64")]
f32: TypeAlias = Annotated[float, Width("f32")]
f64: TypeAlias = Annotated[float, Width("f64")]

_PLAIN: Final[dict[object, ft.ScalarName]] = {
    int: "i64",
    float: "f64",
    str: "str",
    bytes: "bytes",
    bool: "bool",
    datetime: "datetime",
    date: "date",
    UUID: "uuid",
}
_NUMPY_ITEMS: Final[dict[str, ft.ScalarName]] = {
    "bool": "bool",
    "bool_": "bool",
    **{
        f"{'u' * (sign == 'u')}int{bits}": cast("ft.ScalarName", f"{sign}{bits}")
        for sign in "iu"
        for bits in (8, 16, 32, 64)
    },
    "float32": "f32",
    "float64": "f64",
}


def field_type(annotation: Any, path: str) -> ft.FieldType:
    """The type an annotation stands for; FormatError names the path and what is allowed."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _annotated(annotation, path)
    if annotation is Any:
        return ft.Anything()
    if isinstance(annotation, type) and origin is None:
        return _plain_class(annotation, path)
    if origin is list:
        return ft.List(field_type(typing.get_args(annotation)[0], f"{path}[]"))
    if origin is dict:
        return _map(annotation, path)
    if origin in (typing.Union, types.UnionType):
        return _optional(annotation, path)
    if _is_ndarray(origin):
        return ft.Array(_array_item(annotation, path))
    raise _not_allowed(annotation, path)


def wire_annotation(annotation: Any, kind: ft.FieldType) -> Any:
    """The annotation with its bounds written out, so that msgspec itself refuses what is out of range."""
    match kind:
        case ft.Scalar(name="u64"):
            return Annotated[int, msgspec.Meta(ge=0)]
        case ft.Scalar(name=name) if name in ft.INTEGER_RANGES:
            low, high = ft.INTEGER_RANGES[name]
            return Annotated[int, msgspec.Meta(ge=low, le=high)]
        case ft.Scalar(name="datetime"):
            return Annotated[datetime, msgspec.Meta(tz=True)]
        case ft.Scalar(name="f32"):
            return float
        case ft.Optional(item=item):
            return wire_annotation(strip_none(annotation), item) | None
        case ft.List(item=item, length=length):
            inner: Any = types.GenericAlias(list, wire_annotation(typing.get_args(bare(annotation))[0], item))
            return (
                inner
                if length is None
                else Annotated[inner, msgspec.Meta(min_length=length, max_length=length)]
            )
        case ft.Map(key=key, value=value):
            arguments = zip(typing.get_args(bare(annotation)), (key, value), strict=True)
            both = tuple(wire_annotation(each, part) for each, part in arguments)
            return Annotated[types.GenericAlias(dict, both), msgspec.Meta(max_length=ft.MAX_ENTRIES)]
        case _:
            return bare(annotation)


def _annotated(annotation: Any, path: str) -> ft.FieldType:
    inner_type, *marks = typing.get_args(annotation)
    for mark in marks:
        match mark:
            case Width(name=name):
                if inner_type is not (float if name in ft.FLOATS else int):
                    raise FormatError(f"{name} does not go with {_text(inner_type)}", path=path)
                return ft.Scalar(name)
            case Digits(precision=precision, scale=scale):
                if inner_type is not Decimal:
                    raise FormatError(
                        f"Digits goes with decimal.Decimal only, not {_text(inner_type)}", path=path
                    )
                return ft.Decimal(precision, scale)
            case Shape():
                if not _is_ndarray(typing.get_origin(inner_type)):
                    raise FormatError("Shape goes with a numpy NDArray only", path=path)
                return ft.Array(_array_item(inner_type, path), mark.dimensions)
            case Length(items=items):
                inner = field_type(inner_type, path)
                if not isinstance(inner, ft.List) or not is_dimension(items):
                    raise FormatError(
                        f"Length goes with a list only, is not negative and below 2**31, not {items!r}",
                        path=path,
                    )
                return ft.List(inner.item, items)
    return field_type(inner_type, path)


def _plain_class(cls: type, path: str) -> ft.FieldType:
    if cls in _PLAIN:
        return ft.Scalar(_PLAIN[cls])
    if cls is Decimal:
        return ft.Decimal(BARE_DIGITS.precision, BARE_DIGITS.scale)
    info = cls.__dict__.get("__event_info__")
    if info is not None:
        return ft.NestedEvent(info.format)
    if issubclass(cls, enum.Enum):
        return _enum(cls, path)
    if cls is list:
        raise FormatError("list needs the type of its items, such as list[float]", path=path)
    if cls is dict:
        raise FormatError("dict needs the types of its keys and values, such as dict[str, float]", path=path)
    if _is_ndarray(cls):
        raise FormatError("an array needs the type of its items, such as NDArray[np.float64]", path=path)
    raise _not_allowed(cls, path)


def _map(annotation: Any, path: str) -> ft.Map:
    of_key, of_value = typing.get_args(annotation)
    key = field_type(of_key, f"{path}[key]")
    if not ft.is_map_key(key):
        raise FormatError(
            f"the keys of a map are str, integers or an enum, not {key}, "
            "so that every engine finds an entry by the same key",
            path=path,
        )
    return ft.Map(cast("ft.Scalar | ft.Enum", key), field_type(of_value, f"{path}[]"))


def _enum(cls: type[enum.Enum], path: str) -> ft.Enum:
    members = tuple((name, member.value) for name, member in cls.__members__.items())
    if not members or issubclass(cls, enum.Flag):
        raise FormatError(f"enum {cls.__name__} needs members and cannot be a Flag", path=path)
    if all(type(value) is str for _, value in members):
        return checked_enum(cls.__name__, "str", members, path)
    low, high = ft.INTEGER_RANGES["i64"]
    if all(type(value) is int and low <= value <= high for _, value in members):
        return checked_enum(cls.__name__, "i64", members, path)
    raise FormatError(f"enum {cls.__name__} must have values that are all str or all 64-bit int", path=path)


def _optional(annotation: Any, path: str) -> ft.FieldType:
    inner = strip_none(annotation)
    if inner is annotation:
        raise FormatError(f"a union is allowed only with None, not {_text(annotation)}", path=path)
    kind = field_type(inner, path)
    # `hg.Any | None` is what hg.Any already is.
    return kind if isinstance(kind, ft.Anything | ft.Optional) else ft.Optional(kind)


def strip_none(annotation: Any) -> Any:
    """`T` for `T | None`; the annotation itself when it is no such union."""
    options = typing.get_args(bare(annotation))
    rest = [option for option in options if option is not types.NoneType]
    return rest[0] if len(rest) == 1 and len(options) == 2 else annotation


def bare(annotation: Any) -> Any:
    """The annotation without its `Annotated` marks."""
    while typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation


def _is_ndarray(cls: object) -> bool:
    return isinstance(cls, type) and cls.__module__ == "numpy" and cls.__name__ == "ndarray"


def _array_item(annotation: Any, path: str) -> ft.ScalarName:
    args = typing.get_args(annotation)
    items = typing.get_args(args[1]) if len(args) == 2 else ()
    name = getattr(items[0], "__name__", "") if items else ""
    if name not in _NUMPY_ITEMS:
        allowed = ", ".join(sorted(set(_NUMPY_ITEMS) - {"bool_"}))
        raise FormatError(f"an array holds one of {allowed}, not {_text(annotation)}", path=path)
    return _NUMPY_ITEMS[name]


def _not_allowed(annotation: Any, path: str) -> FormatError:
    return FormatError(f"{_text(annotation)} is no type for a field; allowed are {ALLOWED}", path=path)


def _text(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)

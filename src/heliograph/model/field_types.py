"""The types a field can have, as plain data.

A type here is what travels in a format description: it knows nothing of Python classes, so that a program
that never saw the class can still work with the events. `heliograph.model.event` makes these from
annotations; codec, filters and columns are made from these.

    i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 bool str bytes datetime
    date uuid                                                          Scalar
    Optional(item)                                                     the value or None
    Enum(name, base, members)                                          named values of i64 or str
    NestedEvent(format)                                                a nested event
    Decimal(precision, scale)                                          exact, of so many digits
    List(item, length)                                                 length None: any
    Map(key, value)                                                    `dict`; keys: text, integers, enums
    Array(item, shape)                                                 numpy; None: any dimension or shape
    Anything()                                                         schema-less nested data (`hg.Any`)
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, Union

import msgspec

if TYPE_CHECKING:
    from heliograph.model.formats import Format

ScalarName: TypeAlias = Literal[
    "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "bool", "str", "bytes", "datetime",
    "date", "uuid",
]  # fmt: skip

INTEGER_RANGES: Final[dict[str, tuple[int, int]]] = {
    f"{sign}{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) if sign == "i" else (0, (1 << bits) - 1)
    for sign in "iu"
    for bits in (8, 16, 32, 64)
}
"""Smallest and largest value of each integer type."""

FLOATS: Final = frozenset({"f32", "f64"})
NUMBERS: Final = frozenset(INTEGER_RANGES) | FLOATS
SCALARS: Final = NUMBERS | {"bool", "str", "bytes", "datetime", "date", "uuid"}
ARRAY_ITEMS: Final = NUMBERS | {"bool"}
"""What a numpy array field can hold."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Where times are counted from, in bodies, columns and headers."""
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
"""The number that Python has for the day from which dates are counted."""
FIRST_DAY: Final = date.min.toordinal() - EPOCH_DAY
LAST_DAY: Final = date.max.toordinal() - EPOCH_DAY
"""Of the years 1 and 9999, counted from 1970."""
UUID_SIZE: Final = 16
MAX_DIGITS: Final = 38
"""The most digits of a decimal, as in SQL engines, Arrow and Parquet: they fit into sixteen bytes."""
SHORT_DIGITS: Final = 18
"""As many digits always fit into eight bytes."""
MAX_ENTRIES: Final = 65_536
"""The most entries of one map."""


class Scalar(msgspec.Struct, frozen=True):
    """One plain value."""

    name: ScalarName

    def __str__(self) -> str:
        return self.name


class Optional(msgspec.Struct, frozen=True):
    """The value or None."""

    item: FieldType

    def __str__(self) -> str:
        return f"{self.item} | None"


class Enum(msgspec.Struct, frozen=True, dict=True):
    """Named values; the value travels, not the name."""

    name: str
    base: Literal["i64", "str"]
    members: tuple[tuple[str, int | str], ...]

    def __str__(self) -> str:
        return f"enum {self.name}"

    @cached_property
    def values(self) -> frozenset[int | str]:
        return frozenset(value for _, value in self.members)


class NestedEvent(msgspec.Struct, frozen=True):
    """A nested event."""

    format: Format

    def __str__(self) -> str:
        return f"record {self.format.name}"


class Decimal(msgspec.Struct, frozen=True):
    """A number with so many decimal digits, of which so many stand behind the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"

    @property
    def whole_digits(self) -> int:
        """Digits before the point."""
        return self.precision - self.scale

    @property
    def is_short(self) -> bool:
        """Whether its digits fit into eight bytes; others take sixteen."""
        return self.precision <= SHORT_DIGITS


class Map(msgspec.Struct, frozen=True):
    """Values by key, at most `MAX_ENTRIES` of them."""

    key: Scalar | Enum
    value: FieldType

    def __str__(self) -> str:
        return f"map[{self.key}, {self.value}]"


class List(msgspec.Struct, frozen=True):
    """A list; with a length, exactly that many."""

    item: FieldType
    length: int | None = None

    def __str__(self) -> str:
        return f"list[{self.item}]" if self.length is None else f"list[{self.item}; {self.length}]"


class Array(msgspec.Struct, frozen=True):
    """A numpy array. A dimension of None, or a shape of None, is free and travels with the event."""

    item: ScalarName
    shape: tuple[int | None, ...] | None = None

    def __str__(self) -> str:
        if self.shape is None:
            return f"array[{self.item}]"
        return f"array[{self.item}; {', '.join('any' if n is None else str(n) for n in self.shape)}]"

    @property
    def fixed_count(self) -> int | None:
        """How many items it holds when every dimension is fixed, else None."""
        if self.shape is None:
            return None
        count = 1
        for n in self.shape:
            if n is None:
                return None
            count *= n
        return count

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape is one of these."""
        wanted = self.shape
        return (
            wanted is None
            or wanted == shape
            or (
                len(wanted) == len(shape)
                and all(n is None or n == got for n, got in zip(wanted, shape, strict=True))
            )
        )


class Anything(msgspec.Struct, frozen=True):
    """Data without a schema: None, bool, int, float, str, bytes, datetime, lists, maps with text keys."""

    def __str__(self) -> str:
        return "any"


FieldType: TypeAlias = Union[
    "Scalar", "Decimal", "Optional", "Enum", "NestedEvent", "List", "Map", "Array", "Anything"
]


def is_map_key(kind: FieldType) -> bool:
    """Whether values of a type can be the keys of a map."""
    return isinstance(kind, Enum) or (
        isinstance(kind, Scalar) and (kind.name == "str" or kind.name in INTEGER_RANGES)
    )


def decimal_for(kind: FieldType) -> Decimal | None:
    """The decimal that holds every value of an integer or decimal type; None for other types."""
    if isinstance(kind, Scalar) and kind.name in INTEGER_RANGES:
        return Decimal(len(str(INTEGER_RANGES[kind.name][1])), 0)
    return kind if isinstance(kind, Decimal) else None


def fits_any(kind: FieldType) -> bool:
    """Whether `hg.Any` holds every value of a type as it is, also inside of it."""
    match kind:
        case Optional(item=item) | List(item=item):
            return fits_any(item)
        case NestedEvent(format=fmt):
            return all(fits_any(field.type) for field in fmt.fields)
        case Map(key=key, value=value):
            return (key == Scalar("str") or getattr(key, "base", None) == "str") and fits_any(value)
        case Scalar(name=name):
            return name not in ("date", "uuid")
        case _:
            return not isinstance(kind, Array | Decimal)


def holds(kind: FieldType, wanted: type) -> bool:
    """Whether a type is, or has anywhere inside, a type of that kind."""
    match kind:
        case Optional(item=item) | List(item=item):
            return isinstance(kind, wanted) or holds(item, wanted)
        case Map(key=key, value=value):
            return isinstance(kind, wanted) or isinstance(key, wanted) or holds(value, wanted)
        case NestedEvent(format=fmt):
            return isinstance(kind, wanted) or any(holds(field.type, wanted) for field in fmt.fields)
        case _:
            return isinstance(kind, wanted)

"""The types a field can have, as plain data.

A type here is what travels in a format description: it knows nothing of Python classes, so that a program
that never saw the class can still work with the events. `heliograph.model.event` makes these from
annotations; codec, filters and columns are made from these.

    i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 bool str bytes datetime
    date uuid                                                          Scalar
    Optional(item)                                                     the value or None
    Enum(name, base, members)                                          named values of i64 or str
    NestedEvent(format)                                                a nested event
    List(item, length)                                                 length None: any
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


FieldType: TypeAlias = Union["Scalar", "Optional", "Enum", "NestedEvent", "List", "Array", "Anything"]


def fits_any(kind: FieldType) -> bool:
    """Whether `hg.Any` holds every value of a type as it is, also inside of it."""
    match kind:
        case Optional(item=item) | List(item=item):
            return fits_any(item)
        case NestedEvent(format=fmt):
            return all(fits_any(field.type) for field in fmt.fields)
        case Scalar(name=name):
            return name not in ("date", "uuid")
        case _:
            return not isinstance(kind, Array)


def holds(kind: FieldType, wanted: type) -> bool:
    """Whether a type is, or has anywhere inside, a type of that kind."""
    match kind:
        case Optional(item=item) | List(item=item):
            return isinstance(kind, wanted) or holds(item, wanted)
        case NestedEvent(format=fmt):
            return isinstance(kind, wanted) or any(holds(field.type, wanted) for field in fmt.fields)
        case _:
            return isinstance(kind, wanted)

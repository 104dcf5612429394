"""What generated filters call: the operations that take more than an operator.

Arguments are never None unless it is said; the generated code tests that first.
"""

from __future__ import annotations

import enum
import math
import struct
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from heliograph.filters.tree import MAX_INT, MIN_INT
from heliograph.model.field_types import EPOCH

_SINGLE: Final = struct.Struct("<f")
_EXACT: Final = Context(prec=400, rounding=ROUND_HALF_UP)
_LOWER: Final = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_UPPER: Final = {ord(lower): lower.upper() for lower in "abcdefghijklmnopqrstuvwxyz"}


def single(value: float) -> float:
    """The nearest 32-bit float, as a 64-bit one."""
    try:
        return _SINGLE.unpack(_SINGLE.pack(value))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(math.inf, value)


def enum_value(value: Any) -> Any:
    """The value of an enum member; a reflected event holds the value already."""
    return value._value_ if isinstance(value, enum.Enum) else value


def instant(value: datetime) -> datetime:
    """The same instant in UTC: datetimes of one zone would compare by the clock on the wall."""
    return value if value.tzinfo is UTC else value.astimezone(UTC)


def instant_of_ns(value: int) -> datetime | None:
    """Nanoseconds since 1970 as an instant; what is below a microsecond is dropped.

    None beyond 64 bits (the years 1677 to 2262): histories keep no more, and a supplier can say anything.
    """
    if not MIN_INT <= value <= MAX_INT:
        return None
    return EPOCH + timedelta(microseconds=value // 1000)


def array_item(value: Any, positions: tuple[int, ...]) -> Any:
    """An item of an array; None outside of it, or when the array has another number of dimensions."""
    shape = value.shape
    if len(positions) != len(shape):
        return None
    for position, size in zip(positions, shape, strict=True):
        if position >= size:
            return None
    return value.item(positions)


def first_dimension(value: Any) -> int | None:
    """The size of an array in its first dimension; None when it has no dimensions."""
    shape: tuple[int, ...] = value.shape
    return shape[0] if shape else None


def remainder(left: int, right: int) -> int | None:
    """What is left of a truncating division, with the sign of the dividend."""
    if right == 0:
        return None
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def integer_abs(value: int) -> int | None:
    """Without the sign; None for -2**63."""
    return None if value == MIN_INT else abs(value)


def narrowed(value: int) -> int | None:
    """An integer that fits into 64 signed bits, else None."""
    return value if value <= MAX_INT else None


def floor(value: float) -> int | None:
    """The next integer below; None when there is none in 64 bits."""
    if -9.3e18 < value < 9.3e18:
        below = math.floor(value)
        return below if MIN_INT <= below <= MAX_INT else None
    return None


def ceil(value: float) -> int | None:
    """The next integer above; None when there is none in 64 bits."""
    if -9.3e18 < value < 9.3e18:
        above = math.ceil(value)
        return above if MIN_INT <= above <= MAX_INT else None
    return None


def sqrt(value: float) -> float | None:
    """The square root; None below zero."""
    return None if value < 0 else math.sqrt(value)


def rounded(value: float, digits: int) -> float:
    """Half up (away from zero) on the shortest decimal form of the number."""
    if not math.isfinite(value):
        return value
    if digits == 0:
        whole = float(math.floor(abs(value)))
        return math.copysign(whole + 1.0 if abs(value) - whole >= 0.5 else whole, value)
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), context=_EXACT))


decimal_add: Final = _EXACT.add
decimal_subtract: Final = _EXACT.subtract
decimal_multiply: Final = _EXACT.multiply
"""Python's own operators round to what the thread has set."""


def decimal_scaled(value: int | Decimal, scale: int) -> Decimal:
    """A number with so many digits behind the point, of which it has no more."""
    return Decimal(value).quantize(Decimal((0, (1,), -scale)), context=_EXACT)


def decimal_negated(value: Decimal) -> Decimal:
    """The number with the other sign, and a zero as it is."""
    return value.copy_negate() if value else value


def decimal_abs(value: Decimal) -> Decimal:
    """Without the sign."""
    return value.copy_abs()


def enum_entry(entries: dict[Any, Any], key: Any) -> Any:
    """The entry of a map whose keys are members of an enum, or of a reflected event their values."""
    if key in entries:
        return entries[key]
    return next((item for own, item in entries.items() if enum_value(own) == key), None)


def map_contains(entries: dict[Any, Any], key: Any) -> bool:
    """Whether a map has an entry with this key."""
    return key in entries or any(enum_value(own) == key for own in entries if isinstance(own, enum.Enum))


def lower(text: str) -> str:
    """ASCII letters in lower case, everything else as it is."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def upper(text: str) -> str:
    """ASCII letters in upper case, everything else as it is."""
    return text.upper() if text.isascii() else text.translate(_UPPER)

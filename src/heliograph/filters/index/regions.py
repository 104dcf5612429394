"""What a predicate accepts of its column: half-open intervals of an ordered domain, and NULL or not.

Every kind of value that can be compared is mapped onto a domain in which "the next one" exists, so that `<`,
`<=`, `>`, `>=`, `=`, `<>`, IN and prefixes all become intervals with the low end in and the high end out:

    int, wide, bool    the integer itself
    float              its rank: integers in the order of the floats, -0.0 with 0.0, NaN above +inf
    datetime           microseconds since 1970
    decimal            the integer that it is with 38 digits behind the point
    date               its number in the calendar
    uuid               its 128 bits
    text, bytes        itself; the next one after 'ab' is 'ab\\0'

Predicates on one column are intersected here, before anything is indexed: `x > 3 AND x < 10 AND x <> 5` is
two intervals, and `x > 3 AND x < 2` is none.
"""

from __future__ import annotations

import sys
from datetime import date, timedelta
from decimal import Context
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from heliograph.model.field_types import EPOCH, MAX_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from decimal import Decimal

    from heliograph.filters.typed import Kind, Predicate

Point: TypeAlias = Any
"""An int, a str or bytes; one column never mixes them."""
Interval: TypeAlias = tuple[Point | None, Point | None]
"""The low end, which belongs to it, and the high end, which does not; None: no end on that side."""

_MICROSECOND: Final = timedelta(microseconds=1)
_double = Struct("<d")
_signed = Struct("<q")
_pack_double, _unpack_signed = _double.pack, _signed.unpack
NAN_RANK: Final = 0x7FF8 << 48
_SIGN: Final = 1 << 63
_SHIFT: Final = Context(prec=100)


def rank(value: float) -> int:
    """The rank of a float in the order of all floats, as an integer."""
    if value != value:  # noqa: PLR0124 - only NaN differs from itself, and this costs a third of math.isnan
        return NAN_RANK
    # The bits of negative floats grow with their magnitude: mirrored, they fall, and -0.0 meets 0.0.
    bits: int = _unpack_signed(_pack_double(value))[0]
    return bits if bits >= 0 else -_SIGN - bits


def unrank(place: int) -> float:
    """The float of a rank."""
    value: float = _double.unpack(_signed.pack(abs(place)))[0]
    return value if place >= 0 else -value


def instant(value: datetime) -> int:
    """Microseconds since 1970."""
    return (value - EPOCH) // _MICROSECOND


def shifted(value: Decimal) -> int:
    """A decimal without its point, which stands before the 38th digit from the right."""
    return int(value.scaleb(MAX_DIGITS, _SHIFT))


ENCODERS: Final[dict[Kind, Callable[[Any], int]]] = {
    "float": rank,
    "decimal": shifted,
    "datetime": instant,
    "date": date.toordinal,
    "uuid": attrgetter("int"),
}
"""How a value becomes a point of its domain; kinds that are not here are points already."""

UNORDERED: Final[frozenset[Kind]] = frozenset({"list", "map", "other"})
"""Kinds that have no domain: predicates on them are not regions."""


def successor(point: Point) -> Point:
    """The smallest point above one."""
    if isinstance(point, int):
        return point + 1
    return point + ("\0" if isinstance(point, str) else b"\0")


class Region(NamedTuple):
    """Which values of a column are accepted.

    Attributes:
        null: whether NULL is.
        intervals: disjoint and in order.
    """

    null: bool
    intervals: tuple[Interval, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.null or self.intervals)

    def intersect(self, other: Region) -> Region:
        return Region(self.null and other.null, tuple(_intersected(self.intervals, other.intervals)))

    def points(self, limit: int) -> tuple[Point | None, ...] | None:
        """The values one by one, None among them for NULL; None when it is not made of so few single ones."""
        if len(self.intervals) > limit:
            return None
        found: list[Point | None] = [None] if self.null else []
        for low, high in self.intervals:
            if low is None or high is None or successor(low) != high:
                return None
            found.append(low)
        return tuple(found)

    @property
    def hull(self) -> Region:
        """The same without the holes."""
        return Region(self.null, ((self.intervals[0][0], self.intervals[-1][1]),))


_ANY: Final[tuple[Interval, ...]] = ((None, None),)


def region_of(predicate: Predicate) -> Region:
    """What a predicate accepts; its column must not be of an unordered kind."""
    encode: Callable[[Any], Point] = ENCODERS.get(predicate.column.kind, _itself)
    value: Point = None if predicate.value is None else encode(predicate.value)
    match predicate.op:
        case "is null":
            return Region(null=True, intervals=())
        case "is not null":
            return Region(null=False, intervals=_ANY)
        case "prefix":
            return Region(null=False, intervals=((value, _after_prefix(value)),))
        case "in" | "not in":
            points = sorted({encode(v) for v in predicate.values})
        case "=" | "<>":
            points = [value]
        case "<":
            return Region(null=False, intervals=((None, value),))
        case "<=":
            return Region(null=False, intervals=((None, successor(value)),))
        case ">":
            return Region(null=False, intervals=((successor(value), None),))
        case ">=":
            return Region(null=False, intervals=((value, None),))
    if predicate.op in {"=", "in"}:
        return Region(null=False, intervals=tuple((p, successor(p)) for p in points))
    return Region(null=False, intervals=tuple(_gaps(points)))


def _itself(value: Any) -> Any:
    return value


def _gaps(points: Iterable[Point]) -> Iterable[Interval]:
    """What lies below, between and above points in order."""
    low: Point | None = None
    for point in points:
        if low is None or low < point:
            yield low, point
        low = successor(point)
    yield low, None


def _after_prefix(prefix: str) -> str | None:
    """The smallest text above all that begin with a prefix; None when there is none."""
    cut = prefix.rstrip(chr(sys.maxunicode))
    return cut[:-1] + chr(ord(cut[-1]) + 1) if cut else None


def _intersected(a: tuple[Interval, ...], b: tuple[Interval, ...]) -> Iterable[Interval]:
    i = j = 0
    while i < len(a) and j < len(b):
        (low_a, high_a), (low_b, high_b) = a[i], b[j]
        low = low_a if low_b is None or (low_a is not None and low_a >= low_b) else low_b
        first_ends = high_b is None or (high_a is not None and high_a <= high_b)
        high = high_a if first_ends else high_b
        if low is None or high is None or low < high:
            yield low, high
        if first_ends:
            i += 1
        else:
            j += 1

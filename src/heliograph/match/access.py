"""Where the alternatives of a subscription lie in the index.

An alternative is found by the columns that must have single values, all of them at once (a group per set of
such columns, one look-up per group and event), and behind that by an interval of one further column. What
these do not decide is evaluated for the few that they let through.

Which column is best for the interval is estimated from the subscriptions themselves: the share of the span
of all bounds seen on the column that the region covers.
"""

from __future__ import annotations

from itertools import product
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.match.plan import conjunction
from heliograph.match.regions import unrank

if TYPE_CHECKING:
    from collections.abc import Collection

    from heliograph.expr.typed import Column, Node
    from heliograph.match.plan import Alternative
    from heliograph.match.regions import Interval, Point, Region

MAX_ENTRIES: Final = 64
"""Entries of one subscription; longer IN lists and the like are evaluated."""
MAX_GROUPS: Final = 32
"""Sets of columns that are looked up together; subscriptions beyond that share the ones there are."""

# What a text region is taken to let through, for want of a measure of text.
_BOUNDED_TEXT: Final = 0.05
_HALF_BOUNDED_TEXT: Final = 0.5


class Access(NamedTuple):
    """How one alternative is found.

    Attributes:
        columns: those that are looked up together.
        keys: the values under which it is found, each in the order of `columns`; None in them is NULL.
        ranged: the column whose interval is looked at next, or None.
        intervals: of that column.
        residual: what is left to evaluate, or None when finding it is enough.
    """

    columns: tuple[Column, ...]
    keys: tuple[tuple[Point | None, ...], ...]
    ranged: Column | None
    intervals: tuple[Interval, ...]
    residual: Node | None

    @property
    def entries(self) -> int:
        return len(self.keys) * max(len(self.intervals), 1)


class Spans:
    """The lowest and highest bound seen on each column, in its own measure."""

    def __init__(self) -> None:
        self._spans: dict[Column, tuple[float, float]] = {}

    def learn(self, alternative: Alternative) -> None:
        for column, constraint in alternative.constraints.items():
            low, high = self._spans.get(column, (float("inf"), float("-inf")))
            for interval in constraint.region.intervals:
                for end in interval:
                    value = _measure(column, end)
                    if value is not None:
                        low, high = min(low, value), max(high, value)
            self._spans[column] = (low, high)

    def share(self, column: Column, region: Region) -> float:
        """How much of the column's span a region covers, from 0 to 1."""
        if column.kind in {"text", "bytes"}:
            return min(1.0, sum(map(_share_of_text, region.intervals)))
        lowest, highest = self._spans[column]
        if not highest > lowest:
            return 1.0
        covered = 0.0
        for low, high in region.intervals:
            start, stop = _measure(column, low), _measure(column, high)
            covered += (highest if stop is None else stop) - (lowest if start is None else start)
        return min(1.0, covered / (highest - lowest))


def access_of(
    alternative: Alternative, budget: int, spans: Spans, groups: Collection[tuple[Column, ...]]
) -> Access:
    """The best way to an alternative that makes at most `budget` entries and fits the groups there are."""
    points = _single_values(alternative, budget)
    columns = _group(tuple(sorted(points, key=_path)), groups)
    keys = tuple(product(*(points[column] for column in columns)))
    undecided = {c: made for c, made in alternative.constraints.items() if c not in columns}
    ranged, intervals, exact = _best_range(
        {column: made.region for column, made in undecided.items()}, budget // len(keys), spans
    )
    if exact and ranged is not None:
        del undecided[ranged]
    tests = [test for made in undecided.values() for test in made.tests]
    return Access(columns, keys, ranged, intervals, conjunction((*tests, *alternative.rest)))


def _single_values(alternative: Alternative, budget: int) -> dict[Column, tuple[Point | None, ...]]:
    """Columns with few enough single values that all combinations stay within the budget, fewest first."""
    found: dict[Column, tuple[Point | None, ...]] = {}
    for column, made in alternative.constraints.items():
        values = made.region.points(budget)
        if values is not None:
            found[column] = values
    chosen: dict[Column, tuple[Point | None, ...]] = {}
    for column in sorted(found, key=lambda column: len(found[column])):
        if len(found[column]) <= budget:
            chosen[column] = found[column]
            budget //= len(found[column])
    return chosen


def _group(wanted: tuple[Column, ...], groups: Collection[tuple[Column, ...]]) -> tuple[Column, ...]:
    """The columns to look up together: those wanted, or most of them when there are too many groups."""
    if wanted in groups or len(groups) < MAX_GROUPS:
        return wanted
    return max((group for group in groups if set(group) <= set(wanted)), key=len, default=())


def _best_range(
    regions: dict[Column, Region], budget: int, spans: Spans
) -> tuple[Column | None, tuple[Interval, ...], bool]:
    """The column that lets the fewest through, its intervals, and whether they decide its predicates."""
    best: tuple[float, Column, Region] | None = None
    for column, region in regions.items():
        # NULL is no point of the domain, and an interval without ends finds everything.
        if region.null or region.intervals == ((None, None),):
            continue
        share = spans.share(column, region)
        if best is None or share < best[0]:
            best = share, column, region
    if best is None:
        return None, (), False
    _, column, region = best
    exact = len(region.intervals) <= budget
    intervals = region.intervals if exact else region.hull.intervals
    if intervals == ((None, None),):
        return None, (), False
    return column, intervals, exact


def _measure(column: Column, point: Point | None) -> float | None:
    if point is None or not isinstance(point, int):
        return None
    value = unrank(point) if column.kind == "float" else float(point)
    return value if isfinite(value) else None


def _share_of_text(interval: Interval) -> float:
    return _HALF_BOUNDED_TEXT if None in interval else _BOUNDED_TEXT


def _path(column: Column) -> tuple[bool, str, str]:
    return column.header, column.path, column.kind

"""Where the alternatives of a subscription lie in the index.

An alternative is found by the columns that must have single values, all of them at once (a group per set of
such columns, one look-up per group and event), and behind that by an interval of one further column, or of
two when no single value leads there. What these do not decide is evaluated for the few that they let through.

Which column is best for the interval is estimated from the subscriptions themselves: the share of the span
of all bounds seen on the column that the region covers.
"""

from __future__ import annotations

from itertools import product
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from heliograph.filters.index.plan import conjunction
from heliograph.filters.index.regions import unrank

if TYPE_CHECKING:
    from collections.abc import Collection

    from heliograph.filters.index.plan import Alternative
    from heliograph.filters.index.regions import Interval, Point, Region
    from heliograph.filters.typed import Column, Node

MAX_ENTRIES: Final = 64
"""Entries of one subscription; longer IN lists and the like are evaluated."""
MAX_GROUPS: Final = 32
"""Sets of columns that are looked up together; subscriptions beyond that share the ones there are."""

_EVERYTHING: Final = ((None, None),)
# A second column that lets more than this share through is not worth looking at.
_WORTH_CROSSING: Final = 0.5
# What a text region is taken to let through, for want of a measure of text.
_BOUNDED_TEXT: Final = 0.05
_HALF_BOUNDED_TEXT: Final = 0.5


_Share: TypeAlias = "tuple[float, Column, Region]"
"""What a region lets through of its column."""


class Access(NamedTuple):
    """How one alternative is found.

    Attributes:
        columns: those that are looked up together.
        keys: the values under which it is found, each in the order of `columns`; None in them is NULL.
        ranged: the column whose interval is looked at next, or None.
        intervals: of that column.
        across: a column that is looked at before it, and the interval on it; or None.
        residual: what is left to evaluate, or None when finding it is enough.
    """

    columns: tuple[Column, ...]
    keys: tuple[tuple[Point | None, ...], ...]
    ranged: Column | None
    intervals: tuple[Interval, ...]
    across: tuple[Column, Interval] | None
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
    best = _by_share({column: made.region for column, made in undecided.items()}, spans)
    across = None if columns else _across(best)
    others = best if across is None else [share for share in best if share[1] != across[0]]
    ranged, intervals, exact = _ranged(others, budget // len(keys))
    if exact and ranged is not None:
        del undecided[ranged]
    tests = [test for made in undecided.values() for test in made.tests]
    return Access(columns, keys, ranged, intervals, across, conjunction((*tests, *alternative.rest)))


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


def _by_share(regions: dict[Column, Region], spans: Spans) -> list[_Share]:
    """The columns whose intervals can lead anywhere, the one that lets the fewest through first."""
    # NULL is no point of the domain, and an interval without ends finds everything.
    found = [
        (spans.share(column, region), column, region)
        for column, region in regions.items()
        if not region.null and region.intervals != _EVERYTHING
    ]
    return sorted(found, key=lambda share: share[0])


def _across(best: list[_Share]) -> tuple[Column, Interval] | None:
    """One of the two narrowest columns, if it has two ends and the other narrows further."""
    if len(best) < 2 or best[1][0] > _WORTH_CROSSING:
        return None
    # The same two columns are taken in the same order by all: every order is one more index to ask.
    for _, column, region in sorted(best[:2], key=lambda share: _path(share[1])):
        (interval,) = region.hull.intervals
        if None not in interval:
            return column, interval
    return None


def _ranged(best: list[_Share], budget: int) -> tuple[Column | None, tuple[Interval, ...], bool]:
    """The first of the columns, its intervals, and whether they decide its predicates."""
    if not best:
        return None, (), False
    _, column, region = best[0]
    if len(region.intervals) <= budget:
        return column, region.intervals, True
    hull = region.hull.intervals
    return (None, (), False) if hull == _EVERYTHING else (column, hull, False)


def _measure(column: Column, point: Point | None) -> float | None:
    if point is None or not isinstance(point, int):
        return None
    value = unrank(point) if column.kind == "float" else float(point)
    return value if isfinite(value) else None


def _share_of_text(interval: Interval) -> float:
    return _HALF_BOUNDED_TEXT if None in interval else _BOUNDED_TEXT


def _path(column: Column) -> tuple[bool, str, str]:
    return column.header, column.path, column.kind

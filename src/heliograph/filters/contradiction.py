"""Filters that can never be true together: found from constants and ranges, and never claimed falsely.

    why_never(checked.node, other.node)     "speed > 300.0 and speed < 100.0 are never both true"; or None

All conditions have to be TRUE, so each test of one column against constants (`typed.conjuncts`) has to be.
The constants divide what a column can be into points and the gaps between them; the tests are asked about
each point, each gap, NaN and NULL. When all of them say no, no event can meet the filters. Whatever is not
such a test (OR, functions, columns against each other) is taken to be possible.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from math import isnan
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from heliograph.filters.typed import conjuncts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from heliograph.filters.typed import Column, Node, Predicate

MOST_TESTS: Final = 200
"""Of one column; with more nothing is claimed."""
Place: TypeAlias = "tuple[int, Any]"
"""Where a value stands: twice the number of a constant, one more for the gap behind it; and the constant."""

_ORDERED: Final = {
    "=": lambda place, of: place == of,
    "<>": lambda place, of: place != of,
    "<": lambda place, of: place < of,
    "<=": lambda place, of: place <= of,
    ">": lambda place, of: place > of,
    ">=": lambda place, of: place >= of,
}
_HOLDS_FOR_NAN: Final = ("<>", ">", ">=", "not in", "is not null")


def why_never(*conditions: Node) -> str | None:
    """Which tests of these conditions exclude each other; None when an event may meet all of them."""
    by_column: dict[Column, list[Predicate]] = {}
    for node in conditions:
        for predicate in conjuncts(node)[0]:
            by_column.setdefault(predicate.column, []).append(predicate)
    for column, tests in by_column.items():
        if len(tests) <= MOST_TESTS and _exclude_each_other(column, tests):
            return _said(column, tests)
    return None


def _exclude_each_other(column: Column, tests: Sequence[Predicate]) -> bool:
    constants = {value for test in tests for value in (*test.values, test.value) if value is not None}
    try:
        if any(isinstance(value, float) and isnan(value) for value in constants):
            return False
        ordered = sorted(constants)
    except TypeError:  # constants that have no order
        return False
    if any(_holds_for_null(test) for test in tests):
        return not all(_holds_for_null(test) for test in tests)
    numbers = {value: number for number, value in enumerate(ordered)}
    if any(all(_holds(test, place, numbers) for test in tests) for place in _places(column, ordered)):
        return False
    return column.kind != "float" or not all(test.op in _HOLDS_FOR_NAN for test in tests)


def _places(column: Column, ordered: Sequence[Any]) -> Iterator[Place]:
    """Each constant, and each gap in which there may be a value."""
    for number, value in enumerate(ordered):
        yield 2 * number, value
    if column.kind == "bool":
        # Only the two: what no test names is possible as well.
        yield from ((2 * len(ordered) + 1, None),) if len(ordered) < 2 else ()
        return
    yield -1, None
    for number, (low, high) in enumerate(pairwise(ordered)):
        if not (column.kind in ("int", "wide") and high - low == 1):
            yield 2 * number + 1, None
    yield 2 * len(ordered) - 1, None


def _holds(test: Predicate, place: Place, numbers: dict[Any, int]) -> bool:
    at, value = place
    if test.op == "is not null":
        return True
    if test.op == "prefix":
        return value is None or str(value).startswith(str(test.value))
    if test.op == "in":
        return any(at == 2 * numbers[one] for one in test.values)
    if test.op == "not in":
        return not any(at == 2 * numbers[one] for one in test.values)
    if value is None and at > 2 * len(numbers):  # the other one of two truth values
        return test.op != "="
    return bool(_ORDERED[test.op](at, 2 * numbers[test.value]))


def _holds_for_null(test: Predicate) -> bool:
    return test.op == "is null"


def _said(column: Column, tests: Sequence[Predicate]) -> str:
    """The two tests that exclude each other, or all of them."""
    if len(tests) == 1:
        return f"{_text(tests[0])} is never true"
    for pair in combinations(tests, 2):
        if _exclude_each_other(column, pair):
            return f"{_text(pair[0])} and {_text(pair[1])} are never both true"
    return f"{', '.join(map(_text, tests))} are never true together"


def _text(test: Predicate) -> str:
    if test.op in ("is null", "is not null"):
        return f"{test.column.path} {test.op}"
    if test.op in ("in", "not in"):
        return f"{test.column.path} {test.op} ({', '.join(map(repr, test.values))})"
    if test.op == "prefix":
        return f"{test.column.path} like '{test.value!s}%'"
    return f"{test.column.path} {test.op} {test.value!r}"

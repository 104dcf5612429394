"""A condition as alternatives that an index can hold: each a region per column, and what is left to evaluate.

A subscription matches when any alternative does; an alternative matches when every one of its columns lies
in its region and everything left over is TRUE. NOT is pushed down to the predicates (three-valued logic
allows it: `NOT (a AND b)` is TRUE exactly when `NOT a` or `NOT b` is), AND is spread over OR as long as that
stays small. What would grow too large stays as it was written, to be evaluated.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from heliograph.filters.index.regions import UNORDERED, Region, region_of
from heliograph.filters.typed import (
    Column,
    Const,
    Convert,
    Node,
    TypedAnd,
    TypedBetween,
    TypedCompare,
    TypedIn,
    TypedNot,
    TypedOr,
    conjuncts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ALTERNATIVES: Final = 32
"""Alternatives of one condition; an OR that would make more is evaluated instead."""
MAX_TERMS: Final = 512
"""Terms of all alternatives of one condition together, for the same reason."""


class Constraint(NamedTuple):
    """What an alternative asks of one column, as a region and as the predicates it was made of."""

    region: Region
    tests: tuple[Node, ...]


class Alternative(NamedTuple):
    """One way for a condition to be TRUE: all constraints hold and all of `rest` is TRUE."""

    constraints: dict[Column, Constraint]
    rest: tuple[Node, ...]


def alternatives(node: Node) -> list[Alternative]:
    """The ways in which a condition can be TRUE; none when it never is."""
    found = []
    for terms in _disjuncts(node):
        alternative = _alternative(terms)
        if alternative is not None:
            found.append(alternative)
    return found


def conjunction(nodes: Iterable[Node]) -> Node | None:
    """The condition that all of some are TRUE; None when there are none."""
    items = tuple(nodes)
    if len(items) <= 1:
        return items[0] if items else None
    return TypedAnd(items, any(item.nullable for item in items))


def _alternative(terms: tuple[Node, ...]) -> Alternative | None:
    constraints: dict[Column, Constraint] = {}
    rest: list[Node] = []
    for term in terms:
        if isinstance(term, Const):
            if term.value is not True:
                return None
            continue
        # A term is one test, so its predicates are all on one column.
        predicates, _ = conjuncts(_unconverted(term))
        if not predicates or predicates[0].column.kind in UNORDERED:
            rest.append(term)
            continue
        column = predicates[0].column
        tests: tuple[Node, ...] = (term,)
        region = reduce(Region.intersect, map(region_of, predicates))
        if column in constraints:
            region = constraints[column].region.intersect(region)
            tests = constraints[column].tests + tests
        if region.is_empty:
            return None
        constraints[column] = Constraint(region, tests)
    return Alternative(constraints, tuple(rest))


def _unconverted(term: Node) -> Node:
    """A test of an integer as float or wide, as a test of a column that is one.

    The index turns the values of such a column into points of the other kind, which is the same conversion.
    """
    match term:
        case TypedNot(of=of):
            return TypedNot(_unconverted(of), term.nullable)
        case TypedCompare(left=left, right=right):
            return TypedCompare(term.op, _as_column(left), _as_column(right), term.nullable)
        case TypedBetween(of=of):
            return TypedBetween(_as_column(of), term.low, term.high, term.nullable)
        case TypedIn(of=of):
            return TypedIn(_as_column(of), term.values, term.has_null, term.nullable)
        case _:
            return term


def _as_column(node: Node) -> Node:
    match node:
        case Convert(of=Column() as column, kind="float" | "wide" as kind):
            return replace(column, kind=kind)
        case _:
            return node


def _disjuncts(node: Node) -> list[tuple[Node, ...]]:
    """Lists of terms; the node is TRUE exactly when all terms of one list are."""
    node = _pushed_down(node)
    match node:
        case TypedOr(items=items):
            found = [terms for item in items for terms in _disjuncts(item)]
            return found if _is_small(found) else [(node,)]
        case TypedAnd(items=items):
            common: list[Node] = []
            choices: list[list[tuple[Node, ...]]] = []
            for item in items:
                options = _disjuncts(item)
                ways = prod(map(len, choices)) * len(options)
                if len(options) == 1:
                    common += options[0]
                elif ways <= MAX_ALTERNATIVES and ways * len(items) <= MAX_TERMS:
                    choices.append(options)
                else:
                    common.append(item)
            return _spread(tuple(common), choices)
        case _:
            return [(node,)]


def _spread(common: tuple[Node, ...], choices: list[list[tuple[Node, ...]]]) -> list[tuple[Node, ...]]:
    found = [common]
    for options in choices:
        found = [terms + option for terms in found for option in options]
    return found


def _is_small(found: list[tuple[Node, ...]]) -> bool:
    return len(found) <= MAX_ALTERNATIVES and sum(map(len, found)) <= MAX_TERMS


def _pushed_down(node: Node) -> Node:
    """The same condition with its outermost NOT, if it has one, moved inwards."""
    match node:
        case TypedNot(of=TypedNot(of=inner)):
            return _pushed_down(inner)
        case TypedNot(of=TypedAnd(items=items)):
            return TypedOr(tuple(TypedNot(item, item.nullable) for item in items), node.nullable)
        case TypedNot(of=TypedOr(items=items)):
            return TypedAnd(tuple(TypedNot(item, item.nullable) for item in items), node.nullable)
        case TypedNot(of=TypedBetween(of=of, low=low, high=high)):
            sides = (TypedCompare("<", of, low, node.nullable), TypedCompare(">", of, high, node.nullable))
            return TypedOr(sides, node.nullable)
        case _:
            return node

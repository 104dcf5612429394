"""Expressions written as Python: `hg.col("speed") > 300` builds the tree that the text "speed > 300" has.

    (hg.col("speed") > 300) & hg.col("region").in_(["north", "east"])
    hg.col("position").lat.between(47, 49) | hg.col("samples")[0].is_null()
    hg.col("name").like("A%") & (hg.col("speed") * 1.852 < hg.param("limit"))

Python's `and`, `or` and `not` cannot be overloaded: `&`, `|` and `~` stand for them, and comparisons beside
them need parentheses. `col` takes a path as the text would write it, so `col("header.supplier")` is a field
of the header. A nested field whose name is that of an attribute here is taken with `["like"]`. The functions
are here by their names (`lower(hg.col("name"))`); Python's `abs`, `round`, `math.floor` and `math.ceil` work
as well.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NoReturn

from heliograph.errors import ExpressionError
from heliograph.filters import tree as t
from heliograph.filters.params import constant
from heliograph.filters.parser import FUNCTIONS, negated, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable

_BUILT = t.SourceText("(built in Python)")


class Built:
    """An expression under construction. Operators and methods make larger ones; none is evaluated."""

    __slots__ = ("depth_", "nodes_", "tree_")
    __hash__ = None  # type: ignore[assignment]  # == builds an expression, so there is no equality to hash by

    def __init__(self, tree: t.Tree, depth: int = 1, nodes: int = 1) -> None:
        if depth > t.MAX_DEPTH or nodes > t.MAX_NODES:
            raise ExpressionError(
                f"the expression is larger than {t.MAX_NODES} values and operators or nested deeper than "
                f"{t.MAX_DEPTH} levels",
                text=_BUILT.text,
                column=1,
            )
        self.tree_ = tree
        self.depth_ = depth
        self.nodes_ = nodes

    def __repr__(self) -> str:
        return f"<expression {self.tree_}>"

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "an expression has no truth value before there is an event: combine conditions with & | ~ "
            "instead of and, or, not, and put comparisons in parentheses"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError("an expression cannot be iterated over; take an element with [position]")

    # Comparison

    def __eq__(self, other: object) -> Built:  # type: ignore[override]
        return self._compare("=", other)

    def __ne__(self, other: object) -> Built:  # type: ignore[override]
        return self._compare("<>", other)

    def __lt__(self, other: object) -> Built:
        return self._compare("<", other)

    def __le__(self, other: object) -> Built:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> Built:
        return self._compare(">", other)

    def __ge__(self, other: object) -> Built:
        return self._compare(">=", other)

    def _compare(self, op: t.Comparison, other: object) -> Built:
        right = _built(other)
        return _made(t.Compare(op, self.tree_, right.tree_), self, right)

    def between(self, low: object, high: object) -> Built:
        """`x BETWEEN low AND high`."""
        bounds = _built(low), _built(high)
        return _made(t.Between(self.tree_, bounds[0].tree_, bounds[1].tree_), self, *bounds)

    def in_(self, values: Iterable[object]) -> Built:
        """`x IN (…)`: values and parameters, not expressions."""
        items = [_built(value) for value in values]
        if not 1 <= len(items) <= t.MAX_IN:
            raise _error(f"in_ takes 1 to {t.MAX_IN} values, not {len(items)}")
        if not all(isinstance(item.tree_, t.Value | t.Param) for item in items):
            raise _error("in_ takes values and parameters only")
        return _made(t.In(self.tree_, tuple(item.tree_ for item in items)), self, *items)

    def like(self, pattern: object, escape: object = None) -> Built:
        """`x LIKE pattern [ESCAPE escape]`."""
        parts = [_built(pattern)] if escape is None else [_built(pattern), _built(escape)]
        if not all(isinstance(part.tree_, t.Value | t.Param) for part in parts):
            raise _error("like takes text and parameters only")
        escaped = None if escape is None else parts[1].tree_
        return _made(t.Like(self.tree_, parts[0].tree_, escaped), self, *parts)

    def is_null(self) -> Built:
        """`x IS NULL`."""
        return _made(t.IsNull(self.tree_), self)

    def is_not_null(self) -> Built:
        """`x IS NOT NULL`."""
        return ~self.is_null()

    # Logic

    def __and__(self, other: object) -> Built:
        right = _built(other)
        return _joined(t.conjunction((self.tree_, right.tree_)), self, right)

    def __rand__(self, other: object) -> Built:
        return _built(other) & self

    def __or__(self, other: object) -> Built:
        right = _built(other)
        return _joined(t.disjunction((self.tree_, right.tree_)), self, right)

    def __ror__(self, other: object) -> Built:
        return _built(other) | self

    def __invert__(self) -> Built:
        return _made(t.Not(self.tree_), self)

    # Arithmetic

    def __add__(self, other: object) -> Built:
        return _arith("+", self, other)

    def __radd__(self, other: object) -> Built:
        return _arith("+", other, self)

    def __sub__(self, other: object) -> Built:
        return _arith("-", self, other)

    def __rsub__(self, other: object) -> Built:
        return _arith("-", other, self)

    def __mul__(self, other: object) -> Built:
        return _arith("*", self, other)

    def __rmul__(self, other: object) -> Built:
        return _arith("*", other, self)

    def __truediv__(self, other: object) -> Built:
        return _arith("/", self, other)

    def __rtruediv__(self, other: object) -> Built:
        return _arith("/", other, self)

    def __mod__(self, other: object) -> Built:
        return _arith("%", self, other)

    def __rmod__(self, other: object) -> Built:
        return _arith("%", other, self)

    def __neg__(self) -> Built:
        return _made(negated(self.tree_, t.NOWHERE), self)

    def __abs__(self) -> Built:
        return call("abs", self)

    def __round__(self, digits: object = None) -> Built:
        return call("round", self) if digits is None else call("round", self, digits)

    def __floor__(self) -> Built:
        return call("floor", self)

    def __ceil__(self) -> Built:
        return call("ceil", self)

    # Parts

    def __getattr__(self, name: str) -> Built:
        # Python asks for such names by itself (copying, pickling); no field may have them.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._member(name)

    def __getitem__(self, key: str | int | Built | tuple[int | Built, ...]) -> Built:
        if isinstance(key, str) and not self._is_user_headers():
            return self._member(key)
        built = self
        for part in key if isinstance(key, tuple) else (key,):
            index = _built(part)
            built = _made(t.Element(built._path(), index.tree_), built, index)
        return built

    def _member(self, name: str) -> Built:
        return _made(t.NestedField(self._path(), name), self)

    def _path(self) -> t.Tree:
        if not isinstance(self.tree_, t.Name | t.NestedField | t.Element):
            raise _error("only a field has parts")
        return self.tree_

    def _is_user_headers(self) -> bool:
        return self.tree_ == t.Name("user", header=True)


def col(path: str) -> Built:
    """A field of the event by name or path, or of its header: `col("speed")`, `col("header.supplier")`."""
    tree = parse_path(path)
    depth, at = 1, tree
    while isinstance(at, t.NestedField | t.Element):
        depth, at = depth + 1, at.of
    return Built(tree, depth, 2 * depth)


def param(name: str | int) -> Built:
    """A value to come: `param("limit")` is `:limit`, `param(0)` is `%0`."""
    return Built(t.Param(name))


def value(constant_value: Any) -> Built:
    """A value where Python would not know that an expression is meant: `value(1) / col("n")`."""
    return Built(constant(constant_value, _BUILT.text))


def call(name: str, *args: object) -> Built:
    """One of the fixed functions by name."""
    if name not in FUNCTIONS:
        raise _error(f"there is no function {name[:40]!r}; there are {', '.join(FUNCTIONS)}")
    fewest, most = FUNCTIONS[name]
    if not fewest <= len(args) <= most:
        raise _error(f"{name} takes {fewest} to {most} argument(s), not {len(args)}")
    built = [_built(arg) for arg in args]
    return _made(t.Call(name, tuple(arg.tree_ for arg in built)), *built)


def lower(text: object) -> Built:
    """ASCII letters in lower case."""
    return call("lower", text)


def upper(text: object) -> Built:
    """ASCII letters in upper case."""
    return call("upper", text)


def length(of: object) -> Built:
    """Characters of text, bytes, elements of a list, or the first dimension of an array."""
    return call("length", of)


def coalesce(*values: object) -> Built:
    """The first value that is not NULL."""
    return call("coalesce", *values)


def bitand(left: object, right: object) -> Built:
    """The bits that two ints have in common: `bitand(hg.col("flags"), 0x3) == 0x1`."""
    return call("bitand", left, right)


def map_contains(of: object, key: object) -> Built:
    """Whether a map has an entry with this key, be its value NULL; NULL when there is no map."""
    return call("map_contains", of, key)


def sqrt(number: object) -> Built:
    """The square root; NULL below zero."""
    return call("sqrt", number)


def case(*branches: tuple[object, object], otherwise: object = None, of: object = None) -> Built:
    """`CASE [of] WHEN … THEN … [ELSE otherwise] END`, with a pair for each branch."""
    if not branches:
        raise _error("case takes at least one (condition, value)")
    pairs = [(_built(when), _built(then)) for when, then in branches]
    subject = None if of is None else _built(of)
    last = None if otherwise is None else _built(otherwise)
    tree = t.Case(
        None if subject is None else subject.tree_,
        tuple((when.tree_, then.tree_) for when, then in pairs),
        None if last is None else last.tree_,
    )
    parts = [part for pair in pairs for part in pair]
    return _made(tree, *parts, *(part for part in (subject, last) if part is not None))


def tree_of(expression: object) -> t.Expr:
    """A built expression as the checker takes it; a plain value stands for itself."""
    if inspect.isroutine(expression):
        raise _error(
            'where= is text such as "speed > 300", or hg.col("speed") > 300, not a function that only this '
            "process has: filters are sent to other stations; what Python must decide goes into the callback"
        )
    return t.Expr(_built(expression).tree_, _BUILT)


def _built(item: object) -> Built:
    return item if isinstance(item, Built) else value(item)


def _made(tree: t.Tree, *parts: Built) -> Built:
    return Built(tree, 1 + max(part.depth_ for part in parts), 1 + sum(part.nodes_ for part in parts))


def _joined(tree: t.And | t.Or, left: Built, right: Built) -> Built:
    # A chain stays one level deep, as it does in the flat tree.
    same = [type(part.tree_) is type(tree) for part in (left, right)]
    depth = 1 + max(part.depth_ - flat for part, flat in zip((left, right), same, strict=True))
    return Built(tree, depth, 1 + left.nodes_ + right.nodes_)


def _arith(op: t.Arithmetic, left: object, right: object) -> Built:
    one, other = _built(left), _built(right)
    return _made(t.Arith(op, one.tree_, other.tree_), one, other)


def _error(reason: str) -> ExpressionError:
    return ExpressionError(reason, text=_BUILT.text, column=1)

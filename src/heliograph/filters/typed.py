"""The typed tree of an expression: what the checker makes and every engine evaluates.

Each node knows the kind of value it gives and whether that value can be NULL. Conversions are nodes of their
own (`Convert`), so operators only ever meet two operands of one kind:

    bool
    int        64-bit signed; a result outside that range is NULL
    wide       a u64 as it was loaded, or an integer beside one: only compared, never calculated with
    decimal    exact, with so many digits; beside numbers as they are written, and ints
    float      64-bit; -0.0 equals 0.0, NaN equals itself and is above everything, +inf included
    text       compared by code point
    bytes      compared byte by byte
    datetime   an instant, UTC, microseconds
    date       a day of the calendar
    uuid       compared by its sixteen bytes
    list       a list or array: only `length` and IS NULL take one
    map        values by key: only `length`, `map_contains` and IS NULL take one
    other      a record, a schema-less value: only IS NULL takes one

Reference, generated Python, Arrow and Spark are four readers of this tree; `docs/reference/filters.md`
says what it means and `heliograph.filters.reference` says the same in code.

An index over many subscriptions reads a condition through `conjuncts`.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.filters.tree import Comparison
    from heliograph.model.formats import Format

Kind: TypeAlias = Literal[
    "bool",
    "int",
    "wide",
    "decimal",
    "float",
    "text",
    "bytes",
    "datetime",
    "date",
    "uuid",
    "list",
    "map",
    "other",
]
Digits: TypeAlias = tuple[int, int]
"""Of a decimal: all of them, and those behind the point."""
Scalar: TypeAlias = bool | int | float | Decimal | str | bytes | datetime | date | UUID | None
Operation: TypeAlias = Literal["+", "-", "*", "/", "%", "&"]
Load: TypeAlias = Literal["plain", "f64", "f32", "enum", "datetime", "datetime_ns", "opaque"]
Function: TypeAlias = Literal[
    "abs", "lower", "upper", "length", "coalesce", "round", "floor", "ceil", "sqrt", "map_contains"
]


class Step(msgspec.Struct, frozen=True, cache_hash=True):
    """One step from a value to a part of it.

    Attributes:
        key: a field's name, an element's position, an array's positions, or the key of an entry or header.
        how: `field` of a record, `item` of a list, `array` (of one dimension), `tensor` (any other array,
            all positions at once), `map` for entries of maps and for user headers; in an `enum_map` the
            keys may be members of an enum.
        nullable: whether the value that the step gives can be NULL though the one before it is not.
        key_type: the scalar that the keys of a map are.
    """

    key: str | int | tuple[int, ...]
    how: Literal["field", "item", "array", "tensor", "map", "enum_map"]
    nullable: bool
    key_type: str = "str"


class Const(msgspec.Struct, frozen=True, cache_hash=True):
    """A value known beforehand; None is NULL of that kind."""

    value: Scalar
    kind: Kind
    digits: Digits = (0, 0)

    @property
    def nullable(self) -> bool:
        return self.value is None


class Column(msgspec.Struct, frozen=True, cache_hash=True):
    """A value taken out of the event or its header.

    Attributes:
        steps: the way to it; the first is a field of the event or of the header.
        kind: what it is as a value.
        nullable: whether any step of the way can give NULL.
        load: what must be done to the stored value to make it one of `kind`.
        rank: 1 for a list or an array of one dimension, None for any other array, 0 for everything else.
        header: whether the way starts in the header.
        digits: of a decimal.
    """

    steps: tuple[Step, ...]
    kind: Kind
    nullable: bool
    load: Load = "plain"
    rank: int | None = 0
    header: bool = False
    digits: Digits = (0, 0)

    @property
    def path(self) -> str:
        """The column as it is written in an expression, e.g. `position.lat` or `samples[0]`."""
        text = "header" if self.header else ""
        for step in self.steps:
            match step.key:
                case str() if step.how == "field":
                    text += f".{step.key}" if text else step.key
                case tuple():
                    text += "".join(f"[{i}]" for i in step.key)
                case _:
                    text += f"[{step.key!r}]"
        return text


class Convert(msgspec.Struct, frozen=True, cache_hash=True):
    """An integer as float (nearest, ties to even) or wide; a wide as int (NULL when it does not fit).

    An integer or a decimal as a decimal of these digits, which hold all its values.
    """

    of: Node
    kind: Literal["int", "wide", "decimal", "float"]
    nullable: bool
    digits: Digits = (0, 0)


class TypedNegate(msgspec.Struct, frozen=True, cache_hash=True):
    """`-x` on int, decimal or float."""

    of: Node
    kind: Literal["int", "decimal", "float"]
    nullable: bool


class TypedArith(msgspec.Struct, frozen=True, cache_hash=True):
    """Both operands are of `kind`. `/` is only on floats, `%` and `&` (`bitand`) only on ints.

    On decimals the result has the digits that hold it exactly, and these are at most 38.
    """

    op: Operation
    left: Node
    right: Node
    kind: Literal["int", "decimal", "float"]
    nullable: bool


class TypedCompare(msgspec.Struct, frozen=True, cache_hash=True):
    """Both operands are of one kind."""

    op: Comparison
    left: Node
    right: Node
    nullable: bool
    kind: Literal["bool"] = "bool"


class TypedBetween(msgspec.Struct, frozen=True, cache_hash=True):
    """`of >= low AND of <= high`; all three are of one kind."""

    of: Node
    low: Node
    high: Node
    nullable: bool
    kind: Literal["bool"] = "bool"


class TypedIn(msgspec.Struct, frozen=True, cache_hash=True):
    """`values` are of the kind of `of` and not NULL; `has_null` says that NULL stood in the list too."""

    of: Node
    values: tuple[Const, ...]
    has_null: bool
    nullable: bool
    kind: Literal["bool"] = "bool"


class TypedLike(msgspec.Struct, frozen=True, cache_hash=True):
    """`segments` are what stands between the `%`; None in a segment is `_`, any one character.

    One segment means no `%` at all: the whole text must match it.
    """

    of: Node
    segments: tuple[tuple[str | None, ...], ...]
    nullable: bool
    kind: Literal["bool"] = "bool"


class TypedIsNull(msgspec.Struct, frozen=True, cache_hash=True):
    """Never NULL itself."""

    of: Node
    kind: Literal["bool"] = "bool"
    nullable: Literal[False] = False


class TypedNot(msgspec.Struct, frozen=True, cache_hash=True):
    """NULL stays NULL."""

    of: Node
    nullable: bool
    kind: Literal["bool"] = "bool"


class TypedAnd(msgspec.Struct, frozen=True, cache_hash=True):
    """FALSE when any item is, else NULL when any is, else TRUE. At least two items."""

    items: tuple[Node, ...]
    nullable: bool
    kind: Literal["bool"] = "bool"


class TypedOr(msgspec.Struct, frozen=True, cache_hash=True):
    """TRUE when any item is, else NULL when any is, else FALSE. At least two items."""

    items: tuple[Node, ...]
    nullable: bool
    kind: Literal["bool"] = "bool"


class TypedCase(msgspec.Struct, frozen=True, cache_hash=True):
    """The value of the first branch that applies, else `otherwise`; all values are of `kind`.

    Without `of`, a branch applies when its condition is TRUE; with it, when its value equals `of`.
    """

    of: Node | None
    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node
    kind: Kind
    nullable: bool


class TypedCall(msgspec.Struct, frozen=True, cache_hash=True):
    """One of the fixed functions. `digits` belongs to `round`."""

    name: Function
    args: tuple[Node, ...]
    kind: Kind
    nullable: bool
    digits: int = 0


Node: TypeAlias = (
    Const
    | Column
    | Convert
    | TypedNegate
    | TypedArith
    | TypedCompare
    | TypedBetween
    | TypedIn
    | TypedLike
    | TypedIsNull
    | TypedNot
    | TypedAnd
    | TypedOr
    | TypedCase
    | TypedCall
)


class Checked(msgspec.Struct, frozen=True):
    """A condition or a value whose names and types are right for one format."""

    node: Node
    format: Format
    text: str


class CheckedProjection(msgspec.Struct, frozen=True):
    """A projection whose names and types are right for one format; `names` and `nodes` go together."""

    names: tuple[str, ...]
    nodes: tuple[Node, ...]
    format: Format
    text: str


PredicateOp: TypeAlias = Literal[
    "=", "<>", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null", "prefix"
]


class Predicate(msgspec.Struct, frozen=True, cache_hash=True):
    """One test of one column against values, TRUE exactly when its `node` is TRUE.

    A NULL column makes every one of them not TRUE, but for `is null`. On floats `>`, `>=`, `<>` and `not in`
    are TRUE for NaN (unless the value is NaN itself), because NaN is above everything.

    Attributes:
        value: of the column's kind; None for `is null` and `is not null`, the prefix for `prefix`.
        values: for `in` and `not in`.
        node: the same test as a node, for engines that evaluate instead of indexing.
    """

    column: Column
    op: PredicateOp
    value: Scalar
    values: tuple[Scalar, ...]
    node: Node


def conjuncts(node: Node) -> tuple[tuple[Predicate, ...], tuple[Node, ...]]:
    """A condition as (simple predicates, everything else): it is TRUE exactly when all of both are TRUE."""
    predicates: list[Predicate] = []
    rest: list[Node] = []
    for item in node.items if isinstance(node, TypedAnd) else (node,):
        found = _predicates(item)
        predicates.extend(found)
        if not found:
            rest.append(item)
    return tuple(predicates), tuple(rest)


_MIRRORED: dict[Comparison, Comparison] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
NEGATED: dict[Comparison, Comparison] = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""What is TRUE when a comparison is FALSE; of NULL both are NULL."""


def _predicates(node: Node) -> tuple[Predicate, ...]:
    match node:
        case TypedNot(of=TypedNot(of=inner)):
            return _predicates(inner)
        case TypedCompare() | TypedNot(of=TypedCompare()):
            return _comparison(node)
        case TypedBetween(of=Column() as column, low=Const() as low, high=Const() as high):
            if low.value is None or high.value is None:
                return ()
            floor = TypedCompare(">=", column, low, node.nullable)
            ceiling = TypedCompare("<=", column, high, node.nullable)
            return (
                Predicate(column, ">=", low.value, (), floor),
                Predicate(column, "<=", high.value, (), ceiling),
            )
        case TypedIn(of=Column() as column):
            return (Predicate(column, "in", None, tuple(v.value for v in node.values), node),)
        case TypedNot(of=TypedIn(of=Column() as column, has_null=False) as within):
            return (Predicate(column, "not in", None, tuple(v.value for v in within.values), node),)
        case TypedIsNull(of=Column() as column):
            return (Predicate(column, "is null", None, (), node),)
        case TypedNot(of=TypedIsNull(of=Column() as column)):
            return (Predicate(column, "is not null", None, (), node),)
        case TypedLike(of=Column() as column, segments=((_, *_) as first, ())) if None not in first:
            prefix = "".join(part for part in first if part is not None)
            return (Predicate(column, "prefix", prefix, (), node),)
        case Column(kind="bool"):
            return (Predicate(node, "=", True, (), node),)
        case TypedNot(of=Column(kind="bool") as column):
            return (Predicate(column, "=", False, (), node),)
        case _:
            return ()


def _comparison(node: Node) -> tuple[Predicate, ...]:
    negated = isinstance(node, TypedNot)
    compare = node.of if isinstance(node, TypedNot) else node
    assert isinstance(compare, TypedCompare)
    match compare.left, compare.right:
        case Column() as column, Const(value=value):
            op = compare.op
        case Const(value=value), Column() as column:
            op = _MIRRORED[compare.op]
        case _:
            return ()
    if value is None:
        return ()
    return (Predicate(column, NEGATED[op] if negated else op, value, (), node),)


def columns(node: Node) -> tuple[Column, ...]:
    """The columns that an expression reads, each once, in the order they are met."""
    found: dict[Column, None] = {}
    ahead: list[Node] = [node]
    while ahead:
        match ahead.pop():
            case Column() as column:
                found[column] = None
            case Convert() | TypedNegate() | TypedIn() | TypedLike() | TypedIsNull() | TypedNot() as one:
                ahead.append(one.of)
            case TypedArith() | TypedCompare() as two:
                ahead += [two.right, two.left]
            case TypedBetween() as three:
                ahead += [three.high, three.low, three.of]
            case TypedAnd() | TypedOr() as many:
                ahead += reversed(many.items)
            case TypedCall() as call:
                ahead += reversed(call.args)
            case TypedCase() as case:
                parts = [part for branch in case.branches for part in branch]
                ahead += reversed([*([] if case.of is None else [case.of]), *parts, case.otherwise])
            case Const():
                pass
    return tuple(found)


def digits_of(node: Node) -> Digits:
    """The digits that hold every value of a decimal node."""
    match node:
        case Const() | Column() | Convert():
            return node.digits
        case TypedNegate():
            return digits_of(node.of)
        case TypedArith():
            return arithmetic_digits(node.op, digits_of(node.left), digits_of(node.right))
        case TypedCase():
            return digits_of(node.otherwise)
        case TypedCall():
            return digits_of(node.args[0])
        case _:
            raise AssertionError(node)


def arithmetic_digits(op: Operation, left: Digits, right: Digits) -> Digits:
    """Of a sum, difference or product: as SQL engines and Arrow have them, and enough for each result."""
    if op == "*":
        return left[0] + right[0] + 1, left[1] + right[1]
    whole, scale = common_digits((left, right))
    return whole + 1, scale


def common_digits(digits: Iterable[Digits]) -> Digits:
    """The digits that hold the values of all these."""
    known = list(digits)
    scale = max(behind for _, behind in known)
    return max(all_of_it - behind for all_of_it, behind in known) + scale, scale

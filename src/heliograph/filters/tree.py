"""The tree of an expression as it was written: names and values, before any type is known.

The parser (`heliograph.filters.parser`) and the builder (`heliograph.filters.build`) make the same trees, so
that `parse("speed > 300") == tree_of(hg.col("speed") > 300)`. Where a node stood in the text is kept for
error messages and takes no part in equality. `heliograph.filters.check` turns such a tree into a typed one
(`heliograph.filters.typed`), which is what the engines and the index work on.

AND and OR take any number of items and never hold one of their own kind directly: a chain of a thousand
conditions is one flat node.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec

Constant: TypeAlias = bool | int | float | Decimal | str | bytes | datetime | date | UUID | None
ConstantKind: TypeAlias = Literal[
    "bool", "int", "float", "decimal", "text", "bytes", "datetime", "date", "uuid", "null"
]
Comparison: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]
Arithmetic: TypeAlias = Literal["+", "-", "*", "/", "%"]

MAX_TEXT: Final = 65_536
"""Characters in an expression; longer texts are refused before a character is looked at."""
MAX_NODES: Final = 10_000
"""Nodes in one tree, or in one projection."""
MAX_DEPTH: Final = 64
"""Levels of a tree. Chains of AND and OR are flat; every other operator, call and parenthesis is a level."""
MIN_INT: Final = -(1 << 63)
MAX_INT: Final = (1 << 63) - 1
MAX_WIDE: Final = (1 << 64) - 1
"""Integers are 64-bit signed; constants and u64 fields may go on to 2**64-1, for comparing only."""
MAX_IN: Final = 4_096
"""Values in one IN list."""


class At(msgspec.Struct, frozen=True, eq=False):
    """Where a node begins in its text, counted from 1; 0 when it was built without one.

    All columns are equal, so that trees compare by what they mean.
    """

    column: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, At)

    def __hash__(self) -> int:
        return 0


NOWHERE: Final = At(0)


class Value(msgspec.Struct, frozen=True, cache_hash=True):
    """A literal, or a parameter that has been given its value. `kind` keeps 1, 1.0 and TRUE apart."""

    value: Constant
    kind: ConstantKind
    at: At = NOWHERE


class Param(msgspec.Struct, frozen=True, cache_hash=True):
    """A value to come: `:limit` has a name, `%0` a number."""

    name: str | int
    at: At = NOWHERE

    def __str__(self) -> str:
        return f":{self.name}" if isinstance(self.name, str) else f"%{self.name}"


class Name(msgspec.Struct, frozen=True, cache_hash=True):
    """A field of the event; with `header`, a field of its header (`header.supplier`)."""

    name: str
    header: bool = False
    at: At = NOWHERE


class NestedField(msgspec.Struct, frozen=True, cache_hash=True):
    """A field of a nested event: `position.lat`."""

    of: Tree
    name: str
    at: At = NOWHERE


class Element(msgspec.Struct, frozen=True, cache_hash=True):
    """One element of a list or array, `samples[0]`, an entry of a map, `attributes['colour']`,
    or one of the user's headers, `header.user['trace']`."""

    of: Tree
    index: Tree
    at: At = NOWHERE


class Negate(msgspec.Struct, frozen=True, cache_hash=True):
    """`-x`. A minus before a number is part of the number instead."""

    of: Tree
    at: At = NOWHERE


class Arith(msgspec.Struct, frozen=True, cache_hash=True):
    """`left + right` and the like."""

    op: Arithmetic
    left: Tree
    right: Tree
    at: At = NOWHERE


class Compare(msgspec.Struct, frozen=True, cache_hash=True):
    """`left < right` and the like; `!=` is written `<>` here."""

    op: Comparison
    left: Tree
    right: Tree
    at: At = NOWHERE


class Between(msgspec.Struct, frozen=True, cache_hash=True):
    """`of BETWEEN low AND high`; NOT BETWEEN is a Not around it, as with IN, LIKE and IS NULL."""

    of: Tree
    low: Tree
    high: Tree
    at: At = NOWHERE


class In(msgspec.Struct, frozen=True, cache_hash=True):
    """`of IN (1, 2, :third)`: literals and parameters only."""

    of: Tree
    items: tuple[Tree, ...]
    at: At = NOWHERE


class Like(msgspec.Struct, frozen=True, cache_hash=True):
    """`of LIKE pattern ESCAPE escape`: literals or parameters; `escape` is None when not given."""

    of: Tree
    pattern: Tree
    escape: Tree | None = None
    at: At = NOWHERE


class IsNull(msgspec.Struct, frozen=True, cache_hash=True):
    """`of IS NULL`."""

    of: Tree
    at: At = NOWHERE


class Not(msgspec.Struct, frozen=True, cache_hash=True):
    """`NOT of`."""

    of: Tree
    at: At = NOWHERE


class And(msgspec.Struct, frozen=True, cache_hash=True):
    """All of two or more conditions. Made by `conjunction`, which keeps it flat."""

    items: tuple[Tree, ...]
    at: At = NOWHERE


class Or(msgspec.Struct, frozen=True, cache_hash=True):
    """Any of two or more conditions. Made by `disjunction`, which keeps it flat."""

    items: tuple[Tree, ...]
    at: At = NOWHERE


class Case(msgspec.Struct, frozen=True, cache_hash=True):
    """`CASE [of] WHEN a THEN b … [ELSE c] END`; `of` is None in the searched form."""

    of: Tree | None
    branches: tuple[tuple[Tree, Tree], ...]
    otherwise: Tree | None = None
    at: At = NOWHERE


class Call(msgspec.Struct, frozen=True, cache_hash=True):
    """A call of one of the fixed functions; `name` is in lower case."""

    name: str
    args: tuple[Tree, ...]
    at: At = NOWHERE


Tree: TypeAlias = (
    Value
    | Param
    | Name
    | NestedField
    | Element
    | Negate
    | Arith
    | Compare
    | Between
    | In
    | Like
    | IsNull
    | Not
    | And
    | Or
    | Case
    | Call
)


class Output(msgspec.Struct, frozen=True, cache_hash=True):
    """One column of a projection. `name` is None when none was given and the expression is no plain field."""

    tree: Tree
    name: str | None
    at: At = NOWHERE


class Expr(msgspec.Struct, frozen=True, cache_hash=True):
    """A whole expression with the text it came from; equal when the trees are."""

    tree: Tree
    text: SourceText

    def __str__(self) -> str:
        return self.text.text


class Projection(msgspec.Struct, frozen=True, cache_hash=True):
    """A list of expressions with names: `id, speed * 1.852 AS kmh`."""

    outputs: tuple[Output, ...]
    text: SourceText


class SourceText(msgspec.Struct, frozen=True, eq=False):
    """The text errors point into. Like columns, all texts are equal."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceText)

    def __hash__(self) -> int:
        return 0


def conjunction(items: tuple[Tree, ...], at: At = NOWHERE) -> And:
    """All of `items`, with ANDs among them dissolved."""
    flat: list[Tree] = []
    for item in items:
        flat.extend(item.items if isinstance(item, And) else (item,))
    return And(tuple(flat), at)


def disjunction(items: tuple[Tree, ...], at: At = NOWHERE) -> Or:
    """Any of `items`, with ORs among them dissolved."""
    flat: list[Tree] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Or) else (item,))
    return Or(tuple(flat), at)


def children(tree: Tree) -> tuple[Tree, ...]:
    """The nodes directly below one, in the order they are written."""
    match tree:
        case Value() | Param() | Name():
            return ()
        case NestedField() | Negate() | IsNull() | Not():
            return (tree.of,)
        case Element():
            return (tree.of, tree.index)
        case Arith() | Compare():
            return (tree.left, tree.right)
        case Between():
            return (tree.of, tree.low, tree.high)
        case In():
            return (tree.of, *tree.items)
        case Like():
            return (tree.of, tree.pattern) if tree.escape is None else (tree.of, tree.pattern, tree.escape)
        case And() | Or():
            return tree.items
        case Call():
            return tree.args
        case Case():
            parts = [part for branch in tree.branches for part in branch]
            return tuple(part for part in (tree.of, *parts, tree.otherwise) if part is not None)


CLASS_IN_DATA: Final = {"Member": "NestedField"}
"""Classes of nodes that have another name as data, which stations of earlier versions read."""
_NAME_IN_DATA: Final = {cls: name for name, cls in CLASS_IN_DATA.items()}


def to_data(tree: Any) -> Any:
    """A tree as nested lists: the name of each node's kind, then its fields but for the place."""
    if isinstance(tree, tuple):
        return ["", *map(to_data, tree)]
    if not hasattr(tree, "__struct_fields__"):
        return tree
    fields = [to_data(getattr(tree, name)) for name in tree.__struct_fields__ if name != "at"]
    cls = type(tree).__name__
    return [_NAME_IN_DATA.get(cls, cls), *fields]

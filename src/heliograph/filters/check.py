"""From a tree of names to a tree of types, for one format.

Every name must be a field, every operator must get what it takes, and every conversion is written into the
typed tree. There are few conversions: an integer beside a float becomes a float, an integer beside a u64 is
compared with it exactly, and beside a decimal an integer and a number as it is written are decimals. Text is
never taken for a number, nor a bool; a constant text beside a UUID is one.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from heliograph.errors import ExpressionError
from heliograph.errors.sentences import hint, listed
from heliograph.filters import schema
from heliograph.filters import tree as t
from heliograph.filters import typed as k
from heliograph.filters.like import BadPattern, segments
from heliograph.filters.limits import measure
from heliograph.filters.params import decimal_digits, plain_decimal
from heliograph.filters.python_operations import decimal_scaled
from heliograph.model import field_types as ft

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.model.formats import Format

MAX_DIGITS: Final = 15
"""Digits after the point that `round` can keep; a double holds no more."""

_NUMBERS: Final = frozenset({"int", "wide", "float"})
_ORDERED: Final = _NUMBERS | {"decimal", "text", "bytes", "datetime", "date", "uuid"}
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UNTYPED_NULL: Final = k.Const(None, "other")


def check(expr: t.Expr, fmt: Format) -> k.Checked:
    """A condition with its types; ExpressionError when it is no condition for this format."""
    measure(expr.tree, expr.text.text)
    checker = _Checker(fmt, expr.text.text)
    return k.Checked(checker.condition(expr.tree, "a filter"), fmt, expr.text.text)


def check_value(expr: t.Expr, fmt: Format) -> k.Checked:
    """Like `check`, for an expression that may give a value of any kind."""
    measure(expr.tree, expr.text.text)
    checker = _Checker(fmt, expr.text.text)
    return k.Checked(checker.value(expr.tree), fmt, expr.text.text)


def check_projection(projection: t.Projection, fmt: Format) -> k.CheckedProjection:
    """A projection with its types. Each column needs a name of its own; a field may stand for all of it."""
    text = projection.text.text
    checker = _Checker(fmt, text)
    nodes: dict[str, k.Node] = {}
    for output in projection.outputs:
        measure(output.tree, text)
        if output.name is None:
            raise checker.error("this column needs a name: write AS and a name after it", output.at)
        if output.name in nodes:
            raise checker.error(f"two columns are named {output.name!r}; rename one with AS", output.at)
        nodes[output.name] = checker.projected(output.tree)
    return k.CheckedProjection(tuple(nodes), tuple(nodes.values()), fmt, text)


class _Checker:
    """Checks trees against one format; knows the text for its errors."""

    def __init__(self, fmt: Format, text: str) -> None:
        self._format = fmt
        self._text = text
        self._enums: dict[k.Column, ft.Enum] = {}

    def error(self, reason: str, at: t.At) -> ExpressionError:
        """What to raise about the node at a column."""
        return ExpressionError(reason, text=self._text, column=max(1, at.column))

    def condition(self, tree: t.Tree, user: str) -> k.Node:
        """A node that gives a bool."""
        node = self._node(tree)
        if node == _UNTYPED_NULL:
            return k.Const(None, "bool")
        if node.kind != "bool":
            raise self.error(f"{user} takes a condition, and this is {self._words(node)}", tree.at)
        return node

    def value(self, tree: t.Tree) -> k.Node:
        """A node that gives a single value of any kind."""
        node = self._node(tree)
        if node == _UNTYPED_NULL:
            return k.Const(None, "bool")
        if node.kind in ("list", "map", "other"):
            raise self.error(f"this is {self._words(node)}; take a field or an element of it", tree.at)
        return node

    def projected(self, tree: t.Tree) -> k.Node:
        """A node that gives a single value, or a field as it is: a list, an array, a nested event."""
        node = self._node(tree)
        if isinstance(node, k.Column) and not node.header and all(s.how == "field" for s in node.steps):
            return node
        return self.value(tree)

    def _node(self, tree: t.Tree) -> k.Node:
        match tree:
            case t.Value():
                return _constant(tree)
            case t.Param():
                raise self.error(f"parameter {tree} has no value; pass params=", tree.at)
            case t.Name() | t.NestedField() | t.Element():
                return self._column(tree)
            case t.Negate() | t.Arith():
                return self._arithmetic(tree)
            case t.Compare(op=op):
                return self._compare(op, tree.left, tree.right, tree.at)
            case t.Between():
                of, low, high = self._comparable((tree.of, tree.low, tree.high), tree.at, ordered=True)
                return k.TypedBetween(of, low, high, of.nullable or low.nullable or high.nullable)
            case t.In():
                return self._in(tree)
            case t.Like():
                return self._like(tree)
            case t.IsNull():
                of = self._node(tree.of)
                return k.TypedIsNull(k.Const(None, "bool") if of == _UNTYPED_NULL else of)
            case t.Not():
                of = self.condition(tree.of, "NOT")
                return k.TypedNot(of, of.nullable)
            case t.And() | t.Or():
                return self._junction(tree)
            case t.Case():
                return self._case(tree)
            case t.Call():
                return self._call(tree)

    # Columns

    def _column(self, tree: t.Name | t.NestedField | t.Element) -> k.Column:
        try:
            if isinstance(tree, t.Name) and tree.header:
                return schema.header_column(tree.name)
            if isinstance(tree, t.Element) and tree.of == t.Name(schema.USER_HEADERS, header=True):
                return schema.user_header(self._header_key(tree.index))
            place = self._place(tree)
            column = schema.column(place)
        except schema.NoSuchColumn as problem:
            raise self.error(str(problem), tree.at) from None
        if isinstance(place.type, ft.Enum):
            self._enums[column] = place.type
        return column

    def _place(self, tree: t.Tree) -> schema.PathStep:
        match tree:
            case t.Name(header=False):
                return self._step(tree.at, lambda: schema.field(self._format, tree.name))
            case t.Name():
                raise self.error(
                    "the fields of the header have no parts, but for header.user['name']", tree.at
                )
            case t.NestedField():
                place = self._place(tree.of)
                return self._step(tree.at, lambda: schema.member(place, tree.name, _written(place)))
            case t.Element():
                place = self._place(tree.of)
                if isinstance(place.type, ft.Map):
                    key = self._key(tree.index)
                    return self._step(tree.at, lambda: schema.entry(place, key, _written(place)))
                position = self._position(tree.index)
                return self._step(tree.at, lambda: schema.element(place, position, _written(place)))
            case _:
                raise self.error("only a field has parts", tree.at)

    def _step(self, at: t.At, take: Callable[[], schema.PathStep]) -> schema.PathStep:
        try:
            return take()
        except schema.NoSuchColumn as problem:
            raise self.error(str(problem), at) from None

    def _position(self, index: t.Tree) -> int:
        if isinstance(index, t.Value) and index.kind == "int":
            assert isinstance(index.value, int)
            return index.value
        raise self.error("a position is a whole number from 0, or a parameter that holds one", index.at)

    def _key(self, index: t.Tree) -> str | int:
        if isinstance(index, t.Value) and index.kind in ("int", "text"):
            return cast("str | int", index.value)
        raise self.error("the key of a map is text or an integer, or a parameter that holds one", index.at)

    def _header_key(self, index: t.Tree) -> str:
        if isinstance(index, t.Value) and isinstance(index.value, str):
            return index.value
        raise self.error("a user's header is named by text: header.user['traceparent']", index.at)

    # Arithmetic

    def _arithmetic(self, tree: t.Negate | t.Arith) -> k.Node:
        if isinstance(tree, t.Negate):
            of = self._number(tree.of, "-", decimals=True)
            if of.kind == "decimal":
                return k.TypedNegate(of, "decimal", of.nullable)
            return k.TypedNegate(
                of, "float" if of.kind == "float" else "int", of.nullable or of.kind == "int"
            )
        left, right = (self._number(part, tree.op, decimals=True) for part in (tree.left, tree.right))
        if "decimal" in (left.kind, right.kind):
            return self._decimal_arithmetic(tree, left, right)
        if tree.op == "%" and "float" in (left.kind, right.kind):
            raise self.error("% takes two ints", tree.at)
        if tree.op == "/" or "float" in (left.kind, right.kind):
            left, right = _convert(left, "float"), _convert(right, "float")
            nullable = left.nullable or right.nullable or tree.op == "/"
            return k.TypedArith(tree.op, left, right, "float", nullable)
        return k.TypedArith(tree.op, left, right, "int", nullable=True)

    def _decimal_arithmetic(self, tree: t.Arith, left: k.Node, right: k.Node) -> k.Node:
        if tree.op in ("/", "%"):
            raise self.error(
                f"{tree.op} does not take decimals, for no two engines round the result alike; "
                "multiply the other side instead (a > b * 2)",
                tree.at,
            )
        left, right = (self._decimal(node, tree.at, "calculated with") for node in (left, right))
        digits, _ = k.arithmetic_digits(tree.op, k.digits_of(left), k.digits_of(right))
        if digits > ft.MAX_DIGITS:
            raise self.error(
                f"{tree.op} of these decimals may need {digits} digits, and decimals have at most "
                f"{ft.MAX_DIGITS}: no result is rounded",
                tree.at,
            )
        return k.TypedArith(tree.op, left, right, "decimal", left.nullable or right.nullable)

    def _decimal(self, node: k.Node, at: t.At, verb: str) -> k.Node:
        """A number as a decimal of the digits that hold it: a float only if it is written."""
        match node:
            case _ if node.kind == "decimal":
                return node
            case k.Const(value=None):
                return k.Const(None, "decimal", (1, 0))
            case k.Const(value=int() | float() as number):
                if not math.isfinite(number):
                    raise self.error(f"{number} is no decimal", at)
                return self._decimal_constant(plain_decimal(Decimal(repr(number))), at)
            case _ if node.kind in ("int", "wide"):
                return k.Convert(node, "decimal", node.nullable, (19 if node.kind == "int" else 20, 0))
        raise self.error(
            f"a decimal and {self._words(node)} cannot be {verb}: a float is rounded, a decimal is not", at
        )

    def _decimal_constant(self, value: Decimal, at: t.At) -> k.Const:
        digits = decimal_digits(value)
        if digits[0] > ft.MAX_DIGITS:
            raise self.error(f"{value} has more digits than a decimal, {ft.MAX_DIGITS}", at)
        return k.Const(value, "decimal", digits)

    def _alike(self, nodes: Sequence[k.Node], at: t.At, verb: str) -> list[k.Node]:
        """Numbers as decimals of the same digits."""
        made = [self._decimal(node, at, verb) for node in nodes]
        digits = k.common_digits(map(k.digits_of, made))
        if digits[0] > ft.MAX_DIGITS:
            raise self.error(
                f"these decimals need {digits[0]} digits together, and decimals have at most {ft.MAX_DIGITS}",
                at,
            )
        return [_with_digits(node, digits) for node in made]

    def _number(self, tree: t.Tree, user: str, *, decimals: bool = False) -> k.Node:
        """An int or a float to calculate with; where they are taken, a decimal."""
        node = self._node(tree)
        if node.kind == "decimal":
            if decimals:
                return node
            raise self.error(f"{user} takes ints and floats, and this is {self._words(node)}", tree.at)
        if node == _UNTYPED_NULL:
            return k.Const(None, "int")
        if node.kind not in _NUMBERS:
            raise self.error(f"{user} takes numbers, and this is {self._words(node)}", tree.at)
        if isinstance(node, k.Const) and node.kind == "wide":
            raise self.error(
                "integers end at 2**63-1 in arithmetic; larger ones can only be compared", tree.at
            )
        return _convert(node, "int") if node.kind == "wide" else node

    # Comparison

    def _compare(self, op: t.Comparison, left: t.Tree, right: t.Tree, at: t.At) -> k.Node:
        one, other = self._comparable((left, right), at, ordered=op not in ("=", "<>"))
        return k.TypedCompare(op, one, other, one.nullable or other.nullable)

    def _comparable(self, trees: Sequence[t.Tree], at: t.At, *, ordered: bool) -> list[k.Node]:
        nodes = self._with_members([(tree, self._node(tree)) for tree in trees], ordered=ordered)
        for tree, node in zip(trees, nodes, strict=True):
            if node.kind in ("list", "map", "other") and node != _UNTYPED_NULL:
                raise self.error(f"{self._words(node)} cannot be compared, only tested with IS NULL", tree.at)
        nodes = self._with_uuids(trees, nodes)
        kind, nodes = self._unified(nodes, at, "compared")
        if ordered and kind not in _ORDERED:
            raise self.error(f"{self._words(nodes[0])} has no order; only = and <> compare it", at)
        return nodes

    def _with_members(self, pairs: list[tuple[t.Tree, k.Node]], *, ordered: bool) -> list[k.Node]:
        """Text beside an enum over int is the name of a member; beside one over text, a member's value.

        Only where it is compared for its order it may be any text: statuses from 'a' to 'm'.
        """
        enum = next((self._enums[n] for _, n in pairs if isinstance(n, k.Column) and n in self._enums), None)
        if enum is None or (enum.base == "str" and ordered):
            return [node for _, node in pairs]
        names = dict(enum.members)
        known = names if enum.base == "i64" else {value: value for value in names.values()}
        nodes: list[k.Node] = []
        for tree, node in pairs:
            if isinstance(node, k.Const) and isinstance(node.value, str):
                if node.value not in known:
                    raise self.error(
                        f"{enum} has no member {node.value[:40]!r}; it has {listed(known, shown=20)}"
                        f"{hint(node.value[:40], map(str, known))}",
                        tree.at,
                    )
                nodes.append(k.Const(known[node.value], "int") if enum.base == "i64" else node)
            else:
                nodes.append(node)
        return nodes

    def _with_uuids(self, trees: Sequence[t.Tree], nodes: list[k.Node]) -> list[k.Node]:
        """A constant text beside a UUID stands for the UUID that it writes."""
        if not any(node.kind == "uuid" for node in nodes):
            return nodes
        return [
            self._uuid(node.value, tree)
            if isinstance(node, k.Const) and isinstance(node.value, str)
            else node
            for tree, node in zip(trees, nodes, strict=True)
        ]

    def _uuid(self, text: str, tree: t.Tree) -> k.Const:
        if not _UUID.fullmatch(text):
            raise self.error(
                f"{text[:60]!r} is no UUID; one is written '12345678-1234-5678-1234-567812345678'", tree.at
            )
        return k.Const(UUID(text), "uuid")

    def _unified(self, nodes: Sequence[k.Node], at: t.At, verb: str) -> tuple[k.Kind, list[k.Node]]:
        """The nodes as values of one kind."""
        typed = [node for node in nodes if node != _UNTYPED_NULL]
        kinds = {node.kind for node in typed}
        if "decimal" in kinds and kinds <= _NUMBERS | {"decimal"}:
            return "decimal", self._alike(nodes, at, verb)
        if not kinds:
            kind: k.Kind = "int"
        elif kinds <= _NUMBERS:
            kind = "float" if "float" in kinds else "wide" if "wide" in kinds else "int"
        elif len(kinds) == 1:
            (kind,) = kinds
        else:
            other = next(node for node in typed if node.kind != typed[0].kind)
            raise self.error(
                f"{self._words(typed[0])} and {self._words(other)} cannot be {verb}; "
                "there are no conversions between text, numbers, bools, bytes, times, dates and UUIDs",
                at,
            )
        return kind, [_convert(node, kind) for node in nodes]

    def _in(self, tree: t.In) -> k.Node:
        of, *items = self._comparable((tree.of, *tree.items), tree.at, ordered=False)
        values = tuple(
            dict.fromkeys(item for item in items if isinstance(item, k.Const) and not item.nullable)
        )
        has_null = any(item.nullable for item in items)
        return k.TypedIn(of, values, has_null, nullable=of.nullable or has_null)

    def _like(self, tree: t.Like) -> k.Node:
        of = self._node(tree.of)
        if of.kind != "text" and of != _UNTYPED_NULL:
            raise self.error(f"LIKE takes text, and this is {self._words(of)}", tree.at)
        texts: list[str | None] = []
        for part in (tree.pattern, tree.escape):
            if part is None:
                texts.append(None)
                continue
            if not isinstance(part, t.Value) or not isinstance(part.value, str | None):
                raise self.error("LIKE and ESCAPE take text", part.at)
            if part.value is None:
                return k.Const(None, "bool")
            texts.append(part.value)
        pattern, escape = texts
        assert pattern is not None
        try:
            parts = segments(pattern, escape)
        except BadPattern as problem:
            raise self.error(str(problem), tree.pattern.at) from None
        return k.TypedLike(_convert(of, "text"), parts, of.nullable)

    # The rest

    def _junction(self, tree: t.And | t.Or) -> k.Node:
        made = k.TypedAnd if isinstance(tree, t.And) else k.TypedOr
        items = tuple(self.condition(item, "AND" if made is k.TypedAnd else "OR") for item in tree.items)
        return made(items, any(item.nullable for item in items))

    def _case(self, tree: t.Case) -> k.Node:
        of, whens = self._branches(tree)
        results = [self._node(then) for _, then in tree.branches]
        otherwise = _UNTYPED_NULL if tree.otherwise is None else self._node(tree.otherwise)
        if all(result == _UNTYPED_NULL for result in (*results, otherwise)):
            return _UNTYPED_NULL
        kind, values = self._values((*results, otherwise), tree.at, "the results of one CASE")
        nullable = any(value.nullable for value in values)
        return k.TypedCase(of, tuple(zip(whens, values, strict=False)), values[-1], kind, nullable)

    def _branches(self, tree: t.Case) -> tuple[k.Node | None, list[k.Node]]:
        whens = [when for when, _ in tree.branches]
        if tree.of is None:
            return None, [self.condition(when, "WHEN") for when in whens]
        of, *values = self._comparable((tree.of, *whens), tree.at, ordered=False)
        return of, values

    def _values(self, nodes: Sequence[k.Node], at: t.At, user: str) -> tuple[k.Kind, list[k.Node]]:
        for node in nodes:
            if node.kind in ("list", "map", "other") and node != _UNTYPED_NULL:
                raise self.error(f"{self._words(node)} cannot be among {user}", at)
        return self._unified(nodes, at, f"{user} together" if user.startswith("the results") else "mixed")

    def _call(self, tree: t.Call) -> k.Node:
        first = tree.args[0]
        match tree.name:
            case "lower" | "upper":
                node = self._node(first)
                if node.kind != "text" and node != _UNTYPED_NULL:
                    raise self.error(f"{tree.name} takes text, and this is {self._words(node)}", first.at)
                return k.TypedCall(
                    cast("k.Function", tree.name), (_convert(node, "text"),), "text", node.nullable
                )
            case "length":
                return self._length(first)
            case "map_contains":
                return self._map_contains(tree)
            case "coalesce":
                nodes = [self._node(arg) for arg in tree.args]
                if all(node == _UNTYPED_NULL for node in nodes):
                    return _UNTYPED_NULL
                kind, values = self._values(nodes, tree.at, "the arguments of coalesce")
                return k.TypedCall("coalesce", tuple(values), kind, all(value.nullable for value in values))
            case "round":
                return self._round(tree)
            case "sqrt":
                return k.TypedCall(
                    "sqrt", (_convert(self._number(first, "sqrt"), "float"),), "float", nullable=True
                )
            case "bitand":
                left, right = (self._number(arg, "bitand") for arg in tree.args)
                if "float" in (left.kind, right.kind):
                    raise self.error("bitand takes two ints", tree.at)
                return k.TypedArith("&", left, right, "int", left.nullable or right.nullable)
            case "abs":
                node = self._number(first, "abs", decimals=True)
                return k.TypedCall("abs", (node,), node.kind, node.nullable or node.kind == "int")
            case name:
                node = self._number(first, name)
                if node.kind == "int":
                    return node
                return k.TypedCall(cast("k.Function", name), (node,), "int", nullable=True)

    def _length(self, tree: t.Tree) -> k.Node:
        node = self._node(tree)
        if node == _UNTYPED_NULL:
            return k.Const(None, "int")
        if node.kind not in ("text", "bytes", "list", "map"):
            raise self.error(
                f"length takes text, bytes, a list, an array or a map; this is {self._words(node)}", tree.at
            )
        # An array without dimensions has no first one to count.
        uncountable = isinstance(node, k.Column) and node.rank is None
        return k.TypedCall("length", (node,), "int", node.nullable or uncountable)

    def _map_contains(self, tree: t.Call) -> k.Node:
        of, key = tree.args
        place = self._place(of)
        if not isinstance(place.type, ft.Map):
            raise self.error(f"map_contains takes a map, and this is {schema.describe(place.type)}", of.at)
        kind, given = place.type, self._key(key)
        try:
            step = schema.key_step(kind, given, _written(place))
        except schema.NoSuchColumn as problem:
            raise self.error(str(problem), key.at) from None
        whole = schema.column(place)
        entry = k.Column((*place.steps, step), "other", nullable=True, load="opaque")
        return k.TypedCall("map_contains", (whole, entry), "bool", whole.nullable)

    def _round(self, tree: t.Call) -> k.Node:
        node = self._number(tree.args[0], "round")
        digits = 0
        if len(tree.args) == 2:
            given = tree.args[1]
            if not (
                isinstance(given, t.Value)
                and given.kind == "int"
                and 0 <= cast("int", given.value) <= MAX_DIGITS
            ):
                raise self.error(
                    f"round keeps 0 to {MAX_DIGITS} digits, given as a number or parameter", given.at
                )
            digits = cast("int", given.value)
        return node if node.kind == "int" else k.TypedCall("round", (node,), "float", node.nullable, digits)

    def _words(self, node: k.Node) -> str:
        words = schema.KIND_WORDS[node.kind]
        if isinstance(node, k.Column):
            return f"{node.path[:80]} ({words})"
        if isinstance(node, k.Const) and node.value is not None:
            return f"{repr(node.value)[:40]} ({words})"
        return words


def _constant(tree: t.Value) -> k.Const:
    if tree.kind == "null":
        return _UNTYPED_NULL
    if tree.kind == "int":
        assert isinstance(tree.value, int)
        return k.Const(tree.value, "wide" if tree.value > t.MAX_INT else "int")
    if tree.kind == "decimal":
        assert isinstance(tree.value, Decimal)
        return k.Const(tree.value, "decimal", decimal_digits(tree.value))
    return k.Const(tree.value, tree.kind)


def _with_digits(node: k.Node, digits: k.Digits) -> k.Node:
    if k.digits_of(node) == digits:
        return node
    if isinstance(node, k.Const):
        value = node.value
        if isinstance(value, Decimal):
            value = decimal_scaled(value, digits[1])
        return k.Const(value, "decimal", digits)
    if isinstance(node, k.Convert):
        return k.Convert(node.of, "decimal", node.nullable, digits)
    return k.Convert(node, "decimal", node.nullable, digits)


def _convert(node: k.Node, kind: k.Kind) -> k.Node:
    if node.kind == kind:
        return node
    if isinstance(node, k.Const):
        if kind == "float" and node.value is not None:
            return k.Const(float(cast("int", node.value)), kind)
        return k.Const(node.value, kind)
    assert kind in ("int", "wide", "float")
    return k.Convert(node, kind, node.nullable or kind == "int")


def _written(place: schema.PathStep) -> str:
    return k.Column(place.steps, "other", nullable=True).path

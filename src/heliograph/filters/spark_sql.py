"""Filters and projections as Spark SQL.

    frame.filter(to_sql(checked))
    frame.selectExpr(*to_select(projection))

The text works on columns as `heliograph.filters.schema` lays them out, under ANSI mode (Spark's default):
what would raise there is written with `try_*`, so that it is NULL as everywhere else. Nothing in it depends
on Spark's implicit casts.

Constants are part of the text and are escaped down to letters, digits and spaces: Spark replaces `${…}`
anywhere in SQL, inside quotes too. No escape exists for that in a quoted name, so a field whose name holds
`${` is refused here.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from uuid import UUID

from heliograph.errors import ExpressionError
from heliograph.filters import like
from heliograph.filters import typed as k
from heliograph.filters.schema import HEADER_COLUMN, OneHeader
from heliograph.model.field_types import EPOCH, EPOCH_DAY

if TYPE_CHECKING:
    from collections.abc import Callable

SQL_TYPES: Final[dict[k.Kind, str]] = {
    "bool": "BOOLEAN",
    "int": "BIGINT",
    "wide": "DECIMAL(20,0)",
    "float": "DOUBLE",
    "text": "STRING",
    "bytes": "BINARY",
    "datetime": "TIMESTAMP",
    "date": "DATE",
    "uuid": "STRING",
}
"""The Spark type of each kind of value."""

_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_TRY: Final = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
# The doubles at the two ends of what fits into a BIGINT: -2**63, and the one before 2**63.
_INTEGERS: Final = "BETWEEN -9.223372036854775808E18D AND 9.223372036854774784E18D"


_KEY_TYPES: Final = {
    "str": "STRING", "i8": "TINYINT", "i16": "SMALLINT", "i32": "INT", "i64": "BIGINT",
    "u8": "SMALLINT", "u16": "INT", "u32": "BIGINT", "u64": "DECIMAL(20,0)",
}  # fmt: skip
"""The Spark type of each scalar that can be the key of a map."""


def sql_type(node: k.Node) -> str:
    """The Spark type of a node's values."""
    if node.kind == "decimal":
        precision, scale = k.digits_of(node)
        return f"DECIMAL({max(precision, 1)},{scale})"
    return SQL_TYPES[node.kind]


def to_sql(checked: k.Checked) -> str:
    """The expression as Spark SQL."""
    return _Writer(checked.text, checked.node).text(checked.node)


def to_select(projection: k.CheckedProjection) -> list[str]:
    """The columns of a projection, each `… AS name`, for `DataFrame.selectExpr`."""
    writer = _Writer(projection.text, *projection.nodes)
    pairs = zip(projection.names, projection.nodes, strict=True)
    return [f"{writer.text(node)} AS {writer.name(name)}" for name, node in pairs]


class _Writer:
    """Writes nodes as SQL; each node's text stands in its parents' once, so texts stay linear in size."""

    def __init__(self, text: str, *nodes: k.Node) -> None:
        self._source = text
        self._header = OneHeader(text)
        self._taken = {name.casefold() for node in nodes for name in _field_names(node)}
        self._variables = 0

    def text(self, node: k.Node) -> str:
        """A node as SQL that can stand anywhere: a name, a call or something in parentheses."""
        match node:
            case k.Const():
                return _constant(node)
            case k.Column():
                return self._column(node)
            case k.Convert(kind="int"):
                return f"try_cast({self.text(node.of)} AS BIGINT)"
            case k.Convert():
                return f"CAST({self.text(node.of)} AS {sql_type(node)})"
            case k.TypedNegate(kind="int"):
                return f"try_subtract(0L, {self.text(node.of)})"
            case k.TypedNegate():
                return f"(- {self.text(node.of)})"
            case k.TypedArith(op="&"):
                return f"({self.text(node.left)} & {self.text(node.right)})"
            case k.TypedArith():
                return f"{_TRY[node.op]}({self.text(node.left)}, {self.text(node.right)})"
            case k.TypedCase():
                return self._case(node)
            case k.TypedCall():
                return self._call(node)
            case _:
                return f"({self._condition(node)})"

    def _condition(self, node: k.Node) -> str:
        match node:
            case k.TypedCompare():
                return f"{self.text(node.left)} {node.op} {self.text(node.right)}"
            case k.TypedBetween():
                return f"{self.text(node.of)} BETWEEN {self.text(node.low)} AND {self.text(node.high)}"
            case k.TypedIn():
                values = [_constant(value) for value in node.values]
                values += [f"CAST(NULL AS {sql_type(node.of)})"] * node.has_null
                return f"{self.text(node.of)} IN ({', '.join(values)})"
            case k.TypedLike():
                return _like(self.text(node.of), node.segments)
            case k.TypedIsNull():
                return f"{self.text(node.of)} IS NULL"
            case k.TypedNot():
                return f"NOT {self.text(node.of)}"
            case k.TypedAnd() | k.TypedOr():
                joint = " AND " if isinstance(node, k.TypedAnd) else " OR "
                return joint.join(self.text(item) for item in node.items)
            case _:
                raise AssertionError(node)

    def _case(self, node: k.TypedCase) -> str:
        if node.of is None:
            return self._searched([(self.text(when), then) for when, then in node.branches], node)

        def branches(of: str) -> str:
            return self._searched([(f"{of} = {self.text(w)}", then) for w, then in node.branches], node)

        return self._let(node.of, branches)

    def _searched(self, branches: list[tuple[str, k.Node]], node: k.TypedCase) -> str:
        parts = "".join(f"WHEN {condition} THEN {self.text(then)} " for condition, then in branches)
        return f"(CASE {parts}ELSE {self.text(node.otherwise)} END)"

    def _call(self, node: k.TypedCall) -> str:
        of = node.args[0]
        match node.name:
            case "coalesce":
                return f"coalesce({', '.join(self.text(arg) for arg in node.args)})"
            case "lower":
                return f"translate({self.text(of)}, '{_LOWER.upper()}', '{_LOWER}')"
            case "upper":
                return f"translate({self.text(of)}, '{_LOWER}', '{_LOWER.upper()}')"
            case "length":
                return self._length(of)
            case "round":
                return f"round({self.text(of)}, {node.digits})"
            case "map_contains":
                entry = node.args[1]
                assert isinstance(entry, k.Column)
                return f"map_contains_key({self.text(of)}, {_key(entry.steps[-1])})"
            case "abs" if node.kind in ("float", "decimal"):
                return f"abs({self.text(of)})"
            case "abs":
                return f"try_cast(abs(CAST({self.text(of)} AS DECIMAL(20,0))) AS BIGINT)"
            case "sqrt":
                return self._let(of, lambda x: f"(CASE WHEN {x} >= 0D THEN sqrt({x}) END)")
            case "floor" | "ceil" as name:
                return self._let(of, lambda x: f"(CASE WHEN {x} {_INTEGERS} THEN {name}({x}) END)")

    def _length(self, of: k.Node) -> str:
        if of.kind == "map":
            return f"CAST(array_size(map_keys({self.text(of)})) AS BIGINT)"
        if of.kind != "list":
            return f"CAST(length({self.text(of)}) AS BIGINT)"
        if isinstance(of, k.Column) and of.rank is None:
            return f"CAST(get({self._path(of)}.`shape`, 0) AS BIGINT)"
        return f"CAST(array_size({self.text(of)}) AS BIGINT)"

    def _let(self, node: k.Node, body: Callable[[str], str]) -> str:
        """`body` of a value it names several times. SQL has no let; transforming an array of one is one."""
        if isinstance(node, k.Column | k.Const):
            return body(self.text(node))
        variable = "hg_let"
        while f"{variable}{self._variables}" in self._taken:
            variable += "_"
        name = f"{variable}{self._variables}"
        self._variables += 1
        return f"get(transform(array({self.text(node)}), {name} -> {body(name)}), 0)"

    # Columns

    def _column(self, column: k.Column) -> str:
        path = self._path(column)
        match column.kind, column.load:
            case _, "f32":
                return f"CAST(CAST({path} AS FLOAT) AS DOUBLE)"
            case "decimal", _:
                return f"try_cast({path} AS {sql_type(column)})"
            case (("int" | "wide" | "float"), _):
                return f"CAST({path} AS {SQL_TYPES[column.kind]})"
            case _:
                return path

    def _path(self, column: k.Column) -> str:
        self._header.read(column)
        text = self.name(HEADER_COLUMN) if column.header else ""
        for step in column.steps:
            match step.how:
                case "field":
                    text += ("." if text else "") + self.name(str(step.key))
                case "item":
                    text = f"get({text}, {step.key})"
                case "map" | "enum_map":
                    text = f"try_element_at({text}, {_key(step)})"
                case "array":
                    assert isinstance(step.key, tuple)
                    text = f"get({text}, {step.key[0]})"
                case "tensor":
                    assert isinstance(step.key, tuple)
                    text = _tensor_item(text, step.key)
        return text

    def name(self, name: str) -> str:
        """A quoted name."""
        if "${" in name:
            raise ExpressionError(
                f"the field name {name[:60]!r} holds '${{', which Spark would replace by a setting",
                text=self._source,
                column=1,
            )
        return "`" + name.replace("`", "``") + "`"


def _tensor_item(path: str, positions: tuple[int, ...]) -> str:
    tests = [f"array_size({path}.`shape`) = {len(positions)}"]
    flat = "0L"
    for dimension, position in enumerate(positions):
        size = f"CAST(get({path}.`shape`, {dimension}) AS BIGINT)"
        tests.append(f"{size} > {position}L")
        flat = f"try_add(try_multiply({flat}, {size}), {position}L)"
    return f"(CASE WHEN {' AND '.join(tests)} THEN get({path}.`data`, try_cast({flat} AS INT)) END)"


def _key(step: k.Step) -> str:
    """The key of an entry, in the type of the map's keys."""
    if isinstance(step.key, str):
        return _text(step.key)
    return f"CAST({step.key} AS {_KEY_TYPES[step.key_type]})"


def _constant(const: k.Const) -> str:
    match const.value:
        case None:
            return f"CAST(NULL AS {sql_type(const)})"
        case Decimal():
            return f"CAST({const.value:f}BD AS {sql_type(const)})"
        case bool():
            return "TRUE" if const.value else "FALSE"
        case int() if const.kind == "wide":
            return f"CAST({const.value}BD AS DECIMAL(20,0))"
        case int():
            return f"{const.value}L" if const.value >= 0 else f"({const.value}L)"
        case float() if not math.isfinite(const.value):
            word = "NaN" if math.isnan(const.value) else "Infinity" if const.value > 0 else "-Infinity"
            return f"CAST('{word}' AS DOUBLE)"
        case float():
            return f"{const.value!r}D" if const.value >= 0 else f"({const.value!r}D)"
        case str():
            return _text(const.value)
        case bytes():
            return f"X'{const.value.hex()}'"
        case datetime():
            elapsed = const.value - EPOCH
            micros = (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
            return f"timestamp_micros({micros}L)"
        case date():
            return f"date_from_unix_date({const.value.toordinal() - EPOCH_DAY})"
        case UUID():
            return _text(str(const.value))


def _text(value: str) -> str:
    return "'" + "".join(_escaped(character) for character in value) + "'"


def _escaped(character: str) -> str:
    if character.isascii() and (character.isalnum() or character == " "):
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 1 << 16 else f"\\U{ord(character):08x}"


def _like(value: str, segments: tuple[like.Segment, ...]) -> str:
    match [like.literal(segment) for segment in segments]:
        case [str(whole)]:
            return f"{value} = {_text(whole)}"
        case [str(prefix), ""]:
            return f"startswith({value}, {_text(prefix)})"
        case ["", str(suffix)]:
            return f"endswith({value}, {_text(suffix)})"
        case ["", str(part), ""]:
            return f"contains({value}, {_text(part)})"
        case _:
            pattern = like.regex(segments, atomic=True) + r"\z"
            return f"{value} RLIKE {_text(pattern)}"


def _field_names(node: k.Node) -> list[str]:
    return [str(column.steps[0].key) for column in k.columns(node)]

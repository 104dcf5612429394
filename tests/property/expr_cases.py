"""Random expressions and random rows for holding the engines of the filter language against each other.

Both are drawn through a `Chooser`, which Hypothesis implements for shrinking and `random.Random` for the
large Spark run. Rows are mappings; `as_event` makes objects of them, `as_batch` columns.
"""

from __future__ import annotations

import math
import random
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from heliograph.codec.columnar import columns
from heliograph.model import field_types as ft
from heliograph.model.event import Header
from heliograph.model.formats import Field, Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn

T = TypeVar("T")

MAX = (1 << 63) - 1
MIN = -(1 << 63)
INTS = [0, 1, -1, 2, 3, 7, 10, 255, -128, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1, MAX, MAX - 1, MIN, MIN + 1]
WIDES = [0, 1, 2, 255, (1 << 53) + 1, MAX, 1 << 63, (1 << 63) + 1, (1 << 64) - 1]
FLOATS = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 2.675, 1.005, 0.1, 3.7, 300.0, 1e-7, 0.49999999999999994),
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 2.0**53, 2.0**63, -(2.0**63), 9.3e18, 123456.789),
]
SINGLES = [0.0, -0.0, 1.0, 0.1, 16777217.0, 3.4e38, 1e-46, math.nan, math.inf, -math.inf, 2.5]
TEXTS = [
    *("", "a", "A", "ab", "aab", "aaaaaaaaab", "north", "north-east", "NORTH", " ", "a\nb", "\n", "\r\n"),
    *("%", "_", "a%b", "a_b", "\\", "'", "x'y", "a\x00b", "${env:HOME}"),
    *("é", "É", "ß", "\U0001f600", "\U0001f600b", "\uffff"),
]
BYTES = [b"", b"\x00", b"\x00\xff", b"\x01", b"\x80", b"\xff", b"abc"]
TIMES = [
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2026, 1, 31, 12, tzinfo=UTC),
    datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC),
    datetime(1900, 1, 1, tzinfo=UTC),
    datetime(2200, 6, 1, 1, 2, 3, 456789, tzinfo=UTC),
]
DATES = [
    date(1970, 1, 1),
    date(1969, 12, 31),
    date(2026, 11, 18),
    date(1, 1, 1),
    date(9999, 12, 31),
    date(1500, 2, 28),
]
UUIDS = [
    UUID(int=0),
    UUID(int=(1 << 128) - 1),
    UUID(int=1 << 127),
    UUID("12345678-90ab-cdef-1234-567890abcdef"),
]


DECIMALS = [
    Decimal(text) for text in ("0.00", "10.25", "-10.25", "0.01", "2.50", "99999999.99", "-99999999.99")
]
LONG_DECIMALS = [
    *DECIMALS,
    Decimal("10.2500"),
    Decimal("10.2501"),
    Decimal("0.0001"),
    Decimal("-12345678.1234"),
]
DECIMAL_LITERALS = list(map(Decimal, ("10.25", "0", "-0.01", "2.5", "10.2501")))
WRITTEN_NUMBERS = ["10.25", "3", "0.1", "-2.5", "1e3", "10.2501", "99999999.99", "0"]


class Entries(dict[Any, Any]):
    """A map, which `as_event` leaves one."""


def _scalar(name: ft.ScalarName) -> ft.Scalar:
    return ft.Scalar(name)


POSITION = Format(
    "position",
    (
        Field("lat", _scalar("f64")),
        Field("lon", ft.Optional(_scalar("f64"))),
        Field("tag", _scalar("str")),
    ),
)
FORMAT = Format(
    "everything",
    (
        Field("i", _scalar("i64")),
        Field("i_n", ft.Optional(_scalar("i64"))),
        Field("tiny", _scalar("i8")),
        Field("u", _scalar("u64")),
        Field("u_n", ft.Optional(_scalar("u64"))),
        Field("f", _scalar("f64")),
        Field("f_n", ft.Optional(_scalar("f64"))),
        Field("g", _scalar("f32")),
        Field("b", _scalar("bool")),
        Field("b_n", ft.Optional(_scalar("bool"))),
        Field("s", _scalar("str")),
        Field("s_n", ft.Optional(_scalar("str"))),
        Field("raw", _scalar("bytes")),
        Field("raw_n", ft.Optional(_scalar("bytes"))),
        Field("t", _scalar("datetime")),
        Field("t_n", ft.Optional(_scalar("datetime"))),
        Field("day", _scalar("date")),
        Field("day_n", ft.Optional(_scalar("date"))),
        Field("ref", _scalar("uuid")),
        Field("ref_n", ft.Optional(_scalar("uuid"))),
        Field("days", ft.List(_scalar("date"))),
        Field("mode", ft.Enum("Mode", "i64", (("OFF", 0), ("ON", 1), ("AUTO", 7)))),
        Field("band", ft.Optional(ft.Enum("Band", "str", (("LOW", "low"), ("HIGH", "high"))))),
        Field("pos", ft.Optional(ft.NestedEvent(POSITION))),
        Field("samples", ft.List(_scalar("f64"))),
        Field("names", ft.Optional(ft.List(ft.Optional(_scalar("str"))))),
        Field("rgb", ft.List(_scalar("u8"), 3)),
        Field("track", ft.List(ft.NestedEvent(POSITION))),
        Field("grid", ft.Array("f64", (2, None))),
        Field("cloud", ft.Optional(ft.Array("f32", (None,)))),
        Field("free", ft.Array("i32")),
        Field("price", ft.Decimal(10, 2)),
        Field("price_n", ft.Optional(ft.Decimal(12, 4))),
        Field("tags", ft.Map(_scalar("str"), _scalar("str"))),
        Field("stock", ft.Optional(ft.Map(_scalar("u8"), ft.Optional(_scalar("i64"))))),
        Field("modes", ft.Map(ft.Enum("Mode", "i64", (("OFF", 0), ("ON", 1))), ft.Decimal(10, 2))),
        Field("places", ft.Map(_scalar("str"), ft.NestedEvent(POSITION))),
    ),
)

COLUMNS: dict[str, list[str]] = {
    "int": [
        *("i", "i_n", "tiny", "mode", "rgb[2]", "free[0]", "free[1,0]"),
        *("header.offset", "header.priority", "header.sequence", "stock[7]", "length(tags)", "length(stock)"),
    ],
    "decimal": ["price", "price_n", "modes['ON']", "modes[0]"],
    "wide": ["u", "u_n"],
    "float": [
        *("f", "f_n", "g", "pos.lat", "pos.lon", "track[0].lat"),
        *("places['home'].lat", "places.home.lon"),
        *("samples[0]", "samples[2]", "grid[0][1]", "grid[1, 2]", "cloud[1]"),
    ],
    "bool": ["b", "b_n", "header.redelivered", "map_contains(tags, 'colour')", "map_contains(stock, 7)"],
    "text": [
        *("s", "s_n", "lower(band)", "pos.tag", "names[0]", "names[1]", "track[1].tag"),
        *("header.partition", "header.supplier", "header.user['trace']"),
        *("tags['colour']", "tags['']", "places['home'].tag"),
    ],
    "bytes": ["raw", "raw_n"],
    "datetime": ["t", "t_n", "header.source_ts", "header.append_ts"],
    "date": ["day", "day_n", "days[0]", "days[1]"],
    "uuid": ["ref", "ref_n"],
    "list": ["samples", "names", "rgb", "track", "grid", "cloud", "free"],
    "map": ["tags", "stock", "modes", "places", "places['home']"],
}


class Chooser(Protocol):
    """What draws: one of several, and whole numbers."""

    def pick(self, options: Sequence[T]) -> T: ...

    def number(self, low: int, high: int) -> int: ...


class RandomChooser:
    """Draws from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class HypothesisChooser:
    """Draws through Hypothesis, which then finds smaller examples."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def pick(self, options: Sequence[T]) -> T:
        from hypothesis import strategies as st

        return self._draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        from hypothesis import strategies as st

        return self._draw(st.integers(low, high))


# Expressions


class Writer:
    """Writes random expressions as text, with the values of their parameters."""

    def __init__(self, choose: Chooser) -> None:
        self._choose = choose
        self.params: dict[str, Any] = {}

    def condition(self, depth: int) -> str:
        return self._parenthesised(self._condition(depth))

    def value(self, kind: str, depth: int) -> str:
        return self._parenthesised(self._value(kind, depth))

    def any_value(self, depth: int) -> str:
        return self.value(
            self._choose.pick(
                ["bool", "int", "float", "decimal", "wide", "text", "bytes", "datetime", "date", "uuid"]
            ),
            depth,
        )

    @staticmethod
    def _parenthesised(text: str) -> str:
        return f"({text})"

    def _condition(self, depth: int) -> str:
        forms = [
            "compare",
            "compare",
            "compare",
            "between",
            "in",
            "like",
            "null",
            "column",
            "member",
            "written",
        ]
        if depth > 0:
            forms += ["and", "or", "not", "and", "or", "case", "coalesce"]
        match self._choose.pick(forms):
            case "compare":
                return self._compare(depth - 1)
            case "between":
                kind = self._choose.pick(
                    ["int", "float", "number", "decimal", "text", "datetime", "bytes", "date", "uuid"]
                )
                of, low, high = (self._operand(kind, depth - 1) for _ in range(3))
                return f"{of} {self._choose.pick(['', 'NOT '])}BETWEEN {low} AND {high}"
            case "in":
                return self._in(depth - 1)
            case "like":
                return self._like(depth - 1)
            case "written":  # a number as it is written is exact beside a decimal
                op = self._choose.pick(["=", "<>", "<", ">="])
                other = self._choose.pick([*WRITTEN_NUMBERS, "i", "u", "tiny", "price", "modes['OFF']"])
                return f"{self._choose.pick(COLUMNS['decimal'])} {op} {other}"
            case "member":  # other text beside an enum is refused
                members = self._choose.pick(["= 'low'", "<> 'high'", "IN ('high', NULL)", "< 'm'"])
                return f"band {members}"
            case "null":
                return f"{self._nullable(depth - 1)} IS {self._choose.pick(['', 'NOT '])}NULL"
            case "and" | "or" as joint:
                items = [self.condition(depth - 1) for _ in range(self._choose.number(2, 3))]
                return f" {joint.upper()} ".join(items)
            case "not":
                return f"NOT {self.condition(depth - 1)}"
            case "case":
                return self._case("bool", depth - 1)
            case "coalesce":
                return f"coalesce({self.condition(depth - 1)}, {self.condition(depth - 1)})"
            case _:
                return self._choose.pick([*COLUMNS["bool"], "TRUE", "FALSE", "NULL"])

    def _compare(self, depth: int) -> str:
        kind = self._choose.pick(
            [
                *("int", "float", "number", "wide", "number", "decimal", "text", "bytes"),
                *("datetime", "date", "uuid", "bool"),
            ]
        )
        ops = ["=", "<>"] if kind == "bool" else ["=", "<>", "!=", "<", "<=", ">", ">="]
        return f"{self._operand(kind, depth)} {self._choose.pick(ops)} {self._operand(kind, depth)}"

    def _operand(self, kind: str, depth: int) -> str:
        if kind == "number":
            kind = self._choose.pick(["int", "float", "wide"])
        return self.value(kind, depth)

    def _nullable(self, depth: int) -> str:
        kind = self._choose.pick(
            [
                "list",
                "map",
                "pos",
                "decimal",
                "int",
                "float",
                "bool",
                "text",
                "datetime",
                "date",
                "uuid",
                "wide",
            ]
        )
        if kind == "pos":
            return "pos"
        return self._choose.pick(COLUMNS[kind]) if kind in ("list", "map") else self.value(kind, depth)

    def _in(self, depth: int) -> str:
        kind = self._choose.pick(
            ["int", "float", "decimal", "wide", "text", "bytes", "datetime", "date", "uuid", "bool"]
        )
        values = [self._literal(kind) for _ in range(self._choose.number(1, 4))]
        if self._choose.number(0, 4) == 0:
            values.append("NULL")
        return f"{self.value(kind, depth)} {self._choose.pick(['', 'NOT '])}IN ({', '.join(values)})"

    def _like(self, depth: int) -> str:
        parts = [
            "%",
            "_",
            "a",
            "b",
            "north",
            "A",
            "\n",
            "\U0001f600",
            ".",
            "*",
            "[",
            "$",
            "^",
            "\\",
            "''",
            "-",
            "é",
        ]
        pattern = "".join(self._choose.pick(parts) for _ in range(self._choose.number(0, 6)))
        escape = ""
        if self._choose.number(0, 3) == 0:
            pattern, escape = pattern + self._choose.pick(["!%", "!_", "!!"]), " ESCAPE '!'"
        return f"{self.value('text', depth)} {self._choose.pick(['', 'NOT '])}LIKE '{pattern}'{escape}"

    def _case(self, kind: str, depth: int) -> str:
        otherwise = self._choose.pick(["", f" ELSE {self.value(kind, depth)}"])
        if self._choose.number(0, 1):
            subject = self._choose.pick(["int", "float", "text", "wide", "date"])
            whens = [self.value(subject, depth) for _ in range(self._choose.number(1, 2))]
            of = self.value(subject, depth) + " "
        else:
            whens = [self.condition(depth) for _ in range(self._choose.number(1, 2))]
            of = ""
        branches = " ".join(f"WHEN {when} THEN {self.value(kind, depth)}" for when in whens)
        return f"CASE {of}{branches}{otherwise} END"

    def _value(self, kind: str, depth: int) -> str:
        if kind == "bool":
            return self._condition(depth)
        forms = ["column", "column", "literal"]
        if depth > 0:
            forms += [
                "case",
                "coalesce",
                *(
                    {
                        "int": ["make"] * 5,
                        "float": ["make"] * 5,
                        "decimal": ["make"] * 5,
                        "text": ["make"],
                    }.get(kind, [])
                ),
            ]
        match self._choose.pick(forms):
            case "column":
                return self._choose.pick(COLUMNS[kind])
            case "literal":
                return self._literal(kind)
            case "case":
                return self._case(kind, depth - 1)
            case "coalesce":
                return f"coalesce({self.value(kind, depth - 1)}, {self.value(kind, depth - 1)})"
            case _:
                return getattr(self, f"_make_{kind}")(depth - 1)  # type: ignore[no-any-return]

    def _make_int(self, depth: int) -> str:
        match self._choose.pick(["arith", "arith", "neg", "abs", "length", "floor", "bitand", "narrow"]):
            case "arith":
                op = self._choose.pick(["+", "-", "*", "%"])
                return f"{self.value('int', depth)} {op} {self.value('int', depth)}"
            case "neg":
                return f"-{self.value('int', depth)}"
            case "abs":
                return f"abs({self.value('int', depth)})"
            case "length":
                kind = self._choose.pick(["text", "bytes", "list"])
                of = self._choose.pick(COLUMNS["list"]) if kind == "list" else self.value(kind, depth)
                return f"length({of})"
            case "bitand":
                return f"bitand({self.value('int', depth)}, {self.value('int', depth)})"
            case "floor":
                return f"{self._choose.pick(['floor', 'ceil'])}({self.value('float', depth)})"
            case _:
                return (
                    f"{self.value('wide', depth)} {self._choose.pick(['+', '-'])} {self.value('int', depth)}"
                )

    def _make_float(self, depth: int) -> str:
        match self._choose.pick(["arith", "arith", "divide", "neg", "abs", "round", "sqrt"]):
            case "arith":
                op = self._choose.pick(["+", "-", "*"])
                other = self._choose.pick(["int", "float"])
                return f"{self.value('float', depth)} {op} {self.value(other, depth)}"
            case "divide":
                kinds = ["int", "float", "wide_column"]
                left, right = (self._choose.pick(kinds) for _ in range(2))
                return " / ".join("u" if k == "wide_column" else self.value(k, depth) for k in (left, right))
            case "neg":
                return f"-{self.value('float', depth)}"
            case "abs":
                return f"abs({self.value('float', depth)})"
            case "sqrt":
                return f"sqrt({self.value(self._choose.pick(['int', 'float']), depth)})"
            case _:
                digits = self._choose.pick(["", ", 0", ", 1", ", 2", ", 5", ", 15"])
                return f"round({self.value('float', depth)}{digits})"

    def _make_decimal(self, depth: int) -> str:
        match self._choose.pick(["sum", "sum", "product", "neg", "abs"]):
            case "sum":
                other = self._choose.pick([self.value("decimal", depth), *WRITTEN_NUMBERS, "i_n", "tiny"])
                return f"{self.value('decimal', depth)} {self._choose.pick(['+', '-'])} {other}"
            case "product":  # of more the digits would not fit
                one, other = (self._choose.pick(COLUMNS["decimal"]) for _ in range(2))
                return f"{one} * {self._choose.pick([other, '2', '0.5', 'tiny'])}"
            case "neg":
                return f"-{self.value('decimal', depth)}"
            case _:
                return f"abs({self.value('decimal', depth)})"

    def _make_text(self, depth: int) -> str:
        return f"{self._choose.pick(['lower', 'upper'])}({self.value('text', depth)})"

    def _literal(self, kind: str) -> str:
        values: dict[str, list[Any]] = {
            "int": [*INTS, None],
            "wide": [1 << 63, (1 << 64) - 1, (1 << 63) + 1],
            "float": [*FLOATS, None],
            "decimal": DECIMAL_LITERALS,
            "text": TEXTS,
            "bytes": BYTES,
            "datetime": TIMES,
            "date": DATES,
            "uuid": UUIDS,
            "bool": [True, False, None],
        }
        value = self._choose.pick(values[kind])
        has_no_text = isinstance(value, UUID) or (isinstance(value, float) and not math.isfinite(value))
        if has_no_text or self._choose.number(0, 3) == 0:
            name = f"p{len(self.params)}"
            self.params[name] = value
            return f":{name}"
        return written(value)


def written(value: Any) -> str:
    """A value as it is written in an expression."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat()}'"
        case date():
            return f"DATE '{value}'"
        case Decimal():
            return f"DECIMAL '{value}'"
        case float():
            text = repr(value)
            return text if any(mark in text for mark in ".e") else text + ".0"
        case _:
            return str(value)


def needed(text: str, params: dict[str, Any]) -> dict[str, Any]:
    """The values that an expression asks for: a writer may have thrown away what asked for the others."""
    return {name: params[name] for name in re.findall(r":(\w+)", text) if name in params}


# Rows


def row(choose: Chooser) -> dict[str, Any]:
    """One row of FORMAT with its header under `header`."""
    width = choose.number(0, 3)
    shape = choose.pick([(0,), (1,), (3,), (2, 1), (2, 2), (1, 0), ()])
    return {
        "i": choose.pick(INTS),
        "i_n": choose.pick([*INTS, None, None]),
        "tiny": choose.pick([0, 1, -1, 127, -128]),
        "u": choose.pick(WIDES),
        "u_n": choose.pick([*WIDES, None, None]),
        "f": choose.pick([*FLOATS, 3, -7, 1 << 60]),  # a float field may hold an int
        "f_n": choose.pick([*FLOATS, None, None, None]),
        "g": choose.pick(SINGLES),
        "b": choose.pick([True, False]),
        "b_n": choose.pick([True, False, None]),
        "s": choose.pick(TEXTS),
        "s_n": choose.pick([*TEXTS, None, None, None]),
        "raw": choose.pick(BYTES),
        "raw_n": choose.pick([*BYTES, None]),
        "t": choose.pick(TIMES),
        "t_n": choose.pick([*TIMES, None]),
        "day": choose.pick(DATES),
        "day_n": choose.pick([*DATES, None]),
        "ref": choose.pick(UUIDS),
        "ref_n": choose.pick([*UUIDS, None]),
        "days": [choose.pick(DATES) for _ in range(choose.number(0, 2))],
        "mode": choose.pick([0, 1, 7]),
        "band": choose.pick(["low", "high", None]),
        "pos": choose.pick([None, _position(choose), _position(choose)]),
        "samples": [choose.pick(FLOATS) for _ in range(choose.number(0, 4))],
        "names": choose.pick([None, [choose.pick([*TEXTS, None]) for _ in range(choose.number(0, 3))]]),
        "rgb": [choose.pick([0, 1, 255]) for _ in range(3)],
        "track": [_position(choose) for _ in range(choose.number(0, 2))],
        "grid": _array(choose, FLOATS, (2, width), np.float64),
        "cloud": choose.pick([None, _array(choose, [0.5, -0.0, math.nan, 2.5], (width,), np.float32)]),
        "free": _array(choose, [0, 1, -1, 7, (1 << 31) - 1], shape, np.int32),
        "price": choose.pick(DECIMALS),
        "price_n": choose.pick([*LONG_DECIMALS, None]),
        "tags": Entries(choose.pick([{}, {"colour": "a"}, {"colour": "", "": "b"}, {"other": "x"}])),
        "stock": choose.pick(
            [None, Entries(), Entries({7: None}), Entries({7: MAX, 255: 1}), Entries({8: 2})]
        ),
        "modes": Entries(choose.pick([{}, {0: DECIMALS[1]}, {1: DECIMALS[2], 0: DECIMALS[5]}])),
        "places": Entries(choose.pick([{}, {"home": _position(choose)}, {"away": _position(choose)}])),
        "header": header(choose),
    }


def _position(choose: Chooser) -> dict[str, Any]:
    return {"lat": choose.pick(FLOATS), "lon": choose.pick([*FLOATS, None]), "tag": choose.pick(TEXTS)}


def _array(choose: Chooser, items: list[Any], shape: tuple[int, ...], dtype: Any) -> Any:
    return np.array([choose.pick(items) for _ in range(math.prod(shape))], dtype).reshape(shape)


def header(choose: Chooser) -> Header:
    return Header(
        channel="c",
        type="everything",
        supplier=choose.pick(["radar", ""]),
        epoch=choose.pick([0, 3]),
        sequence=choose.pick([1, MAX]),
        source_ts=choose.pick(
            [0, -1, 1_769_860_800_000_000_000, 1_769_860_800_000_001_999, MAX + 1, -MAX * 1000]
        ),
        format_id=FORMAT.id,
        priority=choose.pick([1, 5]),
        append_ts=choose.pick([None, 1_769_860_800_000_000_000]),
        partition=choose.pick([None, "", "p1"]),
        offset=choose.pick([None, 0, MAX]),
        headers=choose.pick([None, {}, {"trace": "a"}, {"trace": "", "other": "x"}]),
        redelivered=choose.pick([True, False]),
    )


def as_event(values: Any) -> Any:
    """The row as an object with attributes, nested rows too."""
    if isinstance(values, Entries):
        return {key: as_event(value) for key, value in values.items()}
    if isinstance(values, dict):
        return SimpleNamespace(**{name: as_event(value) for name, value in values.items()})
    return [as_event(value) for value in values] if isinstance(values, list) else values


_TEXT_HEADERS = ["channel", "type", "supplier", "partition", "correlation_id"]
_INT_HEADERS = ["epoch", "sequence", "station_seq", "offset", "priority", "hops"]
_TIME_HEADERS = ["source_ts", "append_ts"]
_HEADER_TYPE = pa.struct(
    [
        *((name, pa.string()) for name in _TEXT_HEADERS),
        *((name, pa.int64()) for name in _INT_HEADERS),
        *((name, pa.timestamp("us", "UTC")) for name in _TIME_HEADERS),
        ("redelivered", pa.bool_()),
        ("user", pa.map_(pa.string(), pa.string())),
    ]
)


def as_batch(rows: list[dict[str, Any]], *, spark_safe: bool = True) -> pa.RecordBatch:
    """The rows as columns, with the column of headers."""
    events = columns.to_batch(
        FORMAT, [{k: v for k, v in r.items() if k != "header"} for r in rows], spark_safe=spark_safe
    )
    headers = pa.array([_header_row(values["header"]) for values in rows], _HEADER_TYPE)
    return pa.RecordBatch.from_arrays([*events.columns, headers], [*events.schema.names, "header"])


def _header_row(head: Header) -> dict[str, Any]:
    times = {name: getattr(head, name) for name in _TIME_HEADERS}
    return {
        **{name: getattr(head, name) for name in [*_TEXT_HEADERS, *_INT_HEADERS, "redelivered"]},
        **{name: _header_time(ns) for name, ns in times.items()},
        "user": None if head.headers is None else list(head.headers.items()),
    }


def _header_time(nanoseconds: int | None) -> datetime | None:
    # A clock may say anything; what is no datetime is NULL.
    if nanoseconds is None or abs(nanoseconds) > MAX:
        return None
    return TIMES[0] + timedelta(microseconds=nanoseconds // 1000)


def same(one: Any, other: Any) -> bool:
    """Whether two engines agree: NaN is NaN, a decimal is its integer, a UUID its text, True is not 1."""
    if one is None or other is None:
        return one is other
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    one, other = (str(value) if isinstance(value, UUID) else value for value in (one, other))
    return bool(one == other)

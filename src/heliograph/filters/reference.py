"""What an expression means, as plainly as it can be written: a walk over the typed tree.

The engines are fast; this one is clear. Tests hold every engine to it, and
`docs/reference/filters.md` says the same in words. NULL is None.

    evaluate(checked.node, event, header)     True, False, a value, or None for NULL
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, assert_never

from heliograph.filters import typed as k
from heliograph.filters.schema import HEADER_FIELDS
from heliograph.filters.tree import MAX_INT, MIN_INT
from heliograph.model.field_types import EPOCH

if TYPE_CHECKING:
    from heliograph.filters.tree import Comparison

# Wide enough for every digit of the largest double and fifteen after the point.
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)


def evaluate(node: k.Node, event: Any, header: Any = None) -> Any:
    """The value of an expression for one event."""
    match node:
        case k.Const():
            return node.value
        case k.Column():
            return _column(node, event, header)
        case k.TypedIsNull():
            return evaluate(node.of, event, header) is None
        case k.TypedAnd() | k.TypedOr():
            return _junction(node, event, header)
        case k.TypedCase():
            return _case(node, event, header)
        case k.TypedCall(name="map_contains"):
            return _map_contains(node, event, header)
        case k.TypedCall(name="coalesce"):
            values = (evaluate(arg, event, header) for arg in node.args)
            return next((value for value in values if value is not None), None)
        case k.TypedBetween():
            above = k.TypedCompare(">=", node.of, node.low, node.nullable)
            below = k.TypedCompare("<=", node.of, node.high, node.nullable)
            return evaluate(k.TypedAnd((above, below), node.nullable), event, header)
        case _:
            return _strict(node, event, header)


def _strict(node: k.Node, event: Any, header: Any) -> Any:
    """Operators that give NULL as soon as one operand is NULL."""
    match node:
        case k.Convert() | k.TypedNegate() | k.TypedNot() | k.TypedIn() | k.TypedLike():
            operands = [evaluate(node.of, event, header)]
        case k.TypedArith() | k.TypedCompare():
            operands = [evaluate(node.left, event, header), evaluate(node.right, event, header)]
        case k.TypedCall():
            operands = [evaluate(arg, event, header) for arg in node.args]
        case _:
            raise AssertionError(node)
    if any(operand is None for operand in operands):
        return None
    match node:
        case k.TypedNot():
            return not operands[0]
        case k.Convert():
            return _convert(node.kind, operands[0])
        case k.TypedNegate():
            if node.kind == "decimal":
                return _EXACT.minus(operands[0])
            return _integer(-operands[0]) if node.kind == "int" else -operands[0]
        case k.TypedArith():
            return _arithmetic(node.op, node.kind, *operands)
        case k.TypedCompare():
            return _holds(node.op, _order(*operands))
        case k.TypedIn():
            found = any(_order(operands[0], value.value) == 0 for value in node.values)
            return found or (None if node.has_null else False)
        case k.TypedLike():
            return _like(operands[0], node.segments)
        case k.TypedCall():
            return _call(node.name, operands[0], node.digits)


def _junction(node: k.TypedAnd | k.TypedOr, event: Any, header: Any) -> bool | None:
    values = [evaluate(item, event, header) for item in node.items]
    decisive = isinstance(node, k.TypedOr)
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def _case(node: k.TypedCase, event: Any, header: Any) -> Any:
    for when, then in node.branches:
        condition = when if node.of is None else k.TypedCompare("=", node.of, when, nullable=True)
        if evaluate(condition, event, header) is True:
            return evaluate(then, event, header)
    return evaluate(node.otherwise, event, header)


# Numbers


def _integer(value: int) -> int | None:
    return value if MIN_INT <= value <= MAX_INT else None


def _convert(kind: str, value: Any) -> int | float | Decimal | None:
    match kind:
        case "decimal":
            return Decimal(value)
        case "float":
            return float(value)
        case "wide":
            return int(value)
        case _:
            return _integer(value)


def _arithmetic(op: k.Operation, kind: str, left: Any, right: Any) -> int | float | Decimal | None:
    if kind == "decimal":
        exact = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply}[op]
        return Decimal(exact(left, right))
    match op:
        case "+":
            result = left + right
        case "-":
            result = left - right
        case "*":
            result = left * right
        case "/":
            return None if right == 0 else float(left / right)
        case "&":
            return int(left & right)
        case "%":
            # The remainder has the sign of the dividend, as in SQL.
            return None if right == 0 else int(math.copysign(1, left)) * (abs(left) % abs(right))
        case _:
            assert_never(op)
    return _integer(result) if kind == "int" else float(result)


def _order(left: Any, right: Any) -> int:
    """-1, 0 or 1. NaN equals itself and is above everything."""
    if isinstance(left, float) and isinstance(right, float) and (math.isnan(left) or math.isnan(right)):
        return int(math.isnan(left)) - int(math.isnan(right))
    return int(left > right) - int(left < right)


def _holds(op: Comparison, order: int) -> bool:
    match op:
        case "=":
            return order == 0
        case "<>":
            return order != 0
        case "<":
            return order < 0
        case "<=":
            return order <= 0
        case ">":
            return order > 0
        case ">=":
            return order >= 0


# Text


def _like(text: str, segments: tuple[tuple[str | None, ...], ...]) -> bool:
    """Follow every way to match at once: all positions in the pattern that the text can have reached."""
    pattern: list[str | bool | None] = []
    for number, segment in enumerate(segments):
        pattern += [True] * (number > 0)  # True stands for %
        pattern += segment
    places = _with_skips({0}, pattern)
    for character in text:
        after = set()
        for place in places:
            if place < len(pattern) and pattern[place] is True:
                after.add(place)
            elif place < len(pattern) and pattern[place] in (None, character):
                after.add(place + 1)
        places = _with_skips(after, pattern)
    return len(pattern) in places


def _with_skips(places: set[int], pattern: list[str | bool | None]) -> set[int]:
    found = set(places)
    for place in sorted(places):
        following = place
        while following < len(pattern) and pattern[following] is True:
            following += 1
            found.add(following)
    return found


def _ascii_case(text: str, *, upper: bool) -> str:
    change = str.upper if upper else str.lower
    return "".join(change(character) if character.isascii() else character for character in text)


# Functions


def _call(name: k.Function, value: Any, digits: int) -> Any:
    match name:
        case "abs":
            if isinstance(value, Decimal):
                return value.copy_abs()
            return _integer(abs(value)) if isinstance(value, int) else abs(value)
        case "lower" | "upper":
            return _ascii_case(value, upper=name == "upper")
        case "length":
            return None if getattr(value, "shape", None) == () else len(value)
        case "round":
            return _round(value, digits)
        case "floor" | "ceil":
            if not math.isfinite(value):
                return None
            return _integer(math.floor(value) if name == "floor" else math.ceil(value))
        case "sqrt":
            return None if value < 0 else math.sqrt(value)
        case "coalesce" | "map_contains":
            raise AssertionError(name)


def _round(value: float, digits: int) -> float:
    # Half up on the number as it is written: 2.675 is a tie, though its double lies a little below.
    if not math.isfinite(value):
        return value
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), context=_EXACT))


# Columns


def _column(column: k.Column, event: Any, header: Any) -> Any:
    value = header if column.header else event
    for number, step in enumerate(column.steps):
        if value is None:
            return None
        if column.header and number == 0:
            value = getattr(value, HEADER_FIELDS[str(step.key)].attribute)
        else:
            value = _step(value, step)
    return None if value is None else _loaded(value, column.load)


def _map_contains(node: k.TypedCall, event: Any, header: Any) -> bool | None:
    whole, entry = node.args
    entries = evaluate(whole, event, header)
    assert isinstance(entry, k.Column)
    wanted = entry.steps[-1].key
    return None if entries is None else any(_plain_key(key) == wanted for key in entries)


def _plain_key(key: Any) -> Any:
    return key.value if isinstance(key, enum.Enum) else key


def _step(value: Any, step: k.Step) -> Any:
    match step.how:
        case "field":
            return value[step.key] if isinstance(value, Mapping) else getattr(value, str(step.key))
        case "map" | "enum_map":
            return next((item for key, item in value.items() if _plain_key(key) == step.key), None)
        case "item":
            assert isinstance(step.key, int)
            return value[step.key] if step.key < len(value) else None
        case "array" | "tensor":
            assert isinstance(step.key, tuple)
            if value.ndim != len(step.key):
                return None
            if any(place >= size for place, size in zip(step.key, value.shape, strict=True)):
                return None
            return value[step.key].item()


def _loaded(value: Any, load: k.Load) -> Any:
    match load:
        case "f64":
            return float(value)
        case "f32":
            return _single(value)
        case "enum":
            return value.value if isinstance(value, enum.Enum) else value
        case "datetime":
            return value.astimezone(UTC)
        case "datetime_ns":
            return _instant(value)
        case "plain" | "opaque":
            return value


def _instant(nanoseconds: int) -> datetime | None:
    if _integer(nanoseconds) is None:
        return None
    return EPOCH + timedelta(microseconds=nanoseconds // 1000)


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)

"""Values for parameters, and values in trees: what a Python value is in the filter language.

A parameter becomes a value in the tree. It never becomes text, so nothing a value holds can change what the
expression means.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from heliograph.errors import ExpressionError
from heliograph.errors.sentences import brief, listed
from heliograph.filters import tree as t
from heliograph.model.field_types import MAX_DIGITS

Params: TypeAlias = Mapping[str, Any] | Mapping[int, Any] | Mapping[str | int, Any] | Sequence[Any]
"""Values by name for `:name`, by number (or as a list) for `%0`."""

LISTS: Final = (list, tuple, set, frozenset, range)
"""What a parameter of IN may be, besides one value."""

_EXPONENTS: Final = 400
"""Of decimals that are looked at digit by digit; no double has a larger one."""
_LONGEST_NAME = 60
"""Characters of a parameter's name in an error."""

_KINDS: dict[type, t.ConstantKind] = {
    bool: "bool",
    int: "int",
    float: "float",
    Decimal: "decimal",
    str: "text",
    bytes: "bytes",
    datetime: "datetime",
    date: "date",
    UUID: "uuid",
    type(None): "null",
}


def kind_of(value: t.Constant) -> t.ConstantKind:
    """The kind of a value that `constant` has made plain."""
    return _KINDS[type(value)]


def constant(value: Any, text: str = "", at: t.At = t.NOWHERE) -> t.Value:
    """A Python value as a node; ExpressionError for what no expression can hold."""
    plain = _plain(value)
    reason = _problem(plain)
    if reason is not None:
        raise ExpressionError(reason, text=text, column=max(1, at.column))
    return t.Value(plain, kind_of(plain), at)


def _plain(value: Any) -> Any:
    # Subclasses (enum members, numpy scalars) are taken for the plain value they stand for.
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo is not None else value
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if isinstance(value, UUID):
        return UUID(int=value.int)
    if isinstance(value, Decimal):
        return plain_decimal(value)
    if isinstance(value, float):
        # One NaN object, so that trees which hold it are equal.
        return math.nan if math.isnan(value) else float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return bytes(value)
    try:
        return operator.index(value)
    except TypeError:
        return value


def plain_decimal(value: Decimal) -> Decimal:
    """The number without zeros at its end, so that equal ones are written alike; exact."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent < -_EXPONENTS or exponent > _EXPONENTS:
        return value
    while exponent < 0 and len(digits) > 1 and digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    if not any(digits):
        return Decimal(0)
    if exponent > 0:
        digits, exponent = (*digits, *(0,) * exponent), 0
    return Decimal((sign, digits, exponent))


def decimal_digits(value: Decimal) -> tuple[int, int]:
    """How many digits a plain decimal has, at least one, and how many of them stand behind the point."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return max(len(digits) + max(0, exponent), scale, 1), scale


def _problem(value: Any) -> str | None:
    match value:
        case datetime() if value.tzinfo is None:
            return f"the time {value} has no zone; give it one, such as datetime.timezone.utc"
        case str() if any("\ud800" <= character <= "\udfff" for character in value):
            return "the text holds half a surrogate pair, which no encoding can carry"
        case str() | bytes() if len(value) > t.MAX_TEXT:
            return f"a value of {len(value)} characters or bytes; at most {t.MAX_TEXT} are allowed"
        case bool():
            return None
        case int() if not t.MIN_INT <= value <= t.MAX_WIDE:
            return "this integer is out of range; integers go from -2**63 to 2**64-1"
        case Decimal() if not value.is_finite():
            return f"{value} is no decimal that a field can hold"
        case Decimal() if decimal_digits(value)[0] > MAX_DIGITS:
            return f"this decimal has more than {MAX_DIGITS} digits"
        case None | int() | float() | Decimal() | str() | bytes() | date() | UUID():
            return None
        case _:
            return (
                f"a {type(value).__name__} is no value for an expression; "
                "bool, int, float, Decimal, str, bytes, datetime, date, UUID, enum members and None are"
            )


def bind(expr: t.Expr, params: Params) -> t.Expr:
    """The expression with its parameters replaced by values; every value must be used."""
    binder = _Binder(params, expr.text.text)
    tree = binder.bound(expr.tree)
    binder.insist_on_use()
    return t.Expr(tree, expr.text)


def bind_projection(projection: t.Projection, params: Params) -> t.Projection:
    """The projection with its parameters replaced by values; every value must be used."""
    binder = _Binder(params, projection.text.text)
    outputs = [msgspec.structs.replace(o, tree=binder.bound(o.tree)) for o in projection.outputs]
    binder.insist_on_use()
    return t.Projection(tuple(outputs), projection.text)


def bind_both(
    projection: t.Projection, condition: t.Expr | None, params: Params
) -> tuple[t.Projection, t.Expr | None]:
    """A projection and a filter with values for their parameters; each must be used in one of them."""
    binder = _Binder(params, projection.text.text)
    outputs = [msgspec.structs.replace(o, tree=binder.bound(o.tree)) for o in projection.outputs]
    bound = t.Projection(tuple(outputs), projection.text)
    if condition is None:
        binder.insist_on_use()
        return bound, None
    binder.goes_on_in(condition.text.text)
    tree = binder.bound(condition.tree)
    binder.insist_on_use()
    return bound, t.Expr(tree, condition.text)


class _Binder:
    """Puts values into trees and remembers which of them it has used."""

    def __init__(self, params: Params, text: str) -> None:
        self._text = text
        if isinstance(params, str | bytes) or not isinstance(params, Mapping | Sequence):
            kind = type(params).__name__
            raise self._error(
                f"params is a mapping of names to values, or a list for %0, %1, …; not a {kind}", t.NOWHERE
            )
        self._values: dict[Any, Any] = dict(params if isinstance(params, Mapping) else enumerate(params))
        self._used: set[str | int] = set()

    def goes_on_in(self, text: str) -> None:
        """What comes is of another text, by the same values."""
        self._text = text

    def bound(self, tree: t.Tree) -> t.Tree:
        """The tree with values for its parameters."""
        if isinstance(tree, t.Param):
            if isinstance(found := self._values.get(tree.name), LISTS):
                kind = type(found).__name__
                raise self._error(
                    f"a {kind} is no value for an expression, but after IN: x IN {tree}", tree.at
                )
            return constant(self._look_up(tree), self._text, tree.at)
        if isinstance(tree, t.In):
            return self._bound_in(tree)
        if not t.children(tree):
            return tree
        parts = {name: self._bound_part(getattr(tree, name)) for name in tree.__struct_fields__}
        return msgspec.structs.replace(tree, **parts)

    def _bound_in(self, tree: t.In) -> t.Tree:
        """With the values of a list in place of the parameter that it was given for."""
        of = self.bound(tree.of)
        items: list[t.Tree] = []
        for item in tree.items:
            found = self._look_up(item) if isinstance(item, t.Param) else None
            if isinstance(found, LISTS):
                if len(found) > t.MAX_IN:
                    raise self._error(f"an IN list holds at most {t.MAX_IN:,} values", item.at)
                items += (constant(value, self._text, item.at) for value in found)
            else:
                items.append(self.bound(item))
        if len(items) > t.MAX_IN:
            raise self._error(f"an IN list holds at most {t.MAX_IN:,} values", tree.at)
        if not items:  # nothing is in an empty list, not even what is not known
            return t.Value(value=False, kind="bool", at=tree.at)
        return msgspec.structs.replace(tree, of=of, items=tuple(items))

    def insist_on_use(self) -> None:
        """Refuse values that nothing asked for: a slip in a name must not go unnoticed."""
        unused = [name for name in self._values if name not in self._used]
        if unused:
            used = listed([str(t.Param(name)) for name in self._values if name in self._used])
            names = listed([_written(name) for name in unused])
            raise self._error(
                f"params has {names}, which the expression does not use; it uses {used}", t.NOWHERE
            )

    def _bound_part(self, part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(self._bound_part(item) for item in part)
        if isinstance(part, msgspec.Struct) and not isinstance(part, t.At):
            return self.bound(part)  # type: ignore[arg-type]  # every other struct in a tree is a tree
        return part

    def _look_up(self, param: t.Param) -> Any:
        if param.name not in self._values:
            given = listed([_written(name) for name in self._values])
            raise self._error(f"parameter {param} has no value (given: {given})", param.at)
        self._used.add(param.name)
        return self._values[param.name]

    def _error(self, reason: str, at: t.At) -> ExpressionError:
        return ExpressionError(reason, text=self._text, column=max(1, at.column))


def _written(name: object) -> str:
    """The name of a parameter as it stands in an expression; a mapping may hold others."""
    return str(t.Param(name))[:_LONGEST_NAME] if isinstance(name, str | int) else brief(name)

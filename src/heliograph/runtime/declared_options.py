"""Declared options: each is one row, from which checks, error messages, TOML and tables in docs are made.

    class QoS(msgspec.Struct, frozen=True, kw_only=True):
        lifespan: Annotated[
            float | None, Option("an older event is not delivered; None: never expires", seconds(1e-6, 1e9))
        ] = None

    rows_of(QoS)["lifespan"].why_not(-1)         # 'seconds from 1e-06 to 1,000,000,000, or None'

The declaration of a field or of a key of a TypedDict is the row: its name, its type and its default are there
already, and `Option` beside the type says which values are allowed and what the option is for. `None` is
allowed where the type says so, and the values of a `Literal` and of `bool` need not be repeated.

Options that have to go together are rows, too: see `Rule`.
"""

from __future__ import annotations

from functools import cache
from math import inf
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from heliograph.errors import sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

M = TypeVar("M")


class Allowed(Protocol):
    """Which values an option may have."""

    @property
    def text(self) -> str:
        """The allowed values, as the end of a sentence: "one of a, b"."""
        ...

    def why_not(self, value: Any) -> str | None:
        """What is allowed in place of this value; None when the value is allowed."""
        ...


class Choice(msgspec.Struct, frozen=True):
    """One of some words, weakest first where they have an order."""

    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return "one of " + ", ".join(self.words)

    def why_not(self, value: Any) -> str | None:
        if isinstance(value, str) and value in self.words:
            return None
        return self.text + (sentences.hint(value, self.words) if isinstance(value, str) else "")


class NumberRange(msgspec.Struct, frozen=True):
    """A number between two others, both included; `inf` where it may be as large as it likes."""

    low: float
    high: float
    unit: str = "a number"
    whole: bool = False
    above: bool = False
    """Whether `low` itself is left out."""
    ends: tuple[str, str] = ("", "")
    """What the two ends mean, where a user would wonder."""
    reason: str = ""
    """Why the range is what it is, where a user would wonder."""

    @property
    def text(self) -> str:
        if self.high == inf:
            bounds = f"{'above' if self.above else 'from'} {self.low:,.15g}"
        elif self.above:
            bounds = f"above {self.low:,.15g}, up to {self.high:,.15g}"
        else:
            low, high = (f" ({end})" if end else "" for end in self.ends)
            bounds = f"from {self.low:,.15g}{low} to {self.high:,.15g}{high}"
        return f"{self.unit} {bounds}" + (f": {self.reason}" if self.reason else "")

    def why_not(self, value: Any) -> str | None:
        kinds = (int,) if self.whole else (int, float)
        fits = (
            type(value) in kinds
            and self.low <= value <= self.high
            and value != inf
            and (value != self.low or not self.above)
        )
        return None if fits else self.text


def whole(low: int, high: float = inf, *, reason: str = "") -> NumberRange:
    """A whole number."""
    return NumberRange(low, high, "a whole number", whole=True, reason=reason)


def levels(low: int, high: int) -> NumberRange:
    """A priority."""
    return NumberRange(low, high, "a whole number", whole=True, ends=("low", "high"))


def seconds(low: float, high: float, *, above: bool = False, reason: str = "") -> NumberRange:
    """A time to wait or to keep."""
    return NumberRange(low, high, "seconds", above=above, reason=reason)


class Switch(msgspec.Struct, frozen=True):
    """True or False."""

    text: str = "True or False"

    def why_not(self, value: Any) -> str | None:
        return None if type(value) is bool else self.text


class Text(msgspec.Struct, frozen=True):
    """Text that can be kept, sent and read again."""

    longest: int
    unit: str = "text"
    is_name: bool = False
    """Whether it has to have something in it that can be seen."""

    @property
    def text(self) -> str:
        size = f"of 1 to {self.longest} printable" if self.is_name else f"of at most {self.longest}"
        return f"{self.unit} {size} characters"

    def why_not(self, value: Any) -> str | None:
        fits = type(value) is str and len(value) <= self.longest
        fits = fits and (len(value) > 0 and value.isprintable() if self.is_name else _is_encodable(value))
        return None if fits else self.text


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Object(msgspec.Struct, frozen=True):
    """What only a function can judge: an object with certain methods, a filter, a path."""

    text: str
    judge: Callable[[Any], str | None] | None = None
    """Says what is allowed in place of a value; without one, the call that uses the value checks it."""

    def why_not(self, value: Any) -> str | None:
        return None if self.judge is None else self.judge(value)


class Option(msgspec.Struct, frozen=True):
    """One row: see the module."""

    doc: str
    """What the option is for, in one line."""
    allowed: Any = None
    """An `Allowed`; not needed beside a Literal or bool."""
    name: str = ""
    default: Any = None
    optional: bool = False
    """Whether None is allowed."""

    @property
    def text(self) -> str:
        """The allowed values, as the end of a sentence."""
        return f"{self.allowed.text}, or None" if self.optional else str(self.allowed.text)

    def why_not(self, value: Any) -> str | None:
        """What is allowed in place of this value; None when the value is allowed."""
        if value is None and self.optional:
            return None
        reason: str | None = self.allowed.why_not(value)
        return f"{reason}, or None" if reason is not None and self.optional else reason


class Rule(msgspec.Struct, frozen=True):
    """Options that have to go together: a value of one that needs a value of another."""

    option: str
    """The one that is refused."""
    value: str
    """Which value of it needs something, in words."""
    broken: Callable[[Any], bool]
    """Whether a set of options, given as the object that holds them, breaks the rule."""
    allowed: str
    """What may be written in its place."""


def rows_of(declared: type) -> Mapping[str, Option]:
    """The options that a class or TypedDict declares, by name, in the order in which they are written."""
    return _rows_of(declared)


@cache
def _rows_of(declared: type) -> dict[str, Option]:
    defaults = _defaults(declared)
    rows: dict[str, Option] = {}
    for name, hint in _hints(declared):
        option = _found(hint, Option)
        if option is not None:
            allowed, optional = _allowed(get_args(hint)[0], option.allowed)
            rows[name] = msgspec.structs.replace(
                option, name=name, allowed=allowed, optional=optional, default=defaults.get(name)
            )
    return rows


def beside(declared: type, kind: type[M]) -> dict[str, M]:
    """What fields have beside their `Option`, by name: an object of that class in the same `Annotated`."""
    return {name: found for name, hint in _hints(declared) if (found := _found(hint, kind)) is not None}


def refusals(
    options: Any, rows: Mapping[str, Option], rules: Iterable[Rule] = ()
) -> Iterator[tuple[str, str]]:
    """Each option of an object that is not allowed, by name, and what is."""
    for name, row in rows.items():
        if (reason := row.why_not(getattr(options, name))) is not None:
            yield name, reason
    for rule in rules:
        if rule.broken(options):
            yield rule.option, rule.allowed


@cache
def _hints(declared: type) -> list[tuple[str, Any]]:
    hints = get_type_hints(declared, include_extras=True)
    return [(name, hint) for name, hint in hints.items() if get_origin(hint) is Annotated]


def _found(hint: Any, kind: type[M]) -> M | None:
    return next((beside for beside in hint.__metadata__ if isinstance(beside, kind)), None)


def _defaults(declared: type) -> dict[str, Any]:
    if hasattr(declared, "__struct_fields__"):
        names: Any = declared.__struct_fields__
        given = declared.__struct_defaults__  # type: ignore[attr-defined]  # of every msgspec.Struct
        return dict(zip(names[len(names) - len(given) :], given, strict=True))
    fields: Mapping[str, Any] = getattr(declared, "__dataclass_fields__", {})
    return {name: field.default for name, field in fields.items()}


_UNIONS: Final = (Union, UnionType)


def _allowed(hint: Any, said: Allowed | None) -> tuple[Any, bool]:
    """What a type allows, unless the row says it, and whether that includes None."""
    parts = get_args(hint) if get_origin(hint) in _UNIONS else (hint,)
    optional = NoneType in parts
    if said is not None:
        return said, optional
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    if words:
        return Choice(tuple(words)), optional
    if bool in parts:
        return Switch(), optional
    raise TypeError(f"{hint}: say which values are allowed, beside what the option is for")

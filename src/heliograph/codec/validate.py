"""Whether the values of an event fit its fields; called for every event that is pushed.

    validate(track)                  # InvalidEvent: air.track: 'x' is no i64 (at $.id)
    check = validator(Track)         # the same for one class, a little faster

For each class one condition is generated that is true of a good event and touches each value once or twice.
It stores an int in a float field as float, so that filters always meet the declared type. Only when it is
false does a slower walk look for the field, and for what can be put right: an int among floats of a list is
stored as float, and a value of a subclass as the plain value; an f32 is rounded to what an f32 holds, so that
filters meet the value that travels. What is put right is stored in the event itself; lists and dicts of the
caller stay as they are, the event gets new ones.
"""

from __future__ import annotations

import typing
from ctypes import c_float
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec.structs import force_setattr

from heliograph.codec.coerce import anything_fits, coerce_event, is_encodable
from heliograph.codec.decimals import limit, quantum
from heliograph.model import field_types as ft
from heliograph.model.annotations import bare, strip_none
from heliograph.model.event import Event, EventInfo, info_of
from heliograph.runtime.codegen import CodeBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXACT: Final = 1 << 53
"""Up to which each int is a float."""

_CLASSES: Final[dict[str, type]] = {
    **dict.fromkeys(ft.INTEGER_RANGES, int),
    "f32": float,
    "f64": float,
    "bool": bool,
    "str": str,
    "bytes": bytes,
    "datetime": datetime,
    "date": date,
    "uuid": UUID,
}


def validate(event: Event) -> None:
    """Raise InvalidEvent, with the path, unless every value fits its field."""
    _validators[event.__class__](event)


def validator(cls: type[Event]) -> Callable[[Any], None]:
    """What `validate` calls for events of this class, for callers that have only one class."""
    return _validators[cls]


def validate_all(cls: type[Event], events: Sequence[Any]) -> bool:
    """The same for many events of one class, without a call for each; False when one is of another class.

    Then only those before it have been looked at.
    """
    check = _validators_of_many.get(cls)
    if check is None:
        check = _validators_of_many[cls] = _make_validator_of_many(info_of(cls))
    return check(events)


class _Validators(dict[type, "Callable[[Any], None]"]):
    def __missing__(self, cls: type) -> Callable[[Any], None]:
        made = self[cls] = _make_validator(info_of(cls))
        return made


_validators: Final = _Validators()
_validators_of_many: Final[dict[type, Callable[[Sequence[Any]], bool]]] = {}


def fits(source: CodeBuilder, info: EventInfo) -> str:
    """An expression for a function in the making: true of an `event` that need not be looked at again.

    One that it is false of goes to `heliograph.codec.coerce.coerce_event`.
    """
    return " and ".join(_Conditions(source).record(info, "event")) or "True"


def _make_validator(info: EventInfo) -> Callable[[Any], None]:
    source = CodeBuilder()
    condition = fits(source, info)
    source.line("def check(event):", 0)
    source.line(f"if {condition}: return")
    source.line(f"{source.bind(coerce_event)}(event)")
    check: Callable[[Any], None] = source.functions()["check"]
    return check


def _make_validator_of_many(info: EventInfo) -> Callable[[Sequence[Any]], bool]:
    source = CodeBuilder()
    condition = fits(source, info)
    source.line("def check(events):", 0)
    source.line("for event in events:")
    source.line(f"if event.__class__ is not {source.bind(info.cls)}: return False", 2)
    source.line(f"if {condition}: continue", 2)
    source.line(f"{source.bind(coerce_event)}(event)", 2)
    source.line("return True")
    check: Callable[[Sequence[Any]], bool] = source.functions()["check"]
    return check


class _Conditions:
    """Writes what is true of a value that needs no second look."""

    def __init__(self, source: CodeBuilder) -> None:
        self._source = source

    def record(self, info: EventInfo, text: str) -> list[str]:
        conditions = []
        for name, field in info.fields.items():
            value = f"{text}.{self._source.attribute(name)}"
            if field.type == ft.Scalar("f64"):
                conditions.append(self._float(name, text, value))
            else:
                conditions += self._value(field.type, field.annotation, value, 0)
        return conditions

    def _float(self, name: str, owner: str, text: str) -> str:
        """An int is written so often where a float is meant that it is put right here."""
        store, field, as_float = map(self._source.bind, (force_setattr, name, float))
        stored = f"{store}({owner}, {field}, {as_float}({text})) is None"
        is_exact = f"{self._is(text, int)} and -{EXACT} <= {text} <= {EXACT}"
        return f"({self._is(text, float)} or ({is_exact} and {stored}))"

    def _value(self, kind: ft.FieldType, annotation: Any, text: str, level: int) -> list[str]:
        match kind:
            case ft.Scalar(name=name):
                return self._scalar(name, text)
            case ft.Optional(item=item):
                inner = self._value(item, strip_none(annotation), text, level)
                return [f"({text} is None or {' and '.join(inner)})"]
            case ft.Enum():
                return [self._is(text, bare(annotation))]
            case ft.NestedEvent():
                nested = info_of(bare(annotation))
                return [self._is(text, nested.cls), *self.record(nested, text)]
            case ft.Decimal():
                return self._decimal(kind, text)
            case ft.List():
                return self._list(kind, annotation, text, level)
            case ft.Map():
                return self._map(kind, annotation, text, level)
            case ft.Array():
                return self._array(kind, text)
            case ft.Anything():
                return [f"{self._source.bind(anything_fits)}({text})"]

    def _is(self, text: str, cls: type) -> str:
        return f"{text}.__class__ is {self._source.bind(cls)}"

    def _scalar(self, name: str, text: str) -> list[str]:
        is_class = self._is(text, _CLASSES[name])
        if name in ft.INTEGER_RANGES:
            low, high = ft.INTEGER_RANGES[name]
            return [is_class, f"{low} <= {text} <= {high}"]
        match name:
            case "f32":
                # NaN is not equal to itself, and needs no rounding.
                return [
                    is_class,
                    f"({self._source.bind(c_float)}({text}).value == {text} or {text} != {text})",
                ]
            case "str":
                return [is_class, f"({text}.isascii() or {self._source.bind(is_encodable)}({text}))"]
            case "datetime":
                # At the edges of the calendar another zone may have no such moment: look again.
                has_zone = f"({text}.tzinfo is {self._source.bind(UTC)} or {text}.utcoffset() is not None)"
                return [is_class, f"1 < {text}.year < 9999", has_zone]
            case _:
                return [is_class]

    def _list(self, kind: ft.List, annotation: Any, text: str, level: int) -> list[str]:
        conditions = [self._is(text, list)]
        if kind.length is not None:
            conditions.append(f"len({text}) == {kind.length}")
        each = f"item_{level}"
        inner = self._value(kind.item, typing.get_args(bare(annotation))[0], each, level + 1)
        return [*conditions, f"False not in [{' and '.join(inner)} for {each} in {text}]"]

    def _decimal(self, kind: ft.Decimal, text: str) -> list[str]:
        bind = self._source.bind
        top = limit(kind)
        # A zero has no sign, so that equal values have equal bytes.
        return [
            self._is(text, Decimal),
            f"{text}.same_quantum({bind(quantum(kind))})",
            f"{bind(-top)} < {text} < {bind(top)}",
            f"({text} or not {text}.is_signed())",
        ]

    def _map(self, kind: ft.Map, annotation: Any, text: str, level: int) -> list[str]:
        key, each = f"key_{level}", f"item_{level}"
        of_key, of_value = typing.get_args(bare(annotation))
        keys = self._value(kind.key, of_key, key, level + 1)
        values = self._value(kind.value, of_value, each, level + 1)
        inner = " and ".join([*keys, *values])
        return [
            self._is(text, dict),
            f"len({text}) <= {ft.MAX_ENTRIES}",
            f"False not in [{inner} for {key}, {each} in {text}.items()]",
        ]

    def _array(self, kind: ft.Array, text: str) -> list[str]:
        import numpy as np  # noqa: PLC0415 - numpy is for classes that have arrays

        from heliograph.codec.arrays import MAX_DIMENSIONS, dtype_of  # noqa: PLC0415 - as above

        conditions = [
            self._is(text, np.ndarray),
            f"{text}.dtype == {self._source.bind(dtype_of(kind.item, '='))}",
        ]
        if kind.shape is None:
            return [*conditions, f"{text}.ndim <= {MAX_DIMENSIONS}"]
        if kind.fixed_count is not None:
            return [*conditions, f"{text}.shape == {self._source.bind(kind.shape)}"]
        fixed = [f"{text}.shape[{axis}] == {n}" for axis, n in enumerate(kind.shape) if n is not None]
        return [*conditions, f"{text}.ndim == {len(kind.shape)}", *fixed]

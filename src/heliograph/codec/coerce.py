"""Coerces values that mean the same (an int for a float field) when an event did not pass its check.

`heliograph.codec.validate` calls this when its quick condition is false. Here speed does not matter; the
sentence does: it says what the value is, what the field takes, and where. Only events are changed in place: a
list or dict may be shared with the caller, so one with a mended value is replaced by a new one.
"""

from __future__ import annotations

import enum
import operator
import typing
from ctypes import c_float
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isinf, isnan
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from heliograph.codec.any_values import MAX_DEPTH
from heliograph.codec.decimals import fitted, misfit
from heliograph.errors import ROOT, InvalidEvent
from heliograph.model import field_types as ft
from heliograph.model.annotations import bare, strip_none
from heliograph.model.event import Event, EventMeta, info_of

if TYPE_CHECKING:
    from heliograph.model.event import EventInfo

_SMALLEST: Final = ft.INTEGER_RANGES["i64"][0]
_LARGEST: Final = ft.INTEGER_RANGES["u64"][1]
"""The integers that `hg.Any` can hold: those of i64 and of u64."""

_SIMPLE: Final = frozenset({type(None), bool, float, bytes})
_PLAIN: Final[tuple[Any, ...]] = (bool, int, float, str, bytes)


def coerce_event(event: Event) -> None:
    """Store the plain form of each value that has one; raise InvalidEvent at the first that has none."""
    info = info_of(type(event))
    _Mender(info.name).event(event, info, ROOT)


def is_encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def anything_fits(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether `hg.Any` can hold a value as it is."""
    kind = type(value)
    if kind in _SIMPLE:
        return True
    if kind is int:
        return bool(_SMALLEST <= value <= _LARGEST)
    if kind is str:
        return value.isascii() or is_encodable(value)
    if kind is datetime:
        return _is_moment(value)
    if kind is list:
        return depth > 0 and all(anything_fits(item, depth - 1) for item in value)
    if kind is dict:
        return depth > 0 and all(
            type(key) is str and is_encodable(key) and anything_fits(item, depth - 1)
            for key, item in value.items()
        )
    return False


def _is_moment(value: datetime) -> bool:
    """Whether a time has a zone, and an instant in the calendar of UTC."""
    try:
        return value.utcoffset() is not None and bool(value.astimezone(UTC))
    except OverflowError:
        return False


class _Mender:
    """Walks through an event; every method returns the value to store in place of the one given."""

    def __init__(self, event_name: str) -> None:
        self._event_name = event_name

    def event(self, event: Event, info: EventInfo, path: str) -> None:
        for name, field in info.fields.items():
            value = getattr(event, name)
            mended = self._value(value, field.type, field.annotation, f"{path}.{name}")
            if mended is not value:
                msgspec.structs.force_setattr(event, name, mended)

    def _refuse(self, reason: str, path: str) -> InvalidEvent:
        return InvalidEvent(self._event_name, reason, path=path)

    def _no(self, value: Any, kind: ft.FieldType, path: str, hint: str = "") -> InvalidEvent:
        return self._refuse(f"{_short(value)} is no {kind}{hint}", path)

    def _value(self, value: Any, kind: ft.FieldType, annotation: Any, path: str) -> Any:
        match kind:
            case ft.Scalar(name=name):
                return self._scalar(value, name, kind, path)
            case ft.Optional(item=item):
                return None if value is None else self._value(value, item, strip_none(annotation), path)
            case ft.Enum():
                return self._enum(value, kind, bare(annotation), path)
            case ft.NestedEvent():
                return self._record(value, kind, bare(annotation), path)
            case ft.Decimal():
                return self._decimal(value, kind, path)
            case ft.List():
                return self._list(value, kind, annotation, path)
            case ft.Map():
                return self._map(value, kind, annotation, path)
            case ft.Array():
                return self._array(value, kind, path)
            case ft.Anything():
                return self._anything(value, path, MAX_DEPTH)

    def _scalar(self, value: Any, name: str, kind: ft.Scalar, path: str) -> Any:
        if name in ft.INTEGER_RANGES:
            return self._integer(value, name, kind, path)
        match name:
            case "f32" | "f64":
                return self._float(value, kind, path)
            case "str":
                return self._text(value, kind, path)
            case "datetime":
                return self._datetime(value, kind, path)
            case "date":
                return self._date(value, kind, path)
            case "uuid":
                return self._uuid(value, kind, path)
        wanted = bool if name == "bool" else bytes
        if not isinstance(value, wanted):
            raise self._no(value, kind, path)
        return wanted(value)

    def _integer(self, value: Any, name: str, kind: ft.Scalar, path: str) -> int:
        if isinstance(value, bool | enum.Enum) or not isinstance(value, int):
            raise self._no(value, kind, path, _integer_hint(value))
        low, high = ft.INTEGER_RANGES[name]
        if not low <= value <= high:
            raise self._refuse(f"{_short(value)} is out of range for {kind}: {low} to {high}", path)
        return int(value)

    def _float(self, value: Any, kind: ft.Scalar, path: str) -> float:
        if isinstance(value, bool | enum.Enum) or not isinstance(value, int | float):
            hint = "; write float(...)" if hasattr(value, "__float__") else ""
            raise self._no(value, kind, path, hint)
        try:
            plain = float(value)
        except OverflowError:
            raise self._refuse(f"{_short(value)} is out of range for {kind}", path) from None
        if kind.name == "f64" or isnan(plain):
            return plain
        rounded = c_float(plain).value
        if isinf(rounded) and not isinf(plain):
            raise self._refuse(f"{_short(value)} is out of range for {kind}", path)
        return rounded

    def _text(self, value: Any, kind: ft.Scalar, path: str) -> str:
        if isinstance(value, enum.Enum) or not isinstance(value, str):
            raise self._no(value, kind, path)
        if not is_encodable(value):
            raise self._refuse(
                f"{_short(value)} holds half of a surrogate pair, which no UTF-8 text can", path
            )
        return str(value)

    def _datetime(self, value: Any, kind: ft.FieldType, path: str) -> datetime:
        if not isinstance(value, datetime):
            raise self._no(value, kind, path)
        if value.utcoffset() is None:
            raise self._refuse(
                f"{value} has no time zone; write datetime.now(UTC), or .astimezone() for local times", path
            )
        if not _is_moment(value):
            raise self._refuse(f"{value} is outside of the years 1 to 9999 in UTC", path)
        return value

    def _date(self, value: Any, kind: ft.FieldType, path: str) -> date:
        if isinstance(value, datetime):
            # Python takes a datetime for a date, but which day it is depends on the zone.
            raise self._no(value, kind, path, "; write .date()")
        if not isinstance(value, date):
            raise self._no(value, kind, path, "; write date.fromisoformat(...)" * isinstance(value, str))
        return value if type(value) is date else date(value.year, value.month, value.day)

    def _uuid(self, value: Any, kind: ft.FieldType, path: str) -> UUID:
        if not isinstance(value, UUID):
            raise self._no(value, kind, path, "; write uuid.UUID(...)" * isinstance(value, str | bytes))
        return value if type(value) is UUID else UUID(int=value.int)

    def _enum(self, value: Any, kind: ft.Enum, cls: Any, path: str) -> Any:
        if not isinstance(value, cls):
            members = ", ".join(f"{cls.__name__}.{name}" for name, _ in kind.members[:8])
            raise self._no(value, kind, path, f"; its members are {members}")
        return value

    def _record(self, value: Any, kind: ft.NestedEvent, cls: Any, path: str) -> Any:
        if type(value) is not cls:
            is_subclass = isinstance(type(value), EventMeta) and isinstance(value, cls)
            hint = f"; exactly {cls.__name__} can stand here" if is_subclass else ""
            raise self._no(value, kind, path, hint)
        self.event(value, info_of(cls), path)
        return value

    def _list(self, value: Any, kind: ft.List, annotation: Any, path: str) -> Any:
        if type(value) is not list:
            raise self._no(value, kind, path)
        if kind.length not in (None, len(value)):
            raise self._refuse(f"{len(value)} items where {kind} takes {kind.length}", path)
        inner = typing.get_args(bare(annotation))[0]
        mended = [self._value(item, kind.item, inner, f"{path}[{index}]") for index, item in enumerate(value)]
        return mended if any(map(operator.is_not, mended, value)) else value

    def _decimal(self, value: Any, kind: ft.Decimal, path: str) -> Decimal:
        if isinstance(value, bool | enum.Enum) or not isinstance(value, Decimal | int):
            hint = "; write Decimal('...')" if isinstance(value, float | str) else ""
            raise self._no(value, kind, path, hint)
        # An int of any length may come, and to make a decimal of it may take long.
        too_long = isinstance(value, int) and abs(value) >= 10**ft.MAX_DIGITS
        made = None if too_long else fitted(Decimal(value), kind)
        if made is None:
            why = f"has more digits than {kind} holds" if too_long else misfit(Decimal(value), kind)
            raise self._refuse(f"{_short(value)} {why}", path)
        return made

    def _map(self, value: Any, kind: ft.Map, annotation: Any, path: str) -> Any:
        if type(value) is not dict:
            raise self._no(value, kind, path)
        if len(value) > ft.MAX_ENTRIES:
            raise self._refuse(f"{len(value)} entries; a map holds at most {ft.MAX_ENTRIES}", path)
        of_key, of_value = typing.get_args(bare(annotation))
        mended = {}
        changed = False
        for key, item in value.items():
            where = f"{path}[{_short(key)}]"
            own_key = self._value(key, kind.key, of_key, where)
            own = mended[own_key] = self._value(item, kind.value, of_value, where)
            changed = changed or own is not item or own_key is not key
        return mended if changed else value

    def _array(self, value: Any, kind: ft.Array, path: str) -> Any:
        import numpy as np  # noqa: PLC0415 - numpy is for classes that have arrays

        from heliograph.codec.arrays import MAX_DIMENSIONS, dtype_of  # noqa: PLC0415 - as above

        wanted = dtype_of(kind.item, "=")
        if type(value) is not np.ndarray:
            made = "np.asarray(...)" if hasattr(value, "__array__") else f"np.array(..., np.{wanted.name})"
            raise self._no(value, kind, path, f"; write {made}")
        if value.dtype != wanted:
            raise self._refuse(
                f"an array of {value.dtype.str} is no {kind}; write .astype(np.{wanted.name})", path
            )
        if value.ndim > MAX_DIMENSIONS or not kind.fits(value.shape):
            raise self._refuse(f"an array of shape {value.shape} is no {kind}", path)
        return value

    def _anything(self, value: Any, path: str, depth: int) -> Any:
        if type(value) in (list, dict):
            if depth == 0:
                raise self._refuse(f"nested deeper than {MAX_DEPTH} levels", path)
            return self._container(value, path, depth)
        plain = _plain(value)
        if not anything_fits(plain):
            raise self._refuse(
                f"{_short(value)} is nothing that hg.Any holds, which is None, bool, 64-bit int, float, str, "
                "bytes, datetime with a zone, list, and dict with str keys",
                path,
            )
        return plain

    def _container(self, value: Any, path: str, depth: int) -> Any:
        if type(value) is list:
            items = [self._anything(item, f"{path}[{index}]", depth - 1) for index, item in enumerate(value)]
            return items if any(map(operator.is_not, items, value)) else value
        mended = {}
        for key, item in value.items():
            if type(key) is not str or not is_encodable(key):
                raise self._refuse(f"{_short(key)} is no str and cannot be the key of a map", path)
            mended[key] = self._anything(item, f"{path}.{key}", depth - 1)
        return mended if any(map(operator.is_not, mended.values(), value.values())) else value


def _plain(value: Any) -> Any:
    """A value of a subclass, such as numpy's float64, as the plain type; but members of enums as they are."""
    if isinstance(value, enum.Enum):
        return value
    for plain in _PLAIN:
        if isinstance(value, plain):
            return value if type(value) is plain else plain(value)
    return value


def _integer_hint(value: Any) -> str:
    if isinstance(value, float | str | bool | enum.Enum):
        return ""
    try:
        operator.index(value)
    except TypeError:
        return ""
    return "; write int(...)"


def _short(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 1024:
        return f"an int of {value.bit_length()} bits"  # Python does not write it
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

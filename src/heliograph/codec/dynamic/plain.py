"""Plain data: what events hold where their classes are not known, checked against their format.

    record                 dict with a value for every field
    enum                   the member's value
    array                  numpy array of exactly the field's item type
    any other type         the same value that an event of the class holds

`check_record` and `check_value` return the data with values brought to their field's type (an int in a float
field becomes a float, an f32 is rounded to what travels, a numpy scalar becomes a Python number), or raise
InvalidEvent with the path of what is wrong. They take what `heliograph.codec.validate` takes, and numpy
scalars.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import c_float
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from heliograph.codec.any_values import MAX_DEPTH
from heliograph.codec.coerce import anything_fits, is_encodable
from heliograph.codec.decimals import fitted, misfit
from heliograph.errors import ROOT, InvalidEvent
from heliograph.errors.sentences import brief, listed
from heliograph.model import field_types as ft
from heliograph.model.formats import MAX_DEPTH as MAX_DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from heliograph.model.formats import Field, Format

_COMPLETE: Final[dict[str, type]] = {"f64": float, "bool": bool, "bytes": bytes, "date": date, "uuid": UUID}
"""Types of which every value fits."""

_PLAIN_TYPES: Final[tuple[Any, ...]] = (float, int, str, bytes)
_NUMPY_NAMES: Final = {
    "bool": "bool", "f32": "float32", "f64": "float64",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip


Checker: TypeAlias = Callable[[Any, "ValuePath", str | int], Any]
"""Takes a value, the place that holds it and the step to it; returns what stands for it in its field."""


class _Entry(str):
    """The step to an entry of a map, as it is written."""

    __slots__ = ()


class ValuePath:
    """Where in which event a value stands. Its path is put together only when there is an error to tell."""

    __slots__ = ("_parent", "_step", "event")

    def __init__(self, event: str, step: str | int = ROOT, parent: ValuePath | None = None) -> None:
        self.event = event
        self._step = step
        self._parent = parent

    @property
    def path(self) -> str:
        if self._parent is None:
            return str(self._step)
        if isinstance(self._step, _Entry):
            return self._parent.path + self._step
        step = f"[{self._step}]" if isinstance(self._step, int) else f".{self._step}"
        return self._parent.path + step

    def inside(self, step: str | int) -> ValuePath:
        """The place of a field, by name, or of an item, by index."""
        return ValuePath(self.event, step, self)

    def entry(self, key: object) -> ValuePath:
        """The place of a map's value, by its key."""
        return ValuePath(self.event, _Entry(f"[{brief(key)}]"), self)

    def refuse(self, reason: str) -> InvalidEvent:
        return InvalidEvent(self.event, reason, path=self.path)

    def expected(self, what: object, value: object) -> InvalidEvent:
        return self.refuse(f"needs {what}, not {_show(value)}")


class Leaves(NamedTuple):
    """What `walk` does to the values in which there is nothing more to walk into.

    Attributes:
        partial: whether records may lack fields.
    """

    scalar: Callable[[ft.ScalarName, Any, ValuePath], Any]
    array: Callable[[ft.Array, Any, ValuePath], Any]
    anything: Callable[[Any, ValuePath], Any]
    decimal: Callable[[ft.Decimal, Any, ValuePath], Any]
    entries: Callable[[ft.Map, Any, ValuePath], Mapping[Any, Any]]
    """The entries of a map by their plain keys; values are walked into."""
    key: Callable[[Any], Any]
    """What a key becomes."""
    partial: bool = False


def walk(kind: ft.FieldType, value: Any, at: ValuePath, leaves: Leaves) -> Any:
    """A value of this type in another form: records, lists and enums are checked, leaves are made anew."""
    match kind:
        case ft.Scalar(name=name):
            return leaves.scalar(name, value, at)
        case ft.Optional(item=item):
            return None if value is None else walk(item, value, at, leaves)
        case ft.Enum():
            return check_enum(kind, value, at)
        case ft.NestedEvent(format=fmt):
            return walk_record(fmt, value, at, leaves)
        case ft.List(item=item):
            return [walk(item, v, at.inside(i), leaves) for i, v in enumerate(check_list(kind, value, at))]
        case ft.Decimal():
            return leaves.decimal(kind, value, at)
        case ft.Map():
            entries = leaves.entries(kind, value, at)
            return {
                leaves.key(key): walk(kind.value, item, at.entry(key), leaves)
                for key, item in entries.items()
            }
        case ft.Array():
            return leaves.array(kind, value, at)
        case ft.Anything():
            return leaves.anything(value, at)


def walk_record(fmt: Format, data: object, at: ValuePath, leaves: Leaves) -> dict[str, Any]:
    """`walk` for the fields of a record; there may be no others."""
    given = check_names(fmt, data, at, may_miss=fmt.by_name if leaves.partial else ())
    return {
        field.name: walk(field.type, given[field.name], at.inside(field.name), leaves)
        for field in fmt.fields
        if field.name in given
    }


def check_record(fmt: Format, data: object, at: ValuePath) -> dict[str, Any]:
    """The plain form of a record of this format, complete and with nothing else in it."""
    return walk_record(fmt, data, at, _CHECKED)


def check_value(kind: ft.FieldType, value: Any, at: ValuePath) -> Any:
    """The plain form of a value of this type."""
    return walk(kind, value, at, _CHECKED)


def check_names(
    fmt: Format, data: object, at: ValuePath, may_miss: Collection[str] = ()
) -> Mapping[str, Any]:
    """The data as a mapping that has all fields but those that may be missing, and no others."""
    if not isinstance(data, Mapping):
        raise at.expected(f"a mapping with the fields of {fmt.name}", data)
    known = fmt.by_name
    for name in data.keys() - known.keys():
        raise at.inside(str(name)[:60]).refuse(
            f"{fmt.name} has no field of this name; its fields are: {listed(known)}"
        )
    if len(data) < len(known):
        _check_missing([field for field in fmt.fields if field.name not in {*data, *may_miss}], at)
    return data


def _check_missing(missing: list[Field], at: ValuePath) -> None:
    """All of them at once: a user who writes an event by hand corrects it once."""
    if len(missing) == 1:
        name, kind = missing[0].name, missing[0].type
        raise at.inside(name).refuse(f"field {name!r} is missing and has no default; needs {kind}")
    if missing:
        fields = listed([f"{field.name} ({field.type})" for field in missing])
        raise at.refuse(f"fields are missing that have no default: {fields}")


def check_scalar(name: ft.ScalarName, value: Any, at: ValuePath) -> Any:
    if type(value) is _COMPLETE.get(name):
        return value
    if name in ft.INTEGER_RANGES:
        low, high = ft.INTEGER_RANGES[name]
        number = _integer(value)
        if number is None or not low <= number <= high:
            raise at.expected(f"{name} ({low} to {high})", value)
        return number
    if name in ft.FLOATS:
        return _float(name, value, at)
    if name == "bool":
        # numpy's bool is not Python's, but means the same.
        if type(value).__module__ == "numpy" and str(value) in ("True", "False"):
            return bool(value)
        raise at.expected("bool", value)
    if name == "str":
        return _text(value, at)
    if name == "datetime":
        return _moment(value, at)
    if name == "date":
        if isinstance(value, datetime) or not isinstance(value, date):
            raise at.expected("date", value)
        return date(value.year, value.month, value.day)
    if name == "uuid":
        if not isinstance(value, UUID):
            raise at.expected("UUID", value)
        return UUID(int=value.int)
    if not isinstance(value, bytes):
        raise at.expected("bytes", value)
    return bytes(value)


def scalar_checker(name: ft.ScalarName) -> Checker:
    """`check_scalar` for one type, which looks at the usual case first and makes no Place for it."""
    if name in ft.INTEGER_RANGES:
        low, high = ft.INTEGER_RANGES[name]

        def check(value: Any, at: ValuePath, step: str | int) -> Any:
            if type(value) is int and low <= value <= high:
                return value
            return check_scalar(name, value, at.inside(step))

    else:
        complete = _COMPLETE.get(name)

        def check(value: Any, at: ValuePath, step: str | int) -> Any:
            return value if type(value) is complete else check_scalar(name, value, at.inside(step))

    return check


def check_enum(kind: ft.Enum, value: Any, at: ValuePath) -> int | str:
    # By type too, because True == 1.
    if type(value) not in (int, str) or value not in kind.values:
        allowed = listed([brief(member) for _, member in kind.members])
        raise at.expected(f"a value of {kind} ({allowed})", value)
    return value  # type: ignore[no-any-return]


def check_list(kind: ft.List, value: Any, at: ValuePath) -> list[Any]:
    """The list itself, of the right length; its items are not looked at."""
    if not isinstance(value, list) or kind.length not in (None, len(value)):
        raise at.expected(kind, value)
    return value


def check_decimal(kind: ft.Decimal, value: Any, at: ValuePath) -> Decimal:
    """The value with the digits of its field behind the point; none is rounded away."""
    if isinstance(value, bool | enum.Enum) or not isinstance(value, Decimal | int):
        raise at.expected(f"{kind} (a decimal.Decimal)", value)
    if isinstance(value, int) and abs(value) >= 10**ft.MAX_DIGITS:
        raise at.expected(kind, value)
    made = fitted(Decimal(value), kind)
    if made is None:
        raise at.refuse(f"{brief(value)} {misfit(Decimal(value), kind)}")
    return made


def check_entries(kind: ft.Map, value: Any, at: ValuePath) -> Mapping[Any, Any]:
    """The entries of a map, with keys of the right type; its values are not looked at."""
    if not isinstance(value, Mapping):
        raise at.expected(kind, value)
    check_count(len(value), at)
    return {walk(kind.key, key, at.entry(key), _CHECKED): item for key, item in value.items()}


def check_count(count: int, at: ValuePath) -> None:
    """Refuse a map with too many entries."""
    if count > ft.MAX_ENTRIES:
        raise at.refuse(f"has {count} entries; a map holds at most {ft.MAX_ENTRIES}")


def check_array(kind: ft.Array, value: Any, at: ValuePath) -> NDArray[Any]:
    dtype = getattr(value, "dtype", None)
    if (
        dtype is None
        or dtype != item_dtype(kind.item)
        or not shape_fits(kind.shape, value.shape)
        or value.ndim > MAX_DIMENSIONS
    ):
        have = _show(value) if dtype is None else f"array of {dtype} and shape {value.shape}"
        raise at.refuse(f"needs {kind} (a numpy array of {_NUMPY_NAMES[kind.item]}), not {have}")
    return value  # type: ignore[no-any-return]


def check_anything(value: Any, at: ValuePath, depth: int = MAX_DEPTH) -> Any:
    if anything_fits(value, depth):
        return value
    match value:
        case list() | dict() if depth == 0:
            raise at.refuse(f"is nested deeper than {MAX_DEPTH} levels")
        case list():
            return [check_anything(v, at.inside(i), depth - 1) for i, v in enumerate(value)]
        case dict() if all(isinstance(name, str) for name in value):
            return {
                _text(name, at): check_anything(v, at.inside(name), depth - 1) for name, v in value.items()
            }
        case float() | int() | str() | bytes() if not isinstance(value, enum.Enum):
            plain = next(kind(value) for kind in _PLAIN_TYPES if isinstance(value, kind))
            if anything_fits(plain):
                return plain
    raise at.expected(
        "plain data (None, bool, 64-bit int, float, str, bytes, datetime with a time zone, list, "
        "dict with text keys)",
        value,
    )


def same_key(key: Any) -> Any:
    """A key of a map as it is."""
    return key


_CHECKED: Final = Leaves(check_scalar, check_array, check_anything, check_decimal, check_entries, same_key)


def shaped(flat: NDArray[Any], shape: tuple[int, ...], at: ValuePath) -> NDArray[Any]:
    """The items in a shape that comes from outside, and that may be none that numpy has."""
    if math.prod(shape) == flat.size:
        # With a zero among them the sizes may still be negative, or too large together.
        with suppress(ValueError):
            return flat.reshape(shape)
    raise at.refuse(f"the shape {brief(list(shape))} does not go with {flat.size} items")


def shape_fits(wanted: tuple[int | None, ...] | None, shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape goes into a field with these dimensions."""
    if wanted is None:
        return True
    return len(wanted) == len(shape) and all(n in (None, m) for n, m in zip(wanted, shape, strict=True))


def item_dtype(name: str) -> Any:
    """The numpy dtype of array items, in this machine's byte order."""
    import numpy as np  # noqa: PLC0415 - only records with arrays need numpy

    return np.dtype(_NUMPY_NAMES[name])


def _integer(value: Any) -> int | None:
    if isinstance(value, bool | enum.Enum) or not hasattr(value, "__index__"):
        return None
    return value if type(value) is int else int(value.__index__())


def _float(name: str, value: Any, at: ValuePath) -> float:
    if isinstance(value, bool | enum.Enum) or not (isinstance(value, float | int) or hasattr(value, "dtype")):
        raise at.expected(name, value)
    try:
        number = float(value)
    except (OverflowError, TypeError):
        raise at.expected(f"{name} within its range", value) from None
    if name == "f64" or not math.isfinite(number):
        return number
    rounded = c_float(number).value
    if not math.isfinite(rounded):
        raise at.expected("f32 within its range", value)
    return rounded


def _text(value: Any, at: ValuePath) -> str:
    if isinstance(value, enum.Enum) or not isinstance(value, str):
        raise at.expected("str", value)
    if not is_encodable(value):
        raise at.expected("text that has a UTF-8 form", value)
    return str(value)


def _moment(value: Any, at: ValuePath) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise at.expected("datetime with a time zone", value)
    if not anything_fits(value):
        raise at.expected("datetime between the years 1 and 9999 in UTC", value)
    return value


def _show(value: object) -> str:
    return f"{type(value).__name__} {brief(value)}"

"""Events as JSON and back, without loss, driven by the format alone.

    integers               numbers, also beyond 2**53
    floats                 numbers; "NaN", "Infinity" and "-Infinity" as text, for JSON has none
    bool, str, None        as in JSON
    bytes                  text in base64
    datetime               text as RFC 3339 in UTC with microseconds: 2026-11-05T10:00:00.000000Z
    date                   text: 2026-11-05
    uuid                   text: 12345678-1234-5678-1234-567812345678
    enum                   the member's value
    record                 object
    decimal                text: 10.2500; a number without a fraction is read, too
    list                   array
    map                    object; keys that are numbers as text
    array                  nested arrays; {"shape": [0, 3], "data": []} where nesting cannot tell the shape
    any                    as it is; what JSON has not as {"$bytes": …}, {"$datetime": …}, {"$float": "NaN"};
                           and a key that starts with $ gets one more

Reading is strict: what does not fit its field is refused with its path.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import msgspec

from heliograph.codec.any_values import MAX_DEPTH as MAX_ANYTHING_DEPTH
from heliograph.codec.dynamic.plain import (
    Leaves,
    ValuePath,
    check_anything,
    check_array,
    check_count,
    check_decimal,
    check_entries,
    check_record,
    check_scalar,
    item_dtype,
    same_key,
    shaped,
    walk_record,
)
from heliograph.model import field_types as ft
from heliograph.model.formats import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from heliograph.model.formats import Format

_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_DECIMAL: Final = 100
_DECIMAL: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,19}")
MAX_SIZE: Final = (1 << 31) - 1
"""Of an array in one dimension."""


def mapping_to_json(fmt: Format, mapping: Mapping[str, Any]) -> bytes:
    """One JSON object for the plain data of a record; InvalidEvent when the data does not fit the format."""
    return msgspec.json.encode(record_to_tree(fmt, mapping, ValuePath(fmt.name)))


def json_to_mapping(fmt: Format, data: bytes | str) -> dict[str, Any]:
    """The plain data that a JSON object holds; all fields must be there, and no others."""
    at = ValuePath(fmt.name)
    return check_record(fmt, record_from_tree(fmt, parse(data, at), at), at)


def anything_to_json(value: Any, at: ValuePath) -> str:
    """Schema-less data alone as JSON."""
    return msgspec.json.encode(_write_anything(value, at)).decode()


def anything_from_json(text: str, at: ValuePath) -> Any:
    """The schema-less data that `anything_to_json` wrote."""
    return _read_anything(parse(text, at), at)


def parse(data: bytes | str, at: ValuePath) -> Any:
    """JSON text as a tree; InvalidEvent when it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise at.refuse(f"this is no JSON: {error}") from None


def record_to_tree(fmt: Format, data: Mapping[str, Any], at: ValuePath) -> dict[str, Any]:
    """What JSON can hold, for the plain data of a record."""
    return walk_record(fmt, data, at, _WRITTEN)


def record_from_tree(fmt: Format, tree: object, at: ValuePath) -> dict[str, Any]:
    """The plain data of a record, out of what JSON holds; fields may be missing, for a class has defaults."""
    return walk_record(fmt, tree, at, _READ)


def _write_scalar(name: ft.ScalarName, value: Any, at: ValuePath) -> Any:
    value = check_scalar(name, value, at)
    if name == "bytes":
        return _bytes_text(value)
    if name == "datetime":
        return _datetime_text(value)
    if name in ("date", "uuid"):
        return str(value)
    if name in ft.FLOATS:
        return _float_tree(value)
    return value


def _read_scalar(name: ft.ScalarName, tree: Any, at: ValuePath) -> Any:
    if name == "bytes":
        return _read_bytes(tree, at)
    if name == "datetime":
        return _read_datetime(tree, at)
    if name == "date":
        return _read_date(tree, at)
    if name == "uuid":
        return _read_uuid(tree, at)
    if name in ft.FLOATS and isinstance(tree, str):
        tree = _read_not_finite(tree, at)
    return check_scalar(name, tree, at)


def _write_anything(value: Any, at: ValuePath) -> Any:
    return _anything_to_tree(check_anything(value, at))


def _read_anything(tree: Any, at: ValuePath) -> Any:
    return check_anything(_anything_from_tree(tree, at, MAX_ANYTHING_DEPTH), at)


def _anything_to_tree(value: Any) -> Any:
    match value:
        case bytes():
            return {"$bytes": _bytes_text(value)}
        case datetime():
            return {"$datetime": _datetime_text(value)}
        case float() if not math.isfinite(value):
            return {"$float": _float_tree(value)}
        case list():
            return [_anything_to_tree(item) for item in value]
        case dict():
            return {
                f"${name}" if name.startswith("$") else name: _anything_to_tree(item)
                for name, item in value.items()
            }
        case _:
            return value


def _anything_from_tree(tree: Any, at: ValuePath, depth: int) -> Any:
    match tree:
        case {"$bytes": text, **rest} if not rest:
            return _read_bytes(text, at)
        case {"$datetime": text, **rest} if not rest:
            return _read_datetime(text, at)
        case {"$float": text, **rest} if not rest:
            return _read_not_finite(text, at)
        case list() | dict() if depth == 0:
            raise at.refuse(f"is nested deeper than {MAX_ANYTHING_DEPTH} levels")
        case list():
            return [_anything_from_tree(v, at.inside(i), depth - 1) for i, v in enumerate(tree)]
        case dict():
            return {
                _unescape(name, at): _anything_from_tree(v, at.inside(name), depth - 1)
                for name, v in tree.items()
            }
        case _:
            return tree


def _unescape(name: str, at: ValuePath) -> str:
    if not name.startswith("$"):
        return name
    if not name.startswith("$$"):
        raise at.refuse(f"{name!r} is no known tag; a key that starts with $ is written with one more $")
    return name[1:]


def _write_array(kind: ft.Array, value: Any, at: ValuePath) -> Any:
    value = check_array(kind, value, at)
    tree = value.tolist()
    if value.dtype.kind == "f" and not _all_finite(value):
        tree = _floats_tree(tree)
    if value.ndim == 0:
        return {"shape": [], "data": [tree]}
    if value.ndim > 1 and value.size == 0:
        return {"shape": list(value.shape), "data": []}
    return tree


def _all_finite(value: NDArray[Any]) -> bool:
    import numpy as np  # noqa: PLC0415 - only records with arrays need numpy

    return bool(np.isfinite(value).all())


def _floats_tree(tree: Any) -> Any:
    return [_floats_tree(item) for item in tree] if isinstance(tree, list) else _float_tree(tree)


def _read_array(kind: ft.Array, tree: Any, at: ValuePath) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415 - only records with arrays need numpy

    match tree:
        case {"shape": list(shape), "data": list(flat), **rest} if not rest:
            if len(shape) > MAX_DEPTH or not all(type(n) is int and 0 <= n <= MAX_SIZE for n in shape):
                raise at.expected(f"a shape of at most {MAX_DEPTH} sizes", shape)
        case list():
            shape = _nested_shape(tree, at)
            flat = _flatten(tree, shape, at)
        case _:
            raise at.expected("nested lists, or an object with shape and data", tree)
    items = [_read_scalar(kind.item, v, at) for v in flat]
    array = shaped(np.array(items, dtype=item_dtype(kind.item)), tuple(shape), at)
    return check_array(kind, array, at)


def _write_decimal(kind: ft.Decimal, value: Any, at: ValuePath) -> str:
    return f"{check_decimal(kind, value, at):f}"


def _read_decimal(kind: ft.Decimal, tree: Any, at: ValuePath) -> Decimal:
    if isinstance(tree, str) and len(tree) <= _MAX_DECIMAL and _DECIMAL.fullmatch(tree):
        return check_decimal(kind, Decimal(tree), at)
    if isinstance(tree, int):
        return check_decimal(kind, tree, at)
    raise at.expected(f"{kind} as text such as '10.25', for a JSON number would be rounded", tree)


def _write_key(key: Any) -> str:
    return str(key)


def _read_entries(kind: ft.Map, tree: Any, at: ValuePath) -> Mapping[Any, Any]:
    if not isinstance(tree, dict):
        raise at.expected(kind, tree)
    check_count(len(tree), at)
    is_text = kind.key == ft.Scalar("str") or getattr(kind.key, "base", None) == "str"
    made = {key if is_text else _read_number(key, at): item for key, item in tree.items()}
    return check_entries(kind, made, at)


def _read_number(key: str, at: ValuePath) -> int:
    # Only as it is written: two texts must not become one key.
    if not _WHOLE.fullmatch(key):
        raise at.entry(key).expected("the text of an integer", key)
    return int(key)


_WRITTEN: Final = Leaves(
    _write_scalar, _write_array, _write_anything, _write_decimal, check_entries, _write_key
)
_READ: Final = Leaves(
    _read_scalar, _read_array, _read_anything, _read_decimal, _read_entries, same_key, partial=True
)


def _nested_shape(tree: Any, at: ValuePath) -> list[int]:
    shape: list[int] = []
    while isinstance(tree, list):
        shape.append(len(tree))
        if len(shape) > MAX_DEPTH:
            raise at.refuse(f"an array has at most {MAX_DEPTH} dimensions")
        tree = tree[0] if tree else None
    return shape


def _flatten(tree: list[Any], shape: list[int], at: ValuePath) -> list[Any]:
    for size in shape[1:]:
        if not all(isinstance(row, list) and len(row) == size for row in tree):
            raise at.refuse("the nested lists have different lengths")
        tree = [item for row in tree for item in row]
    return tree


def _float_tree(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _read_not_finite(text: Any, at: ValuePath) -> float:
    if not isinstance(text, str) or text not in _NOT_FINITE:
        raise at.expected("a number, or 'NaN', 'Infinity' or '-Infinity'", text)
    return _NOT_FINITE[text]


def _bytes_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _read_bytes(text: Any, at: ValuePath) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise at.expected("text in base64", text) from None


def _datetime_text(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _read_datetime(text: Any, at: ValuePath) -> datetime:
    try:
        moment: datetime = msgspec.convert(text, Annotated[datetime, msgspec.Meta(tz=True)])
        return moment.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        raise at.expected("a time as in 2026-11-05T10:00:00.000000Z", text) from None


def _read_date(text: Any, at: ValuePath) -> date:
    try:
        return msgspec.convert(text, date)
    except msgspec.ValidationError:
        raise at.expected("a date as in 2026-11-05", text) from None


def _read_uuid(text: Any, at: ValuePath) -> UUID:
    try:
        return msgspec.convert(text, UUID)
    except msgspec.ValidationError:
        raise at.expected("a UUID as in 12345678-1234-5678-1234-567812345678", text) from None

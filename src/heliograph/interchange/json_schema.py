"""The JSON Schema of an event type: what `helio sub` prints, `helio pub` takes and MCAP files hold.

    schema_of(format_of(Track))  ->  {"type": "object", "properties": {"id": {"type": "integer", ...}, ...}}

It describes the JSON of `heliograph.codec.dynamic.json` (draft 2020-12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from heliograph.model import field_types as ft

if TYPE_CHECKING:
    from heliograph.model.formats import Format

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCALARS: Final[dict[str, dict[str, Any]]] = {
    **{
        name: {"type": "integer", "minimum": low, "maximum": high}
        for name, (low, high) in ft.INTEGER_RANGES.items()
    },
    **{
        name: {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
        for name in ft.FLOATS
    },
    "bool": {"type": "boolean"},
    "str": {"type": "string"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "uuid": {"type": "string", "format": "uuid"},
}


def schema_of(fmt: Format, has_default: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The schema of an event type. Fields with a default may be left out, if it is known which have one."""
    return {"$schema": DIALECT, **_record(fmt, has_default)}


def _record(fmt: Format, has_default: frozenset[str] = frozenset()) -> dict[str, Any]:
    return {
        "title": fmt.name,
        "type": "object",
        "properties": {field.name: _field(field.type) for field in fmt.fields},
        "required": [field.name for field in fmt.fields if field.name not in has_default],
        "additionalProperties": False,
    }


def _field(kind: ft.FieldType) -> dict[str, Any]:
    match kind:
        case ft.Scalar(name):
            return _SCALARS.get(name, {})
        case ft.Optional(item):
            return {"anyOf": [_field(item), {"type": "null"}]}
        case ft.Enum():
            return {"title": kind.name, "enum": [value for _, value in kind.members]}
        case ft.NestedEvent(fmt):
            return _record(fmt)
        case ft.List(item, length):
            count = {} if length is None else {"minItems": length, "maxItems": length}
            return {"type": "array", "items": _field(item), **count}
        case ft.Decimal(scale=scale):
            fraction = rf"(\.[0-9]{{1,{scale}}}0*)?" if scale else r"(\.0+)?"
            text = {"type": "string", "pattern": rf"^-?0*[0-9]{{1,{max(1, kind.whole_digits)}}}{fraction}$"}
            return {"anyOf": [text, {"type": "integer"}]}
        case ft.Map(key, value):
            return _map(key, value)
        case ft.Array():
            return _array(kind)
    return {}  # what has no schema may be anything


def _map(key: ft.Scalar | ft.Enum, value: ft.FieldType) -> dict[str, Any]:
    """An object; keys that are numbers are written as text."""
    names: dict[str, Any] = {}
    if isinstance(key, ft.Enum):
        names = {"propertyNames": {"enum": [str(member) for _, member in key.members]}}
    elif key.name != "str":
        names = {"propertyNames": {"pattern": "^(0|-?[1-9][0-9]*)$"}}
    return {
        "type": "object",
        "additionalProperties": _field(value),
        "maxProperties": ft.MAX_ENTRIES,
        **names,
    }


def _array(kind: ft.Array) -> dict[str, Any]:
    """Nested arrays, or shape and data where nesting cannot tell the shape."""
    data = {"type": "array", "items": _SCALARS[kind.item]}
    flat = {
        "type": "object",
        "properties": {"shape": {"type": "array"}, "data": data},
        "required": ["shape", "data"],
    }
    return {"anyOf": [{"type": "array"}, flat]}

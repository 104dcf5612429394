"""Reflection: events as plain data, for programs that never saw the class, and back.

    describe(fmt)                        what fields there are
    event_to_mapping(event)              a dict; `event.to_dict()`
    event_from_mapping(Track, data)      `Track.from_dict(data)`
    event_to_json(event)                 `event.to_json()`; see `heliograph.codec.dynamic.json` for how types
    look event_from_json(Track, data)         `Track.from_json(data)`
    mapping_to_json(fmt, mapping)        the same where only the format is known
    json_to_mapping(fmt, data)

What plain data looks like is said in `heliograph.codec.dynamic.plain`; `heliograph.codec.columnar.columns`
makes Arrow batches of it.
"""

from __future__ import annotations

import enum
import typing
from datetime import date
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from heliograph.codec.any_values import MAX_DEPTH as MAX_ANYTHING_DEPTH
from heliograph.codec.dynamic.json import json_to_mapping, mapping_to_json, parse, record_from_tree
from heliograph.codec.dynamic.plain import (
    Checker,
    ValuePath,
    check_entries,
    check_enum,
    check_list,
    check_names,
    check_value,
    scalar_checker,
)
from heliograph.errors import ROOT
from heliograph.model import field_types as ft
from heliograph.model.annotations import bare, strip_none
from heliograph.model.event import Event, format_of, info_of
from heliograph.model.formats import MAX_DEPTH
from heliograph.model.layout import size_and_align

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from heliograph.model.formats import Format

__all__ = [
    "FieldRow",
    "describe",
    "event_from_json",
    "event_from_mapping",
    "event_to_json",
    "event_to_mapping",
    "json_to_mapping",
    "mapping_to_json",
    "to_plain",
]

E = TypeVar("E", bound=Event)

_ATOMS: Final = frozenset({int, float, str, bytes, bool, NoneType, date, UUID, Decimal})
MAX_LEVELS: Final = MAX_DEPTH + MAX_ANYTHING_DEPTH
"""Records and lists of a format inside one another, and schema-less data at the bottom of them."""


class FieldRow(NamedTuple):
    """One line of `describe`."""

    path: str
    type: str
    key: bool
    offset: int | None
    """Bytes from the start of a native body; None in packed ones and inside lists."""


def describe(fmt: Format) -> list[FieldRow]:
    """All fields, those of nested records too, in wire order."""
    return list(_rows(fmt, ROOT, 0, fmt.key))


def event_to_mapping(event: Event) -> dict[str, Any]:
    """The event as plain nested data. Values are taken as they are; they are checked when pushed."""
    at = ValuePath(info_of(type(event)).name)
    return {
        name: value if type(value) in _ATOMS else to_plain(value, at.inside(name))
        for name, value in ((name, getattr(event, name)) for name in event.__struct_fields__)
    }


def event_from_mapping(cls: type[E], data: Mapping[str, Any]) -> E:
    """An event from plain nested data; InvalidEvent names the path of what does not fit."""
    return _build_event(cls, data, ValuePath(info_of(cls).name))


def event_to_json(event: Event) -> bytes:
    """The event as one JSON object; InvalidEvent when a value does not fit its field."""
    return mapping_to_json(format_of(event), event_to_mapping(event))


def event_from_json(cls: type[E], data: bytes | str) -> E:
    """An event from one JSON object; InvalidEvent names the path of what does not fit."""
    at = ValuePath(info_of(cls).name)
    return _build_event(cls, record_from_tree(format_of(cls), parse(data, at), at), at)


def _rows(fmt: Format, path: str, base: int, key: tuple[str, ...] = ()) -> Iterator[FieldRow]:
    for field in fmt.fields:
        where = f"{path}.{field.name}"
        offset = None if field.offset is None else base + field.offset
        yield FieldRow(where, str(field.type), field.name in key, offset)
        kind = field.type
        while isinstance(kind, ft.Optional | ft.List | ft.Map):
            if isinstance(kind, ft.List | ft.Map):
                where += "[]"
            elif offset is not None:
                # The byte that says whether there is a value takes as much as the value's alignment.
                offset += size_and_align(kind, where, fmt.byte_order)[1]
            kind = kind.value if isinstance(kind, ft.Map) else kind.item
        if isinstance(kind, ft.NestedEvent):
            yield from _rows(kind.format, where, offset or 0)


def to_plain(value: Any, at: ValuePath) -> Any:
    """Any value of a field without its classes: events as dicts, enum members by value, also in lists.

    InvalidEvent for a list that is deeper than any field can be, such as one that holds itself.
    """
    try:
        return _without_classes(value, MAX_LEVELS)
    except _TooDeep:
        raise at.refuse(f"is nested deeper than the {MAX_LEVELS} levels that a field can have") from None


class _TooDeep(Exception):
    """Lists and events inside one another beyond what a field can hold."""


def _without_classes(value: Any, levels: int) -> Any:
    if type(value) in _ATOMS:
        return value
    match value:
        case Event() | list() | dict() if levels == 0:
            raise _TooDeep
        case Event():
            names = value.__struct_fields__
            return {name: _without_classes(getattr(value, name), levels - 1) for name in names}
        case enum.Enum():
            return value.value
        case list():
            return [_without_classes(item, levels - 1) for item in value]
        case dict():
            return {
                _without_classes(key, levels - 1): _without_classes(item, levels - 1)
                for key, item in value.items()
            }
        case _:
            return value


class _Builders(NamedTuple):
    """How the fields of an event class are made from plain data; put together once per class."""

    format: Format
    has_default: frozenset[str]
    by_name: dict[str, Checker]


@lru_cache(maxsize=1024)
def _builders_of(cls: type[Event]) -> _Builders:
    fmt = format_of(cls)
    fields = msgspec.structs.fields(cls)
    return _Builders(
        fmt,
        frozenset(field.name for field in fields if not field.required),
        {name: _builder(field.type, field.annotation) for name, field in info_of(cls).fields.items()},
    )


def _build_event(cls: type[E], data: object, at: ValuePath) -> E:
    fmt, has_default, builders = _builders_of(cls)
    given = check_names(fmt, data, at, has_default)
    return cls(**{name: builders[name](value, at, name) for name, value in given.items()})


def _builder(kind: ft.FieldType, annotation: Any) -> Checker:
    """What makes values of a type; its annotation leads to the event and enum classes in it."""
    cls = bare(annotation)
    match kind:
        case ft.Scalar(name=name):
            return scalar_checker(name)
        case ft.NestedEvent():
            return lambda value, at, step: _build_event(cls, value, at.inside(step))
        case ft.Enum():
            return lambda value, at, step: cls(check_enum(kind, value, at.inside(step)))
        case ft.Optional(item=item):
            build = _builder(item, strip_none(annotation))
            return lambda value, at, step: None if value is None else build(value, at, step)
        case ft.List():
            return _list_builder(kind, typing.get_args(cls)[0])
        case ft.Map():
            return _map_builder(kind, *typing.get_args(cls))
        case _:
            return lambda value, at, step: check_value(kind, value, at.inside(step))


def _map_builder(kind: ft.Map, of_key: Any, of_value: Any) -> Checker:
    build_key, build_value = _builder(kind.key, of_key), _builder(kind.value, of_value)

    def build(value: Any, at: ValuePath, step: str | int) -> dict[Any, Any]:
        here = at.inside(step)
        return {
            build_key(key, here, step): build_value(item, here, key if isinstance(key, int) else f"[{key!r}]")
            for key, item in check_entries(kind, value, here).items()
        }

    return build


def _list_builder(kind: ft.List, annotation: Any) -> Checker:
    build_item = _builder(kind.item, annotation)

    def build(value: Any, at: ValuePath, step: str | int) -> list[Any]:
        here = at.inside(step)
        return [build_item(item, here, i) for i, item in enumerate(check_list(kind, value, here))]

    return build

"""Event classes for formats that this program never saw: what `helio pub` and the sink for Spark write with,
and in which keepers keep events of versions that they have no class of.

A description names every field and its type, so a class can be made of it that has the very same format. It
does not say which fields have defaults, so all are required.
"""

from __future__ import annotations

import enum
import typing
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Final, cast
from uuid import UUID

import heliograph.model.annotations as marks
from heliograph.codec import decoder, encoder
from heliograph.errors import FormatError
from heliograph.model import field_types as ft
from heliograph.model.event import Event, EventMeta, format_of, info_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.model.formats import Format

_PLAIN: Final[dict[str, Any]] = {
    "i64": int,
    "f64": float,
    "str": str,
    "bytes": bytes,
    "bool": bool,
    "datetime": datetime,
    "date": date,
    "uuid": UUID,
}


@lru_cache(maxsize=1024)
def class_for(fmt: Format) -> type[Event]:
    """An event class of exactly this format, the same one for all; FormatError when there can be none."""
    annotations = {field.name: _annotation(field.type) for field in fmt.fields}
    try:
        made = EventMeta(
            "Generated",
            (Event,),
            {"__annotations__": annotations, "__module__": __name__},
            name=fmt.name,
            key=fmt.key,
            body=fmt.body,
        )
    except (TypeError, ValueError) as error:
        raise FormatError(f"no class can be made of {fmt}: {error}") from None
    cls = cast("type[Event]", made)
    if format_of(cls).id != fmt.id:
        raise FormatError(f"no class here has the format {fmt}; it may be of a machine of another byte order")
    return cls


def is_made(cls: type[Event]) -> bool:
    """Whether a class was made here: no program has it, and none of its fields has a default."""
    return cls.__module__ == __name__


def version_class(fmt: Format, own: type[Event]) -> type[Event]:
    """The class for events exactly as they were pushed: this one if it has that format, else one made of it.

    Where there can be none, as for a native layout of another byte order, they are read as this class.
    """
    if info_of(own).format.id == fmt.id:
        return own
    try:
        return class_for(fmt)
    except FormatError:
        return own


def in_class_of(event: Event, types: Iterable[type[Event]]) -> Event:
    """An event in the version of its class that these have; IncompatibleFormats when it cannot be."""
    cls, name = type(event), info_of(type(event)).name
    versions = [own for own in types if info_of(own).name == name]
    if not versions or cls in versions:
        return event
    return decoder(info_of(cls).format, versions[0])(encoder(cls).encode(event))


def as_read_by(event: Event, types: Iterable[type[Event]]) -> Event:
    """The same for its readers; where no program has the class it stays as it was pushed."""
    versions = [own for own in types if info_of(own).name == info_of(type(event)).name]
    return event if versions and is_made(versions[0]) else in_class_of(event, versions)


def _annotation(kind: ft.FieldType) -> Any:
    match kind:
        case ft.Scalar(name=name):
            return _PLAIN.get(name) or getattr(marks, name)
        case ft.Optional(item=item):
            return typing.Optional[_annotation(item)]  # noqa: UP045 - `|` does not take every annotation
        case ft.Enum():
            return _enum(kind)
        case ft.NestedEvent(format=fmt):
            return class_for(fmt)
        case ft.List(item=item, length=length):
            items = GenericAlias(list, (_annotation(item),))
            return items if length is None else Annotated[items, marks.Length(length)]
        case ft.Decimal(precision=precision, scale=scale):
            return Annotated[Decimal, marks.Digits(precision, scale)]
        case ft.Map(key=key, value=value):
            return GenericAlias(dict, (_annotation(key), _annotation(value)))
        case ft.Array():
            return _array(kind)
        case ft.Anything():
            return Any


def _enum(kind: ft.Enum) -> type[enum.Enum]:
    try:
        made = cast("Any", enum.Enum)(kind.name, list(kind.members))
    except (TypeError, ValueError) as error:
        raise FormatError(f"no enum can be made of {kind.name[:40]!r}: {error}") from None
    return cast("type[enum.Enum]", made)


def _array(kind: ft.Array) -> Any:
    import numpy as np  # noqa: PLC0415 - only formats with arrays need it

    sizes = {"f": "float", "i": "int", "u": "uint"}
    name = "bool_" if kind.item == "bool" else f"{sizes[kind.item[0]]}{kind.item[1:]}"
    # What NDArray[np.float64] stands for.
    array = GenericAlias(np.ndarray, (Any, GenericAlias(np.dtype, (getattr(np, name),))))
    return array if kind.shape is None else Annotated[array, marks.Shape(*kind.shape)]

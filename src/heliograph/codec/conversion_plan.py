"""What a decoder has to do, decided once: which wire field goes where, and how each value changes on the way.

A plan joins a wire format with a receiver, which is an event class, or None for a program that has no class
and wants mappings. It says nothing of bytes: `packed` and `native` turn the same plan into code.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from heliograph.model import field_types as ft
from heliograph.model.annotations import bare, strip_none
from heliograph.model.compatibility import check, defaults_of
from heliograph.model.event import info_of

if TYPE_CHECKING:
    import enum
    from collections.abc import Callable

    from heliograph.model.compatibility import MissingPolicy
    from heliograph.model.event import Event
    from heliograph.model.formats import Format


class ValuePlan(NamedTuple):
    """How one value travels from the wire to the receiver."""

    wire: ft.FieldType
    reader: ft.FieldType
    """As the receiver wants it; optional only if the wire is, because a value that is there fits both."""
    enum: type[enum.Enum] | None = None
    """The receiver's class for an enum; None: the plain value."""
    record: RecordPlan | None = None
    item: ValuePlan | None = None
    """What is inside an optional or a list; of a map its values."""
    key: ValuePlan | None = None
    """The keys of a map."""
    nullable: bool = False
    """The receiver takes None too, or anything, which this wire never sends."""


class ReceiverField(NamedTuple):
    """One field of the receiver."""

    name: str
    source: int | None
    """Index of the wire's field; None: the wire has none, and the default is taken."""
    value: ValuePlan | None
    default: Any = None
    default_factory: Callable[[], Any] | None = None
    keyword_only: bool = False


class RecordPlan(NamedTuple):
    """How a record of the wire becomes an event, or a mapping when there is no class."""

    wire: Format
    cls: type[Event] | None
    slots: tuple[ReceiverField, ...]

    @property
    def used(self) -> frozenset[int]:
        """Indexes of the wire's fields that the receiver takes."""
        return frozenset(slot.source for slot in self.slots if slot.source is not None)


def make_plan(wire: Format, cls: type[Event] | None, missing: MissingPolicy = "default") -> RecordPlan:
    """The plan to read `wire` as `cls`; IncompatibleFormats names each field that does not fit."""
    if cls is None:
        return _mapping(wire)
    check(wire, info_of(cls).format, has_default=defaults_of(cls), missing=missing)
    return _event(wire, cls)


def _mapping(wire: Format) -> RecordPlan:
    slots = (
        ReceiverField(field.name, index, _value(field.type, field.type, None))
        for index, field in enumerate(wire.fields)
    )
    return RecordPlan(wire, None, tuple(slots))


def _event(wire: Format, cls: type[Event]) -> RecordPlan:
    positions = {field.name: index for index, field in enumerate(wire.fields)}
    own = info_of(cls).fields
    slots: list[ReceiverField] = []
    for info in msgspec.structs.fields(cls):
        field = own[info.name]
        source = positions.get(info.name)
        if source is None:
            factory = None if info.default_factory is msgspec.NODEFAULT else info.default_factory
            slots.append(
                ReceiverField(info.name, None, None, info.default, factory, keyword_only=field.keyword_only)
            )
        else:
            value = _value(wire.fields[source].type, field.type, field.annotation)
            slots.append(ReceiverField(info.name, source, value, keyword_only=field.keyword_only))
    return RecordPlan(wire, cls, tuple(slots))


def _value(wire: ft.FieldType, reader: ft.FieldType, annotation: Any) -> ValuePlan:
    """The way of one value; an annotation of None asks for the plain form that mappings have."""
    if isinstance(reader, ft.Anything) and not isinstance(wire, ft.Anything):
        # It takes None and much more that this wire never sends.
        return _value(wire, wire, None)._replace(nullable=True)
    if isinstance(wire, ft.Optional):
        inner = reader.item if isinstance(reader, ft.Optional) else reader
        return ValuePlan(wire, reader, item=_value(wire.item, inner, strip_none(annotation)))
    if isinstance(reader, ft.Optional):
        return _value(wire, reader.item, strip_none(annotation))._replace(nullable=True)
    match wire, reader:
        case ft.NestedEvent(), _:
            nested = _mapping(wire.format) if annotation is None else _event(wire.format, bare(annotation))
            return ValuePlan(wire, reader, record=nested)
        case ft.List(), ft.List():
            inner_annotation = None if annotation is None else typing.get_args(bare(annotation))[0]
            return ValuePlan(wire, reader, item=_value(wire.item, reader.item, inner_annotation))
        case ft.Map(), ft.Map():
            of_key, of_value = (None, None) if annotation is None else typing.get_args(bare(annotation))
            return ValuePlan(
                wire,
                reader,
                item=_value(wire.value, reader.value, of_value),
                key=_value(wire.key, reader.key, of_key),
            )
        case ft.Enum(), ft.Enum() if annotation is not None:
            return ValuePlan(wire, reader, enum=cast("type[enum.Enum]", bare(annotation)))
        case _:
            return ValuePlan(wire, reader)

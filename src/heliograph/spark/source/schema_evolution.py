"""What a running query does with events of a format that was not known when it was planned.

Its columns are fixed by then. A field for which there is none, or whose new type the column does not hold,
is *lost*; `schemaEvolution` decides whether that fails the query, is accepted, or puts the field into a
column of its own as JSON. A format that was known is never judged here: its fields are columns, or were left
out on purpose by an explicit schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.codec.dynamic.json import mapping_to_json
from heliograph.errors import SchemaChanged
from heliograph.model import field_types as ft
from heliograph.model.compatibility import compare, split_optional
from heliograph.model.formats import Field, Format

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.spark.source.options import Evolution


class Evolving:
    """Judges formats as they turn up.

    Args:
        policy: of the option `schemaEvolution`.
        known: the ids of formats that the query was planned with.
        joined: what their fields have become, all together.
        explicit: whether the user chose the columns; then a field that nobody asked for fails no query.
    """

    def __init__(self, policy: Evolution, known: Iterable[bytes], joined: Format, *, explicit: bool) -> None:
        self._policy = policy
        self._known = frozenset(known)
        self._joined = tolerant(joined)
        self._explicit = explicit

    def lost(self, fmt: Format) -> tuple[str, ...]:
        """The fields that have no column; SchemaChanged when that must not be."""
        if fmt.id in self._known:
            return ()
        missing: list[str] = []
        unfit: dict[str, str] = {}
        for field in fmt.fields:
            column = self._joined.by_name.get(field.name)
            if column is None:
                missing.append(field.name)
                continue
            one = compare(Format("event", (field,)), Format("column", (column,)))
            if not one.compatible or _loses_inside(field.type, column.type):
                unfit[field.name] = f"{field.name} is {field.type}, which its column does not hold"
        if self._policy == "fail":
            new = [] if self._explicit else [f"{name} has no column" for name in missing]
            if new or unfit:
                raise SchemaChanged(fmt.name, (*new, *unfit.values()))
        return (*missing, *unfit)

    @property
    def rescues(self) -> bool:
        return self._policy == "rescue"


def rescued(fmt: Format, names: Iterable[str], mapping: dict[str, Any]) -> str:
    """The lost fields of an event as JSON."""
    fields = Format(fmt.name, tuple(fmt.by_name[name] for name in names))
    return mapping_to_json(fields, {name: mapping[name] for name in names}).decode()


def tolerant(fmt: Format) -> Format:
    """The same columns for events that lack some of them, or whose enums have got new members."""
    return Format(fmt.name, tuple(Field(field.name, _nullable(field.type)) for field in fmt.fields))


def _nullable(kind: ft.FieldType) -> ft.FieldType:
    kind = _plain(kind)
    return kind if isinstance(kind, ft.Optional | ft.Anything) else ft.Optional(kind)


def _plain(kind: ft.FieldType) -> ft.FieldType:
    match kind:
        case ft.Optional(item=item):
            return ft.Optional(_plain(item))
        case ft.Enum(base=base):
            return ft.Scalar(base)
        case ft.List(item=item):
            return ft.List(_plain(item), kind.length)
        case ft.Map(key=key, value=value):
            return ft.Map(ft.Scalar(key.base) if isinstance(key, ft.Enum) else key, _plain(value))
        case ft.NestedEvent(format=fmt):
            return ft.NestedEvent(tolerant(fmt))
        case _:
            return kind


def _loses_inside(sent: ft.FieldType, column: ft.FieldType) -> bool:
    """Whether a nested record has fields that its column lacks."""
    sent, column = split_optional(sent)[0], split_optional(column)[0]
    match sent, column:
        case ft.NestedEvent(format=mine), ft.NestedEvent(format=wide):
            return any(
                field.name not in wide.by_name or _loses_inside(field.type, wide.by_name[field.name].type)
                for field in mine.fields
            )
        case (ft.List(item=mine), ft.List(item=wide)) | (ft.Map(value=mine), ft.Map(value=wide)):
            return _loses_inside(mine, wide)
        case _:
            return False

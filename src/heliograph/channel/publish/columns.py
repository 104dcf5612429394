"""Events from columns: a mapping of lists or arrays, an Arrow batch or an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.codec.dynamic.reflect import event_from_mapping
from heliograph.errors import InvalidEvent
from heliograph.model import field_types as ft
from heliograph.model.compatibility import defaults_of
from heliograph.model.event import Event, info_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def events_from_columns(cls: type[Event], columns: Any) -> list[Event]:
    """One event per row; InvalidEvent when columns are missing, unknown or of unequal length.

    Values are not checked here: pushing does.
    """
    rows = _arrow_rows(cls, columns) if hasattr(columns, "schema") else _mapping_rows(cls, columns)
    plain = all(_is_plain(kind) for kind in info_of(cls).types.values())
    events: list[Event] = []
    try:
        for row in rows:
            events.append(cls(**row) if plain else event_from_mapping(cls, row))  # noqa: PERF401 - if one fails, those before it are counted
    except InvalidEvent as error:
        error.index = len(events)
        raise
    return events


def _is_plain(kind: ft.FieldType) -> bool:
    """Whether a value in a column is the value of the field as it is."""
    return isinstance(kind.item if isinstance(kind, ft.Optional) else kind, ft.Scalar)


def _arrow_rows(cls: type[Event], data: Any) -> Iterable[Mapping[str, Any]]:
    from heliograph.codec.columnar.columns import from_batch  # noqa: PLC0415 - loads pyarrow

    fmt = info_of(cls).format
    _check_names(cls, data.schema.names)
    for batch in data.to_batches() if hasattr(data, "to_batches") else [data]:
        yield from from_batch(fmt, batch)


def _mapping_rows(cls: type[Event], columns: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    _check_names(cls, columns)
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidEvent(info_of(cls).name, f"columns must have one length, not {lengths}")
    # numpy's own items would be no Python ints and floats; a two-dimensional column stays rows of arrays.
    plain = [v.tolist() if getattr(v, "ndim", 0) == 1 else v for v in columns.values()]
    names = tuple(columns)
    return (dict(zip(names, row, strict=True)) for row in zip(*plain, strict=True))


def _check_names(cls: type[Event], given: Iterable[str]) -> None:
    info = info_of(cls)
    names = set(given)
    if unknown := names - info.types.keys():
        raise InvalidEvent(info.name, f"no such fields: {', '.join(sorted(unknown))}")
    if missing := info.types.keys() - names - defaults_of(cls):
        raise InvalidEvent(info.name, f"columns are missing: {', '.join(sorted(missing))}")

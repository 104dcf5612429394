"""Events from columns: a mapping of lists or arrays, an Arrow batch or an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.errors import InvalidEvent
from heliograph.event import Event, info_of
from heliograph.reflect import event_from_mapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def events_from_columns(cls: type[Event], columns: Any) -> list[Event]:
    """One event per row; InvalidEvent when columns are missing, unknown or of unequal length."""
    rows = _arrow_rows(cls, columns) if hasattr(columns, "schema") else _mapping_rows(cls, columns)
    return [event_from_mapping(cls, row) for row in rows]


def _arrow_rows(cls: type[Event], data: Any) -> Iterable[Mapping[str, Any]]:
    from heliograph.columns import from_batch  # noqa: PLC0415 - loads pyarrow

    fmt = info_of(cls).format
    for batch in data.to_batches() if hasattr(data, "to_batches") else [data]:
        yield from from_batch(fmt, batch)


def _mapping_rows(cls: type[Event], columns: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidEvent(info_of(cls).name, f"columns must have one length, not {lengths}")
    # numpy's own items would be no Python ints and floats; a two-dimensional column stays rows of arrays.
    plain = [v.tolist() if getattr(v, "ndim", 0) == 1 else v for v in columns.values()]
    names = tuple(columns)
    return (dict(zip(names, row, strict=True)) for row in zip(*plain, strict=True))

"""Columns of a data frame that say something about an event, not in it: `_priority`, `_source_ts` and others.

    header_runs("air.track", batch, priority=3, now=time_ns())     # Facts(rows, priority, source_ts, …), …

They are called as in sealed files. A null means what it means to say nothing: the priority of the option, the
time of writing, no headers, no correlation id.
"""

from __future__ import annotations

from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from heliograph.errors import InvalidEvent
from heliograph.qos.policies import HIGHEST_PRIORITY, LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHANNEL: Final = "_channel"
PRIORITY: Final = "_priority"
SOURCE_TIME: Final = "_source_ts"
CORRELATION: Final = "_correlation_id"
HEADERS: Final = "_headers"
HEADER_COLUMNS: Final = {
    CHANNEL: "STRING",
    PRIORITY: "INT",
    SOURCE_TIME: "TIMESTAMP, or BIGINT in nanoseconds",
    CORRELATION: "STRING",
    HEADERS: "MAP<STRING, STRING>",
}
"""The columns, and the types that they may have."""


class Facts(NamedTuple):
    """What so many events one behind the other have in common."""

    rows: int
    priority: int
    source_ts: int
    correlation_id: str | None
    headers: dict[str, str] | None


def insist_on_types(event: str, schema: pa.Schema) -> None:
    """Refuse columns of these names that have another type."""
    allowed: dict[str, Any] = {
        CHANNEL: pa.types.is_string,
        PRIORITY: pa.types.is_integer,
        SOURCE_TIME: lambda kind: pa.types.is_int64(kind) or (pa.types.is_timestamp(kind) and kind.tz),
        CORRELATION: pa.types.is_string,
        HEADERS: lambda kind: (
            pa.types.is_map(kind) and (kind.key_type, kind.item_type) == (pa.string(), pa.string())
        ),
    }
    for name, fits in allowed.items():
        if name in schema.names and not fits(schema.field(name).type):
            raise InvalidEvent(event, f"the column {name} has the type {schema.field(name).type}; "
                               f"it has to be {HEADER_COLUMNS[name]}")  # fmt: skip


def header_runs(event: str, batch: pa.RecordBatch, *, priority: int, now: int) -> Iterator[Facts]:
    """What the header columns of a batch say, for as many rows together as have the same."""
    if not HEADER_COLUMNS.keys() & set(batch.schema.names):
        if batch.num_rows:
            yield Facts(batch.num_rows, priority, now, None, None)
        return
    columns = (
        _priorities(event, batch, priority),
        _source_times(batch, now),
        _values(batch, CORRELATION),
        _headers(event, batch),
    )
    for facts, same in groupby(zip(*columns, strict=True)):
        yield Facts(sum(1 for _ in same), *facts)


def _values(batch: pa.RecordBatch, name: str) -> Iterable[Any]:
    if name not in batch.schema.names:
        return repeat(None, batch.num_rows)
    values: list[Any] = batch.column(name).to_pylist()
    return values


def _priorities(event: str, batch: pa.RecordBatch, otherwise: int) -> Iterator[int]:
    for value in _values(batch, PRIORITY):
        found = otherwise if value is None else value
        if not LOWEST_PRIORITY <= found <= HIGHEST_PRIORITY:
            allowed = f"{LOWEST_PRIORITY} (low) to {HIGHEST_PRIORITY} (high)"
            raise InvalidEvent(event, f"{found} in the column {PRIORITY}; allowed are {allowed}")
        yield found


def _source_times(batch: pa.RecordBatch, otherwise: int) -> Iterator[int]:
    is_time = SOURCE_TIME in batch.schema.names and pa.types.is_timestamp(
        batch.schema.field(SOURCE_TIME).type
    )
    if is_time:
        micros = batch.column(SOURCE_TIME).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        return (otherwise if value is None else value * 1000 for value in micros)
    return (otherwise if value is None else value for value in _values(batch, SOURCE_TIME))


def _headers(event: str, batch: pa.RecordBatch) -> Iterator[dict[str, str] | None]:
    for value in _values(batch, HEADERS):
        if value is not None and any(text is None for _, text in value):
            raise InvalidEvent(event, f"a null among the values of the column {HEADERS}")
        yield None if not value else dict(value)

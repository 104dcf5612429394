"""Rows of a head as columns: what a row says once for many events is made once.

    for group in grouped(pieces, 65_536):           # pieces: (first offset, append_ts, rows) of each frame
        columns = HeadColumns(group)
        columns.integers("epoch")                   # an Arrow column with a value per event
        columns.bodies()

A row is a record, or a run of events that were pushed together (`heliograph.journal.format.records`). To take
every run apart into records would make an object of fourteen fields per event, of which two differ.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from heliograph.journal.format.records import (
    are_records,
    bytes_in,
    count_events,
    decode_large,
    events_in,
    first_of,
    without_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from heliograph.journal.format.records import Piece, Record, Row

COUNTING: Final = ("sequence", "station_seq")
"""What counts up within a run."""


def grouped(pieces: Iterable[Piece], size: int, most_bytes: float = math.inf) -> Iterator[list[Piece]]:
    """The same pieces, cut where another `size` events are full, or behind one with which bytes exceed."""
    group: list[Piece] = []
    room, bytes_left = size, most_bytes
    for first, append_ts, rows in pieces:
        while (events := count_events(rows)) >= room:
            group.append((first, append_ts, first_of(rows, room)))
            yield group
            first, rows = first + room, without_first(rows, room)  # noqa: PLW2901 - what is left of the piece
            group, room, bytes_left = [], size, most_bytes
        if events:
            group.append((first, append_ts, rows))
            room -= events
            bytes_left -= 0 if most_bytes == math.inf else bytes_in(rows)
        if group and bytes_left < 0:
            yield group
            group, room, bytes_left = [], size, most_bytes
    if group:
        yield group


class HeadColumns:
    """Columns of some rows, with a value for each of their events."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._rows: list[Row] = list(chain.from_iterable(rows for _, _, rows in pieces))
        self._is_flat = all(are_records(rows) for _, _, rows in pieces)
        """Whether every row is one event."""
        self._counts = (
            np.ones(len(self._rows), np.int64)
            if self._is_flat
            else np.fromiter(map(events_in, self._rows), np.int64, len(self._rows))
        )

    def __len__(self) -> int:
        return int(self._counts.sum())

    def offsets(self) -> NDArray[np.int64]:
        return np.concatenate(
            [np.arange(first, first + count_events(rows)) for first, _, rows in self._pieces]
        )

    def append_ts(self) -> NDArray[np.int64]:
        times = np.array([append_ts for _, append_ts, _ in self._pieces], np.int64)
        return np.repeat(times, [count_events(rows) for _, _, rows in self._pieces])

    def bodies(self) -> list[bytes]:
        if self._is_flat:
            return self.of("body")
        found: list[bytes] = []
        for row, count in zip(self._rows, self._counts.tolist(), strict=True):
            if isinstance(row.body, bytes):
                found.append(row.body)
            else:
                found += row.body[:count]
        return found

    def by_format(self) -> dict[bytes, NDArray[np.int64]]:
        """Which of the events have each format, by its id."""
        found = self.of("format_id")
        ids = list(dict.fromkeys(found))
        if len(ids) == 1:
            return {ids[0]: np.arange(len(self))}
        numbers = {format_id: number for number, format_id in enumerate(ids)}
        of_rows = np.fromiter((numbers[format_id] for format_id in found), np.int64, len(found))
        of_events = np.repeat(of_rows, self._counts)
        return {format_id: np.flatnonzero(of_events == number) for format_id, number in numbers.items()}

    def integers(self, name: str) -> pa.Array:
        """A column of 64-bit integers; OverflowError when one is larger, as msgpack's can be."""
        found = self.of(name)
        if self._is_flat or None in found:
            return self.column(found, pa.int64())
        if name not in COUNTING:
            # Not by Arrow's functions: to load them takes as long as to seal 20,000 events.
            return pa.array(np.repeat(np.array(found, np.int64), self._counts))
        listed = any(isinstance(value, list) for value in found)
        return pa.array(self._each(found), pa.int64()) if listed else self._counted(found)

    def of(self, name: str) -> list[Any]:
        """The value of a field for each row; a run may have a list of them."""
        return list(map(attrgetter(name), self._rows))

    def column(self, found: list[Any], kind: pa.DataType) -> pa.Array:
        """The column of a value per row that holds for all events of it."""
        made = _constant(found, len(self), kind)
        if made is not None:
            return made
        array = pa.array(found, kind)
        return array if self._is_flat else array.take(self._places)

    def records(self) -> list[Record]:
        """Every event for itself."""
        return decode_large(self._rows)

    @cached_property
    def _places(self) -> pa.Array:
        """Which row each event is of."""
        return pa.array(np.repeat(np.arange(len(self._rows), dtype=np.int32), self._counts))

    def _counted(self, firsts: list[int]) -> pa.Array:
        """Numbers that count up within each run."""
        if max(firsts) + int(self._counts.max()) >= 1 << 63:
            raise OverflowError
        starts = np.cumsum(self._counts) - self._counts
        values = np.repeat(np.array(firsts, np.int64) - starts, self._counts) + np.arange(len(self))
        return pa.array(values)

    def _each(self, found: list[Any]) -> list[int]:
        """Numbers in the station's order, of which a run may have a list."""
        return list(
            chain.from_iterable(
                value[:count] if isinstance(value, list) else range(value, value + count)
                for value, count in zip(found, self._counts.tolist(), strict=True)
            )
        )


def _constant(found: list[Any], count: int, kind: pa.DataType) -> pa.Array | None:
    """The column, when all values are the same."""
    if not found or found[0] != found[-1] or found.count(found[0]) != len(found):
        return None
    if found[0] is None:
        return pa.nulls(count, kind)
    one = pa.array(found[:1], kind)
    return (
        one.take(pa.array(np.zeros(count, np.int32)))
        if pa.types.is_nested(kind)
        else pa.repeat(one[0], count)
    )

"""Knows from the statistics of sealed files which of their rows no filter lets through.

    for first, end in pruned(reader, 0, 1_000_000, known, shape.predicates()):
        ...                                              # only here can there be rows that are wanted

A read leaves such rows out when it is planned, so that no task is started for them; a task leaves row groups
out that lie between others. Statistics never decide about a row: what they let through is filtered.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from heliograph.errors import HistoryDamaged, HistoryGone
from heliograph.model import field_types as ft

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

    from heliograph.filters.typed import Predicate
    from heliograph.journal.reading.reader import PartitionReader

CONSTANT: Final = frozenset({"channel", "partition", "redelivered"})
_STORED: Final = {
    "user": "_headers",
    "source_ts": "_source_ts",
    "append_ts": "_append_ts",
    "source_ns": "_source_ts",
    "append_ns": "_append_ts",
}
"""Columns of a file that are called otherwise than the field of the header."""


def stored(name: str) -> str:
    """The column of a file that has a field of the header."""
    return _STORED.get(name, f"_{name}")


def pruned(
    reader: PartitionReader,
    first: int,
    end: int,
    known: frozenset[bytes],
    predicates: list[tuple[Predicate, ...]] | None,
) -> Iterator[tuple[int, int]]:
    """The parts of a range in which rows can pass; all of it without predicates.

    Args:
        known: ids of the formats that the predicates were checked with. A file with others stays in, and so
            does what cannot be looked at: the task that reads it says what is wrong.
    """
    start = position = first
    while predicates is not None and position < end:
        try:
            found = reader.sealed_at(position)
        except (HistoryGone, HistoryDamaged):
            break
        if found is None:
            break
        segment, next_segment = found
        if known.issuperset(segment.formats):
            skipping = Skipping(Statistics(segment.parquet), predicates)
            for low, high, group in segment.spans(position, min(next_segment, end)):
                if skipping.skips(group):
                    if start < low:
                        yield start, low
                    start = high
        position = next_segment
    if start < end:
        yield start, end


class Statistics:
    """What a sealed file says about the columns of its row groups."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._metadata = file.metadata
        self._places = {file.metadata.schema.column(at).path: at for at in range(file.metadata.num_columns)}

    def between(self, group: int, name: str) -> tuple[Any, Any] | None:
        """The smallest and the largest value of a column; None when they are not known."""
        found = self._of(group, name)
        return None if found is None else (found.min, found.max)

    def only_value(self, group: int, name: str) -> Any | None:
        """What all rows have in a column; None when they differ, or nothing is known."""
        found = self._of(group, name)
        if found is None or not found.has_null_count or found.null_count or found.min != found.max:
            return None
        return found.min

    def _of(self, group: int, name: str) -> pq.Statistics | None:
        at = self._places.get(name)
        found = None if at is None else self._metadata.row_group(group).column(at).statistics
        return found if found is not None and found.has_min_max else None


class Skipping:
    """Knows in which row groups no row can pass.

    Args:
        predicates: for each event type, tests that all its wanted rows pass; None: all rows may be wanted.
    """

    def __init__(self, statistics: Statistics, predicates: list[tuple[Predicate, ...]] | None) -> None:
        self._statistics = statistics
        self._predicates = predicates

    def skips(self, group: int) -> bool:
        if self._predicates is None:
            return False
        return all(any(self._excludes(group, one) for one in tests) for tests in self._predicates)

    def _excludes(self, group: int, test: Predicate) -> bool:
        """Whether a test fails for all rows of a group."""
        column = test.column
        name = str(column.steps[0].key)
        if len(column.steps) != 1 or (column.header and name in CONSTANT):
            return False
        ends = self._statistics.between(group, stored(name) if column.header else name)
        if ends is None:
            return False
        low, high = ends
        if column.header and name in ("source_ts", "append_ts"):
            low, high = (ft.EPOCH + timedelta(microseconds=ns // 1000) for ns in (low, high))
        try:
            return _out_of_range(test, low, high)
        except TypeError:  # statistics of a kind that cannot be compared with the value
            return False


def _stored(value: Any) -> Any:
    """A constant as the column of a file has it."""
    return str(value) if isinstance(value, UUID) else value


def _out_of_range(test: Predicate, low: Any, high: Any) -> bool:
    value = _stored(test.value)
    # NaN is above all numbers, and statistics leave it out: only from below can a float be excluded.
    floats = test.column.kind == "float"
    if floats and not isinstance(value, float | int | type(None)):
        return False
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - only NaN differs from itself
        return False
    match test.op:
        case "=":
            return bool(value < low or value > high)
        case "<":
            return bool(low >= value)
        case "<=":
            return bool(low > value)
        case ">" if not floats:
            return bool(high <= value)
        case ">=" if not floats:
            return bool(high < value)
        case "in" if not floats:
            return all(one < low or one > high for one in map(_stored, test.values) if one is not None)
        case _:
            return False

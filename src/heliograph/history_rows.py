"""The events of a channel's history one by one, as they are kept, in the order of their appending.

    history = HistoryRows("data", "air.tracks", "earliest", "now", "speed > 300")
    for row in history.rows(): print(row.append_ts, row.format.name, len(row.record.body))

It reads a folder whether or not its station runs, and needs no classes.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from heliograph.errors import HistoryDamaged
from heliograph.filters.parser import parse
from heliograph.journal.format.folder import StationFolder
from heliograph.journal.format.records import EVENT, Rows
from heliograph.model.formats import FormatRegistry
from heliograph.spark.source.columns import ColumnShape
from heliograph.spark.source.filters import conditions
from heliograph.spark.source.plan import chosen_types, divided, learn_formats, plan_read
from heliograph.spark.source.rows import BatchMaker, PartitionFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.journal.format.records import Record
    from heliograph.model.formats import Format

AT_ONCE: Final = 4096
"""Rows that are read, and filtered, together."""


def formats_of(folder: str, channel: str) -> tuple[Format, ...]:
    """The formats of everything that is kept of a channel, and of the classes that it was opened with."""
    station, formats = StationFolder(folder), FormatRegistry()
    for partition in station.partitions(channel):
        with station.reader(channel, partition, formats) as reader:
            learn_formats(reader)
    for fmt in station.declared(channel):
        formats.register(fmt)
    return formats.formats()


class HistoryRow(NamedTuple):
    """An event as it is kept. Rows compare by when they were appended, then by where."""

    append_ts: int
    partition: str
    offset: int
    record: Record
    format: Format


class HistoryRows:
    """The events of a channel between two points that pass a filter, in the order of their appending.

    With `skip_damage` what cannot be read is left out and noted.
    """

    def __init__(
        self,
        folder: str,
        channel: str,
        start: Any,
        until: Any,
        where: str | None,
        *,
        skip_damage: bool = False,
    ) -> None:
        self._station = StationFolder(folder)
        self._channel = channel
        self._formats = FormatRegistry()
        plan = plan_read(folder, channel, start, until, fail_on_data_loss=not skip_damage)
        for fmt in plan.formats:
            self._formats.register(fmt)
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        for part in divided([*(file.slice() for file in plan.files), *plan.slices], cores=1):
            self._ranges.setdefault(part.partition, []).append((part.first, part.next))
        self.skipped: list[tuple[str, HistoryDamaged]] = []
        """What was left out so far, with its partition."""
        self._skip_damage = skip_damage
        self._shapes = None if where is None else self._filters(where)

    @property
    def formats(self) -> FormatRegistry:
        return self._formats

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(self._ranges)

    def rows(self) -> Iterator[HistoryRow]:
        return merge(*map(self.rows_of, self._ranges))

    def _filters(self, where: str) -> dict[str, ColumnShape]:
        """For each event type that the filter fits, what takes its offsets out of batches."""
        import pyarrow as pa  # noqa: PLC0415 - only a filter needs it

        tree = parse(where)
        offsets = pa.schema([("header", pa.struct([("offset", pa.int64())]))])
        found = conditions(tree, chosen_types(self._channel, self._formats.formats(), None))
        return {
            name: ColumnShape(offsets, one.format, {name: [one.format]}, [tree])
            for name, one in found.items()
        }

    def rows_of(self, partition: str) -> Iterator[HistoryRow]:
        with self._station.reader(self._channel, partition, self._formats) as reader:
            for first, end in sorted(self._ranges[partition]):
                position = first
                while position < end:
                    try:
                        runs, position = reader.read_on(position, AT_ONCE, below=end)
                    except HistoryDamaged as gap:
                        if not self._skip_damage:
                            raise
                        self.skipped.append((partition, gap))
                        position = gap.next_available
                        continue
                    passing = self._passing(partition, runs)
                    for rows in runs:
                        for offset, record in enumerate(rows.records, rows.first):
                            if record.kind == EVENT and (passing is None or offset in passing):
                                fmt = self._formats[record.format_id]
                                yield HistoryRow(rows.append_ts, partition, offset, record, fmt)

    def _passing(self, partition: str, runs: list[Rows]) -> set[int] | None:
        """The offsets that pass the filter; None without one."""
        if self._shapes is None or not runs:
            return None
        passing: set[int] = set()
        for name, shape in self._shapes.items():
            maker = BatchMaker(
                PartitionFolder(self._channel, partition, ""),
                shape,
                types=frozenset({name}),
                formats=self._formats,
                evolving=None,
                bad_records="null",
            )
            found = shape.finish(maker.batch(runs)).column("header").field("offset")
            passing.update(found.to_pylist())
        return passing

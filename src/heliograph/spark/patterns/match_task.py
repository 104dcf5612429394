"""Finds matches inside a task of Spark, from rows of the record of a replayable pattern.

A `Finder` goes to the tasks as plain data: the pattern's text, the type of its keys, and its lives. Rows come
sorted by the partition of the record and by offset, with all rows of a key in one task; a task runs one
machine for all its keys, as a station does. Of the keys of other tasks it needs to know only how far they
moved the clock, and that is where a life ended.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from heliograph.codec.columnar import columns
from heliograph.codec.dynamic.json import anything_from_json
from heliograph.codec.dynamic.plain import ValuePath
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format
from heliograph.patterns.pattern import KEYS, After, AllOf, AnyOf, Every, Leaf, NoneOf
from heliograph.patterns.replay import ReplayedInput, from_text, replayed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.patterns.machine import Match
    from heliograph.patterns.pattern import Node, Pattern

BATCH: Final = 10_000
"""Matches that go to Spark at once."""
PLACE: Final = pa.struct([("channel", pa.string()), ("partition", pa.string()), ("offset", pa.int64())])
"""Where an event is found again."""
ROW: Final = ("record", "position", "kind", "at", "leaf", "channel", "partition", "offset", "key")
"""The columns that a finder takes, in this order."""


class Life(NamedTuple):
    """From one connect of a pattern to the next."""

    record: str
    """The partition of the record."""
    connect: int
    """The offset of the row that begins it."""
    start: int
    end: int
    """How far the clock came, in nanoseconds since 1970."""


class Finder:
    """See the module. Called by Spark with the rows of a task."""

    def __init__(self, pattern: str, key_type: str, lives: tuple[Life, ...]) -> None:
        self._pattern = pattern
        self._key_type = key_type
        self._lives = lives

    @property
    def schema(self) -> pa.Schema:
        """The columns of a match."""
        return pa.schema(
            [
                columns.schema(self._key_format(), spark_safe=True).field(0),
                ("at", pa.timestamp("us", tz="UTC")),
                ("at_ns", pa.int64()),
                ("reason", pa.string()),
                ("missing", pa.list_(pa.string())),
                ("parts", _parts_type(from_text(self._pattern))),
                ("record", pa.string()),
                ("connect", pa.int64()),
                ("number", pa.int64()),
            ]
        )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: list[tuple[Life, int, Match]] = []
        for one in self._found(batches):
            found.append(one)
            if len(found) == BATCH:
                yield self._batch(found)
                found = []
        if found:
            yield self._batch(found)

    def _found(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Life, int, Match]]:
        pattern = from_text(self._pattern)
        rows = (row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
        for life, taken in groupby(rows, self._life_of):
            at, told = 0, dict[Any, int]()
            for match in replayed(pattern, _inputs(life, taken)):
                if match.at != at:
                    at, told = match.at, {}
                number = told[match.key] = told.get(match.key, -1) + 1
                yield life, number, match

    def _life_of(self, row: tuple[Any, ...]) -> Life:
        return self._lives[bisect_right(self._lives, row[:2], key=lambda life: life[:2]) - 1]

    def _batch(self, found: list[tuple[Life, int, Match]]) -> pa.RecordBatch:
        lives, numbers, matches = zip(*found, strict=True)
        pattern = from_text(self._pattern)
        keys = columns.columns_to_batch(self._key_format(), [[m.key for m in matches]], spark_safe=True)
        values: list[Any] = [
            [m.at // 1_000 for m in matches],
            [m.at for m in matches],
            [_reason(pattern, m) for m in matches],
            [list(m.missing) for m in matches],
            [_parts(m.values) for m in matches],
            [life.record for life in lives],
            [life.connect for life in lives],
            list(numbers),
        ]
        kinds = self.schema.types[1:]
        arrays = [pa.array(column, kind) for column, kind in zip(values, kinds, strict=True)]
        return pa.RecordBatch.from_arrays([keys.column(0), *arrays], schema=self.schema)

    def _key_format(self) -> Format:
        name = self._key_type or "any"
        kind = ft.Anything() if name == "any" else ft.Optional(ft.Scalar(cast("ft.ScalarName", name)))
        return Format("key", (Field("key", kind),))


def landmarks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of a record's rows, in whatever pieces they come: all connects, the row before each, and the last one.

    Some others are among them: where a piece begins or ends, nobody knows what stands on the other side.
    """
    for batch in batches:
        if batch.num_rows:
            connects = np.array(batch.column("kind").to_pylist()) == "connect"
            record = batch.column("record").dictionary_encode().indices.to_numpy()
            kept = connects.copy()
            kept[[0, -1]] = True
            kept[:-1] |= connects[1:] | (np.diff(batch.column("position").to_numpy()) != 1)
            kept[:-1] |= np.diff(record) != 0
            yield batch.filter(pa.array(kept))


def _inputs(life: Life, rows: Iterator[tuple[Any, ...]]) -> Iterator[ReplayedInput]:
    yield ReplayedInput("connect", life.start)
    for _, _, kind, at, leaf, channel, partition, offset, key in rows:
        if kind != "connect":
            place = {"channel": channel, "partition": partition, "offset": offset}
            yield ReplayedInput(kind, at, leaf, None if key is None else _key(key), place)
    yield ReplayedInput("tick", life.end)


@lru_cache(KEYS)
def _key(text: str) -> Any:
    return anything_from_json(text, ValuePath("key"))


def _reason(pattern: Pattern, match: Match) -> str:
    if not match.missing:
        return "matched"
    return "watchdog" if isinstance(pattern, AllOf) else "silence"


def _parts(values: dict[str, Any]) -> dict[str, Any]:
    """What a match is made of; of a clock that stands alone, its instant."""
    return {"tick": values[""]} if "" in values else values


def _parts_type(node: Node) -> pa.DataType:
    if isinstance(node, AllOf | AnyOf | NoneOf):
        return pa.struct([(name, _part_type(part)) for name, part in node.parts.items()])
    return pa.struct([("tick", pa.int64())])


def _part_type(node: Node) -> pa.DataType:
    match node:
        case Leaf():
            return PLACE
        case Every() | After():
            return pa.int64()
        case _:
            return _parts_type(node)

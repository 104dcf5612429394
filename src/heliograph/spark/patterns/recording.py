"""The record of a replayable pattern, in Spark: `_helio.inputs.<name>`, divided into work for tasks.

Nothing but the record is read: of an event the machine that finds matches needs no more than the stream it
came by, its key and its instant, and in a match its place in the history stands for it. A first pass over the
rows finds the lives of the pattern, from connect to connect. In the second all rows of one key go to one
task, in the order in which they were taken in; what runs there is in `heliograph.spark.patterns.match_task`.
A pattern without a key is one sequence, for one task.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's documents use
from pyspark.sql.pandas.types import from_arrow_schema

from heliograph.errors import HistoryGone, NoHistory, NotPossible
from heliograph.patterns.pattern import DEPTH, KEYS, limited
from heliograph.patterns.recording import INPUTS, insist_on_same, joined_key
from heliograph.patterns.replay import from_text, to_text
from heliograph.spark.patterns.match_task import ROW, Finder, Life, landmarks
from heliograph.spark.source.read import read

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

BEGINS: Final = "it was just about to begin"
_TASK_OF_KEY: Final = """
    coalesce(
        string(0D + CASE key WHEN 'true' THEN 1D WHEN 'false' THEN 0D ELSE try_cast(key AS DOUBLE) END),
        key
    )
"""
"""The same for keys that are equal in Python, such as 1 and 1.0; it may be the same for others."""


class StoredRecording:
    """What was kept under a name, all of it or up to an offset of each partition; NotPossible of nothing."""

    def __init__(
        self,
        spark: SparkSession,
        folder: str | os.PathLike[str],
        name: str,
        until: Mapping[str, int] | None = None,
    ) -> None:
        self._name = name
        try:
            record = read(spark, folder, INPUTS + name, until="now" if until is None else dict(until))
        except NoHistory as error:
            raise no_record(name, error) from error
        if "kind" not in record.columns:
            raise nothing_under(name, BEGINS)
        place = ("header.partition AS record", "header.offset AS position")
        self._rows = record.selectExpr(*place, "*").drop("header")

    def matches(self, pattern: str | None, since: Mapping[str, int] | None = None) -> DataFrame:
        """The matches; the pattern, in the words of `to_text`, must be the one that the rows are of.

        With `since`, offsets of partitions, those of lives that had ended before are left out.
        """
        marks = self._rows.mapInArrow(landmarks, self._rows.schema).collect()
        marks.sort(key=lambda row: (row.record, row.position))
        lives = lives_of(marks)
        connects = [row for row in marks if row.kind == "connect"]
        if not connects:
            raise nothing_under(self._name, BEGINS)
        for row in connects:
            insist_on_same(self._name, row.pattern, connects[0].pattern)
        if pattern is not None:
            insist_on_same(self._name, _without_limits(connects[0].pattern), _without_limits(pattern))
        key_type = joined_key(row.key_type for row in connects)
        rows = self._rows
        if since is not None:
            lives = going_on(lives, since)
            firsts = {life.record: life.connect for life in reversed(lives)}
            begins = [
                (F.col("record") == record) & (F.col("position") >= first) for record, first in firsts.items()
            ]
            rows = rows.filter(reduce(or_, begins, F.lit(False)))
        finder = Finder(connects[0].pattern, key_type, lives)
        wanted = rows.filter(f"kind IN ('event', '{'evict' if key_type else 'connect'}')")
        keys = [F.expr(_TASK_OF_KEY)] if key_type else []
        tasks = wanted.select(*ROW).repartition("record", *keys).sortWithinPartitions("record", "position")
        return tasks.mapInArrow(finder, from_arrow_schema(finder.schema, prefer_timestamp_ntz=False))


def no_record(name: str, error: NoHistory) -> Exception:
    """NotPossible that names what was recorded; the error itself when there is no folder."""
    if error.channel is None:
        return error
    kept = [found.removeprefix(INPUTS) for found in error.found if found.startswith(INPUTS)]
    return nothing_under(name, f"{error.folder!r} holds those of {', '.join(kept) or 'none'}")


def nothing_under(name: str, there: str) -> NotPossible:
    return NotPossible(
        name,
        f"there is no record of such a pattern; {there}. A pattern can be found again when it was "
        "subscribed to with name= and replayable=True",
    )


def _without_limits(pattern: str) -> str:
    """A station's configuration may have set them; what they were is in the record."""
    return to_text(limited(from_text(pattern), keys=KEYS, depth=DEPTH))


def lives_of(marks: Sequence[Any]) -> tuple[Life, ...]:
    """The clock of a pattern does not go back: it has come as far as the last row before the next connect."""
    lives: list[Life] = []
    for mark in marks:
        if mark.kind == "connect":
            lives.append(Life(mark.record, mark.position, mark.at, mark.at))
        elif not lives or lives[-1].record != mark.record:
            raise HistoryGone(mark.record, 0, mark.position)
        else:
            lives[-1] = lives[-1]._replace(end=mark.at)
    return tuple(lives)


def going_on(lives: Sequence[Life], since: Mapping[str, int]) -> tuple[Life, ...]:
    """Lives of which something is at or behind the offset of their partition; of one without offset none."""
    ends = [one.connect if one.record == life.record else None for life, one in pairwise(lives)]
    return tuple(
        life
        for life, end in zip(lives, [*ends, None], strict=False)
        if life.record in since and (end is None or end > since[life.record])
    )

"""`correlate`: the matches of a pattern as a table, found again by its own state machine.

    jobs.correlate(spark, "data", "storms", "tables/storms")

The pattern is one that a station has subscribed to under that name with `replayable=True`: what it took in is
kept, and the machine that looked for matches live gives the same ones again, for each key in the same order.
A run goes from where the table ends to what was durable when it began. The machine has no state on disk: it
runs again from the last connect of the pattern, and matches that the table has are left out. They are known
by their instant and, of one key at one instant, by their number. As with an archive the table is the
checkpoint, and a job that was killed goes on behind the last commit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Unpack

from heliograph.errors import NoHistory
from heliograph.patterns.recording import INPUTS, check_streams
from heliograph.patterns.replay import to_text
from heliograph.runtime.option_names import names_options
from heliograph.spark.jobs.following import Passes, RunOptions
from heliograph.spark.jobs.ranges import RangePlan
from heliograph.spark.jobs.table_job import TableTarget
from heliograph.spark.session.session import insist_on_session

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from heliograph.patterns.pattern import Pattern
    from heliograph.spark.jobs.ranges import BatchRange
    from heliograph.spark.jobs.table_job import OpenTable

INPUTS_AT_ONCE: Final = 10_000_000
ORDER: Final = ("record", "connect", "at_ns", "number")
"""The matches of a key are in this order."""


@dataclass
class Correlated:
    """What a run did so far."""

    name: str
    table: str
    format: str
    matches: int = 0
    """Written."""
    inputs: int = 0
    """Rows of the record that were new: events that the pattern took in, ticks, connects and evictions."""
    left: int = 0
    commits: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CorrelateJob:
    """Matches that have been asked for. InvalidOption, NotPossible, ... when they cannot be found."""

    folder: str | os.PathLike[str]
    name: str
    to: str | os.PathLike[str]
    pattern: Pattern | None = None
    format: str = "parquet"
    inputs_at_once: int = INPUTS_AT_ONCE

    def __post_init__(self) -> None:
        from heliograph.spark.patterns.recording import no_record  # noqa: PLC0415 - Spark and Arrow load with it

        TableTarget(self.to, self.format).insist()
        if self.pattern is not None:
            check_streams(self.name, self.pattern)
        try:
            self._plan.ranges().close()
        except NoHistory as error:
            raise no_record(self.name, error) from error

    def run(self, spark: SparkSession, **options: Unpack[RunOptions[Correlated]]) -> Correlated:
        """Find what is there now; with `follow` again and again until `stop` is set."""
        insist_on_session(spark)
        done = Correlated(self.name, os.fspath(self.to), self.format)
        passes = Passes(done, **options)
        with self._plan.ranges() as ranges, TableTarget(self.to, self.format).opened() as table:
            for batch in table.batches(ranges, passes):
                self._write(spark, table, batch, done)
        return done

    @property
    def _plan(self) -> RangePlan:
        return RangePlan(self.folder, INPUTS + self.name, self.inputs_at_once)

    def _write(self, spark: SparkSession, target: OpenTable, batch: BatchRange, done: Correlated) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - Spark loads with it

        from heliograph.spark.patterns.recording import StoredRecording  # noqa: PLC0415 - as above

        until = {name: at["offset"] for name, at in batch.positions[batch.channel].items()}
        record = StoredRecording(spark, batch.folder, self.name, until)
        found = record.matches(None if self.pattern is None else to_text(self.pattern), batch.start)
        new = _without(found, self._there(spark, target))
        # Sorting also separates the tasks that look for matches from the one that writes.
        staged = target.stage(spark, new.orderBy(*ORDER))
        schema = to_arrow_schema(found.schema, timezone="UTC")
        target.table.commit(staged, schema, (), batch.positions)
        done.commits += 1
        done.matches += sum(file.rows for file in staged)
        done.inputs += batch.offsets

    @staticmethod
    def _there(spark: SparkSession, target: OpenTable) -> DataFrame | None:
        files = [str(target.place.table / file.path) for file in target.table.files()]
        return spark.read.parquet(*files).select("key", *ORDER) if files else None


def _without(found: DataFrame, there: DataFrame | None) -> DataFrame:
    """The matches that a table does not have: of a life, those behind the last instant that it has."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    if there is None:
        return found
    last = there.groupBy("record", "connect").agg(f.max("at_ns").alias("_last"))
    new = found.join(f.broadcast(last), ["record", "connect"], "left").filter(
        "_last IS NULL OR at_ns >= _last"
    )
    # At the last instant the table may have some of a key's matches, and the record has more by now.
    same = f.col("new.key").eqNullSafe(f.col("there.key"))
    for name in ORDER:
        same &= f.col(f"new.{name}") == f.col(f"there.{name}")
    return new.alias("new").join(there.alias("there"), same, "left_anti").select(*found.columns)


@names_options
def correlate(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    name: str,
    to: str | os.PathLike[str],
    *,
    pattern: Pattern | None = None,
    format: Literal["parquet", "delta", "iceberg"] = "parquet",  # noqa: A002 - as Spark calls it
    inputs_at_once: int = INPUTS_AT_ONCE,
    follow: bool = False,
    every: float = 5.0,
    progress: Callable[[Correlated], object] | None = None,
    stop: threading.Event | None = None,
) -> Correlated:
    """Write the matches of a replayable pattern into a table; go on where its last run ended.

    Args:
        spark: such as `heliograph.spark.session()`.
        folder: of the station that looked for them; it may be running.
        name: what the pattern was subscribed under, with `replayable=True`.
        to: the folder of the table, which driver and executors see; made if it is not there.
        pattern: what it must have been; by default it is what the record says.
        format: "parquet", "delta" or "iceberg".
        inputs_at_once: rows of the record in one batch, at most.
        follow: go on with what comes, every so many seconds, until `stop` is set.
        every: those seconds.
        progress: called with what was done so far, after each commit.
        stop: ends `follow` after the batch in hand.

    Raises NotPossible when nothing was kept under this name, or for another pattern.
    """
    job = CorrelateJob(
        folder=folder, name=name, to=to, pattern=pattern, format=format, inputs_at_once=inputs_at_once
    )
    return job.run(spark, follow=follow, every=every, progress=progress, stop=stop)

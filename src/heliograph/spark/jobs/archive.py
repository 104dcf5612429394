"""`archive`: the events of a channel as a table of typed columns, partitioned by time.

    jobs.archive(spark, "data", "air.tracks", "tables/tracks", format="delta", by="hour")

A run goes from where the table ends to what was durable when it began, in batches. For each batch Spark's
executors write Parquet files where no reader looks, and one commit of the table takes them in together with
the positions that it then reaches. The table is its own checkpoint: killed at any instant, started again,
also on another machine or after a year, the job goes on behind the last commit, and every event is in the
table once. A run that finds nothing new writes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from heliograph.errors import InvalidOption
from heliograph.runtime.option_names import names_options
from heliograph.spark.jobs.arguments import at_least, insist_on_filter, is_datetime, one_of, size
from heliograph.spark.jobs.following import Passes, RunOptions
from heliograph.spark.jobs.ranges import RangePlan
from heliograph.spark.jobs.table_job import TableTarget
from heliograph.spark.session.session import insist_on_session

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from heliograph.filters.params import Params
    from heliograph.spark.jobs.ranges import BatchRange
    from heliograph.spark.jobs.table_job import OpenTable

DATE: Final = "event_date"
HOUR: Final = "event_hour"
EVENTS_PER_COMMIT: Final = 10_000_000
FILE_SIZE: Final = "256m"
COMPACT_AFTER: Final = 8


@dataclass
class Archived:
    """What a run did so far."""

    channel: str
    table: str
    format: str
    events: int = 0
    """Rows written."""
    offsets: int = 0
    """Offsets read: events, and what is no event or was left out by `where`."""
    left: int = 0
    """Offsets that were durable when the run began and are not in the table yet."""
    late: int = 0
    """Events that went into a partition of a day or hour before the last one that the table had."""
    commits: int = 0
    files: int = 0
    bytes: int = 0
    new_columns: list[str] = field(default_factory=list)
    joined: int = 0
    """Small files that became fewer."""
    joined_into: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ArchiveJob:
    """An archive that has been asked for. InvalidOption, NoHistory, ... when it cannot be done."""

    folder: str | os.PathLike[str]
    channel: str
    to: str | os.PathLike[str]
    format: str = "parquet"
    by: str = "day"
    time: str = "append"
    where: str | None = None
    params: Params | None = None
    file_size: str | int = FILE_SIZE
    compact_after: int = COMPACT_AFTER
    events_per_commit: int = EVENTS_PER_COMMIT
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        TableTarget(self.to, self.format).insist()
        one_of("by", self.by, ("day", "hour"))
        at_least("compact_after", self.compact_after, 0)
        at_least("events_per_commit", self.events_per_commit, 1)
        size("file_size", self.file_size)
        with self._plan.ranges() as ranges:
            formats = ranges.formats()
        insist_on_filter(self.where, self.params, formats)
        self._insist_on_columns(formats)

    def run(self, spark: SparkSession, **options: Unpack[RunOptions[Archived]]) -> Archived:
        """Archive what is there now; with `follow` again and again until `stop` is set, or Ctrl-C."""
        insist_on_session(spark)
        done = Archived(self.channel, os.fspath(self.to), self.format)
        passes = Passes(done, **options)
        with self._plan.ranges() as ranges, TableTarget(self.to, self.format).opened() as table:
            for batch in table.batches(ranges, passes):
                self._write(spark, table, batch, ranges.bytes_of(batch), done)
        return done

    @property
    def _plan(self) -> RangePlan:
        return RangePlan(self.folder, self.channel, self.events_per_commit, self.fail_on_data_loss)

    def _write(
        self, spark: SparkSession, target: OpenTable, batch: BatchRange, weight: int, done: Archived
    ) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - Spark loads with it

        from heliograph.spark.jobs.tables.rewrite import RewritePolicy  # noqa: PLC0415 - Arrow loads with it

        table = target.table
        frame = self._frame(spark, batch)
        partition = [DATE, HOUR] if self.by == "hour" else [DATE]
        names = [f"_{name}" for name in partition] if table.keeps_partition_columns else partition
        written = frame
        for name, copy in zip(partition, names, strict=True):
            if name != copy:
                written = written.withColumn(copy, frame[name])
        file_bytes = size("file_size", self.file_size)
        files = max(1, round(weight / file_bytes))
        staged = target.stage(
            spark, written, files=files, rows_per_file=ceil(batch.offsets / files), by=names
        )
        last = max((file.folder for file in table.files()), default="")
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        there = table.columns()
        table.commit(staged, schema, partition, batch.positions)
        before, after = table.compact(RewritePolicy(file_bytes, self.compact_after))
        done.joined, done.joined_into = done.joined + before, done.joined_into + after
        done.offsets += batch.offsets
        done.commits += 1
        done.files += len(staged)
        done.events += sum(file.rows for file in staged)
        done.bytes += sum(file.bytes for file in staged)
        done.late += sum(file.rows for file in staged if file.folder < last)
        if there is not None:
            done.new_columns += [name for name in schema.names if name not in (*there.names, *partition)]

    def _frame(self, spark: SparkSession, batch: BatchRange) -> DataFrame:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        frame = batch.frame(
            spark, where=self.where, params=self.params, fail_on_data_loss=self.fail_on_data_loss
        )
        seconds = f.floor(self._nanoseconds(f) / 1_000_000_000).cast("bigint")
        days = f.floor(seconds / 86_400).cast("int")
        # From numbers, because the date of a timestamp depends on the session's time zone.
        frame = frame.withColumn(DATE, f.date_add(f.lit("1970-01-01").cast("date"), days))
        if self.by == "hour":
            frame = frame.withColumn(HOUR, f.floor(f.pmod(seconds, f.lit(86_400)) / 3_600).cast("int"))
        return frame

    def _nanoseconds(self, f: Any) -> Column:
        if self.time in ("append", "source"):
            column: Column = f.col(f"header.{self.time}_ns")
            return column
        micros: Column = f.unix_micros(f.col(f"`{self.time}`"))
        return micros * 1000

    def _insist_on_columns(self, formats: Sequence[Any]) -> None:
        names = {field.name: field for fmt in formats for field in fmt.fields}
        for name in (DATE, HOUR):
            if any(field.lower() == name for field in names):
                raise InvalidOption(
                    "channel", self.channel, f"channels without a field {name}, the column of the partitions"
                )
        if self.time not in ("append", "source"):
            times = sorted(name for name, one in names.items() if is_datetime(one))
            one_of("time", self.time, ("append", "source", *times))


@names_options
def archive(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    channel: str,
    to: str | os.PathLike[str],
    *,
    format: Literal["parquet", "delta", "iceberg"] = "parquet",  # noqa: A002 - as Spark calls it
    by: Literal["day", "hour"] = "day",
    time: str = "append",
    where: str | None = None,
    params: Params | None = None,
    file_size: str | int = FILE_SIZE,
    compact_after: int = COMPACT_AFTER,
    events_per_commit: int = EVENTS_PER_COMMIT,
    fail_on_data_loss: bool = True,
    follow: bool = False,
    every: float = 5.0,
    progress: Callable[[Archived], object] | None = None,
    stop: threading.Event | None = None,
) -> Archived:
    """Write the events of a channel into a table; go on where its last run ended.

    Args:
        spark: such as `heliograph.spark.session()`.
        folder: of the station that keeps the channel; it may be running.
        channel: its name.
        to: the folder of the table, which driver and executors see; made if it is not there.
        format: "parquet", "delta" or "iceberg".
        by: a partition per "day" or per "hour", in UTC.
        time: of what: "append", "source", or a field that is a datetime. Late events go where they belong.
        where: only events for which this is true.
        params: values for `:name` and `%0` in it.
        file_size: what files grow to, by joining.
        compact_after: so many small files of a partition are joined; 0: never.
        events_per_commit: at most.
        fail_on_data_loss: False leaves out what retention has removed or what is damaged.
        follow: go on with what comes, every so many seconds, until `stop` is set.
        every: those seconds.
        progress: called with what was done so far, after each commit.
        stop: ends `follow` after the batch that is being written.
    """
    job = ArchiveJob(
        folder=folder, channel=channel, to=to, format=format, by=by, time=time, where=where, params=params,
        file_size=file_size, compact_after=compact_after, events_per_commit=events_per_commit,
        fail_on_data_loss=fail_on_data_loss,
    )  # fmt: skip
    return job.run(spark, follow=follow, every=every, progress=progress, stop=stop)

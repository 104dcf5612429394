"""`snapshot`: the latest event of each key of a channel, as a table.

    jobs.snapshot(spark, "data", "air.tracks", "tables/latest")

A run takes the table as it is and the events since; of each key the last event stays, and none where the last
that was said of the key is a tombstone. One commit replaces the table and says which positions it now has, so
a job that is killed leaves the old state or the new one; in a folder of Parquet files the next run completes
it, if the job was killed while files got their names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Unpack

from heliograph.errors import InvalidOption
from heliograph.runtime.option_names import names_options
from heliograph.spark.jobs.following import Passes, RunOptions
from heliograph.spark.jobs.ranges import RangePlan
from heliograph.spark.jobs.table_job import TableTarget
from heliograph.spark.session.session import insist_on_session

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from heliograph.spark.jobs.ranges import BatchRange, Ranges
    from heliograph.spark.jobs.table_job import OpenTable

EVENTS_AT_ONCE: Final = 10_000_000
TOMBSTONE: Final = 1
_DELETED: Final = "_deleted"
_KEY: Final = "_key"


@dataclass
class JobSnapshot:
    """What a run did so far."""

    channel: str
    table: str
    format: str
    keys: int = 0
    """In the table now."""
    events: int = 0
    """Read since the state before, with tombstones."""
    left: int = 0
    commits: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SnapshotJob:
    """A snapshot that has been asked for. InvalidOption, NoHistory, ... when it cannot be done."""

    folder: str | os.PathLike[str]
    channel: str
    to: str | os.PathLike[str]
    format: str = "parquet"
    events_at_once: int = EVENTS_AT_ONCE

    def __post_init__(self) -> None:
        TableTarget(self.to, self.format).insist()
        with self._plan.ranges() as ranges:
            keys = _keys(ranges)
        without = sorted(name for name, key in keys.items() if not key)
        if without:
            allowed = f"a channel whose events all have a key; {', '.join(without)} has none"
            raise InvalidOption("channel", self.channel, allowed)

    def run(self, spark: SparkSession, **options: Unpack[RunOptions[JobSnapshot]]) -> JobSnapshot:
        """Bring the table up to what is there now; with `follow` again and again until `stop` is set."""
        insist_on_session(spark)
        done = JobSnapshot(self.channel, os.fspath(self.to), self.format)
        passes = Passes(done, **options)
        with self._plan.ranges() as ranges, TableTarget(self.to, self.format).opened() as table:
            done.keys = table.rows
            for batch in table.batches(ranges, passes):
                self._write(spark, table, batch, _keys(ranges), done)
        return done

    @property
    def _plan(self) -> RangePlan:
        return RangePlan(self.folder, self.channel, self.events_at_once)

    def _write(
        self,
        spark: SparkSession,
        target: OpenTable,
        batch: BatchRange,
        keys: dict[str, tuple[str, ...]],
        done: JobSnapshot,
    ) -> None:
        from pyspark.sql import functions as f  # noqa: PLC0415 - Spark loads with it
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - as above

        events = batch.frame(spark)
        gone = self._tombstones(spark, batch, events, keys)
        parts = [events.withColumn(_DELETED, f.expr("false")), *([] if gone is None else [gone])]
        if files := target.table.files():
            old = spark.read.option("mergeSchema", "true").parquet(
                *(str(target.place.table / file.path) for file in files)
            )
            parts.append(old.withColumn(_DELETED, f.expr("false")))
        every = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
        # Later by the keeper's clock; of one partition by offset, which goes along with it.
        order = f.struct("header.append_ns", "header.partition", "header.offset")
        latest = (
            every.withColumn(_KEY, _key(keys))
            .groupBy("header.type", _KEY)
            .agg(f.max_by(f.struct(*every.columns), order).alias("latest"))
            .select("latest.*")
            .filter(~f.col(_DELETED))
            .drop(_DELETED)
            .select(*events.columns)
        )
        staged = target.stage(spark, latest)
        target.table.replace(staged, to_arrow_schema(events.schema, timezone="UTC"), batch.positions)
        done.commits += 1
        done.keys = sum(file.rows for file in staged)
        done.events += batch.offsets

    def _tombstones(
        self, spark: SparkSession, batch: BatchRange, events: DataFrame, keys: dict[str, tuple[str, ...]]
    ) -> DataFrame | None:
        """Tombstones as rows with the columns of events, of which only key and place have values."""
        import msgspec  # noqa: PLC0415 - as above
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above
        from pyspark.sql.types import StructType  # noqa: PLC0415 - as above

        rows = (
            batch.frame(spark, columns="envelope")
            .filter(f"kind = {TOMBSTONE}")
            .select("header", "key")
            .collect()
        )
        if not rows:
            return None
        header = events.schema["header"].dataType
        assert isinstance(header, StructType)
        made = []
        for row in rows:
            names = keys.get(row["header"]["type"], ())
            values = dict(zip(names, msgspec.msgpack.decode(bytes(row["key"])), strict=False))
            own = (_stored(values.get(field.name), field.dataType) for field in events.schema.fields[1:])
            made.append((row["header"], *own))
        return spark.createDataFrame(made, events.schema).withColumn(_DELETED, f.expr("true"))


def _stored(value: Any, kind: DataType) -> Any:
    """A value of a key as its column has it: tombstones carry dates and decimals as text."""
    from pyspark.sql.types import DateType, DecimalType  # noqa: PLC0415 - as above

    if value is None:
        return None
    if isinstance(kind, DecimalType):
        return Decimal(value)
    return date.fromisoformat(value) if isinstance(kind, DateType) else value


def _keys(ranges: Ranges) -> dict[str, tuple[str, ...]]:
    """The fields of the key of each event type."""
    return {fmt.name: tuple(fmt.key) for fmt in ranges.formats()}


def _key(keys: dict[str, tuple[str, ...]]) -> Column:
    """The key of a row as text, whatever its type and the types of its fields."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    found = f.lit(None).cast("string")
    for name, fields in keys.items():
        text = f.to_json(f.struct(*(f.col(f"`{field}`") for field in fields)))
        found = f.when(f.col("header.type") == name, text).otherwise(found)
    return found


@names_options
def snapshot(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    channel: str,
    to: str | os.PathLike[str],
    *,
    format: str = "parquet",  # noqa: A002 - as Spark calls it
    events_at_once: int = EVENTS_AT_ONCE,
    follow: bool = False,
    every: float = 5.0,
    progress: Callable[[JobSnapshot], object] | None = None,
    stop: threading.Event | None = None,
) -> JobSnapshot:
    """Bring a table with the latest event of each key up to what is kept now.

    Args:
        spark: such as `heliograph.spark.session()`.
        folder: of the station that keeps the channel; it may be running.
        channel: its name; its events have a key.
        to: the folder of the table, which driver and executors see; made if it is not there.
        format: "parquet", "delta" or "iceberg".
        events_at_once: in one batch, at most.
        follow: go on with what comes, every so many seconds, until `stop` is set.
        every: those seconds.
        progress: called with what was done so far, after each commit.
        stop: ends `follow` after the batch in hand.
    """
    job = SnapshotJob(folder=folder, channel=channel, to=to, format=format, events_at_once=events_at_once)
    return job.run(spark, follow=follow, every=every, progress=progress, stop=stop)

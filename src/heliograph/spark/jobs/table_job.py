"""What jobs that fill a table share: a target says which table, and gives the batches that it lacks.

    plan = Plan("data", "air.tracks", events_at_once=1_000_000)
    target = Target("tables/tracks", "delta")            refuses what cannot be, before Spark starts
    with plan.ranges() as ranges, target.opened() as table:
        for batch in table.batches(ranges, passes):
            staged = table.stage(spark, batch.frame(spark))
            table.table.commit(staged, schema, by, batch.positions)

The table is the checkpoint: it says with each commit how far it goes, and the next batch begins there.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heliograph.errors import InvalidOption, TableMismatch
from heliograph.spark.jobs.arguments import one_of
from heliograph.spark.jobs.tables.table import FORMATS, opened, plain_timestamps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from heliograph.spark.jobs.following import Passes
    from heliograph.spark.jobs.ranges import BatchRange, Ranges
    from heliograph.spark.jobs.tables.table import Table
    from heliograph.spark.jobs.tables.workplace import DataFile, Workplace


class TableTarget(NamedTuple):
    """A table that a job fills: the folder of it, and its format."""

    to: str | os.PathLike[str]
    format: str = "parquet"

    def insist(self) -> None:
        """InvalidOption when there can be no such table."""
        one_of("format", self.format, FORMATS)
        if "://" in os.fspath(self.to) or Path(self.to).is_file():
            raise InvalidOption("to", os.fspath(self.to), "a folder that driver and executors see")

    @contextmanager
    def opened(self) -> Iterator[OpenTable]:
        """Lock the table for this job; TableInUse when another one has it. Its folder is made if need be."""
        from heliograph.spark.jobs.tables.workplace import Workplace  # noqa: PLC0415 - Arrow loads with it

        with Workplace.locked(Path(self.to)) as place, opened(self.format, place) as table:
            yield OpenTable(place, table)


class OpenTable:
    """A table that this job has locked."""

    def __init__(self, place: Workplace, table: Table) -> None:
        self.place = place
        self.table = table

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.table.files())

    def batches(self, ranges: Ranges, passes: Passes[Any]) -> Iterator[BatchRange]:
        """What the table does not have yet, batch by batch; each is committed before the next one is taken.

        Raises TableMismatch when the table holds events of another channel.
        """
        for _ in passes:
            positions = self.table.positions(ranges.partitions())
            if positions is not None and set(positions) != {ranges.channel}:
                held = f"it holds events of {', '.join(sorted(positions))}"
                raise TableMismatch(self.place.table.as_posix(), held)
            ranges.pin()
            passes.tell(ranges.behind(positions))
            while (batch := ranges.after(positions)) is not None:
                yield batch
                positions = batch.positions
                passes.tell(ranges.behind(positions))

    def stage(
        self,
        spark: SparkSession,
        frame: DataFrame,
        *,
        files: int = 1,
        rows_per_file: int = 0,
        by: Sequence[str] = (),
    ) -> list[DataFile]:
        """Have Spark write the rows where no reader looks.

        Args:
            files: so many tasks write at most, each into a file of its own for each partition.
            rows_per_file: a task begins another one behind so many rows; 0: never.
            by: the columns of the partitions.
        """
        self.place.clear()
        with plain_timestamps(spark):
            writer = frame.coalesce(files).write.option("compression", "zstd")
            if rows_per_file:
                writer = writer.option("maxRecordsPerFile", rows_per_file)
            writer.partitionBy(*by).parquet(str(self.place.staging))
        return self.place.staged()

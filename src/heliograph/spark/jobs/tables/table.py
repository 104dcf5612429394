"""What jobs ask of a table, whatever its format, and how one is opened.

with Workplace.locked(Path("tables/tracks")) as place, opened("delta", place) as table: ...
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from heliograph.spark.jobs.tables.rewrite import RewritePolicy
    from heliograph.spark.jobs.tables.workplace import DataFile, Workplace
    from heliograph.spark.source.partitions import Key

FORMATS: Final = ("parquet", "delta", "iceberg")

_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"


class Table(Protocol):
    """One table, for the job that holds the lock of its folder."""

    keeps_partition_columns: bool
    """Whether files have the columns that are also the names of their folders."""

    def positions(self, partitions: Iterable[Key], /) -> dict[str, Any] | None:
        """How far the table goes; None when there is no table yet."""

    def files(self) -> list[DataFile]: ...

    def columns(self) -> pa.Schema | None: ...

    def commit(
        self, staged: Sequence[DataFile], schema: pa.Schema, by: Sequence[str], positions: dict[str, Any]
    ) -> None:
        """Take staged files in, together with the positions that are then reached: all or nothing."""

    def replace(self, staged: Sequence[DataFile], schema: pa.Schema, positions: dict[str, Any]) -> None:
        """Put staged files in the place of all that the table has: all or nothing."""

    def compact(self, policy: RewritePolicy) -> tuple[int, int]:
        """Join small files; returns how many became how many."""


@contextmanager
def opened(kind: str, place: Workplace) -> Iterator[Table]:
    """The table of a folder; what a killed job has left there is cleared away first."""
    if kind == "parquet":
        from heliograph.spark.jobs.tables.parquet import ParquetTable  # noqa: PLC0415 - Arrow loads with it

        yield ParquetTable(place)
    elif kind == "delta":
        from heliograph.spark.jobs.tables.delta import DeltaLakeTable  # noqa: PLC0415 - as above

        yield DeltaLakeTable(place)
    else:
        from heliograph.spark.jobs.tables.iceberg import IcebergTable  # noqa: PLC0415 - as above

        iceberg = IcebergTable(place)
        try:
            yield iceberg
        finally:
            iceberg.close()


@contextmanager
def plain_timestamps(spark: SparkSession) -> Iterator[None]:
    """Have Spark write timestamps as everybody reads them; its default is a type of its own."""
    before = str(spark.conf.get(_TIMESTAMPS))
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMESTAMPS, before)

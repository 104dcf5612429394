"""The Python data source: one task per slice of the rows that are not in sealed files.

Spark pickles these classes by name and hands each task its slice; what is done with it is in
`heliograph.spark.slices`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from heliograph.spark.slices import Job, Slice, batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType


class SlicePartition(InputPartition):
    """A slice as Spark carries it."""

    def __init__(self, part: Slice) -> None:
        self.value = part


class RangeReader(DataSourceReader):
    """One task per slice."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def partitions(self) -> Sequence[InputPartition]:
        return [SlicePartition(part) for part in self._job.slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from batches(self._job, partition.value)


class RangeSource(DataSource):
    """`spark.read.format("heliograph_ranges")`, with a `Job` as JSON in the option `job` and a schema."""

    @classmethod
    def name(cls) -> str:
        return "heliograph_ranges"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark calls it by this name; the job says the same
        return RangeReader(msgspec.json.decode(self.options["job"], type=Job))

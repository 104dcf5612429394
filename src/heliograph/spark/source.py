"""The Python data source: reads ranges of offsets, wherever the rows lie when it comes to them.

`read` gives this source the rows that are not in sealed files when it plans: those of the head. By the time
an executor asks for them they may have been sealed; so a task knows no file, only a partition and two
offsets, and looks up the rest in the manifest. Rows that retention has taken, or that are damaged, fail the
task with the exact range, unless the job says to go on without them.

Everything a task needs is in its job, and it imports the formats, the codec and the journal's reader only:
any executor that can import `heliograph` and sees the folder can run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from heliograph.errors import HistoryDamaged, HistoryGone
from heliograph.formats import Format, FormatRegistry
from heliograph.journal.reader import PartitionReader
from heliograph.ports import LocalDisk
from heliograph.spark.rows import BatchMaker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

BATCH_ROWS: Final = 10_000
"""Rows per Arrow batch: few enough to hold, and many enough that each costs little on its way into Java."""
BATCH_BYTES: Final = 16 << 20


class Slice(msgspec.Struct, frozen=True):
    """Rows for one task: those of a partition from `first` up to, not including, `next`."""

    partition: str
    place: str
    """The partition's folder, counted from the station's."""
    first: int
    next: int


class Job(msgspec.Struct, frozen=True):
    """What all tasks of one read share."""

    folder: str
    channel: str
    formats: tuple[bytes, ...]
    """Descriptions of the formats that the rows may have."""
    joined: bytes | None
    """Description of the format that has room for all events; None for envelopes."""
    types: tuple[str, ...] | None
    fail_on_data_loss: bool
    slices: tuple[Slice, ...]


def batches(job: Job, part: Slice) -> Iterator[pa.RecordBatch]:
    """The rows of one slice."""
    formats = FormatRegistry()
    for description in job.formats:
        formats.register(Format.from_description(description))
    with PartitionReader(LocalDisk(job.folder, create=False), part.place, formats=formats) as reader:
        maker = BatchMaker(
            job.channel,
            part.partition,
            joined=None if job.joined is None else Format.from_description(job.joined),
            types=None if job.types is None else frozenset(job.types),
            formats=formats,
        )
        position = part.first
        while position < part.next:
            try:
                runs = reader.read_rows(position, BATCH_ROWS, BATCH_BYTES, part.next)
                if not runs:
                    reason = "the history ends before them: is this the folder that was planned for?"
                    raise HistoryDamaged(part.place, position, part.next, reason)  # noqa: TRY301 - a loss like the others
            except (HistoryGone, HistoryDamaged) as gap:
                if job.fail_on_data_loss:
                    raise
                position = gap.next_available
                continue
            yield maker.batch(runs)
            position = runs[-1].first + len(runs[-1].records)


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

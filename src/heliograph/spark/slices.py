"""Ranges of offsets, read wherever the rows lie when it comes to them.

A slice knows no file, only a partition and two offsets, and looks up the rest in the manifest: rows that
were in a head when a read was planned may have been sealed since. Rows that retention has taken, or that are
damaged, are an error with the exact range, unless the job says to go on without them.

Everything a task needs is in its job, and it imports the formats, the codec and the journal's reader only:
any executor that can import `heliograph` and sees the folder can run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.errors import HistoryDamaged, HistoryGone
from heliograph.formats import Format, FormatRegistry
from heliograph.journal.reader import PartitionReader
from heliograph.ports import LocalDisk
from heliograph.spark.rows import BatchMaker

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

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
                runs, reached = reader.read_on(position, BATCH_ROWS, BATCH_BYTES, part.next)
                if reached == position:
                    reason = "the history ends before them: is this the folder that was planned for?"
                    raise HistoryDamaged(part.place, position, part.next, reason)  # noqa: TRY301 - a loss like the others
            except (HistoryGone, HistoryDamaged) as gap:
                if job.fail_on_data_loss:
                    raise
                position = gap.next_available
                continue
            if runs:
                yield maker.batch(runs)
            position = reached

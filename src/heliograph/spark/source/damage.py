"""Which offsets a job of Spark could not read: the file that it names, told as a range.

    with heliograph.spark.naming_loss():
        heliograph.spark.read(spark, "data", "air.tracks").count()

Sealed files go to Spark's own Parquet reader, which knows files and no offsets. When it fails on one, the
manifest knows which events were in it, and the checksum of each row group which of them are lost. Inside of
`naming_loss` Spark's error becomes HistoryDamaged or HistoryGone with exactly these; an error that has
another cause stays as it is.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.errors import HistoryDamaged, HistoryGone
    from heliograph.journal.reading.reader import PartitionReader

_SEALED_FILE: Final = re.compile(r"file:(/\S*?/sealed/([0-9]{20})-([0-9]{20})-[0-9a-f]+\.parquet)")
"""As Spark writes paths in its errors: as URLs. The name begins with the offsets."""


@contextmanager
def naming_loss() -> Iterator[None]:
    """Errors of Spark about a sealed file name the events that cannot be read."""
    try:
        yield
    except Exception as error:
        lost = loss_in(str(error))
        if lost is None:
            raise
        raise lost from error


def loss_in(message: str) -> HistoryDamaged | HistoryGone | None:
    """What is lost of the file that an error of Spark names; None when it names none, or a good one."""
    from heliograph.errors import BadJournalFile, NoSuchFile  # noqa: PLC0415 - the package loads without the journal
    from heliograph.journal.reading.reader import PartitionReader  # noqa: PLC0415 - as above
    from heliograph.runtime.ports import LocalDisk  # noqa: PLC0415 - as above

    for found in _SEALED_FILE.finditer(message):
        partition = Path(re.sub("^/+", "/", unquote(found[1]))).parent.parent
        channels = partition.parent.parent
        place = str(partition.relative_to(channels.parent))
        try:
            with PartitionReader(LocalDisk(channels.parent, create=False), place) as reader:
                lost = _first_loss(reader, int(found[2]), int(found[3]))
        except (BadJournalFile, NoSuchFile):
            continue  # another folder than one of ours, or one that has gone as a whole
        if lost is not None:
            return lost
    return None


def _first_loss(reader: PartitionReader, first: int, end: int) -> HistoryDamaged | HistoryGone | None:
    """The first range between two offsets that cannot be read."""
    from heliograph.errors import HistoryDamaged, HistoryGone  # noqa: PLC0415 - as above

    position = first
    while position < min(end, reader.watermark):
        try:
            found = reader.sealed_at(position)
            if found is None:
                return None
            segment, position = found
            for low, _, group in segment.spans(first, end):
                segment.table(group, low, ["_offset"])
        except (HistoryDamaged, HistoryGone) as lost:
            return lost
    return None

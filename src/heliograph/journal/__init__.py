"""The journal: the durable history of a channel.

    writer = PartitionWriter(ports, "air.tracks/a1", formats)
    first = writer.append([record]).result(timeout=1.0)         # on disk, at this offset

    reader = PartitionReader(disk, "air.tracks/a1")             # any process, no lock
    for row in reader.read(first, max_events=100): ...

A partition is a folder with one writer and any number of readers. Bodies are opaque bytes with the id of
their format; only sealing looks into them. `docs/reference/journal.md` has the files byte by byte.
"""

from heliograph.journal.consumers.cursors import Cursor, CursorStore
from heliograph.journal.consumers.lag import ConsumerLag, lag
from heliograph.journal.format.manifest import Damage, Head, Manifest, Segment
from heliograph.journal.format.records import EVENT, TOMBSTONE, JournalRecord, Record, Rows
from heliograph.journal.limits import Limits
from heliograph.journal.names import escaped, unescaped
from heliograph.journal.published.publication import Store
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.tools.inspection import (
    FileInfo,
    VerifiedRange,
    VerifyReport,
    cat,
    ls,
    partitions,
    verify,
)
from heliograph.journal.writing.group_commit import PartitionWriter, WriterStats
from heliograph.journal.writing.receipt import AppendReceipt
from heliograph.journal.writing.recovery import Recovery

__all__ = [
    "EVENT",
    "TOMBSTONE",
    "AppendReceipt",
    "ConsumerLag",
    "Cursor",
    "CursorStore",
    "Damage",
    "FileInfo",
    "Head",
    "JournalRecord",
    "Limits",
    "Manifest",
    "PartitionReader",
    "PartitionWriter",
    "Record",
    "Recovery",
    "Rows",
    "Segment",
    "Store",
    "VerifiedRange",
    "VerifyReport",
    "WriterStats",
    "cat",
    "escaped",
    "lag",
    "ls",
    "partitions",
    "unescaped",
    "verify",
]

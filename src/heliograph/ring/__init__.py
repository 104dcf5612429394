"""Events between processes of one host through shared memory: one writer, any number of readers, no server.

    folder = RingFolder("airspace")
    with folder.create(station=7, lane=0, ports=ports) as writer:
        (name,) = folder.rings()                                # in another process
        with folder.open(name, ports, reliable=True) as reader:
            writer.append(b"an event")
            reader.read(timeout=1.0)

The modules, from the ground up:

    futex          futexes, membarrier, file locks; why there can be no ring here
    layout         where everything stands in the file
    segment        one file, mapped; folder: all of them, and what dead processes left
    records        what is in the slots, read with suspicion
    waiting        look for a while, then sleep
    reader_table   the readers as the writer sees them; joining: how a reader takes its place
    writer         appends events; reader and pinned_views: take them out
"""

from __future__ import annotations

from heliograph.ring.folder import RingFolder
from heliograph.ring.futex import missing
from heliograph.ring.pinned_views import Pinned
from heliograph.ring.reader import ReaderStats, RingReader
from heliograph.ring.segment import RingName
from heliograph.ring.waiting import WaitMode
from heliograph.ring.writer import RingWriter, RingWriterStats

__all__ = [
    "Pinned",
    "ReaderStats",
    "RingFolder",
    "RingName",
    "RingReader",
    "RingWriter",
    "RingWriterStats",
    "WaitMode",
    "missing",
]

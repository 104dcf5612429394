"""Writes the golden partition of the present format version: `python -m tests.unit.journal.golden.make v2`.

Golden files are made once per version, committed, and never made again: `test_golden.py` shows that whatever
comes later still reads them.
"""

from __future__ import annotations

import shutil
import sys
from itertools import chain
from pathlib import Path

from heliograph.journal.consumers.cursors import CursorStore
from heliograph.journal.format.batch_marks import Mark
from heliograph.journal.format.records import Record, RecordRun
from heliograph.runtime.ports import LocalDisk
from tests.unit.journal.helpers import (
    TRACK,
    alarm,
    chunk,
    commit,
    partition,
    ports,
    run_chunk,
    seal_everything,
    track,
    tracks,
)

FULL = Record("s", 2, 3, -4, TRACK.id, track(7).body, 5, 6, 7, "c", {"a": "b", "": "é"}, 2, 1, b"\x91\x01")
SEALED = [*tracks(0, 5), FULL]
HEAD = [track(6), alarm(7), FULL]
RUN = RecordRun("s", 2, 4, -4, TRACK.id, [track(n).body for n in range(3)], 5, [6, 7, 9], 7)
ADOPTED = [tracks(20, 2), tracks(22, 1)]
MARK = Mark("totals", "checkpoint-1", 7, rows=3)
EVENTS = {"v1": [*SEALED, *HEAD], "v2": [*SEALED, *HEAD, *RUN, track(8), *chain(*ADOPTED)]}
"""What the partition of each version holds."""
FRAMES = {"v1": 2, "v2": 5}
MARKS = {"v1": {}, "v2": {"totals": MARK}}
POSITIONS = {"a1": 4}
ACKS = {"a1": [6, 7]}


def make(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    disk = LocalDisk(folder)
    writer = partition(disk)
    commit(writer, SEALED)
    seal_everything(writer, disk)
    commit(writer, HEAD[:2])
    commit(writer, HEAD[2:])
    writer.write([run_chunk(RUN), chunk([track(8)])])
    writer.sync()
    writer.adopt([[chunk(records)] for records in ADOPTED], MARK)
    with CursorStore(ports(disk), "consumers") as store:
        store.open("billing", "me").commit(POSITIONS, ACKS)
    for lock in folder.glob("*/lock"):
        lock.unlink()


if __name__ == "__main__":
    make(Path(__file__).parent / sys.argv[1])

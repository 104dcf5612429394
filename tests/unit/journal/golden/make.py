"""Writes the golden partition of the present format version: `python -m tests.unit.journal.golden.make v1`.

Golden files are made once per version, committed, and never made again: `test_golden.py` shows that whatever
comes later still reads them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from heliograph.journal.cursors import CursorStore
from heliograph.journal.records import Record
from heliograph.ports import LocalDisk
from tests.unit.journal.helpers import (
    TRACK,
    alarm,
    commit,
    partition,
    ports,
    seal_everything,
    track,
    tracks,
)

FULL = Record("s", 2, 3, -4, TRACK.id, track(7).body, 5, 6, 7, "c", {"a": "b", "": "é"}, 2, 1, b"\x91\x01")
SEALED = [*tracks(0, 5), FULL]
HEAD = [track(6), alarm(7), FULL]
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
    with CursorStore(ports(disk), "consumers") as store:
        store.open("billing", "me").commit(POSITIONS, ACKS)


if __name__ == "__main__":
    make(Path(__file__).parent / sys.argv[1])

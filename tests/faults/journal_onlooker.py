"""Reads a history as soon as it is visible: `python journal_onlooker.py FOLDER PARTITION`.

Says on standard output what stands where, a line each: the offset, the supplier, its life and the sequence.
It goes on when writers die.
"""

from __future__ import annotations

import os
import sys

from heliograph.errors import NoSuchFile
from heliograph.journal.reading.reader import PartitionReader
from heliograph.runtime.ports import LocalDisk


def follow(reader: PartitionReader) -> None:
    position = 0
    while True:
        if reader.wait(position, timeout=1.0):
            rows = reader.read(position)
            said = (
                f"{row.offset} {r.supplier} {r.epoch} {r.sequence}\n" for row in rows for r in [row.record]
            )
            os.write(1, "".join(said).encode())
            position = rows[-1].offset + 1


def main() -> None:
    disk = LocalDisk(sys.argv[1])
    while True:
        try:
            reader = PartitionReader(disk, sys.argv[2])
        except NoSuchFile:
            continue  # the first writer has not got so far yet
        with reader:
            follow(reader)


if __name__ == "__main__":
    main()

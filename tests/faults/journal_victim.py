"""A journal writer that is there to be killed: `python journal_victim.py FOLDER LIFE [seal]`.

Two suppliers append as fast as they can and say on standard output, one line each, what was acknowledged:
the supplier, its life, its sequence number and the offset.
"""

from __future__ import annotations

import os
import sys
import threading

from heliograph.journal.format.records import Record
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.seal import seal
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.runtime.ports import system_ports
from tests.unit.journal.helpers import FOLDER, FORMATS, TRACK, track


def supply(writer: PartitionWriter, name: str, life: int) -> None:
    sequence = 0
    body = track(1, "x" * 50).body
    while True:
        batch = [Record(name, life, sequence + n, 0, TRACK.id, body) for n in range(1 + sequence % 3)]
        first = writer.append(batch).result()
        said = "".join(f"{name} {life} {r.sequence} {first + n}\n" for n, r in enumerate(batch))
        os.write(1, said.encode())  # one write, so that a kill cuts no line
        sequence += len(batch)


def main() -> None:
    folder, life = sys.argv[1], int(sys.argv[2])
    sealer = seal if "seal" in sys.argv else None
    writer = PartitionWriter(
        system_ports(folder),
        FOLDER,
        FORMATS,
        limits=Limits(head_events=150, head_bytes=1 << 20),
        sealer=sealer,
    )
    threading.Thread(target=supply, args=(writer, "a", life)).start()
    supply(writer, "b", life)


if __name__ == "__main__":
    main()

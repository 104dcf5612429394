"""How far readers are that no station knows, such as queries of Spark: what each of them says of itself.

    note(disk, "air.tracks", "totals", {"a1": 1200}, time_ns)    # <folder>/readers/air.tracks/totals
    noted(disk, "air.tracks")                                    # (ReaderPosition("totals", …),)

It is there to be looked at (`helio journal consumers`). The reader itself goes on from its own checkpoint,
and retention does not wait for it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.errors import BadJournalFile, InvalidFileName, NoSuchFile
from heliograph.journal.folders import make_folder
from heliograph.journal.format import checksummed_file as wholefile
from heliograph.journal.names import TEMPORARY, escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.runtime.ports import Disk

READERS: Final = "readers"
_KIND: Final = wholefile.Kind(b"HELIORDR", 1, 1 << 20, "reader's position")


class ReaderPosition(msgspec.Struct, frozen=True):
    """Where a reader is, when it said so."""

    name: str
    positions: dict[str, int]
    """By partition: everything below this offset has been read and processed."""
    seen_ts: int


def note(disk: Disk, channel: str, name: str, positions: Mapping[str, int], now: int) -> None:
    """Keep how far a reader is, over what it said before. DiskError when the folder is not to be written."""
    folder = f"{READERS}/{escaped(channel)}"
    for one in (READERS, folder):
        make_folder(disk, one)
    temporary = f"{folder}/{escaped(name)}-{os.getpid()}{TEMPORARY}"
    with suppress(NoSuchFile):
        disk.remove(temporary)
    with disk.create(temporary) as file:
        file.append(*wholefile.pack(_KIND, ReaderPosition(name, dict(positions), now)))
    disk.rename(temporary, f"{folder}/{escaped(name)}")


def noted(disk: Disk, channel: str) -> tuple[ReaderPosition, ...]:
    """What readers of a channel have said; what cannot be read is passed over, and written again soon."""
    found = []
    try:
        folder = f"{READERS}/{escaped(channel)}"
        names = disk.list(folder)
    except (NoSuchFile, InvalidFileName):
        return ()
    for name in names:
        if not name.endswith((TEMPORARY, "/")):
            with suppress(BadJournalFile, NoSuchFile):
                found.append(wholefile.load(_KIND, disk, f"{folder}/{name}", ReaderPosition))
    return tuple(found)

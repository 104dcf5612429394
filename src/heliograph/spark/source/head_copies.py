"""Parquet copies of what is not sealed yet, for reads in which Spark's workers see the driver's files.

    copies = head_copies()                                       # of this process; removed when it ends
    copies.files(reader, "data", head, 1_000_000, 1_210_000)     # [Copy(path, 1_000_000, 1_210_000)]

Rows of a head reach Spark through Python otherwise, which takes a tenth of a second before the first row and
decodes every column, because Spark does not tell a Python source which ones a query uses. A copy is laid out
like a sealed file and read together with those. Rows of a head never change, so a copy serves all later
reads: only what was appended since is added, and few small copies are made one large one. Where an older copy
of the folder was put back, another head may have the same name; what is random in a head tells them apart.

A frame may be computed at any time, so a copy that has been handed out stays until the process ends, and
counts until then. What would exceed a limit is not copied, and goes through Python.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.errors import BadJournalFile, HistoryDamaged, HistoryGone
from heliograph.journal.reading.head_reader import HeadReader
from heliograph.journal.writing.segment_writer import segment_file

if TYPE_CHECKING:
    from heliograph.journal.format.manifest import Head, Manifest
    from heliograph.journal.reading.reader import PartitionReader

PREFIX: Final = "heliograph-spark-"
MOST_EVENTS: Final = 2_000_000
"""Events that one read copies at most: about a second of work on the driver, where tasks would share it."""
MOST_BYTES: Final = 2 << 30
"""Bytes of all copies together, also of those that others have replaced."""


class Copy(NamedTuple):
    """A file with the rows of a head from `first` up to, not including, `next`."""

    path: str
    first: int
    next: int


class _Which(NamedTuple):
    """A head among all that this process has seen."""

    folder: str
    partition: bytes
    name: str
    salt: bytes
    """Random, of the file; none where the manifest is of a program that did not write it down."""
    epoch: bytes
    """The random id of the writer that began the file; none when newer ones have pushed it out."""


def _which(folder: str, manifest: Manifest, head: Head) -> _Which:
    epoch = next((one.id for one in reversed(manifest.epochs) if one.first <= head.first), b"")
    return _Which(folder, manifest.partition, head.name, head.salt, epoch)


class HeadCopies:
    """The copies in one folder, which is made below `parent` with the first of them."""

    def __init__(self, parent: str, *, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self._parent = parent
        self._most_events = most_events
        self._bytes_left = most_bytes
        self._folder: Path | None = None
        self._lock = threading.Lock()
        self._copies: dict[_Which, list[Copy]] = {}
        """Of each head, one behind the other without a gap."""
        self._made = 0

    def files(self, reader: PartitionReader, station: str, head: Head, first: int, end: int) -> list[Copy]:
        """Copies with rows of a head between two offsets, and perhaps rows around them that are not wanted.

        What could not be copied is missing at the end, or all of it is. `station` is the folder that the
        reader's is in.
        """
        key = _which(f"{station}/{reader.folder}", reader.manifest, head)
        with self._lock:
            there = self._copies.get(key, [])
            known = there if there and there[0].first <= first else []
            missing = end - max(first, known[-1].next if known else first)
            if 0 < missing <= self._most_events:
                there = self._copies[key] = self._extended(reader, known, first, end) or there
            return [copy for copy in there if copy.first < end and copy.next > first]

    def _extended(
        self, reader: PartitionReader, there: list[Copy], first: int, end: int
    ) -> list[Copy] | None:
        """The copies with one more at the end, which replaces those that are not much larger than it."""
        kept = list(there)
        start = kept[-1].next if kept else first
        while kept and kept[-1].next - kept[-1].first <= 2 * (end - start):
            start = kept.pop().first
        path = self._made_copy(reader, start, end)
        return None if path is None else [*kept, Copy(path, start, end)]

    def _made_copy(self, reader: PartitionReader, first: int, end: int) -> str | None:
        # A copy of many rows is smaller than they are in the head, so that none is made to be thrown away.
        if sum(size for _, _, size in reader.sizes(first, end)) > self._bytes_left:
            return None
        try:
            head, _ = reader.source_at(first)
            if not isinstance(head, HeadReader):
                return None  # it has just been sealed
            data, _ = segment_file(head.pieces(first, end), reader.formats)
        except (HistoryDamaged, HistoryGone, BadJournalFile):
            return None  # whoever reads the rows says what is wrong
        if len(data) > self._bytes_left:
            self._bytes_left = 0  # a few rows take more than in the head: the next ones would not fit either
            return None
        self._bytes_left -= len(data)
        self._made += 1
        path = self._own_folder() / f"{self._made}.parquet"
        path.write_bytes(data)
        return str(path)

    def _own_folder(self) -> Path:
        if self._folder is None:
            sweep(self._parent)
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._parent))
            # The lock says that the folder is in use; it ends with the process.
            fcntl.flock(os.open(self._folder, os.O_RDONLY), fcntl.LOCK_SH)
            atexit.register(_remove, self._folder, os.getpid())
        return self._folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # and not a process that it has forked
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: str) -> None:
    """Remove what processes that were killed have left behind."""
    for folder in Path(parent).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.getuid():
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(descriptor)


_of_process: dict[tuple[int, str], HeadCopies] = {}


def head_copies(parent: str | None = None) -> HeadCopies:
    """The copies of this process below a folder; by default that of temporary files."""
    key = os.getpid(), tempfile.gettempdir() if parent is None else parent
    return _of_process.setdefault(key, HeadCopies(key[1]))

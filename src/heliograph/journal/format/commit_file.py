"""The commit file: how far a partition is durable, in a few bytes that readers map.

Two slots are written in turn, each with its own checksum, so that a reader in the middle of a write, or a
recovery after a power loss, finds the other one whole. The file is written after the rows are synced and is
itself not synced: it never promises more than the disk holds, and after a power loss it may promise less.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.errors import BadJournalFile, FileExists
from heliograph.journal.format.frames import checksum
from heliograph.journal.names import COMMIT

if TYPE_CHECKING:
    from heliograph.runtime.ports import Disk, File

MAGIC: Final = b"HELIOCMT"
VERSION: Final = 1
SLOTS: Final = (64, 128)
SIZE: Final = 192

_HEADER = struct.Struct("<8sHHI16s")
_SLOT = struct.Struct("<QqQII")
_BOTH_WATERMARKS = struct.Struct("<64xQ56xQ")


class Commit(NamedTuple):
    """What a slot says."""

    watermark: int
    """Every row below this offset is on disk."""
    append_ts: int
    """Of the last of them."""
    generation: int
    """The manifest to be read with it, or a later one."""
    epoch: int


NOTHING: Final = Commit(0, 0, 0, 0)


def create(disk: Disk, folder: str, partition: bytes, *, sync: bool = True) -> None:
    """A commit file that promises nothing, synced except for its name. One that is there is overwritten in
    place, so that readers that have it mapped see what comes."""
    name = f"{folder}/{COMMIT}"
    try:
        there = disk.create(name)
    except FileExists:
        there = disk.open(name)
    with there as file:
        file.write_at(0, empty(partition))
        if sync:
            file.sync()


def empty(partition: bytes) -> bytes:
    """The bytes of a commit file that promises nothing."""
    return _HEADER.pack(MAGIC, VERSION, SIZE, 0, partition).ljust(SIZE, b"\0")


def write_into(view: bytearray, commit: Commit) -> None:
    """Both slots of a commit file in memory, whose readers are tasks of this process."""
    for slot in SLOTS:
        view[slot : slot + _SLOT.size] = _packed(commit)


def _packed(commit: Commit) -> bytes:
    plain = _SLOT.pack(*commit, 0)[:-4]
    return plain + checksum(plain).to_bytes(4, "little")


class CommitWriter:
    """Writes the slots in turn."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._name = f"{folder}/{COMMIT}"
        self._file: File | None = None
        self._turn = 0

    def publish(self, commit: Commit) -> None:
        if self._file is None:
            self._file = self._disk.open(self._name)
        self._file.write_at(SLOTS[self._turn], _packed(commit))
        self._turn ^= 1

    def close(self) -> None:
        """Let go of the file; the next `publish` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class CommitView:
    """Reads the slots through a mapping."""

    def __init__(self, disk: Disk, folder: str) -> None:
        name = f"{folder}/{COMMIT}"
        self._view = disk.map(name)
        if len(self._view) < SIZE or bytes(self._view[:8]) != MAGIC:
            raise BadJournalFile(name, "it does not begin as a commit file does")
        _, version, _, _, self.partition = _HEADER.unpack_from(self._view)
        if version != VERSION:
            raise BadJournalFile(name, f"it has version {version}; this program reads version {VERSION}")
        self._seen = b""
        self._peeked = (-1, -1)
        self._last = NOTHING

    def watermark(self) -> int:
        """As `current().watermark`, for callers that ask all the time: a fifth of a microsecond."""
        if _BOTH_WATERMARKS.unpack_from(self._view) != self._peeked:
            self.current()
        return self._last.watermark

    def current(self) -> Commit:
        """The newest promise. It never goes back; a slot that is being written is passed over."""
        slots = bytes(self._view[SLOTS[0] : SIZE])
        if slots == self._seen:
            return self._last
        whole = [commit for at in (0, 64) if (commit := _read_slot(slots, at)) is not None]
        self._last = max([self._last, *whole], key=age)
        if len(whole) == 2:  # else one is just being written, and has to be looked at again
            self._seen = slots
            self._peeked = (whole[0].watermark, whole[1].watermark)
        return self._last

    def close(self) -> None:
        self._view.release()


def age(commit: Commit) -> tuple[int, int, int]:
    """Promises of one history in their order."""
    return (commit.epoch, commit.watermark, commit.generation)


def _read_slot(slots: bytes, at: int) -> Commit | None:
    watermark, append_ts, generation, epoch, crc = _SLOT.unpack_from(slots, at)
    if checksum(slots[at : at + _SLOT.size - 4]) != crc:
        return None
    return Commit(watermark, append_ts, generation, epoch)

"""One ring's file, mapped: made whole before it has a name, checked before it is trusted.

A new file has no name until its memory is set aside, its head is written and its writer holds the lock. So a
process that is killed meanwhile leaves nothing, and a ring without a lock is that of a dead process.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from heliograph.errors import NoRoomForRing, RingClosed, RingDamaged, RingNotAvailable
from heliograph.ring import futex
from heliograph.ring.layout import (
    AT_INCARNATION,
    AT_LANE,
    AT_MAGIC,
    AT_SLOTS,
    AT_STATION,
    AT_VERSION,
    MAGIC,
    MAX_SLOTS,
    MIN_SLOTS,
    VERSION,
    WRITER_LOCK,
    file_size,
)

if TYPE_CHECKING:
    from pathlib import Path

LEFT_TO_OTHERS: Final = 4
"""Which part of the memory's file system rings leave free: others of a container need it, too."""
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM}


class RingName(NamedTuple):
    """Whose ring it is. A ring that is made again has another incarnation, so no name is used twice."""

    station: int
    lane: int
    incarnation: int


class RingSegment:
    """A mapped ring: its words, its bytes, its locks."""

    def __init__(self, path: Path, descriptor: int, slots: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.slots = slots
        # Every page is there from the start, so that no append or read of the first lap meets a page fault.
        self.memory = mmap.mmap(descriptor, file_size(slots), mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._bytes = memoryview(self.memory)
        self.words = self._bytes.cast("Q")
        self.bells = self._bytes.cast("I")
        self._lendable = ctypes.c_char * file_size(slots)
        # The address stays right while the mapping does, and nothing of ctypes must hold the mapping open.
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    @classmethod
    def create(cls, path: Path, name: RingName, slots: int) -> Self:
        """A new ring, locked for its writer; `NoRoomForRing` before anything is written."""
        insist_on_rings(path)
        if not (MIN_SLOTS <= slots <= MAX_SLOTS and slots & (slots - 1) == 0):
            raise ValueError(f"a ring has a power of two of slots, {MIN_SLOTS} to {MAX_SLOTS}, not {slots}")
        descriptor = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            _set_aside(path, descriptor, file_size(slots))
            futex.take_part()
            segment = cls(path, descriptor, slots)
            for index, value in (
                (AT_MAGIC, MAGIC),
                (AT_VERSION, VERSION),
                (AT_SLOTS, slots),
                (AT_STATION, name.station),
                (AT_LANE, name.lane),
                (AT_INCARNATION, name.incarnation),
            ):
                segment.words[index] = value
            futex.try_lock(descriptor, WRITER_LOCK)
            _give_name(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        return segment

    @classmethod
    def open(cls, path: Path) -> Self:
        """A ring that another process writes; `RingClosed` when it has gone, `RingDamaged` if it is none."""
        insist_on_rings(path)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise RingClosed(str(path), "has gone with its writer") from None
        except OSError as error:
            raise RingDamaged(str(path), f"cannot be opened: {error.strerror}") from None
        try:
            slots = _checked_slots(path, descriptor)
            futex.take_part()
            return cls(path, descriptor, slots)
        except BaseException:
            os.close(descriptor)
            raise

    def lend(self) -> ctypes.Array[ctypes.c_char]:
        """The same memory as an object of its own: it lives for as long as anything views it."""
        return self._lendable.from_buffer(self.memory)

    def view(self, start: int, size: int) -> memoryview:
        """Some of its bytes."""
        return self._bytes[start : start + size]

    def address_of_bell(self, bell: int) -> int:
        return self._address + 4 * bell

    def close(self) -> None:
        """Let go. Views that somebody still holds keep the mapping until they go, too."""
        for view in (self.words, self.bells, self._bytes):
            view.release()
        with suppress(BufferError):
            self.memory.close()
        os.close(self.descriptor)


def insist_on_rings(path: Path) -> None:
    if reason := futex.missing():
        raise RingNotAvailable(str(path), f"{reason}; stations on this host are linked by sockets instead")


def _set_aside(path: Path, descriptor: int, size: int) -> None:
    free = _free_for_rings(path)
    if size > free:
        raise NoRoomForRing(str(path), size, max(0, free))
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise NoRoomForRing(str(path), size, free) from None
    # Again: of several who make one at the same time each saw the room of all.
    if _free_for_rings(path) < 0:
        raise NoRoomForRing(str(path), size, 0)


def _free_for_rings(path: Path) -> int:
    """Bytes; below 0 when less is free than is left to others."""
    found = os.statvfs(path.parent)
    return (found.f_bavail - found.f_blocks // LEFT_TO_OTHERS) * found.f_frsize


def _give_name(descriptor: int, path: Path) -> None:
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # With a folder, Python asks the kernel to follow the link in /proc, which leads to the nameless file.
        os.link(f"/proc/self/fd/{descriptor}", path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def _checked_slots(path: Path, descriptor: int) -> int:
    """The number of slots, once the file has turned out to be a ring of this user and of that size."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise RingDamaged(str(path), "is no file that only this user can open")
    head = os.pread(descriptor, 8 * (AT_SLOTS + 1), 0)
    magic, version, slots = memoryview(head).cast("Q") if len(head) == 8 * (AT_SLOTS + 1) else (0, 0, 0)
    if magic != MAGIC or version != VERSION:
        raise RingDamaged(str(path), "is no ring of this version")
    if not (
        MIN_SLOTS <= slots <= MAX_SLOTS and slots & (slots - 1) == 0 and found.st_size == file_size(slots)
    ):
        raise RingDamaged(str(path), f"says {slots} slots and has {found.st_size} bytes")
    return slots

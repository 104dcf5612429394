"""The real disk: one folder of the machine, and nothing outside of it.

`LocalDisk` fulfils the contract `Disk` of `heliograph.runtime.ports`, from where it is imported:

    disk = LocalDisk("data")
    with disk.create("head-0001") as head:
        head.append(b"frame")
        head.sync()             # the bytes are safe
    disk.sync_folder()          # and so is the name

Names are checked and then resolved step by step from an open folder without following symbolic links, so
neither a name nor a link planted in the folder leads out of it. `checked_name` and `disk_error` are shared
with the simulated disk: both refuse the same things with the same words.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import stat
import weakref
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakSet

from heliograph.errors import (
    DiskError,
    DiskFull,
    FileExists,
    FileLocked,
    InvalidFileName,
    NoSuchFile,
    NotPossible,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from heliograph.runtime.ports import Buffer

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
NAME_BYTES: Final = 255
"""What Linux file systems allow for one part of a name."""

BUFFERS_PER_CALL: Final = 1024
"""IOV_MAX on Linux: one system call takes no more buffers."""

_COUNT_IN_BYTES: Final = frozenset({bytes, bytearray})

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

SYNC_FAILED: Final = (
    "an earlier sync of this file failed, so the system may have dropped what was written; "
    "write it again, to a new file"
)
"""After a failed fsync Linux marks the pages clean; a second fsync would succeed and prove nothing."""


@lru_cache(maxsize=4096)  # the same few names come again and again, and a look at one costs more than a file
def checked_name(name: str) -> tuple[str, ...]:
    """Split a relative name into its parts, or raise `InvalidFileName`."""
    parts = tuple(name.split("/"))
    for part in parts:
        if part in {"", ".", ".."}:
            raise InvalidFileName(name, f"{part!r} is no name" if part else "it has an empty part")
        if _CONTROL.search(part):
            raise InvalidFileName(name, "it has a control character")
        try:
            size = len(part.encode())
        except UnicodeEncodeError:
            raise InvalidFileName(name, "it is not valid text") from None
        if size > NAME_BYTES:
            raise InvalidFileName(name, f"a part of it has {size} bytes, and {NAME_BYTES} are allowed")
    return parts


def disk_error(operation: str, file: str, code: int | None) -> DiskError:
    """The error of our tree that says what an errno means."""
    kinds = {
        errno.ENOSPC: DiskFull,
        errno.EDQUOT: DiskFull,
        errno.ENOENT: NoSuchFile,
        errno.EEXIST: FileExists,
    }
    code = code or errno.EIO
    return kinds.get(code, DiskError)(operation, file, os.strerror(code))


@contextmanager
def _translated(operation: str, file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(operation, file, error.errno) from error


def _opened(leaf: str, flags: int, folder: int) -> int:
    """Open an existing file; a folder could be opened for reading too, but is refused."""
    descriptor = os.open(leaf, flags, dir_fd=folder)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return descriptor


class LocalFile:
    """An open file of a `LocalDisk`; see `heliograph.runtime.ports.File`."""

    __slots__ = ("_descriptor", "_end", "_sync_failed", "name")

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor
        self._end = os.fstat(descriptor).st_size
        self._sync_failed = False

    def append(self, *buffers: Buffer) -> int:
        start = self._end
        self._insist_on_sound("append")
        try:
            self._end += self._write(start, buffers)
        except OSError as error:
            raise disk_error("append", self.name, error.errno) from error
        return start

    def _write(self, offset: int, buffers: Sequence[Buffer]) -> int:
        """Write everything, however few bytes the system takes at a time."""
        written = 0
        while buffers:
            batch = buffers if len(buffers) <= BUFFERS_PER_CALL else buffers[:BUFFERS_PER_CALL]
            count = os.pwritev(self._descriptor, batch, offset + written)
            written += count
            buffers = () if batch is buffers and _are_all_of(buffers, count) else _after(buffers, count)
        return written

    def write_at(self, offset: int, data: Buffer) -> None:
        self._insist_on_sound("write_at")
        if offset < 0:  # the system would take -1 for "where the last write ended"
            raise disk_error("write_at", self.name, errno.EINVAL)
        with _translated("write_at", self.name):
            self._end = max(self._end, offset + self._write(offset, (data,)))

    def read_at(self, offset: int, size: int) -> bytes:
        with _translated("read_at", self.name):
            # pread allocates what it is asked for before it looks, so the file's size bounds it here.
            there = max(0, min(size, os.fstat(self._descriptor).st_size - offset))
            chunks = []
            while there:
                chunk = os.pread(self._descriptor, there, offset)
                if not chunk:
                    break
                chunks.append(chunk)
                offset += len(chunk)
                there -= len(chunk)
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def size(self) -> int:
        with _translated("size", self.name):
            return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        self._insist_on_sound("truncate")
        with _translated("truncate", self.name):
            os.ftruncate(self._descriptor, size)
            self._end = size

    def sync(self) -> None:
        self._insist_on_sound("sync")
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._sync_failed = True
            raise disk_error("sync", self.name, error.errno) from error

    def _insist_on_sound(self, operation: str) -> None:
        if self._sync_failed:
            raise DiskError(operation, self.name, SYNC_FAILED)
        if self._descriptor < 0:
            raise disk_error(operation, self.name, errno.EBADF)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with _translated("close", self.name):
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _are_all_of(buffers: Sequence[Buffer], count: int) -> bool:
    """A quick yes for the common case; views count in items of any width, so they are left to `_after`."""
    return count == sum(map(len, buffers)) and _COUNT_IN_BYTES.issuperset(map(type, buffers))


def _after(buffers: Sequence[Buffer], count: int) -> Sequence[Buffer]:
    """What is left of the buffers once `count` bytes of them are written."""
    for index, buffer in enumerate(buffers):
        size = len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes
        if count < size:
            rest = list(buffers[index:])
            if count:
                rest[0] = memoryview(buffer).cast("B")[count:]
            return rest
        count -= size
    return ()


def _identity(descriptor: int) -> tuple[int, int, int]:
    """Of an open file in this process; a child that was forked off has others."""
    found = os.fstat(descriptor)
    return os.getpid(), found.st_dev, found.st_ino


_held_here: Final[set[tuple[int, int, int]]] = set()
"""Locks of this process. What a holder wrote does not tell: another container can have the same pid."""


class LocalLock:
    """A held lock of a `LocalDisk`; see `heliograph.runtime.ports.FileLock`."""

    __slots__ = ("__weakref__", "_descriptor", "_file", "name")

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor
        self._file = _identity(descriptor)
        _held.add(self)
        _held_here.add(self._file)

    def forget(self) -> None:
        """In the child of a fork: the lock is the parent's, and ends with it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _held_here.discard(self._file)
            # The file stays: removing it would let a third process lock a new file of the same name.
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
                # A forked child may still have the file open; closing alone would leave the lock with it.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


_held: WeakSet[LocalLock] = WeakSet()


def _forget_locks() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_locks)


def _expanded(folder: str | os.PathLike[str]) -> str:
    """The path with `~` and `~user` as a shell has them; NotPossible for a user who is not there."""
    path = os.fspath(folder)
    found = os.path.expanduser(path)  # noqa: PTH111 - a Path would raise a RuntimeError without the remedy
    if found.startswith("~"):
        user = path.partition("/")[0][1:]
        reason = (
            f"there is no user {user!r} whose home it could be in; a folder of that name is {'./' + path!r}"
        )
        raise NotPossible(f"folder {path!r:.60}", reason)
    return found


class LocalDisk:
    """One folder of this machine as a `Disk`; made, with mode 0700, unless `create=False`."""

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = True) -> None:
        self.folder = os.path.abspath(_expanded(folder))  # noqa: PTH100 - an absolute path that keeps symbolic links
        if os.path.isfile(self.folder):  # noqa: PTH113 - as above
            raise NotPossible(self.folder, "is a file: a station keeps its histories in a folder")
        with _translated("open", self.folder):
            if create and not os.path.isdir(self.folder):  # noqa: PTH112 - as above
                self._make_root_here()
            self._root = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._let_go = weakref.finalize(self, os.close, self._root)
        """Closes the folder, once: with the disk at the latest, which not everybody closes."""
        # At exit a station that was left open is closed, and writes: the system closes the folder after that.
        self._let_go.atexit = False

    def _make_root_here(self) -> None:
        try:
            self._make_root()
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            raise NotPossible(self.folder, f"no folder can be made there: {error.strerror}") from error

    def _make_root(self) -> None:
        """Level by level, each name synced in the folder that holds it."""
        missing = [self.folder]
        while not os.path.isdir(parent := os.path.dirname(missing[-1])):  # noqa: PTH112, PTH120 - as above
            missing.append(parent)
        for folder in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(folder, FOLDER_MODE)  # noqa: PTH102 - as above
            above = os.open(os.path.dirname(folder), os.O_RDONLY | os.O_DIRECTORY)  # noqa: PTH120 - as above
            try:
                os.fsync(above)
            finally:
                os.close(above)

    @contextmanager
    def _inside(self, operation: str, name: str) -> Iterator[tuple[int, str]]:
        """The open folder that holds `name`, and the last part of it; OSError becomes our own."""
        parts = checked_name(name)
        with _translated(operation, name):
            folder = self._open_folder(parts[:-1])
            try:
                yield folder, parts[-1]
            finally:
                os.close(folder)

    def _open_folder(self, parts: tuple[str, ...]) -> int:
        if not parts:
            return os.dup(self._root)
        folder = os.open(parts[0], _OPEN_FOLDER, dir_fd=self._root)
        for part in parts[1:]:
            try:
                inner = os.open(part, _OPEN_FOLDER, dir_fd=folder)
            finally:
                os.close(folder)
            folder = inner
        return folder

    @contextmanager
    def _folder(self, operation: str, name: str) -> Iterator[int]:
        parts = checked_name(name) if name else ()
        with _translated(operation, name or "."):
            folder = self._open_folder(parts)
            try:
                yield folder
            finally:
                os.close(folder)

    def create(self, name: str) -> LocalFile:
        with self._inside("create", name) as (folder, leaf):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FILE
            return LocalFile(name, os.open(leaf, flags, FILE_MODE, dir_fd=folder))

    def open(self, name: str, *, readonly: bool = False) -> LocalFile:
        with self._inside("open", name) as (folder, leaf):
            flags = (os.O_RDONLY if readonly else os.O_RDWR) | _OPEN_FILE
            return LocalFile(name, _opened(leaf, flags, folder))

    def read(self, name: str) -> bytes:
        with self.open(name, readonly=True) as file:
            return file.read_at(0, file.size())

    def map(self, name: str) -> memoryview:
        with self._inside("map", name) as (folder, leaf):
            descriptor = _opened(leaf, os.O_RDONLY | _OPEN_FILE, folder)
            try:
                if not os.fstat(descriptor).st_size:
                    return memoryview(b"")  # the system cannot map nothing
                return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            finally:
                os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        # What goes wrong inside is told of the inner name.
        with self._inside("rename", new) as (target, leaf), self._inside("rename", old) as (source, old_leaf):
            os.rename(old_leaf, leaf, src_dir_fd=source, dst_dir_fd=target)

    def remove(self, name: str) -> None:
        with self._inside("remove", name) as (folder, leaf):
            os.unlink(leaf, dir_fd=folder)

    def exists(self, name: str) -> bool:
        try:
            with self._inside("exists", name) as (folder, leaf):
                os.stat(leaf, dir_fd=folder, follow_symlinks=False)
        except NoSuchFile:
            return False
        return True

    def list(self, folder: str = "") -> tuple[str, ...]:
        with self._folder("list", folder) as descriptor, os.scandir(descriptor) as entries:
            return tuple(sorted(e.name + "/" if e.is_dir(follow_symlinks=False) else e.name for e in entries))

    def make_folder(self, name: str) -> None:
        with self._inside("make_folder", name) as (folder, leaf):
            os.mkdir(leaf, FOLDER_MODE, dir_fd=folder)

    def remove_folder(self, name: str) -> None:
        with self._inside("remove_folder", name) as (folder, leaf):
            os.rmdir(leaf, dir_fd=folder)

    def sync_folder(self, folder: str = "") -> None:
        with self._folder("sync_folder", folder) as descriptor:
            os.fsync(descriptor)

    def lock(self, name: str, *, note: str = "") -> LocalLock:
        with self._inside("lock", name) as (folder, leaf):
            descriptor = os.open(leaf, os.O_RDWR | os.O_CREAT | _OPEN_FILE, FILE_MODE, dir_fd=folder)
            try:
                self._take(descriptor, name, note)
            except BaseException:
                os.close(descriptor)
                raise
            return LocalLock(name, descriptor)

    @staticmethod
    def _take(descriptor: int, name: str, note: str) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 1024, 0).decode(errors="replace").strip()
            if _identity(descriptor) in _held_here:
                holder = f"{holder}, in this process"
            raise FileLocked(name, holder) from None
        since = datetime.now(UTC).isoformat(timespec="seconds")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} since {since} {note}".strip().encode() + b"\n", 0)

    def free(self) -> int:
        with _translated("free", "."):
            space = os.fstatvfs(self._root)
            return space.f_bavail * space.f_frsize

    def close(self) -> None:
        self._root = -1
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

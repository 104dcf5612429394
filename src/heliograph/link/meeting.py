"""Where the stations of one user and domain meet: a folder that nobody else can enter.

    $XDG_RUNTIME_DIR/heliograph/<domain>/        or, without one, <temp>/heliograph-<uid>/<domain>/
        <station id>.sock                        where the station listens
        <station id>.lock                        locked for as long as its process lives

A lock ends with its process, however that ends, so liveness needs no time-out. Files of a dead station are
removed by whoever finds them; ids are never used again. A folder that belongs to, or is open to, anybody else
is refused: whoever can enter it could listen in under a station's name.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from heliograph.errors import NotPossible, UnsafeRuntimeFolder

_DOMAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_LOCK_FILE: Final = re.compile(r"([0-9a-f]{16})\.lock")


class MeetingFolder:
    """The folder of one domain."""

    def __init__(self, domain: str) -> None:
        if not _DOMAIN.fullmatch(domain):
            raise NotPossible(
                f"domain {domain[:70]!r}", "a domain is 1 to 64 letters, digits, dots, dashes or underscores"
            )
        self.path = _base() / domain
        _make_private(self.path.parent)
        _make_private(self.path)

    def socket_path(self, station: int) -> Path:
        return self.path / f"{station:016x}.sock"

    def enter(self, station: int) -> int:
        """Show that a station is alive. Returns the descriptor that holds the lock until it is closed."""
        # Locked before it has its name: a lock file that is not locked is taken for a dead station's.
        early = self.path / f"{station:016x}.new"
        descriptor = os.open(early, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        early.rename(self._lock_path(station))
        return descriptor

    def leave(self, station: int, descriptor: int) -> None:
        self._remove(station)
        os.close(descriptor)

    def is_alive(self, station: int) -> bool:
        """Whether the station's process lives; removes what a dead one left."""
        try:
            descriptor = os.open(self._lock_path(station), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two who look at the same time do not take each other for the station.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            self._remove(station)
            return False
        finally:
            os.close(descriptor)

    def alive(self) -> set[int]:
        """The stations whose processes live."""
        names = (_LOCK_FILE.fullmatch(path.name) for path in self.path.iterdir())
        stations = {int(name[1], 16) for name in names if name}
        return {station for station in stations if self.is_alive(station)}

    def _lock_path(self, station: int) -> Path:
        return self.path / f"{station:016x}.lock"

    def _remove(self, station: int) -> None:
        for path in (self.socket_path(station), self._lock_path(station)):
            with suppress(FileNotFoundError):
                path.unlink()


def _base() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_absolute():
        return Path(runtime) / "heliograph"
    return Path(tempfile.gettempdir()) / f"heliograph-{os.getuid()}"


def _make_private(path: Path) -> None:
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeRuntimeFolder(str(path), "is no folder; remove it")
    if found.st_uid != os.getuid():
        raise UnsafeRuntimeFolder(str(path), f"belongs to user {found.st_uid}, not to user {os.getuid()}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise UnsafeRuntimeFolder(str(path), "can be entered by others; run: chmod 700 on it")

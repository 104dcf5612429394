"""Where the stations of one user and domain meet: a folder that nobody else can enter.

    $XDG_RUNTIME_DIR/heliograph/<domain>/        or, without one, <temp>/heliograph-<uid>/<domain>/
        <station id>.sock                        where the station listens
        <station id>.lock                        locked for as long as its process lives

A lock ends with its process, however that ends, so liveness needs no time-out. Files of a dead station are
removed by whoever finds them; ids are never used again.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from heliograph.privatefolder import domain_folder, runtime_base

if TYPE_CHECKING:
    from pathlib import Path

_LOCK_FILE: Final = re.compile(r"([0-9a-f]{16})\.lock")


class MeetingFolder:
    """The folder of one domain."""

    def __init__(self, domain: str) -> None:
        self.path = domain_folder(runtime_base(), domain)

    def socket_path(self, station: int) -> Path:
        return self.path / f"{station:016x}.sock"

    def enter(self, station: int) -> int:
        """Show that a station is alive. Returns the descriptor that holds the lock until it is closed."""
        # Locked before it has its name: a lock file that is not locked is taken for a dead station's.
        early = self.path / f"{station:016x}.new"
        descriptor = os.open(early, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            early.rename(self._lock_path(station))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def leave(self, station: int, descriptor: int) -> None:
        """Remove what shows that a station is alive; a descriptor below 0 is none."""
        self._remove(station)
        if descriptor >= 0:
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
        try:
            names = [_LOCK_FILE.fullmatch(name) for name in os.listdir(self.path)]  # noqa: PTH208 - names are all
        except FileNotFoundError:
            return set()  # somebody has cleared up, and what ends here late finds nobody
        stations = {int(name[1], 16) for name in names if name}
        return {station for station in stations if self.is_alive(station)}

    def _lock_path(self, station: int) -> Path:
        return self.path / f"{station:016x}.lock"

    def _remove(self, station: int) -> None:
        for path in (self.socket_path(station), self._lock_path(station)):
            with suppress(FileNotFoundError):
                path.unlink()

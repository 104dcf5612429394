"""Discovery: the private folder where the stations of one user and domain on this host find each other.

    $XDG_RUNTIME_DIR/heliograph/<domain>/        or, without one, <temp>/heliograph-<uid>/<domain>/
        <station id>.sock                        where the station listens
        <station id>.lock                        locked for as long as its process lives; says which it is

Only this user can read what a lock file says: the process of the station, as the kernel knows it, and a
secret that the station says with its hello. So a caller that claims to be a station can be told from it.

A lock ends with its process, however that ends, so liveness needs no time-out. Files of a dead station are
removed by whoever finds them; ids are never used again. Cleaners of temporary files may remove those of a
station that lives: it keeps them young, and makes them again when they are gone.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.links.transports.peer_process import PeerProcess, pid_namespace, this_process
from heliograph.runtime.private_folder import domain_folder, is_domain, make_private, runtime_base

if TYPE_CHECKING:
    from pathlib import Path

MAX_RECORD: Final = 4_096
"""Bytes of what a lock file says."""
_LOCK_FILE: Final = re.compile(r"([0-9a-f]{16})\.lock")


class StationRecord(msgspec.Struct, array_like=True, frozen=True):
    """Which process a station is."""

    pid: int
    started: int
    """As in `PeerProcess`."""
    namespace: int
    """In which the pid counts; see `pid_namespace`."""
    secret: bytes

    def doubt(self, process: PeerProcess, secret: bytes) -> str:
        """Why a caller is not this station; empty when it is."""
        if not compare_digest(self.secret, secret):
            return "does not know the secret of that station"
        own = PeerProcess(self.pid, self.started)
        # Pids of another namespace cannot be compared; then the secret alone counts.
        if self.namespace == pid_namespace() and process != own:
            return f"is process {process.pid}, and that station is process {self.pid}"
        return ""


_read_record: Final = msgspec.msgpack.Decoder(StationRecord).decode


def domains() -> dict[str, int]:
    """The domains of this user in which stations live, and how many there are."""
    base = runtime_base()
    try:
        names = sorted(os.listdir(base))  # noqa: PTH208 - names are all
    except FileNotFoundError:
        return {}
    counts = {name: len(DiscoveryFolder(name).alive()) for name in names if is_domain(name)}
    return {name: count for name, count in counts.items() if count}


class DiscoveryFolder:
    """The folder of one domain."""

    def __init__(self, domain: str) -> None:
        self.path = domain_folder(runtime_base(), domain)

    def socket_path(self, station: int) -> Path:
        return self.path / f"{station:016x}.sock"

    def enter(self, station: int, secret: bytes = b"") -> int:
        """Show that a station is alive. Returns the descriptor that holds the lock until it is closed."""
        # Locked before it has its name: a lock file that is not locked is taken for a dead station's.
        early = self.path / f"{station:016x}.new"
        descriptor = os.open(early, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(
                descriptor, msgspec.msgpack.encode(StationRecord(*this_process(), pid_namespace(), secret))
            )
            early.rename(self._lock_path(station))
        except BaseException:
            os.close(descriptor)
            early.unlink(missing_ok=True)
            raise
        return descriptor

    def make_again(self) -> None:
        """Make the folder, where it is missing."""
        make_private(self.path.parent)
        make_private(self.path)

    def holds_lock(self, station: int, descriptor: int) -> bool:
        """Whether this is the station's lock file, and its folder is there."""
        return is_same_file(self._lock_path(station), os.fstat(descriptor))

    def keep_young(self, station: int) -> None:
        """Show cleaners of temporary files that these are in use."""
        for path in (self.path, self.socket_path(station), self._lock_path(station)):
            with suppress(FileNotFoundError):
                os.utime(path)

    def is_missing(self, station: int) -> bool:
        """Whether there is no lock file of a station, be it dead or alive."""
        return not self._lock_path(station).exists()

    def leave(self, station: int, descriptor: int) -> None:
        """Remove what shows that a station is alive; a descriptor below 0 is none."""
        self._remove(station)
        if descriptor >= 0:
            os.close(descriptor)

    def record(self, station: int) -> StationRecord | None:
        """What a station's lock file says; None when there is none that can be read."""
        try:
            with self._lock_path(station).open("rb") as file:
                return _read_record(file.read(MAX_RECORD))
        except (FileNotFoundError, msgspec.DecodeError):
            return None

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


def is_same_file(path: Path, known: os.stat_result) -> bool:
    """Whether a path leads to this file."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (known.st_dev, known.st_ino)

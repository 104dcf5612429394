"""Which process is at the other end of a socket: what the kernel says, whatever the process claims.

    process = process_of_same_user(sock, "b")   # pid and start time; LinkRefused for another user
    process.cpu_ticks()                         # processor time used so far, to tell busy from stopped

The kernel takes the credentials when the connection is made. The start time tells a process from a later one
with the same pid. A process of another pid namespace that this one cannot see has pid 0, and nothing is known
of it.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from heliograph.errors import LinkRefused

_CREDENTIALS: Final = struct.Struct("3i")
_ENDED: Final = (b"Z", b"X")
_STARTED, _USER_TICKS, _SYSTEM_TICKS = 19, 11, 12
"""Fields of `/proc/<pid>/stat`, counted behind the name of the program, which may hold any character."""


class PeerProcess(NamedTuple):
    """A process as the kernel knows it."""

    pid: int
    """0: not visible from here."""
    started: int
    """Clock ticks after the boot of the host; 0: not known."""

    def cpu_ticks(self) -> int | None:
        """Processor time that all of its threads have used; None where that cannot be known."""
        fields = _stat(self.pid)
        if fields is None or int(fields[_STARTED]) != self.started:
            return None
        return int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])

    def is_running(self) -> bool:
        """Whether it is there, and has not ended."""
        fields = _stat(self.pid)
        return fields is not None and int(fields[_STARTED]) == self.started and fields[0] not in _ENDED


UNKNOWN: Final = PeerProcess(0, 0)


def process_of(pid: int) -> PeerProcess:
    """A process by its pid, as this process sees it."""
    fields = _stat(pid)
    return PeerProcess(pid, 0) if fields is None else PeerProcess(pid, int(fields[_STARTED]))


def this_process() -> PeerProcess:
    return process_of(os.getpid())


def pid_namespace() -> int:
    """In which namespace this process and those that it sees have their pids; 0: not known."""
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def process_of_same_user(sock: socket.socket, peer: str) -> PeerProcess:
    """The process at the other end of a connected Unix socket; LinkRefused if another user runs it."""
    pid, uid, _ = _CREDENTIALS.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    if uid != os.getuid():
        raise LinkRefused(peer, f"runs as user {uid}, this station as user {os.getuid()}")
    return process_of(pid)


def _stat(pid: int) -> list[bytes] | None:
    if pid <= 0:
        return None
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return None

"""What the ring needs of Linux beyond files: futexes, membarrier, and locks that belong to an open file.

    if reason := missing(): ...             why there can be no ring here; None when there can
    sleep_on(address, value, seconds)       until `wake(address)`, while the word has that value
    order_all_processes()                   a full memory barrier in every process that called `take_part()`

`try_lock` uses locks of the open file description: they end with the process however it ends, say nothing
about process ids, which are used again, and two openings in one process exclude each other like two
processes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
import sys
from functools import cache
from typing import Final

from heliograph.runtime.private_folder import memory_root

_SYS_FUTEX: Final = 202
_SYS_MEMBARRIER: Final = 324
_FUTEX_WAIT: Final = 0
_FUTEX_WAKE: Final = 1
_EVERYBODY: Final = 2**31 - 1
_QUERY: Final = 0
_GLOBAL_EXPEDITED: Final = 1 << 1
_REGISTER_GLOBAL_EXPEDITED: Final = 1 << 2
_FLOCK: Final = struct.Struct("@hhqqi4x")


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_libc: Final = ctypes.CDLL(None, use_errno=True)


@cache
def missing() -> str | None:
    """Why this process cannot use rings, in words; None when it can."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return f"needs 64-bit Linux on x86-64, this is {platform.machine()} {sys.platform}"
    if not os.access(memory_root(), os.W_OK | os.X_OK):
        return f"needs a {memory_root()} that can be written"
    commands = _libc.syscall(_SYS_MEMBARRIER, _QUERY, 0, 0)
    if commands < 0 or not commands & _GLOBAL_EXPEDITED:
        return (
            "needs membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED), Linux 4.16, which the kernel does not grant"
        )
    return None


def take_part() -> None:
    """Let barriers of other processes reach this one; needed once, harmless when repeated."""
    _membarrier(_REGISTER_GLOBAL_EXPEDITED)


def order_all_processes() -> None:
    """Each running thread of each process that takes part passes a full barrier before this returns."""
    _membarrier(_GLOBAL_EXPEDITED)


def _membarrier(command: int) -> None:
    if _libc.syscall(_SYS_MEMBARRIER, command, 0, 0) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"membarrier: {os.strerror(code)}")


def sleep_on(address: int, value: int, seconds: float) -> bool:
    """Sleep while the 32-bit word there has that value. False only when the time ran out first."""
    whole = int(seconds)
    limit = _TimeSpec(whole, int((seconds - whole) * 1e9))
    answer = _libc.syscall(
        _SYS_FUTEX, ctypes.c_void_p(address), _FUTEX_WAIT, ctypes.c_uint32(value), ctypes.byref(limit), 0, 0
    )
    return answer == 0 or ctypes.get_errno() != errno.ETIMEDOUT


def wake(address: int) -> None:
    """Wake everybody who sleeps on the word there."""
    _libc.syscall(_SYS_FUTEX, ctypes.c_void_p(address), _FUTEX_WAKE, _EVERYBODY, 0, 0, 0)


def try_lock(descriptor: int, byte: int, *, shared: bool = False) -> bool:
    """Lock one byte of an open file until it is unlocked or the last copy of the descriptor is gone."""
    kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
    try:
        _set_lock(descriptor, byte, kind)
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(descriptor: int, byte: int) -> None:
    _set_lock(descriptor, byte, fcntl.F_UNLCK)


def is_locked(descriptor: int, byte: int) -> bool:
    """Whether another opening of the file holds that byte for itself alone."""
    asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0)
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    return bool(_FLOCK.unpack(answer)[0] == fcntl.F_WRLCK)


def _set_lock(descriptor: int, byte: int, kind: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))

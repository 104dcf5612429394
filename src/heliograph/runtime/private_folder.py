"""Folders that nobody but this user can enter, below which processes of this user meet.

    folder = domain_folder(runtime_base(), "airspace")      # sockets and locks
    folder = domain_folder(memory_base(), "airspace")       # shared memory

A folder that belongs to, or is open to, anybody else is refused: whoever can enter it could listen in.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from heliograph.errors import NotPossible, UnsafeRuntimeFolder

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - what is made below it is private, and checked to be
MEMORY_VARIABLE: Final = "HELIO_MEMORY_DIR"
"""Names another folder for shared memory."""
_DOMAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def is_domain(name: str) -> bool:
    """Whether a domain can have this name."""
    return _DOMAIN.fullmatch(name) is not None


def domain_folder(base: Path, domain: str) -> Path:
    """The folder of one domain; made, with its parent, where it is missing."""
    if not is_domain(domain):
        raise NotPossible(
            f"domain {domain[:70]!r}", "a domain is 1 to 64 letters, digits, dots, dashes or underscores"
        )
    make_private(base)
    make_private(base / domain)
    return base / domain


def runtime_base() -> Path:
    """`$XDG_RUNTIME_DIR/heliograph` or, without one, `<temp>/heliograph-<uid>`."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_absolute():
        return Path(runtime) / "heliograph"
    return Path(tempfile.gettempdir()) / f"heliograph-{os.getuid()}"


def memory_root() -> Path:
    """The mounted memory: `/dev/shm`, or the folder that `$HELIO_MEMORY_DIR` names.

    UnsafeRuntimeFolder where that is no absolute path: programs in other folders would mean another one.
    """
    chosen = os.environ.get(MEMORY_VARIABLE)
    if not chosen:
        return MEMORY
    if not Path(chosen).is_absolute():
        raise UnsafeRuntimeFolder(chosen, f"is no absolute path; set {MEMORY_VARIABLE} to one")
    return Path(chosen)


def memory_base() -> Path:
    """`heliograph-<uid>` below `memory_root`: files there are memory, and never written to a disk."""
    return memory_root() / f"heliograph-{os.getuid()}"


def make_private(path: Path) -> None:
    """Make a folder that is missing; UnsafeRuntimeFolder for one that others can enter."""
    found = None
    while found is None:
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # whoever tidies up has just removed it, for it was empty
            found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeRuntimeFolder(str(path), "is no folder; remove it")
    if found.st_uid != os.getuid():
        raise UnsafeRuntimeFolder(str(path), f"belongs to user {found.st_uid}, not to user {os.getuid()}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise UnsafeRuntimeFolder(str(path), "can be entered by others; run: chmod 700 on it")

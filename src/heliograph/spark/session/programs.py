"""Small start scripts that stand between Spark and a program it starts: a Java, the Python of its workers.

They stand in a folder of this user alone and are made in one step, so that any number of processes may start
at once.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import sys
import tempfile
from pathlib import Path
from typing import Final

from heliograph.runtime.child_process import import_path

_WORKER_PYTHON: Final = """\
#!/bin/sh
# Spark has workers import its modules from a zip, where each process compiles them anew; the installed ones,
# which are the same, are compiled already.
set -f
IFS=:
kept=
for part in $PYTHONPATH; do
    case $part in
        */pyspark.zip | */py4j-*-src.zip) ;;
        *) kept="$kept${{kept:+:}}$part" ;;
    esac
done
unset IFS
# Spark starts workers with -m, in whatever folder its program was started: nothing is imported from there.
# They import what the driver does.
PYTHONPATH=$kept${{HELIO_WORKER_PATH:+${{kept:+:}}$HELIO_WORKER_PATH}} exec {python} -P "$@"
"""


def worker_python() -> str:
    """What Spark on this machine starts its workers with: this Python, in a third of the time.

    Speed is not all: a stream ends when the process that plans it takes more than ten seconds to start.
    """
    import pyspark  # noqa: PLC0415 - the package loads without Spark

    if ".zip" in pyspark.__file__:
        return sys.executable
    script = _WORKER_PYTHON.format(python=shlex.quote(sys.executable))
    home = home_of("python", script)
    return sys.executable if home is None else str(home / "bin" / "python")


def worker_path() -> str:
    """Where workers on this machine import from, behind what Spark tells them: where this process does."""
    return os.pathsep.join(import_path(for_user=True))


def home_of(program: str, script: str) -> Path | None:
    """A folder whose `bin/program` is this script; None when there is no place for one."""
    name = f"{program}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    for folder in cache_folders():
        try:
            if _make_private(folder):
                written = _write_program(folder / name / "bin" / program, script)
                if os.access(written, os.X_OK):  # not on a file system mounted noexec
                    return folder / name
        except OSError:
            continue
    return None


def cache_folders() -> list[Path]:
    """Where start scripts may stand, best first."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118 - Path.home() raises for users without a home
    return [
        Path(cache) / "heliograph",
        Path(tempfile.gettempdir()) / f"heliograph-{os.geteuid()}",
    ]


def _make_private(folder: Path) -> bool:
    """Make the folder if need be; False when somebody else could put a program there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _write_program(path: Path, text: str) -> Path:
    """Write an executable file unless it already stands there as it should."""
    if not _holds(path, text):
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(
                mode=0o700, exist_ok=True
            )  # one by one: `parents=True` would make the upper one 0777
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(temporary).chmod(0o700)
        Path(temporary).replace(path)
    return path


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text
    except (OSError, UnicodeDecodeError):
        return False

"""Where and with what a result was measured; stored beside every result."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARIES = ("msgspec", "numpy", "orjson", "protobuf", "fastavro", "pyarrow")


def variables() -> dict[str, str]:
    """For processes that benchmarks start: they find `bench`, and rivals where this process finds them."""
    folders = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


@dataclass(frozen=True)
class Environment:
    """One machine at one time. `load` is the average number of runnable processes in the last minute."""

    cpu: str
    cores: int
    kernel: str
    python: str
    libraries: dict[str, str]
    commit: str
    taken: str
    load: float

    @staticmethod
    def here() -> Environment:
        return Environment(
            cpu=_cpu(),
            cores=os.cpu_count() or 0,
            kernel=f"{platform.system()} {platform.release()}",
            python=f"{platform.python_implementation()} {platform.python_version()}",
            libraries={name: _version(name) for name in LIBRARIES},
            commit=_commit(),
            taken=datetime.now(UTC).isoformat(timespec="seconds"),
            load=round(os.getloadavg()[0], 2),
        )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """The commit that was measured, with a + when files differ from it."""
    here = Path(__file__).parent
    try:
        commit = _git(here, "rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git(here, "status", "--porcelain", "--", "../src", ".", ":!results") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()

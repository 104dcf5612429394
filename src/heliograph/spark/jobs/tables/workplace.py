"""The part of a table's folder where one job at a time prepares files, before they belong to the table.

    with Workplace.locked("tables/tracks") as place:
        frame.write.parquet(str(place.staging))       Spark writes where no reader looks
        files = place.staged()                        synced, with their rows and partitions
        place.move(files, place.targets(files))       into the table's folder, under names that are new

Everything is in `_heliograph`, a name that readers of Parquet folders, Delta and Iceberg pass over. Files
that a killed job has moved and not committed are known by name from `moving.json`; the next job removes them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow.parquet as pq

from heliograph.errors import TableInUse
from heliograph.runtime.fault_points import reach

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FOLDER: Final = "_heliograph"
MOVING: Final = "moving.json"
SUFFIX: Final = ".parquet"
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""How Spark and Hive name the folder of a partition without a value."""


class DataFile(NamedTuple):
    """A Parquet file of a table, or on its way there."""

    path: str
    """Counted from the table's folder."""
    rows: int
    bytes: int

    @property
    def folder(self) -> str:
        """The folders of its partition, without what stands before them."""
        return "/".join(part.lstrip("_") for part in self.path.split("/")[:-1] if "=" in part)

    @property
    def partition(self) -> dict[str, str | None]:
        """The values in the names of those folders: `event_date=2026-11-18`."""
        parts = [part.partition("=") for part in self.folder.split("/") if part]
        return {name: None if value == NULL else unquote(value) for name, _, value in parts}


class Workplace:
    """A table's folder, locked for one job."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.own = table / FOLDER
        self.staging = self.own / "staging"

    @classmethod
    @contextmanager
    def locked(cls, table: Path) -> Iterator[Workplace]:
        """Make the folder if need be and lock it; TableInUse when another job has it."""
        place = cls(table)
        with locked(place.own, of=table):
            yield place

    def clear(self) -> None:
        """Remove what a killed job has staged."""
        shutil.rmtree(self.staging, ignore_errors=True)

    def staged(self) -> list[DataFile]:
        """The files that Spark has staged, on disk for good; empty ones are left out."""
        found = []
        for path in sorted(self.staging.rglob(f"*{SUFFIX}")):
            rows = pq.read_metadata(path).num_rows
            if rows:
                sync(path)
                found.append(DataFile(path.relative_to(self.table).as_posix(), rows, path.stat().st_size))
        return found

    def targets(self, files: Sequence[DataFile], below: str = "") -> list[DataFile]:
        """The same files under the names that they will have in the table, which no file ever had."""
        batch = uuid.uuid4().hex
        return [
            file._replace(path=f"{below}{file.folder}{'/' * bool(file.folder)}{batch}-{number:05d}{SUFFIX}")
            for number, file in enumerate(files)
        ]

    def move(self, files: Sequence[DataFile], targets: Sequence[DataFile]) -> None:
        """Give files their names in the table; those that have them already are left."""
        for file, target in zip(files, targets, strict=True):
            new = self.table / target.path
            new.parent.mkdir(parents=True, exist_ok=True)
            if not new.exists():  # or what a later batch has staged under the same name would replace it
                with suppress(FileNotFoundError):
                    (self.table / file.path).rename(new)
            reach("table-moving")
        for folder in sorted({(self.table / target.path).parent for target in targets}):
            sync(folder)
            sync(folder.parent)

    def note(self, targets: Sequence[DataFile]) -> None:
        """Write down which files are about to be moved, for whoever finds them uncommitted."""
        write_whole(self.own / MOVING, msgspec.json.encode([target.path for target in targets]))

    def forget(self) -> None:
        (self.own / MOVING).unlink(missing_ok=True)
        self.clear()

    def remove_uncommitted(self, committed: set[str]) -> int:
        """Remove files that a killed job has moved and not committed; returns how many."""
        removed = 0
        with suppress(FileNotFoundError):
            for path in msgspec.json.decode((self.own / MOVING).read_bytes(), type=list[str]):
                if path not in committed and (self.table / path).exists():
                    (self.table / path).unlink()
                    removed += 1
        self.forget()
        return removed


@contextmanager
def locked(folder: Path, *, of: Path | None = None) -> Iterator[None]:
    """Make the folder if need be and hold its lock; TableInUse, of what is named, when another job does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TableInUse(str(of or folder)) from None
        yield


def sync(path: Path) -> None:
    """What the file or folder holds is on disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one step: readers find the old content or the new, also after a power loss."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)

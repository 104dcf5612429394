"""Sealed files of a journal under a second name in the folder of a table: hard links, so nothing is copied.

    tracks/data/5f0c…/00000000000000000000-00000000000000065536-00000003-9d1c2a77.parquet

The name ends with the checksum of the file, so a name never has two contents. A link is readable also when
the journal has removed its own name. Links that the table no longer has stay for a grace, for readers of an
older version of it, and are removed by a later run; `leaving.json` says since when they wait.
"""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import pyarrow.parquet as pq

from heliograph.errors import HistoryDamaged, InvalidOption
from heliograph.journal.format.folder import StationFolder, partition_folder
from heliograph.runtime.fault_points import reach
from heliograph.spark.jobs.tables.workplace import SUFFIX, sync, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from heliograph.journal.format.manifest import Segment
    from heliograph.spark.jobs.tables.workplace import Workplace

DATA: Final = "data"
LEAVING: Final = "leaving.json"
TRIES: Final = 10
"""A manifest may change while its files are linked; with each one that does a merge has ended."""
_NO_LINK: Final = {
    errno.EXDEV: "a folder on the file system of the station's folder",
    errno.EPERM: "a folder in which the files of the station may be linked, by the user who owns them",
    errno.EMLINK: "a folder on a file system that allows a file more names",
}


class ChannelFile(NamedTuple):
    """A sealed file of a channel, and what it is called in the table."""

    partition: str
    segment: Segment
    source: str

    @property
    def name(self) -> str:
        """The file's name in the table, without folders."""
        stem = self.segment.name.rpartition("/")[2].removesuffix(SUFFIX)
        return f"{stem}-{self.segment.crc:08x}{SUFFIX}"

    @property
    def path(self) -> str:
        """Counted from the table's folder."""
        return f"{DATA}/{self.partition}/{self.name}"


class LinkedFile(NamedTuple):
    """A sealed file that the table's folder has, and what its footer says."""

    path: str
    size: int
    modified_ms: int
    footer: pq.FileMetaData


class SealedHistory(NamedTuple):
    """The sealed files of a channel at one instant."""

    files: dict[str, ChannelFile]
    """By their paths in the table."""
    partitions: tuple[str, ...]
    unsealed: int
    """Offsets that are durable and not sealed yet."""


def sealed_history(folder: str | os.PathLike[str], channel: str, *, fail_on_data_loss: bool) -> SealedHistory:
    """What the manifests of a channel list now. NoHistory when there is no such channel.

    HistoryDamaged for a file of which rows are known to be lost; without `fail_on_data_loss` it is left out.
    """
    station = StationFolder(folder)
    files: dict[str, ChannelFile] = {}
    unsealed = 0
    partitions = station.partitions(channel)
    for partition in partitions:
        place = partition_folder(channel, partition)
        with station.reader(channel, partition) as reader:
            manifest, watermark = reader.manifest, reader.watermark
        damaged = {damage.file: damage for damage in manifest.damage}
        sealed = max((segment.next for segment in manifest.segments), default=manifest.earliest)
        unsealed += max(0, watermark - sealed)
        for segment in manifest.segments:
            if segment.name in damaged:
                if fail_on_data_loss:
                    damage = damaged[segment.name]
                    raise HistoryDamaged(place, damage.first, damage.next, damage.reason)
                continue
            file = ChannelFile(partition, segment, f"{station.path}/{place}/{segment.name}")
            files[file.path] = file
    return SealedHistory(files, partitions, unsealed)


class Links:
    """The links in a table's folder, for the job that holds its lock."""

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self._list = place.own / LEAVING

    def make(self, files: Iterable[ChannelFile]) -> list[ChannelFile]:
        """Link files into the table's folder; returns those that have gone from the journal since.

        InvalidOption when the table's folder cannot have links to them.
        """
        gone = []
        folders: set[Path] = set()
        for file in files:
            target = self._place.table / file.path
            if target.parent not in folders:
                target.parent.mkdir(parents=True, exist_ok=True)
                folders.add(target.parent)
            try:
                os.link(file.source, target)
            except FileExistsError:
                pass  # of a run that was killed before it committed; its name says what is in it
            except FileNotFoundError:
                gone.append(file)
            except OSError as error:
                if (allowed := _NO_LINK.get(error.errno or 0)) is None:
                    raise
                raise InvalidOption("to", str(self._place.table), allowed) from error
            reach("table-linked")
        for folder in sorted(folders):
            sync(folder)
            sync(folder.parent)
        return gone

    def read(self, path: str) -> LinkedFile:
        """What a table is told of a file."""
        found = (self._place.table / path).stat()
        footer = pq.read_metadata(self._place.table / path)
        return LinkedFile(path, found.st_size, found.st_mtime_ns // 1_000_000, footer)

    def leaving(self, kept: Iterable[str]) -> dict[str, int]:
        """Links that the table does not have, and when each was first found to be one; written down."""
        now = time.time_ns()
        try:
            known = msgspec.json.decode(self._list.read_bytes(), type=dict[str, int])
        except (FileNotFoundError, msgspec.MsgspecError):
            known = {}
        present = {
            path.relative_to(self._place.table).as_posix()
            for path in (self._place.table / DATA).glob(f"*/*{SUFFIX}")
        }
        leaving = {path: known.get(path, now) for path in sorted(present.difference(kept))}
        if leaving != known:
            write_whole(self._list, msgspec.json.encode(leaving))
        return leaving

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            (self._place.table / path).unlink(missing_ok=True)

    def size(self, paths: Iterable[str]) -> int:
        """Bytes of those among these links whose files have no other name."""
        found = [(self._place.table / path).stat() for path in paths]
        return sum(one.st_size for one in found if one.st_nlink == 1)

"""A station's folder, seen from outside: which channels have a history here, and where in it a point lies.

    folder = StationFolder("data")
    folder.channels()                                   ("air.tracks", "weather")
    for partition in folder.partitions("air.tracks"):
        with folder.reader("air.tracks", partition) as reader: ...

A store of published segments (`heliograph.journal.published`), in a folder or at a URL such as s3://, is read
in the same way. No lock is taken, so the station may be running, here or in another process. Spark and
`helio journal` read histories through this; the station itself has `heliograph.journal.station_folder`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heliograph.errors import (
    BadJournalFile,
    DiskError,
    HistoryDamaged,
    HistoryGone,
    InvalidFileName,
    NoHistory,
    NoSuchFile,
    NotPossible,
)
from heliograph.journal.names import CHANNELS, CONSUMERS, DELAYED, HEADS, MANIFEST, SEALED, escaped, unescaped
from heliograph.journal.published.layout import is_store
from heliograph.journal.published.store_disk import StoreDisk
from heliograph.journal.reading.reader import PartitionReader
from heliograph.runtime.object_store import is_remote, object_store
from heliograph.runtime.ports import LocalDisk

if TYPE_CHECKING:
    from heliograph.model.formats import Format, FormatRegistry


def partition_folder(channel: str, partition: str) -> str:
    """Where a partition lies, counted from the station's folder."""
    return f"{CHANNELS}/{escaped(channel)}/{partition}"


def delayed_folder(channel: str, partition: str) -> str:
    """Where events wait that a partition will have later."""
    return f"{DELAYED}/{escaped(channel)}/{partition}"


def cursor_folder(channel: str) -> str:
    """Where the cursors of a channel's durable consumers lie, counted from the station's folder."""
    return f"{CONSUMERS}/{escaped(channel)}"


def disk_at(location: str | os.PathLike[str]) -> LocalDisk | StoreDisk:
    """The disk of a station's folder, or of a store of published segments; NoHistory when it is neither."""
    text = os.fspath(location)
    if is_remote(text):
        far = StoreDisk(object_store(text))
        if far.is_empty():
            raise NoHistory(text)
        return far
    try:
        disk = LocalDisk(text, create=False)
        return StoreDisk(object_store(text)) if is_store(disk.list()) else disk
    except DiskError as error:
        raise NoHistory(text) from error


class StationFolder:
    """Opens a station's folder for reading; NoHistory when it is none."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.disk = disk_at(folder)
        self.is_published = isinstance(self.disk, StoreDisk)
        """Whether these are published segments, and not the folder of the station itself."""
        try:
            self.disk.list(CHANNELS)
        except DiskError as error:
            raise NoHistory(str(folder)) from error
        self.path = self.disk.folder
        self._file = None if self.is_published else _file_of(self.path)

    def is_replaced(self) -> bool:
        """Whether another folder has this name by now, such as an older copy that was put back."""
        return self._file is not None and _file_of(self.path) not in (None, self._file)

    def channels(self) -> tuple[str, ...]:
        """Names of the channels that have a history."""
        found = []
        for name in _folders(self.disk.list(CHANNELS)):
            with suppress(InvalidFileName):  # something that is not ours
                found.append(unescaped(name))
        return tuple(sorted(found))

    def partitions(self, channel: str) -> tuple[str, ...]:
        """The partitions of a channel; NoHistory names the channels that there are."""
        try:
            names = _folders(self.disk.list(f"{CHANNELS}/{escaped(channel)}"))
        except (NoSuchFile, InvalidFileName) as error:
            raise NoHistory(self.path, channel, self.channels()) from error
        return tuple(name for name in names if self._has_rows(partition_folder(channel, name)))

    def delayed(self, channel: str) -> tuple[str, ...]:
        """Those of them beside which events wait, or have waited, for their time."""
        try:
            names = _folders(self.disk.list(f"{DELAYED}/{escaped(channel)}"))
        except NoSuchFile:
            return ()
        return tuple(name for name in names if self._has_rows(delayed_folder(channel, name)))

    def declared(self, channel: str) -> list[Format]:
        """The formats of the classes that a channel was last opened with; none before a program has said so.

        A record that cannot be read says nothing here: opening the channel tells what is wrong with it.
        """
        from heliograph.journal.format.channel_config import read_charter  # noqa: PLC0415 - Spark's tasks need no policies

        with suppress(BadJournalFile, InvalidFileName):
            return read_charter(self.disk, channel).known_formats()
        return []

    def reader(self, channel: str, partition: str, formats: FormatRegistry | None = None) -> PartitionReader:
        return PartitionReader(self.disk, partition_folder(channel, partition), formats=formats)

    def watermarks(self, channel: str) -> dict[str, int]:
        """Up to where each partition of a channel that can be opened is durable."""
        found: dict[str, int] = {}
        for partition in self.partitions(channel):
            with suppress(BadJournalFile, DiskError), self.reader(channel, partition) as reader:
                found[partition] = reader.watermark
        return found

    def _has_rows(self, place: str) -> bool:
        """False while a writer is just making it. One that lost its manifest is there, and fails to open."""
        if self.disk.exists(f"{place}/{MANIFEST}"):
            return True
        inside = _folders(self.disk.list(place))
        return any(self.disk.list(f"{place}/{name}") for name in (HEADS, SEALED) if name in inside)


def _file_of(path: str) -> tuple[int, int] | None:
    """What the system knows a folder by; None when there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _folders(entries: tuple[str, ...]) -> list[str]:
    return [name.removesuffix("/") for name in entries if name.endswith("/")]


def offset_of(reader: PartitionReader, point: Any, channel: str) -> int:
    """The offset of "earliest", "now" or "latest", of an offset, or of the first row at or after a time."""
    match point:
        case "earliest":
            return reader.earliest
        case "now" | "latest":
            return reader.watermark
        case int() if point >= 0 and not isinstance(point, bool):
            return point
        case datetime() if point.tzinfo is not None:
            return reader.offset_at(round(point.timestamp() * 1e6) * 1000)
        case _:
            raise NotPossible(
                channel,
                f"{point!r} is no place in its history: 'earliest', 'now', 'latest', an offset and an "
                "aware datetime are",
            )


def learn_formats_of_heads(reader: PartitionReader) -> None:
    """Fill `reader.formats` with the formats of all rows that are not sealed; segments bring their own."""
    watermark = reader.watermark
    for head in reader.manifest.heads:
        end = head.next or watermark
        if head.first < end:
            # The way to the last row passes all descriptions. Trouble shows where the rows are read.
            with suppress(HistoryGone, HistoryDamaged):
                reader.read(end - 1, max_events=1)

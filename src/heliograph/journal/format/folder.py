"""A station's folder, seen from outside: which channels have a history here, and where in it a point lies.

    folder = StationFolder("data")
    folder.channels()                                   ("air.tracks", "weather")
    for partition in folder.partitions("air.tracks"):
        with folder.reader("air.tracks", partition) as reader: ...

No lock is taken, so the station may be running, here or in another process. Spark and `helio journal` read
histories through this; the station itself has `heliograph.journal.station_folder`.
"""

from __future__ import annotations

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
from heliograph.journal.reading.reader import PartitionReader
from heliograph.runtime.ports import LocalDisk

if TYPE_CHECKING:
    import os

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


class StationFolder:
    """Opens a station's folder for reading; NoHistory when it is none."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            self.disk = LocalDisk(folder, create=False)
            self.disk.list(CHANNELS)
        except DiskError as error:
            raise NoHistory(str(folder)) from error
        self.path = self.disk.folder
        self._file = _file_of(self.path)

    def is_replaced(self) -> bool:
        """Whether another folder has this name by now, such as an older copy that was put back."""
        return _file_of(self.path) not in (None, self._file)

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

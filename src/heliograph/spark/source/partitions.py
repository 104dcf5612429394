"""The partitions that a read covers, kept open on the driver while `format("heliograph")` plans.

    watch = Watch(options)
    for (channel, partition), reader in watch.readers().items(): ...

A stream asks every fraction of a second how far each partition is, so readers stay open and a look at one
costs less than a microsecond. New channels and partitions are looked for at most once a second.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.errors import InvalidOption, NoHistory, NoSuchFile
from heliograph.journal.format.folder import StationFolder
from heliograph.model.formats import FormatRegistry
from heliograph.spark.source.plan import learn_formats

if TYPE_CHECKING:
    from heliograph.journal.reading.reader import PartitionReader
    from heliograph.model.formats import Format
    from heliograph.spark.source.options import SourceOptions

LOOK_AGAIN: Final = 1.0
"""Seconds after which new partitions are looked for."""
PAUSE: Final = 9
"""How many times as long as looking takes it pauses at least: of ten thousand channels that is seconds."""


class Key(NamedTuple):
    """A partition of a channel."""

    channel: str
    partition: str


class ChannelPartitions:
    """Opens the channels that were asked for; NoHistory when there is no such folder or channel."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pattern = None if options.pattern is None else re.compile(options.pattern)
        self.folder = StationFolder(options.path)
        self.formats = FormatRegistry()
        self._readers: dict[Key, PartitionReader] = {}
        self._look_at = float("-inf")
        self.readers()

    def readers(self, *, now: bool = False) -> dict[Key, PartitionReader]:
        """All partitions that there are; with `now`, also those that are a moment old."""
        start = time.monotonic()
        if now or start >= self._look_at:
            self._look()
            end = time.monotonic()
            self._look_at = max(start + LOOK_AGAIN, end + PAUSE * (end - start))
        return self._readers

    def learned(self) -> tuple[Format, ...]:
        """The formats of everything that is kept, then those of the classes that the channels carry."""
        for reader in self._readers.values():
            learn_formats(reader)
        for channel in self._channels():
            for fmt in self.folder.declared(channel):
                self.formats.register(fmt)
        return self.formats.formats()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _look(self) -> None:
        if self.folder.is_replaced():
            self.close()
            self.folder = StationFolder(self.folder.path)
        for channel in self._channels():
            for partition in self._partitions(channel):
                key = Key(channel, partition)
                if key in self._readers and self._readers[key].is_replaced():
                    self._readers.pop(key).close()  # what was read of it is compared with what is there now
                if key not in self._readers:
                    self._readers[key] = self.folder.reader(channel, partition, self.formats)

    def _channels(self) -> tuple[str, ...]:
        if self._options.assigned is not None:
            return tuple(self._options.assigned)
        if self._pattern is None:
            return self._options.channels
        return tuple(name for name in self.folder.channels() if self._pattern.fullmatch(name))

    def _partitions(self, channel: str) -> tuple[str, ...]:
        try:
            return self._wanted(channel, self.folder.partitions(channel))
        except (NoHistory, NoSuchFile):
            # A channel that was there and is gone: what that means is for whoever has read from it to say.
            if self._pattern is None and not any(key.channel == channel for key in self._readers):
                raise
            return ()

    def _wanted(self, channel: str, there: tuple[str, ...]) -> tuple[str, ...]:
        if self._options.assigned is None:
            return there
        wanted = self._options.assigned[channel]
        missing = [partition for partition in wanted if partition not in there]
        if missing and not any(key.channel == channel for key in self._readers):
            raise InvalidOption("assign", missing[0], f"partitions of {channel!r}: {', '.join(there)}")
        return tuple(partition for partition in wanted if partition in there)

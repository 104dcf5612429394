"""Histories to read: channels kept on a real disk, sealed when a test says so."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from heliograph.codec import encoder
from heliograph.journal.folders import make_folder
from heliograph.journal.format.folder import partition_folder
from heliograph.journal.format.records import Record
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.seal import seal
from heliograph.journal.names import CHANNELS, escaped
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.model.event import format_of
from heliograph.model.formats import FormatRegistry
from heliograph.runtime.ports import Ports, SystemClock, ThreadTasks, system_ports

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.model.event import Event

FIRST_TIME = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


class HandClock(SystemClock):
    """Wall-clock time stands still until it is moved."""

    def __init__(self) -> None:
        self.now = FIRST_TIME

    def time_ns(self) -> int:
        return self.now


class Keeper:
    """One partition of a channel in a station's folder, without the station."""

    def __init__(self, folder: Path, channel: str = "air.tracks", partition: str = "p1") -> None:
        self.clock = HandClock()
        self.formats = FormatRegistry()
        ports = system_ports(folder)
        assert ports.disk is not None
        make_folder(ports.disk, CHANNELS)
        make_folder(ports.disk, f"{CHANNELS}/{escaped(channel)}")
        self.place = folder / partition_folder(channel, partition)
        self._numbers = count(1)
        self.writer = PartitionWriter(
            Ports(self.clock, ThreadTasks(), ports.random, ports.disk),
            partition_folder(channel, partition),
            self.formats,
            limits=Limits(keep_bytes=None, keep_seconds=None),
            sealer=seal,
        )

    def push(self, *events: Event, **header: Any) -> int:
        """Append the events as one frame; returns the first offset."""
        return self.append(*(self.record(event, **header) for event in events))

    def append(self, *records: Record) -> int:
        first: int = self.writer.append(records).result(timeout=10.0)
        return first

    def record(self, event: Event, **header: Any) -> Record:
        fmt = format_of(event)
        self.formats.register(fmt)
        number = next(self._numbers)
        facts = {"source_ts": self.clock.now - 1, "station_seq": number, **header}
        return Record("radar", 1, number, format_id=fmt.id, body=encoder(type(event)).encode(event), **facts)

    def seal(self) -> list[Path]:
        """Seal everything; returns the sealed files."""
        self.writer.seal()
        return sorted((self.place / "sealed").iterdir())

    def drop_sealed(self) -> None:
        """What retention does, at once."""
        partition = self.writer._partition
        partition.limits = replace(partition.limits, keep_bytes=0)
        partition.retain()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()

"""The ids of events of other domains that a partition has kept: each is kept once, though a copy comes late.

The window of repeated pushes (`dedup_window`) knows the last 65,536 events. Two gateways may bring the same
event at times that are further apart: one of them was cut off for a day. So of what gateways bring all ids
are known, as bits (`heliograph.model.event_id_set`).

The truth is the journal. Its rows are read once, when the first such event comes after opening; what was read
is kept in a file of its own, with the offset behind it, so that the next opening reads from there, and rows
that retention has removed since are known as well. Only rows that are durable go into that file: an id in it
whose row is lost would lose the event. The file is written by that reading alone: rows that were both
written and removed by retention between two openings are known until the partition is closed, not after.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.errors import BadJournalFile, NoSuchFile
from heliograph.journal.folders import make_folder
from heliograph.journal.format import checksummed_file
from heliograph.journal.format.compacted_ids import CompactedIds
from heliograph.journal.names import FORWARDED, TEMPORARY
from heliograph.model.event import VIA, EventId
from heliograph.model.event_id_set import EventIdSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.journal.format.records import Record
    from heliograph.model.event_id_set import Dump, Verdict
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

KIND: Final = checksummed_file.Kind(b"HELIOFWD", version=1, limit=256 << 20, called="file of forwarded ids")
LIMIT: Final = 16 << 20
"""Bytes of memory for one partition."""


class _Known(msgspec.Struct, array_like=True, frozen=True):
    """What is in the file."""

    behind: int
    """The offset behind the rows whose ids it has."""
    ids: list[tuple[str, int, int, int, list[tuple[int, bytes]]]]


class ForwardedIds:
    """See the module.

    Args:
        place: of the partition: the name of its file.
        rows: reads the durable rows from an offset on, and the ids of those that were compacted.
        earliest: the first offset that is kept.
        watermark: the offset behind the last durable row.
    """

    def __init__(
        self,
        ports: Ports,
        place: str,
        rows: Callable[[int], Iterable[Record | CompactedIds]],
        *,
        earliest: Callable[[], int],
        watermark: Callable[[], int],
    ) -> None:
        assert ports.disk is not None
        self._disk = ports.disk
        self._file = f"{FORWARDED}/{place.replace('/', '-')}"
        self._rows, self._earliest, self._watermark = rows, earliest, watermark
        self._ids = EventIdSet(ports.clock.monotonic_ns, LIMIT)
        self._lock = ports.tasks.lock(f"forwarded ids of {place}")
        self.is_read = False

    def judge(self, event: EventId) -> Verdict:
        """Whether it was kept before; from now on it is known, unless `forget` follows."""
        with self._lock:
            return self._ids.add(event)

    def forget(self, event: EventId) -> None:
        """It could not be kept."""
        with self._lock:
            self._ids.discard(event)

    def read(self) -> None:
        """Know what is durable; once, before the first is judged."""
        behind, end = self._load(), self._watermark()
        if behind > end:  # the folder is an older copy than the file
            self._ids.load([])
            behind = 0
        for record in self._rows(max(behind, self._earliest())):
            # Of what was compacted nobody knows whence it came.
            if isinstance(record, CompactedIds) or VIA in (record.headers or ()):
                self._ids.add(EventId(record.supplier, record.epoch, record.sequence))
        self._save(end)
        self.is_read = True

    def _load(self) -> int:
        try:
            known = checksummed_file.load(KIND, self._disk, self._file, _Known)
            self._ids.load(known.ids)
        except NoSuchFile:
            return 0
        except (BadJournalFile, ValueError) as error:
            log.warning("%s; the ids are read from the journal", error)
            self._ids.load([])
            return 0
        return known.behind

    def _save(self, behind: int) -> None:
        make_folder(self._disk, FORWARDED)
        temporary = f"{self._file}{TEMPORARY}"
        ids: Dump = self._ids.dump()
        if self._disk.exists(temporary):
            self._disk.remove(temporary)
        with self._disk.create(temporary) as file:
            file.append(*checksummed_file.pack(KIND, _Known(behind, ids)))
            file.sync()
        self._disk.rename(temporary, self._file)
        self._disk.sync_folder(FORWARDED)

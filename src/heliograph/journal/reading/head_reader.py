"""Reads rows from a head file, while it is written or after.

Every frame is looked at once, in order: that yields the descriptions of formats and an index with one entry
per 64 KiB, from which later reads start. A bad frame below the watermark is damage; reading goes on at the
next good one, and a reader that asks for the rows between is told which they are.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from heliograph.errors import BadJournalFile, HistoryDamaged
from heliograph.journal.format.frames import HEAD_SIZE, ROWS, RUNS, Frame, FrameDamage, HeadFile
from heliograph.journal.format.records import (
    Rows,
    count_events,
    decode_large,
    decode_rows,
    decode_runs,
    first_of,
    without_first,
)
from heliograph.model.formats import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.journal.format.manifest import Head
    from heliograph.journal.format.records import Piece, Record, StoredRows
    from heliograph.model.formats import FormatRegistry
    from heliograph.runtime.ports import Disk

INDEX_STEP: Final = 64 << 10

_DECODERS: Final[dict[int, Callable[[memoryview], StoredRows]]] = {ROWS: decode_rows, RUNS: decode_runs}


class FrameMark(NamedTuple):
    """A position in the file: the frame there begins with this offset and time."""

    base: int
    append_ts: int
    position: int


class HeadReader:
    """One head file, open for reading; BadJournalFile when it is none.

    `below` is always a watermark: rows from there on are not touched.
    """

    dense = True

    def __init__(
        self, disk: Disk, folder: str, entry: Head, partition: bytes, formats: FormatRegistry
    ) -> None:
        self._folder = folder
        self._first = entry.first
        self._formats = formats
        self._file = disk.open(f"{folder}/{entry.name}", readonly=True)
        try:
            self._frames = HeadFile(self._file, partition, entry.header(partition))
        except BadJournalFile:
            self._file.close()
            raise
        self._index: list[FrameMark] = []
        self._position = HEAD_SIZE
        """Behind the last frame that was looked at; `_next` is the offset expected there."""
        self._next = entry.first
        self._last: tuple[int, list[Record]] = (-1, [])
        """The rows decoded last, by their frame's base: a reader asks for a large frame in small parts."""

    @property
    def remark(self) -> str | None:
        """What is wrong with the file though it harms no row."""
        reason = self._frames.header_damage
        return reason and f"{reason}; what the manifest knows of it is used"

    def rows(self, start: int, below: int) -> Iterator[Rows]:
        """The rows from an offset on, frame by frame. HistoryDamaged when the first of them is unreadable."""
        for first, frame in self._good_from(start, below):
            records = self._records(frame)
            yield Rows(
                first, frame.append_ts, records[first - frame.base :] if first > frame.base else records
            )

    def pieces(self, start: int, below: int) -> Iterator[Piece]:
        """The rows between two offsets as they stand in the frames, runs not taken apart."""
        for first, frame in self._good_from(start, below):
            rows = self._stored(frame)
            if first > frame.base:
                rows = without_first(rows, first - frame.base)
            yield first, frame.append_ts, first_of(rows, below - first) if frame.next > below else rows

    def offset_at(self, append_ts: int, below: int) -> int | None:
        """The first offset appended at that time or later; None when there is none below the watermark."""
        for _ in self._good_frames(self._position, below, self._next):
            pass  # until all is in the index
        at = bisect_right(self._index, append_ts - 1, key=lambda mark: mark.append_ts)
        mark = self._index[max(0, at - 1)] if self._index else FrameMark(self._next, 0, self._position)
        for frame in self._good_frames(mark.position, below, mark.base):
            if frame.append_ts >= append_ts:
                return frame.base
        return None

    def close(self) -> None:
        self._file.close()

    def _good_from(self, start: int, below: int) -> Iterator[tuple[int, Frame]]:
        """Frames without a gap between them, and the first offset that is wanted of each."""
        for frame in self._from(start, below):
            if frame.base > start:
                reason = "no good frame holds them"
                raise HistoryDamaged(self._folder, start, frame.base, reason)
            yield start, frame
            start = frame.next

    def _from(self, start: int, below: int) -> Iterator[Frame]:
        """Good frames, beginning with the one that holds the offset, or the first behind it."""
        position, base = self._position, self._next
        if start < self._next and self._index:
            mark = self._index[max(0, bisect_right(self._index, start, key=lambda mark: mark.base) - 1)]
            position, base = mark.position, mark.base
        for frame in self._good_frames(position, below, base):
            if frame.next > start:
                yield frame

    def _good_frames(self, position: int, below: int, expected: int) -> Iterator[Frame]:
        """Frames from a position on, passing over what is damaged; `expected` is the offset that is due."""
        while expected < below:
            found: Frame | FrameDamage | None = self._frames.frame(position)
            if isinstance(found, FrameDamage):
                found = self._frames.resync(position + 1, expected)
            if found is None or found.base >= below:
                return
            if found.position >= self._position:
                self._note(found)
            yield found
            position, expected = found.end, found.next

    def _note(self, frame: Frame) -> None:
        """A frame is seen for the first time: learn its formats and perhaps put it in the index."""
        for description in frame.descriptions():
            self._formats.register(Format.from_description(description))
        if not self._index or frame.position - self._index[-1].position >= INDEX_STEP:
            self._index.append(FrameMark(frame.base, frame.append_ts, frame.position))
        self._position, self._next = frame.end, frame.next

    def _records(self, frame: Frame) -> list[Record]:
        if self._last[0] == frame.base:
            return self._last[1]
        records = decode_large(self._stored(frame))
        self._last = (frame.base, records)
        return records

    def _stored(self, frame: Frame) -> StoredRows:
        decode = _DECODERS.get(frame.kind)
        if decode is None:
            reason = f"a frame of kind {frame.kind}, which this program does not know"
            raise HistoryDamaged(self._folder, frame.base, frame.next, reason)
        try:
            rows = decode(frame.payload)
        except msgspec.MsgspecError as error:
            raise HistoryDamaged(self._folder, frame.base, frame.next, str(error)) from None
        found = count_events(rows)
        if found != frame.events:
            reason = f"{found} rows where {frame.events} are announced"
            raise HistoryDamaged(self._folder, frame.base, frame.next, reason)
        return rows

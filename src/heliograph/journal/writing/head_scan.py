"""Scans an open head for its torn tail: how much of what a writer left stays.

A head may hold a frame for each event, a million of them, and no push is possible before it has been looked
through. So a `Stretch` checks frame after frame without making an object or decoding a row, and only the few
at the end that nobody was promised are read in full.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.errors import BadJournalFile, NoSuchFile
from heliograph.journal.format.batch_marks import decode_marks
from heliograph.journal.format.frames import (
    CONTINUED,
    FRAME_MAGIC,
    FRAME_SIZE,
    HEAD_SIZE,
    Frame,
    HeadFile,
    crc_function,
)
from heliograph.journal.format.manifest import Damage, Head

if TYPE_CHECKING:
    from heliograph.journal.format.batch_marks import Mark
    from heliograph.journal.format.frames import FrameDamage
    from heliograph.runtime.ports import Disk

WINDOW: Final = 1 << 20
"""Bytes that are checked at once. A longer frame is checked by itself."""

MARK_EVERY: Final = 1024
"""Frames between the positions that a stretch remembers."""

_JUDGED = struct.Struct("<4sII4xQI4xqQII8x")
"""The fields of a frame's header by which it is judged; the others are passed over."""


class Stretch:
    """Good frames from a position on whose rows follow each other from the offset `expected`."""

    def __init__(self, head: HeadFile, position: int, expected: int) -> None:
        self._head = head
        self.start = position
        self.end = position
        """Behind the last of them; `stopped_by` is what is there."""
        self.next = expected
        self.first_ts = 0
        self.last_ts = 0
        self.durable = 0
        """The highest watermark that one of them speaks of."""
        self.descriptions: list[bytes] = []
        self.marks: list[tuple[int, int]] = []
        """Position and first offset of a frame every so many."""
        self.adopted: list[tuple[int, Mark]] = []
        """What marks batches from outside, each with the offset behind its frame."""
        self._frames = 0
        while self._many() or self._one():
            pass
        self.stopped_by: Frame | FrameDamage = head.frame(self.end)

    def mark_before(self, offset: int) -> tuple[int, int]:
        """The last position remembered whose frame begins at the offset or before."""
        return self.marks[max(0, bisect_right(self.marks, offset, key=itemgetter(1)) - 1)]

    def _many(self) -> bool:
        """Check the frames that are whole in the next window; False when none is."""
        start, window = self.end, self._head.file.read_at(self.end, WINDOW)
        unpack, crc32c, seed = _JUDGED.unpack_from, crc_function(), self._head.seed
        at, last, size = 0, len(window) - FRAME_SIZE, len(window)
        expected, durable, frames = self.next, self.durable, self._frames
        first_ts, last_ts = self.first_ts, self.last_ts
        while at <= last:
            magic, length, crc, base, events, ts, promised, formats, marks = unpack(window, at)
            end = at + FRAME_SIZE + length
            if end > size or base != expected or magic != FRAME_MAGIC or formats + marks > length:
                break
            if crc32c(window[at + 12 : end], crc32c(window[at : at + 8], seed)) != crc:
                break
            if not frames % MARK_EVERY:
                self.marks.append((start + at, base))
            if formats:
                described = window[at + FRAME_SIZE : at + FRAME_SIZE + formats]
                self.descriptions += msgspec.msgpack.decode(described, type=list[bytes])
            if marks:
                marked = window[at + FRAME_SIZE + formats : at + FRAME_SIZE + formats + marks]
                self.adopted += [(base + events, mark) for mark in decode_marks(marked)]
            durable = promised if promised > durable else durable  # noqa: FURB136 - a call per frame counts
            first_ts, last_ts = first_ts or ts, ts
            frames += 1
            at, expected = end, base + events
        self.end, self.next, self.durable, self._frames = start + at, expected, durable, frames
        self.first_ts, self.last_ts = first_ts, last_ts
        return at > 0

    def _one(self) -> bool:
        """Check one frame that is longer than a window."""
        found = self._head.frame(self.end)
        if not isinstance(found, Frame) or found.base != self.next:
            return False
        self.marks.append((found.position, found.base))
        self.descriptions += found.descriptions()
        self.adopted += [(found.next, mark) for mark in decode_marks(found.marks)]
        self.durable = max(self.durable, found.durable)
        self.first_ts, self.last_ts = self.first_ts or found.append_ts, found.append_ts
        self._frames += 1
        self.end, self.next = found.end, found.next
        return True


class TailScan:
    """Goes through an open head and decides what of it stays. The file is not touched."""

    def __init__(self, disk: Disk, folder: str, head: Head, partition: bytes, floor: int) -> None:
        self.head = head
        self.next = head.first
        """Behind the last row that was promised, or that is damaged."""
        self.first_ts = 0
        self.last_ts = 0
        self.damage: list[Damage] = []
        self.doubt: list[Frame] = []
        """Good frames at the end that were not acknowledged."""
        self.descriptions: list[bytes] = []
        self._adopted: list[tuple[int, Mark]] = []
        self._good_end = HEAD_SIZE
        self._floor = floor
        try:
            self._file = disk.open(f"{folder}/{head.name}", readonly=True)
        except NoSuchFile:
            raise BadJournalFile(f"{folder}/{head.name}", "it is missing, and it was being written") from None
        try:
            self._frames = HeadFile(self._file, partition, head.header(partition))
            self.torn = self._file.size() - self._whole(self._walk())
        except BaseException:
            self._file.close()
            raise

    def entry(self) -> Head:
        """The head, closed behind its last promised row; what follows in the file does not count."""
        return msgspec.structs.replace(
            self.head, next=self.next, size=self._good_end, first_ts=self.first_ts, last_ts=self.last_ts
        )

    @property
    def marks(self) -> list[Mark]:
        """Of the batches from outside that stay."""
        end = self.doubt[-1].next if self.doubt else self.next
        return [mark for behind, mark in self._adopted if behind <= end]

    @property
    def header_damage(self) -> str | None:
        """What is wrong with the header of the file, if what the manifest knows of it was taken instead."""
        return self._frames.header_damage

    def close(self) -> None:
        self._file.close()

    def _whole(self, end: int) -> int:
        """Give up a batch that was not written to its end; returns where the torn tail begins then."""
        while self.doubt and self.doubt[-1].flags & CONTINUED:
            end = self.doubt.pop().position
        return end

    def _walk(self) -> int:
        """Returns where the torn tail begins."""
        position, expected = HEAD_SIZE, self.head.first
        while True:
            stretch = Stretch(self._frames, position, expected)
            self.descriptions += stretch.descriptions
            self._adopted += stretch.adopted
            promised = max(stretch.durable, self._promised_behind(stretch))
            self._floor = max(self._floor, promised)
            self._take(stretch)
            if stretch.next >= self._floor:
                return stretch.end
            goes_on = self._over_damage(stretch)
            if goes_on is None:
                return stretch.end
            position, expected = goes_on, self.next

    def _promised_behind(self, stretch: Stretch) -> int:
        """The highest watermark that any good frame behind the stretch speaks of."""
        promised, position = 0, stretch.end
        while (frame := self._frames.resync(position, stretch.next)) is not None:
            behind = Stretch(self._frames, frame.position, frame.base)
            promised = max(promised, behind.durable)
            position = behind.end
        return promised

    def _take(self, stretch: Stretch) -> None:
        """Its frames below the floor are beyond doubt; those above, if any, are the last of the head."""
        if stretch.end == stretch.start:
            return
        self.first_ts = self.first_ts or stretch.first_ts
        if stretch.next <= self._floor:
            self.next, self._good_end, self.last_ts = stretch.next, stretch.end, stretch.last_ts
            return
        position, _ = stretch.mark_before(self._floor)
        while position < stretch.end:
            frame = self._frames.frame(position)
            assert isinstance(frame, Frame), "it was good a moment ago"
            if frame.next > self._floor:
                self.doubt.append(frame)
            else:
                self.next, self._good_end, self.last_ts = frame.next, frame.end, frame.append_ts
            position = frame.end

    def _over_damage(self, stretch: Stretch) -> int | None:
        """Write down which offsets behind a stretch are lost; returns where the history goes on."""
        following = self._frames.resync(stretch.end, stretch.next)
        goes_on = None
        self.next = self._floor
        if following is not None and following.base <= self._floor:
            self.next, goes_on = following.base, following.position
        if self.next > stretch.next:
            stopped = stretch.stopped_by
            reason = "no good frame" if isinstance(stopped, Frame) else stopped.reason
            where = f"{reason} at byte {stretch.end}"
            self.damage.append(Damage(stretch.next, self.next, self.head.name, where))
        return goes_on

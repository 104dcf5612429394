"""The head file: a header, then one frame per group commit.

This file is the on-disk format; `docs/reference/journal.md` has it as a table. All integers are
little-endian.

A frame is written whole by one append and carries everything needed to judge it: a CRC32C over all of it,
seeded with the random salt of its file so that no event's body can pass for a frame; the offset of its first
row; and the durable watermark at the time of writing, by which a bad frame *before* it is known as corruption
and not as a torn tail. Descriptions of formats stand in the first two frames that use them in each file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from heliograph.errors import BadJournalFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from heliograph.runtime.ports import File

HEAD_MAGIC: Final = b"HELIOLOG"
HEAD_VERSION: Final = 2
READABLE: Final = (1, 2)
"""Version 1 has no frames with runs."""
FRAME_MAGIC: Final = b"HgFr"
ROWS: Final = 1
ARROW_BATCH: Final = 2
RUNS: Final = 3
"""Kinds of payload: a row per event; reserved; rows of which some stand for several events."""
CONTINUED: Final = 1
"""Flag of a frame that counts only together with the next one."""

MAX_BODY: Final = 64 << 20
"""Bytes of a frame behind its header; checked before anything is allocated."""

WINDOW: Final = 256 << 10
"""Bytes read at once while going through a file."""

_HEAD = struct.Struct("<8sHHI16s8sQqII")
_FRAME = struct.Struct("<4sIIBBHQIIqQIIQ")
HEAD_SIZE: Final = _HEAD.size
FRAME_SIZE: Final = _FRAME.size


@cache
def crc_function() -> Callable[[bytes | memoryview, int], int]:
    """CRC32C of bytes, going on from a seed; for loops in which the call of `checksum` would count."""
    from crc32c import crc32c  # noqa: PLC0415 - takes 50 ms to import, which only journals should pay

    function: Callable[[bytes | memoryview, int], int] = crc32c
    return function


def checksum(data: bytes | memoryview, seed: int = 0) -> int:
    """CRC32C, going on from `seed`."""
    return crc_function()(data, seed)


@dataclass(frozen=True, slots=True)
class HeadHeader:
    """The first 64 bytes of a head file."""

    partition: bytes
    """The random id of the partition: a file that was moved here from another one is noticed."""
    salt: bytes
    first: int
    created_ts: int
    epoch: int

    def encode(self) -> bytes:
        fields = (self.partition, self.salt, self.first, self.created_ts, self.epoch)
        plain = _HEAD.pack(HEAD_MAGIC, HEAD_VERSION, HEAD_SIZE, 0, *fields, 0)
        return plain[:-4] + checksum(plain[:-4]).to_bytes(4, "little")

    @staticmethod
    def decode(data: bytes, file: str) -> HeadHeader:
        if len(data) < HEAD_SIZE or data[:8] != HEAD_MAGIC:
            raise BadJournalFile(file, "it does not begin as a head file does")
        _, version, _, _, partition, salt, first, created_ts, epoch, crc = _HEAD.unpack_from(data)
        if version not in READABLE:
            raise BadJournalFile(file, f"it has version {version}; this program reads {READABLE}")
        if crc != checksum(data[: HEAD_SIZE - 4]):
            raise BadJournalFile(file, "its header is damaged")
        return HeadHeader(partition, salt, first, created_ts, epoch)


class Frame(NamedTuple):
    """A frame that was read and checked. `end` is the position behind it."""

    position: int
    end: int
    kind: int
    base: int
    events: int
    epoch: int
    append_ts: int
    durable: int
    """The watermark when it was written: everything below was on disk."""
    formats: memoryview
    payload: memoryview
    flags: int = 0
    marks: memoryview = memoryview(b"")
    """What `heliograph.journal.format.batch_marks` reads: batches from outside that this frame brings, or
    ends."""

    @property
    def next(self) -> int:
        return self.base + self.events

    def descriptions(self) -> list[bytes]:
        """The format descriptions that this frame brings."""
        return msgspec.msgpack.decode(self.formats, type=list[bytes]) if self.formats else []


class FrameDamage(NamedTuple):
    """Why there is no frame at a position."""

    position: int
    reason: str


class FrameMeta(NamedTuple):
    """What the writer says of a frame."""

    base: int
    events: int
    epoch: int
    append_ts: int
    durable: int
    kind: int = ROWS
    flags: int = 0
    marks: bytes = b""


def encode_frame(meta: FrameMeta, descriptions: Sequence[bytes], payload: bytes, salt: bytes) -> list[bytes]:
    """A frame as buffers to be appended together."""
    formats = msgspec.msgpack.encode(descriptions) if descriptions else b""
    fields = (
        meta.base,
        meta.events,
        meta.epoch,
        meta.append_ts,
        meta.durable,
        len(formats),
        len(meta.marks),
        0,
    )
    length = len(formats) + len(meta.marks) + len(payload)
    header = _FRAME.pack(FRAME_MAGIC, length, 0, meta.kind, meta.flags, 0, *fields)
    crc = checksum(header[12:], checksum(header[:8], checksum(salt)))
    crc = checksum(payload, checksum(meta.marks, checksum(formats, crc)))
    return [header[:8] + crc.to_bytes(4, "little") + header[12:], formats, meta.marks, payload]


class HeadFile:
    """Reads the frames of one head file. The window it keeps may be older than the file; a frame that seems
    bad is therefore read again before it is called so."""

    def __init__(
        self, file: File, partition: bytes | None = None, expected: HeadHeader | None = None
    ) -> None:
        self.file = file
        self.header_damage: str | None = None
        """What is wrong with its header, when the one that is expected was taken instead."""
        try:
            self.header = HeadHeader.decode(file.read_at(0, HEAD_SIZE), file.name)
        except BadJournalFile as error:
            if expected is None or file.size() < HEAD_SIZE:
                raise
            self.header, self.header_damage = expected, error.reason
        if partition is not None and self.header.partition != partition:
            raise BadJournalFile(file.name, "it belongs to another partition")
        if expected is not None and self.header.salt != expected.salt:
            raise BadJournalFile(file.name, "it is another head of this partition")
        self.seed = checksum(self.header.salt)
        """What the checksum of every frame in this file begins with."""
        self._window = memoryview(b"")
        self._start = 0

    def frame(self, position: int) -> Frame | FrameDamage:
        """The frame at a position, or what is wrong there."""
        found = self._parse(position)
        if isinstance(found, FrameDamage):
            self._window = memoryview(b"")
            found = self._parse(position)
        return found

    def frames(self, position: int = HEAD_SIZE) -> Iterator[Frame | FrameDamage]:
        """The frames from a position on; ends with the first that is bad, or at the end of the file."""
        while True:
            found = self.frame(position)
            if isinstance(found, FrameDamage):
                if self.file.size() > position:
                    yield found
                return
            yield found
            position = found.end

    def resync(self, position: int, minimum: int) -> Frame | None:
        """The first good frame at a position or behind it, with rows from offset `minimum` or later."""
        for candidate in self._candidates(position):
            found = self._parse(candidate)
            if isinstance(found, Frame) and found.base >= minimum and found.epoch == self.header.epoch:
                return found
        return None

    def _candidates(self, position: int) -> Iterator[int]:
        """Where a frame may begin; each window is read once, however many there are in it."""
        overlap = len(FRAME_MAGIC) - 1
        while len(window := self.file.read_at(position, WINDOW)) > overlap:
            at = window.find(FRAME_MAGIC)
            while at >= 0:
                yield position + at
                at = window.find(FRAME_MAGIC, at + 1)
            position += len(window) - overlap

    def _at(self, position: int, size: int) -> int:
        """Where in the window a position is, once the window holds as much from there on as the file does."""
        at = position - self._start
        if at < 0 or at + size > len(self._window):
            self._window = memoryview(self.file.read_at(position, max(size, WINDOW)))
            self._start, at = position, 0
        return at

    def _parse(self, position: int) -> Frame | FrameDamage:
        at = self._at(position, FRAME_SIZE)
        if len(self._window) - at < FRAME_SIZE:
            there = len(self._window) - at
            return FrameDamage(position, f"only {there} bytes of a frame's header are there")
        magic, length, crc, kind, flags, _, base, events, epoch, append_ts, durable, formats, marks, _ = (
            _FRAME.unpack_from(self._window, at)
        )
        if magic != FRAME_MAGIC:
            return FrameDamage(position, "no frame begins there")
        if length > MAX_BODY or formats + marks > length:
            return FrameDamage(position, "its lengths cannot be right")
        at = self._at(position, FRAME_SIZE + length)
        window, body, end = self._window, at + FRAME_SIZE, at + FRAME_SIZE + length
        if len(window) < end:
            return FrameDamage(position, f"only {len(window) - body} of its {length} bytes are there")
        if checksum(window[at + 12 : end], checksum(window[at : at + 8], self.seed)) != crc:
            return FrameDamage(position, "its checksum is wrong")
        meta = (base, events, epoch, append_ts, durable)
        descriptions, payload = window[body : body + formats], window[body + formats + marks : end]
        marked = window[body + formats : body + formats + marks]
        return Frame(
            position, position + FRAME_SIZE + length, kind, *meta, descriptions, payload, flags, marked
        )

"""Records in the slots, read with suspicion: nothing is taken or followed before its size is checked."""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from heliograph.ring.layout import (
    FIRST_SLOT,
    HEADER,
    HEADER_SIZE,
    LENT,
    MASK32,
    SLOT_BITS,
    largest_event,
    slots_for,
)

if TYPE_CHECKING:
    import ctypes
    from collections import deque

    from heliograph.ring.segment import RingSegment


class RingRecord(NamedTuple):
    """Where the bytes of a record stand, and what its header says of them."""

    sequence: int
    start: int
    size: int
    events: int
    crc: int
    next_position: int
    is_lent: bool = False
    """Whether its checksum covers none of its bytes."""

    @property
    def seed(self) -> int:
        """Where its checksum starts."""
        return (self.sequence + self.events) & MASK32


def find(segment: RingSegment, position: int) -> RingRecord | None:
    """The record at a position; None when there cannot be one like that."""
    slot = position & (segment.slots - 1)
    at = FIRST_SLOT + (slot << SLOT_BITS)
    stamp, sequence, size, count, crc = HEADER.unpack_from(segment.memory, at)
    if stamp != position or size > largest_event(segment.slots):
        return None
    taken = slots_for(size) if count else segment.slots - slot
    if slot + taken > segment.slots:
        return None
    return RingRecord(
        sequence, at + HEADER_SIZE, size, count & ~LENT, crc, position + taken, is_lent=bool(count & LENT)
    )


def is_sound(segment: RingSegment, record: RingRecord) -> bool:
    """Whether the checksum is right."""
    body = b"" if record.is_lent else segment.memory[record.start : record.start + record.size]
    return bool(crc32c(body, record.seed) == record.crc)


def views(lent: ctypes.Array[ctypes.c_char], record: RingRecord) -> tuple[memoryview, ...] | None:
    """The events of a record where they lie; None when its checksum or its sizes are wrong."""
    body = memoryview(lent).cast("B")[record.start : record.start + record.size].toreadonly()
    if crc32c(b"" if record.is_lent else body, record.seed) != record.crc:
        return None
    if record.events < 2:
        return (body,) * record.events
    cuts = _cuts(body[: 4 * record.events].tobytes(), record.events, record.size)
    return tuple(body[start:end] for start, end in pairwise(cuts)) if cuts else None


def split(body: bytes, count: int, into: deque[bytes]) -> bool:
    """Add the events of a batch; False when its sizes do not add up."""
    cuts = _cuts(body[: 4 * count], count, len(body))
    into.extend([body[start:end] for start, end in pairwise(cuts)])
    return bool(cuts)


def _cuts(sizes: bytes, count: int, size: int) -> list[int]:
    """Where the events of a batch begin and the last one ends; empty when the record does not end there."""
    if 4 * count > size:
        return []
    cuts = list(accumulate(array("I", sizes), initial=4 * count))
    return cuts if cuts[-1] == size else []

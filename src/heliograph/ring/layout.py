"""Where everything stands in the file of a ring.

    byte     0   what the file is: magic, version, slots, station, lane, incarnation
            64   COMMITTED            positions below it can be read         (written by the writer, last)
           128   CLAIMED, INTENT      positions below it may be written over (writer, every eighth of a lap)
           192   SLEEPERS, bell       a reader sleeps                        (readers set, the writer clears)
           256   WAITING, room bell   the writer waits for room              (writer sets, readers clear)
           320   CLOSED               nothing more comes                     (writer)
           384   marks                positions with their sequences, where readers find their feet
          4096   rows                 one line per reader: state, cursor, process id, and how it ended
          8192   slots                64 bytes each

A *position* counts slots since the ring was made and never repeats; slot `position & (slots - 1)` holds it. A
*record* is one event or one batch: a header, then its bytes, in as many slots as it needs, never across the
end of the ring; what is left there is filled by a record without events. *Sequences* count events. Words are
64 bits wide, little-endian and aligned; each is a line of cache or two away from words of another owner.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

MAGIC: Final = int.from_bytes(b"HELIRING", "little")
VERSION: Final = 3

SLOT: Final = 64
SLOT_BITS: Final = 6
MIN_SLOTS: Final = 16
MAX_SLOTS: Final = 1 << 24
"""A ring of a gigabyte."""
DEFAULT_SLOTS: Final = 1 << 16
"""A ring of four megabytes."""

# Indexes of 64-bit words.
AT_MAGIC, AT_VERSION, AT_SLOTS, AT_STATION, AT_LANE, AT_INCARNATION = range(6)
COMMITTED: Final = 8
CLAIMED: Final = 16
INTENT: Final = 17
SLEEPERS: Final = 24
WAITING: Final = 32
CLOSED: Final = 40
MARKS: Final = 48

# Indexes of 32-bit words.
BELL: Final = 50
ROOM_BELL: Final = 66

MARK_COUNT: Final = 8
MARK_WORDS: Final = 4
MARK_SEAL: Final = 0x6D61726B6D61726B
"""A mark's third word is `position ^ sequence ^ MARK_SEAL`: half a mark does not pass for a whole one."""

MAX_READERS: Final = 64
ROWS: Final = 512
ROW_WORDS: Final = 8
ROW_STATE, ROW_CURSOR, ROW_PROCESS, ROW_LOST, ROW_END = range(5)
FREE, RELIABLE, BEST_EFFORT, REVOKED, ENDED = range(5)
"""A reader that was revoked may take its place again if it was not overtaken yet. One that was ended may not:
`ROW_END` is its last cursor that counts, plus one, and `ROW_LOST` how many events were written behind it."""
FIRST_SLOT: Final = 8192

WRITER_LOCK: Final = 0
"""The byte of the file that the writer holds locked; reader `n` holds byte `n + 1`."""

HEADER: Final = Struct("<QQIII4x")
"""Position, sequence of the first event, bytes behind the header, events, CRC32C.

The checksum covers the bytes and starts from the sequence that follows; positions need none, since
readers know which one must come next."""
LENT: Final = 1 << 31
"""Stands in the number of events of a record whose bytes were written where they lie: its checksum covers
only the sequence, and none of them."""
HEADER_SIZE: Final = HEADER.size
MASK32: Final = 0xFFFFFFFF


def file_size(slots: int) -> int:
    return FIRST_SLOT + slots * SLOT


def slots_for(size: int) -> int:
    """Slots of a record with so many bytes behind its header."""
    return (size + HEADER_SIZE + SLOT - 1) >> SLOT_BITS


def largest_event(slots: int) -> int:
    """Bytes of the largest record: with a filled-up end before it, it still fits into one lap."""
    return slots // 2 * SLOT - HEADER_SIZE

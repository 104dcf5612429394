"""How a reader joins a ring whose writer does not stop for it.

The writer looks at the readers' rows only when it claims the next part of a lap, after it has stored how far
it intends to go. A reader stores its row, orders all processes, and reads that intent. One of the two must
see the other: either the writer's look came later and finds the row, or the reader finds an intent that would
write over its place, and tries again further on.

A reader knows its position from the ring, but not the sequence of the event that comes next there. The writer
leaves a *mark* with both at each claim; the reader walks on from the newest one, from record to record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from heliograph.errors import RingDamaged
from heliograph.ring import futex, records
from heliograph.ring.layout import (
    CLAIMED,
    COMMITTED,
    FREE,
    INTENT,
    MARK_COUNT,
    MARK_SEAL,
    MARK_WORDS,
    MARKS,
    ROW_CURSOR,
    ROW_STATE,
    ROW_WORDS,
    ROWS,
)

if TYPE_CHECKING:
    from heliograph.ring.segment import RingSegment

TRIES: Final = 100
"""A try fails only when the writer goes most of a lap meanwhile; so many failures are no chance."""


def takes_place(segment: RingSegment, row: int, kind: int, position: int) -> bool:
    """Put a reader's cursor at a position. False when the writer may be a lap ahead of it already."""
    words, at = segment.words, ROWS + row * ROW_WORDS
    words[at + ROW_STATE] = FREE
    words[at + ROW_CURSOR] = position
    words[at + ROW_STATE] = kind
    futex.order_all_processes()
    return words[INTENT] <= position + segment.slots


def at_the_newest(segment: RingSegment, row: int, kind: int) -> tuple[int, int]:
    """Put a reader behind the last record that is there; returns the position and sequence that follow."""
    words = segment.words
    for _ in range(TRIES):
        mark, end = _newest_mark(words), words[COMMITTED]
        # Not at the mark: a writer that waits for room may intend to write over it.
        if not takes_place(segment, row, kind, end):
            continue
        sequence = _walk(segment, *mark, end)
        # What lies before its place is not held for the reader, so look whether it was there all the time.
        if sequence is not None and words[CLAIMED] <= mark[0] + segment.slots:
            return end, sequence
    segment.words[ROWS + row * ROW_WORDS + ROW_STATE] = FREE
    raise RingDamaged(str(segment.path), "no place to begin at; its writer must make a new ring")


def _newest_mark(words: memoryview) -> tuple[int, int]:
    """The furthest position that is known with its sequence; a new ring begins with 0 and 0."""
    newest = (0, 0)
    for at in range(MARKS, MARKS + MARK_COUNT * MARK_WORDS, MARK_WORDS):
        position, sequence, seal = words[at : at + 3]
        if seal == position ^ sequence ^ MARK_SEAL:
            newest = max(newest, (position, sequence))
    return newest


def _walk(segment: RingSegment, position: int, sequence: int, end: int) -> int | None:
    """Follow the records up to a position; the sequence there, or None when that leads nowhere."""
    if not position <= end <= position + segment.slots:
        return None
    record = None
    while position < end:
        record = records.find(segment, position)
        if record is None:
            return None
        position, sequence = record.next_position, record.sequence + record.events
    # Each record says its own sequence, so of all that lie behind only the last one must be sound.
    is_sound = record is None or records.is_sound(segment, record)
    return sequence if position == end and is_sound else None

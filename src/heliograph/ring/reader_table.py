"""The table of readers in a ring, as its writer sees it.

Each has a row in shared memory: its state, its cursor, and its process id for people to read. A row is taken
by locking its byte of the file, so one whose lock is free belongs to nobody, whatever process id stands in
it. What a row says is checked: a cursor that no reader can have takes the row's say away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from heliograph.ring import futex
from heliograph.ring.layout import (
    BEST_EFFORT,
    ENDED,
    FREE,
    MAX_READERS,
    RELIABLE,
    REVOKED,
    ROW_CURSOR,
    ROW_END,
    ROW_LOST,
    ROW_PROCESS,
    ROW_STATE,
    ROW_WORDS,
    ROWS,
)

if TYPE_CHECKING:
    from heliograph.ring.segment import RingSegment


class ReaderSeen(NamedTuple):
    """One reader: the slots it is behind, and whether the writer waits for it."""

    row: int
    process: int
    is_reliable: bool
    behind: int


class ReaderTable:
    """All rows of one ring."""

    def __init__(self, segment: RingSegment) -> None:
        self._descriptor = segment.descriptor
        self._words = segment.words
        end = ROWS + MAX_READERS * ROW_WORDS
        self._states = segment.words[ROWS + ROW_STATE : end : ROW_WORDS]
        self._cursors = segment.words[ROWS + ROW_CURSOR : end : ROW_WORDS]
        self.revoked = 0
        self.reaped = 0

    def slowest(self, position: int, slots: int) -> tuple[int, int]:
        """The reliable reader that is furthest behind: its cursor and row; the position and -1 for none."""
        # States before cursors: a row that is seen as reliable has been given its cursor.
        states = self._states.tolist()
        if RELIABLE not in states:
            return position, -1
        cursor, slowest = position, -1
        for row, (state, at) in enumerate(zip(states, self._cursors.tolist(), strict=True)):
            if state != RELIABLE:
                continue
            if not position - slots <= at <= position:
                self.revoke(row)
            elif at < cursor or slowest < 0:
                cursor, slowest = at, row
        return cursor, slowest

    def reliable(self) -> dict[int, int]:
        """The cursors of reliable readers, by row."""
        states, cursors = self._states.tolist(), self._cursors.tolist()
        found = enumerate(zip(states, cursors, strict=True))
        return {row: cursor for row, (state, cursor) in found if state == RELIABLE}

    def best_effort(self) -> dict[int, int]:
        """The cursors of best-effort readers, by row."""
        states, cursors = self._states.tolist(), self._cursors.tolist()
        found = enumerate(zip(states, cursors, strict=True))
        return {row: cursor for row, (state, cursor) in found if state == BEST_EFFORT}

    def revoke(self, row: int) -> None:
        """Wait for this reader no longer."""
        self._words[ROWS + row * ROW_WORDS + ROW_STATE] = REVOKED
        self.revoked += 1

    def end(self, row: int) -> int:
        """Wait for this reader no longer, for good; returns its cursor of now.

        It moves its cursor and then looks at its state; here it is the other way round, with a barrier. So
        whoever does not see what the other did was first. What the writer saw then holds: `settle` says it.
        """
        self._words[ROWS + row * ROW_WORDS + ROW_STATE] = ENDED
        self.revoked += 1
        futex.order_all_processes()
        return self._words[ROWS + row * ROW_WORDS + ROW_CURSOR]

    def settle(self, row: int, cursor: int, lost: int) -> None:
        """Tell a reader that was ended up to where it counts as having read, and how many it did not get."""
        self._words[ROWS + row * ROW_WORDS + ROW_LOST] = lost
        self._words[ROWS + row * ROW_WORDS + ROW_END] = cursor + 1

    def cursor(self, row: int) -> int:
        return self._words[ROWS + row * ROW_WORDS + ROW_CURSOR]

    def is_reliable(self, row: int) -> bool:
        return self._words[ROWS + row * ROW_WORDS + ROW_STATE] == RELIABLE

    def reap(self) -> None:
        """Free the rows of readers whose processes have ended."""
        for row, state in enumerate(self._states.tolist()):
            if state != FREE and futex.try_lock(self._descriptor, row + 1):
                self._words[ROWS + row * ROW_WORDS + ROW_STATE] = FREE
                futex.unlock(self._descriptor, row + 1)
                self.reaped += 1

    def process(self, row: int) -> int:
        """The process id that the reader gave; for messages only."""
        return self._words[ROWS + row * ROW_WORDS + ROW_PROCESS]

    def seen(self, position: int) -> tuple[ReaderSeen, ...]:
        found = zip(self._states.tolist(), self._cursors.tolist(), strict=True)
        return tuple(
            ReaderSeen(row, self.process(row), state == RELIABLE, max(0, position - cursor))
            for row, (state, cursor) in enumerate(found)
            if state in (RELIABLE, BEST_EFFORT)
        )

    def close(self) -> None:
        self._states.release()
        self._cursors.release()

"""A reading end of a ring: any number of them, in any process of this user, each used by one task at a time.

    with folder.open(name, ports=ports, reliable=True) as reader:
        event = reader.read(timeout=1.0)                    # a copy, or None when none came in time
        events = reader.read_many(limit=256, timeout=1.0)
        with reader.pin(timeout=1.0) as pinned:             # where it lies, without a copy
            total = np.frombuffer(pinned.parts[0]).sum()

A **reliable** reader holds the writer back: what it has not read, or has pinned, is not written over. If it
stands still for longer than the writer's lease it is overtaken, and `LeaseLost` says from which sequence on
how many events it lost. A **best-effort** reader never holds the writer back. It gets copies that were whole
when they were taken; what was written over before is counted in `stats().lost`, exactly, and it goes on at
the newest event.

A reader begins with the first event that is written after it was opened. At the end, when the writer has
closed the ring or has died and everything is read, `RingClosed` is raised.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Self, cast

from crc32c import crc32c

from heliograph.errors import LeaseLost, NotPossible, RingClosed, RingDamaged, TooManyReaders
from heliograph.ring import futex, joining, records
from heliograph.ring.layout import (
    BELL,
    BEST_EFFORT,
    CLAIMED,
    CLOSED,
    COMMITTED,
    ENDED,
    FIRST_SLOT,
    FREE,
    HEADER,
    HEADER_SIZE,
    LENT,
    MASK32,
    MAX_READERS,
    RELIABLE,
    ROOM_BELL,
    ROW_CURSOR,
    ROW_END,
    ROW_LOST,
    ROW_PROCESS,
    ROW_STATE,
    ROW_WORDS,
    ROWS,
    SLEEPERS,
    SLOT_BITS,
    WAITING,
    WRITER_LOCK,
    largest_event,
)
from heliograph.ring.pinned_views import Pinned
from heliograph.ring.waiting import FOREVER, LOOK_EVERY, Waiter, WaitMode, deadline, ring_bell

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.ring.segment import RingSegment
    from heliograph.runtime.ports import Ports

RECORDS_AT_ONCE: Final = 256
"""Records that are copied before they are checked together and the cursor moves."""

FIRST_LOOKS: Final = 256
"""Looks for the next event, about 15 µs of them, before anything is set up for a longer wait: what comes
meanwhile is seen at once and costs nothing more."""

REUSED_FROM: Final = 1 << 15
"""Bytes from which on an event is given where it lies, or copied to where the last such event was, to whoever
has asked for that."""

LINGER_NS: Final = 100_000
"""How long something that is expected soon is looked for: longer than it takes the other side to wake
up and answer, so that from then on they find each other awake."""
MOST_PASSES: Final = 255
"""How often, at most, a reader that looked in vain then sleeps at once before it tries that again."""

FEW_SLOTS: Final = 16
"""Slots of a lone event that is taken by the short way."""

_SOME_RECORDS: Final = range(RECORDS_AT_ONCE)
_SOME_LOOKS: Final = range(64)
_unpack_header = HEADER.unpack_from
_ROUND: Final = HEADER_SIZE + (1 << SLOT_BITS) - 1


def _nothing() -> None:
    """What a gap means to a reader that nobody told otherwise."""


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """What a reader has seen."""

    received: int
    lost: int
    gaps: int
    sleeps: int
    woken_by_timeout: int


class RingReader:
    """See the module."""

    def __init__(
        self,
        segment: RingSegment,
        ports: Ports,
        *,
        reliable: bool,
        wait: WaitMode = "spin",
        look_every: float = LOOK_EVERY,
        reuse: bool = False,
    ) -> None:
        self._segment = segment
        self._memory = segment.memory
        self._words = segment.words
        self._mask = segment.slots - 1
        self._largest = largest_event(segment.slots)
        self._clock = ports.clock
        self._waiter = Waiter(segment, SLEEPERS, BELL, ports.clock, wait, look_every=look_every)
        self._ready: deque[bytes] = deque()
        self._pins: deque[Pinned] = deque()
        self._held: Pinned | None = None
        self._reuses = reuse
        self._scratch: bytearray | None = None
        self._lost = 0
        self._gaps = 0
        self._rings = 0
        self._is_ended = False
        self._ends_at: float = inf  # a position
        self._is_open = True
        self._may_linger = wait == "block"
        self._in_vain = self._passes = 0
        self._first_looks = range(FIRST_LOOKS if wait != "block" else 1)
        self.path = segment.path
        self.on_gap: Callable[[], None] = _nothing
        """Called by a best-effort reader that was overtaken, before it gives or waits for another event."""
        self.is_reliable = reliable
        self._kind = RELIABLE if reliable else BEST_EFFORT
        self.row = self._take_row()
        self._state_at = ROWS + self.row * ROW_WORDS + ROW_STATE
        self._cursor_at = ROWS + self.row * ROW_WORDS + ROW_CURSOR
        self._words[ROWS + self.row * ROW_WORDS + ROW_PROCESS] = os.getpid()
        self._words[ROWS + self.row * ROW_WORDS + ROW_END] = 0
        self._position, self._sequence = joining.at_the_newest(segment, self.row, self._kind)
        self._began_at = self._sequence

    @property
    def was_ended(self) -> bool:
        """Whether the writer has ended this reader, and knows what it did not get."""
        return self._is_open and self._words[self._state_at] == ENDED

    @property
    def next_sequence(self) -> int:
        """The sequence of the next event that `read` gives, if nothing is lost until then."""
        return self._sequence - len(self._ready)

    def read(self, timeout: float | None = None) -> bytes | None:
        """The next event; None when none came in time."""
        ready = self._ready
        if ready or self._fill(timeout):
            return ready.popleft()
        return None

    def read_many(self, limit: int, timeout: float | None = None, *, soon: bool = False) -> list[bytes]:
        """Wait for an event, then all that are there, up to `limit`; empty when none came in time.

        With `soon`, the next one is likely to come at once, such as an answer to what the caller has just
        written: a reader that else sleeps looks for it for a while before, if that has paid the last times.
        """
        ready = self._ready
        if not ready:
            if soon and self._may_linger:
                self._linger()
            # A lone event is what somebody waits for: it has a way of its own.
            only = self._only()
            if only is not None:
                return [only]
            if not self._fill(timeout):
                return []
        if len(ready) <= limit:
            events = list(ready)
            ready.clear()
            return events
        return [ready.popleft() for _ in range(limit)]

    @property
    def holds(self) -> bool:
        """Whether the event that was read last is given where it lies: by itself, until `let_go`."""
        return self._held is not None

    def let_go(self) -> bool:
        """Give back the room of an event that was given where it lies; whether something still views it.

        The next read does it else. `LeaseLost` when the writer has not waited for it: then what was read of
        it may not be what was written, and counts as lost.
        """
        held, self._held = self._held, None
        return held is not None and held.let_go()

    def copied(self) -> bytes:
        """Let go of an event that was given where it lies, for a copy that was whole when it was taken."""
        assert self._held is not None
        copy = self._into_scratch(self._held.parts[0])
        self.let_go()
        return copy

    def pin(self, timeout: float | None = None) -> Pinned | None:
        """The next record, kept from being written over until it is released; None when none came in time."""
        if not self.is_reliable:
            raise NotPossible(
                f"pin on {self.path.name}", "only reliable readers pin: open it with reliable=True"
            )
        if self._ready:  # copied by a `read` before: nothing can happen to it
            copied = self._ready.popleft()
            return Pinned(self, -1, self.next_sequence - 1, (memoryview(copied),), lambda: None)
        limit_ns = deadline(self._clock, timeout)
        while self._wait(limit_ns):
            pinned = self._pin_next()
            if pinned is not None:
                return pinned
        return None

    def interrupt(self) -> None:
        """From any thread: whoever waits in this reader gets `RingClosed`, and so does everybody after."""
        self._is_ended = True
        self._nudge()

    def drain(self) -> None:
        """From any thread: give what is there now, then nothing more but `RingClosed`."""
        with suppress(ValueError):  # it has been let go of, and nobody reads
            self._ends_at = self._words[COMMITTED]
        self._nudge()

    def stats(self) -> ReaderStats:
        return ReaderStats(
            received=self.next_sequence - self._began_at - self._lost,
            lost=self._lost,
            gaps=self._gaps,
            sleeps=self._waiter.sleeps,
            woken_by_timeout=self._waiter.woken_by_timeout,
        )

    def close(self) -> None:
        """Let go of the ring, in the task that reads it or after that has ended."""
        if not self._is_open:
            return
        self._words[self._state_at] = FREE
        if self._words[WAITING]:
            self._make_known()
        # Said aloud: a child that was forked off may hold a copy of the descriptor, and with it the lock.
        futex.unlock(self._segment.descriptor, self.row + 1)
        self.abandon()

    def abandon(self) -> None:
        """In the child of a fork: let go of it; the parent goes on reading."""
        if self._is_open:
            self._is_open, self._is_ended = False, True
            self._segment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _nudge(self) -> None:
        """Have whoever waits in this reader look again; so do other readers, for nothing."""
        # Another value than was heard before, so that one who is about to sleep does not; and none that the
        # writer rings within reason, so that its next one is another again.
        with suppress(ValueError):  # it has been let go of, and nobody waits
            self._segment.bells[BELL] ^= 1 << 31
        futex.wake(self._segment.address_of_bell(BELL))

    def _take_row(self) -> int:
        for row in range(MAX_READERS):
            if futex.try_lock(self._segment.descriptor, row + 1):
                return row
        raise TooManyReaders(str(self.path), f"all {MAX_READERS} places for readers are taken; close one")

    def _fill(self, timeout: float | None) -> bool:
        """Copy what is there, waiting for it; False when none came in time."""
        words, limit_ns = self._words, 0
        if self._held is not None:
            self.let_go()
        while True:
            position = self._position
            if self._is_ended or position >= self._ends_at:
                raise RingClosed(str(self.path), "this reader was closed")
            for _ in self._first_looks:
                if words[COMMITTED] != position:
                    break
            else:
                limit_ns = limit_ns or deadline(self._clock, timeout)
                if not self._wait(limit_ns):
                    return False
            if words[self._state_at] != self._kind:
                self._renew()
            self._copy_ready()
            if self._ready:
                return True

    def _only(self) -> bytes | None:
        """The one small event that comes within the first looks; else None, and nothing has changed."""
        words, position = self._words, self._position
        if self._is_ended:  # the words may have been let go of
            return None
        for _ in self._first_looks:
            committed = words[COMMITTED]
            if committed != position:
                break
        else:
            return None
        if position >= self._ends_at or self._pins:
            return None
        if committed - position > FEW_SLOTS:
            return None
        memory, mask, sequence = self._memory, self._mask, self._sequence
        at = FIRST_SLOT + ((position & mask) << SLOT_BITS)
        stamp, first, size, count, crc = _unpack_header(memory, at)
        end = position + ((size + _ROUND) >> SLOT_BITS)
        if stamp != position or first != sequence or count != 1 or end != committed:
            return None
        body = memory[at + HEADER_SIZE : at + HEADER_SIZE + size]
        if crc32c(body, (sequence + 1) & MASK32) != crc or words[CLAIMED] > position + mask + 1:
            return None
        self._position, self._sequence = end, sequence + 1
        words[self._cursor_at] = end
        if words[self._state_at] != self._kind and not self._counts_as_read(position, sequence):
            return None
        if words[WAITING]:
            self._make_known()
        return body

    def _linger(self) -> None:
        """Look for what is expected soon; each time in vain, twice as many times pass without a look."""
        if self._passes:
            self._passes -= 1
            return
        if self._is_ended:  # the words may have been let go of
            return
        words, position, clock = self._words, self._position, self._clock
        until = clock.monotonic_ns() + LINGER_NS
        while clock.monotonic_ns() < until:
            for _ in _SOME_LOOKS:
                if words[COMMITTED] != position:
                    self._in_vain = 0
                    return
        self._passes = self._in_vain = min(2 * self._in_vain + 1, MOST_PASSES)

    def _wait(self, limit_ns: int) -> bool:
        """Whether a record is there in time; `RingClosed` when none will come."""
        if self._is_ended:
            raise RingClosed(str(self.path), "this reader was closed")
        words, position = self._words, self._position

        def is_there() -> object:
            return (
                words[COMMITTED] != position or words[CLOSED] or self._is_ended or position >= self._ends_at
            )

        if not self._waiter.wait(is_there, limit_ns, self._insist_on_a_writer):
            return False
        if words[COMMITTED] != position:
            return True
        reason = "its writer has closed it" if words[CLOSED] else "this reader was interrupted"
        raise RingClosed(str(self.path), reason)

    def _insist_on_a_writer(self) -> None:
        is_alive = futex.is_locked(self._segment.descriptor, WRITER_LOCK)
        if not is_alive and self._words[COMMITTED] == self._position:  # it may have written until it died
            raise RingClosed(str(self.path), "its writer's process has ended")

    def _copy_ready(self) -> None:
        """Copy records, then make sure that none was written over meanwhile, then let go of them."""
        words, memory, mask, ready = self._words, self._memory, self._mask, self._ready
        reuse = self._reuses
        position, sequence = self._position, self._sequence
        reason, committed = "", words[COMMITTED]
        for _ in _SOME_RECORDS:
            if position == committed:
                break
            at = FIRST_SLOT + ((position & mask) << SLOT_BITS)
            stamp, first, size, count, crc = _unpack_header(memory, at)
            if stamp != position or first != sequence or size > self._largest:
                reason = "a record does not follow the one before it"
                break
            at += HEADER_SIZE
            is_lent = count == LENT | 1
            if is_lent:
                count = 1
            if size < REUSED_FROM or not reuse or count != 1:
                body = memory[at : at + size]
            elif position != self._position:
                break  # it is given by itself
            elif self.is_reliable:
                self._hold_next()
                return
            else:
                body = self._into_scratch(self._segment.view(at, size))
            following = sequence + count
            if crc32c(b"" if is_lent else body, following & MASK32) != crc:
                reason = "the checksum of a record is wrong"
                break
            if count == 1:
                ready.append(body)
            elif count == 0:
                size = ((mask + 1 - (position & mask)) << SLOT_BITS) - HEADER_SIZE
            elif not records.split(body, count, ready):
                reason = "the sizes of a batch do not add up"
                break
            sequence = following
            position += (size + _ROUND) >> SLOT_BITS
        # After the copies: a claim over one of them was stored before its first byte was touched.
        if words[CLAIMED] > self._position + mask + 1:
            ready.clear()
            self._overtaken()
        elif reason and position == self._position:  # what is whole before the damage is given first
            raise self._damaged(reason)
        else:
            before = self._position, self._sequence
            self._position, self._sequence = position, sequence
            self._move_cursor()
            if words[self._state_at] == ENDED and not self._counts_as_read(*before):
                ready.clear()

    def _hold_next(self) -> None:
        """Give the record that is there where it lies."""
        held = self._held = self._pin_next()
        assert held is not None  # it has been seen to hold an event
        self._ready.append(cast("bytes", held.parts[0]))  # who asked for it knows

    def _into_scratch(self, body: memoryview) -> bytes:
        scratch, size = self._scratch, len(body)
        if scratch is None or len(scratch) < size:
            scratch = self._scratch = bytearray(size)
        view = memoryview(scratch)[:size]
        view[:] = body
        return cast("bytes", view.toreadonly())  # likewise

    def _move_cursor(self) -> None:
        words = self._words
        words[self._cursor_at] = self._pins[0].position if self._pins else self._position
        if words[WAITING]:
            self._make_known()

    def _pin_next(self) -> Pinned | None:
        """Pin the record that is there; None when it holds no event, or was written over."""
        if self._words[self._state_at] != self._kind:
            self._renew()
        position, sequence = self._position, self._sequence
        record = records.find(self._segment, position)
        lent = self._segment.lend()
        parts = records.views(lent, record) if record and record.sequence == sequence else None
        if self._words[CLAIMED] > position + self._mask + 1:
            self._overtaken()
        if record is None or parts is None:
            raise self._damaged("a record does not follow the one before it, or its checksum is wrong")
        pinned = Pinned(self, position, sequence, parts, weakref.ref(lent))
        if parts:
            self._pins.append(pinned)
        self._position, self._sequence = record.next_position, sequence + record.events
        self._move_cursor()
        return pinned if parts else None

    def unpin(self, pinned: Pinned) -> None:
        """What `Pinned.release` calls; `LeaseLost` when its bytes may have been written over meanwhile."""
        if pinned.position < 0 or not self._is_open:
            return
        while self._pins and self._pins[0].is_released:
            self._pins.popleft()
        is_lost = self._words[CLAIMED] > pinned.position + self._mask + 1
        if not is_lost:
            self._move_cursor()
        if self._words[self._state_at] == ENDED and self._last_cursor() <= pinned.position:
            self._position, self._sequence = pinned.position, pinned.sequence  # as the writer has counted it
            is_lost = True
        if is_lost:
            raise LeaseLost(str(self.path), pinned.sequence, len(pinned.parts))

    def _make_known(self) -> None:
        """Ring for the writer that waits for room, with a value that no other reader rings."""
        self._rings += 1
        ring_bell(self._segment, WAITING, ROOM_BELL, (self.row << 24) + (self._rings & 0xFFFFFF))

    def _counts_as_read(self, position: int, sequence: int) -> bool:
        """Whether the writer that has just given this reader up saw its cursor move; else it goes back."""
        if self._words[self._state_at] == ENDED and self._last_cursor() == self._position:
            return True
        self._position, self._sequence = position, sequence
        return False

    def _last_cursor(self) -> int:
        """What the writer that has ended this reader has seen, once it has said so."""
        words, end_at = self._words, ROWS + self.row * ROW_WORDS + ROW_END

        def insist_on_a_writer() -> None:
            if not futex.is_locked(self._segment.descriptor, WRITER_LOCK) and not words[end_at]:
                raise RingClosed(str(self.path), "its writer's process has ended")

        self._waiter.wait(lambda: words[end_at], FOREVER, insist_on_a_writer)
        return words[end_at] - 1

    def _renew(self) -> None:
        """The writer has given this reader up, but may not have overtaken it yet."""
        if self._words[self._state_at] == ENDED:
            self._is_ended = True
            self._last_cursor()
            lost = self._words[ROWS + self.row * ROW_WORDS + ROW_LOST]
            self._lost += lost
            self._gaps += 1
            self._sequence += lost
            raise LeaseLost(str(self.path), self._sequence - lost, lost)
        held = self._pins[0].position if self._pins else self._position
        if joining.takes_place(self._segment, self.row, self._kind, held):
            return
        self._pins.clear()
        if not joining.takes_place(self._segment, self.row, self._kind, self._position):
            self._overtaken()

    def _overtaken(self) -> None:
        if self._words[self._state_at] == ENDED:
            self._renew()
        first, lost = self._sequence, self._start_again()
        if self.is_reliable:
            raise LeaseLost(str(self.path), first, lost)
        self.on_gap()

    def _damaged(self, reason: str) -> RingDamaged:
        position = self._position
        return RingDamaged(str(self.path), f"{reason}, at position {position}", self._start_again())

    def _start_again(self) -> int:
        """Go on at the newest event; returns how many are lost by that."""
        before = self._sequence
        self._pins.clear()
        self._position, self._sequence = joining.at_the_newest(self._segment, self.row, self._kind)
        lost = self._sequence - before
        self._lost += lost
        self._gaps += 1
        return lost

"""The writing end of a ring: one per lane of a station, used by any thread of its process.

    with folder.create(station, lane=3, ports=ports) as writer:
        writer.append(b"one event")
        writer.append_parts((header, array))        # scatter/gather: no copy but the one into the ring
        writer.append_many(events)                  # one record, seen whole or not at all
        with writer.lend(1 << 20) as room:          # built where it will be read: no copy at all
            np.frombuffer(room, np.uint8)[:] = 7

No reader is asked on the way of an event. The writer *claims* an eighth of a lap at a time, and only then
looks at the cursors of reliable readers; up to there it writes without a look at anybody. When the slowest is
too far behind, `append` waits for `timeout` seconds (None: without end) and raises `RingFull`. A reader that
holds the writer up, and was not seen to move for longer than `lease` seconds, is overtaken; a dead one is
forgotten at once. Each has its own clock, so that several who stand still are waited for together. An owner
that wants to know what such a reader did not get sets `on_ended`.
"""

from __future__ import annotations

import weakref
from array import array
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final, Self

from crc32c import crc32c

from heliograph.errors import EventTooLargeForRing, NotPossible, RingClosed, RingFull
from heliograph.ring import futex, records
from heliograph.ring.layout import (
    BELL,
    CLAIMED,
    CLOSED,
    COMMITTED,
    FIRST_SLOT,
    HEADER,
    HEADER_SIZE,
    INTENT,
    LENT,
    MARK_COUNT,
    MARK_SEAL,
    MARK_WORDS,
    MARKS,
    MASK32,
    MAX_READERS,
    ROOM_BELL,
    SLEEPERS,
    SLOT_BITS,
    WAITING,
    WRITER_LOCK,
    largest_event,
    slots_for,
)
from heliograph.ring.reader_table import ReaderSeen, ReaderTable
from heliograph.ring.waiting import FOREVER, Waiter, WaitMode, deadline, ring_bell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from heliograph.ring.segment import RingName, RingSegment
    from heliograph.runtime.ports import Buffer, Ports

DEFAULT_LEASE: Final = 10.0
"""Seconds that a reliable reader may hold up a waiting writer without moving."""
SHORT_LEASE: Final = 1.0
"""The same for one that would miss nothing, if the owner of the writer knows (`RingWriter.is_missed_by`)."""
MAX_BATCH: Final = 4096
"""Events of one record; a longer batch becomes several."""
CLAIMS_PER_LAP: Final = 8

MAX_WHOLE: Final = 512
"""Bytes of an event up to which it is written together with its header, by one call instead of two."""

_pack_header = HEADER.pack_into
_PACK_WHOLE: Final = [Struct(f"{HEADER.format}{size}s").pack_into for size in range(MAX_WHOLE + 1)]
_ROUND: Final = HEADER_SIZE + (1 << SLOT_BITS) - 1


@dataclass(frozen=True, slots=True)
class RingWriterStats:
    """What a writer has done, and who reads."""

    events: int
    sleeps: int
    wakes: int
    woken_by_timeout: int
    revoked: int
    reaped: int
    readers: tuple[ReaderSeen, ...]


@dataclass(slots=True)
class Standing:
    """A reader that has not read all: where it is, since when it was seen there, and how long it may be."""

    cursor: int
    since_ns: int
    patience_ns: int


class RingWriter:
    """See the module."""

    def __init__(
        self,
        segment: RingSegment,
        name: RingName,
        ports: Ports,
        *,
        lease: float | None = DEFAULT_LEASE,
        wait: WaitMode = "spin",
    ) -> None:
        self._segment = segment
        self._memory = segment.memory
        self._words = segment.words
        self._mask = segment.slots - 1
        self._rows = ReaderTable(segment)
        self._clock = ports.clock
        self._lock = ports.tasks.lock("ring writer")
        self._waiter = Waiter(segment, WAITING, ROOM_BELL, ports.clock, wait)
        self._lease_ns = FOREVER if lease is None else int(lease * 1e9)
        self._position = 0
        self.sequence = 0
        """Of the next event. It grows in the step in which an event can be read."""
        self._claimed = 0
        self._usable = 0  # the end of the claim or of the lap, whichever comes first
        self._claims = 0
        self._wakes = 0
        self._held_up_by = -1  # the row that the writer waits for
        self._standing: dict[int, Standing] = {}
        self._hurried: set[int] = set()
        self._is_closing = False
        self._closed = False
        self.name = name
        self.path = segment.path
        self.largest = largest_event(segment.slots)
        self.on_ended: Callable[[int, int, list[bytes]], None] | None = None
        """Told the row of a reader whose lease is over, the sequence of the first record that it has not
        read, and all of those records. It reads no more. Whoever was appending gets `RingFull`, so that
        nothing is written between what was told and what the owner does about it. Who appends without any
        time to wait ends nobody: to find what was not read takes long."""
        self.is_missed_by: Callable[[int, list[bytes]], bool] = lambda _row, _unread: True
        """Asked when `SHORT_LEASE` is over: whether the reader in a row would miss any of these records. One
        that would not is ended then."""

    def append(self, event: Buffer, timeout: float | None = None) -> int:
        """Write one event; returns its sequence."""
        size = len(event)
        if size > MAX_WHOLE or type(event) is not bytes:
            return self.append_parts((event,), timeout)
        if not self._lock.acquire(False):
            self._acquire(timeout)
        try:
            position = self._position
            end = position + ((size + _ROUND) >> SLOT_BITS)
            if end > self._usable:
                position = self._make_room(size, timeout)
                end = position + ((size + _ROUND) >> SLOT_BITS)
            sequence = self.sequence
            following = sequence + 1
            at = FIRST_SLOT + ((position & self._mask) << SLOT_BITS)
            crc = crc32c(event, following & MASK32)
            _PACK_WHOLE[size](self._memory, at, position, sequence, size, 1, crc, event)
            # Ours before theirs: an interrupt in between leaves a record that the next append commits.
            self.sequence = following
            self._position = end
            words = self._words
            words[COMMITTED] = end
            if words[SLEEPERS]:
                self._wake()
        finally:
            self._lock.release()
        return sequence

    def put(self, event: bytes) -> bool:
        """Write one event by the shortest way; False when it has to be `append`ed.

        Only for an owner that lets one thread at a time write or close. It has to be appended if that needs
        a look at the readers.
        """
        size = len(event)
        position = self._position
        end = position + ((size + _ROUND) >> SLOT_BITS)
        if end > self._usable:
            return False
        sequence = self.sequence
        following = sequence + 1
        at = FIRST_SLOT + ((position & self._mask) << SLOT_BITS)
        crc = crc32c(event, following & MASK32)
        if size <= MAX_WHOLE:
            _PACK_WHOLE[size](self._memory, at, position, sequence, size, 1, crc, event)
        else:
            self._memory[at + HEADER_SIZE : at + HEADER_SIZE + size] = event
            _pack_header(self._memory, at, position, sequence, size, 1, crc)
        self.sequence = following
        self._position = end
        words = self._words
        words[COMMITTED] = end
        if words[SLEEPERS]:
            self._wake()
        return True

    def append_parts(
        self, parts: Sequence[Buffer], timeout: float | None = None, *, summed: bool = True
    ) -> int:
        """Write one event that is given in parts, each copied straight to its place; returns its sequence.

        With `summed=False` no sum is taken over its bytes, as in `lend`: of a large event that costs as much
        as the copy.
        """
        views = [_as_bytes(part) for part in parts]
        with self._locked(timeout):
            return self._write(views, 1, timeout, summed=summed)

    @contextmanager
    def lend(self, size: int, timeout: float | None = None) -> Iterator[memoryview]:
        """Room for one event of so many bytes, which is there for readers when the `with` block has ended.

        Nothing is copied and nothing summed up, so that a large event costs as much as a small one: damage to
        its bytes in shared memory is not found. Other threads wait to write meanwhile. When the block raises
        there is no event.
        """
        with self._locked(timeout):
            position = self._make_room(size, timeout)
            start = FIRST_SLOT + ((position & self._mask) << SLOT_BITS)
            lent = self._segment.lend()
            is_in_use = weakref.ref(lent)
            room = memoryview(lent).cast("B")[start + HEADER_SIZE : start + HEADER_SIZE + size]
            del lent
            yield room
            room.release()
            if is_in_use() is not None:
                raise NotPossible(
                    "an event in lent room", "an array or view still uses it; drop it inside of the block"
                )
            crc = crc32c(b"", (self.sequence + 1) & MASK32)
            _pack_header(self._memory, start, position, self.sequence, size, LENT | 1, crc)
            self._commit(position, size, 1)

    def append_many(self, events: Sequence[Buffer], timeout: float | None = None) -> int:
        """Write a batch; returns the sequence of its first event.

        Up to `MAX_BATCH` events that fit are one record, which readers see whole or not at all; a larger
        batch is several. `RingFull.appended` says how many went in when there was no room for the rest.
        """
        limit_ns = deadline(self._clock, timeout)
        parts = [event if type(event) is bytes else _as_bytes(event) for event in events]
        with self._locked(timeout):
            first = self.sequence
            for start, end in self._cuts(parts):
                try:
                    self._write_batch(parts[start:end], self._seconds_left(limit_ns))
                except RingFull as full:
                    raise RingFull(full.ring, full.waited, full.reader, start) from None
            return first

    def stats(self) -> RingWriterStats:
        with self._locked(None):
            waiter, rows = self._waiter, self._rows
            return RingWriterStats(
                events=self.sequence,
                sleeps=waiter.sleeps,
                wakes=self._wakes,
                woken_by_timeout=waiter.woken_by_timeout,
                revoked=rows.revoked,
                reaped=rows.reaped,
                readers=rows.seen(self._position),
            )

    @property
    def held_up_by(self) -> int:
        """The row of the reader that keeps the ring full; -1 when there is room."""
        return self._held_up_by

    def hurry(self, row: int, *, hurried: bool = True) -> None:
        """Wait no longer for the reader in that row, once it holds the writer up; or as for others."""
        if hurried:
            self._hurried.add(row)
            if not self._closed:
                futex.wake(self._segment.address_of_bell(ROOM_BELL))
        else:
            self._hurried.discard(row)

    def end_reader(self, row: int) -> tuple[int, list[bytes]] | None:
        """Wait no longer for the reliable reader in that row, whose process has ended.

        Returns:
            The sequence of the first record that it has not read, and all from there on; None when there is
            no such reader: it has been forgotten already.
        """
        with self._locked(None):
            if not self._rows.is_reliable(row):
                return None
            unread = self._end(row)
            self._rows.reap()  # its row is free for another
            return unread

    def is_read_by(self, row: int) -> bool:
        """Whether there is a reliable reader in that row, which has not been overtaken."""
        return 0 <= row < MAX_READERS and self._rows.is_reliable(row)

    def outruns(self, size: int) -> set[int]:
        """The rows of best-effort readers that have lost, or would lose, their place to an event so large."""
        with self._locked(None):
            return set(self._outrun(self._claim_for(size)))

    def wait_for_best_effort(self, size: int, timeout: float) -> bool:
        """Wait until no best-effort reader would lose its place to an event so large, nor to what comes soon
        after it, up to a quarter of the ring; whether that is so.

        For an owner whose events belong together, so that who loses one has nothing of the others. Who has
        lost its place already is not waited for.
        """
        capacity = self._mask + 1

        def is_free() -> bool:
            claim = min(self._claim_for(size) + capacity // 4, self._position + capacity)
            lost = self._claimed - capacity
            return self._is_closing or all(at < lost for at in self._outrun(claim).values())

        with self._locked(timeout):
            if is_free():
                return True
            self._rows.reap()
            return self._waiter.wait(is_free, deadline(self._clock, timeout), self._rows.reap)

    def reap(self) -> None:
        """Forget readers whose processes have ended; a writer that must wait does so by itself."""
        with self._locked(None):
            self._rows.reap()

    def close(self) -> None:
        """Tell the readers that nothing more comes, and remove the file; what is in it can still be read.

        Whoever waits for room in another thread gets `RingClosed`.
        """
        if not self._closed:
            self._is_closing = True
            futex.wake(self._segment.address_of_bell(ROOM_BELL))
        with self._lock:
            if self._closed:
                return
            self._words[CLOSED] = 1
            self._wake()
            self.path.unlink(missing_ok=True)
            futex.unlock(self._segment.descriptor, WRITER_LOCK)  # a forked child may have a copy of it
            self._let_go()

    def abandon(self) -> None:
        """In the child of a fork: let go of it; the parent goes on writing."""
        if not self._closed:
            self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _let_go(self) -> None:
        self._closed = True
        self._usable = 0  # so that an append comes by `_make_room`, which says that it is closed
        self._rows.close()
        self._segment.close()

    def _acquire(self, timeout: float | None) -> None:
        if not self._lock.acquire(True, -1 if timeout is None else timeout):
            if self._is_closing:  # whoever has the lock may let go of the rows any moment
                raise RingClosed(str(self.path), "this writer was closed")
            raise RingFull(str(self.path), timeout or 0.0, self._rows.process(max(0, self._held_up_by)))

    @contextmanager
    def _locked(self, timeout: float | None) -> Iterator[None]:
        try:
            self._acquire(timeout)
            if self._closed:
                raise RingClosed(str(self.path), "this writer was closed")
            yield
        finally:
            if self._lock.mine():  # an interrupt may have come before it was there
                self._lock.release()

    def _seconds_left(self, limit_ns: int) -> float | None:
        return None if limit_ns == FOREVER else max(0, limit_ns - self._clock.monotonic_ns()) / 1e9

    def _cuts(self, events: Sequence[Buffer]) -> list[tuple[int, int]]:
        """Where a batch is cut so that each piece is one record; refuses it before any of it is written."""
        cuts, start, size = [], 0, 0
        # A quarter: two records stay in the ring at a time, so that reader and writer work side by side.
        limit = max(self.largest // 2, 256)
        for i, event in enumerate(events):
            taken = len(event) + 4
            if len(event) > self.largest:
                raise EventTooLargeForRing(str(self.path), len(event), self.largest)
            if i > start and (size + taken > limit or i - start == MAX_BATCH):
                cuts.append((start, i))
                start, size = i, 0
            size += taken
        if start < len(events):
            cuts.append((start, len(events)))
        return cuts

    def _write_batch(self, events: Sequence[Buffer], timeout: float | None) -> None:
        if len(events) == 1:
            self._write([memoryview(events[0])], 1, timeout)
            return
        sizes = array("I", map(len, events)).tobytes()
        self._write([memoryview(sizes), memoryview(b"".join(events))], len(events), timeout)

    def _write(
        self, views: Sequence[memoryview], count: int, timeout: float | None, *, summed: bool = True
    ) -> int:
        """Write one record from its parts, with the lock held."""
        size = sum(map(len, views))
        position = self._make_room(size, timeout)
        sequence = self.sequence
        memory = self._memory
        start = FIRST_SLOT + ((position & self._mask) << SLOT_BITS)
        at, crc = start + HEADER_SIZE, (sequence + count) & MASK32
        crc = crc if summed else crc32c(b"", crc)
        for view in views:
            crc = crc32c(view, crc) if summed else crc
            memory[at : at + len(view)] = view
            at += len(view)
        _pack_header(memory, start, position, sequence, size, count if summed else LENT | count, crc)
        self._commit(position, size, count)
        return sequence

    def _commit(self, position: int, size: int, count: int) -> None:
        end, words = position + slots_for(size), self._words
        # One step: CPython looks for signals after calls only.
        self.sequence += count
        self._position = end
        words[COMMITTED] = end
        if words[SLEEPERS]:
            self._wake()

    def _wake(self) -> None:
        self._wakes += 1
        ring_bell(self._segment, SLEEPERS, BELL, self._wakes)

    def _make_room(self, size: int, timeout: float | None) -> int:
        """The position of the next record: claimed, and behind a filled-up end of the lap if need be."""
        if self._closed:
            raise RingClosed(str(self.path), "this writer was closed")
        if size > self.largest:
            raise EventTooLargeForRing(str(self.path), size, self.largest)
        position, filler, end = self._position, *self._place(size)
        if end > self._claimed:
            self._claim(end, timeout)
        rest = self._mask + 1 - (position & self._mask)
        if filler:
            at = FIRST_SLOT + ((position & self._mask) << SLOT_BITS)
            _pack_header(self._memory, at, position, self.sequence, 0, 0, self.sequence & MASK32)
            self._position = position = position + filler
            rest = self._mask + 1
        self._usable = min(self._claimed, position + rest)
        return position

    def _place(self, size: int) -> tuple[int, int]:
        """The slots at the end of the lap that the next record leaves empty, and where it ends."""
        slots, rest = slots_for(size), self._mask + 1 - (self._position & self._mask)
        filler = rest if slots > rest else 0
        return filler, self._position + filler + slots

    def _outrun(self, claim: int) -> dict[int, int]:
        """The cursors of best-effort readers, by row, whose place is another's with a claim up to there."""
        return {row: at for row, at in self._rows.best_effort().items() if at < claim - self._mask - 1}

    def _claim_for(self, size: int) -> int:
        end = self._place(size)[1]
        return self._claimed if end <= self._claimed else self._wanted(end)

    def _wanted(self, end: int) -> int:
        """Up to where a claim goes that has to reach so far."""
        return max(end, self._position + (self._mask + 1) // CLAIMS_PER_LAP)

    def _claim(self, end: int, timeout: float | None) -> None:
        """Get leave to write up to `end` at least, and mark where a reader can begin."""
        position, wanted = self._position, self._wanted(end)
        # Before the look at the rows: a reader that is not seen there sees this instead.
        self._words[INTENT] = wanted
        free_until = self._free_until()
        if free_until < end:
            self._wait_until_free(end, timeout)
            free_until = self._free_until()
        self._held_up_by = -1
        # Before the first byte is written there: who reads one of those bytes afterwards sees this, too.
        self._claimed = self._words[CLAIMED] = min(wanted, free_until)
        at = MARKS + self._claims % MARK_COUNT * MARK_WORDS
        self._claims += 1
        for i, word in enumerate((position, self.sequence, position ^ self.sequence ^ MARK_SEAL)):
            self._words[at + i] = word

    def _free_until(self) -> int:
        return self._rows.slowest(self._position, self._mask + 1)[0] + self._mask + 1

    def _wait_until_free(self, end: int, timeout: float | None) -> None:
        self._rows.reap()
        started = self._clock.monotonic_ns()
        limit_ns = FOREVER if timeout is None else started + int(timeout * 1e9)

        def is_free() -> bool:
            return self._is_closing or self._free_until() >= end

        def is_over() -> bool:
            return is_free() or self._held_up_by in self._hurried

        while not (
            self._waiter.wait(is_over, min(limit_ns, self._lease_end()), self._rows.reap) and is_free()
        ):
            lease_end, row = self._lease_end(), self._held_up_by
            now = self._clock.monotonic_ns()
            if row >= 0 and now >= lease_end and self.on_ended is None:
                self._rows.revoke(row)
            elif row >= 0 and now >= lease_end and timeout != 0:
                self._end_if_over(row)
            elif row >= 0 and now >= limit_ns:
                raise RingFull(str(self.path), (now - started) / 1e9, self._rows.process(row))
        if self._is_closing:
            raise RingClosed(str(self.path), "this writer was closed")

    def _end_if_over(self, row: int) -> None:
        """A reader has stood still for as long as one that misses nothing may: end it, or wait for longer."""
        standing, on_ended = self._standing[row], self.on_ended
        assert on_ended is not None
        is_short = row not in self._hurried and standing.patience_ns < self._lease_ns
        if is_short and self.is_missed_by(row, self._unread(row)):
            standing.patience_ns = self._lease_ns
            return
        on_ended(row, *self._end(row))
        waited = (self._clock.monotonic_ns() - standing.since_ns) / 1e9
        raise RingFull(str(self.path), waited, self._rows.process(row))

    def _end(self, row: int) -> tuple[int, list[bytes]]:
        cursor = self._rows.end(row)
        if not self._position - self._mask - 1 <= cursor <= self._position:
            cursor = self._position  # it says what cannot be, so nobody knows what it has read
        unread = self._records_from(cursor)
        # Records of a batch count as many as they hold; an owner that asks has written none.
        first = self.sequence - len(unread)
        self._rows.settle(row, cursor, len(unread))
        if self._words[SLEEPERS]:
            self._wake()
        return first, unread

    def _unread(self, row: int) -> list[bytes]:
        return self._records_from(self._rows.cursor(row))

    def _records_from(self, position: int) -> list[bytes]:
        """What was written from a position on; empty when it cannot be one of this lap."""
        found: list[bytes] = []
        if position < self._position - self._mask - 1:
            return found
        while position < self._position and (record := records.find(self._segment, position)) is not None:
            if record.events:
                found.append(self._memory[record.start : record.start + record.size])
            position = record.next_position
        return found

    def _lease_end(self) -> int:
        """When the slowest reader loses its lease, should it not move until then."""
        now = self._clock.monotonic_ns()
        readers = self._rows.reliable()
        self._hurried &= readers.keys()
        self._standing = {
            row: standing
            if (standing := self._standing.get(row)) is not None and standing.cursor == cursor
            else Standing(cursor, now, self._first_patience_ns())
            for row, cursor in readers.items()
            if cursor < self._position
        }
        row = self._held_up_by = self._rows.slowest(self._position, self._mask + 1)[1]
        standing = self._standing.get(row)
        if standing is None:
            return now + self._lease_ns
        return now if row in self._hurried else standing.since_ns + standing.patience_ns

    def _first_patience_ns(self) -> int:
        return self._lease_ns if self.on_ended is None else min(self._lease_ns, int(SHORT_LEASE * 1e9))


def _as_bytes(part: Buffer) -> memoryview:
    """A view that counts in bytes, whatever the items of the part are."""
    view = memoryview(part)
    if view.format == "B" and view.ndim == 1:
        return view
    return view.cast("B") if view.nbytes else memoryview(b"")

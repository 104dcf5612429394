"""Durable cursors: how far each named consumer and group has acknowledged, kept across restarts.

    store = CursorStore(ports, "air.tracks/consumers")
    cursor = store.open("billing", owner="pid 4711")
    cursor.position("a1")                           # go on from here
    cursor.commit({"a1": 120}, {"a1": [123, 125]})  # everything below 120, and these two

A cursor is, per partition, a low watermark and a bounded set of acknowledged offsets above it. It belongs to
one owner by a lease; each opening has a later epoch, and what a stale owner commits is refused.

All cursors of a store share one file, to which states are appended whole; the last state of a name counts.
One sync serves all threads that commit at the same time: the first one writes for all that wait. When the
file has grown, the states are written to a new one, which replaces it; after a failure too.

A commit that raises has changed nothing: the states in memory are those on disk, and each change is made of
them when it is written, so that no later commit brings one along that failed.

A file says how much of it was durable: its header, of what it began with, and each state, of what was before
it. A state that cannot be read is the end of a write that was torn by a crash, or, below that, damage.
"""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final, Self

import msgspec

from heliograph.errors import (
    BadJournalFile,
    CursorFenced,
    CursorHeld,
    DiskError,
    FileLocked,
    HeliographError,
    NoSuchFile,
    PartitionInUse,
    TooManyAcks,
)
from heliograph.journal.folders import make_folder
from heliograph.journal.format.frames import checksum
from heliograph.journal.maintenance.retention import ConsumerPosition
from heliograph.journal.names import LOCK, TEMPORARY
from heliograph.model.event import Count, Instant  # noqa: TC001 - msgspec reads them at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from heliograph.runtime.ports import Clock, Disk, File, Ports

log = logging.getLogger(__name__)

MAGIC: Final = b"HELIOCUR"
VERSION: Final = 1
FILE: Final = "cursors"
LEASE_SECONDS: Final = 30.0
MAX_ACKS: Final = 10_000
"""Acknowledged offsets above the low watermark, per partition."""
REWRITE_BYTES: Final = 1 << 20
"""Size at which the file is replaced by a short one."""

HEADER = struct.Struct("<8sHHI")
_FRAME = struct.Struct("<II")
MAX_EPOCH: Final = 1 << 62
"""Openings of one cursor that are told apart."""


class CursorPosition(msgspec.Struct, array_like=True):
    """How far a consumer is in one partition."""

    low: Count = 0
    """Everything below is acknowledged."""
    acks: set[Count] = msgspec.field(default_factory=set)
    reach: Count = 0
    """Everything from here on was not handed out to anybody."""
    attempts: dict[Count, Count] = msgspec.field(default_factory=dict)
    """How often offsets that are not acknowledged were handed out, where that is counted."""

    def advance(
        self, low: int, acks: Iterable[int], reach: int = 0, attempts: Mapping[int, int] | None = None
    ) -> CursorPosition:
        """With more acknowledged; what is adjacent to the low watermark raises it."""
        low = max(self.low, low)
        above = {offset for offset in (*self.acks, *acks) if offset >= low}
        while low in above:
            above.discard(low)
            low += 1
        counted = self.attempts if attempts is None else attempts
        left = {offset: times for offset, times in counted.items() if offset >= low and offset not in above}
        return CursorPosition(low, above, max(self.reach, reach), left)


class CursorState(msgspec.Struct, array_like=True):
    """All that is kept of a named consumer."""

    name: str
    epoch: Annotated[int, msgspec.Meta(ge=0, le=MAX_EPOCH)] = 0
    owner: str = ""
    positions: dict[str, CursorPosition] = {}
    seen_ts: Instant = 0
    """When its owner was last heard of, in ns since 1970."""
    durable: Count = 0
    """How many bytes of the file were durable when it was written."""


_decode: Final = msgspec.msgpack.Decoder(CursorState).decode


class Cursor:
    """One consumer's cursor, as its present owner sees it."""

    def __init__(self, store: CursorStore, name: str, epoch: int) -> None:
        self.name = name
        self.epoch = epoch
        self._store = store

    def position(self, partition: str, default: int = 0) -> int:
        """The low watermark in a partition: everything below it is acknowledged."""
        found = self._store.state(self.name).positions.get(partition)
        return default if found is None else found.low

    def positions(self) -> dict[str, int]:
        """The low watermarks of all partitions."""
        return {partition: p.low for partition, p in self._store.state(self.name).positions.items()}

    def acks(self, partition: str) -> frozenset[int]:
        """The offsets above the low watermark that are acknowledged all the same."""
        found = self._store.state(self.name).positions.get(partition)
        return frozenset() if found is None else frozenset(found.acks)

    def reach(self, partition: str) -> int:
        """The offset below which events may have been handed out."""
        found = self._store.state(self.name).positions.get(partition)
        return 0 if found is None else found.reach

    def attempts(self, partition: str) -> dict[int, int]:
        """How often offsets that are not acknowledged were handed out, where that is counted."""
        found = self._store.state(self.name).positions.get(partition)
        return {} if found is None else dict(found.attempts)

    def commit(
        self,
        lows: Mapping[str, int],
        acks: Mapping[str, Iterable[int]] | None = None,
        reach: Mapping[str, int] | None = None,
        attempts: Mapping[str, Mapping[int, int]] | None = None,
    ) -> None:
        """Make progress durable. A low watermark never goes back this way; see `seek`."""
        self._store.commit(self, lows, acks or {}, reach or {}, attempts or {})

    def withdraw(self, partition: str, low: int, acks: Iterable[int] = ()) -> None:
        """Take back what a commit said that may have arrived or not: these are all that is acknowledged."""
        self._store.withdraw(self, partition, low, acks)

    def seek(self, partition: str, offset: int) -> None:
        """Go back, or forward over unacknowledged events."""
        self._store.seek(self, partition, offset)

    def renew(self) -> None:
        """Keep the lease without progress; `commit` does so too."""
        self._store.renew(self)

    def close(self) -> None:
        """Give the lease back, so that the next owner need not wait for its end."""
        self._store.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Change:
    """A change that a thread waits for: makes the next state of a name from the last one on disk."""

    __slots__ = ("is_written", "make", "name", "refused")

    def __init__(self, name: str, make: Callable[[CursorState], CursorState | None]) -> None:
        self.name = name
        self.make = make
        self.is_written = False
        self.refused: HeliographError | None = None


class CursorStore:
    """The cursors of one channel. One process has them open; PartitionInUse names it to another."""

    def __init__(self, ports: Ports, folder: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        assert ports.disk is not None, "cursors need ports with a disk"
        self.folder = folder
        self._disk: Disk = ports.disk
        self._clock: Clock = ports.clock
        self._lease_ns = round(lease_seconds * 1e9)
        self._lock = ports.tasks.lock("cursors")
        self._writing = ports.tasks.lock("cursor file")
        self._states: dict[str, CursorState] = {}
        """As they are on disk."""
        self._leases: dict[str, int] = {}
        """Until when, on the monotonic clock, a name is held."""
        self._waiting: list[_Change] = []
        self._file: File | None = None
        self._size = 0
        make_folder(self._disk, folder)
        try:
            self._held = self._disk.lock(f"{folder}/{LOCK}")
        except FileLocked as error:
            raise PartitionInUse(folder, error.holder) from error
        try:
            self._load()
        except BaseException:
            self._held.release()
            raise

    def open(self, name: str, owner: str) -> Cursor:
        """Take over a consumer's cursor. CursorHeld while another owner's lease runs."""

        def taken_over(state: CursorState) -> CursorState:
            if state.owner != owner and self._is_leased(name):
                raise CursorHeld(name, state.owner)
            self._extend(name)
            return CursorState(name, state.epoch + 1, owner, state.positions, self._clock.time_ns())

        state = self._change(name, taken_over)
        return Cursor(self, name, state.epoch)

    def resume(self, name: str, epoch: int) -> Cursor:
        """Go on as the owner that opened it with this epoch; CursorFenced if another one opened it since."""
        cursor = Cursor(self, name, epoch)
        self.renew(cursor)
        return cursor

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._states))

    def state(self, name: str) -> CursorState:
        """What is kept of a consumer; an empty state for one that never was."""
        return self._states.get(name, CursorState(name))

    def places(self, partition: str) -> tuple[ConsumerPosition, ...]:
        """How far everybody is in a partition, for its retention."""
        with self._lock:
            return tuple(
                ConsumerPosition(state.name, state.positions[partition].low, state.seen_ts)
                for state in self._states.values()
                if partition in state.positions
            )

    def begin(self, name: str, partition: str, offset: int) -> None:
        """Give a consumer a cursor where it has none, before it is first opened: retention knows of it."""

        def begun(state: CursorState) -> CursorState:
            if partition in state.positions:
                return state
            return self._moved(state, {**state.positions, partition: CursorPosition(offset)})

        self._change(name, begun)

    def forget(self, name: str) -> None:
        """Drop a consumer's cursor for good. CursorHeld while a lease runs."""

        def gone(state: CursorState) -> None:
            if self._is_leased(name):
                raise CursorHeld(name, state.owner)

        self._change(name, gone)

    def commit(
        self,
        cursor: Cursor,
        lows: Mapping[str, int],
        acks: Mapping[str, Iterable[int]],
        reach: Mapping[str, int],
        attempts: Mapping[str, Mapping[int, int]],
    ) -> None:
        """See `Cursor.commit`."""

        def advanced(state: CursorState) -> CursorState:
            self._insist_on_owner(cursor, state)
            positions = dict(state.positions)
            for partition in {**lows, **acks, **reach}:
                new = positions.get(partition, CursorPosition()).advance(
                    lows.get(partition, 0),
                    acks.get(partition, ()),
                    reach.get(partition, 0),
                    attempts.get(partition),
                )
                if len(new.acks) > MAX_ACKS:
                    raise TooManyAcks(cursor.name, MAX_ACKS)
                positions[partition] = new
            self._extend(cursor.name)
            return self._moved(state, positions)

        self._change(cursor.name, advanced)

    def withdraw(self, cursor: Cursor, partition: str, low: int, acks: Iterable[int]) -> None:
        """See `Cursor.withdraw`."""

        def set_back(state: CursorState) -> CursorState:
            self._insist_on_owner(cursor, state)
            old = state.positions.get(partition, CursorPosition())
            back = CursorPosition(min(low, old.low)).advance(low, acks, old.reach, old.attempts)
            return self._moved(state, {**state.positions, partition: back})

        self._change(cursor.name, set_back)

    def seek(self, cursor: Cursor, partition: str, offset: int) -> None:
        """See `Cursor.seek`."""

        def moved(state: CursorState) -> CursorState:
            self._insist_on_owner(cursor, state)
            return self._moved(state, {**state.positions, partition: CursorPosition(offset)})

        self._change(cursor.name, moved)

    def renew(self, cursor: Cursor) -> None:
        """See `Cursor.renew`."""
        with self._lock:
            state = self.state(cursor.name)
            self._insist_on_owner(cursor, state)
            # Written with the next commit; until then a restart counts from the last.
            state.seen_ts = self._clock.time_ns()
            self._extend(cursor.name)

    def release(self, cursor: Cursor) -> None:
        """See `Cursor.close`. A stale owner has nothing to give back."""
        with self._lock:
            if self.state(cursor.name).epoch == cursor.epoch:
                self._leases.pop(cursor.name, None)

    def close(self) -> None:
        with self._writing:
            if self._file is not None:
                self._file.close()
                self._file = None
            self._held.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _insist_on_owner(cursor: Cursor, state: CursorState) -> None:
        if state.epoch != cursor.epoch:
            raise CursorFenced(cursor.name, cursor.epoch, state.epoch)

    def _moved(self, state: CursorState, positions: dict[str, CursorPosition]) -> CursorState:
        return CursorState(state.name, state.epoch, state.owner, positions, self._clock.time_ns())

    def _is_leased(self, name: str) -> bool:
        return self._leases.get(name, 0) > self._clock.monotonic_ns()

    def _extend(self, name: str) -> None:
        self._leases[name] = self._clock.monotonic_ns() + self._lease_ns

    def _change(self, name: str, make: Callable[[CursorState], CursorState | None]) -> CursorState:
        """Return when a change is durable, whichever thread wrote it; one that raises was not made."""
        change = _Change(name, make)
        with self._lock:
            self._waiting.append(change)
        try:
            with self._writing:
                if not change.is_written:  # else another thread wrote ours with its own
                    self._write_waiting()
        finally:
            if not change.is_written:
                with self._lock:
                    self._waiting = [other for other in self._waiting if other is not change]
        if change.refused is not None:
            raise change.refused
        return self.state(name)

    def _write_waiting(self) -> None:
        """Make all changes that wait, in their order, and write what comes of them.

        When that fails, the others are left waiting: the next thread tries again, without the one that
        was told of the failure.
        """
        with self._lock:
            changes, leases = list(self._waiting), dict(self._leases)
        made: dict[str, CursorState | None] = {}
        try:
            with self._lock:
                for change in changes:
                    before = made.get(change.name, self.state(change.name)) or CursorState(change.name)
                    try:
                        after = change.make(before)
                    except HeliographError as error:
                        change.refused = error
                    else:
                        if after is not before:
                            made[change.name] = after
            if made:
                self._write(made)
        except BaseException:
            with self._lock:
                for name in {change.name for change in changes}:
                    if name in leases:
                        self._leases[name] = leases[name]
                    else:
                        self._leases.pop(name, None)
                for change in changes:
                    change.refused = None
            raise
        with self._lock:
            self._states = self._after(made)
            for name in made.keys() - self._states.keys():
                self._leases.pop(name, None)
            for change in changes:
                change.is_written = True
            self._waiting = self._waiting[len(changes) :]

    def _after(self, made: Mapping[str, CursorState | None]) -> dict[str, CursorState]:
        """All states, with these in place of the old ones; None is one that is forgotten."""
        return {name: state for name, state in {**self._states, **made}.items() if state is not None}

    def _write(self, made: Mapping[str, CursorState | None]) -> None:
        if self._file is None or self._size > REWRITE_BYTES or None in made.values():
            self._rewrite(self._after(made))
            return
        data = b"".join(frame(state, self._size) for state in made.values() if state is not None)
        file = self._file
        try:
            file.append(data)
            file.sync()
        except BaseException as error:
            self._file = None  # the next attempt writes everything to a new file
            # The caller is told that nothing was written: a crash before that attempt must not find it.
            with suppress(DiskError):
                if isinstance(error, Exception):
                    file.truncate(self._size)
                    file.sync()
            file.close()
            raise
        self._size += len(data)

    def _rewrite(self, states: Mapping[str, CursorState]) -> None:
        """Put all states into a new file and replace the old one by it.

        The old one is let go of first: if this fails half-way, its name may already be the new one's.
        """
        if self._file is not None:
            self._file.close()
            self._file = None
        name, temporary = f"{self.folder}/{FILE}", f"{self.folder}/{FILE}{TEMPORARY}"
        with suppress(NoSuchFile):
            self._disk.remove(temporary)
        data = b"".join(frame(state, 0) for state in states.values())
        size = HEADER.size + len(data)
        file, is_in_place = self._disk.create(temporary), False
        try:
            file.append(HEADER.pack(MAGIC, VERSION, 0, size), data)
            file.sync()
            self._disk.rename(temporary, name)
            is_in_place = True
            self._disk.sync_folder(self.folder)
        except BaseException as error:
            file.close()
            if is_in_place and states is not self._states and isinstance(error, Exception):
                with suppress(DiskError):  # the caller is told that nothing was written
                    self._rewrite(self._states)
            raise
        self._file, self._size = file, size

    def _load(self) -> None:
        """Read the states; a torn one at the end was never acknowledged and goes with the next rewriting."""
        try:
            data = self._disk.read(f"{self.folder}/{FILE}")
        except NoSuchFile:
            return
        if len(data) < HEADER.size or data[:8] != MAGIC:
            reason = (
                "it does not begin as a cursor file does; bring back a copy of it, or look at what "
                "`helio journal repair --dry-run` would make of it"
            )
            raise BadJournalFile(f"{self.folder}/{FILE}", reason)
        _, version, _, durable = HEADER.unpack_from(data)
        if version != VERSION:
            reason = f"it has version {version}; this program reads version {VERSION}"
            raise BadJournalFile(f"{self.folder}/{FILE}", reason)
        at = HEADER.size
        while (found := state_at(data, at)) is not None:
            state, at = found
            # Written by a program that did not note the time: its lease begins with this one.
            state.seen_ts = state.seen_ts or self._clock.time_ns()
            self._states[state.name] = state
        if max(durable, _durable_after(data, at)) > at:
            reason = (
                f"what was durable from byte {at} on is damaged, so nobody knows how far its consumers are; "
                "bring back a copy of it, or look at what `helio journal repair --dry-run` would make of it"
            )
            raise BadJournalFile(f"{self.folder}/{FILE}", reason)
        if at < len(data):
            log.warning("%s: %d bytes were dropped; cursors may repeat events", self.folder, len(data) - at)


def frame(state: CursorState, durable: int) -> bytes:
    """A state as it stands in the file, which was durable up to there when it was written."""
    state.durable = durable
    body = msgspec.msgpack.encode(state)
    return _FRAME.pack(len(body), checksum(body)) + body


def state_at(data: bytes, at: int) -> tuple[CursorState, int] | None:
    """The state there and the position behind it; None when there is none, or not all of it."""
    begin = at + _FRAME.size
    if begin > len(data):
        return None
    size, crc = _FRAME.unpack_from(data, at)
    body = data[begin : begin + size]
    # Zeros, as a crash may leave them, would be an empty state with the right sum.
    if not size or len(body) < size or checksum(body) != crc:
        return None
    try:
        return _decode(body), begin + size
    except (msgspec.MsgspecError, RecursionError):
        return None  # a right sum around what no program of ours has written


def _durable_after(data: bytes, at: int) -> int:
    """How much of the file was durable, by what can be read behind something that cannot."""
    durable = 0
    while at < len(data):
        found = state_at(data, at)
        if found is None:
            at += 1
        else:
            durable, at = max(durable, found[0].durable), found[1]
    return durable

"""The one writer of a partition: group commit.

    writer = PartitionWriter(ports, folder, formats, on_durable=dispatch)
    receipt = writer.append(records, attachment=events)
    receipt.result(timeout=1.0)

Suppliers encode their rows and put them in line; one task at a time writes everything that is in line as one
frame, syncs it once and tells everybody. It is one of a few that the partitions of a station share, and
serves another partition after each frame if others wait. The steps of a commit, in this order and numbered in
the code:

    1 take what is in line            4 sync
    2 write it as one frame           5 hand it to `on_durable`, in the order of offsets
    3 fulfil receipts of `journal`    6 fulfil receipts of `synced`

When the disk refuses, every append that waits fails with AppendFailed and nothing is acknowledged; those
behind it are not written either, so that no event overtakes an earlier one of its supplier. The writer goes
on with the next append: when space has returned, so has the journal.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from threading import get_ident  # only to know a thread again; threads themselves come from the port
from typing import TYPE_CHECKING, Any, Final, Self

from heliograph.errors import (
    AppendFailed,
    BatchTooLarge,
    DiskError,
    JournalBusy,
    JournalClosed,
    PartitionInUse,
)
from heliograph.journal.format.frames import MAX_BODY
from heliograph.journal.format.records import RecordRun, encode_rows
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.maintenance import Maintenance
from heliograph.journal.maintenance.seal import rewrite_in_process, seal_in_process
from heliograph.journal.writing.partition import Chunk, WritablePartition
from heliograph.journal.writing.receipt import Adoption, AppendReceipt, Level
from heliograph.journal.writing.shared_threads import SharedThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.journal.format.batch_marks import Mark
    from heliograph.journal.format.records import Record
    from heliograph.journal.maintenance.maintenance import Rewriter, Sealer
    from heliograph.journal.maintenance.retention import ConsumerPosition
    from heliograph.journal.writing.recovery import Recovery
    from heliograph.model.formats import FormatRegistry
    from heliograph.model.history_epochs import Epochs
    from heliograph.runtime.ports import Ports
    from heliograph.runtime.timers import Timer

log = logging.getLogger(__name__)

FRAME_TARGET: Final = 4 << 20
"""Bytes after which a commit leaves the rest in line for the next: readers decode a frame at once."""

MAX_APPEND_BYTES: Final = 32 << 20
MAX_APPEND_EVENTS: Final = 1 << 20
"""One append is one frame at most; the rest of MAX_BODY is for format descriptions."""

MAX_WAITING: Final = 64 << 20
"""Bytes in line for the disk before `append` waits itself."""

TRY_AGAIN: Final = 1.0
"""Seconds after which a head is closed that the disk did not let close."""

assert FRAME_TARGET + MAX_APPEND_BYTES < MAX_BODY


@dataclass(frozen=True, slots=True)
class WriterStats:
    """A snapshot of a writer. Counts begin with it, except `dropped_*`, which the partition keeps."""

    epoch: int
    watermark: int
    earliest: int
    appended: int
    commits: int
    failed: int
    """Events whose append failed."""
    waiting: int
    """Bytes in line."""
    bytes: int
    """Size of the partition on disk."""
    heads: int
    segments: int
    keeper_failures: int
    """Seals and removals that will be tried again."""
    damaged: int
    """Events that were durable once and cannot be read."""
    dropped_events: int
    dropped_bytes: int
    """What retention has removed."""
    compacted: int
    """Offsets that have no row any more, because a later event of its key has replaced it."""
    retired_bytes: int
    """Size of files that are no longer part of the history, and stay on disk for their grace."""


class PartitionWriter:
    """Opens a partition for writing; PartitionInUse when another writer has it.

    Without `shared`, what partitions share, it has some of its own.
    """

    def __init__(
        self,
        ports: Ports,
        folder: str,
        formats: FormatRegistry,
        *,
        limits: Limits | None = None,
        on_durable: Callable[[list[AppendReceipt]], object] | None = None,
        sealer: Sealer | None = seal_in_process,
        rewriter: Rewriter | None = rewrite_in_process,
        places: Callable[[], Sequence[ConsumerPosition]] = tuple,
        note: str = "",
        settle: Callable[[], object] | None = None,
        shared: SharedThreads | None = None,
    ) -> None:
        self._tasks = ports.tasks
        self._folder = folder
        self._formats = formats
        self._owns_shared = shared is None
        self._shared = shared or SharedThreads(ports)
        self._shared.start()
        # Guards the files; held while they are written.
        self._files = ports.tasks.lock("journal files")
        with self._files:
            self._partition = WritablePartition(
                ports,
                folder,
                formats,
                limits or Limits(),
                note,
                settle=settle,
                on_open=lambda: self._shared.files.opened(self._close_files),
            )
        self._on_durable = on_durable
        self._known: set[frozenset[bytes]] = set()
        self._alone: dict[bytes, frozenset[bytes]] = {}
        """The set of formats of a row that is appended by itself, as most are."""
        # Guards what is in line; held for moments only.
        self._lock = ports.tasks.lock("journal line")
        self._room = ports.tasks.condition(self._lock, "journal room")
        self._line: list[AppendReceipt] = []
        self._last: AppendReceipt | None = None
        self._waiting = 0
        self._closed = False
        self._let_go = False
        """Whether `close` was called: the writer is closed without that when its task has ended by a bug."""
        self._commits = 0
        self._failed = 0
        self._opened_at = self._partition.watermark
        self._committers = self._shared.committers
        self._scheduled = False
        """Whether the committers have `_serve`, or one is inside of it: it comes to what is put in line."""
        self._serving = 0
        """The thread that commits; 0 while none does."""
        self._ended = ports.tasks.event("journal end")
        self._rotation: Timer | None = None
        self._keeper = Maintenance(
            ports, self._partition, self._files, sealer, self._shared, rewriter=rewriter, places=places
        )

    @property
    def recovery(self) -> Recovery:
        """What was found when the partition was opened."""
        return self._partition.recovery

    @property
    def epoch(self) -> int:
        return self._partition.epoch

    @property
    def epochs(self) -> Epochs:
        """Which writers wrote this history, this one last."""
        return self._partition.manifest.epochs

    @property
    def watermark(self) -> int:
        """Every row below this offset is on disk."""
        return self._partition.watermark

    @property
    def earliest(self) -> int:
        """The first offset that retention has left."""
        return self._partition.manifest.earliest

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._closed

    @property
    def marks(self) -> Mapping[str, Mark]:
        """How far each writer from outside has come. Any task may ask."""
        return self._partition.marks

    def append(
        self,
        records: Sequence[Record] | RecordRun,
        *,
        level: Level = "synced",
        attachment: Any = None,
        timeout: float | None = None,
        check: Callable[[], object] | None = None,
    ) -> AppendReceipt:
        """Put the records in line, to be written together, whole or not at all.

        Waits only while too much is in line already: JournalBusy when that takes longer than `timeout`.
        `check` is called when there is space and raises if they may not be written any more; see `between`.
        """
        chunk = self._encoded(records)
        receipt = AppendReceipt(records, chunk, level, attachment, tasks=self._tasks, partition=self._folder)
        return self._put_in_line(receipt, timeout, check)

    def between(self, change: Callable[[], object]) -> AppendReceipt | None:
        """Make a change that no append overlaps: the last before it is returned, if there was one, and the
        next is checked after it.
        """
        with self._lock:
            change()
            return self._last

    def adopt(self, frames: Iterable[Sequence[Chunk]], events: int, mark: Mark) -> AppendReceipt:
        """Put a batch from outside in line: with its mark it is written whole or not at all, in frames of
        its own. These are taken as they are written, and their formats must be known already.
        """
        whole = Chunk(events, b"", frozenset())
        adoption = Adoption(frames, mark)
        return self._put_in_line(
            AppendReceipt(
                (), whole, "synced", None, tasks=self._tasks, partition=self._folder, adoption=adoption
            )
        )

    def _put_in_line(
        self, receipt: AppendReceipt, timeout: float | None = None, check: Callable[[], object] | None = None
    ) -> AppendReceipt:
        with self._lock:
            if self._waiting >= MAX_WAITING and not self._closed:
                self._room.wait_for(self._has_room, timeout)
            if self._closed:
                raise JournalClosed(self._folder)
            if self._waiting >= MAX_WAITING:
                raise JournalBusy(self._folder, self._waiting)
            if check is not None:
                check()
            self._line.append(receipt)
            self._last = receipt
            self._waiting += len(receipt.chunk.rows)
            if not self._scheduled:
                self._schedule()
        return receipt

    def rotate(self) -> None:
        """Close the head file now."""
        with self._files:
            self._partition.rotate()
        self._keeper.look()

    def settle(self) -> None:
        """See to it that a new partition survives a power loss, though it has no row yet."""
        with self._files:
            self._partition.settle()

    def retain(self) -> None:
        """Drop what exceeds the limits, now."""
        self._keeper.retain()

    def purge(self, below: int) -> None:
        """Drop the files all of whose events are below an offset, now; what is not sealed is sealed first."""
        self.seal()
        self._keeper.purge(below)

    def seal(self) -> int:
        """Close the head and seal all that can be sealed, now; returns how many segments that made."""
        self.rotate()
        return self._keeper.seal_all()

    def seal_ripe(self) -> int:
        """Seal what maintenance would, now: for a writer that is closed before maintenance comes to it."""
        return self._keeper.seal_ripe()

    def tidy(self) -> int:
        """Merge and compact sealed segments, now; returns how many files that made."""
        return self._keeper.tidy()

    def stats(self) -> WriterStats:
        manifest = self._partition.manifest
        return WriterStats(
            epoch=manifest.epoch,
            watermark=self._partition.watermark,
            earliest=manifest.earliest,
            appended=self._partition.watermark - self._opened_at,
            commits=self._commits,
            failed=self._failed,
            waiting=self._waiting,
            bytes=self._partition.size,
            heads=len(manifest.heads),
            segments=len(manifest.segments),
            keeper_failures=self._keeper.failures,
            damaged=sum(damage.next - damage.first for damage in manifest.damage),
            dropped_events=manifest.dropped_events,
            dropped_bytes=manifest.dropped_bytes,
            compacted=sum(s.next - s.first - s.events for s in manifest.segments),
            retired_bytes=self._partition.retired_size,
        )

    def close(self) -> None:
        """Write what is in line, then let go of the partition."""
        with self._lock:
            if self._let_go:
                return
            if self._serving == get_ident():
                raise RuntimeError(f"{self._folder} cannot be closed by what it tells of its own rows")
            self._let_go = self._closed = True
            self._room.notify_all()
            if self._rotation is not None:
                self._rotation.cancel()
            if not self._scheduled:
                self._schedule()
        try:
            self._ended.wait()
        finally:
            self._keeper.close()
            self._shared.files.closed(self._close_files)
            with self._files:
                self._partition.close()
            if self._owns_shared:
                self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _close_files(self) -> bool:
        """Have no files open until the next append, unless one is just being written."""
        if not self._files.acquire(blocking=False):
            return False
        try:
            return self._partition.let_go()
        finally:
            self._files.release()

    def _encoded(self, records: Sequence[Record] | RecordRun) -> Chunk:
        if not 1 <= len(records) <= MAX_APPEND_EVENTS:
            raise BatchTooLarge(len(records), MAX_APPEND_EVENTS, "events")
        rows: Sequence[Record | RecordRun] = (records,) if isinstance(records, RecordRun) else records
        formats = self._formats_of(rows)
        data = encode_rows(rows)
        if len(data) > MAX_APPEND_BYTES:
            raise BatchTooLarge(len(data), MAX_APPEND_BYTES, "bytes")
        return Chunk(len(records), data, formats, isinstance(records, RecordRun))

    def _formats_of(self, rows: Sequence[Record | RecordRun]) -> frozenset[bytes]:
        """The ids of the formats of the rows; UnknownFormat while nothing has been promised."""
        alone = self._alone.get(rows[0].format_id) if len(rows) == 1 else None
        if alone is not None:
            return alone
        formats = frozenset({row.format_id for row in rows})
        if formats not in self._known:
            for format_id in formats:
                self._formats[format_id]
            self._known.add(formats)
        if len(rows) == 1:
            self._alone[rows[0].format_id] = formats
        return formats

    def _has_room(self) -> bool:
        return self._closed or self._waiting < MAX_WAITING

    def _schedule(self) -> None:
        """Under the lock: have a committer come. The flag is set last: what interrupts this before leaves it
        to the next append.
        """
        self._committers.submit(self._serve)
        self._scheduled = True

    def _serve(self) -> None:
        """Commit what is in line, in a committer."""
        with self._lock:
            if self._serving or self._ended.is_set():
                return  # an append that was interrupted had it come twice
            self._serving = get_ident()
        try:
            while not self._commit_or_leave():
                pass
        except BaseException:
            # Also after a bug: no thread may wait for a writer that has ended.
            self._end()
            raise

    def _commit_or_leave(self) -> bool:
        """Commit once; True when this committer is to leave, because nothing is in line or others wait."""
        if self._line:
            self._commit()
        if not self._line:
            self._rotate_if_due()
        with self._lock:
            if self._line:
                if not self._committers.crowded:
                    return False
                self._committers.submit(self._serve)  # behind those that wait
            elif self._closed:
                self._ended.set()
            else:
                self._scheduled = False
                if self._rotation is None:
                    self._watch_age()
            self._serving = 0
            return True

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            self._serving = 0
            left, self._line, self._waiting = self._line, [], 0
            self._room.notify_all()
        for receipt in left:
            receipt.fulfil(JournalClosed(self._folder))
        self._ended.set()

    def _rotate_if_due(self) -> None:
        try:
            with self._files:
                rotated = self._partition.rotate_if_due()
        except (DiskError, PartitionInUse) as error:
            log.warning("%s: %s; the head is closed later", self._folder, error)
            self._rotation = self._shared.timers.after(TRY_AGAIN, self._age_reached)
        else:
            if rotated:
                self._keeper.look()

    def _watch_age(self) -> None:
        """Under the lock: see to it that the head is closed when it is old, whether more comes or not."""
        due = self._partition.rotation_due_in()
        if due is not None:
            self._rotation = self._shared.timers.after(due, self._age_reached)

    def _age_reached(self) -> None:
        with self._lock:
            self._rotation = None
            if not self._scheduled and not self._closed:
                self._schedule()

    def _commit(self) -> None:
        batch = self._take()  # 1
        if batch[0].adoption is not None:
            self._adopt(batch[0], batch[0].adoption)
            return
        generation = self._partition.manifest.generation
        try:
            with self._files:
                written = self._partition.write([receipt.chunk for receipt in batch])  # 2
            offset = written.first
            for receipt in batch:
                receipt.first_offset, receipt.append_ts = offset, written.append_ts
                offset += receipt.chunk.events
                if receipt.level == "journal":
                    receipt.fulfil(final=False)  # 3
            with self._files:
                self._partition.sync()  # 4
        except (DiskError, PartitionInUse) as error:
            # PartitionInUse: it had let go of its files, and another program has the partition now.
            self._fail(batch, error)
            return
        except Exception as error:
            # A bug, or no memory: what is in the files is not known, so the writer ends with this.
            self._fail(batch, error)
            raise
        try:
            if self._partition.manifest.generation != generation:
                self._keeper.look()  # the head was rotated on the way
        finally:
            self._tell(batch)  # whatever becomes of the files, these rows are durable

    def _tell(self, batch: list[AppendReceipt]) -> None:
        self._commits += 1
        # User code may run in there, and may wait for what other partitions commit.
        self._committers.step_aside()
        try:
            if self._on_durable is not None:
                try:
                    self._on_durable(batch)  # 5
                except Exception:
                    log.exception("%s: on_durable failed; the rows are durable all the same", self._folder)
            for receipt in batch:
                receipt.fulfil()  # 6
        finally:
            self._committers.step_back()

    def _adopt(self, receipt: AppendReceipt, adoption: Adoption) -> None:
        """Steps 2 to 6 for a batch from outside. What is wrong with it is nothing to those behind it."""
        try:
            with self._files:
                written = self._partition.adopt(*adoption)
        except Exception as error:  # noqa: BLE001 - its frames are made while they are written
            failure = AppendFailed(self._folder, str(error))
            failure.__cause__ = error
            receipt.fulfil(failure)
            return
        receipt.first_offset, receipt.append_ts = written.first, written.append_ts
        try:
            self._keeper.look()  # the head may have been rotated, or become full
        finally:
            self._tell([receipt])

    def _take(self) -> list[AppendReceipt]:
        """What is in line, up to the size of a frame, and the first in any case. An adoption goes alone."""
        with self._lock:
            size = taken = 0
            for receipt in self._line:
                if taken and (receipt.adoption or size + len(receipt.chunk.rows) > FRAME_TARGET):
                    break
                size += len(receipt.chunk.rows)
                taken += 1
                if receipt.adoption:
                    break
            batch = self._line[:taken]
            del self._line[:taken]
            self._waiting -= size
            if size:
                self._room.notify_all()
        return batch

    def _fail(self, batch: list[AppendReceipt], error: BaseException) -> None:
        with self._lock:
            batch += self._line
            self._line.clear()
            self._waiting = 0
            self._room.notify_all()
        self._failed += sum(receipt.chunk.events for receipt in batch)
        log.warning("%s: %d appends failed: %s", self._folder, len(batch), error)
        for receipt in batch:
            failure = AppendFailed(self._folder, str(error))
            failure.__cause__ = error
            receipt.fulfil(failure)

"""The files of a partition as its one writer sees them; no threads, no waiting.

`PartitionWriter` puts the group commit on top. What happens on disk, in which order, is decided here:

    commit   1 write one frame behind the head, 2 sync it, 3 publish the watermark
    begin    0 sync the names of the partition and of the folders that hold it, once, before its first head
    rotate   1 close the head (in memory), 2 create the next and sync it and its name,
             3 publish a manifest that closes the one and lists the other
    seal     1 a sealed file is synced and named (heliograph.journal.maintenance.seal), 2 publish a manifest
    that lists it
             instead of its heads, 3 remove the heads
    adopt    1 write the frames of a batch, the last with its mark, 2 sync them, 3 publish the watermark
    rewrite  1 new files are synced and named (heliograph.journal.maintenance.compactor), 2 publish a manifest
    that lists
             them, and as retired those that they were made from
    retain   1 publish a manifest without what is to go (heliograph.journal.maintenance.retention), in which
    sealed files
             have become retired, 2 remove what it does not list even so

After a failed sync the content of the file is unknown: it is closed at the last good sync and never touched
again, and the rows that it may have lost, which are still in memory, go to a new head.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from heliograph.errors import DiskError, FileExists, FileLocked, PartitionInUse
from heliograph.journal.folders import made_folder
from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.batch_marks import Mark, encode_marks, remembered
from heliograph.journal.format.commit_file import Commit, CommitWriter
from heliograph.journal.format.frames import (
    CONTINUED,
    HEAD_SIZE,
    ROWS,
    RUNS,
    FrameMeta,
    HeadHeader,
    encode_frame,
)
from heliograph.journal.format.manifest import Damage, Head, Manifest, Segment
from heliograph.journal.format.records import rows_payload
from heliograph.journal.maintenance.compaction_policy import (
    Compaction,
    RewriteJob,
    SealJob,
    is_complete,
    largest,
    to_compact,
    to_merge,
)
from heliograph.journal.maintenance.retention import decide, decide_purge, retire
from heliograph.journal.names import COMMIT, HEADS, LOCK, SEALED, head_name, segment_name
from heliograph.journal.writing.dedup_window import WINDOW
from heliograph.journal.writing.recovery import (
    Recovery,
    found_or_made,
    is_settled,
    recover,
    sweep,
)
from heliograph.model.history_epochs import with_next
from heliograph.runtime.fault_points import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from heliograph.journal.limits import Limits
    from heliograph.journal.maintenance.retention import ConsumerPosition, Decision
    from heliograph.model.formats import FormatRegistry
    from heliograph.runtime.ports import Clock, Disk, File, FileLock, Ports

log = logging.getLogger(__name__)

DESCRIBED: Final = 2
"""Frames of a head in which each of its formats is described."""


class Chunk(msgspec.Struct, frozen=True):
    """Rows that were appended together: encoded, and the ids of their formats."""

    events: int
    rows: bytes
    formats: frozenset[bytes]
    is_run: bool = False
    """One row stands for all the events."""


class Written(NamedTuple):
    """Where a frame's rows are."""

    first: int
    events: int
    append_ts: int


@dataclass(slots=True)
class OpenHead:
    """The head that is being written."""

    entry: Head
    file: File
    salt: bytes
    born_ns: int
    end: int
    synced_end: int
    synced_ts: int = 0
    first_ts: int = 0
    described: dict[bytes, int] = field(default_factory=dict)
    """In how many frames a format has been described: two, so that no damaged frame takes it from others."""


class WritablePartition:
    """Opens a partition for writing, recovering it first. The caller sees to it that calls do not overlap.

    A new one survives a power loss as soon as it is open. With `settle`, that is only before its first row,
    and until then nothing is synced: a station may open thousands. `settle` itself syncs what else belongs to
    the partition. `on_open` is told when files were opened, now and after `let_go`.
    """

    def __init__(
        self,
        ports: Ports,
        folder: str,
        formats: FormatRegistry,
        limits: Limits,
        note: str = "",
        *,
        settle: Callable[[], object] | None = None,
        on_open: Callable[[], object] = lambda: None,
    ) -> None:
        if ports.disk is None:
            raise ValueError("a partition needs ports with a disk")
        self.folder = folder
        self.limits = limits
        self._disk: Disk = ports.disk
        self._clock: Clock = ports.clock
        self._random = ports.random
        self._formats = formats
        self._head: OpenHead | None = None
        self._serial = 0
        self._generation = 0
        self.recovery = Recovery()
        self._has_let_go = False
        self._unsynced: list[tuple[Written, Sequence[Chunk]]] = []
        self._garbage: list[str] = []
        self._settle_others = settle
        self._on_open = on_open
        self._note = note
        is_new = made_folder(self._disk, folder)
        self._lock = self._locked()
        try:
            self._open(is_new=is_new)
            if settle is None:
                self.settle()
        except BaseException:
            self._lock.release()
            raise
        on_open()

    def _locked(self) -> FileLock:
        try:
            return self._disk.lock(f"{self.folder}/{LOCK}", note=self._note)
        except FileLocked as error:
            raise PartitionInUse(self.folder, error.holder) from error

    def _open(self, *, is_new: bool) -> None:
        found, is_new = found_or_made(self._disk, self.folder, self._random, is_new=is_new)
        self._settled = is_settled(found)
        if is_new:
            self._begin(found)
            return
        closed, self.recovery = recover(self._disk, self.folder, found, self._random)
        for damage in self.recovery.damage:
            log.error(
                "%s: offsets %d to %d are damaged: %s", self.folder, damage.first, damage.next - 1, damage
            )
        epochs = with_next(closed.epochs, closed.next, self._random)
        self._begin(msgspec.structs.replace(closed, epoch=closed.epoch + 1, epochs=epochs))
        self._publish(self.manifest)
        removed = sweep(self._disk, self.folder, self.manifest)
        self.recovery = replace(self.recovery, removed=removed)

    def _begin(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.watermark = self.next = manifest.next
        self._generation = manifest.generation
        self._last_ts = manifest.last_ts
        self.marks = {mark.writer: mark for mark in manifest.marks}
        """The newest of each writer from outside; all of them durable."""
        self._commit = CommitWriter(self._disk, self.folder)

    def let_go(self) -> bool:
        """Close the files and free the lock until the next change; False while rows wait for a sync.

        No program that respects the lock of the station's folder writes meanwhile; that is checked.
        """
        if self._unsynced or self._has_let_go:
            return not self._unsynced
        self._has_let_go = True
        if self._head is not None:
            self._head.file.close()
        self._commit.close()
        self._lock.release()
        return True

    def _take_again(self) -> None:
        """Open again what `let_go` closed."""
        lock = self._locked()
        try:
            epoch = manifests.load(self._disk, self.folder).epoch
            if epoch != self.manifest.epoch:
                holder = f"a writer of epoch {epoch}"
                raise PartitionInUse(self.folder, holder)  # noqa: TRY301 - the lock is freed in one place
            if self._head is not None:
                file = self._disk.open(f"{self.folder}/{self._head.entry.name}")
                if file.size() != self._head.end:
                    file.truncate(self._head.end)  # a part of a frame that the disk refused
                self._head.file = file
        except BaseException:
            lock.release()
            raise
        self._lock = lock
        self._has_let_go = False
        self._on_open()

    def settle(self) -> None:
        """Sync what a new partition consists of, and where it is: from then on it survives a power loss."""
        if self._settled:
            return
        if self._settle_others is not None:
            self._settle_others()
        with self._disk.open(f"{self.folder}/{COMMIT}") as commit:
            commit.sync()
        for inner in (HEADS, SEALED):
            with suppress(FileExists):
                self._disk.make_folder(f"{self.folder}/{inner}")
        self._publish(self.manifest)
        above = self.folder
        while above:
            above = above.rpartition("/")[0]
            self._disk.sync_folder(above)
        self._settled = True

    @property
    def epoch(self) -> int:
        return self.manifest.epoch

    @property
    def size(self) -> int:
        """Bytes of all files that count. Any task may ask."""
        head = self._head
        return sum(source.size for source in self.manifest.sources) + (head.end if head else 0)

    @property
    def has_files(self) -> bool:
        """Whether there is anything that can be sealed, merged or dropped, now or later. Any task may ask."""
        manifest = self.manifest
        return bool(manifest.segments or manifest.heads or manifest.retired)

    @property
    def retired_size(self) -> int:
        """Bytes of files that have left the history and are still on disk. Any task may ask."""
        return sum(file.size for file in self.manifest.retired)

    def write(self, chunks: Sequence[Chunk]) -> Written:
        """Append the chunks as one frame, not yet synced. When this raises, nothing was appended."""
        if self._has_let_go:
            self._take_again()
        if not self._unsynced and self._rotation_due():
            self._close_head()
        head = self._head or self._open_head()
        self._last_ts = max(self._last_ts, self._clock.time_ns())
        written = Written(self.next, sum(chunk.events for chunk in chunks), self._last_ts)
        self._append(head, written, chunks)
        self._unsynced.append((written, chunks))
        self.next += written.events
        return written

    def sync(self) -> None:
        """Make everything written durable and say so to readers. When this raises, none of it is there."""
        if not self._unsynced:
            return
        try:
            head = self._synced_head()
        except DiskError:
            self._unsynced.clear()
            self.next = self.watermark
            raise
        head.synced_end = head.end
        head.synced_ts = self._unsynced[-1][0].append_ts
        self._unsynced.clear()
        self.watermark = self.next
        self._publish_watermark()

    def adopt(self, frames: Iterable[Sequence[Chunk]], mark: Mark) -> Written:
        """Append frames and sync them: with the mark they are all there, or none of them is.

        Nothing else may be waiting for a sync. The rows are not kept for a second head: when this raises,
        the holder of the batch tries again.
        """
        assert not self._unsynced, "a batch from outside is committed by itself"
        if self._has_let_go:
            self._take_again()
        if self._rotation_due():
            self._close_head()
        head = self._head or self._open_head()
        self._last_ts = max(self._last_ts, self._clock.time_ns())
        first = self.next
        try:
            for chunks, is_last in _with_last(frames):
                written = Written(self.next, sum(chunk.events for chunk in chunks), self._last_ts)
                self._append(head, written, chunks, mark if is_last else None, CONTINUED * (not is_last))
                self.next += written.events
                reach("in-adoption")
            head.file.sync()
        except BaseException:
            # Whole frames of it may be in the file; it ends at the last good sync and is not written again.
            self._close_head()
            self.next = self.watermark
            raise
        head.synced_end, head.synced_ts = head.end, self._last_ts
        self.watermark = self.next
        self.marks = remembered(self.marks, mark)
        self._publish_watermark()
        return Written(first, self.next - first, self._last_ts)

    def rotate(self) -> None:
        """Close the head, so that it can be sealed; the next append opens another."""
        if self._head is not None and not self._unsynced:
            self._close_head()
            self._publish(self.manifest)

    def rotate_if_due(self) -> bool:
        """Close the head if it is full or old; True when it was."""
        due = self._rotation_due()
        if due:
            self.rotate()
        return due

    def rotation_due_in(self) -> float | None:
        """Seconds until the head will be old enough; None without a head. Any task may ask."""
        head = self._head
        if head is None:
            return None
        age = (self._clock.monotonic_ns() - head.born_ns) / 1e9
        return max(0.0, self.limits.head_seconds - age)

    def seal_job(self, *, ripe: bool = False) -> SealJob | None:
        """The oldest closed heads that together make one segment; damaged ones stay as they are.

        With `ripe`, small ones wait for others until they are as old as a head may become.
        """
        group: list[Head] = []
        events = size = 0
        for head in self.manifest.heads:
            end = head.next
            if end is None or self._damaged(head) or (group and group[-1].next != head.first):
                if group:
                    break
                continue
            if group and (
                events + end - head.first > self.limits.head_events
                or size + head.size > self.limits.head_bytes
            ):
                break
            group.append(head)
            events, size = events + end - head.first, size + head.size
        if not group or (ripe and not self._ripe(group, events, size)):
            return None
        name = self.new_segment_name(group[0].first, group[-1].next or 0)
        return SealJob(self.folder, name, self.manifest.partition, tuple(group))

    def _ripe(self, group: list[Head], events: int, size: int) -> bool:
        age = (self._clock.time_ns() - group[0].last_ts) / 1e9
        return (
            2 * events >= self.limits.head_events
            or 2 * size >= self.limits.head_bytes
            or age >= self.limits.head_seconds
        )

    def install(self, job: SealJob, segment: Segment) -> None:
        """List a sealed segment instead of the heads that it was made from, then remove these."""
        heads = tuple(head for head in self.manifest.heads if head not in job.heads)
        segments = sorted((*self.manifest.segments, segment), key=lambda s: s.first)
        manifest = msgspec.structs.replace(self.manifest, heads=heads, segments=tuple(segments))
        try:
            self._publish(manifest, [head.name for head in job.heads])
        except DiskError:
            self._garbage.append(segment.name)
            raise

    def substitute(self, name: str, segments: Sequence[Segment], damage: Sequence[Damage]) -> None:
        """List segments, and what is lost, instead of a file, then remove it: it was repaired."""
        manifest = self.manifest
        kept = msgspec.structs.replace(
            manifest,
            heads=tuple(head for head in manifest.heads if head.name != name),
            segments=tuple(
                sorted((*(s for s in manifest.segments if s.name != name), *segments), key=lambda s: s.first)
            ),
            damage=tuple(damage),
        )
        self._publish(kept, [name] if name else [])

    def new_segment_name(self, first: int, end: int) -> str:
        """A name that no segment has had."""
        self._generation += 1
        return segment_name(first, end, self._generation)

    def rewrite_job(self, settled: Collection[str] = ()) -> RewriteJob | None:
        """Segments that are worth rewriting; None when all may stay as they are, or were found settled."""
        limits, manifest = self.limits, self.manifest
        segments = to_compact(manifest, settled) if limits.compact else to_merge(manifest, limits, settled)
        if not segments:
            return None
        compaction = None
        if limits.compact:
            before = self._clock.time_ns() - round(limits.tombstone_seconds * 1e9)
            compaction = Compaction(before, is_complete(manifest, segments))
        self._generation += 1
        return RewriteJob(
            self.folder,
            self._generation,
            segments,
            limits.merge_events,
            largest(limits),
            max(0, manifest.next - WINDOW),
            compaction,
        )

    def replace_segments(self, job: RewriteJob, made: Sequence[Segment]) -> None:
        """List rewritten segments instead of those that they were made from, which have their grace."""
        new = {segment.name for segment in made}
        old = {segment.name for segment in job.segments}
        manifest = self.manifest
        if not old <= {segment.name for segment in manifest.segments}:
            self._garbage += new - old  # retention was faster
            return
        others = (segment for segment in manifest.segments if segment.name not in old)
        gone = [segment for segment in job.segments if segment.name not in new]
        retired, remove = retire(manifest.retired, gone, self.limits, self._clock.time_ns())
        segments = tuple(sorted((*others, *made), key=lambda segment: segment.first))
        try:
            self._publish(msgspec.structs.replace(manifest, segments=segments, retired=retired), remove)
        except DiskError:
            self._garbage += new - old
            raise

    def retain(self, places: Sequence[ConsumerPosition] = ()) -> None:
        """Drop what exceeds the limits, given how far the durable consumers are, and what had its grace."""
        now = self._clock.time_ns()
        self._drop(decide(self.manifest, places, self.limits, now=now, size=self.size))

    def purge(self, below: int) -> None:
        """Drop every file all of whose events are below an offset, whoever lacks them."""
        self._drop(decide_purge(self.manifest, below, self.limits, now=self._clock.time_ns()))

    def _drop(self, decision: Decision) -> None:
        manifest = self.manifest
        if not decision.drop and not decision.remove:
            return
        for missed in decision.overtaken:
            log.warning("%s: %s will miss offsets %d to %d", self.folder, *missed[:2], missed.next - 1)
        earliest = decision.drop[-1].next or 0 if decision.drop else manifest.earliest
        gone = {source.name for source in decision.drop}
        kept = msgspec.structs.replace(
            manifest,
            earliest=earliest,
            segments=tuple(s for s in manifest.segments if s.name not in gone),
            heads=tuple(h for h in manifest.heads if h.name not in gone),
            damage=tuple(d for d in manifest.damage if d.next > earliest),
            dropped_events=manifest.dropped_events + earliest - manifest.earliest,
            dropped_bytes=manifest.dropped_bytes + sum(source.size for source in decision.drop),
            retired=decision.retired,
        )
        self._publish(kept, decision.remove)

    def close(self) -> None:
        """Close the head and let go of the partition. What was written and not synced stays in doubt."""
        try:
            self.rotate()
        except (DiskError, PartitionInUse) as error:
            log.warning("%s: %s; the next writer will close the head", self.folder, error)
        finally:
            if self._head is not None:
                self._head.file.close()
            self._commit.close()
            if not self._has_let_go:
                self._lock.release()

    def _damaged(self, head: Head) -> bool:
        return any(damage.file == head.name for damage in self.manifest.damage)

    def _rotation_due(self) -> bool:
        head = self._head
        if head is None:
            return False
        return (
            head.end >= self.limits.head_bytes
            or self.next - head.entry.first >= self.limits.head_events
            or self._clock.monotonic_ns() - head.born_ns >= self.limits.head_seconds * 1e9
        )

    def _append(
        self,
        head: OpenHead,
        written: Written,
        chunks: Sequence[Chunk],
        mark: Mark | None = None,
        flags: int = 0,
    ) -> None:
        marks = b"" if mark is None else encode_marks([mark])
        described = head.described
        used = frozenset[bytes]().union(*(chunk.formats for chunk in chunks))
        due = sorted(format_id for format_id in used if described.get(format_id, 0) < DESCRIBED)
        kind = RUNS if any(chunk.is_run for chunk in chunks) else ROWS
        rows = sum(1 if chunk.is_run else chunk.events for chunk in chunks)
        frame = encode_frame(
            FrameMeta(*written[:2], self.epoch, written.append_ts, self.watermark, kind, flags, marks),
            [self._formats[format_id].description for format_id in due],
            rows_payload(rows, [chunk.rows for chunk in chunks]),
            head.salt,
        )
        try:
            head.file.append(*frame)
        except DiskError:
            # The next frame goes to the same position; cutting the part that got through only tidies up.
            with suppress(DiskError):
                head.file.truncate(head.end)
            raise
        head.end += sum(map(len, frame))
        head.first_ts = head.first_ts or written.append_ts
        described.update({format_id: described.get(format_id, 0) + 1 for format_id in due})

    def _synced_head(self) -> OpenHead:
        """Sync the head; if that fails, move the rows in doubt to a new one and sync that."""
        assert self._head is not None
        try:
            self._head.file.sync()
        except DiskError as error:
            log.warning("%s: %s; its unsynced rows go to a new head", self.folder, error)
            self._close_head()
        else:
            return self._head
        try:
            head = self._open_head()
            for written, chunks in self._unsynced:
                self._append(head, written, chunks)
            head.file.sync()
        except DiskError:
            self._close_head()
            raise
        return head

    def _open_head(self) -> OpenHead:
        """A new head that starts at the watermark, listed in the manifest."""
        self.settle()  # 0
        self._serial += 1
        salt = self._random.bytes(8)
        name = head_name(self.watermark, self.epoch, self._serial)
        entry = Head(name, self.watermark, self.epoch, salt=salt)
        header = HeadHeader(self.manifest.partition, salt, entry.first, self._clock.time_ns(), self.epoch)
        file = self._disk.create(f"{self.folder}/{entry.name}")
        try:
            file.append(header.encode())
            file.sync()
            self._disk.sync_folder(f"{self.folder}/{HEADS}")
            self._publish(msgspec.structs.replace(self.manifest, heads=(*self.manifest.heads, entry)))
        except BaseException:
            file.close()
            raise
        # From here on nothing may fail: the manifest says that this head is being written.
        now = self._clock.monotonic_ns()
        self._head = OpenHead(entry, file, salt, now, end=HEAD_SIZE, synced_end=HEAD_SIZE)
        return self._head

    def _close_head(self) -> None:
        """Close the head at its last good sync, in memory; the next manifest says so. Empty ones go."""
        head, self._head = self._head, None
        if head is None:
            return
        with suppress(DiskError):
            head.file.close()
        others = tuple(h for h in self.manifest.heads if h is not head.entry)
        if self.watermark == head.entry.first:
            self._garbage.append(head.entry.name)
        else:
            closed = msgspec.structs.replace(
                head.entry,
                next=self.watermark,
                size=head.synced_end,
                first_ts=head.first_ts,
                last_ts=head.synced_ts,
            )
            others = (*others, closed)
        self.manifest = msgspec.structs.replace(self.manifest, heads=others)

    def _publish(self, manifest: Manifest, unlisted: Sequence[str] = ()) -> None:
        """Publish a manifest and, now that it is safe, remove what no manifest lists any more.

        Each attempt has a generation of its own: one that failed may have reached the disk.
        """
        if self._has_let_go:
            self._take_again()
        self._generation += 1
        manifest = msgspec.structs.replace(
            manifest,
            generation=self._generation,
            next=self.watermark,
            last_ts=self._last_ts,
            marks=tuple(self.marks.values()),
        )
        manifests.publish(self._disk, self.folder, manifest)
        self.manifest = manifest
        self._publish_watermark()
        garbage, self._garbage = self._garbage, []
        for name in (*garbage, *unlisted):
            try:
                self._disk.remove(f"{self.folder}/{name}")
            except DiskError as error:
                log.warning("%s: %s; the next writer will remove it", self.folder, error)

    def _publish_watermark(self) -> None:
        """Tell readers. The rows are durable already, so a failure here delays readers only."""
        try:
            self._commit.publish(
                Commit(self.watermark, self._last_ts, self.manifest.generation, self.manifest.epoch)
            )
        except DiskError as error:
            log.warning("%s: %s; readers will see these rows with the next commit", self.folder, error)


def _with_last(frames: Iterable[Sequence[Chunk]]) -> Iterator[tuple[Sequence[Chunk], bool]]:
    """Each frame, and whether no other follows."""
    waiting: Sequence[Chunk] | None = None
    for frame in frames:
        if waiting is not None:
            yield waiting, False
        waiting = frame
    if waiting is not None:
        yield waiting, True

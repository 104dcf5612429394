"""Takes staged batches into the partition of their channel, each once.

    inbox = InboxFolder(ports)
    for name in inbox.ready():
        inbox.take_in(name, into)            # `into` gives the open partition of a channel

The steps of an adoption, numbered in the code:

    1 read the batch's manifest          4 remove the manifest, sync its folder
    2 judge it by the writer's mark      5 remove its files and what earlier attempts left
    3 append rows and mark, synced

After step 3 the batch is in the history, and consumers receive it. If the process dies before step 4, the
batch is found again, known by its mark, and only tidied up. If it dies before step 3, nothing happened.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from heliograph.errors import (
    AppendFailed,
    BadJournalFile,
    BatchRefused,
    DiskError,
    HeliographError,
    JournalClosed,
    NoSuchFile,
    WrongEventType,
)
from heliograph.journal.format.batch_marks import MAX_PAST, Mark
from heliograph.journal.format.frames import HEAD_SIZE, Frame, FrameDamage, HeadFile, HeadHeader
from heliograph.journal.format.records import RecordRun, decode_runs, encode_rows
from heliograph.journal.inbox import staging
from heliograph.journal.inbox.staging import BATCH, READY, REFUSED, STAGED, BatchRefusal, StagedBatch
from heliograph.journal.names import TEMPORARY
from heliograph.journal.writing.group_commit import FRAME_TARGET, MAX_WAITING, PartitionWriter
from heliograph.journal.writing.partition import Chunk
from heliograph.model.formats import Format, FormatRegistry
from heliograph.runtime.fault_points import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from heliograph.runtime.ports import Disk, Ports

log = logging.getLogger(__name__)

ABANDONED_SECONDS: Final = 7 * 86_400.0
"""Files of a batch that was not handed over after so long are leftovers of a program that is gone."""


class OpenPartition(NamedTuple):
    """The open partition of a channel."""

    writer: PartitionWriter
    formats: FormatRegistry
    station_seq: Callable[[], int]
    """Numbers what its station takes in."""
    carried: tuple[str, ...] = ()
    """Names of the event types that the channel was opened with; of any type while there are none."""


class InboxFolder:
    """What was handed over in one folder, for the station that keeps it. Not for several tasks at once."""

    def __init__(self, ports: Ports) -> None:
        assert ports.disk is not None
        self._disk: Disk = ports.disk
        self._clock = ports.clock

    def exists(self) -> bool:
        return self._disk.exists(READY)

    def ready(self) -> list[str]:
        """Names of the batches that wait, those of one writer in their order."""
        try:
            found = self._disk.list(READY)
        except NoSuchFile:
            return []
        return [name.removesuffix(BATCH) for name in found if name.endswith(BATCH)]

    def take_in(self, name: str, into: Callable[[StagedBatch], OpenPartition]) -> bool:
        """Take a batch in, or refuse it; False when it has to wait, because the disk or the channel does, or
        because an earlier one of its writer was refused.

        A batch that was taken in before is only tidied up.
        """
        if staging.refused_before(self._disk, name) is not None:
            return False
        try:
            batch = staging.load(self._disk, name)  # 1
            self._adopt(batch, into(batch))
            self._tidy(batch)
        except HeliographError as error:
            if not self._disk.exists(f"{READY}/{name}{BATCH}"):
                return True  # done, or taken back
            if _may_pass(error):
                log.warning("batch %s waits: %s", name, error)
                return False
            self._refuse(name, error)
        return True

    def sweep(self) -> list[str]:
        """Remove what programs that are gone have left behind; returns the names."""
        oldest = self._clock.time_ns() - round(ABANDONED_SECONDS * 1e9)
        awaited = {name.rpartition("-")[0] for name in self.ready()}
        removed = []
        for folder in self._folders():
            names = [name for name in self._disk.list(folder) if not name.endswith("/")]
            old = [name for name in names if self._created(f"{folder}/{name}") < oldest]
            if folder.rpartition("/")[2] in awaited:
                continue
            removed += [f"{folder}/{name}" for name in old]
            for name in old:
                staging.remove_quietly(self._disk, f"{folder}/{name}")
            if len(old) == len(names):
                self._remove_folder(folder)
        return removed + self._sweep_ready(oldest)

    def _sweep_ready(self, oldest: int) -> list[str]:
        """Remove refusals that no writer came for, and manifests that were begun by writers without rows."""
        keys = {folder.rpartition("/")[2] for folder in self._folders()}
        awaited = {name.rpartition("-")[0] for name in self.ready()}
        left = []
        for name in self._disk.list(READY) if self.exists() else ():
            if name.endswith(REFUSED):
                if name.rpartition("-")[0] in awaited:
                    continue  # what is behind it would follow without its rows
                refusal = staging.refusal(self._disk, name.removesuffix(REFUSED))
                if refusal is None or refusal.time < oldest:
                    left.append(name)
            elif not name.endswith(BATCH) and name.partition("-")[0] not in keys:
                left.append(name)
        for name in left:
            staging.remove_quietly(self._disk, f"{READY}/{name}")
        return [f"{READY}/{name}" for name in left]

    def _adopt(self, batch: StagedBatch, target: OpenPartition) -> None:
        mark = judged(target.writer.marks.get(batch.writer), batch)  # 2
        if mark is None:
            return
        _learn_formats(self._disk, batch, target)
        reach("before-adoption")
        frames: Iterable[list[Chunk]] = _to_append(self._disk, batch, mark, target.station_seq)
        if sum(file.size for file in batch.files) <= MAX_WAITING:
            frames = list(frames)  # so that pushes wait for the writing only
        target.writer.adopt(frames, batch.rows, mark).result()  # 3
        reach("after-adoption")

    def _tidy(self, batch: StagedBatch) -> None:
        """Nothing of the batch, or of earlier ones of its writer, is needed any more."""
        self._disk.remove(f"{READY}/{batch.name}{BATCH}")
        self._disk.sync_folder(READY)  # 4
        reach("after-unlink")
        for name in self._disk.list(READY):
            if name.startswith(batch.key) and name < batch.name and name.endswith(TEMPORARY):
                staging.remove_quietly(self._disk, f"{READY}/{name}")
        folder = f"{STAGED}/{batch.key}"
        for name in self._disk.list(folder):
            if name.partition("-")[0] <= f"{batch.number:019d}":
                staging.remove_quietly(self._disk, f"{folder}/{name}")  # 5
        if batch.once:
            self._remove_folder(folder)

    def _refuse(self, name: str, error: HeliographError) -> None:
        """Say why, where the writer looks for it, and let go of the rows."""
        log.error("batch %s is refused: %s", name, error)
        reason = error.reason if isinstance(error, BatchRefused) else str(error)
        path = f"{READY}/{name}{REFUSED}"
        staging.remove_quietly(self._disk, path)
        try:
            with self._disk.create(path) as file:
                file.append(msgspec.json.encode(BatchRefusal(self._clock.time_ns(), reason)))
                file.sync()
            try:
                staging.discard(self._disk, staging.load(self._disk, name))
            except BadJournalFile:
                log.warning("batch %s is unreadable: the sweep removes its files", name)
            self._disk.remove(f"{READY}/{name}{BATCH}")
            self._disk.sync_folder(READY)
        except DiskError as failed:
            log.warning("batch %s: %s; it is refused again later", name, failed)

    def _folders(self) -> list[str]:
        try:
            found = self._disk.list(STAGED)
        except NoSuchFile:
            return []
        return [f"{STAGED}/{name.removesuffix('/')}" for name in found if name.endswith("/")]

    def _created(self, path: str) -> int:
        """When a file of rows was begun; as if it were now for one that does not say so yet."""
        try:
            with self._disk.open(path, readonly=True) as file:
                return HeadHeader.decode(file.read_at(0, HEAD_SIZE), path).created_ts
        except (DiskError, BadJournalFile):
            return self._clock.time_ns()

    def _remove_folder(self, folder: str) -> None:
        try:
            self._disk.remove_folder(folder)
        except DiskError as error:
            log.info("%s stays: %s", folder, error)


def _may_pass(error: HeliographError) -> bool:
    """Whether the same batch may be taken in a little later."""
    if isinstance(error, AppendFailed) and isinstance(error.__cause__, HeliographError):
        return _may_pass(error.__cause__)
    return isinstance(error, JournalClosed) or (error.retriable and not isinstance(error, NoSuchFile))


def judged(known: Mark | None, batch: StagedBatch) -> Mark | None:
    """The mark with which a batch is to be taken in; None when it was before. BatchRefused says why not."""
    if known is None:
        return Mark(batch.writer, batch.nonce, batch.number, rows=batch.rows, once=batch.once)
    if known.nonce == batch.nonce:
        if batch.number <= known.batch:
            return None
        return msgspec.structs.replace(known, batch=batch.number, rows=known.rows + batch.rows)
    if batch.nonce in known.past:
        raise BatchRefused(
            batch.writer,
            batch.number,
            f"its checkpoint {batch.nonce} was replaced by {known.nonce}: stop this query, or give it "
            "another writerId",
        )
    if not batch.accepts_new:
        raise BatchRefused(
            batch.writer,
            batch.number,
            f"its checkpoint {batch.nonce} is new, and batches up to {known.batch} came with {known.nonce}. "
            "Go on with that checkpoint; or set the option newCheckpoint=accept, and what the new one "
            "repeats is written again; or choose another writerId",
        )
    return Mark(
        batch.writer,
        batch.nonce,
        batch.number,
        generation=known.generation + 1,
        rows=batch.rows,
        past=(*known.past, known.nonce)[-MAX_PAST:],
    )


def _learn_formats(disk: Disk, batch: StagedBatch, target: OpenPartition) -> None:
    """Look at every byte before the first is appended, and register the formats on the way.

    WrongEventType for events of a type that the channel does not carry, as when they are pushed.
    """
    for file in batch.files:
        rows = 0
        for frame in _frames(disk, batch, file.name):
            rows += frame.events
            for description in frame.descriptions():
                fmt = Format.from_description(description)
                if target.carried and fmt.name not in target.carried:
                    raise WrongEventType(batch.channel, fmt.name, target.carried)
                target.formats.register(fmt)
        if rows != file.rows:
            raise BadJournalFile(file.name, f"it has {rows} rows, and should have {file.rows}")


def _frames(disk: Disk, batch: StagedBatch, name: str) -> Iterator[Frame]:
    """The frames of a file of rows; BadJournalFile when one is damaged."""
    path = f"{STAGED}/{batch.key}/{name}"
    with closing(disk.open(path, readonly=True)) as file:
        for frame in HeadFile(file, bytes.fromhex(batch.key)).frames():
            if isinstance(frame, FrameDamage):
                raise BadJournalFile(path, f"at byte {frame.position} {frame.reason}")
            yield frame


def _to_append(
    disk: Disk, batch: StagedBatch, mark: Mark, station_seq: Callable[[], int]
) -> Iterator[list[Chunk]]:
    """The rows as they will stand in the journal, in as few frames as readers like."""
    sequence = mark.rows - batch.rows + 1
    waiting: list[Chunk] = []
    size = 0
    for frame in (frame for file in batch.files for frame in _frames(disk, batch, file.name)):
        for staged in _runs(frame):
            places = [station_seq() for _ in range(len(staged))]
            run = msgspec.structs.replace(
                staged,
                supplier=mark.writer,
                epoch=mark.generation,
                sequence=sequence,
                station_seq=places[0] if places[-1] - places[0] == len(places) - 1 else places,
            )
            rows = encode_rows([run])
            if waiting and size + len(rows) > FRAME_TARGET:
                yield waiting
                waiting, size = [], 0
            waiting.append(Chunk(len(run), rows, frozenset({run.format_id}), is_run=True))
            sequence, size = sequence + len(run), size + len(rows)
    yield waiting


def _runs(frame: Frame) -> list[RecordRun]:
    try:
        return decode_runs(frame.payload)
    except msgspec.MsgspecError as error:
        raise BadJournalFile("a staged file", f"its rows cannot be read: {error}") from None

"""Stages batches for a journal: how a program that does not keep the folder (Spark) hands rows over.

<folder>/inbox/staged/<key>/<batch>-....rows      rows, written by many processes at a time
<folder>/inbox/ready/<key>-<batch>.batch          a batch: which of these files it consists of
<folder>/inbox/ready/<key>-<batch>.refused        why it was not taken in

A key stands for one writer with one checkpoint on one channel. The steps, numbered in the code:

    1 write rows to a new file and sync it        3 rename it to its name
    2 write the batch's manifest and sync it      4 sync the folder

From step 4 on the batch is handed over: it is durable, and the station that keeps the folder takes it in
(`heliograph.journal.inbox.adoption`). What is interrupted before leaves files that no manifest lists.

A file of rows is built as a head is (`heliograph.journal.format.frames`), so that every byte of it is covered
by a checksum; its partition is the key.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import msgspec

from heliograph.errors import BadJournalFile, BatchRefused, BatchTooLarge, DiskError, NoSuchFile
from heliograph.journal.folders import make_folder
from heliograph.journal.format import checksummed_file as wholefile
from heliograph.journal.format.frames import RUNS, FrameMeta, HeadHeader, encode_frame
from heliograph.journal.format.records import RecordRun, encode_rows, rows_payload
from heliograph.journal.names import TEMPORARY
from heliograph.journal.writing.group_commit import MAX_APPEND_BYTES
from heliograph.runtime.fault_points import reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.model.formats import Format
    from heliograph.runtime.ports import Disk, File, Ports

INBOX: Final = "inbox"
READY: Final = f"{INBOX}/ready"
STAGED: Final = f"{INBOX}/staged"
BATCH: Final = ".batch"
REFUSED: Final = ".refused"

MAX_BATCH_EVENTS: Final = 4 << 20
MAX_BATCH_BYTES: Final = 512 << 20
"""One batch becomes visible at once, and pushes to its channel wait meanwhile."""

MAX_MANIFEST: Final = 64 << 20
TRIES: Final = 10
"""How often the folder of a new file may be removed before it is there."""
_KIND: Final = wholefile.Kind(b"HELIOBAT", 1, MAX_MANIFEST, "batch")


class StagedFile(msgspec.Struct, array_like=True, frozen=True):
    """A file of rows."""

    name: str
    """Within the folder of its key."""
    rows: int
    size: int


class StagedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What is handed over at once; written as a map, so that fields can be added."""

    channel: str
    writer: str
    nonce: str
    """Says which checkpoint of the writer counts its batches; of a run, which run it is."""
    number: int
    files: tuple[StagedFile, ...]
    once: bool = False
    """A run: its writer has no other batch."""
    accepts_new: bool = False
    """Whether another checkpoint than before may go on under the name of the writer."""
    creates: bool = False
    """Whether the channel need not be there yet."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def key(self) -> str:
        return key_of(self.channel, self.writer, self.nonce)

    @property
    def name(self) -> str:
        """Under which it is found in the folder of what is ready, without its ending."""
        return f"{self.key}-{self.number:019d}"


class BatchRefusal(msgspec.Struct, frozen=True):
    """Why a batch was not taken in; as JSON, for people who look."""

    time: int
    reason: str


def refusal(disk: Disk, name: str) -> BatchRefusal | None:
    """Why the batch of that name was refused; None when it was not."""
    try:
        return msgspec.json.decode(disk.read(f"{READY}/{name}{REFUSED}"), type=BatchRefusal)
    except (NoSuchFile, msgspec.MsgspecError):
        return None


def refused_before(disk: Disk, name: str) -> str | None:
    """The first batch of the same writer and checkpoint that was refused before the one of that name.

    It has to be handed over again before anything that follows it, or its rows would be missing for ever.
    """
    key = name.rpartition("-")[0]
    found = (other.removesuffix(REFUSED) for other in disk.list(READY) if other.endswith(REFUSED))
    return min((other for other in found if other.startswith(f"{key}-") and other < name), default=None)


def key_of(channel: str, writer: str, nonce: str) -> str:
    """What stands for a writer with its checkpoint in names of files."""
    parts = msgspec.msgpack.encode([channel, writer, nonce])
    return hashlib.blake2b(parts, digest_size=16).hexdigest()


def make_inbox(disk: Disk) -> None:
    """The folders through which batches are handed over."""
    for folder in (INBOX, READY, STAGED):
        make_folder(disk, folder)


class StageWriter:
    """Writes one file of rows; left by an exception, it removes it.

    Args:
        ports: with the disk of the folder.
        key: see `key_of`.
        number: of the batch.
        attempt: tells apart attempts to write the same rows; a random part is added.
    """

    def __init__(self, ports: Ports, key: str, number: int, attempt: str) -> None:
        assert ports.disk is not None
        self._disk: Disk = ports.disk
        self._now = ports.clock.time_ns
        self._folder = f"{STAGED}/{key}"
        self._name = f"{number:019d}-{attempt}-{ports.random.id64():016x}.rows"
        self._salt = ports.random.bytes(8)
        self._rows = 0
        self._formats: set[bytes] = set()
        self._file = self._created(f"{self._folder}/{self._name}")
        header = HeadHeader(bytes.fromhex(key), self._salt, 0, self._now(), 0)
        self._size = len(header.encode())
        self._file.append(header.encode())

    def _created(self, path: str) -> File:
        """The adoption of batches removes folders that are empty, also one that was made this instant."""
        for _ in range(TRIES):
            with suppress(NoSuchFile):
                return self._disk.create(path)
            make_folder(self._disk, self._folder)
        return self._disk.create(path)

    def add(self, fmt: Format, bodies: list[bytes], priority: int = 3) -> None:
        """Append events of one format as one frame."""
        self.add_runs(fmt, [RecordRun("", 0, 0, self._now(), fmt.id, bodies, priority)])

    def add_runs(self, fmt: Format, runs: Sequence[RecordRun]) -> None:
        """The same for events that do not all have one time, priority and headers."""
        now, events = self._now(), sum(map(len, runs))
        payload = rows_payload(len(runs), [encode_rows(runs)])
        if len(payload) > MAX_APPEND_BYTES:
            raise BatchTooLarge(len(payload), MAX_APPEND_BYTES, "bytes")
        described = [] if fmt.id in self._formats else [fmt.description]
        self._formats.add(fmt.id)
        meta = FrameMeta(self._rows, events, 0, now, 0, RUNS)
        frame = encode_frame(meta, described, payload, self._salt)
        self._size += sum(map(len, frame))
        self._rows += events
        check_size(self._rows, self._size)
        self._file.append(*frame)

    def finish(self) -> StagedFile:
        """The file is whole and will be there after a power loss."""
        self._file.sync()
        self._file.close()
        self._disk.sync_folder(self._folder)  # 1
        reach("after-staging")
        return StagedFile(self._name, self._rows, self._size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        if failed is not None:
            remove_quietly(self._disk, f"{self._folder}/{self._name}")


def check_size(rows: int, size: int) -> None:
    """BatchTooLarge when so much cannot become visible at once."""
    if rows > MAX_BATCH_EVENTS:
        raise BatchTooLarge(rows, MAX_BATCH_EVENTS, "events")
    if size > MAX_BATCH_BYTES:
        raise BatchTooLarge(size, MAX_BATCH_BYTES, "bytes")


def hand_over(ports: Ports, batch: StagedBatch) -> None:
    """Publish a batch. One that is there whole under the same number stays: it holds the same rows.

    Raises BatchRefused when an earlier one of its writer was refused, and has not been handed over again.
    """
    disk = ports.disk
    assert disk is not None
    check_size(batch.rows, sum(file.size for file in batch.files))
    missing = refused_before(disk, batch.name)
    if missing is not None:
        refused = refusal(disk, missing)
        reason = "its reason cannot be read" if refused is None else refused.reason
        raise BatchRefused(
            batch.writer,
            int(missing.rpartition("-")[2]),
            f"{reason}. Batch {batch.number} cannot follow it: write that batch again, or "
            f"go on without its rows by removing {READY}/{missing}{REFUSED}",
        )
    remove_quietly(disk, f"{READY}/{batch.name}{REFUSED}")
    if _is_whole(disk, batch.name):
        withdraw(disk, batch)
        return
    temporary = f"{READY}/{batch.name}-{ports.random.id64():016x}{TEMPORARY}"
    reach("before-manifest")
    with disk.create(temporary) as file:
        file.append(*wholefile.pack(_KIND, batch))
        file.sync()  # 2
    reach("in-manifest")
    disk.rename(temporary, f"{READY}/{batch.name}{BATCH}")  # 3
    disk.sync_folder(READY)  # 4
    reach("after-manifest")


def load(disk: Disk, name: str) -> StagedBatch:
    """The batch of that name; NoSuchFile when it is not, or no longer, there."""
    path = f"{READY}/{name}{BATCH}"
    batch = wholefile.load(_KIND, disk, path, StagedBatch)
    if batch.name != name:
        raise BadJournalFile(path, f"it belongs under the name {batch.name}")
    return batch


def _is_whole(disk: Disk, name: str) -> bool:
    """Whether the batch of that name is there with its files."""
    try:
        batch = load(disk, name)
    except (NoSuchFile, BadJournalFile):
        return False
    return all(disk.exists(f"{STAGED}/{batch.key}/{file.name}") for file in batch.files)


def withdraw(disk: Disk, batch: StagedBatch) -> None:
    """Remove the files of an attempt at a batch, except those that have been handed over: these are no longer
    their writer's to remove, whatever it was told.
    """
    try:
        kept = {file.name for file in load(disk, batch.name).files}
    except NoSuchFile:
        kept = set()
    except BadJournalFile:
        return  # it may list any of them
    ours = tuple(file for file in batch.files if file.name not in kept)
    discard(disk, msgspec.structs.replace(batch, files=ours))


def discard(disk: Disk, batch: StagedBatch) -> None:
    """Remove the files of a batch that will not be taken in."""
    for file in batch.files:
        remove_quietly(disk, f"{STAGED}/{batch.key}/{file.name}")


def remove_quietly(disk: Disk, name: str) -> None:
    """Remove a leftover if it is there; one that stays is swept later."""
    try:
        disk.remove(name)
    except DiskError:
        return

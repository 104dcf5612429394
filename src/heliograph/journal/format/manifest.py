"""The manifest: which files a partition consists of, replaced as a whole.

Readers take files from here and from nowhere else. A file is complete and synced before a manifest lists it,
and is removed only after a manifest without it has been published; so whichever manifest a reader or a
recovery finds, old or new, describes a whole history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.errors import FileExists, NoSuchFile
from heliograph.journal.format import checksummed_file as wholefile
from heliograph.journal.format.batch_marks import Mark  # noqa: TC001 - msgspec reads the annotations of a manifest
from heliograph.journal.format.frames import HeadHeader
from heliograph.journal.names import MANIFEST, TEMPORARY
from heliograph.model.history_epochs import Epochs  # noqa: TC001 - msgspec reads the annotations of a manifest

if TYPE_CHECKING:
    from heliograph.runtime.ports import Disk, File

MAX_SIZE: Final = 64 << 20

KIND: Final = wholefile.Kind(b"HELIOMAN", 1, MAX_SIZE, "manifest")


class Head(msgspec.Struct, array_like=True, frozen=True):
    """A head file. While it is being written only its beginning is known."""

    name: str
    first: int
    epoch: int
    next: int | None = None
    """Behind its last row; None while it is being written."""
    size: int = 0
    """Bytes that count; what follows them in the file does not."""
    first_ts: int = 0
    last_ts: int = 0
    salt: bytes = b""
    """That of its header: with it the frames can be read though the header is damaged."""

    def header(self, partition: bytes) -> HeadHeader | None:
        """What the file begins with, but for the time; None when this was written without the salt."""
        return HeadHeader(partition, self.salt, self.first, 0, self.epoch) if self.salt else None


class Segment(msgspec.Struct, array_like=True, frozen=True):
    """A sealed file."""

    name: str
    first: int
    next: int
    size: int
    first_ts: int
    last_ts: int
    formats: tuple[bytes, ...] = ()
    """Ids of the formats in it."""
    crc: int = 0
    """CRC32C of the file."""
    rows: int | None = None
    """How many of its offsets still have a row; None: all. Compaction leaves some out."""
    pieces: tuple[tuple[int, int], ...] = ()
    """Where each row group ends, then the footer and its copy, and the CRC32C of that piece."""

    @property
    def events(self) -> int:
        return self.next - self.first if self.rows is None else self.rows


class Retired(msgspec.Struct, array_like=True, frozen=True):
    """A file that no longer belongs to the history, and stays on disk for a while.

    A reader may have planned with an earlier manifest, and reads only now.
    """

    name: str
    size: int
    left_ts: int
    """When it left."""
    segment: Segment | None = None
    """What it was, for readers that are behind and ask for its offsets; older manifests do not say."""


class Damage(msgspec.Struct, array_like=True, frozen=True):
    """Offsets that were durable and cannot be read any more."""

    first: int
    next: int
    file: str
    reason: str
    accepted: bool = False
    """The partition was repaired knowing of it."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a partition at one instant. Written as a map, so that fields can be added."""

    partition: bytes
    generation: int = 0
    """Counts the manifests of the partition."""
    epoch: int = 0
    """Counts the writers that the partition has had."""
    next: int = 0
    """Everything below was durable when this was written; no offset below is ever given out again."""
    last_ts: int = 0
    """The latest append_ts that is known to be used."""
    earliest: int = 0
    """The first offset that retention has left."""
    segments: tuple[Segment, ...] = ()
    heads: tuple[Head, ...] = ()
    damage: tuple[Damage, ...] = ()
    dropped_events: int = 0
    dropped_bytes: int = 0
    """What retention has removed so far."""
    marks: tuple[Mark, ...] = ()
    """The newest of each writer from outside below `next`; whose was used last comes last."""
    retired: tuple[Retired, ...] = ()
    epochs: Epochs = msgspec.field(default=(), name="lives")  # as it is called in files
    """Which writers wrote it, the last ones: see `heliograph.model.history_epochs`."""

    @property
    def sources(self) -> list[Segment | Head]:
        """All files with rows, by their offsets."""
        everything: list[Segment | Head] = [*self.segments, *self.heads]
        return sorted(everything, key=lambda source: source.first)


def load(disk: Disk, folder: str) -> Manifest:
    """The manifest of a partition; NoSuchFile when there is none."""
    return wholefile.load(KIND, disk, f"{folder}/{MANIFEST}", Manifest)


def _created(disk: Disk, name: str) -> File:
    try:
        return disk.create(name)
    except FileExists:
        disk.remove(name)  # left by an attempt that failed
        return disk.create(name)


def files_in(disk: Disk, folder: str, inner: str) -> tuple[str, ...]:
    """The names in one of a partition's own folders, which is made before its first row."""
    try:
        return disk.list(f"{folder}/{inner}")
    except NoSuchFile:
        return ()


def publish(disk: Disk, folder: str, manifest: Manifest, *, sync: bool = True) -> None:
    """Replace the manifest. When this raises, the old or the new one may be found afterwards.

    Without `sync`, for a partition that has promised nothing yet, a power loss may leave anything of it.
    """
    temporary = f"{folder}/{MANIFEST}-{manifest.generation:08x}{TEMPORARY}"
    with _created(disk, temporary) as file:
        file.append(*wholefile.pack(KIND, manifest))
        if sync:
            file.sync()
    disk.rename(temporary, f"{folder}/{MANIFEST}")
    if sync:
        disk.sync_folder(folder)

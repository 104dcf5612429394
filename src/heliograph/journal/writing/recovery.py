"""Recovery, before the first append of a writer: what the last writer left is checked and completed.

Nothing but the tail of the one open head can be in doubt, because files are complete and synced before a
manifest lists them as closed. A bad frame there is a *torn tail* when nobody can have been told that its rows
were durable: it does not count. Otherwise it is *damage*: its offsets are written down in the manifest,
readers are told of exactly these, and the history goes on behind them. Repairing is somebody's decision.

A good frame at the end that nobody was promised is kept, because its rows may have been acknowledged as
appended; it is copied into a new head and synced there. The old file is neither written nor synced again.
Only the frames of a batch from outside whose last one is missing do not count: nobody was told of them.

Recovery changes nothing that it could not do again: it may be interrupted anywhere and repeated.

A new partition is made without a single sync: nobody was promised anything yet. Its writer syncs all names
before it lists the first head. So a power loss may leave any part of one, and a manifest that cannot be read;
where there are no files and no promise beside it, it is made anew.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from heliograph.errors import BadJournalFile, NoSuchFile
from heliograph.journal.format import commit_file as commitfile
from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.batch_marks import remembered
from heliograph.journal.format.frames import FrameMeta, HeadHeader, encode_frame
from heliograph.journal.format.manifest import Damage, Head, Manifest
from heliograph.journal.names import HEADS, MANIFEST, SEALED, TEMPORARY, head_name
from heliograph.journal.writing.head_scan import TailScan
from heliograph.model.history_epochs import with_next

if TYPE_CHECKING:
    from heliograph.runtime.ports import Disk, Random


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found and done when a writer opened a partition."""

    cut_bytes: int = 0
    """Length of the torn tail, which no longer counts."""
    damage: tuple[Damage, ...] = ()
    """Ranges that this recovery found; earlier ones are in the manifest."""
    removed: tuple[str, ...] = ()
    """Files that no manifest lists."""


def found_or_made(disk: Disk, folder: str, random: Random, *, is_new: bool = False) -> tuple[Manifest, bool]:
    """The manifest of a partition, and whether it was made, because there was none yet.

    Nothing is looked for in a folder that is new: that would be most of what it costs to open one.
    """
    if not is_new:
        found = _found(disk, folder)
        if found is not None:
            return found, False
    first = Manifest(partition=random.bytes(16), generation=1, epoch=1, epochs=with_next((), 0, random))
    commitfile.create(disk, folder, first.partition, sync=False)
    manifests.publish(disk, folder, first, sync=False)
    return first, True


def _found(disk: Disk, folder: str) -> Manifest | None:
    try:
        return manifests.load(disk, folder)
    except NoSuchFile:
        if _has_files(disk, folder):
            reason = "it is missing, but there are files that it should list"
            raise BadJournalFile(f"{folder}/{MANIFEST}", reason) from None
    except BadJournalFile:
        if _has_files(disk, folder) or _promised(disk, folder):
            raise
    return None


def is_settled(manifest: Manifest) -> bool:
    """Whether the partition has had rows, and its names were synced; else it may be as it was made."""
    return bool(manifest.next or manifest.heads or manifest.segments or manifest.marks)


def _has_files(disk: Disk, folder: str) -> bool:
    return bool(manifests.files_in(disk, folder, HEADS) or manifests.files_in(disk, folder, SEALED))


def _promised(disk: Disk, folder: str) -> int:
    """The watermark in the commit file; 0 when that is lost or was never written."""
    try:
        view = commitfile.CommitView(disk, folder)
    except (NoSuchFile, BadJournalFile):
        return 0
    with closing(view):
        return view.watermark()


def recover(disk: Disk, folder: str, manifest: Manifest, random: Random) -> tuple[Manifest, Recovery]:
    """The manifest with every head closed, to be published, and what was done. Rows it counts are durable."""
    commit = _last_commit(disk, folder, manifest)
    if commit.generation > manifest.generation:
        # Going by it, everything that was written since would be swept away.
        reason = f"it is number {manifest.generation}, and {commit.generation} was published"
        raise BadJournalFile(f"{folder}/{MANIFEST}", f"{reason}: an old one has been put in its place")
    floor = max(manifest.next, commit.watermark)
    heads: list[Head] = []
    damage: list[Damage] = []
    marks = {mark.writer: mark for mark in manifest.marks}
    end, last_ts, cut = floor, max(manifest.last_ts, commit.append_ts), 0
    for head in manifest.heads:
        if head.next is not None:
            heads.append(head)
            continue
        with closing(TailScan(disk, folder, head, manifest.partition, floor)) as survey:
            if survey.next > head.first:
                heads.append(survey.entry())
            if survey.doubt:
                heads.append(_rescued(disk, folder, manifest, survey, random))
            cut += survey.torn
        damage += survey.damage
        for mark in survey.marks:
            marks = remembered(marks, mark)
        if heads:
            end, last_ts = max(end, heads[-1].next or 0), max(last_ts, heads[-1].last_ts)
    closed = msgspec.structs.replace(
        manifest,
        heads=tuple(heads),
        damage=(*manifest.damage, *damage),
        next=end,
        last_ts=last_ts,
        marks=tuple(marks.values()),
    )
    return closed, Recovery(cut, tuple(damage))


def _rescued(disk: Disk, folder: str, manifest: Manifest, survey: TailScan, random: Random) -> Head:
    """A closed head with copies of the frames that are there but were never promised.

    The file they are in may have failed a sync, after which another would prove nothing.
    """
    first, epoch, salt = survey.doubt[0].base, manifest.epoch + 1, random.bytes(8)
    name = head_name(first, epoch, 0)
    with suppress(NoSuchFile):
        disk.remove(f"{folder}/{name}")  # left by a recovery that was interrupted
    header = HeadHeader(manifest.partition, salt, first, survey.doubt[0].append_ts, epoch)
    buffers = [header.encode()]
    descriptions = list(dict.fromkeys(survey.descriptions))
    for frame in survey.doubt:
        kept = frame.kind, frame.flags, bytes(frame.marks)
        meta = FrameMeta(frame.base, frame.events, epoch, frame.append_ts, first, *kept)
        buffers += encode_frame(meta, descriptions, bytes(frame.payload), salt)
    with disk.create(f"{folder}/{name}") as file:
        file.append(*buffers)
        file.sync()
    disk.sync_folder(f"{folder}/{HEADS}")
    times = survey.doubt[0].append_ts, survey.doubt[-1].append_ts
    return Head(name, first, epoch, survey.doubt[-1].next, sum(map(len, buffers)), *times, salt)


def sweep(disk: Disk, folder: str, manifest: Manifest) -> tuple[str, ...]:
    """Remove temporary files, and heads and segments that the manifest does not list."""
    listed = {source.name for source in manifest.sources} | {file.name for file in manifest.retired}
    found = [name for name in disk.list(folder) if name.endswith(TEMPORARY)]
    for inner in (HEADS, SEALED):
        names = (f"{inner}/{name}" for name in manifests.files_in(disk, folder, inner))
        found += [name for name in names if name not in listed]
    for name in found:
        with suppress(NoSuchFile):
            disk.remove(f"{folder}/{name}")
    return tuple(found)


def _last_commit(disk: Disk, folder: str, manifest: Manifest) -> commitfile.Commit:
    """What the commit file promises. Where it is lost, a new one is made: frames carry the promise too."""
    try:
        view = commitfile.CommitView(disk, folder)
    except (NoSuchFile, BadJournalFile):
        view = None
    if view is not None and view.partition == manifest.partition:
        found = view.current()
        view.close()
        return found
    commitfile.create(disk, folder, manifest.partition)
    disk.sync_folder(folder)
    return commitfile.NOTHING

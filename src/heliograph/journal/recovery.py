"""What a writer does before its first append: find out what the last one left.

Nothing but the tail of the one open head can be in doubt, because files are complete and synced before a
manifest lists them as closed. A bad frame there is a *torn tail* when nobody can have been told that its rows
were durable: it does not count. Otherwise it is *damage*: its offsets are written down in the manifest,
readers are told of exactly these, and the history goes on behind them. Repairing is somebody's decision.

A good frame at the end that nobody was promised is kept, because its rows may have been acknowledged as
appended; it is copied into a new head and synced there. The old file is neither written nor synced again.
Only the frames of a batch from outside whose last one is missing do not count: nobody was told of them.

Recovery changes nothing that it could not do again: it may be interrupted anywhere and repeated.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from heliograph.errors import BadJournalFile, FileExists, NoSuchFile
from heliograph.journal import commitfile
from heliograph.journal import manifest as manifests
from heliograph.journal.frames import FrameMeta, HeadHeader, encode_frame
from heliograph.journal.manifest import Damage, Head, Manifest
from heliograph.journal.marks import remembered
from heliograph.journal.names import HEADS, MANIFEST, SEALED, TEMPORARY, head_name
from heliograph.journal.survey import Survey

if TYPE_CHECKING:
    from heliograph.ports import Disk, Random


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found and done when a writer opened a partition."""

    cut_bytes: int = 0
    """Length of the torn tail, which no longer counts."""
    damage: tuple[Damage, ...] = ()
    """Ranges that this recovery found; earlier ones are in the manifest."""
    removed: tuple[str, ...] = ()
    """Files that no manifest lists."""


def make_folder(disk: Disk, name: str) -> None:
    """A folder whose name survives a power loss, whoever made it."""
    with suppress(FileExists):
        disk.make_folder(name)
    disk.sync_folder(name.rpartition("/")[0])


def found_or_made(disk: Disk, folder: str, random: Random) -> Manifest:
    """The manifest of a partition, which is made if there is none yet."""
    for name in (f"{folder}/{HEADS}", f"{folder}/{SEALED}"):
        make_folder(disk, name)
    try:
        return manifests.load(disk, folder)
    except NoSuchFile:
        pass
    if disk.list(f"{folder}/{HEADS}") or disk.list(f"{folder}/{SEALED}"):
        raise BadJournalFile(f"{folder}/{MANIFEST}", "it is missing, but there are files that it should list")
    first = Manifest(partition=random.bytes(16))
    commitfile.create(disk, folder, first.partition)
    manifests.publish(disk, folder, first)
    return first


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
        with closing(Survey(disk, folder, head, manifest.partition, floor)) as survey:
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


def _rescued(disk: Disk, folder: str, manifest: Manifest, survey: Survey, random: Random) -> Head:
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
        names = (f"{inner}/{name}" for name in disk.list(f"{folder}/{inner}"))
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

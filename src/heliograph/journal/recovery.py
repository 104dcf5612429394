"""What a writer does before its first append: find out what the last one left.

Nothing but the tail of the one open head can be in doubt, because files are complete and synced before a
manifest lists them as closed. A bad frame there is a *torn tail* when nobody can have been told that its rows
were durable: it is cut off. Otherwise it is *damage*: its offsets are written down in the manifest, readers
are told of exactly these, and the history goes on behind them. Repairing is somebody's decision, not ours.

Recovery changes nothing that it could not do again: it may be interrupted anywhere and repeated.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from heliograph.errors import BadJournalFile, FileExists, NoSuchFile
from heliograph.journal import commitfile
from heliograph.journal import manifest as manifests
from heliograph.journal.frames import HEAD_SIZE, Frame, HeadFile
from heliograph.journal.manifest import Damage, Head, Manifest
from heliograph.journal.names import HEADS, MANIFEST, SEALED, TEMPORARY

if TYPE_CHECKING:
    from heliograph.ports import Disk, Random


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found and done when a writer opened a partition."""

    cut_bytes: int = 0
    """Length of the torn tail."""
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


def recover(disk: Disk, folder: str, manifest: Manifest) -> tuple[Manifest, Recovery]:
    """The manifest with every head closed, to be published, and what was done. Rows it counts are synced."""
    commit = _last_commit(disk, folder, manifest)
    floor = max(manifest.next, commit.watermark)
    heads: list[Head] = []
    damage: list[Damage] = []
    end, last_ts, cut = floor, max(manifest.last_ts, commit.append_ts), 0
    for head in manifest.heads:
        if head.next is not None:
            heads.append(head)
            continue
        survey = Survey(disk, folder, head, manifest.partition, floor)
        cut += survey.close()
        damage += survey.damage
        end, last_ts = max(end, survey.next), max(last_ts, survey.last_ts)
        if survey.next > head.first:
            heads.append(survey.entry())
    closed = msgspec.structs.replace(
        manifest, heads=tuple(heads), damage=(*manifest.damage, *damage), next=end, last_ts=last_ts
    )
    return closed, Recovery(cut, tuple(damage))


def sweep(disk: Disk, folder: str, manifest: Manifest) -> tuple[str, ...]:
    """Remove temporary files, and heads and segments that the manifest does not list."""
    listed = {head.name for head in manifest.heads} | {segment.name for segment in manifest.segments}
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


class Survey:
    """Goes through an open head, frame by frame, and decides what of it stays."""

    def __init__(self, disk: Disk, folder: str, head: Head, partition: bytes, floor: int) -> None:
        self.head = head
        self.next = head.first
        self.first_ts = 0
        self.last_ts = 0
        self.damage: list[Damage] = []
        self._good_end = HEAD_SIZE
        self._floor = floor
        self._file = disk.open(f"{folder}/{head.name}")
        try:
            self._frames = HeadFile(self._file, partition)
            self._walk()
        except BaseException:
            self._file.close()
            raise

    def entry(self) -> Head:
        """The head, closed behind its last good frame."""
        return msgspec.structs.replace(
            self.head, next=self.next, size=self._good_end, first_ts=self.first_ts, last_ts=self.last_ts
        )

    def close(self) -> int:
        """Cut the tail, sync what stays, and return how many bytes were cut."""
        with self._file as file:
            cut = file.size() - self._good_end
            if cut:
                file.truncate(self._good_end)
            file.sync()
        return cut

    def _walk(self) -> None:
        position = HEAD_SIZE
        while True:
            found = self._frames.frame(position)
            if isinstance(found, Frame) and found.base == self.next:
                self._accept(found)
                position = found.end
                continue
            self._floor = max(self._floor, self._promised_behind(position))
            if self.next >= self._floor:
                return
            position = self._over_damage(
                position, "no good frame" if isinstance(found, Frame) else found.reason
            )
            if position < 0:
                return

    def _accept(self, frame: Frame) -> None:
        self.first_ts = self.first_ts or frame.append_ts
        self.last_ts = frame.append_ts
        self.next = frame.next
        self._good_end = frame.end
        self._floor = max(self._floor, frame.durable)

    def _promised_behind(self, position: int) -> int:
        """The highest watermark that any good frame behind a bad one speaks of."""
        promised = 0
        while (frame := self._frames.resync(position + 1, self.next)) is not None:
            promised = max(promised, frame.durable)
            position = frame.end - 1
        return promised

    def _over_damage(self, position: int, reason: str) -> int:
        """Write down which offsets are lost; returns where the history goes on, or -1."""
        following = self._frames.resync(position + 1, self.next)
        if following is None or following.base > self._floor:
            end, goes_on = self._floor, -1
        else:
            end, goes_on = following.base, following.position
        if end > self.next:
            self.damage.append(Damage(self.next, end, self.head.name, f"{reason} at byte {position}"))
        self.next = end
        return goes_on

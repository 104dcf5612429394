"""Puts a damaged partition in order, on request.

    plan = plan_repair(disk, folder, random)    reads everything, changes nothing
    print(*plan.steps, sep="\n")                what would be done
    repair(ports, folder)                       does it

Nothing that could be read before is lost by it, and whatever is taken away is kept aside first, in
`damaged-<generation>/` beside the files. The steps, numbered in the code:

    1 find out what is wrong                          4 let a writer recover as it always does
    2 keep aside what is about to be replaced         5 write what can be read of a damaged file as new ones
    3 publish a manifest that a writer can open       6 write down what is lost, as accepted

Interrupted anywhere it is begun again: until a manifest replaces it, a file stays where it was.
"""

from __future__ import annotations

import logging
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from heliograph.errors import (
    BadJournalFile,
    FileExists,
    FileLocked,
    FolderInUse,
    HistoryDamaged,
    NoSuchFile,
    PartitionInUse,
    UnknownFormat,
)
from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.frames import HEAD_SIZE, HeadHeader
from heliograph.journal.format.manifest import Damage, Head, Manifest, Segment
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.seal import install_file
from heliograph.journal.names import COMMIT, HEADS, LOCK, MANIFEST, SEALED
from heliograph.journal.reading.head_reader import HeadReader
from heliograph.journal.reading.segment_reader import SegmentReader, is_whole
from heliograph.journal.tools.inspection import VerifiedRange
from heliograph.journal.tools.rebuild import described, last_promise, rebuilt
from heliograph.journal.writing.head_scan import TailScan
from heliograph.journal.writing.partition import WritablePartition
from heliograph.model.formats import FormatRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.journal.format.records import Rows
    from heliograph.journal.reading.reader import RowFile
    from heliograph.runtime.ports import Disk, Ports, Random

log = logging.getLogger(__name__)

ASIDE: Final = "damaged"
COPIED_AT_ONCE: Final = 4 << 20
JUMP: Final = 1 << 22
"""Offsets that are passed over behind a head that is lost: so many it cannot have given out, so that none is
given out again."""


class DamagedFile(NamedTuple):
    """A file with something wrong in it."""

    entry: Head | Segment
    lost: tuple[VerifiedRange, ...]
    """Offsets that it should hold and that cannot be read."""
    remark: str | None

    def __str__(self) -> str:
        if not self.lost:
            return f"write {self.entry.name} anew: {self.remark}"
        ranges = ", ".join(f"{lost.first} to {lost.next - 1}" for lost in self.lost)
        return f"write what can be read of {self.entry.name} anew, without offsets {ranges}: " + (
            self.lost[0].reason
        )


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What is wrong with a partition, and what `repair` will do about it."""

    folder: str
    manifest: Manifest
    """To begin with."""
    published: bool
    """Whether it is the one on disk."""
    beginning: tuple[str, ...]
    """What is done before a writer can open the partition."""
    findings: tuple[DamagedFile, ...]
    damage: tuple[Damage, ...]
    """What the manifest says is lost, and was not accepted yet."""
    unused: tuple[str, ...] = ()
    """Files that a new manifest would not list."""

    @property
    def steps(self) -> tuple[str, ...]:
        """One sentence for each thing that is done; none when nothing is wrong."""
        found = tuple(map(str, self.findings))
        known = (d for d in self.damage if not any(d.file == f.entry.name for f in self.findings))
        accepted = tuple(f"accept that offsets {d.first} to {d.next - 1} are lost: {d.reason}" for d in known)
        kept = tuple(f"keep {name} aside: it holds nothing that is missing" for name in self.unused)
        return (*self.beginning, *kept, *found, *accepted)

    @property
    def lost(self) -> tuple[VerifiedRange, ...]:
        """The offsets that cannot be had back, ascending."""
        known = [VerifiedRange(d.first, d.next, d.reason) for d in self.damage]
        found = [lost for finding in self.findings for lost in finding.lost]
        new = [f for f in found if not any(k.first <= f.first and f.next <= k.next for k in known)]
        return tuple(sorted({*known, *new}, key=lambda lost: lost.first))


@contextmanager
def folder_lock(ports: Ports) -> Iterator[None]:
    """Have a station's folder while it is put in order; FolderInUse names the station that has it.

    A station may open any of its channels at any time, so one that has none open is in the way too.
    """
    assert ports.disk is not None
    try:
        lock = ports.disk.lock("lock", note="for a repair")
    except FileLocked as locked:
        raise FolderInUse(str(getattr(ports.disk, "folder", "data")), locked.holder) from locked
    with lock:
        yield


def plan_repair(disk: Disk, folder: str, random: Random) -> RepairPlan:
    """Find out what is wrong. Nothing is changed; no writer should have the partition."""
    beginning: list[str] = []
    unused: tuple[str, ...] = ()
    promise = last_promise(disk, folder).promise
    try:
        manifest = manifests.load(disk, folder)
        if manifest.generation < promise.generation:
            raise BadJournalFile(f"{folder}/{MANIFEST}", "an old one has been put in its place")  # noqa: TRY301 - one way for all that is wrong with it
    except (BadJournalFile, NoSuchFile) as error:
        manifest, unused = rebuilt(disk, folder, random)
        reason = error.reason if isinstance(error, BadJournalFile) else "it is missing"
        beginning.append(f"make the manifest anew from the files that are there: {reason}")
    manifest, moved = _relocated(disk, folder, manifest)
    manifest, lost = _without_lost_heads(disk, folder, manifest, promise.watermark)
    findings = [
        _examined(disk, folder, manifest, source)
        if source.next is not None
        else _surveyed(disk, folder, manifest, source, promise.watermark)
        for source in manifest.sources
    ]
    return RepairPlan(
        folder,
        manifest,
        published=not (beginning or moved or lost),
        beginning=(*beginning, *moved, *lost),
        findings=tuple(finding for finding in findings if finding.lost or finding.remark),
        damage=tuple(damage for damage in manifest.damage if not damage.accepted),
        unused=unused,
    )


def repair(ports: Ports, folder: str) -> RepairPlan:
    """Put a partition in order; returns what was wrong with it. PartitionInUse while a writer has it."""
    disk = ports.disk
    assert disk is not None, "a partition needs ports with a disk"
    try:
        lock = disk.lock(f"{folder}/{LOCK}", note="to repair it")
    except FileLocked as error:
        raise PartitionInUse(folder, error.holder) from error
    with lock:
        plan = plan_repair(disk, folder, ports.random)  # 1
        aside = f"{folder}/{ASIDE}-{plan.manifest.generation + 1:08x}"
        if not plan.published:
            for name in (MANIFEST, COMMIT, *plan.unused):
                _keep(disk, folder, name, aside)  # 2
            following = msgspec.structs.replace(plan.manifest, generation=plan.manifest.generation + 1)
            manifests.publish(disk, folder, following)  # 3
    if not plan.steps:
        return plan
    partition = WritablePartition(ports, folder, FormatRegistry(), Limits(), "to repair it")  # 4
    try:
        for source in partition.manifest.sources:
            finding = _examined(disk, folder, partition.manifest, source)
            if finding.lost or finding.remark:
                _keep(disk, folder, source.name, aside)  # 2
                _replace(disk, partition, finding)
        partition.substitute("", (), _accepted(partition.manifest))
    finally:
        partition.close()
    return plan


def _relocated(disk: Disk, folder: str, manifest: Manifest) -> tuple[Manifest, list[str]]:
    """The manifest with each file under the name that it really has: files may have been swapped."""
    salts = {salt: name for name, salt in _salts(disk, folder)}
    sealed = [f"{SEALED}/{name}" for name in manifests.files_in(disk, folder, SEALED)]
    moved: dict[str, str] = {}
    for head in manifest.heads:
        if salts.get(head.salt, head.name) != head.name:
            moved[head.name] = salts[head.salt]
    for segment in manifest.segments:
        if not is_whole(disk, folder, segment):
            others = (msgspec.structs.replace(segment, name=name) for name in sealed)
            holders = [other.name for other in others if is_whole(disk, folder, other)]
            moved.update({segment.name: holder for holder in holders[:1]})  # noqa: B035 - one at most
    changed = msgspec.structs.replace(
        manifest,
        heads=tuple(msgspec.structs.replace(h, name=moved.get(h.name, h.name)) for h in manifest.heads),
        segments=tuple(msgspec.structs.replace(s, name=moved.get(s.name, s.name)) for s in manifest.segments),
    )
    return changed, [f"list {now} with the rows of {then}: it holds them" for then, now in moved.items()]


def _salts(disk: Disk, folder: str) -> Iterator[tuple[str, bytes]]:
    for name in manifests.files_in(disk, folder, HEADS):
        with suppress(BadJournalFile), disk.open(f"{folder}/{HEADS}/{name}", readonly=True) as file:
            yield f"{HEADS}/{name}", HeadHeader.decode(file.read_at(0, HEAD_SIZE), name).salt


def _without_lost_heads(
    disk: Disk, folder: str, manifest: Manifest, watermark: int
) -> tuple[Manifest, list[str]]:
    """The manifest without a head that was being written and is gone, or none of ours."""
    for head in manifest.heads:
        if head.next is not None:
            continue
        try:
            HeadReader(disk, folder, head, manifest.partition, FormatRegistry()).close()
        except (NoSuchFile, BadJournalFile) as error:
            reason = error.reason if isinstance(error, BadJournalFile) else "it is missing"
            end = max(manifest.next, watermark, head.first) + JUMP
            lost = Damage(
                head.first, end, head.name, f"{reason}; some of these may never have been given out"
            )
            without = msgspec.structs.replace(
                manifest,
                heads=tuple(other for other in manifest.heads if other is not head),
                damage=(*manifest.damage, lost),
                next=end,
            )
            return without, [f"go on at offset {end} without {head.name}: {reason}"]
    return manifest, []


def _examined(disk: Disk, folder: str, manifest: Manifest, entry: Head | Segment) -> DamagedFile:
    """Read all rows of a closed file."""
    assert entry.next is not None
    try:
        source = _source(disk, folder, manifest.partition, entry, FormatRegistry())
    except (BadJournalFile, NoSuchFile) as error:
        reason = error.reason if isinstance(error, BadJournalFile) else f"{entry.name} is missing"
        return DamagedFile(entry, (VerifiedRange(entry.first, entry.next, reason),), None)
    with closing(source):
        lost = [part for part in _parts(folder, source, entry) if isinstance(part, VerifiedRange)]
        return DamagedFile(entry, tuple(lost), source.remark)


def _surveyed(disk: Disk, folder: str, manifest: Manifest, head: Head, watermark: int) -> DamagedFile:
    """Look through a head that was being written, as its next writer will."""
    floor = max(manifest.next, watermark)
    with closing(TailScan(disk, folder, head, manifest.partition, floor)) as survey:
        lost = tuple(VerifiedRange(damage.first, damage.next, damage.reason) for damage in survey.damage)
        return DamagedFile(head, lost, survey.header_damage)


def _source(
    disk: Disk, folder: str, partition: bytes, entry: Head | Segment, formats: FormatRegistry
) -> RowFile:
    if isinstance(entry, Head):
        return HeadReader(disk, folder, entry, partition, formats)
    return SegmentReader(disk, folder, entry, formats)


def _parts(folder: str, source: RowFile, entry: Head | Segment) -> Iterator[Rows | VerifiedRange]:
    """All rows of a file, and where there are none that there should be, which."""
    position, end = entry.first, entry.next or 0
    while position < end:
        try:
            for rows in source.rows(position, end):
                yield rows
                position = rows.first + len(rows.records)
            if position < end and source.dense:
                raise HistoryDamaged(folder, position, end, "their file ends before them")  # noqa: TRY301 - as damage inside of the file
            position = end
        except HistoryDamaged as error:
            yield VerifiedRange(position, error.next_available, error.reason)
            position = error.next_available


def _replace(disk: Disk, partition: WritablePartition, finding: DamagedFile) -> None:
    """Steps 5 and 6 for one file."""
    name = finding.entry.name
    damage = _accepted(partition.manifest, finding)
    try:
        segments = _salvaged(disk, partition, finding)  # 5
    except UnknownFormat as error:
        # Its rows can be read, though their meaning is not known: they stay where they are.
        log.warning("%s: %s is left as it is: %s", partition.folder, name, error)
        partition.substitute("", (), damage)
    else:
        partition.substitute(name, segments, damage)  # 6


def _salvaged(disk: Disk, partition: WritablePartition, finding: DamagedFile) -> list[Segment]:
    """New files with all rows that can be read, one for each stretch between what is lost."""
    entry, formats = finding.entry, FormatRegistry()
    stretches: list[tuple[int, int, list[Rows]]] = []
    position = entry.first
    rows: list[Rows] = []
    with suppress(BadJournalFile, NoSuchFile):
        source = _source(disk, partition.folder, partition.manifest.partition, entry, formats)
        with closing(source):
            for part in _parts(partition.folder, source, entry):
                if isinstance(part, VerifiedRange):
                    stretches.append((position, part.first, rows))
                    position, rows = part.next, []
                else:
                    rows.append(part)
        stretches.append((position, entry.next or 0, rows))
    segments = []
    for first, end, found in stretches:
        if found:
            from heliograph.journal.writing.segment_writer import segment_file  # noqa: PLC0415 - Arrow is for sealing

            name = partition.new_segment_name(first, end)
            data, _ = segment_file(found, formats)
            install_file(disk, partition.folder, name, data)
            segments.append(described(name, data))
    return segments


def _accepted(manifest: Manifest, finding: DamagedFile | None = None) -> tuple[Damage, ...]:
    """All that is lost, with what was found in a file now."""
    known = [msgspec.structs.replace(damage, accepted=True) for damage in manifest.damage]
    if finding is not None:
        for lost in finding.lost:
            if not any(k.first <= lost.first and lost.next <= k.next for k in known):
                known.append(Damage(lost.first, lost.next, finding.entry.name, lost.reason, accepted=True))
    return tuple(sorted(known, key=lambda damage: damage.first))


def _keep(disk: Disk, folder: str, name: str, aside: str) -> None:
    """A copy of a file as it is, which is not touched again."""
    if not disk.exists(f"{folder}/{name}"):
        return
    with suppress(FileExists):
        disk.make_folder(aside)
    copy = f"{aside}/{name.replace('/', '_')}"
    if disk.exists(copy):
        disk.remove(copy)  # of a repair that was interrupted
    with disk.open(f"{folder}/{name}", readonly=True) as file, disk.create(copy) as kept:
        position = 0
        while data := file.read_at(position, COPIED_AT_ONCE):
            kept.append(data)
            position += len(data)
        kept.sync()
    disk.sync_folder(aside)
    disk.sync_folder(folder)

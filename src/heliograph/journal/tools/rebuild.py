"""A manifest made anew from the files that a partition has, for when its own is lost.

Heads say in their first bytes which rows they begin with, and segments in their names and footers which they
hold. Where two files claim the same offsets, the later one counts: a segment was made from heads, a merged
segment from others, and a head begins where the one before it was good to. What no file holds is written down
as damage.

What only the manifest knew is gone: what retention had dropped, files that had left the history and come back
now, and the marks of batches from outside that are not in a head.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from heliograph.errors import BadJournalFile, FormatError, NoSuchFile
from heliograph.journal.format import commit_file as commitfile
from heliograph.journal.format.footer import formats_in
from heliograph.journal.format.frames import HEAD_SIZE, HeadHeader, checksum
from heliograph.journal.format.manifest import Damage, Head, Manifest, Segment, files_in
from heliograph.journal.names import HEADS, SEALED
from heliograph.journal.writing.head_scan import TailScan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from heliograph.journal.format.batch_marks import Mark
    from heliograph.runtime.ports import Disk, Random


class Rebuilt(NamedTuple):
    """The manifest, and the files that are in none of its lists."""

    manifest: Manifest
    unused: tuple[str, ...]


def rebuilt(disk: Disk, folder: str, random: Random) -> Rebuilt:
    """What the manifest of a partition has to say, going by its files. Nothing is changed."""
    commit = last_promise(disk, folder)
    found = _found_segments(disk, folder)
    segments = _latest(found)
    headers = _found_heads(disk, folder)
    partition = next((header.partition for header in headers.values()), commit.partition)
    heads = _heads(disk, folder, headers, segments)
    everything: list[Segment | Head] = [*segments, *heads.entries]
    sources = sorted(everything, key=lambda source: source.first)
    end = max([commit.promise.watermark, *(source.next or source.first for source in sources)])
    manifest = Manifest(
        partition=partition or random.bytes(16),
        generation=max([commit.promise.generation, *(_generation(s.name) for s in found)]),
        epoch=max([commit.promise.epoch, *(header.epoch for header in headers.values())]),
        next=end,
        last_ts=max([commit.promise.append_ts, *(source.last_ts for source in sources)]),
        earliest=sources[0].first if sources else end,
        segments=tuple(segments),
        heads=tuple(heads.entries),
        damage=(*heads.damage, *_gaps(sources, end)),
        marks=tuple(heads.marks.values()),
    )
    listed = {source.name for source in sources}
    there = (f"{inner}/{name}" for inner in (HEADS, SEALED) for name in files_in(disk, folder, inner))
    return Rebuilt(manifest, tuple(name for name in there if name not in listed))


class Promise(NamedTuple):
    """What the commit file says, and whose it is; nothing when it cannot be read."""

    promise: commitfile.Commit = commitfile.NOTHING
    partition: bytes = b""


def last_promise(disk: Disk, folder: str) -> Promise:
    """The newest promise of a partition's commit file."""
    try:
        with closing(commitfile.CommitView(disk, folder)) as view:
            return Promise(view.current(), view.partition)
    except (NoSuchFile, BadJournalFile):
        return Promise()


def _found_heads(disk: Disk, folder: str) -> dict[str, HeadHeader]:
    """Heads by name in the order of their making; those without a good header have no rows for us."""
    found = {}
    for name in sorted(files_in(disk, folder, HEADS), key=lambda name: name.split("-")[1:]):
        with suppress(BadJournalFile), disk.open(f"{folder}/{HEADS}/{name}", readonly=True) as file:
            found[f"{HEADS}/{name}"] = HeadHeader.decode(file.read_at(0, HEAD_SIZE), name)
    return found


def _found_segments(disk: Disk, folder: str) -> list[Segment]:
    found = []
    for name in files_in(disk, folder, SEALED):
        with suppress(BadJournalFile):
            found.append(described(f"{SEALED}/{name}", bytes(disk.map(f"{folder}/{SEALED}/{name}"))))
    return found


def described(name: str, data: bytes) -> Segment:
    """What a manifest has to say of a segment file; BadJournalFile when it is none, or its pages are bad."""
    import pyarrow as pa  # noqa: PLC0415 - only sealed history needs Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    from heliograph.journal.writing.segment_writer import pieces_of  # noqa: PLC0415 - as above

    try:
        first, end, _ = name.rpartition("/")[2].removesuffix(".parquet").split("-")
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        times = file.read(columns=["_append_ts"]).column(0)
        file.read()
        ids = tuple(sorted(fmt.id for fmt in formats_in(file.schema_arrow.metadata)))
        rows = None if len(times) == int(end) - int(first) else len(times)
        span = (int(first), int(end), len(data), times[0].as_py(), times[-1].as_py())
        return Segment(name, *span, ids, checksum(data), rows, pieces_of(data))
    except (pa.ArrowException, OSError, KeyError, ValueError, IndexError, FormatError) as error:
        raise BadJournalFile(name, str(error)) from None


def _generation(name: str) -> int:
    return int(name.removesuffix(".parquet").rpartition("-")[2], 16)


def _latest(found: Iterable[Segment]) -> list[Segment]:
    """Segments that do not overlap: of those that do, the one that was made last."""
    kept: list[Segment] = []
    for segment in sorted(found, key=lambda segment: _generation(segment.name), reverse=True):
        if all(segment.next <= other.first or other.next <= segment.first for other in kept):
            kept.append(segment)
    return sorted(kept, key=lambda segment: segment.first)


class _Heads(NamedTuple):
    entries: list[Head]
    damage: list[Damage]
    marks: dict[str, Mark]


def _heads(disk: Disk, folder: str, headers: dict[str, HeadHeader], segments: list[Segment]) -> _Heads:
    """The heads with rows that no segment has, each up to where the next begins.

    The last is listed as being written, so that the next writer looks through it as it always does.
    """
    heads = _Heads([], [], {})
    if not headers:  # none can be read
        return heads
    bounds = [header.first for header in headers.values()][1:]
    for (name, header), bound in zip(headers.items(), [*bounds, None], strict=True):
        entry = Head(name, header.first, header.epoch, salt=header.salt)
        end = header.first + 1 if bound is None else bound
        if header.first >= end or any(s.first <= header.first and end <= s.next for s in segments):
            continue
        if bound is not None:
            with closing(TailScan(disk, folder, entry, header.partition, bound)) as survey:
                entry = msgspec.structs.replace(survey.entry(), next=bound)
            heads.damage.extend(survey.damage)
            for mark in survey.marks:
                heads.marks[mark.writer] = mark
        heads.entries.append(entry)
    return heads


def _gaps(sources: list[Segment | Head], end: int) -> Iterator[Damage]:
    """The offsets between the first and the last that no file holds."""
    last = sources[-1] if sources else None
    ends = [*(source.first for source in sources[1:]), end if last is None or last.next else last.first]
    for source, following in zip(sources, ends, strict=False):
        if source.next is not None and source.next < following:
            yield Damage(source.next, following, "", "no file holds them")

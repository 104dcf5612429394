"""Checks that event classes fit what a history already holds.

    check_classes(disk, folder, "air.tracks", (Track,))      # IncompatibleFormats, or nothing

This is asked before anything is opened or written. A class goes together with a version that is kept where
one of the two can be read as the other. Where older programs have kept versions of one name that do not go
together, each of them may go on.

Only descriptions are looked at: of frames no more than their beginning, of sealed files the footer, and that
only for formats that are not known from elsewhere. What is damaged is passed over: reading tells of it.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.codec.dynamic.classes import is_made
from heliograph.errors import BadJournalFile, DiskError, FormatError, IncompatibleFormats, NoSuchFile
from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.frames import FRAME_MAGIC, FRAME_SIZE, HEAD_SIZE
from heliograph.journal.reading.segment_reader import SegmentReader
from heliograph.model.compatibility import defaults_of, why_apart
from heliograph.model.event import info_of
from heliograph.model.formats import Format, FormatRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.journal.format.manifest import Manifest
    from heliograph.model.event import Event
    from heliograph.runtime.ports import Disk

_SIZES: Final = struct.Struct("<4sI40xI")
"""What leads from a frame to the next one: its magic, the bytes behind its header, those of descriptions."""


def check_classes(disk: Disk, folder: str, channel: str, types: Iterable[type[Event]]) -> None:
    """IncompatibleFormats for the first class that does not go together with what a partition holds.

    Classes that were made of a format read every version as it was pushed, and are not looked at.
    """
    try:
        manifest = manifests.load(disk, folder)
    except (NoSuchFile, BadJournalFile):
        return  # there is none yet, or opening it tells what is wrong
    classes = {info_of(cls).name: cls for cls in types if not is_made(cls)}
    kept = _formats_in(disk, folder, manifest, [info_of(cls).format for cls in classes.values()])
    for name, cls in classes.items():
        _check(channel, cls, [fmt for fmt in kept if fmt.name == name])


def _check(channel: str, cls: type[Event], versions: list[Format]) -> None:
    own, defaults = info_of(cls).format, defaults_of(cls)
    if own in versions:
        return
    apart = {fmt.id: why_apart(fmt, own, defaults) for fmt in versions}
    joined = [fmt for fmt in versions if not apart[fmt.id]]
    for fmt in versions:
        if apart[fmt.id] and not any(why_apart(fmt, other) for other in joined):
            raise IncompatibleFormats(fmt.name, own.name, apart[fmt.id], channel)


def _formats_in(disk: Disk, folder: str, manifest: Manifest, own: list[Format]) -> list[Format]:
    """The formats of everything that a partition holds."""
    known = FormatRegistry()
    ids: set[bytes] = set()
    for head in manifest.heads:
        with suppress(NoSuchFile, DiskError):
            ids.update(map(known.register, _described(disk.map(f"{folder}/{head.name}"))))
    for fmt in own:
        known.register(fmt)
    for segment in manifest.segments:
        ids.update(segment.formats)
        if any(format_id not in known for format_id in segment.formats):
            with suppress(NoSuchFile, DiskError, BadJournalFile):
                SegmentReader(disk, folder, segment, known).close()
    return [known[format_id] for format_id in ids if format_id in known]


def _described(head: memoryview) -> list[Format]:
    """The formats that are described in a head, as far as one frame leads to the next."""
    found: list[Format] = []
    at, last = HEAD_SIZE, len(head) - FRAME_SIZE
    while at <= last:
        magic, length, described = _SIZES.unpack_from(head, at)
        if magic != FRAME_MAGIC:
            break
        if described:
            start = at + FRAME_SIZE
            with suppress(msgspec.MsgspecError, FormatError):
                descriptions = msgspec.msgpack.decode(head[start : start + described], type=list[bytes])
                found += map(Format.from_description, descriptions)
        at += FRAME_SIZE + length
    return found

"""Small files that are read and replaced as a whole: a magic, a version, a checksum, then one msgpack value.

MANIFESTS = Kind(b"HELIOMAN", version=1, limit=64 << 20, called="manifest")
file.append(*pack(MANIFESTS, manifest))
manifest = load(MANIFESTS, disk, "partition/manifest", Manifest)
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from heliograph.errors import BadJournalFile
from heliograph.journal.format.frames import checksum

if TYPE_CHECKING:
    from heliograph.runtime.ports import Disk

T = TypeVar("T")

_PREFIX = struct.Struct("<8sHHI")


class Kind(NamedTuple):
    """What files of one kind have in common."""

    magic: bytes
    version: int
    limit: int
    """Bytes; a larger one is refused before it is read."""
    called: str


def pack(kind: Kind, value: object) -> tuple[bytes, bytes]:
    """The two parts of a file that holds this value."""
    body = msgspec.msgpack.encode(value)
    return _PREFIX.pack(kind.magic, kind.version, 0, checksum(body)), body


def load(kind: Kind, disk: Disk, name: str, value: type[T]) -> T:
    """What the file holds; BadJournalFile says what is wrong with it, NoSuchFile that there is none."""
    with disk.open(name, readonly=True) as file:
        if file.size() > kind.limit:
            raise BadJournalFile(name, f"it has {file.size()} bytes, and at most {kind.limit} are allowed")
        data = file.read_at(0, kind.limit)
    return unpack(kind, data, name, value)


def unpack(kind: Kind, data: bytes, name: str, value: type[T]) -> T:
    """What these bytes of a file hold; BadJournalFile says what is wrong with them."""
    if len(data) > kind.limit:
        raise BadJournalFile(name, f"it has {len(data)} bytes, and at most {kind.limit} are allowed")
    if len(data) < _PREFIX.size or data[:8] != kind.magic:
        raise BadJournalFile(name, f"it does not begin as a {kind.called} does")
    _, version, _, crc = _PREFIX.unpack_from(data)
    if version != kind.version:
        raise BadJournalFile(name, f"it has version {version}; this program reads version {kind.version}")
    body = memoryview(data)[_PREFIX.size :]
    if checksum(body) != crc:
        raise BadJournalFile(name, "its checksum is wrong")
    try:
        return msgspec.msgpack.decode(body, type=value)
    except msgspec.MsgspecError as error:
        raise BadJournalFile(name, f"it cannot be read: {error}") from None

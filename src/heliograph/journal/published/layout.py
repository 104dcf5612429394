"""What lies in a store of published segments, under which names, and what its manifests say.

    channels/<channel>/<partition>/sealed/<first>-<next>-<generation>-<crc>.parquet
    channels/<channel>/<partition>/manifests/<number>        the files of the partition, as a whole
    domain/<number>                                          all partitions of all channels

No object is ever replaced. The one with the highest number counts, and whoever puts the next number first has
published it: a second writer of the same history finds the number taken. The name of a segment holds its
checksum, so that an object of that name has the bytes that it should have, whoever has put it.

The manifest of a partition is a manifest of the journal (`heliograph.journal.format.manifest`) without heads.
That of the domain makes one request enough to know ten thousand channels; it is put after those it tells of,
and may lag behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from heliograph.errors import NoSuchFile
from heliograph.journal.format import checksummed_file as wholefile
from heliograph.journal.format.manifest import KIND, Manifest, Segment
from heliograph.journal.names import CHANNELS

if TYPE_CHECKING:
    from heliograph.runtime.object_store import ObjectStore

DOMAIN: Final = "domain"
MANIFESTS: Final = "manifests"
KEPT_MANIFESTS: Final = 8
"""The last manifests that stay: a reader may have listed one and get it a moment later."""
ATTEMPTS: Final = 8
"""How often the newest manifest is looked for, each time because it was removed meanwhile."""

_DOMAIN_KIND: Final = wholefile.Kind(b"HELIODOM", 1, 256 << 20, "manifest of a domain")


class PartitionEntry(msgspec.Struct, array_like=True, frozen=True):
    """What the domain's manifest says of one partition."""

    number: int
    """Of its manifest."""
    epoch: int
    earliest: int
    next: int
    """Everything below, from `earliest` on, is in the store."""
    last_ts: int
    events: int
    bytes: int


class DomainManifest(msgspec.Struct, frozen=True, kw_only=True):
    """All partitions in a store, by the names of their folders: `channels/air.tracks/5f0c…`."""

    partitions: dict[str, PartitionEntry] = {}


class NumberedManifest(NamedTuple):
    """A manifest and its number; 0 before the first."""

    number: int
    manifest: Manifest | None


def published_name(segment: Segment) -> str:
    """How the object of a segment is called within its partition."""
    stem = segment.name.removesuffix(".parquet")
    return f"{stem}-{segment.crc:08x}.parquet"


def manifest_name(place: str, number: int) -> str:
    return f"{place}/{MANIFESTS}/{number:016x}"


def domain_name(number: int) -> str:
    return f"{DOMAIN}/{number:016x}"


def number_of(name: str) -> int:
    """The number in the name of a manifest; -1 for an object that is none of ours."""
    try:
        return int(name.rpartition("/")[2], 16)
    except ValueError:
        return -1


def entry_of(number: int, manifest: Manifest) -> PartitionEntry:
    return PartitionEntry(
        number,
        manifest.epoch,
        manifest.earliest,
        manifest.next,
        manifest.last_ts,
        sum(segment.events for segment in manifest.segments),
        sum(segment.size for segment in manifest.segments),
    )


def packed_manifest(manifest: Manifest) -> bytes:
    return b"".join(wholefile.pack(KIND, manifest))


def packed_domain(domain: DomainManifest) -> bytes:
    return b"".join(wholefile.pack(_DOMAIN_KIND, domain))


def newest_manifest(store: ObjectStore, place: str, known: int = 0) -> NumberedManifest:
    """The manifest of a partition with the highest number; without one when none was published yet.

    `known` is a number that is not lower than any that was removed.
    """
    found = _newest(store, f"{place}/{MANIFESTS}/", manifest_name(place, known) if known else "")
    if found is None:
        return NumberedManifest(0, None)
    name, data = found
    return NumberedManifest(number_of(name), wholefile.unpack(KIND, data, name, Manifest))


def newest_domain(store: ObjectStore, known: int = 0) -> tuple[int, DomainManifest] | None:
    """The manifest of the domain; None when there is none with a number above the one that is known."""
    found = _newest(store, f"{DOMAIN}/", domain_name(known) if known else "")
    if found is None:
        return None
    name, data = found
    return number_of(name), wholefile.unpack(_DOMAIN_KIND, data, name, DomainManifest)


def is_store(folder_names: tuple[str, ...]) -> bool:
    """Whether a folder with these names in it holds published segments, and is not a station's own."""
    return f"{DOMAIN}/" in folder_names and f"{CHANNELS}/" in folder_names


def _newest(store: ObjectStore, prefix: str, after: str) -> tuple[str, bytes] | None:
    for _ in range(ATTEMPTS):
        names = [name for name in store.list(prefix, after) if number_of(name) >= 0]
        if not names:
            return None
        try:
            return names[-1], store.get(names[-1])
        except NoSuchFile:
            continue  # newer ones have been published since, and it was removed
    raise NoSuchFile("get", prefix, "its manifests are removed faster than they can be read")

"""A store of published segments as a disk to read from: what reads a station's folder reads a store, too.

    disk = StoreDisk(object_store("s3://flights/history"))
    StationFolder("s3://flights/history")                    # finds this disk by itself

The commit file that a keeper writes beside its heads is made up here, from the manifests. New ones are looked
for at most once a second, with one request for all channels. Of a segment only the footer and the row groups
that are read come over the network.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Never, Self

from heliograph.errors import DiskError, NoSuchFile
from heliograph.journal.format import commit_file
from heliograph.journal.format.commit_file import Commit
from heliograph.journal.names import CHANNELS, COMMIT, MANIFEST
from heliograph.journal.published.layout import (
    DomainManifest,
    newest_domain,
    newest_manifest,
    packed_manifest,
)
from heliograph.runtime.ports import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.journal.format.manifest import Manifest
    from heliograph.runtime.object_store import ObjectStore
    from heliograph.runtime.ports import Clock, File, FileLock

LOOK_SECONDS: Final = 1.0
"""How often newer manifests are looked for at most."""


class _Object:
    """An object that was got, as a file to read from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class StoreDisk:
    """See the module, and `heliograph.runtime.ports.Disk`; whatever would change the store is refused."""

    def __init__(self, objects: ObjectStore, clock: Clock | None = None) -> None:
        self.folder = objects.url
        self._objects = objects
        self._clock = clock or SystemClock()
        self._domain: tuple[int, DomainManifest] = (0, DomainManifest())
        self._looked_at: int | None = None
        self._commits: dict[str, bytearray] = {}
        """The commit file of each partition that somebody has mapped."""

    def is_empty(self) -> bool:
        """Whether nothing was published here."""
        self._look()
        return not self._domain[0]

    def list(self, folder: str = "") -> tuple[str, ...]:
        self._look()
        if not folder:
            return (f"{CHANNELS}/",)
        parts = folder.split("/")
        if len(parts) > 2 or parts[0] != CHANNELS:
            return tuple(name.removeprefix(f"{folder}/") for name in self._objects.list(f"{folder}/"))
        inside = {
            place.split("/")[len(parts)] + "/"
            for place in self._domain[1].partitions
            if len(parts) == 1 or place.startswith(f"{folder}/")
        }
        if not inside and len(parts) == 2:
            raise NoSuchFile("list", folder, "no channel of that name was published")
        return tuple(sorted(inside))

    def exists(self, name: str) -> bool:
        place, _, last = name.rpartition("/")
        if last == MANIFEST:
            self._look()
            return place in self._domain[1].partitions
        with suppress(NoSuchFile):
            self._objects.get(name, 0, 1)
            return True
        return False

    def open(self, name: str, *, readonly: bool = False) -> File:
        if not readonly:
            self._refuse("open", name)
        found: Any = _Object(self.read(name))
        return found  # type: ignore[no-any-return]  # what is missing would write

    def read(self, name: str) -> bytes:
        place, _, last = name.rpartition("/")
        if last == MANIFEST:
            return packed_manifest(self._manifest(place))
        return self._objects.get(name)

    def map(self, name: str) -> memoryview:
        place, _, last = name.rpartition("/")
        if last != COMMIT:
            return memoryview(self._objects.get(name))
        if place not in self._commits:
            self._manifest(place)
        return memoryview(self._commits[place])

    def map_ranges(self, name: str, size: int) -> tuple[memoryview, Callable[[int, int], None]]:
        """A view of an object of that size, and what fetches a range of it: until then it holds zeros."""
        view = memoryview(mmap.mmap(-1, max(1, size)))[:size]

        def fetch(start: int, end: int) -> None:
            data = self._objects.get(name, start, min(end, size))
            view[start : start + len(data)] = data

        return view, fetch

    def create(self, name: str) -> File:
        self._refuse("create", name)

    def rename(self, old: str, new: str) -> None:  # noqa: ARG002 - as the port has it
        self._refuse("rename", old)

    def remove(self, name: str) -> None:
        self._refuse("remove", name)

    def make_folder(self, name: str) -> None:
        self._refuse("make_folder", name)

    def remove_folder(self, name: str) -> None:
        self._refuse("remove_folder", name)

    def sync_folder(self, folder: str = "") -> None:
        self._refuse("sync_folder", folder)

    def lock(self, name: str, *, note: str = "") -> FileLock:  # noqa: ARG002 - as the port has it
        self._refuse("lock", name)

    def free(self) -> int:
        return 0

    def _refuse(self, operation: str, name: str) -> Never:
        reason = "published segments are read only: write to the station that keeps the channel"
        raise DiskError(operation, f"{self.folder}/{name}", reason)

    def _look(self) -> None:
        """Learn what was published since, if the last look is not too fresh."""
        now = self._clock.monotonic_ns()
        if self._looked_at is not None and now - self._looked_at < LOOK_SECONDS * 1e9:
            return
        self._looked_at = now
        self._domain = newest_domain(self._objects, self._domain[0]) or self._domain
        for place in self._commits.keys() & self._domain[1].partitions.keys():
            entry = self._domain[1].partitions[place]
            self._commit(place, Commit(entry.next, entry.last_ts, entry.number, entry.epoch))

    def _manifest(self, place: str) -> Manifest:
        """The newest of a partition, looked for now."""
        number, manifest = newest_manifest(self._objects, place)
        if manifest is None:
            raise NoSuchFile("read", f"{place}/{MANIFEST}", "nothing of it was published")
        if place not in self._commits:
            self._commits[place] = bytearray(commit_file.empty(manifest.partition))
        self._commit(place, Commit(manifest.next, manifest.last_ts, number, manifest.epoch))
        return manifest

    def _commit(self, place: str, commit: Commit) -> None:
        commit_file.write_into(self._commits[place], commit)

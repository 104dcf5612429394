"""Publishes sealed segments: uploads them, then a manifest that lists them, then one of the domain.

The steps, numbered in the code; whatever is interrupted leaves objects that no manifest lists, and the next
attempt finds and uses them:

    1 look at the newest manifest in the store           4 tell it in the manifest of the domain
    2 put the segments that it lacks                     5 remove objects whose grace is over
    3 put the next manifest, if its number is free

Only one history of a partition is published. The station that has opened the partition last publishes it; one
that finds a manifest which is not its own, such as the original of a folder that was copied, stops with
StoreTaken. The heads stay on the keeper's disk: what is not sealed is not in the store.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from heliograph.errors import BadJournalFile, NoSuchFile, StoreTaken
from heliograph.journal.format.frames import checksum
from heliograph.journal.published.layout import (
    ATTEMPTS,
    KEPT_MANIFESTS,
    DomainManifest,
    PartitionEntry,
    domain_name,
    entry_of,
    manifest_name,
    newest_domain,
    newest_manifest,
    packed_domain,
    packed_manifest,
    published_name,
)
from heliograph.journal.published.publication import next_step
from heliograph.runtime.fault_points import reach
from heliograph.runtime.object_store import object_store
from heliograph.runtime.task_pool import TaskPool

if TYPE_CHECKING:
    from heliograph.journal.format.manifest import Manifest
    from heliograph.journal.published.publication import PublicationStep, Store
    from heliograph.runtime.object_store import ObjectStore
    from heliograph.runtime.ports import Disk, Ports

log = logging.getLogger(__name__)

UPLOADS: Final = 2
"""Partitions that are published at the same time."""
INDEX_SECONDS: Final = 2.0
"""While many partitions are published, the domain is told of them at such intervals."""


class _State(NamedTuple):
    """What this process has published of a partition, or found when it began."""

    number: int
    manifest: Manifest | None


class SegmentPublisher:
    """See the module. One for a station; `publish` and `write_domain` may also be called by a tool."""

    def __init__(self, ports: Ports, store: Store, objects: ObjectStore | None = None) -> None:
        self.store = store
        self._clock = ports.clock
        self._objects = object_store(store.url) if objects is None else objects
        self._pool = TaskPool(ports.tasks, "journal publisher", limit=UPLOADS)
        self._lock = ports.tasks.lock("published partitions")
        self._indexing = ports.tasks.lock("manifest of the domain")
        self._states: dict[str, _State] = {}
        self._wanted: dict[str, tuple[Disk, Manifest]] = {}
        self._scheduled: set[str] = set()
        self._refused: set[str] = set()
        self._pending: dict[str, PartitionEntry] = {}
        """What the domain's manifest does not say yet."""
        self._domain: tuple[int, DomainManifest] = (0, DomainManifest())
        self._indexed_at: int | None = None
        self._closing = False
        self.failures = 0
        """Attempts that did not succeed and will be repeated."""

    def tell(self, disk: Disk, place: str, manifest: Manifest) -> None:
        """A partition has this manifest by now; it is published soon, by a task of the publisher's own."""
        with self._lock:
            if self._closing or place in self._refused:
                return
            self._wanted[place] = (disk, manifest)
            if place not in self._scheduled:
                self._scheduled.add(place)
                self._pool.submit(partial(self._serve, place))

    def held_from(self, place: str, manifest: Manifest) -> int:
        """The first offset of a partition that is not in the store: age alone does not remove it."""
        state = self._states.get(place)
        there = None if state is None else state.manifest
        return manifest.earliest if there is None else max(there.next, manifest.earliest)

    def publish(self, disk: Disk, place: str, manifest: Manifest) -> int:
        """Bring the store up to the manifest of a folder; how many segments were uploaded."""
        state = self._states.get(place)
        if state is None:
            state = self._states[place] = self._found(place)  # 1
        step = next_step(state.manifest, manifest, self.store, self._clock.time_ns())
        if step is None:
            return 0
        for segment in step.upload:
            self._upload(disk, place, segment.name, published_name(segment), segment.crc)  # 2
            reach("store-uploaded")
        number = state.number + 1
        published = msgspec.structs.replace(step.manifest, generation=number)
        self._put_manifest(place, state.number, published)  # 3
        reach("store-manifest")
        self._states[place] = _State(number, published)
        with self._lock:
            self._pending[place] = entry_of(number, published)  # 4
        self._sweep(place, number, step)  # 5
        return len(step.upload)

    def write_domain(self) -> None:
        """Put a manifest of the domain that says what was published; other stations may do the same."""
        with self._indexing:
            with self._lock:
                pending = dict(self._pending)
            if not pending:
                return
            for _ in range(ATTEMPTS):
                self._domain = newest_domain(self._objects, self._domain[0]) or self._domain
                number, there = self._domain
                newer = {
                    place: entry
                    for place, entry in pending.items()
                    if place not in there.partitions or there.partitions[place].number < entry.number
                }
                merged = DomainManifest(partitions={**there.partitions, **newer})
                if not newer or self._objects.put_if_absent(domain_name(number + 1), packed_domain(merged)):
                    break
            else:
                raise StoreTaken(self._objects.url, domain_name(number + 1))
            if newer:
                reach("store-indexed")
                self._domain = (number + 1, merged)
                self._objects.remove([domain_name(number + 1 - KEPT_MANIFESTS)] * (number >= KEPT_MANIFESTS))
            self._indexed_at = self._clock.monotonic_ns()
            with self._lock:
                for place, entry in pending.items():
                    if self._pending.get(place) == entry:
                        del self._pending[place]

    def close(self) -> None:
        """Finish what was told, and stop."""
        with self._lock:
            self._closing = True
        self._pool.close()
        try:
            self.write_domain()
        except Exception as error:  # noqa: BLE001 - what is missing there is told when the station is back
            log.warning("%s: the manifest of the domain was not written: %s", self._objects.url, error)

    def _serve(self, place: str) -> None:
        with self._lock:
            disk, manifest = self._wanted.pop(place)
        try:
            self.publish(disk, place, manifest)
        except StoreTaken as error:
            with self._lock:
                self._refused.add(place)
            log.error("%s", error)  # noqa: TRY400 - the sentence says all
        except Exception as error:  # noqa: BLE001 - whatever a store says, the journal goes on
            self.failures += 1
            log.warning("%s: not published to %s, it is tried again: %s", place, self._objects.url, error)
        finally:
            with self._lock:
                self._scheduled.discard(place)
                again = place in self._wanted and not self._closing
                if again:
                    self._scheduled.add(place)
                    self._pool.submit(partial(self._serve, place))
                at_rest = not self._scheduled
        self._tell_domain(at_rest=at_rest)

    def _tell_domain(self, *, at_rest: bool) -> None:
        now = self._clock.monotonic_ns()
        if not at_rest and self._indexed_at is not None and now - self._indexed_at < INDEX_SECONDS * 1e9:
            return
        try:
            self.write_domain()
        except Exception as error:  # noqa: BLE001 - as above
            self.failures += 1
            log.warning("%s: the manifest of the domain is tried again: %s", self._objects.url, error)

    def _found(self, place: str) -> _State:
        """What the store has of a partition; the domain is told of it, in case it was not."""
        number, manifest = newest_manifest(self._objects, place)
        if manifest is not None:
            with self._lock:
                self._pending[place] = entry_of(number, manifest)
        return _State(number, manifest)

    def _upload(self, disk: Disk, place: str, name: str, published: str, crc: int) -> None:
        view = disk.map(f"{place}/{name}")
        if checksum(view) != crc:
            raise BadJournalFile(
                name, "its checksum is wrong, so it is not published; run helio journal verify"
            )
        self._objects.put_if_absent(f"{place}/{published}", view)  # one that is there has the same checksum

    def _put_manifest(self, place: str, known: int, manifest: Manifest) -> None:
        name, data = manifest_name(place, manifest.generation), packed_manifest(manifest)
        newer = self._objects.list(f"{place}/manifests/", manifest_name(place, known)) if known else []
        if not newer and self._objects.put_if_absent(name, data):
            return
        try:
            if self._objects.get(name) == data:
                return  # an attempt of ours, of which no answer came
        except NoSuchFile:
            pass
        raise StoreTaken(self._objects.url, place)

    def _sweep(self, place: str, number: int, step: PublicationStep) -> None:
        names = [f"{place}/{name}" for name in step.remove]
        if number > KEPT_MANIFESTS:
            names.append(manifest_name(place, number - KEPT_MANIFESTS))
        self._objects.remove(names)

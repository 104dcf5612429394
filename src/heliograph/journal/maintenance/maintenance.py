"""Maintains a partition's files while its writer writes: seals, merges, compacts, and drops.

The work itself is done elsewhere, sealing in a process of its own; this decides when, and takes the lock of
the files only for the moment in which a manifest is published. It has no task of its own: when there may be
something to do, and now and then while there are files, one of the station's maintenance tasks takes a look.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from heliograph.journal.maintenance.retention import ConsumerPosition
from heliograph.journal.maintenance.seal import end_process
from heliograph.journal.names import CHANNELS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.journal.format.manifest import Segment
    from heliograph.journal.maintenance.compaction_policy import RewriteJob, SealJob
    from heliograph.journal.writing.partition import WritablePartition
    from heliograph.journal.writing.shared_threads import SharedThreads
    from heliograph.runtime.ports import Disk, Lock, Ports
    from heliograph.runtime.timers import Timer

    Sealer: TypeAlias = Callable[[Disk, SealJob], Segment]
    Rewriter: TypeAlias = Callable[[Disk, RewriteJob], tuple[Segment, ...]]

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
"""How often ages are looked at, and how soon a failed seal is tried again."""
CLOSE_SECONDS: Final = 5.0
"""How long closing waits for a process that seals before it is ended: nothing of its work is lost."""
SEALS_PER_REWRITE: Final = 8
"""While more waits to be sealed than gets done."""


def _is_published(place: str) -> bool:
    """Whether a partition goes into a store: not what waits for its time, nor the service's own channels."""
    return place.startswith(f"{CHANNELS}/") and not place.startswith(f"{CHANNELS}/_helio.")


class Maintenance:
    """Maintenance beside the writer. Without a sealer nothing is sealed, and heads are kept as they are."""

    def __init__(
        self,
        ports: Ports,
        partition: WritablePartition,
        files: Lock,
        sealer: Sealer | None,
        shared: SharedThreads,
        *,
        rewriter: Rewriter | None = None,
        places: Callable[[], Sequence[ConsumerPosition]] = tuple,
    ) -> None:
        assert ports.disk is not None
        self._disk: Disk = ports.disk
        self._clock = ports.clock
        self._partition = partition
        self._files = files
        self._sealer = sealer
        self._rewriter = rewriter
        self._settled: set[str] = set()
        """Segments that rewriting did not change: they cannot be read, or do not go together."""
        self._places = places
        self._sealing = ports.tasks.lock("journal sealing")
        self._seals = 0
        self._shared = shared
        # Guards which task works; held for moments only.
        self._turn = ports.tasks.lock("journal maintenance")
        self._at_rest = ports.tasks.condition(self._turn, "journal maintenance at rest")
        self._scheduled = False
        """Whether the pool has `_serve`."""
        self._serving = False
        """Whether a task is inside of it."""
        self._wanted = False
        """Whether there may be more to do than it has looked at."""
        self._stopping = False
        self._timer: Timer | None = None
        self.failures = 0
        """Seals, rewritings and removals that did not succeed and will be tried again."""
        if partition.has_files:
            self.look()

    def look(self) -> None:
        """There may be something to do."""
        with self._turn:
            self._wanted = True
            if not self._scheduled and not self._stopping:
                self._shared.maintenance.submit(self._serve)
                self._scheduled = True

    def seal_all(self) -> int:
        """Seal closed heads until none is left; returns how many segments that made."""
        made = 0
        while self._seal_one(ripe=False):
            made += 1
        return made

    def seal_ripe(self) -> int:
        """Seal the closed heads that are large or old enough, as maintenance does; how many that made."""
        made = 0
        while self._seal_one(ripe=True):
            made += 1
        return made

    def tidy(self) -> int:
        """Merge and compact until there is nothing to gain; returns how often something was rewritten."""
        times = 0
        while self._rewrite_one():
            times += 1
        return times

    def retain(self) -> None:
        """Drop what exceeds the limits, and remove what has had its grace."""
        places = [*self._places(), *self._unpublished()]
        with self._files:
            self._partition.retain(places)

    def purge(self, below: int) -> None:
        """Drop what is below an offset, as far as it is sealed."""
        with self._files:
            self._partition.purge(below)

    def close(self) -> None:
        """Finish the segment that is being sealed, if any, and stop; one that takes long is made later."""
        self._stopping = True
        with self._turn:
            if self._timer is not None:
                self._timer.cancel()
            # Again and again: the process that seals may be about to start when it is looked for.
            while not self._at_rest.wait_for(lambda: not self._serving, CLOSE_SECONDS):
                end_process(self._disk, self._partition.folder)

    def _serve(self) -> None:
        """Take one look, in a maintenance task. Partitions take turns: what is left to do is another look."""
        with self._turn:
            if self._serving or self._stopping:
                return
            self._serving, self._wanted = True, False
        busy = False
        try:
            busy = self._work()
        except Exception:
            # Whatever it was, the journal goes on; a disk that is not looked after would fill up.
            self.failures += 1
            log.exception("%s: not sealed, tidied or dropped; it is tried again", self._partition.folder)
        finally:
            with self._turn:
                self._serving = self._scheduled = False
                self._at_rest.notify_all()
                if not self._stopping:
                    self._arrange(busy)

    def _work(self) -> bool:
        """Seal, tidy, drop; whether there may be more of that."""
        busy = self._seal_one(ripe=True)
        self._seals += busy
        # Sealing follows the writer, so it comes first; but small segments must not pile up either.
        if not busy or not self._seals % SEALS_PER_REWRITE:
            busy |= self._rewrite_one()
        if not self._stopping:
            self.retain()
            self._publish()
        return busy

    def _publish(self) -> None:
        """Tell the store of the files as they are; a history that is to be seen nowhere else stays here."""
        publisher, place = self._shared.publisher, self._partition.folder
        if publisher is not None and _is_published(place):
            publisher.tell(self._disk, place, self._partition.manifest)

    def _unpublished(self) -> list[ConsumerPosition]:
        """The store as a consumer that lacks what was not uploaded yet."""
        publisher, place = self._shared.publisher, self._partition.folder
        if publisher is None or not _is_published(place):
            return []
        low = publisher.held_from(place, self._partition.manifest)
        return [ConsumerPosition("the store of published segments", low, self._clock.time_ns())]

    def _arrange(self, busy: bool) -> None:
        """Under the lock of the turn: when to look next. A partition without files is looked at when told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if busy or self._wanted:
            self._shared.maintenance.submit(self._serve)
            self._scheduled = True
        elif self._partition.has_files:
            self._timer = self._shared.timers.after(LOOK_SECONDS, self.look)

    def _seal_one(self, *, ripe: bool) -> bool:
        """Make one segment of closed heads; False when there are none, or none that are ripe."""
        with self._sealing:
            if self._sealer is None or self._stopping:
                return False
            with self._files:
                job = self._partition.seal_job(ripe=ripe)
            if job is None:
                return False
            segment = self._sealer(self._disk, job)
            with self._files:
                self._partition.install(job, segment)
            return True

    def _rewrite_one(self) -> bool:
        """Merge or compact some segments; False when there is nothing to gain."""
        with self._sealing:
            if self._rewriter is None or self._stopping:
                return False
            with self._files:
                job = self._partition.rewrite_job(self._settled)
            if job is None:
                return False
            segments = self._rewriter(self._disk, job)
            with self._files:
                self._partition.replace_segments(job, segments)
            self._settled |= {segment.name for segment in segments if segment in job.segments}
            return True

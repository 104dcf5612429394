"""Looks after the files of a partition while its writer writes: seals what is closed, drops what is too old.

The work itself is done elsewhere, sealing in a process of its own; this decides when, and takes the lock of
the files only for the moment in which a manifest is published.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.journal.manifest import Segment
    from heliograph.journal.partition import Partition, SealJob
    from heliograph.journal.retention import Place
    from heliograph.ports import Disk, Lock, Ports

    Sealer: TypeAlias = Callable[[Disk, SealJob], Segment]

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
"""How often ages are looked at, and how soon a failed seal is tried again."""


class Keeper:
    """A task beside the writer. Without a sealer nothing is sealed, and heads are kept as they are."""

    def __init__(
        self,
        ports: Ports,
        partition: Partition,
        files: Lock,
        sealer: Sealer | None,
        places: Callable[[], Sequence[Place]] = tuple,
    ) -> None:
        assert ports.disk is not None
        self._disk: Disk = ports.disk
        self._partition = partition
        self._files = files
        self._sealer = sealer
        self._places = places
        self._sealing = ports.tasks.lock("journal sealing")
        self._stopping = False
        self._bell = ports.tasks.signal("journal keeper")
        self.failures = 0
        """Seals and removals that did not succeed and will be tried again."""
        self._task = ports.tasks.spawn(f"journal keeper {partition.folder}", self._run)

    def look(self) -> None:
        """There may be something to do."""
        self._bell.notify()

    def seal_all(self, *, ripe: bool = False) -> int:
        """Seal closed heads until none is left, or none that is ripe; returns how many segments that made."""
        made = 0
        with self._sealing:
            while self._sealer is not None and not self._stopping:
                with self._files:
                    job = self._partition.seal_job(ripe=ripe)
                if job is None:
                    break
                segment = self._sealer(self._disk, job)
                with self._files:
                    self._partition.install(job, segment)
                made += 1
        return made

    def retain(self) -> None:
        """Drop what exceeds the limits, and remove what has had its grace."""
        places = self._places()
        with self._files:
            self._partition.retain(places)

    def close(self) -> None:
        """Finish the segment that is being sealed, if any, and stop."""
        self._stopping = True
        self._bell.notify()
        self._task.join()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.seal_all(ripe=True)
                self.retain()
            except Exception:
                # Whatever it was, the journal goes on; a keeper that died would let the disk fill up.
                self.failures += 1
                log.exception("%s: not sealed or dropped; it is tried again", self._partition.folder)
            self._bell.wait(LOOK_SECONDS)

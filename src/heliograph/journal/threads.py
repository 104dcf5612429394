"""The tasks that the partitions of a station share: committers, maintenance and timers.

A task per partition would be simpler, and ten thousand channels could not work like that. A partition is
served by one task at a time, whichever it is. Several commit at once, so that a partition whose sync takes
long holds up no other; syncs that happen together are one write of the file system's own journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from heliograph.taskpool import TaskPool
from heliograph.timers import Timers

if TYPE_CHECKING:
    from heliograph.ports import Ports

COMMITTERS: Final = 8
"""Commits at the same time."""
MAINTAINERS: Final = 2
"""Seals and rewritings at the same time: each is a process at full speed."""


class JournalThreads:
    """See the module."""

    def __init__(self, ports: Ports) -> None:
        self.committers = TaskPool(ports.tasks, "journal committer", limit=COMMITTERS, resident=1)
        self.maintenance = TaskPool(ports.tasks, "journal maintenance", limit=MAINTAINERS)
        self.timers = Timers(ports.clock, ports.tasks)

    def close(self) -> None:
        """End them; the partitions are closed by then."""
        self.timers.close()
        self.maintenance.close()
        self.committers.close()

"""One operation of the disk fails, each in turn: nothing is acknowledged that is not there afterwards."""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import DiskError, JournalError
from heliograph.journal.limits import Limits
from heliograph.sim import Fails, SimDisk
from tests.unit.journal.helpers import commit, history, partition, seal_everything, tracks

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.journal.format.records import Record
    from heliograph.journal.writing.partition import WritablePartition

LIMITS = Limits(head_events=6)


class Stubborn:
    """A writer whose owner goes on after every error, and opens the partition again when that failed."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.acked: dict[int, Record] = {}
        self.errors = 0
        self._writer: WritablePartition | None = None

    def work(self) -> None:
        for step in range(12):
            self._try(self._open)
            self._try(partial(self._commit, 3 * step, 1 + step % 3))
            if step in {3, 7}:
                self._try(self._seal)
            if step == 9:
                self._try(self._close)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (DiskError, JournalError):
            self.errors += 1

    def _open(self) -> None:
        if self._writer is None:
            self._writer = partition(self.disk, LIMITS)

    def _commit(self, first: int, count: int) -> None:
        if self._writer is not None:
            offset = commit(self._writer, tracks(first, count))
            for n, record in enumerate(tracks(first, count)):
                assert offset + n not in self.acked, "an acknowledged offset was given out again"
                self.acked[offset + n] = record

    def _seal(self) -> None:
        if self._writer is not None:
            seal_everything(self._writer, self.disk)

    def _close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def calls() -> int:
    disk = SimDisk()
    Stubborn(disk).work()
    return disk.calls


@pytest.mark.parametrize(
    ("error", "keep"), [(errno.EIO, "none"), (errno.ENOSPC, "random"), (errno.EIO, "all")]
)
def test_whatever_fails_all_that_was_acknowledged_survives_a_power_loss(error: int, keep: str) -> None:
    struck = 0
    for at in range(1, calls() + 1):
        disk = SimDisk(seed=at, faults=[Fails("any", at=at, error=error, partial=at % 90)])
        stubborn = Stubborn(disk)
        stubborn.work()
        struck += stubborn.errors > 0
        after = disk.crash(keep)  # type: ignore[arg-type]  # parametrize knows no literals
        partition(after).close()
        found = history(after)
        for offset, record in stubborn.acked.items():
            assert found[offset] == record, (at, offset)
        assert len(stubborn.acked) >= 15, "one error must not stop the journal for long"
    assert struck > 100

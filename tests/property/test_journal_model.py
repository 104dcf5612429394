"""A partition against a list: any sequence of appends, syncs, rotations, seals, drops, crashes and reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from heliograph.errors import HistoryGone
from heliograph.journal.limits import Limits
from heliograph.journal.reading.reader import PartitionReader
from heliograph.sim import SimDisk
from tests.support import examples
from tests.unit.journal.helpers import FOLDER, HandClock, chunk, partition, seal_everything, track

if TYPE_CHECKING:
    from heliograph.journal.format.records import Record
    from heliograph.journal.writing.partition import WritablePartition

LIMITS = Limits(head_events=7, head_seconds=100.0, keep_bytes=25_000, keep_seconds=1000.0)


class JournalModel(RuleBasedStateMachine):
    """`durable` is the whole history, `pending` what was written and not synced, `seen` what readers saw."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: list[tuple[int, Record]] = []
        self.pending: list[tuple[int, Record]] = []
        self.dropped = 0
        self.count = 0
        self.clock = HandClock()

    @initialize(seed=st.integers(0, 1000))
    def create(self, seed: int) -> None:
        self.disk = SimDisk(seed=seed)
        self.writer: WritablePartition = partition(self.disk, LIMITS, self.clock)
        self.reader = PartitionReader(self.disk, FOLDER)

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), pause=st.integers(0, 30))
    def write(self, sizes: list[int], pause: int) -> None:
        self.clock.now += pause * 10**9
        batches = []
        for size in sizes:
            batches.append([track(self.count + n) for n in range(size)])
            self.count += size
        written = self.writer.write([chunk(batch) for batch in batches])
        assert written.first == len(self.durable) + len(self.pending)
        self.pending += [(written.append_ts, record) for batch in batches for record in batch]

    @rule()
    def sync(self) -> None:
        self.writer.sync()
        self._pending_is_durable()

    @rule()
    def rotate(self) -> None:
        self.writer.rotate()

    @precondition(lambda self: not self.pending)
    @rule()
    def seal(self) -> None:
        seal_everything(self.writer, self.disk)

    @precondition(lambda self: not self.pending)
    @rule()
    def retain(self) -> None:
        self.writer.retain()
        assert self.writer.manifest.earliest >= self.dropped
        self.dropped = self.writer.manifest.earliest

    @precondition(lambda self: not self.pending)
    @rule()
    def reopen(self) -> None:
        self.writer.close()
        self._open()

    @rule()
    def kill(self) -> None:
        """Everything written is still in the system's cache, so it stays."""
        self.disk = self.disk.kill()
        self._open()
        self._pending_is_durable()

    @rule()
    def lose_power(self) -> None:
        self.disk = self.disk.crash("random")
        self._open()
        kept = self.writer.next - len(self.durable)
        assert 0 <= kept <= len(self.pending)
        del self.pending[kept:]
        self._pending_is_durable()

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(self.durable) + 2))
        most = data.draw(st.integers(1, 40))
        if start < self.dropped and start < len(self.durable):
            with pytest.raises(HistoryGone) as caught:
                self.reader.read(start, most)
            assert (caught.value.first, caught.value.next_available) == (start, self.dropped)
            return
        rows = self.reader.read(start, most)
        assert [row.offset for row in rows] == list(range(start, start + len(rows)))
        assert [(row.append_ts, row.record) for row in rows] == self.durable[start : start + most]

    @rule(data=st.data())
    def look_up_a_time(self, data: st.DataObject) -> None:
        times = [append_ts for append_ts, _ in self.durable[self.dropped :]]
        wanted = data.draw(st.sampled_from([*times, 0, self.clock.now + 1]))
        expected = next((n for n, append_ts in enumerate(times) if append_ts >= wanted), len(times))
        assert self.reader.offset_at(wanted) == self.dropped + expected

    @invariant()
    def the_watermark_is_what_is_durable(self) -> None:
        if hasattr(self, "reader"):
            assert self.reader.watermark == len(self.durable)
            assert self.reader.earliest == self.dropped

    def _open(self) -> None:
        self.writer = partition(self.disk, LIMITS, self.clock)
        assert self.writer.recovery.damage == ()
        self.reader = PartitionReader(self.disk, FOLDER)

    def _pending_is_durable(self) -> None:
        self.durable += self.pending
        self.pending = []


TestJournalModel = JournalModel.TestCase
TestJournalModel.settings = settings(max_examples=examples(60), stateful_step_count=40)

"""Readers racing with commits, rotation, sealing and retention: exact ranges, whatever the schedule."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import HistoryGone
from heliograph.journal.format.records import Record
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.seal import seal
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.sim import Simulation
from tests.support import examples
from tests.unit.journal.helpers import FOLDER, FORMATS, TRACK

if TYPE_CHECKING:
    from heliograph.journal.format.records import JournalRecord
    from heliograph.journal.writing.receipt import AppendReceipt

LIMITS = Limits(head_events=12, keep_bytes=14_000)
SUPPLIERS, PUSHES, READERS = 3, 40, 3


class Race:
    """One seed. `truth` is what `on_durable` was told, by offset."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed, step_ns=1000)
        self.truth: dict[int, Record] = {}
        self.finished = 0
        self.gone = 0
        """Events that retention took before a reader came to them."""
        self.read: list[tuple[int, Record]] = []

    def run(self) -> None:
        self.simulation.run(self._main)

    def _main(self) -> None:
        tasks = self.simulation.tasks
        with PartitionWriter(
            self.simulation.ports, FOLDER, FORMATS, limits=LIMITS, on_durable=self._durable, sealer=seal
        ) as writer:
            running = [
                tasks.spawn(f"supplier {n}", partial(self._supply, writer, n)) for n in range(SUPPLIERS)
            ]
            running += [tasks.spawn(f"reader {n}", partial(self._follow, n * 0.0005)) for n in range(READERS)]
            for task in running:
                task.join()

    def _durable(self, receipts: list[AppendReceipt]) -> None:
        for receipt in receipts:
            for offset, record in enumerate(receipt.records, receipt.first_offset):
                assert offset not in self.truth, "an offset was given out twice"
                self.truth[offset] = record

    def _supply(self, writer: PartitionWriter, supplier: int) -> None:
        for n in range(PUSHES):
            batch = [
                Record(f"s{supplier}", 1, 3 * n + i, 0, TRACK.id, b"\x92\x01\xa0") for i in range(1 + n % 3)
            ]
            writer.append(batch).result()
            if n % 10 == supplier:
                writer.seal()
                writer.retain()
        self.finished += 1

    def _follow(self, pause: float) -> None:
        clock, tasks = self.simulation.clock, self.simulation.tasks
        with PartitionReader(self.simulation.disk, FOLDER, clock=clock, tasks=tasks) as reader:
            position = 0
            while self.finished < SUPPLIERS or position < reader.watermark:
                if not reader.wait(position, timeout=0.01):
                    continue
                rows, available = self._read(reader, position)
                assert rows or available > position, "the watermark promised them"
                self.gone += available - position
                self.read += [(row.offset, row.record) for row in rows]
                assert [row.offset for row in rows] == list(range(available, available + len(rows)))
                position = available + len(rows)
                tasks.sleep(pause)
            assert position == sum(1 + n % 3 for n in range(PUSHES)) * SUPPLIERS

    def _read(self, reader: PartitionReader, position: int) -> tuple[list[JournalRecord], int]:
        """Rows from the position on, or none and the position that is the next to be had."""
        try:
            return reader.read(position, max_events=5), position
        except HistoryGone as gone:
            return [], gone.next_available if gone.first == position else -1


@pytest.mark.parametrize("seed", range(examples(20)))
def test_readers_get_every_event_or_the_exact_range_that_is_gone(seed: int) -> None:
    race = Race(seed)
    race.run()
    assert sorted(race.truth) == list(range(len(race.truth)))
    assert len(race.read) + race.gone == READERS * len(race.truth)
    for offset, record in race.read:
        assert record == race.truth[offset]


def test_some_of_the_readers_above_are_overtaken_by_retention() -> None:
    def gone(seed: int) -> int:
        race = Race(seed)
        race.run()
        return race.gone

    assert any(gone(seed) for seed in range(3))

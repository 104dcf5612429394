"""A station opens a channel without a sync; a power loss then takes nothing that was acknowledged."""

from __future__ import annotations

from functools import partial

import heliograph as hg
from heliograph.journal.charter import keep_charter, read_charter, sync_charter
from heliograph.journal.limits import Limits
from heliograph.journal.partition import Partition
from heliograph.journal.reader import PartitionReader
from heliograph.journal.recovery import make_folder
from heliograph.sim import SimDisk
from heliograph.sim.crashes import explore_crashes
from tests.support import examples
from tests.unit.journal.helpers import FORMATS, chunk, ports, tracks

CHANNEL = "air.tracks"
FOLDER = f"channels/{CHANNEL}/a1"
QOS = hg.QoS(durability="persistent", queue=5)


class Track(hg.Event, name="air.settled", key="id"):
    id: int


class Opening:
    """Opens a channel as a station does, closes it, opens it again, and lets go of its files in between."""

    def __init__(self) -> None:
        self.acked = 0
        self.epochs: list[int] = []
        """Those under which rows were written."""

    def run(self, disk: SimDisk) -> None:
        make_folder(disk, "channels")
        self._opened(disk).close()
        writer = self._opened(disk)
        self._commit(writer, 2)
        assert writer.let_go()
        self._commit(writer, 1)
        writer.close()

    def check(self, disk: SimDisk) -> None:
        make_folder(disk, "channels")
        if self.acked:
            assert read_charter(disk, CHANNEL).qos() == QOS
        writer = self._opened(disk)
        first = writer.watermark
        assert self.acked <= first <= 3
        self._commit(writer, 1)
        assert self.epochs == sorted(set(self.epochs)), "no epoch has rows of two lives"
        assert read_charter(disk, CHANNEL).qos() == QOS
        with PartitionReader(disk, FOLDER) as reader:
            assert [row.record.sequence for row in reader.read(0)] == list(range(first + 1))

    def _opened(self, disk: SimDisk) -> Partition:
        keep_charter(disk, CHANNEL, QOS, (Track,), sync=disk.exists(FOLDER))
        settle = partial(sync_charter, disk, CHANNEL)
        return Partition(ports(disk), FOLDER, FORMATS, Limits(), settle=settle)

    def _commit(self, writer: Partition, count: int) -> None:
        writer.write([chunk(tracks(writer.next, count))])
        if writer.epoch not in self.epochs[-1:]:
            self.epochs.append(writer.epoch)
        writer.sync()
        self.acked = writer.watermark


def test_no_power_loss_around_the_opening_of_a_channel_loses_what_was_acknowledged() -> None:
    explored = explore_crashes(Opening, outcomes=examples(100))
    assert explored.points > 30


def test_a_channel_is_opened_without_a_sync() -> None:
    disk = SimDisk()
    make_folder(disk, "channels")
    Opening()._opened(disk)
    lost = disk.crash("none")
    assert not lost.list("channels")

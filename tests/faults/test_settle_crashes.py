"""A station opens a channel without a sync; a power loss then takes nothing that was acknowledged."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial

import pytest

import heliograph as hg
from heliograph.journal.folders import make_folder
from heliograph.journal.format.channel_config import keep_charter, read_charter
from heliograph.journal.limits import Limits
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.writing.partition import WritablePartition
from heliograph.sim import Fails, SimDisk
from heliograph.sim.crashes import explore_crashes
from heliograph.testing import Rig
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

    def _opened(self, disk: SimDisk) -> WritablePartition:
        keep_charter(disk, CHANNEL, QOS, (Track,), sync=disk.exists(FOLDER))
        settle = partial(keep_charter, disk, CHANNEL, QOS, (Track,), anew=True)
        return WritablePartition(ports(disk), FOLDER, FORMATS, Limits(), settle=settle)

    def _commit(self, writer: WritablePartition, count: int) -> None:
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


@pytest.mark.parametrize("at", range(2, 9))
def test_what_a_channel_is_survives_though_the_first_sync_of_it_failed(at: int) -> None:
    """A second sync of the same file would succeed and leave nothing on the disk. The first sync of all is
    of the folder's own name: there is no station without it."""
    rig = Rig(disk=SimDisk(faults=[Fails("sync", at=at)]))
    tracks = rig.station.channel(CHANNEL, Track, qos=QOS)
    with suppress(hg.HeliographError):
        tracks.push(Track(id=1))
    tracks.push(Track(id=2))
    later = Rig(disk=rig.disk.crash("none"), seed=1)
    with closing(later.station):
        again = later.station.channel(CHANNEL, Track)
        assert again.qos == QOS
        assert 2 in [track.id for track in again.consumer(until="now", start="earliest")]


def test_a_charter_that_events_of_another_partition_depend_on_is_replaced_durably() -> None:
    disk = SimDisk()
    make_folder(disk, "channels")
    keep_charter(disk, CHANNEL, hg.QoS(durability="persistent"), (Track,))
    make_folder(disk, f"channels/{CHANNEL}/b2")
    make_folder(disk, f"channels/{CHANNEL}/b2/heads")
    with disk.create(f"channels/{CHANNEL}/b2/heads/some.log") as head:
        head.sync()
    disk.sync_folder(f"channels/{CHANNEL}/b2/heads")
    keep_charter(disk, CHANNEL, QOS, (Track,), sync=False)
    assert read_charter(disk.crash("none"), CHANNEL).qos() == QOS

"""A record of what a channel is that cannot be read: damage is named, one that was cut is not missed."""

from __future__ import annotations

import logging

import pytest

import heliograph as hg
from heliograph.errors import BadJournalFile
from heliograph.journal.folders import make_folder
from heliograph.journal.format.channel_config import keep_charter, keep_suspension, read_charter
from heliograph.sim import SimDisk

CHANNEL = "air.tracks"
RECORD = f"channels/{CHANNEL}/charter"
QOS = hg.QoS(durability="persistent", queue=5)


class Track(hg.Event, name="air.chartered", key="id"):
    id: int


def kept() -> SimDisk:
    disk = SimDisk()
    make_folder(disk, "channels")
    keep_charter(disk, CHANNEL, QOS, (Track,))
    return disk


def replaced(disk: SimDisk, data: bytes) -> None:
    disk.remove(RECORD)
    with disk.create(RECORD) as file:
        file.append(data)


def add_event_file(disk: SimDisk) -> None:
    for folder in (f"channels/{CHANNEL}/a1", f"channels/{CHANNEL}/a1/heads"):
        disk.make_folder(folder)
    with disk.create(f"channels/{CHANNEL}/a1/heads/0-1-0.log") as file:
        file.append(b"rows")


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"policies": {"durability": "persistent", "queue": -1}}',
        b'{"policies": {"durability": "persistent", "queue": -1}}\n',
        b'{"policies": 3}',
        b'{"policies": {"durability": "persistent"}, "formats": [["AAAA", "AAAA"]]}',
        b'{"policies": {"durability": "persis\xfftent"}}\n',
        b'{"policies"; {"durability": "persistent"}}\n',
    ],
)
def test_a_damaged_record_is_named_though_the_channel_has_no_events(damaged: bytes) -> None:
    disk = kept()
    replaced(disk, damaged)
    with pytest.raises(BadJournalFile, match=r"charter.*remove it and say qos="):
        read_charter(disk, CHANNEL)


def test_whichever_byte_of_a_suspended_channel_s_record_rots_it_is_never_taken_for_one_that_was_cut() -> None:
    disk = kept()
    keep_suspension(disk, CHANNEL, "tower")
    whole = disk.read(RECORD)
    for i in range(len(whole) - 1):
        replaced(disk, whole[:i] + b"\xff" + whole[i + 1 :])
        with pytest.raises(BadJournalFile):
            read_charter(disk, CHANNEL)


def test_one_that_a_power_loss_cut_anywhere_is_passed_over_until_there_are_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = kept()
    whole = disk.read(RECORD)
    cuts = [whole[:i] for i in range(len(whole) - 1)]
    for cut in (*cuts, bytes(len(whole)), whole[:20] + bytes(len(whole) - 20)):
        replaced(disk, cut)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert read_charter(disk, CHANNEL).qos() == hg.QoS(durability="persistent")
        assert "charter was cut by a power loss, and is passed over" in caplog.text
    replaced(disk, whole[:-1])
    assert read_charter(disk, CHANNEL).qos() == QOS, "all but its end is there"
    add_event_file(disk)
    for cut in cuts:
        replaced(disk, cut)
        with pytest.raises(BadJournalFile, match="charter"):
            read_charter(disk, CHANNEL)

"""The name of a folder's partition: given once, checked against its histories, never begun anew."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.cli import app
from heliograph.errors import BadJournalFile
from heliograph.journal.format.identity import PARTITION, inspect_identity, own_partition
from heliograph.sim import SimDisk, SimRandom

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track"):
    id: int


def missing(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:7])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flipped(file: Path) -> None:
    """Into what is a name all the same, or into none."""
    data = bytearray(file.read_bytes())
    data[3] ^= 1
    file.write_bytes(data)


def no_text(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[0] ^= 0x80
    file.write_bytes(data)


def supplied(folder: Path) -> str:
    """A history with a durable consumer that has come half-way; returns the name of the partition."""
    with hg.Station(folder) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        tracks.push_many([Track(n) for n in range(10)])
        with tracks.consumer(name="billing", ack="manual", start="earliest") as billing:
            deliveries = billing.deliveries(10.0)
            assert all(next(deliveries).ack() for _ in range(5))
    return (folder / PARTITION).read_text()


def helio(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("damage", [missing, cut, empty, flipped, no_text])
def test_a_folder_that_lost_its_name_is_refused_reported_and_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    name = supplied(tmp_path)
    damage(tmp_path / PARTITION)
    with pytest.raises(BadJournalFile, match="helio journal repair"):
        hg.Station(tmp_path)
    assert helio("journal", "verify", str(tmp_path)) == 1
    assert name in capsys.readouterr().out
    assert helio("journal", "verify", str(tmp_path), "--json") == 1
    verdict = json.loads(capsys.readouterr().out)
    assert not verdict["sound"]
    assert not verdict["identity"]["sound"]
    assert helio("journal", "repair", str(tmp_path), "--dry-run") == 1
    assert helio("journal", "repair", str(tmp_path)) == 0
    assert f"write {name} into 'partition'" in capsys.readouterr().out
    assert helio("journal", "verify", str(tmp_path)) == 0
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        with tracks.consumer(name="billing", until="now") as billing:
            assert [track.id for track in billing] == [5, 6, 7, 8, 9]
    found = (tmp_path / "channels" / "air.tracks").iterdir()
    assert [folder.name for folder in found if folder.is_dir()] == [name]


def test_of_several_names_the_folders_own_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    older = supplied(tmp_path)
    (tmp_path / "aside").mkdir()
    (tmp_path / "channels").rename(tmp_path / "aside" / "channels")
    (tmp_path / PARTITION).unlink()
    newer = supplied(tmp_path)
    (tmp_path / "aside" / "channels" / "air.tracks" / older).rename(
        tmp_path / "channels" / "air.tracks" / older
    )
    assert helio("journal", "verify", str(tmp_path)) == 0, "a history of another name is nobody's mistake"
    (tmp_path / PARTITION).unlink()
    assert helio("journal", "repair", str(tmp_path)) == 0
    assert (tmp_path / PARTITION).read_text() == newer


def test_where_there_is_no_history_a_file_without_a_name_is_written_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimDisk()
    with disk.create(PARTITION) as file:
        file.append(b"none")
    with caplog.at_level(logging.WARNING):
        name = own_partition(disk, SimRandom("1"))
    assert "held no name" in caplog.text
    assert own_partition(disk.kill(), SimRandom("2")) == name
    assert inspect_identity(disk.kill()).sound

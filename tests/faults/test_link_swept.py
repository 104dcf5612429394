"""The meeting folder is swept while stations live, as cleaners of temporary files do."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.links.transports import unix
from heliograph.links.transports.discovery import DiscoveryFolder
from tests.e2e.link_programs import Program, heard
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def hearer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Program]:
    own_meeting_folder(monkeypatch, tmp_path)
    program = Program("hear", "x")
    yield program
    program.clean_up()


def remove_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink(missing_ok=True)


def remove_locks(folder: Path) -> None:
    for path in folder.glob("*.lock"):
        path.unlink(missing_ok=True)


def remove_sockets(folder: Path) -> None:
    for path in folder.glob("*.sock"):
        path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "sweep",
    [
        remove_files,
        remove_locks,
        remove_sockets,
        lambda folder: shutil.rmtree(folder.parent, ignore_errors=True),
    ],
    ids=["files", "locks", "sockets", "folders"],
)
def test_stations_stay_linked_and_are_met_by_others(hearer: Program, sweep: Callable[[Path], None]) -> None:
    with ExitStack() as stack:
        station = stack.enter_context(hg.Station(domain="e2e"))
        tracks = station.channel("x", Track)
        assert tracks.wait_matched(1, LIMIT)
        folder = DiscoveryFolder("e2e")
        before = {path.name: path.lstat().st_ino for path in folder.path.iterdir()}
        pushed = 0
        sweep(folder.path)

        def is_made_again() -> bool:
            nonlocal pushed
            tracks.push(Track(pushed))
            pushed += 1
            found = [folder.path / name for name in before]
            return all(path.exists() for path in found) and len(folder.alive()) == 2

        assert wait_until(is_made_again), sorted(folder.path.iterdir())
        assert wait_until(lambda: heard(hearer)[:2] == ({"x": pushed}, True)), "nothing was lost meanwhile"
        assert station.mesh is not None
        assert [link.connections for link in station.mesh.stats()] == [1]
        # Stations that come now meet both, whoever dials whom.
        for place in range(3):
            late = stack.enter_context(hg.Station(domain="e2e")).channel("x", Track)
            assert late.wait_matched(1, LIMIT)
            with late.consumer() as consumer:
                assert tracks.wait_matched(2, LIMIT)
                tracks.push(Track(pushed + place))
                assert consumer.pull(LIMIT) == Track(pushed + place)
    assert wait_until(lambda: len(folder.alive()) == 1), "who has left is gone"


def test_a_station_that_was_killed_after_a_sweep_is_gone(hearer: Program) -> None:
    with hg.Station(domain="e2e") as station:
        tracks = station.channel("x", Track)
        assert tracks.wait_matched(1, LIMIT)
        hearer.kill()
        remove_files(DiscoveryFolder("e2e").path)
        assert wait_until(lambda: not tracks.wait_matched(1, 0))
        assert station.mesh is not None
        assert station.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)


def test_files_of_a_station_stay_young(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setattr(unix, "KEEP_YOUNG_EVERY", 2)
    with hg.Station(domain="e2e"):
        files = list(DiscoveryFolder("e2e").path.iterdir())
        assert len(files) == 2
        for path in files:
            os.utime(path, (1.0, 1.0))
        assert wait_until(lambda: all(path.lstat().st_mtime > 1.0 for path in files))

"""The manager's station killed with kill -9, again and again, while a standby waits for its folder."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from itertools import count
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import HeliographError
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until
from tests.support import examples

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 3
STANDBYS = 2


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


class Claimants:
    """A station with a folder and its standbys: whoever says which station it is acts as the manager."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.running: list[Program] = []

    def start(self) -> Program:
        options = ("--domain", "e2e", "--folder", str(self._folder), "--standby", "--no-page")
        one = Program("station", *options, module="heliograph.cli")
        self._stack.callback(one.clean_up)
        self.running.append(one)
        return one

    def acting(self) -> list[Program]:
        return [one for one in self.running if any(line.startswith("station ") for line in one.said)]

    def kill(self) -> None:
        """Kill the one that acts, and have another stand by."""
        (active,) = self.acting()
        active.kill()
        self.running.remove(active)
        self.start()
        assert wait_until(lambda: len(self.acting()) == 1, 3 * LIMIT), [one.said for one in self.running]


class Joiner:
    """Has one member after another join, and knows which of them must be members, and which may be."""

    def __init__(self, station: hg.Station) -> None:
        self._manager = station.domain_manager
        self._end = Event()
        self.told: set[str] = set()
        self.unknown: set[str] = set()
        self.away = 0
        self.failed: list[HeliographError] = []
        self.thread = Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        for number in count():
            if self._end.is_set():
                return
            user = f"user {number}"
            try:
                self._manager.join("wing", user, access="supply", lease=0)
            except hg.ManagerAway as error:
                self.away += 1
                if error.unknown:
                    self.unknown.add(user)
            except HeliographError as error:
                self.failed.append(error)
            else:
                self.told.add(user)

    def has_told(self, so_many: int) -> bool:
        return len(self.told) > so_many

    def end(self) -> None:
        self._end.set()
        self.thread.join(3 * LIMIT)
        assert not self.thread.is_alive()


@pytest.mark.timeout(examples(300))
def test_a_standby_takes_over_and_exactly_one_acts_though_the_manager_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    with ExitStack() as stack:
        claimants = Claimants(folder, stack)
        claimants.start()
        assert wait_until(lambda: len(claimants.acting()) == 1, 3 * LIMIT)
        for _ in range(STANDBYS):
            claimants.start()
        station = stack.enter_context(hg.Station(domain="e2e"))
        manager = station.domain_manager
        manager.create("wing", Track, owner="anna", lease=0)
        supplier = stack.enter_context(manager.member("wing", "anna").supplier())
        pushed: list[int] = []
        joiner = Joiner(station)
        try:
            for life in range(examples(KILLS)):
                before = len(joiner.told)
                assert wait_until(partial(joiner.has_told, before + 5), 3 * LIMIT)
                claimants.kill()
                # Data: what is acknowledged is kept, whichever station has the folder by then.
                assert wait_until(partial(_is_pushed, supplier, Track(life)), 3 * LIMIT)
                pushed.append(life)
        finally:
            joiner.end()
        assert not joiner.failed
        members = set(manager.find_managed("wing").members) - {"anna"}
        assert joiner.told <= members <= joiner.told | joiner.unknown
        assert len(claimants.acting()) == 1  # the others still wait
    records = hg.history(folder, "_helio.activity").arrow().to_pylist()
    numbers = [record["number"] for record in records]
    assert numbers == list(range(1, len(records) + 1))  # each once: no two wrote at a time
    terms = [record["term"] for record in records]
    assert terms == sorted(terms)
    assert len(set(terms)) == examples(KILLS) + 1
    kept = [row["id"] for row in hg.history(folder, "wing").arrow().to_pylist()]
    assert sorted(set(kept)) == pushed


def _is_pushed(supplier: hg.Supplier[Track], event: Track) -> bool:
    try:
        return supplier.push(event, id=f"life {event.id}")
    except HeliographError:
        return False  # its keeper is away; under its id it is kept once


def test_a_standby_does_nothing_while_the_manager_is_only_stopped(tmp_path: Path) -> None:
    with ExitStack() as stack:
        claimants = Claimants(tmp_path / "data", stack)
        active = claimants.start()
        active.says("station ", 3 * LIMIT)
        claimants.start()
        station = stack.enter_context(hg.Station(domain="e2e"))
        station.domain_manager.create("wing", Track, owner="anna", lease=0)
        assert wait_until(lambda: len(_standbys(station)) == 1, 3 * LIMIT)
        active.stop()
        try:
            with pytest.raises(HeliographError):
                hg.Station(tmp_path / "data", standby=1.0)
            assert claimants.acting() == [active]
        finally:
            active.go_on()
        station.domain_manager.join("wing", "bert", lease=0)
        assert station.domain_manager.find_managed("wing").members.keys() == {"anna", "bert"}
        os.kill(active.process.pid, 9)
        assert wait_until(lambda: len(claimants.acting()) == 2, 3 * LIMIT)
        assert station.domain_manager.find_managed("wing").members.keys() == {"anna", "bert"}


def _standbys(station: hg.Station) -> list[str]:
    assert station.mesh is not None
    return [other.name for other in station.mesh.stations() if other.name.endswith(", standby")]

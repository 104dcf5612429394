"""Of two managers of one folder the later one may act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

import heliograph as hg
from heliograph.errors import BadJournalFile
from heliograph.manager.fence import TERM, ManagerFence
from heliograph.runtime.local_disk import LocalDisk
from heliograph.runtime.ports import SystemRandom
from tests.e2e.link_support import Track

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.runtime.ports import Random


def test_each_manager_of_a_folder_has_a_term_above_all_before_it(tmp_path: Path) -> None:
    with LocalDisk(tmp_path) as disk:
        assert [ManagerFence(disk, SystemRandom()).term for _ in range(3)] == [1, 2, 3]


def test_a_manager_that_was_succeeded_may_not_act_and_its_successor_may(tmp_path: Path) -> None:
    with LocalDisk(tmp_path) as disk:
        first = ManagerFence(disk, SystemRandom())
        first.check()
        second = ManagerFence(disk, SystemRandom())
        second.check()
        with pytest.raises(hg.ManagerFenced) as fenced:
            first.check()
        assert (fenced.value.term, fenced.value.later) == (1, 2)


class _Begins:
    """Chance; who draws from it has read the term and not written its own: another manager begins then."""

    def __init__(self, disk: LocalDisk) -> None:
        self._disk = disk
        self.other: ManagerFence | None = None

    def bytes(self, n: int) -> bytes:
        self.other = ManagerFence(self._disk, SystemRandom())
        return SystemRandom.bytes(n)

    def __getattr__(self, name: str) -> Any:
        return getattr(SystemRandom, name)


def test_of_two_managers_that_begin_at_the_same_instant_one_may_act(tmp_path: Path) -> None:
    with LocalDisk(tmp_path) as disk:
        begins = _Begins(disk)
        last = ManagerFence(disk, cast("Random", begins))
        assert begins.other is not None
        assert (last.term, begins.other.term) == (1, 1), "both read before either wrote"
        last.check()
        with pytest.raises(hg.ManagerFenced):
            begins.other.check()
        begins.other.hear(1)
        with pytest.raises(hg.ManagerFenced):
            begins.other.check()
        last.check()


def test_a_manager_hears_of_its_successor_from_those_who_ask(tmp_path: Path) -> None:
    with LocalDisk(tmp_path) as disk:
        fence = ManagerFence(disk, SystemRandom())
        fence.hear(1)
        fence.check()
        fence.hear(4)
        with pytest.raises(hg.ManagerFenced, match="term 4"):
            fence.check()


def test_who_has_heard_of_a_later_term_leaves_it_to_its_successor(tmp_path: Path) -> None:
    with LocalDisk(tmp_path) as disk:
        fence = ManagerFence(disk, SystemRandom())
        fence.hear(8)
        with pytest.raises(hg.ManagerFenced):
            fence.check()
        assert ManagerFence(disk, SystemRandom()).term == 9


def test_a_damaged_term_stops_the_manager_and_the_next_takes_it_from_the_log(tmp_path: Path) -> None:
    with LocalDisk(tmp_path) as disk:
        fence = ManagerFence(disk, SystemRandom())
        data = bytearray((tmp_path / TERM).read_bytes())
        data[-1] ^= 1
        (tmp_path / TERM).write_bytes(data)
        with pytest.raises(BadJournalFile):
            fence.check()
        assert ManagerFence(disk, SystemRandom(), least=5).term == 6


def test_a_manager_that_was_succeeded_records_nothing_and_shows_nothing_to_others(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        manager = station.manager
        manager.create("wing", Track, owner="anna")
        with LocalDisk(tmp_path) as disk:
            ManagerFence(disk, SystemRandom())  # as one that has got past a lock that does not hold
        for call in (
            lambda: manager.join("wing", "bert"),
            lambda: manager.suspend("wing", by="anna"),
            lambda: manager.create("tail", Track, owner="anna"),
            lambda: manager.leave("wing", "anna"),
            manager.check_term,
        ):
            with pytest.raises(hg.ManagerFenced):
                call()
        assert station.channel("_helio.activity", hg.Activity).stats().pushed == 1
    with hg.Station(tmp_path) as station:
        assert station.manager.term == 3
        assert [found.name for found in station.manager.channels()] == ["wing"]
        assert not station.manager.find_managed("wing").suspended


def test_a_record_of_a_manager_that_had_been_succeeded_counts_for_nothing(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        station.manager.create("wing", Track, owner="anna")
        station.manager.join("wing", "bert")
    with hg.Station(tmp_path) as station:
        station.manager.find("wing", Track)
        station.manager.join("wing", "carl")
        log = station.channel("_helio.activity", hg.Activity)
        with log.consumer(start="earliest", until="now") as records:
            late = list(records)[1]
        assert (late.kind, late.user, late.term) == ("joined", "bert", 1)
        late.user, late.number = "dora", 4
        log.push(late)
    with hg.Station(tmp_path) as station:
        assert station.manager.find_managed("wing").members.keys() == {"anna", "bert", "carl"}

"""The log of activity stays short, and says the same at every step of its compaction."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import pytest

import heliograph as hg
from heliograph.errors import BadJournalFile
from heliograph.journal.store import JournalStore
from heliograph.manager import manager as managers
from heliograph.manager.roster import Activity, Roster
from heliograph.testing import Rig
from tests.e2e.link_support import wait_until
from tests.manager_model import Drawing, Model, Operation, perform, shown

if TYPE_CHECKING:
    from pathlib import Path

WING = "project.wing"
ASKED = (
    Operation("created", WING, "anna", "supply", ""),
    Operation("joined", WING, "bert", "consume", ""),
    Operation("joined", WING, "carl", "both", ""),
    Operation("suspended", WING, "anna", "", ""),
    Operation("transferred", WING, "anna", "", "carl"),
    Operation("left", WING, "anna", "", ""),
    Operation("created", "tail", "dora", "both", ""),
    Operation("destroyed", "tail", "dora", "", ""),
)


def played(manager: hg.Station) -> Model:
    model = Model()
    for asked in ASKED:
        perform(manager.manager, asked)
        model.do(asked)
    return model


def test_after_a_compaction_the_log_is_one_record_and_says_the_same(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        model = played(station)
        before = station.manager.channels()
        begins = station.manager.compact()
        assert begins == len(ASKED)
        assert station.manager.channels() == before
    with hg.Station(tmp_path) as station:
        assert station.manager.channels() == before
        assert shown(station.manager.channels()) == model.shown()
        log = station.channel("_helio.activity", hg.Activity)
        with log.consumer(start="earliest", until="now") as records:
            assert [record.kind for record in records] == ["compacted"]
        station.manager.restart(WING, by="carl")
        station.manager.find("project.wing", Drawing)
        station.manager.join(WING, "emil", access="consume")
        numbers = {member.number for member in station.manager.find_managed(WING).members.values()}
        assert len(numbers) == 3  # the new one has a number of its own
        # A name that was used before a compaction is free, with what is kept under it.
        station.manager.create("tail", Drawing, owner="anna")


def test_the_log_is_compacted_by_itself_and_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managers, "COMPACT_RECORDS", 20)
    with hg.Station(tmp_path) as station:
        manager = station.manager
        manager.create(WING, Drawing, owner="anna")
        store = station.channel("_helio.activity", hg.Activity).store
        assert isinstance(store, JournalStore)
        for number in range(100):
            manager.join(WING, f"user {number}", access="supply")
            manager.leave(WING, f"user {number}")
        assert wait_until(lambda: store.watermark - store.earliest <= 60)
        assert store.earliest > 100
    with hg.Station(tmp_path) as station:
        assert station.manager.find_managed(WING).members.keys() == {"anna"}


class _Cut(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("kept", ["none", "all", "random"])
@pytest.mark.parametrize("step", ["before it is sealed", "before the record", "before the drop", "after it"])
def test_whenever_the_power_goes_during_a_compaction_the_log_says_the_same(
    step: str, kept: Literal["none", "all", "random"], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig()
    model = played(rig.station)

    def cut(*_: object) -> None:
        raise _Cut

    with monkeypatch.context() as patch:
        if step == "before it is sealed":
            patch.setattr(JournalStore, "seal", cut)
        elif step == "before the record":
            patch.setattr(Roster, "compacting", cut)
        elif step == "before the drop":
            patch.setattr(JournalStore, "purge", cut)
        with suppress(_Cut):
            rig.station.manager.compact()
    later = Rig(disk=rig.disk.crash(kept), seed=1)
    try:
        manager = later.station.manager
        assert shown(manager.channels()) == model.shown()
        manager.compact()
        assert shown(manager.channels()) == model.shown()
    finally:
        later.station.close()


def test_a_log_that_lost_its_beginning_is_refused(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        played(station)
        store = station.channel("_helio.activity", hg.Activity).store
        assert isinstance(store, JournalStore)
        store.seal()
        station.manager.restart(WING, by="carl")
        store.purge(len(ASKED))
    with hg.Station(tmp_path) as station, pytest.raises(BadJournalFile, match="what was before is gone"):
        _ = station.manager


def test_a_compaction_forgets_former_groups_whose_cursors_are_gone() -> None:
    roster = Roster()
    roster.apply(roster.creating("wing", "anna", 1, access="both"))
    roster.apply(roster.joining("wing", "bert", 2, access="both"))
    roster.apply(roster.leaving("wing", "bert", 3))
    assert len(list(roster._left["wing"])) == 1
    for has_cursor, left in ((True, 1), (False, 0)):
        record = roster.compacting(4, lambda *_, has=has_cursor: has)
        anew = Roster([record])
        assert len(anew._left.get("wing", ())) == left
        assert anew.channels() == roster.channels()


def test_records_of_ends_say_how_far_members_had_acknowledged(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        manager = station.manager
        manager.create(WING, Drawing, owner="anna", access="supply")
        bert = manager.join(WING, "bert", access="consume")
        with manager.member(WING, "anna").supplier() as supplier:
            supplier.push_many([Drawing(number) for number in range(5)])
        with bert.consumer() as consumer:
            for _ in range(3):
                consumer.pull(10.0)
        manager.suspend(WING, by="anna")
        log = station.channel("_helio.activity", hg.Activity)
        with log.consumer(start="earliest", until="now") as records:
            found = [record for record in records if record.kind == "suspended"]
        assert isinstance(found[0], Activity)
        assert found[0].event_state == {"bert": 2}  # what it holds is not acknowledged yet


def test_a_record_of_an_event_says_who_has_acknowledged_it_also_in_the_next_life(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        manager = station.manager
        manager.create(WING, Drawing, owner="anna", access="supply")
        manager.join(WING, "bert", access="consume")
        manager.join(WING, "carl", access="consume", where="number > 1")
        with manager.member(WING, "anna").supplier() as supplier:
            supplier.push_many([Drawing(number) for number in range(3)])
        with manager.member(WING, "bert").consumer(until="now") as consumer:
            assert len(list(consumer)) == 3
    with hg.Station(tmp_path) as station:
        station.manager.find(WING, Drawing)
        found = station.manager.event_records(WING)
        assert [(one.supplier, one.channel, one.event, one.state, one.offset) for one in found] == [
            ("anna", WING, Drawing(0), {"bert": True}, 0),
            ("anna", WING, Drawing(1), {"bert": True}, 1),
            ("anna", WING, Drawing(2), {"bert": True, "carl": False}, 2),
        ]
        assert all(one.at_ns for one in found)
        assert [one.offset for one in station.manager.event_records(WING, start=1, most=1)] == [1]

"""Stations without a folder, whose events another station keeps: in every version of their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import CursorHeld
from heliograph.links.history.directory import KeepAsk
from heliograph.model.event import info_of
from heliograph.qos.policies import policies_of
from tests.e2e.link_support import LIMIT, own_meeting_folder

if TYPE_CHECKING:
    from pathlib import Path

PERSISTENT = hg.QoS(durability="persistent")


class Old(hg.Event, name="air.mission", key="robot"):
    robot: str
    n: int = 0


class New(hg.Event, name="air.mission", key="robot"):
    robot: str
    n: int = 0
    note: str = "none"


class Alarm(hg.Event, name="air.alarm"):
    level: int


class Clashing(hg.Event, name="air.mission", key="robot"):
    robot: str
    n: str


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def keeper_of(folder: Path, cls: type[hg.Event] | None) -> hg.Station:
    """A station that has the channel with a class of its program, or keeps what others ask for."""
    keeper = hg.Station(folder, domain="air")
    if cls is None:
        keeper.keep_for_others()
    else:
        keeper.channel("air.missions", cls, qos=PERSISTENT)
    return keeper


def missions(station: hg.Station, *types: type[Any]) -> hg.Channel[Any]:
    return station.channel("air.missions", *types, qos=PERSISTENT)


AS_OLD = [Old("a", 1), Old("b", 2), Old("c", 3)]
AS_NEW = [New("a", 1), New("b", 2, "kept"), New("c", 3, "kept too")]


@pytest.mark.parametrize(
    ("kept_in", "newer_first"), [(None, False), (None, True), (Old, False), (New, False)]
)
def test_what_is_pushed_in_another_version_is_kept_and_handed_on_as_it_was_pushed(
    tmp_path: Path, kept_in: type[hg.Event] | None, newer_first: bool
) -> None:
    for life in range(2):
        with (
            keeper_of(tmp_path / "data", kept_in),
            hg.Station(domain="air") as one,
            hg.Station(domain="air") as other,
        ):
            if newer_first:
                new, old = missions(other, New), missions(one, Old)
            else:
                old, new = missions(one, Old), missions(other, New)
            if not life:
                live = [old.consumer(start="now"), new.consumer(start="now")]
                assert old.push(AS_OLD[0])
                assert new.push(AS_NEW[1])
                assert new.push_many([AS_NEW[2]])
                assert [live[0].pull(LIMIT) for _ in range(3)] == AS_OLD
                assert [live[1].pull(LIMIT) for _ in range(3)] == AS_NEW
            assert list(old.consumer(until="now")) == AS_OLD
            assert list(new.consumer(until="now")) == AS_NEW
            assert list(new.consumer(until="now", where="note = 'none'")) == AS_NEW[:1]


def test_the_keepers_own_consumers_get_other_versions_in_their_class(tmp_path: Path) -> None:
    with keeper_of(tmp_path / "data", Old) as keeper, hg.Station(domain="air") as other:
        here = missions(keeper, Old)
        live, picked = here.consumer(start="now"), here.consumer(start="now", where="n > 1")
        there = missions(other, New)
        assert here.push(AS_OLD[0])
        assert there.push_many(AS_NEW[1:])
        assert here.push(Old("d", 4))
        assert [live.pull(LIMIT) for _ in range(4)] == [*AS_OLD, Old("d", 4)]
        assert [picked.pull(LIMIT) for _ in range(3)] == [*AS_OLD[1:], Old("d", 4)]


@pytest.mark.parametrize("kept_in", [None, Old])
def test_what_waits_until_its_instant_comes_in_the_version_in_which_it_was_pushed(
    tmp_path: Path, kept_in: type[hg.Event] | None
) -> None:
    with keeper_of(tmp_path / "data", kept_in), hg.Station(domain="air") as other:
        old = missions(other, Old)
        with hg.Station(domain="air") as newer:
            new = missions(newer, New)
            late = old.consumer(start="now")
            assert new.push(New("a", 1, "soon"), deliver_after=0.01)
            assert late.pull(LIMIT) == Old("a", 1)
            assert list(new.consumer(until="now")) == [New("a", 1, "soon")]
            assert new.push(New("b", 2, "next life"), deliver_after=0.5)
    with keeper_of(tmp_path / "data", kept_in), hg.Station(domain="air") as newer:
        waiting = missions(newer, New).consumer()
        assert [waiting.pull(LIMIT), waiting.pull(LIMIT)] == [New("a", 1, "soon"), New("b", 2, "next life")]


def test_members_of_a_group_at_a_keeper_without_classes_get_events_as_they_were_pushed(
    tmp_path: Path,
) -> None:
    with (
        keeper_of(tmp_path / "data", None),
        hg.Station(domain="air") as one,
        hg.Station(domain="air") as other,
    ):
        new, old = missions(one, New), missions(other, Old)
        assert old.push(AS_OLD[0])
        assert new.push(AS_NEW[1])
        member = new.consumer(group="crew")
        assert [member.pull(LIMIT), member.pull(LIMIT)] == AS_NEW[:2]


def test_a_version_that_does_not_go_together_with_what_is_kept_is_refused(tmp_path: Path) -> None:
    for kept_in in (None, Old):
        with (
            keeper_of(tmp_path / f"{kept_in}", kept_in),
            hg.Station(domain="air") as one,
            hg.Station(domain="air") as other,
        ):
            old, clashing = missions(one, Old), missions(other, Clashing)
            with pytest.raises(hg.IncompatibleFormats, match=r"does not go together.*\$\.n: str .* i64"):
                clashing.push(Clashing("a", "one"))
            assert old.push(AS_OLD[0])
            assert list(old.consumer(until="now")) == AS_OLD[:1]


def test_a_keeper_without_classes_takes_in_further_types(tmp_path: Path) -> None:
    for life in range(2):
        with keeper_of(tmp_path / "data", None), hg.Station(domain="air") as one:
            carried = missions(one, Old)
            if not life:
                carried.push(AS_OLD[0])
                with hg.Station(domain="air") as other:
                    missions(other, Old, Alarm).push(Alarm(1))
                missions(one, Alarm).push(Alarm(2))  # the same channel, which carries one type more
                assert list(carried.consumer(until="now")) == [AS_OLD[0], Alarm(1), Alarm(2)]
    with keeper_of(tmp_path / "data", None), hg.Station(domain="air") as one:
        carried = missions(one, Old, Alarm)
        assert list(carried.consumer(until="now")) == [AS_OLD[0], Alarm(1), Alarm(2)]


def test_a_keeper_with_classes_of_its_own_says_what_to_do_about_further_types(tmp_path: Path) -> None:
    with keeper_of(tmp_path / "data", Old), hg.Station(domain="air") as one:
        carried = missions(one, Old, Alarm)
        with pytest.raises(hg.NotPossible, match="open it there with their types"):
            carried.push(Alarm(1))


def test_who_finds_a_consumer_taken_reads_which_station_has_it(tmp_path: Path) -> None:
    with (
        hg.Station(tmp_path / "data", domain="air", name="tower") as keeper,
        hg.Station(domain="air", name="radar") as other,
    ):
        here, there = missions(keeper, Old), missions(other, Old)
        with here.consumer(name="billing"), pytest.raises(CursorHeld, match=rf"{keeper.id:016x} \(tower\)"):
            there.consumer(name="billing")
        with there.consumer(name="billing"), pytest.raises(CursorHeld, match=rf"{other.id:016x} \(radar\)"):
            here.consumer(name="billing")


@pytest.mark.parametrize("second", [Old, New, Alarm])
def test_several_stations_may_ask_for_a_new_channel_to_be_kept_at_once(
    tmp_path: Path, second: type[hg.Event]
) -> None:
    with keeper_of(tmp_path / "data", None) as keeper, hg.Station(domain="air") as one:
        assert one.mesh is not None
        one.mesh.meet_all()
        for cls in (Old, second):
            fmt = info_of(cls).format
            ask = KeepAsk("air.missions", policies_of(PERSISTENT), [(fmt.id, fmt.description)])
            one.mesh.ask(keeper.id, "keep", ask, LIMIT)
        (kept,) = keeper.channels()
        assert set(kept.type_names) == {info_of(cls).name for cls in (Old, second)}

"""Owners and participants in other processes than the one that keeps the channel; kills of each."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@contextmanager
def program(
    *arguments: str, module: str = "tests.e2e.member_process", begins: str = "ready"
) -> Iterator[Program]:
    running = Program(*arguments, module=module)
    try:
        running.says(begins)
        yield running
    finally:
        running.clean_up()


def keeper(tmp_path: Path) -> Any:
    folder = str(tmp_path / "data")
    return program(
        "station", "--domain", "e2e", "--folder", folder, module="heliograph.cli", begins="station"
    )


def tell(one: Program, words: str, answer: str = "done") -> str:
    before = len(one.said)
    assert one.process.stdin is not None
    one.process.stdin.write(f"{words}\n")
    one.process.stdin.flush()
    found: list[str] = []

    def answered() -> bool:
        found[:] = [line for line in one.said[before:] if line.startswith(("done", "refused"))]
        return bool(found) or one.process.poll() is not None

    assert wait_until(answered)
    assert found, one.said
    assert found[0].startswith(answer), found[0]
    return found[0]


def members(station: hg.Station) -> set[str]:
    try:
        return set(station.domain_manager.find_managed("wing").members)
    except hg.EventChannelNotFound:
        return set()


def test_all_is_done_from_processes_that_keep_nothing_and_access_is_enforced(tmp_path: Path) -> None:
    with keeper(tmp_path), program("anna", "60") as anna, program("bert", "60") as bert:
        tell(anna, "create")
        assert "NameAlreadyUsed" in tell(bert, "create", "refused")
        tell(anna, "push 5")
        tell(bert, "join consume")
        tell(bert, "consume")
        assert wait_until(lambda: sum(line.startswith("got") for line in bert.said) == 5)
        assert "only consumes here" in tell(bert, "push 1", "refused")  # at its own door
        assert "is of no member" in tell(bert, "plain", "refused")  # and at the keeper's
        assert "NotOwner" in tell(bert, "suspend", "refused")
        tell(anna, "suspend")
        assert "Suspended" in tell(anna, "push 1", "refused")
        tell(anna, "restart")
        tell(anna, "push 2")
        assert wait_until(lambda: sum(line.startswith("got") for line in bert.said) == 7)
        with hg.Station(domain="e2e") as station:
            (found,) = station.domain_manager.search("*", type="air.track")
            assert (found.owner, set(found.members), found.members_only) == ("anna", {"anna", "bert"}, True)
            assert station.domain_manager.search(text="rudder") == ()
            channel = station.channel("wing", Track)
            with pytest.raises(hg.NotPossible, match="is of no member"):
                channel.consumer(group="spies")
            tell(anna, "transfer")
            assert station.domain_manager.find_managed("wing").owner == "bert"
            with pytest.raises(hg.EventsUnderWay):  # anna has not consumed her own
                station.domain_manager.destroy("wing", by="bert")
            station.domain_manager.leave("wing", "anna")
            station.domain_manager.destroy("wing", by="bert")
            with pytest.raises(hg.EventChannelNotFound):
                station.domain_manager.find("wing")


def test_a_member_that_is_killed_leaves_and_an_owner_that_is_killed_is_succeeded(tmp_path: Path) -> None:
    with keeper(tmp_path), hg.Station(domain="e2e") as station, program("anna", "1") as anna:
        tell(anna, "create")
        with program("bert", "1") as bert, program("carl", "1") as carl:
            tell(bert, "join both")
            tell(carl, "join consume")
            assert members(station) == {"anna", "bert", "carl"}
            carl.kill()
            assert wait_until(lambda: members(station) == {"anna", "bert"})
            tell(bert, "push 3")
            anna.kill()
            assert wait_until(lambda: members(station) == {"bert"})
            assert station.domain_manager.find_managed("wing").owner == "bert"
            bert.kill()
        assert wait_until(lambda: members(station) == set())  # nobody is left: destroyed, and its events kept
    assert len(hg.history(tmp_path / "data", "wing").arrow()) == 3


def test_members_and_events_are_there_again_when_the_keeper_was_killed(tmp_path: Path) -> None:
    with keeper(tmp_path) as first, program("anna", "60") as anna, program("bert", "60") as bert:
        tell(anna, "create")
        tell(bert, "join consume")
        tell(bert, "consume")
        tell(anna, "push 3")
        assert wait_until(lambda: sum(line.startswith("got") for line in bert.said) == 3)
        first.kill()
        with keeper(tmp_path), hg.Station(domain="e2e") as station:
            assert wait_until(lambda: members(station) == {"anna", "bert"})
            tell(anna, "push 2")
            assert wait_until(lambda: sum(line.startswith("got") for line in bert.said) >= 5)


def test_an_event_is_moved_to_another_channel_once(tmp_path: Path) -> None:
    with keeper(tmp_path), hg.Station(domain="e2e") as station:
        manager = station.domain_manager
        for name in ("wing", "tail"):
            manager.create(name, Track, owner="anna")
        with manager.member("wing", "anna").supplier() as supplier:
            supplier.push_many([Track(i) for i in range(3)])
        for _ in range(2):
            assert manager.transfer_event("wing", "tail", 1, by="anna")
        got = []
        with manager.member("tail", "anna").consumer() as consumer:
            got = [delivery.event.id for delivery in consumer.deliveries(1.0)]
        assert got == [1]
        with pytest.raises(hg.NotPossible, match="no event at offset 7"):
            manager.transfer_event("wing", "tail", 7, by="anna")
        with pytest.raises(hg.EventChannelNotFound):
            manager.transfer_event("rudder", "tail", 0, by="anna")
        with pytest.raises(hg.NotAMember):
            manager.transfer_event("wing", "tail", 1, by="bert")
        assert LIMIT


def test_stations_that_keep_ask_each_other_and_create_what_is_the_same_in_one_place(tmp_path: Path) -> None:
    with (
        hg.Station(str(tmp_path / "a"), domain="e2e") as a,
        hg.Station(str(tmp_path / "b"), domain="e2e") as b,
    ):
        for one in (a, b):
            assert one.domain_manager.search("wing", type="track") == ()
        refused: list[BaseException] = []

        def create(station: hg.Station, owner: str) -> None:
            try:
                station.domain_manager.create("wing", Track, owner=owner)
            except hg.NameAlreadyUsed as error:
                refused.append(error)

        threads = [Thread(target=create, args=each) for each in ((a, "anna"), (b, "bert"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert len(refused) == 1
        for one in (a, b):
            assert [managed.name for managed in one.domain_manager.search()] == ["wing"]

"""Who is no member gets nothing of a channel for members only and gives it nothing, at every door."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import BatchRefused
from heliograph.journal.inbox.staging import StagedBatch
from heliograph.journal.station_folder import wait_until_taken_in
from heliograph.runtime.ports import system_ports
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until
from tests.unit.journal.test_station_folder import Total, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PUSH = "of no member that may push"
CONSUME = "of no member that may consume"


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@contextmanager
def wing(folder: Path) -> Iterator[tuple[hg.Station, hg.Station, hg.Supplier[Track]]]:
    """A keeper, a station that is no member, and anna's supplier in a third one."""
    with (
        hg.Station(folder, domain="e2e") as keeper,
        hg.Station(domain="e2e") as studio,
        hg.Station(domain="e2e") as outside,
    ):
        keeper.keep_for_others()
        assert studio.mesh is not None
        assert studio.mesh.meet_all(LIMIT)
        studio.domain_manager.create("wing", Track, owner="anna", lease=0)
        with studio.domain_manager.member("wing", "anna").supplier() as anna:
            anna.push(Track(1))
            yield keeper, outside, anna


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[tuple[hg.Station, hg.Station, hg.Supplier[Track]]]:
    with wing(tmp_path / "data") as found:
        yield found


def opened(station: hg.Station) -> hg.Channel[Track]:
    """The channel in a station that has been told who may."""
    channel = station.channel("wing", Track)
    assert wait_until(lambda: channel.admission is not None)
    return channel


def test_a_plain_subscription_of_a_linked_station_is_refused(
    doors: tuple[hg.Station, hg.Station, hg.Supplier[Track]],
) -> None:
    channel = opened(doors[1])
    for inline in (False, True):
        with pytest.raises(hg.NotPossible, match=CONSUME):
            channel.subscribe(lambda _: None, inline=inline)
    with pytest.raises(hg.NotPossible, match=CONSUME):
        channel.subscribe(lambda _: None, resync="state")
    with pytest.raises(hg.NotPossible, match=CONSUME):
        channel.derive("id")
    with pytest.raises(hg.NotPossible, match=CONSUME):
        doors[1].subscribe(hg.all_of(a=channel.where("id > 0"), b=channel.where("id > 1"), within=1.0), print)


def test_a_subscription_that_was_there_before_gets_nothing_more_and_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    with (
        hg.Station(tmp_path / "data", domain="e2e") as keeper,
        hg.Station(domain="e2e", on_error=lambda name, _, error: told.append(f"{name}: {error}")) as outside,
    ):
        keeper.keep_for_others()
        got: list[int] = []
        early = outside.channel("wing", Track)
        early.subscribe(lambda track: got.append(track.id), name=None)
        keeper.manager.create(
            "wing",
            Track,
            owner="anna",
            access="supply",
            members_only=True,
            qos=hg.QoS(durability="persistent"),
        )
        keeper.manager.member("wing", "anna").supplier().push(Track(1))
        assert wait_until(lambda: any("wing" in line for line in told))
        assert got == []


def test_consumers_plain_durable_and_of_groups_are_refused(
    doors: tuple[hg.Station, hg.Station, hg.Supplier[Track]],
) -> None:
    channel = opened(doors[1])
    for options in ({}, {"name": "spy"}, {"group": "spies"}, {"start": "earliest"}, {"until": "now"}):
        with pytest.raises(hg.NotPossible, match=CONSUME):
            channel.consumer(**options)  # type: ignore[arg-type]  # one option each


def test_the_keeper_itself_refuses_readers_whatever_their_station_knows(
    doors: tuple[hg.Station, hg.Station, hg.Supplier[Track]],
) -> None:
    keeper, outside, anna = doors
    channel = opened(outside)
    channel.admit(lambda: None, keeper.manager.partition)  # as a station that does not ask itself
    got: list[int] = []
    channel.subscribe(lambda track: got.append(track.id), start="now")
    with pytest.raises(hg.HeliographError, match="of no member"):
        list(channel.consumer(start="earliest", until="now"))
    with pytest.raises(hg.HeliographError, match="of no member"):
        channel.consumer(name="spy")
    carl = keeper.manager.join("wing", "carl", access="consume")
    anna.push(Track(2))
    with carl.consumer() as consumer:  # who is a member has it by then
        assert consumer.pull(LIMIT) is not None
    assert got == []


def test_suppliers_anonymous_named_delayed_and_of_batches_are_refused(
    doors: tuple[hg.Station, hg.Station, hg.Supplier[Track]],
) -> None:
    keeper, outside, _ = doors
    channel = opened(outside)
    pushes: tuple[Callable[[], object], ...] = (
        lambda: channel.push(Track(9)),
        lambda: channel.push_many([Track(9), Track(10)]),
        lambda: channel.push_nowait(Track(9)).result(LIMIT),
        lambda: channel.push(Track(9), deliver_after=0.01),
        lambda: channel.supplier().push(Track(9)),
        lambda: channel.supplier(name="spy").push(Track(9)),
    )
    for push in pushes:
        with pytest.raises(hg.NotPossible, match=PUSH):
            push()
    assert kept(keeper) == [1]


def test_the_keeper_itself_refuses_suppliers_whatever_their_station_knows(
    doors: tuple[hg.Station, hg.Station, hg.Supplier[Track]],
) -> None:
    keeper, outside, _ = doors
    channel = opened(outside)
    channel.admit(lambda: None, keeper.manager.partition)
    pushes: tuple[Callable[[], object], ...] = (
        lambda: channel.push(Track(9)),
        lambda: channel.push(Track(9), deliver_after=0.01),
        lambda: channel.supplier(name="spy").push(Track(9)),
    )
    for push in pushes:
        with pytest.raises(hg.HeliographError, match=PUSH):
            push()
    assert kept(keeper) == [1]


def test_a_replay_into_it_and_out_of_it_is_refused(
    doors: tuple[hg.Station, hg.Station, hg.Supplier[Track]], tmp_path: Path
) -> None:
    channel = opened(doors[1])
    with hg.Station(tmp_path / "other") as other:
        copy = other.channel("copy", Track, qos=hg.QoS(durability="persistent"))
        copy.push(Track(5))
        with pytest.raises(hg.NotPossible, match=PUSH):
            copy.replay(channel, speed=None)
        with pytest.raises(hg.NotPossible, match=CONSUME):
            channel.replay(copy, speed=None)
    assert kept(doors[0]) == [1]


def test_its_own_program_pushes_and_consumes_as_a_member_only(
    doors: tuple[hg.Station, hg.Station, hg.Supplier[Track]],
) -> None:
    keeper = doors[0]
    channel = keeper.channel("wing", Track)  # the keeper's own class, though another station created it
    with pytest.raises(hg.NotPossible, match=PUSH):
        channel.push(Track(9))
    with pytest.raises(hg.NotPossible, match=CONSUME):
        channel.subscribe(lambda _: None)
    bert = keeper.manager.join("wing", "bert", access="both", history=True)
    with bert.supplier() as supplier:
        supplier.push(Track(2))
    with bert.consumer(until="now") as consumer:
        assert [type(track) for track in consumer] == [Track, Track]


def test_a_member_that_only_consumes_cannot_push_and_one_that_left_can_do_neither(
    doors: tuple[hg.Station, hg.Station, hg.Supplier[Track]],
) -> None:
    keeper, outside, _ = doors
    manager = outside.domain_manager
    bert = manager.join("wing", "bert", access="consume", history=True, lease=0)
    channel = opened(outside)
    with pytest.raises(hg.NotPossible, match=PUSH):
        channel.supplier(name="bert")
    with bert.consumer() as consumer:
        assert consumer.pull(LIMIT) == Track(1)
    group = bert.membership.group
    bert.leave()
    assert wait_until(lambda: channel.admission is not None and group not in channel.admission.groups)
    with pytest.raises(hg.NotPossible, match=CONSUME):
        channel.consumer(group=group)
    assert kept(keeper) == [1]


@pytest.mark.parametrize("is_running", [True, False])
def test_a_batch_of_sparks_sink_is_taken_of_members_only(tmp_path: Path, is_running: bool) -> None:
    folder = tmp_path / "data"

    def hand_over() -> None:
        write(folder, 0, 1, 2)
        batch = StagedBatch(channel="totals", writer="w", nonce="c", number=0, files=())
        wait_until_taken_in(system_ports(folder), batch, LIMIT)

    with hg.Station(folder) as station:
        station.manager.create("totals", Total, owner="anna", access="supply", members_only=True)
        if is_running:
            with pytest.raises(BatchRefused, match=PUSH):
                hand_over()
            station.manager.join("totals", "w", access="supply")
            hand_over()
    if not is_running:
        with pytest.raises(BatchRefused, match="members only"):
            hand_over()
    assert len(hg.history(folder, "totals").arrow()) == (2 if is_running else 0)


def test_helio_pub_and_sub_are_refused_with_the_reason(
    doors: tuple[hg.Station, hg.Station, hg.Supplier[Track]],
) -> None:
    for words in (("pub", "wing", '{"id": 9}', "--domain", "e2e"), ("sub", "wing", "--domain", "e2e")):
        program = Program(*words, module="heliograph.cli")
        try:
            assert program.process.wait(3 * LIMIT) != 0, words
        finally:
            program.clean_up()
    assert kept(doors[0]) == [1]


def kept(keeper: hg.Station) -> list[int]:
    return [row["id"] for row in keeper.channel("wing").table().arrow().to_pylist()]

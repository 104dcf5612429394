"""What each ack level promises of a persistent channel: which events are there when something has died."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import CursorHeld
from heliograph.testing import Rig
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until
from tests.faults.group_process import patiently

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.qos.policies import Ack

LEVELS: list[Ack] = ["memory", "journal", "synced", "delivered"]
ENOUGH = 100


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def opened(station: hg.Station, level: Ack) -> hg.Channel[Track]:
    return station.channel("x", Track, qos=hg.QoS(durability="persistent", ack=level))


def kept_in(channel: hg.Channel[Track]) -> list[int]:
    with channel.consumer(start="earliest", until="now") as consumer:
        return [track.id for track in consumer]


def acked_by(program: Program) -> list[int]:
    """What a program that was killed has said; its last line may be cut."""
    return [int(line.split()[1]) for line in program.said if line.startswith("acked ")]


def killed_after(program: Program) -> list[int]:
    """What it had been told is True, when it has been killed amid its pushes."""
    assert wait_until(lambda: len(program.said) > ENOUGH, 2 * LIMIT)
    program.kill()
    program.clean_up()
    return acked_by(program)[:-1]


def check(level: Ack, acked: list[int], kept: list[int], *, survives: tuple[str, ...]) -> None:
    """At some levels all that was acknowledged is there, at the others a beginning without a gap."""
    assert kept == list(range(len(kept))), "in order, without a gap"
    if level in survives:
        assert set(acked) <= set(kept)


@pytest.mark.parametrize("level", LEVELS)
def test_when_the_keeper_is_killed_all_that_was_written_is_there_and_in_memory_a_beginning(
    level: Ack, tmp_path: Path
) -> None:
    acked = killed_after(Program("supply_at", level, str(tmp_path / "data")))
    with hg.Station(tmp_path / "data") as station:
        kept = kept_in(opened(station, level))
    check(level, acked, kept, survives=("journal", "synced", "delivered"))


@pytest.mark.parametrize("level", LEVELS[:-1])
def test_when_the_supplier_is_killed_all_that_its_keeper_wrote_is_there_and_in_memory_a_beginning(
    level: Ack, tmp_path: Path
) -> None:
    with hg.Station(tmp_path / "data", domain="e2e", on_error=lambda *_: None) as station:
        tracks = opened(station, level)
        acked = killed_after(Program("supply_at", level))
        assert station.mesh is not None
        assert station.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)
        kept = kept_in(tracks)
    check(level, acked, kept, survives=("journal", "synced"))


@pytest.mark.parametrize("level", LEVELS)
def test_when_a_durable_consumer_is_killed_the_next_one_gets_what_it_lacks_at_every_level(
    level: Ack, tmp_path: Path
) -> None:
    with hg.Station(tmp_path / "data", domain="e2e", on_error=lambda *_: None) as station:
        tracks = opened(station, level)
        reader = Program("read_durably", level, "billing")
        try:
            assert tracks.wait_matched(1, LIMIT)
            for i in range(ENOUGH):
                tracks.push_nowait(Track(i))
            reader.says("got")
        finally:
            reader.kill()
            reader.clean_up()
        for i in range(ENOUGH, 2 * ENOUGH):
            tracks.push_nowait(Track(i))
        got = {int(line.split()[1]) for line in reader.said}
        # That its process has ended is known here a moment later than to who waited for it.
        with patiently(lambda: tracks.consumer(name="billing"), CursorHeld) as consumer:
            while not set(range(2 * ENOUGH)) <= got:
                track = consumer.pull(LIMIT)
                assert track is not None, sorted(set(range(2 * ENOUGH)) - got)
                got.add(track.id)


@pytest.mark.parametrize("level", LEVELS)
def test_when_the_power_goes_all_that_was_synced_is_there_and_else_a_beginning(level: Ack) -> None:
    rig = Rig()
    tracks = opened(rig.station, level)
    if level == "delivered":
        tracks.subscribe(lambda _: None)
    acked = [i for i in range(ENOUGH) if tracks.push(Track(i))]
    after = Rig(disk=rig.disk.crash(), seed=1)
    try:
        check(level, acked, kept_in(opened(after.station, level)), survives=("synced", "delivered"))
    finally:
        after.station.close()


def test_without_a_journal_nothing_survives_the_process_that_has_it() -> None:
    qos: dict[str, Any] = {"durability": "transient", "history": 10}
    with hg.Station() as station:
        station.channel("x", Track, qos=hg.QoS(**qos)).push(Track(1))
    with hg.Station() as station, station.channel("x", Track, qos=hg.QoS(**qos)).consumer() as consumer:
        assert consumer.pull(0) is None

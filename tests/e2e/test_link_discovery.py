"""A pattern of names gets events of channels that other stations have, those of now and those that come."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from tests.e2e.link_support import own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Track(hg.Event, name="air.track"):
    id: int


class Alarm(hg.Event, name="air.alarm"):
    level: int


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@pytest.fixture
def tower() -> Iterator[hg.Station]:
    with hg.Station(domain="air") as station:
        yield station


@pytest.fixture
def pilot() -> Iterator[hg.Station]:
    with hg.Station(domain="air") as station:
        yield station


SUPPLIER = """
import sys
import heliograph as hg

class Track(hg.Event, name="air.track"):
    id: int

with hg.Station(domain="air") as station:
    tracks = station.channel("air.tracks", Track)
    assert tracks.wait_matched(consumers=1, timeout=60.0)
    tracks.push(Track(int(sys.argv[1])))
    sys.stdin.read()
"""
"""A process that pushes one event to whoever discovers its channel, and waits for its end."""


class Log:
    """What a callback was given."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []

    def __call__(self, event: Any, header: hg.Header) -> None:
        self.got.append((header.channel, next(iter(event.to_dict().values()))))


def test_channels_that_others_have_and_will_have_are_subscribed_to(
    tower: hg.Station, pilot: hg.Station
) -> None:
    before = tower.channel("air.tracks", Track)
    log = Log()
    pilot.subscribe("air.*", log)
    assert before.wait_matched(consumers=1, timeout=10.0)
    assert before.push(Track(1))
    later = tower.channel("air.alarms", Alarm)
    other = tower.channel("sea.tracks", Track)
    assert later.wait_matched(consumers=1, timeout=10.0)
    assert later.push(Alarm(2))
    assert other.push(Track(3))
    assert wait_until(lambda: len(log.got) == 2)
    assert sorted(log.got) == [("air.alarms", 2), ("air.tracks", 1)]
    assert other.stats().matched == 0


def test_a_filter_of_a_pattern_passes_over_channels_that_lack_its_fields(
    tower: hg.Station, pilot: hg.Station
) -> None:
    log = Log()
    pilot.subscribe("air.*", log, where="id > 5")
    tracks, alarms = tower.channel("air.tracks", Track), tower.channel("air.alarms", Alarm)
    assert tracks.wait_matched(consumers=1, timeout=10.0)
    tracks.push_many([Track(n) for n in range(8)])
    alarms.push(Alarm(9))
    assert wait_until(lambda: len(log.got) == 2)
    assert log.got == [("air.tracks", 6), ("air.tracks", 7)]


def test_further_types_of_a_channel_come_too(tower: hg.Station, pilot: hg.Station) -> None:
    log = Log()
    pilot.subscribe("**", log)
    both: hg.Channel[Any] = tower.channel("air.both", Track)
    assert both.wait_matched(consumers=1, timeout=10.0)
    tower.channel("air.both", Alarm)
    assert wait_until(lambda: len(pilot.channels()[0].types) == 2)
    assert wait_until(lambda: both.push(Alarm(4)) and log.got)
    assert ("air.both", 4) in log.got


def test_a_program_that_opens_a_discovered_channel_has_its_own_class_there(
    tower: hg.Station, pilot: hg.Station
) -> None:
    tracks = tower.channel("air.tracks", Track)
    log = Log()
    mine: list[Track] = []
    pilot.subscribe("air.*", log)
    assert tracks.wait_matched(consumers=1, timeout=10.0)
    opened = pilot.channel("air.tracks", Track)
    assert opened.types == (Track,)
    opened.subscribe(mine.append)
    assert tracks.wait_matched(consumers=2, timeout=10.0)
    assert tracks.push(Track(1))
    assert wait_until(lambda: mine and log.got)
    assert (mine, log.got) == ([Track(1)], [("air.tracks", 1)])


def test_stations_that_only_listen_do_not_keep_a_channel_for_each_other(
    tower: hg.Station, pilot: hg.Station
) -> None:
    with hg.Station(domain="air") as other:
        for listener in (pilot, other):
            listener.subscribe("air.*", Log())
        tracks = tower.channel("air.tracks", Track)
        assert tracks.wait_matched(consumers=2, timeout=10.0)
        tracks.close()
        assert wait_until(lambda: not [*pilot.channels(), *other.channels()])


def test_a_pattern_that_is_closed_closes_what_only_it_wanted(tower: hg.Station, pilot: hg.Station) -> None:
    tracks = tower.channel("air.tracks", Track)
    subscription = pilot.subscribe("air.*", Log())
    assert tracks.wait_matched(consumers=1, timeout=10.0)
    subscription.close()
    assert wait_until(lambda: not pilot.channels())
    assert tracks.push(Track(1))


def test_a_persistent_channel_is_discovered_and_its_history_can_be_asked_for(
    pilot: hg.Station, tmp_path: Path
) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper:
        tracks = keeper.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many([Track(1), Track(2)])
        log = Log()
        pilot.subscribe("air.*", log, start="earliest")
        assert wait_until(lambda: len(log.got) == 2)
        tracks.push(Track(3))
        assert wait_until(lambda: [number for _, number in log.got] == [1, 2, 3])


def test_a_channel_is_discovered_again_when_its_process_was_killed_and_another_one_has_it(
    pilot: hg.Station,
) -> None:
    log = Log()
    pilot.subscribe("air.*", log)
    for number in range(3):
        supplier = subprocess.Popen([sys.executable, "-c", SUPPLIER, str(number)], stdin=subprocess.PIPE)
        try:
            assert wait_until(lambda: len(log.got) > number, 60.0)  # noqa: B023 - asked in this round
        finally:
            supplier.kill()
            supplier.communicate()
    assert log.got == [("air.tracks", 0), ("air.tracks", 1), ("air.tracks", 2)]
    assert wait_until(lambda: not pilot.channels())

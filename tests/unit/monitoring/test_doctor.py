"""Each finding of the doctor, from snapshots that have it and from one that has none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import heliograph as hg
from heliograph.monitoring.doctor import AWAY_NS, Finding, examine
from heliograph.monitoring.snapshot import (
    DurableSnapshot,
    JournalSnapshot,
    LinkSnapshot,
    ReceiverSnapshot,
    StationSnapshot,
)

NOW = 1_800_000_000_000_000_000


class Ping(hg.Event):
    n: int


def healthy() -> StationSnapshot:
    with hg.Station(name="tower") as station:
        station.channel("air.tracks", Ping).subscribe(lambda _: None, name="display")
        return msgspec.structs.replace(station.snapshot(), time_ns=NOW)


HEALTHY = healthy()
CHANNEL = HEALTHY.channels[0]
RECEIVER = CHANNEL.receivers[0]
JOURNAL = JournalSnapshot("p", 0, 10, 100, 1, 0, 0, 0, 0, 0, 0)
LINK = LinkSnapshot("1234", "display", True, "ring", "", 0, 0, 0, 0, 0, 0, 0, 0, False)


def station(**changes: Any) -> StationSnapshot:
    return msgspec.structs.replace(HEALTHY, **changes)


def channel(**changes: Any) -> StationSnapshot:
    return station(channels=(msgspec.structs.replace(CHANNEL, **changes),))


def receiver(**changes: Any) -> StationSnapshot:
    changed: ReceiverSnapshot = msgspec.structs.replace(RECEIVER, **changes)
    return channel(receivers=(changed,))


def linked(**changes: Any) -> StationSnapshot:
    return station(links=(msgspec.structs.replace(LINK, **changes),))


def kept(**changes: Any) -> StationSnapshot:
    return channel(journal=msgspec.structs.replace(JOURNAL, **changes))


def found(*stations: StationSnapshot, silent: tuple[str, ...] = ()) -> list[Finding]:
    return examine(stations, silent, NOW)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert found(HEALTHY) == []
    assert found() == []


@pytest.mark.parametrize(
    ("sick", "what", "text", "command"),
    [
        (station(busy_s=12.0), "stuck callback", "12.0 s", "py-spy dump --pid"),
        (station(stalls={"threads": 3}), "host exhausted", "3 times", "ulimit"),
        (station(free_bytes=5 << 20, folder="data"), "disk almost full", "5 MiB", "helio purge"),
        (station(time_ns=NOW + 5_000_000_000), "clocks differ", "+5.0 s", "chronyc"),
        (linked(connected=False), "broken link", "down", "--links"),
        (linked(suspected=True), "broken link", "nothing", "--links"),
        (linked(missed=4), "events lost on a link", "4 events", "QoS"),
        (channel(unmatched={"ab": ("durability: …",)}), "not matched", "durability", "helio info air.tracks"),
        (channel(groups_apart={"g": ("ab",)}), "group apart", "the group g", "persistent"),
        (receiver(suspended=True), "suspended receiver", "display", "py-spy"),
        (receiver(failed=7), "failing callback", "7 events", "log"),
        (receiver(dropped={"oldest": 9}), "dropped events", "9 oldest", "queue="),
        (kept(damaged=2), "damaged history", "2", "verify"),
        (kept(keeper_failures=1), "maintenance failing", "1", "log"),
    ],
)  # fmt: skip
def test_each_trouble_is_found_with_its_command(
    sick: StationSnapshot, what: str, text: str, command: str
) -> None:
    (one,) = found(sick)
    assert one.what == what
    assert one.severity in ("problem", "warning")
    assert text in one.text
    assert command in one.command
    assert "tower" in one.where


def test_drops_that_were_asked_for_are_no_finding() -> None:
    assert found(receiver(dropped={"closed": 1, "coalesced": 5, "separated": 2})) == []


def test_a_consumer_that_lags_is_told_from_one_that_is_away() -> None:
    def durable(lag: int, seen: int) -> StationSnapshot:
        return channel(journal=JOURNAL, durable=(DurableSnapshot("billing", False, 0, lag, "x", seen),))

    assert found(durable(10, NOW)) == []
    (slow,) = found(durable(5_000, NOW))
    assert slow.text == "billing is 5000 events behind"
    (away,) = found(durable(5_000, NOW - 2 * AWAY_NS))
    assert "2.0 hours ago" in away.text
    assert "helio consumer delete air.tracks billing" in away.command


def test_dead_letters_that_nobody_has_read_are_found() -> None:
    (one,) = found(channel(journal=JOURNAL, holds_dead_letters=True))
    assert (one.what, one.command) == ("unread dead letters", "helio redrive air.tracks")
    read = (DurableSnapshot("undertaker", False, 10, 0, "x", NOW),)
    assert found(channel(journal=JOURNAL, holds_dead_letters=True, durable=read)) == []


def test_names_that_are_almost_the_same_are_found_across_stations() -> None:
    pushing = channel(name="air.track", pushed=50, receivers=())
    (typo,) = found(pushing, HEALTHY)
    assert typo.what == "names almost the same"
    assert "'air.track' has events and no receivers" in typo.text
    (lonely,) = found(channel(name="ground.vehicles", pushed=50, receivers=()), HEALTHY)
    assert (lonely.severity, lonely.what) == ("note", "nobody receives")


def test_versions_that_differ_and_stations_that_are_silent_are_found() -> None:
    (one,) = found(HEALTHY, station(version="0.0.9", name="old"))
    assert one.what == "versions differ"
    assert "0.0.9: old" in one.text
    (silent,) = found(HEALTHY, silent=("display",))
    assert (silent.severity, silent.where) == ("problem", "display")


def test_the_worst_comes_first() -> None:
    sick = [receiver(failed=1), station(busy_s=9.0), channel(name="lonely", pushed=1, receivers=())]
    assert [one.severity for one in found(*sick)] == ["problem", "warning", "note"]

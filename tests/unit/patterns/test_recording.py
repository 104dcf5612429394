"""Patterns with `replayable=True`: what is refused, what is kept, what is found again."""

from __future__ import annotations

import queue
import threading
from datetime import UTC, date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

import heliograph as hg
from heliograph.errors import DiskFull, HistoryGone, JournalBusy, NotPossible
from heliograph.patterns.recording import Input, plain_key
from heliograph.patterns.replay import to_text
from heliograph.testing import Rig

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 10.0
PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    region: str = "north"


class Weather(hg.Event, name="air.weather"):
    number: int
    region: str = "north"


def channels(station: hg.Station, qos: hg.QoS = PERSISTENT) -> tuple[hg.Channel[Track], hg.Channel[Weather]]:
    return station.channel("tracks", Track, qos=qos), station.channel("weather", Weather, qos=qos)


def pairs(matches: Any) -> list[tuple[int, int]]:
    return [(match.t.id, match.w.number) for match in matches]


def test_matches_are_found_again_from_history(helio: Rig) -> None:
    tracks, weather = channels(helio.station)
    pattern = hg.all_of(t=tracks.where("id > 0"), w=weather, by="region")
    seen: list[Any] = []
    helio.station.subscribe(pattern, seen.append, name="storms", replayable=True)
    tracks.push_many([Track(0), Track(1), Track(2, "south")])
    helio.settle()
    weather.push_many([Weather(7, "south"), Weather(8)])
    helio.settle()
    assert pairs(seen) == [(2, 7), (1, 8)]
    again = list(helio.station.matches(pattern, name="storms"))
    assert pairs(again) == pairs(seen)
    assert [match.at for match in again] == [match.at for match in seen]
    assert pairs(helio.station.matches(pattern, name="storms", key="south")) == [(2, 7)]


def test_what_it_took_in_is_a_channel_that_spark_and_others_can_read(helio: Rig) -> None:
    tracks, weather = channels(helio.station)
    pattern = hg.all_of(t=tracks, w=weather)
    subscription = helio.station.subscribe(pattern, print, name="storms", replayable=True)
    weather.push(Weather(7))
    helio.settle()
    subscription.close()
    inputs = helio.station.channel("_helio.inputs.storms", Input)
    connect, event = inputs.consumer(start="earliest", until="now")
    assert (connect.kind, event.kind) == ("connect", "event")
    assert (event.leaf, event.channel, event.offset) == (1, "weather", 0)


def test_a_match_is_given_only_when_what_led_to_it_is_durable() -> None:
    """After a loss of power at any time, every match that was given can be found again."""
    rig = Rig()
    tracks, weather = channels(rig.station)
    seen: list[Any] = []
    rig.station.subscribe(
        hg.all_of(t=tracks, w=weather, reuse="latest"), seen.append, name="storms", replayable=True
    )
    for number in range(5):
        tracks.push(Track(number))
        weather.push(Weather(number))
    rig.settle()
    given = pairs(seen)
    after = Rig(disk=rig.disk.crash(), seed=1)
    tracks, weather = channels(after.station)
    again = pairs(after.station.matches(hg.all_of(t=tracks, w=weather, reuse="latest"), name="storms"))
    assert again == given
    assert len(given) == 9
    after.station.close()


def test_a_pattern_whose_inputs_cannot_be_kept_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, BaseException]] = []
    rig = Rig(on_error=lambda name, _, error: told.append((name, error)))
    tracks, weather = channels(rig.station)
    seen: list[Any] = []
    subscription = rig.station.subscribe(
        hg.all_of(t=tracks, w=weather), seen.append, name="storms", replayable=True
    )
    rig.settle()
    inputs: Any = rig.station.channel("_helio.inputs.storms", Input).store

    def refused() -> None:
        raise DiskFull("sync", "a head", "no space left")

    monkeypatch.setattr(inputs._writer._partition, "_synced_head", refused)
    ended = threading.Event()
    monkeypatch.setattr(subscription, "close", ended.set)
    tracks.push(Track(1))
    assert ended.wait(LIMIT)
    assert {name for name, _ in told} == {"storms"}
    assert seen == []


def test_suppliers_that_push_at_the_same_time_are_taken_in_in_one_order(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        tracks, weather = channels(station, hg.QoS(durability="persistent", ack="journal"))
        pattern = hg.all_of(t=tracks, w=weather, within=0.001, by="region")
        seen: list[Any] = []
        subscription = station.subscribe(pattern, seen.append, name="storms", replayable=True)
        regions = ["north", "south", "east"]
        threads = [
            threading.Thread(target=lambda: [tracks.push(Track(i, regions[i % 3])) for i in range(300)]),
            threading.Thread(target=lambda: [weather.push(Weather(i, regions[i % 3])) for i in range(300)]),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert tracks.settle(LIMIT)
        assert weather.settle(LIMIT)
        assert subscription.settle(LIMIT)
        assert pairs(station.matches(pattern, name="storms")) == pairs(seen)


def test_what_cannot_be_replayed_is_refused(helio: Rig) -> None:
    tracks, weather = channels(helio.station)
    plain = helio.station.channel("plain", Track)
    with pytest.raises(NotPossible, match="name="):
        helio.station.subscribe(hg.all_of(t=tracks, w=weather), print, replayable=True)
    with pytest.raises(NotPossible, match="'plain' is not persistent"):
        helio.station.subscribe(hg.all_of(t=plain, w=weather), print, name="storms", replayable=True)
    compacted = helio.station.channel("c", Track, qos=hg.QoS(durability="persistent", compaction="key"))
    with pytest.raises(NotPossible, match="'c' is compacted"):
        helio.station.subscribe(hg.all_of(t=compacted, w=weather), print, name="storms", replayable=True)
    with hg.Station() as nowhere, pytest.raises(NotPossible, match="folder"):
        nowhere.subscribe(hg.every(1.0), print, name="storms", replayable=True)
    helio.station.subscribe(hg.all_of(t=tracks, w=weather), print, name="storms", replayable=True)
    with pytest.raises(NotPossible, match="already"):
        helio.station.subscribe(hg.all_of(t=tracks, w=weather), print, name="storms", replayable=True)


def test_another_pattern_under_the_name_is_told_apart(helio: Rig) -> None:
    tracks, weather = channels(helio.station)
    pattern = hg.all_of(t=tracks, w=weather, within=1.0)
    assert helio.station.subscribe(pattern, print, name="storms", replayable=True).settle(LIMIT)
    with pytest.raises(NotPossible, match="was written for all_of"):
        list(helio.station.matches(hg.all_of(t=tracks, w=weather, within=2.0), name="storms"))


def test_a_name_stays_with_its_pattern_so_that_the_record_can_be_read(helio: Rig) -> None:
    tracks, weather = channels(helio.station)
    with helio.station.subscribe(
        hg.all_of(t=tracks, w=weather, within=1.0, by="region"), print, name="storms", replayable=True
    ) as storms:
        assert storms.settle(LIMIT)
    with pytest.raises(NotPossible, match=r"within=1.*within=2.*a name of its own"):
        helio.station.subscribe(
            hg.all_of(t=tracks, w=weather, within=2.0, by="region"), print, name="storms", replayable=True
        )
    fewer_keys = hg.all_of(t=tracks, w=weather, within=1.0, by="region", keys=3)
    with helio.station.subscribe(fewer_keys, print, name="storms", replayable=True):
        tracks.push(Track(1))
        weather.push(Weather(7))
        helio.settle()
    assert len(list(helio.station.matches(fewer_keys, name="storms"))) == 1


@pytest.mark.parametrize("what", ["event", "tick"])
def test_a_pattern_whose_input_is_refused_takes_in_nothing_more(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its machine has gone on, its log has not: any further match might not be found again."""
    told: queue.Queue[BaseException] = queue.Queue()
    rig = Rig(on_error=lambda *what: told.put(what[2]))
    tracks, weather = channels(rig.station)
    seen: list[Any] = []
    pattern = hg.any_of(t=tracks, w=weather, e=hg.every(10.0))
    together = rig.station.subscribe(pattern, seen.append, name="storms", replayable=True)
    tracks.push(Track(1))
    rig.settle()

    def busy(*_: object) -> None:
        raise JournalBusy("storms", 1)

    with monkeypatch.context() as full:
        full.setattr(together._inputs, what, busy)
        if what == "event":
            tracks.push_many([Track(2), Track(3)])
        else:
            rig.clock.advance(10.0)
        rig.settle()
    weather.push(Weather(4))
    rig.settle()
    assert not together.replayable
    assert isinstance(told.get(timeout=LIMIT), JournalBusy)
    rig.station.close()
    assert told.empty()
    assert [match.t for match in seen] == [Track(1)]


def test_what_is_gone_from_a_stream_is_said(helio: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    tracks, weather = channels(helio.station)
    pattern = hg.all_of(t=tracks, w=weather)
    helio.station.subscribe(pattern, print, name="storms", replayable=True)
    tracks.push(Track(1))
    helio.settle()
    monkeypatch.setattr(tracks.store, "read", lambda offset, _: ([], offset))
    with pytest.raises(HistoryGone):
        list(helio.station.matches(pattern, name="storms"))


def test_a_name_that_nothing_was_kept_under_is_refused_and_makes_no_channel(helio: Rig) -> None:
    tracks, weather = channels(helio.station)
    before = helio.station.channels()
    with pytest.raises(NotPossible, match="nothing was kept"):
        list(helio.station.matches(hg.all_of(t=tracks, w=weather), name="strorms"))
    assert helio.station.channels() == before


def test_a_pattern_is_described_whatever_the_order_of_its_sets(helio: Rig) -> None:
    tracks, _ = channels(helio.station)
    names = {f"radar-{i}" for i in range(20)}
    said = to_text(hg.all_of(a=tracks.where(sources=names), b=tracks))
    assert str(sorted(names)) in said


def test_a_key_is_an_instant_whatever_its_zone() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert plain_key(noon) == plain_key(noon.astimezone(timezone(timedelta(hours=2))))


def test_one_that_cannot_connect_is_refused_and_leaves_nothing_behind(
    helio: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracks, weather = channels(helio.station)

    def busy(*_: object) -> None:
        raise JournalBusy("storms", 1)

    with monkeypatch.context() as full:
        full.setattr("heliograph.patterns.recording.InputLog.connect", busy)
        with pytest.raises(JournalBusy):
            helio.station.subscribe(hg.all_of(t=tracks, w=weather), print, name="storms", replayable=True)
    assert helio.station.channel("_helio.inputs.storms", Input).stats().suppliers == 1
    assert tracks.stats().consumers == {}


def test_what_another_key_brings_moves_the_clock_of_all(helio: Rig) -> None:
    """Live, an event may come before the timer that fell due earlier; then no tick tells of it."""
    tracks, weather = channels(helio.station)
    pattern = hg.all_of(t=tracks, w=weather, by="region", watchdog=1.0)
    tracks.push_many([Track(1), Track(2, "south")])
    start = 1_700_000_000_000_000_000
    inputs = helio.station.channel("_helio.inputs.storms", Input, qos=PERSISTENT)
    inputs.push(Input("connect", start, pattern=to_text(pattern)))
    inputs.push(Input("event", start, 0, "tracks", "", 0, "north"))
    inputs.push(Input("event", start + 2_000_000_000, 0, "tracks", "", 1, "south"))
    everything = [(match.key, match.missing) for match in helio.station.matches(pattern, name="storms")]
    north = [(m.key, m.missing) for m in helio.station.matches(pattern, name="storms", key="north")]
    assert everything == north == [("north", ("w",))]


def test_rows_without_their_connect_are_refused(helio: Rig) -> None:
    tracks, _ = channels(helio.station)
    inputs = helio.station.channel("_helio.inputs.storms", Input, qos=PERSISTENT)
    inputs.push(Input("tick", 1))
    with pytest.raises(HistoryGone):
        list(helio.station.matches(hg.any_of(t=tracks), name="storms"))


class Order(hg.Event, name="shop.order"):
    order: UUID
    day: date


@pytest.mark.parametrize("by", ["order", "day"])
def test_dates_and_uuids_are_keys_that_are_found_again(helio: Rig, by: str) -> None:
    orders = helio.station.channel("orders", Order, qos=PERSISTENT)
    bills = helio.station.channel("bills", Order, qos=PERSISTENT)
    pattern = hg.all_of(o=orders, b=bills, by=by)
    seen: list[Any] = []
    helio.station.subscribe(pattern, seen.append, name="billed", replayable=True)
    for number in (1, 2):
        orders.push(Order(UUID(int=number), date(2026, 11, number)))
    bills.push(Order(UUID(int=2), date(2026, 11, 2)))
    helio.settle()
    assert [getattr(match.o, by) for match in seen] == [seen[0].key] == [getattr(seen[0].b, by)]
    assert [match.key for match in helio.station.matches(pattern, name="billed")] == [seen[0].key]

"""Why: each verdict names its stage, the rule and the values that decided."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str | None = None


class Note(hg.Event, name="air.note"):
    text: str = ""


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[hg.Channel[Track]]:
    with hg.Station(tmp_path, name="tower") as station:
        yield station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))


def test_a_filter_that_stops_an_event_is_named_with_what_it_read(kept: hg.Channel[Track]) -> None:
    kept.subscribe(lambda _: None, where="speed > 300 AND region = 'north'", name="display")
    kept.push_many([Track(1, 400.0, "south"), Track(2, 200.0, "north"), Track(3, 400.0)])
    south, slow, nowhere = (hg.why(kept, offset, "display") for offset in range(3))
    assert (south.verdict, south.stage) == ("stopped", "consumer filter")
    assert (south.rule, south.values) == ("region = 'north' is false", {"region": "'south'"})
    assert (slow.rule, slow.values) == ("speed > 300 is false", {"speed": "200.0"})
    assert (nowhere.rule, nowhere.values) == ("region = 'north' is NULL", {"region": "NULL"})
    assert "display: stopped" in str(south)
    assert "try: change its filter" in str(south)


def test_an_event_is_found_by_offset_partition_id_and_header(kept: hg.Channel[Track]) -> None:
    kept.subscribe(lambda _: None, where="id = 2", name="display")
    receipt = kept.push_nowait(Track(1))
    assert receipt.result(LIMIT)
    assert kept.store is not None
    partition = kept.store.partition
    with kept.consumer(start="earliest", until="now") as consumer:
        (header,) = (delivery.header for delivery in consumer.deliveries(LIMIT))
    answers = [
        hg.why(kept, one, "display") for one in (0, "0", f"{partition}:0", header, header.id, str(header.id))
    ]
    assert len({str(answer) for answer in answers}) == 1
    assert answers[0].event == str(header.id)
    with pytest.raises(hg.NotPossible, match="no event"):
        hg.why(kept, "first", "display")
    with pytest.raises(hg.NotPossible, match="there is no event"):
        hg.why(kept, 7, "display")


def test_an_event_that_was_never_pushed_can_be_asked_about_as_text_too() -> None:
    with hg.Station() as station:
        tracks = station.channel("air.tracks", Track, Note)
        tracks.subscribe(lambda _: None, types=(Track,), where="speed > 300", name="display")
        assert hg.why(tracks, Track(1, 400.0), "display").verdict == "would be delivered"
        assert hg.why(tracks, '{"id": 1, "speed": 200.0, "region": null}', "display").verdict == "stopped"
        wanted = hg.why(tracks, Note("x"), "display")
        assert (wanted.verdict, wanted.values["wants"]) == ("not wanted", "air.track")
        assert (wanted.values["header.type"], wanted.stage) == ("air.note", "lookup")
        with pytest.raises(hg.NotPossible, match="keeps no history"):
            hg.why(tracks, 1, "display")


def test_a_name_with_a_typing_error_is_put_right(kept: hg.Channel[Track]) -> None:
    kept.subscribe(lambda _: None, where="id > 0", name="display")
    kept.push(Track(1))
    answer = hg.why(kept, 0, "displays")
    assert (answer.verdict, answer.remedy) == ("no such receiver", "did you mean 'display'?")


def test_the_cursor_of_a_durable_consumer_decides_though_it_is_away(kept: hg.Channel[Track]) -> None:
    with kept.consumer(name="billing") as billing:
        kept.push_many([Track(n) for n in range(5)])
        deliveries = billing.deliveries(LIMIT)
        for _ in range(2):
            next(iter(deliveries)).ack()
    done, open_, later = (hg.why(kept, offset, "billing") for offset in (1, 2, 4))
    assert (done.verdict, done.stage) == ("acknowledged", "cursor")
    assert (open_.verdict, open_.rule) == (
        "not acknowledged",
        "it is the next to acknowledge",
    )
    assert (later.verdict, later.rule) == (
        "not acknowledged",
        "2 offsets before it are not acknowledged either",
    )
    assert later.values["acknowledged below"] == "2"


def test_an_event_before_the_start_of_a_receiver_is_not_for_it(kept: hg.Channel[Track]) -> None:
    kept.push_many([Track(n) for n in range(3)])
    later = kept.subscribe(lambda _: None, start=2)
    answer = hg.why(kept, 1, later.name)
    assert (answer.verdict, answer.values) == ("before its start", {"header.offset": "1", "begins at": "2"})
    newest = kept.subscribe(lambda _: None, start="now")
    assert hg.why(kept, 1, newest.name).verdict == "not recorded"


def test_what_waits_was_delivered_or_is_not_written_down(kept: hg.Channel[Track]) -> None:
    gate = threading.Event()
    kept.consumer(queue=1, start="earliest")
    (reader,) = kept.receivers()
    subscription = kept.subscribe(lambda _: gate.wait(LIMIT))
    try:
        kept.push(Track(1))
        assert hg.why(kept, 0, subscription.name).verdict == "waiting"
        assert hg.why(kept, 0, reader.name).verdict == "waiting"
    finally:
        gate.set()
    assert kept.settle(LIMIT)
    assert hg.why(kept, 0, subscription.name).verdict == "delivered"
    raising = kept.subscribe(lambda _: 1 / 0, start="now")
    kept.push(Track(2))
    assert wait_until(lambda: raising.counts().failed == 1)
    unknown = hg.why(kept, 1, raising.name)
    assert (unknown.verdict, unknown.values["failed"]) == ("not recorded", "1")
    assert "delivery_records" in unknown.remedy


def test_delivery_records_are_exact(tmp_path: Path) -> None:
    qos = hg.QoS(durability="persistent", delivery_records="all")
    with hg.Station(tmp_path, on_error=lambda *_: None) as station:
        tracks = station.channel("air.tracks", Track, qos=qos)
        station.asker.listen()
        failing = tracks.subscribe(lambda track: 1 // track.id)
        tracks.push_many([Track(1), Track(0), Track(2)])
        assert tracks.settle(LIMIT)
        assert wait_until(lambda: hg.why(tracks, 2, failing.name).rule == "so its delivery record says")
        verdicts = [hg.why(tracks, offset, failing.name).verdict for offset in range(3)]
        assert verdicts == ["delivered", "failed", "delivered"]


def test_a_receiver_of_another_station_answers_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    with hg.Station(domain="a", name="one") as one, hg.Station(domain="a", name="two") as two:
        tracks = one.channel("air.tracks", Track)
        two.channel("air.tracks", Track).subscribe(lambda _: None, where="speed > 300", name="display")
        assert tracks.wait_matched(1, LIMIT)
        answer = hg.why(tracks, Track(1, 200.0), "display")
        assert (answer.station, answer.verdict, answer.values) == ("two", "stopped", {"speed": "200.0"})
        assert hg.why(tracks, Track(1, 400.0), "display").verdict == "would be delivered"
        assert hg.why(tracks, Track(1), "displays").remedy == "did you mean 'display'?"


class TextTrack(hg.Event, name="air.track", key="id"):
    """As another program has it: a field is of another type."""

    id: str


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[hg.Station, hg.Station]]:
    own_meeting_folder(monkeypatch, tmp_path)
    with (
        hg.Station(tmp_path / "one", domain="a", name="one", on_error=lambda *_: None) as one,
        hg.Station(domain="a", name="two", on_error=lambda *_: None) as two,
    ):
        yield one, two


def test_stations_whose_quality_of_service_keeps_them_apart_are_the_first_stage(
    pair: tuple[hg.Station, hg.Station],
) -> None:
    one, two = pair
    tracks = one.channel("air.tracks", Track, qos=hg.QoS(reliability="best-effort"))
    screens = two.channel("air.tracks", Track, qos=hg.QoS(reliability="reliable"))
    screens.subscribe(lambda _: None, where="speed > 300", name="screen")
    assert wait_until(lambda: screens.stats().unmatched and tracks.stats().unmatched)
    for speed in (200.0, 400.0):
        answer = hg.why(tracks, Track(1, speed), "screen")
        assert (answer.verdict, answer.stage, answer.station) == ("stopped", "link", "two")
        assert "reliability: offered 'best-effort', requested 'reliable'" in answer.rule
        assert "(one)" in answer.rule
        assert answer.remedy == (
            "open it with hg.QoS(reliability='reliable') where it is pushed, "
            "or with hg.QoS(reliability='best-effort') where it is received"
        )
    assert hg.why(screens, Track(1, 400.0), "screen").verdict == "would be delivered"


def test_classes_that_keep_stations_apart_are_named_as_the_log_names_them(
    pair: tuple[hg.Station, hg.Station],
) -> None:
    one, two = pair
    tracks = one.channel("air.tracks", Track, Note)
    screens = two.channel("air.tracks", TextTrack, Note)
    screens.subscribe(lambda _: None, name="screen")
    assert wait_until(lambda: screens.stats().unmatched and tracks.stats().unmatched)
    answer = hg.why(tracks, Track(1), "screen")
    assert (answer.verdict, answer.stage) == ("stopped", "link")
    assert "$.id: i64 of the writer cannot be read as str" in answer.rule
    assert answer.rule in str(screens.stats().unmatched).replace("come from", "come here from")
    assert answer.remedy == "give both stations classes that go together"
    assert hg.why(tracks, Note("x"), "screen").verdict == "would be delivered"
    assert hg.why(tracks, Track(1), "screens").remedy == "did you mean 'screen'?"


def test_of_a_durable_receiver_the_station_that_has_it_open_answers_and_its_keeper_when_none_has(
    pair: tuple[hg.Station, hg.Station],
) -> None:
    keeper, reader = pair
    qos = hg.QoS(durability="persistent")
    kept = keeper.channel("air.tracks", Track, qos=qos)
    read = reader.channel("air.tracks", Track, qos=qos)
    with read.consumer(name="billing", where="speed > 300", start="earliest") as billing:
        kept.push_many([Track(1, 200.0), Track(2, 400.0), Track(3, 500.0)])
        deliveries = iter(billing.deliveries(LIMIT))
        next(deliveries).ack()
        assert wait_until(lambda: _acknowledged(keeper) == 2)
        for asking in (kept, read):
            slow, done, waiting = (hg.why(asking, offset, "billing") for offset in range(3))
            assert (slow.verdict, slow.station, slow.rule) == ("stopped", "two", "speed > 300 is false")
            assert (done.verdict, done.station) == ("acknowledged", "two")
            assert done.steps == ("its filter lets the event through",)
            assert waiting.verdict == "not acknowledged"
        for asking, station in ((kept, keeper), (read, reader)):
            _, answers = station.asker.all_of(asking, 0)
            assert [(one.receiver, one.verdict) for one in answers] == [("billing", "stopped")]
    away = hg.why(read, 1, "billing")
    assert (away.verdict, away.station, away.is_away) == ("acknowledged", "one", True)


def test_a_durable_receiver_of_a_derivation_is_one_receiver_in_a_trace(
    pair: tuple[hg.Station, hg.Station],
) -> None:
    keeper, reader = pair
    kept = keeper.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
    fast = reader.channel("air.tracks", Track, qos=hg.QoS(durability="persistent")).derive(
        "id, speed", where="speed > 300"
    )
    with fast.consumer(name="dwatch", start="earliest") as consumer:
        kept.push_many([Track(1, 200.0), Track(2, 400.0)])
        next(iter(consumer.deliveries(LIMIT))).ack()
        assert wait_until(lambda: _acknowledged(keeper) == 2)
        for offset, verdict in enumerate(("stopped", "acknowledged")):
            _, answers = keeper.asker.all_of(kept, offset)
            told = [(one.receiver, one.station, one.verdict) for one in answers]
            assert told == [("dwatch", "two", verdict)]


def _acknowledged(station: hg.Station) -> int:
    channel = station.snapshot().channel("air.tracks")
    assert channel is not None
    return max((one.acknowledged for one in channel.durable), default=-1)


def test_a_receiver_of_a_derivation_is_found_by_way_of_the_original(
    pair: tuple[hg.Station, hg.Station],
) -> None:
    one, two = pair
    tracks = one.channel("air.tracks", Track, Note)
    fast = two.channel("air.tracks", Track, Note).derive(
        "id, speed * 2 AS double", where="speed > 300", type=Track
    )
    fast.subscribe(lambda _: None, where="double < 1000", name="dwatch")
    # The station of the original hears of it a moment later.
    assert wait_until(lambda: hg.why(tracks, Track(1, 400.0), "dwatch").verdict == "would be delivered")
    for asking in (tracks, fast):
        slow, good, high = (hg.why(asking, Track(1, speed), "dwatch") for speed in (200.0, 400.0, 600.0))
        assert (slow.verdict, slow.stage, slow.station) == ("stopped", "derivation filter", "two")
        assert (slow.channel, slow.values) == ("air.tracks", {"speed": "200.0"})
        assert slow.rule == "speed > 300 is false"
        assert "id, speed * 2 AS double of air.tracks where speed > 300" in slow.steps[0]
        assert good.verdict == "would be delivered"
        assert (high.verdict, high.stage, high.values) == ("stopped", "consumer filter", {"double": "1200.0"})
        note = hg.why(asking, Note("x"), "dwatch")
        assert (note.verdict, note.stage) == ("not wanted", "derivation")
    assert hg.why(tracks, Track(1), "dwatsh").remedy == "did you mean 'dwatch'?"
    with pytest.raises(hg.NotPossible, match=r"give one of air\.track"):
        hg.why(fast, fast.event_type(1, 2.0), "dwatch")
    _, answers = one.asker.all_of(tracks, Track(1, 400.0))
    assert [(answer.receiver, answer.station) for answer in answers] == [("dwatch", "two")]

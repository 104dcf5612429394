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

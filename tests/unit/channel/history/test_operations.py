"""What operators do to durable consumers and histories, in the station that keeps them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import CursorHeld
from tests.e2e.link_support import LIMIT, Track, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def station(tmp_path: Path) -> Iterator[hg.Station]:
    with hg.Station(tmp_path, on_error=lambda *_: None) as opened:
        yield opened


@pytest.fixture
def tracks(station: hg.Station) -> hg.Channel[Track]:
    channel = station.channel("tracks", Track, qos=hg.QoS(durability="persistent"))
    channel.push_many([Track(i) for i in range(10)])
    return channel


def read(tracks: hg.Channel[Track], name: str = "billing") -> list[int]:
    with tracks.consumer(name=name, start="earliest", until="now") as consumer:
        return [track.id for track in consumer]


def test_a_durable_consumer_goes_on_where_it_is_told(tracks: hg.Channel[Track]) -> None:
    assert read(tracks) == list(range(10))
    (place,) = tracks.operations.consumers()
    assert (place.name, place.offset, place.behind) == ("billing", 10, 0)
    tracks.operations.seek("billing", 7)
    assert read(tracks) == [7, 8, 9]
    tracks.operations.reset("billing")
    assert read(tracks) == list(range(10))
    tracks.operations.seek("billing", datetime.now(UTC) - timedelta(hours=1))
    assert read(tracks) == list(range(10))
    tracks.operations.seek("billing", "latest")
    assert read(tracks) == []


def test_one_that_is_open_is_not_moved_and_not_deleted(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer(name="billing") as consumer:
        consumer.pull(LIMIT)
        with pytest.raises(CursorHeld):
            tracks.operations.seek("billing", 0)
        with pytest.raises(CursorHeld):
            tracks.operations.delete("billing")
    tracks.operations.delete("billing")
    assert tracks.operations.consumers() == []
    with pytest.raises(hg.NotPossible, match="no durable consumer 'billing'; there is none"):
        tracks.operations.seek("billing", 0)


def test_a_history_is_purged_by_whole_files_and_not_what_somebody_lacks(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer(name="slow", start="earliest", ack="manual") as consumer:
        assert next(iter(consumer.deliveries(LIMIT))).ack()
    with pytest.raises(hg.NotPossible, match="'slow' has not read offsets from 1 on: unread=True"):
        tracks.operations.purge()
    assert list(tracks.operations.purge(unread=True).values()) == [10]
    tracks.push(Track(99))
    assert read(tracks) == [99]
    for nonsense in (-1, "soon", datetime(2026, 1, 1)):  # noqa: DTZ001 - that is the point
        with pytest.raises(hg.NotPossible, match="'earliest', 'latest', an offset"):
            tracks.operations.purge(nonsense)
    assert tracks.operations.info()[0].earliest == 10


def test_what_keeps_nothing_has_nothing_to_operate_on(station: hg.Station) -> None:
    with pytest.raises(hg.NotPossible, match="keeps no history"):
        station.channel("volatile", Track).operations.info()


def test_dead_letters_say_what_was_raised_and_go_back_where_they_came_from(
    station: hg.Station, tracks: hg.Channel[Track]
) -> None:
    broken = [True]
    got: list[tuple[int, Any]] = []

    def bill(track: Track, header: hg.Header) -> None:
        if broken[0]:
            raise LookupError(f"no account for {track.id}")
        got.append((track.id, header.headers))

    subscription = tracks.subscribe(
        bill, name="billing", start="earliest", max_deliveries=1, dead_letter="tracks.dead"
    )
    dead = station.channel("tracks.dead", Track)
    assert wait_until(lambda: dead.stats().pushed == 10)
    with dead.consumer(start="earliest") as consumer:
        letter = next(iter(consumer.deliveries(LIMIT)))
    assert letter.header.headers is not None
    assert letter.header.headers["dead.reason"] == "LookupError: no account for 0"
    assert letter.header.headers["dead.channel"] == "tracks"
    broken[0] = False
    assert dead.redrive(most=4) == {"tracks": 4}
    assert dead.redrive(where="id > 7") == {"tracks": 2}
    assert dead.redrive(timeout=0.1) == {}
    assert wait_until(lambda: len(got) == 6)
    assert [number for number, _ in got] == [0, 1, 2, 3, 8, 9]
    assert got[0][1]["redriven"] == "1"
    assert not any(name.startswith("dead.") for name in got[0][1])
    subscription.close()
    with pytest.raises(hg.NotPossible, match="is no dead letter"):
        tracks.redrive()


def test_an_event_that_is_rejected_does_not_come_again(
    station: hg.Station, tracks: hg.Channel[Track]
) -> None:
    with tracks.consumer(
        name="billing", start="earliest", ack="manual", max_deliveries=9, dead_letter="tracks.dead"
    ) as consumer:
        for delivery in consumer.deliveries(0.5):
            if delivery.event.id == 3:
                delivery.reject("not ours")
            else:
                delivery.ack()
    dead = station.channel("tracks.dead", Track)
    with dead.consumer(start="earliest", until="now") as letters:
        (letter,) = letters.deliveries(LIMIT)
    assert letter.event.id == 3
    assert letter.header.headers is not None
    assert (letter.header.headers["dead.reason"], letter.header.headers["dead.attempts"]) == ("not ours", "1")
    assert read(tracks) == []


def test_a_lease_that_is_extended_ends_later(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer(name="billing", start="earliest", ack="manual", lease=0.2) as consumer:
        deliveries = consumer.deliveries(0.6)
        kept, lost = next(deliveries), next(deliveries)
        assert kept.extend(LIMIT)
        again = {delivery.event.id for delivery in deliveries if delivery.redelivered and delivery.ack()}
        assert lost.event.id in again
        assert kept.event.id not in again
        assert kept.ack()
        assert not kept.extend(1.0)
        nonsenses: tuple[Any, ...] = (0, -1.0, "1")
        for nonsense in nonsenses:
            with pytest.raises(hg.NotPossible, match="seconds="):
                kept.extend(nonsense)


async def _acked(consumer: hg.Consumer[Track]) -> list[bool]:
    return [await delivery.aack() async for delivery in consumer.deliveries(0.5)]


def test_async_programs_acknowledge_without_holding_up_their_loop(tracks: hg.Channel[Track]) -> None:
    import asyncio

    with tracks.consumer(name="billing", start="earliest", ack="manual") as consumer:
        assert asyncio.run(_acked(consumer)) == [True] * 10
    assert read(tracks) == []


def test_the_file_of_a_station_says_how_much_of_each_history_is_kept(tmp_path: Path) -> None:
    config = tmp_path / "helio.toml"
    config.write_text(
        '[channel."tracks"]\njournal = { keep_seconds = 0.0, head_events = 5, grace_seconds = 0.0 }\n'
    )
    with hg.Station(tmp_path / "data", config=config) as station:
        short = station.channel("tracks", Track, qos=hg.QoS(durability="persistent"))
        long = station.channel("others", Track, qos=hg.QoS(durability="persistent"))
        for channel in (short, long):
            channel.push_many([Track(i) for i in range(20)])
        assert wait_until(lambda: short.operations.info()[0].earliest >= 5)
        assert long.operations.info()[0].earliest == 0
    for text, line, why in (
        ("[channels]\njournal = { keep_second = 1 }\n", 2, "keep_second"),
        ("[channels]\njournal = { keep_seconds = -1 }\n", 2, "keep_seconds"),
    ):
        config.write_text(text)
        with pytest.raises(hg.HeliographError, match=why) as caught:
            hg.Station(config=config)
        assert caught.value.line == line  # type: ignore[attr-defined]  # InvalidConfiguration

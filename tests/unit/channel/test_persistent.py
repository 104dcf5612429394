"""Persistent channels: acknowledged means on disk, history and live without a seam."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import UTC, datetime
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import FolderInUse, HistoryDamaged, HistoryGone, IncompatibleFormats, UnknownOption
from heliograph.filters import python_codegen as emit
from heliograph.filters import python_operations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from heliograph.channel.channel import Channel

LIMIT = 10.0
PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class NewTrack(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str = "unknown"


class Weather(hg.Event, name="weather"):
    place: str


class Town(hg.Event, name="town"):
    place: str


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Channel[Track]]:
    with hg.Station(tmp_path / "data") as station:
        yield station.channel("air.tracks", Track, qos=PERSISTENT)


def ids(events: list[Track]) -> list[int]:
    return [event.id for event in events]


def test_what_was_pushed_is_there_when_the_folder_is_opened_again(tmp_path: Path) -> None:
    for life in range(3):
        with hg.Station(tmp_path / "data") as station:
            tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
            assert tracks.push(Track(life))
            assert ids(list(tracks.consumer(start="earliest", until="now"))) == list(range(life + 1))


def test_events_pushed_together_have_the_headers_of_events_pushed_one_by_one(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        kept = station.channel("air.tracks", Track, qos=PERSISTENT)
        with kept.supplier("radar-1") as radar, kept.consumer(start="now") as live:
            radar.push(Track(0))
            radar.push_many([Track(1), Track(2), Track(3)])
            radar.push(Track(4))
            deliveries = live.deliveries()
            seen = [next(deliveries).header for _ in range(5)]
        with kept.consumer(start="earliest", until="now") as again:
            assert [d.header for d in again.deliveries()] == seen
    assert [h.sequence for h in seen] == [1, 2, 3, 4, 5]
    assert [h.offset for h in seen] == [0, 1, 2, 3, 4]
    assert [h.key for h in seen] == [(0,), (1,), (2,), (3,), (4,)]
    assert [h.station_seq for h in seen] == sorted({h.station_seq for h in seen})
    assert len({h.append_ts for h in seen[1:4]}) == 1
    assert {(h.supplier, h.epoch, h.partition, h.format_id, h.priority) for h in seen} == {
        (seen[0].supplier, seen[0].epoch, seen[0].partition, seen[0].format_id, seen[0].priority)
    }


def test_events_pushed_together_keep_their_places_among_those_of_other_channels(
    kept: Channel[Track],
) -> None:
    with kept.supplier("radar-1") as radar:
        radar._numbering.next_station_seq = count(10, 3).__next__  # as if others had pushed in between
        radar.push_many([Track(n) for n in range(4)])
    with kept.consumer(start="earliest", until="now") as consumer:
        assert [d.header.station_seq for d in consumer.deliveries()] == [10, 13, 16, 19]


def test_events_of_several_classes_pushed_together_are_kept_whole_and_in_order(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        kept = station.channel("air", Track, Weather, qos=PERSISTENT)
        kept.push_many([Track(1), Weather("north"), Track(2)])
        with kept.consumer(start="earliest", until="now") as consumer:
            deliveries = list(consumer.deliveries())
    assert [d.event for d in deliveries] == [Track(1), Weather("north"), Track(2)]
    assert len({d.header.append_ts for d in deliveries}) == 1


def damaged_history(folder: Path) -> None:
    """Five events in frames of their own; the second frame has a wrong byte."""
    with hg.Station(folder) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        for n in range(5):
            tracks.push(Track(n))
    (head,) = folder.glob("channels/*/*/heads/*.log")
    data = bytearray(head.read_bytes())
    data[data.index(b"HgFr", data.index(b"HgFr") + 4) + 80] ^= 1
    head.write_bytes(data)


def test_a_durable_consumer_is_told_of_damage_where_it_is_and_goes_on_when_it_chooses_to(
    tmp_path: Path,
) -> None:
    damaged_history(tmp_path / "data")
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        with tracks.consumer(name="strict", start="earliest", until="now", gap="error") as consumer:
            assert consumer.pull(timeout=LIMIT) == Track(0)
            with pytest.raises(HistoryDamaged) as caught:
                consumer.pull(timeout=LIMIT)
            assert list(caught.value.ranges.values()) == [(1, 2)]
            assert ids(list(consumer)) == [2, 3, 4]


def test_a_consumer_that_goes_on_by_itself_reports_the_exact_damage(tmp_path: Path) -> None:
    damaged_history(tmp_path / "data")
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        with tracks.consumer(start="earliest", until="now") as consumer:
            assert ids(list(consumer)) == [0, 2, 3, 4]
            assert [list(gap.ranges.values()) for gap in consumer.gaps] == [[(1, 2)]]


def test_headers_come_back_from_disk_as_they_were(kept: Channel[Track]) -> None:
    with kept.supplier("radar-1") as radar:
        radar.push(
            Track(7), priority=5, correlation_id="c-1", headers={"traceparent": "00-ab"}, source_ts=123
        )
    header = next(kept.consumer(start="earliest").deliveries()).header
    assert (header.supplier, header.sequence, header.source_ts, header.priority) == ("radar-1", 1, 123, 5)
    assert (header.correlation_id, header.headers) == ("c-1", {"traceparent": "00-ab"})
    assert (header.channel, header.type, header.key, header.offset) == ("air.tracks", "air.track", (7,), 0)
    assert header.partition is not None
    assert header.append_ts is not None


def test_live_and_read_headers_are_equal(kept: Channel[Track]) -> None:
    live = kept.consumer(start="now")
    kept.push(Track(1))
    one = next(live.deliveries())
    other = next(kept.consumer(start="earliest").deliveries())
    assert (one.event, one.header) == (other.event, other.header)


def test_a_consumer_without_a_start_gets_all_that_is_kept(kept: Channel[Track]) -> None:
    kept.push_many([Track(1), Track(2)])
    with kept.consumer() as consumer:
        kept.push(Track(3))
        assert [consumer.pull(LIMIT), consumer.pull(LIMIT), consumer.pull(LIMIT)] == [
            Track(1),
            Track(2),
            Track(3),
        ]


def test_start_and_until_take_offsets_and_times(kept: Channel[Track]) -> None:
    kept.push_many([Track(n) for n in range(5)])
    between = datetime.now(UTC)
    kept.push_many([Track(n) for n in range(5, 8)])
    assert ids(list(kept.consumer(start=2, until=4))) == [2, 3]
    assert ids(list(kept.consumer(start=between, until="now"))) == [5, 6, 7]
    assert ids(list(kept.consumer(until=between))) == [0, 1, 2, 3, 4]


def test_an_end_in_the_future_is_waited_for(kept: Channel[Track]) -> None:
    kept.push_many([Track(0), Track(1)])
    bounded = kept.consumer(start=1, until=4)
    nothing = kept.consumer(start=0, until=4, where="id = 99")
    assert bounded.pull(LIMIT) == Track(1)
    assert bounded.pull(0.001) is None
    assert nothing.pull(0.001) is None
    kept.push_many([Track(2), Track(3), Track(4)])
    assert ids(list(bounded)) == [2, 3]
    assert list(nothing) == []
    assert kept.stats().balanced


@pytest.mark.parametrize("bad", ["yesterday", -1, True, 1.5, datetime(2026, 1, 1)])  # noqa: DTZ001 - the naive one is the point
def test_a_place_that_is_none_is_refused(kept: Channel[Track], bad: object) -> None:
    with pytest.raises(hg.NotPossible, match="no place in its history"):
        kept.consumer(start=bad)  # type: ignore[arg-type]  # the mistake under test


def test_a_filter_means_the_same_live_and_in_history(kept: Channel[Track]) -> None:
    live = kept.consumer(start="now", where="speed > 2")
    kept.push_many([Track(n, speed=float(n)) for n in range(5)])
    read = kept.consumer(start="earliest", where="speed > 2")
    assert (
        [live.pull(LIMIT) for _ in range(2)]
        == [read.pull(LIMIT) for _ in range(2)]
        == [Track(3, 3.0), Track(4, 4.0)]
    )


def test_a_callback_reads_the_past_and_goes_on_live(kept: Channel[Track]) -> None:
    kept.push_many([Track(n) for n in range(100)])
    inbox: SimpleQueue[int] = SimpleQueue()
    kept.subscribe(lambda track: inbox.put(track.id), start="earliest")
    kept.push_many([Track(n) for n in range(100, 200)])
    assert [inbox.get(timeout=LIMIT) for _ in range(200)] == list(range(200))


def test_a_slow_consumer_falls_back_to_the_journal_and_nobody_waits(kept: Channel[Track]) -> None:
    slow = kept.consumer(start="now", queue=3)
    for n in range(50):
        kept.push(Track(n))
    assert [slow.pull(LIMIT) for _ in range(50)] == [Track(n) for n in range(50)]
    kept.push(Track(50))
    assert slow.pull(LIMIT) == Track(50)
    stats = kept.stats()
    assert stats.balanced
    assert stats.total.from_history > 0


def test_push_nowait_and_apush_acknowledge_from_disk(kept: Channel[Track]) -> None:
    receipt = kept.push_nowait(Track(1))
    assert receipt.result(timeout=LIMIT)
    assert asyncio.run(kept.apush(Track(2)))
    assert ids(list(kept.consumer(until="now"))) == [1, 2]


@pytest.mark.parametrize("where", [None, "id > 0"])
def test_who_keeps_a_receipt_keeps_nothing_of_whom_its_event_was_for(
    kept: Channel[Track], where: str | None
) -> None:
    with kept.consumer(where=where, start="now"):
        receipt: Any = kept.push_nowait(Track(1))
        kept.push(Track(2))  # which is told of later
        assert receipt._stored.attachment.matches is None


@pytest.mark.parametrize("others", [[], [Town("x"), Town("b")]])
def test_a_filter_is_asked_once_about_each_event_that_is_pushed_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[Any]
) -> None:
    asked: list[str] = []

    def upper(text: str) -> str:
        asked.append(text)
        return python_operations.upper(text)

    monkeypatch.setitem(emit._RUNTIME, "upper", upper)
    pushed = [Weather("a"), Weather("b"), *others, Weather("c"), Weather("a")]
    with hg.Station(tmp_path) as station:
        channel = station.channel("x", Weather, Town, qos=PERSISTENT)
        consumer = channel.consumer(where="upper(place) <> 'B'", start="now")
        assert channel.push_many(pushed)
        wanted = [event for event in pushed if event.place != "b"]
        assert consumer.read(max=len(wanted), timeout=LIMIT) == wanted
    assert asked == [event.place for event in pushed]


def test_push_many_of_nothing_is_fine(kept: Channel[Track]) -> None:
    assert kept.push_many([])
    assert kept.stats().pushed == 0


def test_a_newer_class_reads_what_an_older_one_wrote(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", Track, qos=PERSISTENT).push(Track(1, 2.0))
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", NewTrack, qos=PERSISTENT)
        tracks.push(NewTrack(2, 3.0, "north"))
        assert list(tracks.consumer(until="now")) == [NewTrack(1, 2.0), NewTrack(2, 3.0, "north")]


def test_a_channel_may_refuse_events_that_lack_a_field(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", Track, qos=PERSISTENT).push(Track(1))
    errors: list[BaseException] = []
    strict = hg.QoS(durability="persistent", missing="refuse")
    with hg.Station(tmp_path / "data", on_error=lambda _n, _h, error: errors.append(error)) as station:
        tracks = station.channel("air.tracks", NewTrack, qos=strict)
        tracks.push(NewTrack(2))
        with tracks.consumer(until="now") as consumer, pytest.raises(IncompatibleFormats, match="region"):
            list(consumer)
        assert isinstance(errors[0], IncompatibleFormats)
        assert [track.id for track in tracks.consumer(start=1, until="now")] == [2]


def test_an_older_class_reads_what_a_newer_one_wrote(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", NewTrack, qos=PERSISTENT).push(NewTrack(1, 2.0, "north"))
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        assert list(tracks.consumer(until="now")) == [Track(1, 2.0)]


class Narrower(hg.Event, name="air.track", key="id"):
    id: int
    speed: hg.f32


def test_a_class_that_cannot_read_the_history_says_so(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", Track, qos=PERSISTENT).push(Track(1, 2.0))
    reported: SimpleQueue[BaseException] = SimpleQueue()
    with hg.Station(tmp_path / "data", on_error=lambda _name, _header, error: reported.put(error)) as station:
        tracks = station.channel("air.tracks", Narrower)
        with tracks.consumer() as consumer, pytest.raises(hg.IncompatibleFormats, match="speed"):
            consumer.pull(LIMIT)
        reported.get(timeout=LIMIT)
        tracks.subscribe(print)
        assert isinstance(reported.get(timeout=LIMIT), hg.IncompatibleFormats)
        assert tracks.settle(LIMIT)
        assert tracks.stats().balanced


def test_a_class_that_cannot_read_what_is_kept_is_told_what_comes_before_it_first(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", Narrower, qos=PERSISTENT).push_many(
            [Narrower(1, 2.0), Narrower(2, 2.0)]
        )
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", Track).push(Track(3, 2.0))
    with hg.Station(tmp_path / "data", on_error=lambda *_: None) as station:
        tracks = station.channel("air.tracks", Narrower)
        tracks.push(Narrower(4, 2.0))
        with tracks.consumer(name="billing") as consumer:
            assert [consumer.pull(LIMIT), consumer.pull(LIMIT)] == [Narrower(1, 2.0), Narrower(2, 2.0)]
            with pytest.raises(hg.IncompatibleFormats, match="speed"):
                consumer.pull(LIMIT)
    with hg.Station(tmp_path / "data") as station:
        upgraded = station.channel("air.tracks", Track).consumer(name="billing")
        assert [upgraded.pull(LIMIT), upgraded.pull(LIMIT)] == [Track(3, 2.0), Track(4, 2.0)]


def test_a_history_is_opened_as_what_it_is(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", Track, qos=PERSISTENT).push(Track(1))
    with hg.Station(tmp_path / "data") as station:
        with pytest.raises(hg.ChannelExists):
            station.channel("air.tracks", Track, mode="create")
        with pytest.raises(hg.NotPossible, match="has a history"):
            station.channel("air.tracks", Track, qos=hg.QoS())
        tracks = station.channel("air.tracks", Track, mode="open")
        assert tracks.qos.durability == "persistent"
        assert list(tracks.consumer(until="now")) == [Track(1)]


def test_expired_events_stay_in_the_past(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        qos = hg.QoS(durability="persistent", lifespan=1e-6)
        tracks = station.channel("air.tracks", Track, qos=qos)
        tracks.push(Track(1))
        assert list(tracks.consumer(until="now")) == []
        assert tracks.stats().total.expired == 1


class TestDurableConsumers:
    def test_the_next_one_of_that_name_goes_on_where_it_was(self, tmp_path: Path) -> None:
        seen: list[int] = []
        for life in range(3):
            with hg.Station(tmp_path / "data") as station:
                tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
                tracks.push_many([Track(3 * life + n) for n in range(3)])
                with tracks.consumer(name="billing", start="earliest", until="now") as consumer:
                    seen += ids(list(consumer))
        assert seen == list(range(9))

    def test_the_event_in_hand_comes_again(self, kept: Channel[Track]) -> None:
        """It is acknowledged when the next is asked for; leaving in between leaves it unacknowledged."""
        kept.push_many([Track(n) for n in range(5)])
        with kept.consumer(name="billing") as consumer:
            assert [consumer.pull(LIMIT), consumer.pull(LIMIT)] == [Track(0), Track(1)]
        with kept.consumer(name="billing") as consumer:
            assert consumer.pull(LIMIT) == Track(1)

    def test_what_does_not_match_is_not_read_again(self, kept: Channel[Track]) -> None:
        kept.push_many([Track(n) for n in range(5)])
        with kept.consumer(name="none", where="id = 99", until="now") as consumer:
            assert list(consumer) == []
        with kept.consumer(name="none", until="now") as consumer:
            assert list(consumer) == []

    def test_two_names_have_two_places(self, kept: Channel[Track]) -> None:
        kept.push_many([Track(1), Track(2)])
        for name in ("billing", "archive"):
            with kept.consumer(name=name, until="now") as consumer:
                assert ids(list(consumer)) == [1, 2]

    def test_a_name_is_exclusive(self, kept: Channel[Track]) -> None:
        with kept.consumer(name="billing"), pytest.raises(hg.NotPossible, match="open already"):
            kept.consumer(name="billing")
        kept.consumer(name="billing").close()

    def test_one_that_starts_now_begins_there_for_good(self, kept: Channel[Track]) -> None:
        kept.push(Track(1))
        kept.consumer(name="late", start="now").close()
        kept.push(Track(2))
        with kept.consumer(name="late", until="now") as consumer:
            assert ids(list(consumer)) == [2]

    def test_it_goes_on_live(self, kept: Channel[Track]) -> None:
        with kept.consumer(name="billing") as consumer:
            for n in range(200):
                kept.push(Track(n))
                assert consumer.pull(LIMIT) == Track(n)


def test_what_cannot_be_honoured_is_refused(tmp_path: Path) -> None:
    with hg.Station() as station, pytest.raises(hg.NotPossible, match="needs a folder"):
        station.channel("air.tracks", Track, qos=PERSISTENT)
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        with pytest.raises(hg.NotPossible, match="inline"):
            tracks.subscribe(print, inline=True)
        with pytest.raises(hg.NotPossible, match="by returning"):
            tracks.subscribe(print, group="workers", ack="manual")
        with pytest.raises(hg.NotPossible, match="reads the journal"):
            tracks.subscribe(print, overflow="drop_oldest")
        with pytest.raises(FolderInUse, match=r"belongs to another station \(pid .*, in this process\)"):
            hg.Station(tmp_path / "data")


def test_closing_delivers_what_was_acknowledged(tmp_path: Path) -> None:
    seen: list[int] = []
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        tracks.subscribe(lambda track: seen.append(track.id))
        tracks.push_many([Track(n) for n in range(500)])
    assert seen == list(range(500))


def test_many_joins_under_full_load_see_every_event_once_and_in_order(tmp_path: Path) -> None:
    """The seam: history, then live, while four suppliers push."""
    stop = threading.Event()
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)

        def push() -> None:
            with tracks.supplier() as supplier:
                while not stop.is_set():
                    supplier.push_many([Track(n) for n in range(7)])

        threads = [threading.Thread(target=push) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for join in range(40):
                start = max(0, tracks.stats().pushed - 100 * (join % 7))
                with tracks.consumer(start=start, queue=5 + join) as consumer:
                    offsets = [
                        d.header.offset for d, _ in zip(consumer.deliveries(LIMIT), range(400), strict=False)
                    ]
                assert offsets == list(range(start, start + 400))
        finally:
            stop.set()
            for thread in threads:
                thread.join(LIMIT)
        assert tracks.stats().balanced


@pytest.mark.parametrize(
    "stamp",
    [
        {"source_ts": "now"},
        {"source_ts": 2**80},
        {"source_ts": 1.5},
        {"priority": 0},
        {"priority": True},
        {"correlation_id": "x" * 300},
        {"correlation_id": "\ud800"},
        {"headers": {"a": "\ud800"}},
        {"headers": {"a": 1}},
        {"headers": {str(n): "" for n in range(65)}},
        {"headers": {"a": "x" * 5000}},
    ],
)
def test_what_a_push_says_about_its_event_is_checked_before_anything_is_kept(
    kept: Channel[Track], stamp: dict[str, Any]
) -> None:
    with pytest.raises(hg.InvalidEvent, match="header"):
        kept.push(Track(1), **stamp)
    assert list(kept.consumer(until="now")) == []


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"timeout": "1"}, hg.NotPossible),
        ({"timeout": -1}, hg.NotPossible),
        ({"timeout": float("nan")}, hg.NotPossible),
        ({"timeout": True}, hg.NotPossible),
        ({"prioritty": 3}, UnknownOption),
    ],
)
def test_a_push_that_is_said_wrong_keeps_nothing(
    kept: Channel[Track], said: dict[str, Any], error: type[hg.HeliographError]
) -> None:
    with pytest.raises(error):
        kept.push(Track(1), **said)
    with pytest.raises(hg.HeliographError):
        kept.push_nowait(Track(1), **said)
    if "timeout" in said:
        with pytest.raises(error):
            kept.push_many([Track(1)], **said)
    assert list(kept.consumer(until="now")) == []


def test_a_misspelled_option_is_named_with_what_was_meant(kept: Channel[Track]) -> None:
    with pytest.raises(UnknownOption, match=r"push\(\) has no option 'prioritty'.*did you mean priority="):
        kept.push(Track(1), prioritty=3)  # type: ignore[call-arg]  # the mistake under test
    with pytest.raises(UnknownOption, match="did you mean start="):
        kept.consumer(stat="earliest")  # type: ignore[call-arg]  # likewise


@pytest.mark.parametrize("name", ["", "x" * 300, 3, "a\x00b"])
def test_a_name_that_is_none_is_refused_with_what_is_one(kept: Channel[Track], name: Any) -> None:
    for call in (kept.consumer, kept.supplier, lambda name: kept.subscribe(print, name=name)):
        with pytest.raises(hg.NotPossible, match="allowed is text of 1 to"):
            call(name=name)


def test_a_folder_is_free_again_though_a_forked_child_lives(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data"):
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)
            os._exit(0)
    try:
        with hg.Station(tmp_path / "data") as again:
            assert again.channel("air.tracks", Track, qos=PERSISTENT).push(Track(1))
    finally:
        os.close(go)
        os.waitpid(child, 0)


SHORT = hg.Limits(keep_bytes=1, grace_seconds=0)
"""Whatever is sealed goes at once."""


def overtaken(folder: Path) -> None:
    """A history in which the durable consumer `billing` has read 2 of 10 events and 5 are gone."""
    with hg.Station(folder) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        tracks.push_many([Track(n) for n in range(5)])
        with tracks.consumer(name="billing", start="earliest") as billing:
            assert ids(billing.read(2, LIMIT)) == [0, 1]
            assert billing.pull(LIMIT) is not None
    with hg.Station(folder, journal=SHORT) as station:
        tracks = station.channel("air.tracks", Track)
        writer = tracks.store._writer  # type: ignore[union-attr]  # a journal's
        assert writer.seal() == 1
        writer.retain()
        tracks.push_many([Track(n) for n in range(5, 10)])


def test_a_consumer_that_retention_overtook_is_told_the_exact_range_and_goes_on(tmp_path: Path) -> None:
    overtaken(tmp_path / "data")
    told: list[Any] = []
    with hg.Station(tmp_path / "data", on_error=lambda *args: told.append(args)) as station:
        tracks = station.channel("air.tracks", Track)
        with tracks.consumer(name="billing", until="now") as billing:
            assert ids(list(billing)) == [5, 6, 7, 8, 9]
            (gap,) = billing.gaps
    ((name, header, error),) = told
    assert (name, header, error) == ("billing", None, gap)
    assert list(gap.ranges.values()) == [(2, 5)]


def test_or_it_is_raised_once_and_the_next_call_goes_on(tmp_path: Path) -> None:
    overtaken(tmp_path / "data")
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track)
        with tracks.consumer(name="billing", gap="error") as billing:
            with pytest.raises(HistoryGone) as caught:
                billing.pull(LIMIT)
            assert list(caught.value.ranges.values()) == [(2, 5)]
            assert ids(billing.read(5, LIMIT)) == [5, 6, 7, 8, 9]
            assert billing.gaps == (caught.value,)


def test_a_durable_consumer_that_never_read_anything_is_known_to_retention(kept: Channel[Track]) -> None:
    kept.push(Track(1))
    kept.consumer(name="billing", start="earliest").close()
    assert [(place.consumer, place.low) for place in kept.store._places()] == [("billing", 0)]  # type: ignore[union-attr]  # a journal's

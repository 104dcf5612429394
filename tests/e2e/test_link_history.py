"""Histories across stations: on disk or in memory, the seam, durable consumers, pushes through a keeper."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import BatchTooLarge, CursorFenced, CursorHeld, NotPossible, QueryFailed
from heliograph.links.history.pages import Page
from heliograph.links.history.server import AppendAsk
from heliograph.links.mesh.egress import Egress
from heliograph.links.session.rpc import Rpc
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from pathlib import Path

PERSISTENT = hg.QoS(durability="persistent")


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def ids(consumer: Any, number: int) -> list[int]:
    found: list[int] = []
    while len(found) < number and (event := consumer.pull(LIMIT)) is not None:
        found.append(event.id)
    return found


def test_a_late_joiner_elsewhere_gets_the_history_and_then_what_is_new(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        kept.push_many([Track(i, float(i)) for i in range(2_000)])
        theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
        consumer = theirs.consumer(start="earliest", where="id >= 10")
        assert ids(consumer, 1_990) == list(range(10, 2_000))
        assert kept.wait_matched(1, LIMIT)
        for i in range(2_000, 2_100):
            kept.push(Track(i))
        assert ids(consumer, 100) == list(range(2_000, 2_100))
        assert consumer.pull(0.01) is None


def test_an_event_that_waits_with_the_keeper_can_be_cancelled_elsewhere(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
        receipt = theirs.push_nowait(Track(1), deliver_after=3600.0)
        assert receipt.result(LIMIT)
        assert theirs.push(Track(2), deliver_after=3600.0, id="order-2")
        assert theirs.cancel(receipt)
        assert not theirs.cancel(receipt)
        assert kept.cancel("order-2"), "whoever has the id"
        assert kept.stats().delayed == 0


def test_an_event_that_is_put_off_waits_with_the_keeper_and_needs_nobody_else(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        with hg.Station(domain="air") as other:
            theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
            with theirs.supplier("radar-1") as radar:
                assert radar.push(Track(1), deliver_after=3.0, id="once")
                assert radar.push(Track(1), deliver_after=3.0, id="once")
            assert kept.stats().delayed == 1
        consumer = kept.consumer(start="earliest")
        delivery = next(consumer.deliveries(LIMIT))
        assert (delivery.event, delivery.header.supplier) == (Track(1), "radar-1")
        assert consumer.pull(0.01) is None


def test_history_that_nobody_wants_there_costs_no_byte(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        kept.push_many([Track(i, region="x" * 100) for i in range(5_000)])
        theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
        assert keeper.mesh is not None
        (before,) = keeper.mesh.stats()
        assert ids(theirs.consumer(start="earliest", where="id = 4999"), 1) == [4_999]
        (after,) = keeper.mesh.stats()
        assert after.bytes_sent - before.bytes_sent < 5_000


def test_joins_at_any_instant_under_load_see_every_event_once_and_in_order(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
        pushed = threading.Thread(
            target=lambda: [kept.push_many([Track(100 * n + i) for i in range(100)]) for n in range(60)]
        )
        pushed.start()
        consumers: list[hg.Consumer[Track]] = []
        while pushed.is_alive() and len(consumers) < 15:
            consumers.append(theirs.consumer(start="earliest"))
            consumers[-1].pull(LIMIT)
        for consumer in consumers:
            assert ids(consumer, 5_999) == list(range(1, 6_000))
        pushed.join()


def test_events_of_all_priorities_pass_a_small_queue_elsewhere_each_once(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        consumer = other.channel("air.tracks", Track, qos=PERSISTENT).consumer(start="now", queue=50)
        assert kept.wait_matched(1, LIMIT)
        for i in range(4_000):
            kept.push_nowait(Track(i), priority=(1, 5, 3, 5, 1)[i % 5])
        assert sorted(ids(consumer, 4_000)) == list(range(4_000))
        assert consumer.pull(0.01) is None


def test_a_history_of_large_events_comes_in_pages_that_fit(tmp_path: Path) -> None:
    class Scan(hg.Event, name="scan"):
        id: int
        raw: bytes

    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        kept = keeper.channel("scans", Scan, qos=PERSISTENT)
        for i in range(30):
            kept.push(Scan(i, bytes(3 << 20)))
        theirs = other.channel("scans", Scan, qos=PERSISTENT)
        assert ids(theirs.consumer(start="earliest"), 30) == list(range(30))
        with pytest.raises(BatchTooLarge):
            theirs.push_many([Scan(i, bytes(3 << 20)) for i in range(20)])


def test_stations_that_share_a_keeper_see_every_event_once(tmp_path: Path) -> None:
    with (
        hg.Station(tmp_path / "data", domain="air") as keeper,
        hg.Station(domain="air") as one,
        hg.Station(domain="air") as two,
    ):
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        seen: tuple[list[int], list[int]] = ([], [])
        channels = [station.channel("air.tracks", Track, qos=PERSISTENT) for station in (one, two)]
        for channel, into in zip(channels, seen, strict=True):
            channel.subscribe(lambda track, into=into: into.append(track.id))
        assert kept.wait_matched(2, LIMIT)
        kept.push(Track(0))
        channels[0].push(Track(1))
        channels[1].push(Track(2))
        for i in range(3, 100):
            kept.push(Track(i))
        assert wait_until(lambda: all(len(ids) >= 100 for ids in seen))
        assert seen == (list(range(100)), list(range(100)))


def test_a_volatile_supplier_does_not_meet_consumers_that_ask_for_history(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        volatile = other.channel("air.tracks", Track)
        keeper.channel("air.tracks", Track, qos=PERSISTENT).consumer()
        assert wait_until(lambda: "durability: offered 'volatile', requested 'persistent'" in caplog.text)
        assert not volatile.wait_matched(1, 0)


def test_a_durable_consumer_elsewhere_goes_on_where_it_was(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        kept.push_many([Track(i) for i in range(100)])
        # An event is acknowledged when the next is asked for, so the last one of each turn comes again.
        for start in (0, 49):
            with hg.Station(domain="air") as other:
                theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
                with theirs.consumer(name="billing", start="earliest") as consumer:
                    assert ids(consumer, 50) == list(range(start, start + 50))


def test_a_durable_consumer_is_exclusive_across_stations(tmp_path: Path) -> None:
    with (
        hg.Station(tmp_path / "data", domain="air") as keeper,
        hg.Station(domain="air") as one,
        hg.Station(domain="air") as two,
    ):
        keeper.channel("air.tracks", Track, qos=PERSISTENT)
        first = one.channel("air.tracks", Track, qos=PERSISTENT)
        second = two.channel("air.tracks", Track, qos=PERSISTENT)
        with first.consumer(name="billing"), pytest.raises(CursorHeld, match="consumes as 'billing'"):
            second.consumer(name="billing")
        second.consumer(name="billing").close()


def test_a_push_without_a_folder_is_synced_by_the_keeper(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        with hg.Station(domain="air") as other:
            theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
            consumer = theirs.consumer()
            assert theirs.push(Track(1, 2.0, "north"))
            theirs.push_many([Track(i) for i in range(2, 200)])
            assert ids(consumer, 199) == list(range(1, 200))
        local = kept.consumer(start="earliest", until="now")
        assert [track.id for track in local] == list(range(1, 200))


class Alarm(hg.Event, name="air.alarm"):
    level: int


def test_what_the_keeper_cannot_read_is_refused_and_not_acknowledged(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        both: Any = other.channel("air.tracks", Track, Alarm, qos=PERSISTENT)
        assert both.push(Track(1))
        with pytest.raises(NotPossible, match="can read 0 of 1 events"):
            both.push(Alarm(3))
        with pytest.raises(NotPossible, match="can read 1 of 2 events"):
            both.push_many([Track(2), Alarm(3)])
        assert [track.id for track in kept.consumer(until="now")] == [1]


@pytest.mark.parametrize("push_id", [None, "again"])
def test_an_append_without_events_is_refused_by_name(tmp_path: Path, push_id: str | None) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        keeper.channel("air.tracks", Track, qos=PERSISTENT)
        assert other.mesh is not None
        assert other.mesh.meet_all(LIMIT)
        ask = AppendAsk("air.tracks", "synced", Page([]), push_id)
        with pytest.raises(NotPossible, match=r"0 of 0 events|0 events under the id"):
            other.mesh.ask(keeper.id, "history.append", ask)


def test_a_link_sees_nothing_of_a_synced_channel_that_is_not_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    sync = os.fdatasync

    def slow_sync(descriptor: int) -> None:
        assert goes_on.wait(LIMIT)
        sync(descriptor)

    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        kept, after = keeper.channel("air.tracks", Track, qos=PERSISTENT), keeper.channel("after", Track)
        theirs = other.channel("air.tracks", Track, qos=PERSISTENT).consumer()
        theirs_after = other.channel("after", Track).consumer()
        assert kept.wait_matched(1, LIMIT)
        assert after.wait_matched(1, LIMIT)
        monkeypatch.setattr(os, "fdatasync", slow_sync)
        receipt = kept.push_nowait(Track(1))
        # What is sent later on the same link has come, and what was to be asked has been answered.
        after.push(Track(2))
        assert ids(theirs_after, 1) == [2]
        again = other.channel("air.tracks", Track, qos=PERSISTENT)
        with again.consumer(start="earliest", until="now") as history:
            seen = [track.id for track in history]
        assert (theirs.pull(0), seen) == (None, [])
        goes_on.set()
        assert receipt.result(LIMIT)
        assert ids(theirs, 1) == [1]


def test_without_a_keeper_a_persistent_channel_is_refused_with_the_reason() -> None:
    with hg.Station(domain="air") as station, pytest.raises(hg.NotPossible, match="keeps this channel"):
        station.channel("air.tracks", Track, qos=PERSISTENT)


def test_a_keeper_that_comes_back_is_found_and_nothing_is_missed(tmp_path: Path) -> None:
    with hg.Station(domain="air") as other:
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
            consumer = other.channel("air.tracks", Track, qos=PERSISTENT).consumer(start="earliest")
            kept.push_many([Track(i) for i in range(100)])
            assert ids(consumer, 100) == list(range(100))
        assert other.mesh is not None
        assert other.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)
        theirs = other.channel("air.tracks", Track)
        with pytest.raises(hg.HeliographError):
            theirs.push_nowait(Track(0))
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
            kept.push_many([Track(i) for i in range(100, 200)])
            assert ids(consumer, 100) == list(range(100, 200))
            kept.push(Track(200))
            assert ids(consumer, 1) == [200]
            assert wait_until(lambda: theirs.push(Track(201)))
            assert ids(consumer, 1) == [201]


def test_a_push_waits_for_a_keeper_that_is_away_no_longer_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hg.Station(domain="air") as other:
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            keeper.channel("air.tracks", Track, qos=PERSISTENT)
            theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
        assert other.mesh is not None
        assert other.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)
        pushing: Any = theirs
        waits: list[float] = []
        wait_for = other.mesh.wait_for

        def listening(known: Any, timeout: float) -> bool:
            waits.append(timeout)
            return wait_for(known, 0)

        monkeypatch.setattr(other.mesh, "wait_for", listening)
        with pytest.raises(QueryFailed, match="cannot be reached"):
            pushing.push_nowait(Track(1))
        with pytest.raises(QueryFailed, match="cannot be reached"):
            pushing.push(Track(1), timeout=0.01)
        with pytest.raises(QueryFailed, match="cannot be reached"):
            pushing.push_many([Track(1)], timeout=0.02)
        assert waits[0] == 0
        assert waits[1] <= 0.01
        assert waits[2] <= 0.02


def test_a_push_that_waits_for_its_keeper_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hg.Station(domain="air") as other:
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            keeper.channel("air.tracks", Track, qos=PERSISTENT)
            theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
        assert other.mesh is not None
        assert other.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)
        waiting = threading.Event()
        wait_for = other.mesh.wait_for

        def listening(known: Any, timeout: float | None = None) -> bool:
            if timeout:
                waiting.set()
            return wait_for(known, timeout)

        monkeypatch.setattr(other.mesh, "wait_for", listening)
        outcome: list[type] = []

        def patient() -> None:
            try:
                theirs.push(Track(1))
            except hg.HeliographError as error:
                outcome.append(type(error))

        first = threading.Thread(target=patient)
        first.start()
        assert waiting.wait(LIMIT)
        with pytest.raises(QueryFailed):
            theirs.push_nowait(Track(2))
        assert not outcome, "the one that has time still waits"
        first.join(LIMIT)
        assert outcome == [QueryFailed]


def test_a_durable_consumer_elsewhere_goes_on_when_its_keeper_is_back(tmp_path: Path) -> None:
    with hg.Station(domain="air") as other:
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
            kept.push_many([Track(i) for i in range(100)])
            theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
            consumer = theirs.consumer(name="billing", start="earliest")
            assert ids(consumer, 50) == list(range(50))
        assert other.mesh is not None
        assert other.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
            kept.push_many([Track(i) for i in range(100, 200)])
            assert ids(consumer, 150) == list(range(50, 200))
            consumer.close()
            assert ids(kept.consumer(name="billing"), 1) == [199], "nobody acknowledged the last one"


def test_a_durable_consumer_that_another_took_over_while_its_keeper_was_away_is_refused(
    tmp_path: Path,
) -> None:
    with hg.Station(domain="air") as other:
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
            kept.push(Track(1))
            theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
            stale = theirs.consumer(name="billing", start="earliest")
            assert ids(stale, 1) == [1]
        assert other.mesh is not None
        assert other.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
            with kept.consumer(name="billing") as taken_over:
                assert ids(taken_over, 1) == [1]

                def is_refused() -> bool:
                    """Its keeper is told of what it got, and answers, while it waits for more."""
                    try:
                        stale.pull(0.05)
                    except CursorFenced:
                        return True
                    return False

                assert wait_until(is_refused)
                with pytest.raises(CursorFenced):
                    stale.close()


def test_a_question_for_history_that_is_not_answered_is_not_the_end_of_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = Rpc.ask

    def fails_once(self: Rpc, link: Any, topic: str, body: Any, timeout: float) -> Any:
        if topic == "history.read":
            asked.append(topic)
            if len(asked) == 1:
                raise QueryFailed("the keeper", "has not answered")
        return ask(self, link, topic, body, timeout)

    monkeypatch.setattr(Rpc, "ask", fails_once)
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
        kept.push_many([Track(i) for i in range(50)])
        consumer = theirs.consumer(start="earliest")
        assert ids(consumer, 50) == list(range(50))
        assert len(asked) > 1


@pytest.mark.parametrize("durability", ["transient", "transient-local"])
def test_a_late_joiner_elsewhere_gets_what_was_kept_in_memory_and_then_what_is_new(durability: Any) -> None:
    qos = hg.QoS(durability=durability, history=2)
    with hg.Station(domain="air") as one, hg.Station(domain="air") as other:
        ours, theirs = (station.channel("air.tracks", Track, qos=qos) for station in (one, other))
        for speed in range(5):
            ours.push_many([Track(i, float(speed)) for i in range(700)])
        consumer = theirs.consumer(where="id >= 100")
        got = [consumer.pull(LIMIT) for _ in range(1_200)]
        ours.push(Track(100, 9.0))
        got.append(consumer.pull(LIMIT))
        assert [(t.id, t.speed) for t in got if t] == [
            *((i, 3.0) for i in range(100, 700)),
            *((i, 4.0) for i in range(100, 700)),
            (100, 9.0),
        ]
        assert consumer.pull(0) is None
        assert theirs.consumer(start="now").pull(0.05) is None
        assert theirs.stats().matched == 1_201


@pytest.mark.parametrize("durability", ["transient", "transient-local"])
def test_who_reads_until_now_gets_what_every_station_has_kept_in_memory(durability: Any) -> None:
    qos = hg.QoS(durability=durability, history=2)
    with hg.Station(domain="air") as one:
        ours = one.channel("air.tracks", Track, qos=qos)
        ours.push_many([Track(1, float(speed)) for speed in range(5)])
        with hg.Station(domain="air") as other:
            theirs = other.channel("air.tracks", Track, qos=qos)
            for channel in (theirs, ours, theirs, ours):
                with channel.consumer(until="now") as consumer:
                    assert [track.speed for track in consumer] == [3.0, 4.0]
            with theirs.consumer(until="now", ack="manual") as consumer:
                handed = []
                for delivery in consumer.deliveries():
                    handed.append(delivery.event.speed)
                    delivery.ack()
                assert handed == [3.0, 4.0]
            for nothing in (
                theirs.consumer(until="now", where="id > 1"),
                theirs.consumer(start="now", until="now"),
            ):
                with nothing as consumer:
                    assert list(consumer) == []


def test_who_joins_late_gets_what_each_of_several_stations_has_kept_in_memory() -> None:
    qos = hg.QoS(durability="transient")
    with ExitStack() as stack:
        stations = [stack.enter_context(hg.Station(domain="air")) for _ in range(5)]
        for number, station in enumerate(stations[1:]):
            station.channel("air.tracks", Track, qos=qos).push(Track(number))
        joined = stations[0].channel("air.tracks", Track, qos=qos)
        consumer = joined.consumer()
        assert sorted(ids(consumer, 4)) == [0, 1, 2, 3]
        stations[1].channel("air.tracks", Track).push(Track(9))
        assert ids(consumer, 1) == [9]
        assert joined.stats().total.dropped == {}


def test_what_was_kept_in_memory_goes_with_its_supplier_or_its_station() -> None:
    local, kept = hg.QoS(durability="transient-local"), hg.QoS(durability="transient")
    with hg.Station(domain="air") as other:
        with hg.Station(domain="air") as one:
            for name, qos in (("local", local), ("kept", kept)):
                with one.channel(name, Track, qos=qos).supplier() as supplier:
                    supplier.push(Track(1))
                one.channel(name, Track).push(Track(2))
            assert ids(other.channel("local", Track, qos=local).consumer(), 1) == [2]
            assert ids(other.channel("kept", Track, qos=kept).consumer(), 2) == [1, 2]
        assert other.mesh is not None
        assert other.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)
        assert other.channel("kept", Track).consumer().pull(0.05) is None


def test_a_station_that_is_met_later_gives_out_what_it_has_kept() -> None:
    qos = hg.QoS(durability="transient")
    with hg.Station(domain="air") as early:
        seen: list[int] = []
        early.channel("air.tracks", Track, qos=qos).subscribe(lambda track: seen.append(track.id))
        with hg.Station(domain="air") as late:
            pushing = late.channel("air.tracks", Track, qos=qos)
            for i in range(50):
                pushing.push(Track(i))
            assert wait_until(lambda: len(seen) == 50)
            assert seen == list(range(50))


def test_joins_at_any_instant_see_what_was_kept_and_then_every_event_once() -> None:
    qos = hg.QoS(durability="transient", queue=10_000)
    with hg.Station(domain="air") as one, hg.Station(domain="air") as other:
        ours, theirs = (station.channel("air.tracks", Track, qos=qos) for station in (one, other))
        joined: list[hg.Consumer[Track]] = [theirs.consumer()]
        assert ours.wait_matched(1, LIMIT)
        pushed = threading.Thread(
            target=lambda: [ours.push_many([Track(40 * n + i) for i in range(40)]) for n in range(100)]
        )
        pushed.start()
        while pushed.is_alive() and len(joined) < 20:
            joined.append(theirs.consumer())
            joined[-1].pull(LIMIT)
        pushed.join()
        assert ids(joined[0], 4_000) == list(range(4_000))
        for consumer in joined[1:]:
            assert ids(consumer, 3_999) == list(range(1, 4_000))
            assert consumer.pull(0) is None
        for consumer in joined:
            consumer.close()
        assert theirs.stats().balanced


def test_every_station_counts_the_receivers_of_all_and_a_group_once(tmp_path: Path) -> None:
    with (
        hg.Station(tmp_path / "kept", domain="air") as keeper,
        hg.Station(domain="air") as first,
        hg.Station(domain="air") as second,
        hg.Station(domain="air") as supplying,
    ):
        kept = keeper.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        others = [station.channel("air.tracks", Track) for station in (first, second, supplying)]
        opened = [channel.consumer(group="all", ack="manual") for channel in others[:2]]
        everywhere = [kept, *others]
        assert all(channel.wait_matched(1, LIMIT) for channel in everywhere)
        opened += [others[0].consumer(name="billing"), others[1].consumer(), kept.consumer()]
        assert all(channel.wait_matched(4, LIMIT) for channel in everywhere)
        assert not any(channel.wait_matched(5, 0) for channel in everywhere)


@pytest.mark.parametrize("pushes", ["keeper", "other"])
def test_what_is_pushed_before_two_stations_agree_on_a_way_reaches_a_consumer_that_has_read_all(
    pushes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was told that there is no more goes on live: the keeper must have a gateway by then."""
    has_agreed = threading.Event()
    monkeypatch.setattr(Egress, "_is_settled", lambda *_: has_agreed.is_set())
    with hg.Station(domain="air") as other, hg.Station(tmp_path / "data", domain="air") as keeper:
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        kept.push(Track(1))
        theirs = other.channel("air.tracks", Track, qos=PERSISTENT)
        consumer = theirs.consumer(start="earliest", where="id < 100")
        assert ids(consumer, 1) == [1]
        consumer.pull(0.2)  # time to ask for more
        for i in (2, 3):
            assert (kept if pushes == "keeper" else theirs).push(Track(i))
        has_agreed.set()
        mesh, peer = keeper.mesh, other.mesh
        assert mesh is not None
        assert peer is not None
        there = mesh._peers[peer.identity.station]
        mesh.gates.fit(there, "air.tracks")
        mesh.keeper.carried(peer.identity.station)
        assert ids(consumer, 2) == [2, 3]
        assert kept.push(Track(4))
        assert ids(consumer, 1) == [4]

"""Events that are delivered later: `deliver_at` and `deliver_after`, in memory and across restarts."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.publish.delayed import DurableDelayed, Later
from heliograph.errors import (
    AppendFailed,
    Closed,
    DiskFull,
    IncompatibleFormats,
    InvalidEvent,
    NotPossible,
    SupplierFenced,
    TooManyTimers,
    WrongEventType,
)
from heliograph.model.event import DELAYED_EPOCHS
from heliograph.testing import Rig

if TYPE_CHECKING:
    from heliograph.model.event import Header

LIMIT = 10.0
PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class Weather(hg.Event, name="air.weather"):
    wind: float = 0.0


@pytest.fixture(params=["volatile", "transient", "persistent"])
def tracks(helio: Rig, request: pytest.FixtureRequest) -> hg.Channel[Track]:
    return helio.station.channel("air.tracks", Track, qos=hg.QoS(durability=request.param))


def persistent(rig: Rig) -> hg.Channel[Track]:
    return rig.station.channel("air.tracks", Track, qos=PERSISTENT)


def history(channel: hg.Channel[Track]) -> list[int]:
    return [track.id for track in channel.consumer(start="earliest", until="now")]


def now(rig: Rig) -> datetime:
    return datetime.fromtimestamp(rig.clock.time_ns() / 1e9, UTC)


def test_nobody_gets_an_event_before_its_instant(helio: Rig, tracks: hg.Channel[Track]) -> None:
    seen: list[int] = []
    tracks.subscribe(lambda track: seen.append(track.id))
    assert tracks.push(Track(1), deliver_after=10.0)
    assert tracks.push(Track(2), deliver_at=now(helio) + timedelta(seconds=5))
    tracks.push(Track(3))
    helio.settle()
    assert seen == [3]
    helio.clock.advance(6)
    helio.settle()
    assert seen == [3, 2]
    helio.clock.advance(6)
    helio.settle()
    assert seen == [3, 2, 1]


def test_an_instant_that_has_passed_is_now(helio: Rig, tracks: hg.Channel[Track]) -> None:
    seen: list[int] = []
    tracks.subscribe(lambda track: seen.append(track.id))
    tracks.push(Track(1), deliver_at=datetime(1999, 12, 31, tzinfo=UTC))
    tracks.push(Track(2), deliver_after=0)
    helio.clock.advance(0)
    helio.settle()
    assert seen == [1, 2]


def test_the_ledger_counts_what_waits_and_balances(helio: Rig, tracks: hg.Channel[Track]) -> None:
    tracks.subscribe(lambda _: None, name="all")
    for i in range(3):
        tracks.push(Track(i), deliver_after=1.0 + i)
    stats = tracks.stats()
    assert (stats.pushed, stats.matched, stats.delayed) == (3, 0, 3)
    helio.clock.advance(2.5)
    helio.settle()
    stats = tracks.stats()
    assert (stats.pushed, stats.matched, stats.delayed) == (3, 2, 1)
    assert stats.consumers["all"].delivered == 2
    assert stats.balanced


def test_who_gets_it_is_decided_at_its_instant(helio: Rig) -> None:
    tracks = helio.station.channel("air.tracks", Track)
    early: list[int] = []
    late: list[int] = []
    first = tracks.subscribe(lambda track: early.append(track.id), name="early")
    tracks.push(Track(1), deliver_after=1.0)
    first.close()
    tracks.subscribe(lambda track: late.append(track.id), where="id = 1", name="late")
    helio.clock.advance(1)
    helio.settle()
    assert (early, late) == ([], [1])


def test_an_event_keeps_what_its_push_said(helio: Rig, tracks: hg.Channel[Track]) -> None:
    seen: list[Header] = []
    tracks.subscribe(lambda _, header: seen.append(header), sources=["radar-1"])
    pushed_at = helio.clock.time_ns()
    with tracks.supplier("radar-1") as radar:
        radar.push(Track(1), priority=5, correlation_id="c", headers={"site": "a"}, deliver_after=1.0)
        radar.push(Track(2), deliver_after=2.0)
    helio.clock.advance(3)
    helio.settle()
    first, second = seen
    assert (first.supplier, first.priority, first.correlation_id) == ("radar-1", 5, "c")
    assert first.headers is not None
    assert first.headers["site"] == "a"
    assert first.source_ts == pushed_at
    assert first.epoch == second.epoch >= DELAYED_EPOCHS
    assert [first.sequence, second.sequence] == [1, 2]


def test_what_is_due_at_one_instant_goes_by_priority(helio: Rig) -> None:
    tracks = helio.station.channel("air.tracks", Track)
    seen: list[int] = []
    gate = threading.Event()

    def slow(track: Track) -> None:
        seen.append(track.id)
        gate.wait(LIMIT)

    tracks.subscribe(slow)
    tracks.push(Track(0))
    for i in range(1, 6):
        tracks.push(Track(i), priority=i, deliver_after=1.0)
    helio.clock.advance(1)
    assert tracks.delayed.queue.wait_empty(LIMIT)
    gate.set()
    helio.settle()
    assert seen == [0, 5, 4, 3, 2, 1]


def test_a_lifespan_begins_at_the_instant(helio: Rig) -> None:
    tracks = helio.station.channel("air.tracks", Track, qos=hg.QoS(lifespan=5.0))
    consumer = tracks.consumer()
    tracks.push(Track(1), deliver_after=100.0)
    helio.clock.advance(100)
    helio.settle()
    helio.clock.advance(4)
    assert consumer.pull(LIMIT) == Track(1)


def test_a_full_queue_holds_what_is_due_and_loses_nothing(helio: Rig) -> None:
    tracks = helio.station.channel("air.tracks", Track, qos=hg.QoS(queue=1, max_blocking=0.01))
    consumer = tracks.consumer()
    for i in range(5):
        tracks.push(Track(i), deliver_after=1.0)
    helio.clock.advance(1)
    assert [consumer.pull(LIMIT) for _ in range(5)] == [Track(i) for i in range(5)]


def test_an_inline_callback_runs_in_a_worker_and_not_among_the_timers(helio: Rig) -> None:
    tracks = helio.station.channel("air.tracks", Track)
    threads: list[str] = []
    tracks.subscribe(lambda _: threads.append(threading.current_thread().name), inline=True)
    tracks.push(Track(1), deliver_after=1.0)
    helio.clock.advance(1)
    helio.settle()
    assert len(threads) == 1
    assert threads[0].startswith("dispatch")


def test_every_way_to_push_can_put_off(helio: Rig, tracks: hg.Channel[Track]) -> None:
    seen: list[int] = []
    tracks.subscribe(lambda track: seen.append(track.id))
    tracks.push(Track(1), deliver_after=1.0)
    assert tracks.push_nowait(Track(2), deliver_after=1.0).result(LIMIT)
    assert asyncio.run(tracks.apush(Track(3), deliver_after=1.0))
    helio.settle()
    assert seen == []
    helio.clock.advance(1)
    helio.settle()
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    "said",
    [
        {"deliver_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - without a zone, on purpose
        {"deliver_at": 5.0},
        {"deliver_at": datetime(9999, 1, 1, tzinfo=UTC)},
        {"deliver_after": -1},
        {"deliver_after": float("nan")},
        {"deliver_after": True},
        {"deliver_after": 2e9},
        {"deliver_at": datetime(2030, 1, 1, tzinfo=UTC), "deliver_after": 1.0},
    ],
)
def test_an_instant_that_makes_no_sense_is_refused(helio: Rig, said: dict[str, Any]) -> None:
    tracks = helio.station.channel("air.tracks", Track)
    with pytest.raises(InvalidEvent, match="deliver_"):
        tracks.push(Track(1), **said)
    assert tracks.stats().pushed == 0


def test_what_does_not_fit_is_refused_at_once(helio: Rig, tracks: hg.Channel[Any]) -> None:
    with pytest.raises(WrongEventType):
        tracks.push(Weather(), deliver_after=1.0)
    with pytest.raises(InvalidEvent):
        tracks.push(Track("one"), deliver_after=1.0)  # type: ignore[arg-type]  # on purpose
    assert tracks.stats().delayed == 0


def test_where_push_waits_for_acknowledgements_nothing_is_put_off(helio: Rig) -> None:
    for durability in ("volatile", "persistent"):
        qos = hg.QoS(durability=durability, ack="delivered")
        channel = helio.station.channel(f"air.{durability}", Track, qos=qos)
        with pytest.raises(NotPossible, match="deliver_at"):
            channel.push(Track(1), deliver_after=1.0)


def test_there_is_one_limit_for_all_timers(helio: Rig, tracks: hg.Channel[Track]) -> None:
    helio.station.timers._limit = 2
    tracks.push(Track(1), deliver_after=1.0)
    tracks.push(Track(2), deliver_after=1.0)
    with pytest.raises(TooManyTimers):
        tracks.push(Track(3), deliver_after=1.0)
    assert tracks.stats().delayed == 2


def test_closing_a_channel_in_memory_says_what_was_given_up(helio: Rig) -> None:
    tracks = helio.station.channel("air.tracks", Track)
    tracks.push(Track(1), deliver_after=10.0)
    tracks.push(Track(2), deliver_after=10.0)
    assert tracks.close() == {"delayed": 2}
    assert len(helio.station.timers) == 0
    with pytest.raises(Closed):
        tracks.push(Track(3), deliver_after=1.0)


def test_history_holds_an_event_from_its_instant_on(helio: Rig) -> None:
    tracks = persistent(helio)
    tracks.push(Track(1), deliver_after=1.0)
    tracks.push(Track(2))
    assert history(tracks) == [2]
    helio.clock.advance(1)
    helio.settle()
    delivery = list(tracks.consumer(start="earliest", until="now").deliveries())
    assert [d.event.id for d in delivery] == [2, 1]
    assert [d.header.offset for d in delivery] == [0, 1]
    assert delivery[1].header.append_ts == helio.clock.time_ns()


def test_the_id_of_a_durable_push_is_the_one_that_consumers_see(helio: Rig) -> None:
    tracks = persistent(helio)
    header = tracks.push_nowait(Track(1), deliver_after=1.0).header
    helio.clock.advance(1)
    helio.settle()
    (delivery,) = tracks.consumer(start="earliest", until="now").deliveries()
    assert delivery.header.id == header.id


@pytest.mark.parametrize("ending", ["close", "kill", "crash"])
def test_what_waits_survives_a_restart_and_what_was_due_comes_once(ending: str) -> None:
    rig = Rig()
    tracks = persistent(rig)
    tracks.push(Track(0), deliver_after=1.0)
    rig.clock.advance(1)
    rig.settle()
    tracks.push(Track(1), deliver_after=10.0)
    tracks.push(Track(2), deliver_after=100.0)
    tracks.push(Track(3), deliver_after=5.0)
    if ending == "close":
        assert rig.station.close() == {}
        disk = rig.disk
    else:
        disk = rig.disk.crash() if ending == "crash" else rig.disk.kill()
    for lives in range(2):  # the second is the same: what was delivered stays delivered
        after = Rig(disk=disk, seed=lives + 1)
        after.clock.advance(20)  # the machine was off for a while
        tracks = persistent(after)
        after.settle()
        assert history(tracks) == [0, 3, 1]
        assert tracks.stats().delayed == 1
        disk = after.disk.crash()
    last = Rig(disk=disk, seed=3)
    tracks = persistent(last)
    last.clock.advance(200)
    last.settle()
    assert history(tracks) == [0, 3, 1, 2]
    last.station.close()


def test_an_event_that_was_delivered_just_before_a_crash_is_not_delivered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    tracks = persistent(rig)
    monkeypatch.setattr("heliograph.channel.publish.delayed.DurableDelayed._forget", lambda *_: None)
    tracks.push(Track(1), deliver_after=1.0)
    rig.clock.advance(1)
    rig.settle()
    assert history(tracks) == [1]
    monkeypatch.undo()
    after = Rig(disk=rig.disk.crash(), seed=1)
    after.clock.advance(10)
    tracks = persistent(after)
    after.settle()
    assert history(tracks) == [1]
    assert tracks.stats().delayed == 0


def test_a_repeated_push_waits_once_and_comes_once(helio: Rig) -> None:
    tracks = persistent(helio)
    for _ in range(3):
        assert tracks.push(Track(1), id="order-1", deliver_after=1.0)
    assert tracks.stats().delayed == 1
    helio.clock.advance(1)
    helio.settle()
    tracks.push(Track(1), id="order-1", deliver_after=1.0)
    tracks.push(Track(1), id="order-1")
    helio.clock.advance(1)
    helio.settle()
    assert history(tracks) == [1]


def test_what_could_not_be_kept_raises_and_is_never_delivered(
    helio: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracks = persistent(helio)
    tracks.push(Track(1), deliver_after=1.0)
    assert isinstance(tracks.delayed, DurableDelayed)
    later: Any = tracks.delayed._later

    def refused(*_: object) -> None:
        raise DiskFull("sync", "a head", "no space left")

    with monkeypatch.context() as full:
        full.setattr(later._writer._partition, "_synced_head", refused)
        with pytest.raises(AppendFailed):
            tracks.push(Track(2), deliver_after=1.0)
    with monkeypatch.context() as full:
        full.setattr(later, "append_once", refused)
        with pytest.raises(DiskFull):
            tracks.push(Track(3), deliver_after=1.0)
    helio.clock.advance(1)
    helio.settle()
    assert history(tracks) == [1]
    assert tracks.stats().delayed == 0


def test_what_cannot_be_appended_when_it_is_due_is_tried_again(
    helio: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracks = persistent(helio)
    tracks.push(Track(1), deliver_after=1.0)

    def refused(*_: object) -> None:
        raise DiskFull("sync", "a head", "no space left")

    with monkeypatch.context() as full:
        full.setattr(tracks.store, "append_due", refused)
        helio.clock.advance(1)
        helio.settle()
    assert history(tracks) == []
    assert tracks.stats().delayed == 1
    helio.clock.advance(1)
    helio.settle()
    assert history(tracks) == [1]
    assert tracks.stats().delayed == 0


def test_a_replaced_holder_of_a_name_cannot_put_off_and_what_it_had_put_off_still_comes(helio: Rig) -> None:
    tracks = persistent(helio)
    radar = tracks.supplier("radar-1")
    radar.push(Track(1))
    radar.push(Track(2), deliver_after=60.0)
    assert tracks.store is not None
    helio.clock.advance(31)
    tracks.store.supplier("radar-1", "somebody else")
    with pytest.raises(SupplierFenced):
        radar.push(Track(3), deliver_after=1.0)
    helio.clock.advance(60)
    helio.settle()
    assert history(tracks) == [1, 2]


def test_put_off_events_are_not_counted_as_the_last_of_a_named_supplier(helio: Rig) -> None:
    tracks = persistent(helio)
    with tracks.supplier("radar-1") as radar:
        radar.push(Track(1))
        for i in range(5):
            radar.push(Track(i), deliver_after=1.0)
    helio.clock.advance(1)
    helio.settle()
    with tracks.supplier("radar-1") as radar:
        assert radar.last_sequence == 1


def test_events_of_a_type_that_is_not_carried_yet_wait_for_it() -> None:
    rig = Rig()
    both = rig.station.channel("air", Track, Weather, qos=PERSISTENT)
    both.push(Weather(3.0), deliver_after=1.0)
    after = Rig(disk=rig.disk.crash(), seed=1)
    after.clock.advance(5)
    only = after.station.channel("air", Track, qos=PERSISTENT)
    after.settle()
    assert list(only.consumer(start="earliest", until="now")) == []
    both = after.station.channel("air", Weather)
    after.clock.advance(0)
    after.settle()
    assert list(both.consumer(start="earliest", until="now")) == [Weather(3.0)]


def class_of(field: Any) -> type[Any]:
    class Plan(hg.Event, name="air.plan"):
        x: field

    return Plan


def test_what_waits_and_cannot_be_read_is_reported_and_waits_on() -> None:
    old, new = class_of(int), class_of(list[str])
    rig = Rig()
    plans = rig.station.channel("air", old, Track, qos=PERSISTENT)
    plans.push(old(1), deliver_after=1.0)
    plans.push(Track(2), deliver_after=2.0)
    disk = rig.disk.crash()

    told: list[BaseException] = []
    after = Rig(disk=disk, seed=1, on_error=lambda *what: told.append(what[2]))
    changed = after.station.channel("air", new, Track, qos=PERSISTENT)
    assert [type(error) for error in told] == [IncompatibleFormats]
    after.clock.advance(5)
    after.settle()
    assert list(changed.consumer(start="earliest", until="now")) == [Track(2)]

    last = Rig(disk=after.disk.crash(), seed=2)
    again = last.station.channel("air", old, Track, qos=PERSISTENT)
    last.clock.advance(5)
    last.settle()
    assert list(again.consumer(start="earliest", until="now")) == [Track(2), old(1)]


def test_what_was_accepted_in_an_earlier_life_is_owed_whatever_the_limit() -> None:
    rig = Rig()
    tracks = persistent(rig)
    for i in range(5):
        tracks.push(Track(i), deliver_after=10.0)
    after = Rig(disk=rig.disk.crash(), seed=1)
    after.station.timers._limit = 2
    tracks = persistent(after)
    assert tracks.stats().delayed == 5
    with pytest.raises(TooManyTimers):
        tracks.push(Track(9), deliver_after=1.0)
    after.clock.advance(20)
    after.settle()
    assert sorted(history(tracks)) == [0, 1, 2, 3, 4]


def test_a_channel_whose_delayed_events_cannot_be_looked_for_can_be_opened_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    persistent(rig).push(Track(1), deliver_after=1.0)
    after = Rig(disk=rig.disk.crash(), seed=1)

    def fails(_: object) -> None:
        raise DiskFull("open", "a head", "no space left")

    with monkeypatch.context() as full:
        full.setattr(DurableDelayed, "restore", fails)
        with pytest.raises(DiskFull):
            persistent(after)
    assert persistent(after).stats().delayed == 1


def test_a_push_that_was_refused_and_repeated_is_counted_once(
    helio: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracks = persistent(helio)
    tracks.push(Track(0), deliver_after=0)
    helio.clock.advance(0)
    helio.settle()
    later: Any = tracks.delayed._later  # type: ignore[attr-defined] # it is durable

    def busy(*_: object) -> None:
        raise DiskFull("sync", "a head", "no space left")

    with monkeypatch.context() as full:
        full.setattr(later, "append_once", busy)
        with pytest.raises(DiskFull):
            tracks.push(Track(1), id="one", deliver_after=1.0)
    tracks.push(Track(1), id="one", deliver_after=3.0)
    seen = []
    for _ in range(4):
        seen.append(tracks.stats().delayed)
        helio.clock.advance(1)
        helio.settle()
    assert seen == [1, 1, 1, 0]
    assert history(tracks) == [0, 1]


def test_a_push_that_comes_while_the_channel_closes_opens_nothing(
    helio: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracks = persistent(helio)
    close = tracks.delayed.close

    def and_push(timeout: float) -> int:
        given_up = close(timeout)
        with pytest.raises(Closed):
            tracks.push(Track(1), deliver_after=1.0)
        return given_up

    monkeypatch.setattr(tracks.delayed, "close", and_push)
    tracks.close()
    assert tracks.delayed._later is None  # type: ignore[attr-defined] # it is durable


def test_a_channel_without_a_history_refuses_to_keep_an_event_across_restarts(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    with pytest.raises(hg.NotPossible, match="keeps no history"):
        tracks.delayed.keep((Track(1), None, 0), Later("one", 0, 0, 0), "synced", None)  # type: ignore[arg-type] # as a question from another station


@pytest.mark.parametrize("durability", ["volatile", "persistent"])
def test_what_is_cancelled_never_comes(helio: Rig, durability: Any) -> None:
    tracks = helio.station.channel("air.tracks", Track, qos=hg.QoS(durability=durability))
    with tracks.consumer() as consumer:
        first, second = (tracks.push_nowait(Track(n), deliver_after=60.0) for n in (1, 2))
        assert tracks.cancel(first)
        assert not tracks.cancel(first), "it is already"
        assert tracks.stats().delayed == 1
        helio.clock.advance(61.0)
        assert consumer.pull(LIMIT) == Track(2)
        assert not tracks.cancel(second), "too late"
        assert consumer.pull(0) is None
        assert not tracks.cancel(tracks.push_nowait(Track(3))), "it was not put off"
    assert tracks.stats().balanced


def test_what_is_cancelled_does_not_come_after_a_crash_and_not_when_its_push_is_repeated() -> None:
    helio = Rig()
    tracks = persistent(helio)
    tracks.push(Track(1), deliver_after=60.0, id="order-1")
    receipt = tracks.push_nowait(Track(2), deliver_after=60.0)
    assert receipt.result(LIMIT)
    assert tracks.cancel("order-1")
    assert tracks.cancel(receipt.header.id)
    tracks.push(Track(1), deliver_after=60.0, id="order-1")
    assert tracks.stats().delayed == 0
    later = Rig(disk=helio.disk.crash(), seed=1)
    tracks = persistent(later)
    tracks.push(Track(3), deliver_after=1.0)
    later.clock.advance(100.0)
    with tracks.consumer() as consumer:
        assert consumer.pull(LIMIT) == Track(3)
        assert consumer.pull(0) is None
    assert not tracks.cancel("order-1")
    later.station.close()


def test_a_cancellation_that_raised_did_not_happen(helio: Rig) -> None:
    tracks = persistent(helio)
    tracks.push(Track(1), deliver_after=60.0, id="order-1")
    helio.disk.medium.capacity = 0
    with pytest.raises(hg.HeliographError):
        tracks.cancel("order-1")
    helio.disk.medium.capacity = None
    helio.clock.advance(61.0)
    with tracks.consumer() as consumer:
        assert consumer.pull(LIMIT) == Track(1)


@pytest.mark.parametrize("seed", range(3))
def test_of_a_cancellation_and_its_delivery_one_comes_first(helio: Rig, seed: int) -> None:
    """However they race, what cancel says is what happens."""
    tracks = persistent(helio)
    for number in range(20):
        tracks.push(Track(number), deliver_after=1.0, id=str(number))
    said: dict[int, bool] = {}

    def cancel_all() -> None:
        for number in sorted(range(20), key=lambda n: hash((seed, n))):
            said[number] = tracks.cancel(str(number))

    thread = threading.Thread(target=cancel_all)
    thread.start()
    helio.clock.advance(1.0)
    thread.join(LIMIT)
    helio.settle()
    came = {track.id for track in tracks.consumer(start="earliest", until="now")}
    assert came == {number for number, cancelled in said.items() if not cancelled}


def test_what_cannot_be_cancelled_is_answered_with_what_can(helio: Rig) -> None:
    tracks = helio.station.channel("air.volatile", Track)
    with pytest.raises(hg.NotPossible, match="receipt"):
        tracks.cancel("order-1")
    with pytest.raises(hg.NotPossible, match="receipt"):
        tracks.cancel(7)  # type: ignore[arg-type]  # on purpose

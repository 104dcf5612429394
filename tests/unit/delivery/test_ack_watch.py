"""Where `push` waits for consumers: acknowledged by all, sent again to those who lack it, or given up."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

import heliograph as hg
from heliograph.channel.publish.acks import Receipt
from heliograph.channel.publish.remote_supplier import RemotePersistentSupplier
from heliograph.delivery import ack_watch as watch
from heliograph.delivery.ack_watch import Watching
from heliograph.errors import DeliveryTimeout, GivenUp, QueueFull
from heliograph.model.event import EventId, Header
from heliograph.runtime.ports import Ports, ThreadTasks
from heliograph.sim import SimRandom
from heliograph.testing import JumpingClock, rig
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.testing import Rig

LIMIT = 20.0


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


@pytest.fixture(params=["volatile", "persistent"])
def durability(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def errors() -> list[BaseException]:
    return []


@pytest.fixture
def station(tmp_path: Path, errors: list[BaseException]) -> Iterator[hg.Station]:
    with hg.Station(tmp_path / "data", on_error=lambda _, __, error: errors.append(error)) as opened:
        yield opened


def opened(station: hg.Station, durability: Any, **qos: Any) -> hg.Channel[Track]:
    qos = {"ack_timeout": 30.0, "ack": "delivered", "durability": durability, **qos}
    return station.channel("air.tracks", Track, qos=hg.QoS(**qos))


def test_push_is_true_when_everybody_has_acknowledged(station: hg.Station, durability: Any) -> None:
    tracks = opened(station, durability)
    seen: list[int] = []
    tracks.subscribe(lambda track: seen.append(track.id))
    assert tracks.push(Track(1))
    assert seen == [1]
    with tracks.consumer(ack="manual", start="now") as consumer:
        receipt = tracks.push_nowait(Track(2))
        delivery = next(consumer.deliveries(timeout=LIMIT))
        with pytest.raises(DeliveryTimeout, match="they may yet"):
            receipt.result(timeout=0.01)
        delivery.ack()
        assert receipt.result(timeout=LIMIT)
    assert tracks.push_many([Track(3), Track(4)])
    assert seen == [1, 2, 3, 4]
    assert tracks.stats().balanced


def test_with_nobody_there_everybody_has_it(station: hg.Station, durability: Any) -> None:
    assert opened(station, durability).push(Track(1))


def test_a_callback_that_raised_gets_it_again_and_nobody_else_does(
    station: hg.Station, durability: Any
) -> None:
    tracks = opened(station, durability, ack_timeout=0.02, resends=1000)
    good: list[int] = []
    tries: list[bool] = []

    def shaky(_: Track, header: hg.Header) -> None:
        tries.append(header.redelivered)
        if len(tries) < 3:
            raise ValueError("not yet")

    tracks.subscribe(lambda track: good.append(track.id))
    tracks.subscribe(shaky)
    assert tracks.push(Track(1))
    assert good == [1]
    assert tries == [False, True, True]
    assert tracks.stats().balanced


def test_a_slow_callback_is_not_sent_what_it_has_in_hand(station: hg.Station, durability: Any) -> None:
    tracks = opened(station, durability, ack_timeout=0.01, resends=1000)
    calls: list[int] = []
    came, go = threading.Event(), threading.Event()

    def slow(track: Track) -> None:
        calls.append(track.id)
        came.set()
        go.wait(LIMIT)

    tracks.subscribe(slow)
    receipt = tracks.push_nowait(Track(1))
    assert came.wait(LIMIT)
    with pytest.raises(DeliveryTimeout):
        receipt.result(timeout=0.1)
    go.set()
    assert receipt.result(timeout=LIMIT)
    assert calls == [1]


def test_after_so_many_resends_push_is_false_and_the_event_is_with_the_dead(
    helio: Rig, durability: Any
) -> None:
    tracks = opened(helio.station, durability, resends=2, dead_letter="air.dead")
    dead = helio.station.channel("air.dead", Track)
    buried: list[Any] = []
    dead.subscribe(lambda track, header: buried.append((track.id, header.headers["dead.consumer"])))
    calls: list[int] = []

    def broken(track: Track) -> None:
        calls.append(track.id)
        raise ValueError("never")

    tracks.subscribe(broken)
    tracks.subscribe(lambda _: None, name="good")
    receipt, monitor = tracks.push_nowait(Track(7)), tracks.monitor
    assert isinstance(monitor, Watching)

    def has_raised(times: int) -> bool:
        return len(calls) == times and bool(monitor._refused)

    for sends in (1, 2, 3):
        # What a callback has in hand is not sent again, so it must have raised before the timer rings.
        assert wait_until(partial(has_raised, sends))
        assert wait_until(lambda: monitor.array()[0].state == {"broken": False, "good": True})
        helio.clock.advance(30.0)
        monitor.tick()
    assert receipt.result(LIMIT) is False
    dead.settle(LIMIT)
    assert buried == [(7, "broken")]
    assert calls == [7, 7, 7]
    assert monitor.stats().given_up == 1
    assert monitor.array() == ()
    helio.errors.clear()


def test_without_a_dead_letter_channel_giving_up_is_reported(
    station: hg.Station, durability: Any, errors: list[BaseException]
) -> None:
    tracks = opened(station, durability, ack_timeout=0.01, resends=0)
    consumer = tracks.consumer(name="idle")
    assert tracks.push(Track(7)) is False
    (given_up,) = errors
    assert isinstance(given_up, GivenUp)
    assert (given_up.name, given_up.attempts) == ("idle", 1)
    assert consumer.pull(LIMIT) == Track(7)


def test_nobody_waits_for_a_consumer_that_has_left_and_push_is_false(
    station: hg.Station, durability: Any
) -> None:
    tracks = opened(station, durability)
    consumer = tracks.consumer(ack="manual")
    receipt = tracks.push_nowait(Track(1))
    assert next(consumer.deliveries(timeout=LIMIT)).event == Track(1)
    consumer.close()
    assert receipt.result(timeout=LIMIT) is False
    assert tracks.push(Track(2)), "there is nobody any more whom it is for"


def test_the_array_shows_who_lacks_what(station: hg.Station, durability: Any) -> None:
    tracks = opened(station, durability)
    with tracks.consumer(name="a", ack="manual") as a, tracks.consumer(name="b", ack="manual"):
        receipt = tracks.push_nowait(Track(1))
        next(a.deliveries(timeout=LIMIT)).ack()
        assert tracks.monitor is not None
        (row,) = tracks.monitor.array()
        assert (row.event, row.supplier) == (receipt.header.id, receipt.header.supplier)
        assert row.state == {"a": True, "b": False}


def test_a_row_has_all_that_is_known_of_an_event_that_is_under_way(helio: Rig) -> None:
    tracks = helio.station.channel("air.tracks", Track, qos=hg.QoS(ack="delivered", ack_timeout=30.0))
    radar = tracks.supplier("radar")
    with tracks.consumer(name="a", ack="manual") as consumer:
        first = radar.push_nowait(Track(1))
        helio.clock.advance(2.5)
        second = radar.push_nowait(Track(2, 300.0), priority=5)
        assert tracks.monitor is not None
        assert tracks.monitor.array() == (
            ("radar", first.header.id, Track(1), {"a": False}, 3, 2.5, 0),
            ("radar", second.header.id, Track(2, 300.0), {"a": False}, 5, 0.0, 0),
        )
        for delivery in (next(consumer.deliveries(timeout=LIMIT)) for _ in range(2)):
            delivery.ack()
        assert tracks.monitor.array() == ()
        assert first.result(LIMIT)
        assert second.result(LIMIT)


def test_a_group_acknowledges_as_one(station: hg.Station, durability: Any) -> None:
    tracks = opened(station, durability)
    with tracks.consumer(group="g", ack="manual") as one, tracks.consumer(group="g") as other:
        receipt = tracks.push_nowait(Track(1))
        members = (one, other) * 200  # whichever of them is handed the event, once it is there
        next(delivery for member in members for delivery in member.deliveries(timeout=0.05)).ack()
        assert receipt.result(timeout=LIMIT)


def test_push_waits_for_the_function_of_a_group_that_has_it(station: hg.Station, durability: Any) -> None:
    tracks = opened(station, durability)
    seen: list[int] = []
    for _ in range(2):
        tracks.subscribe(lambda track: seen.append(track.id), group="g")
    assert tracks.push(Track(1))
    assert seen == [1]


def test_a_callback_cannot_wait_for_itself(durability: Any, errors: list[BaseException]) -> None:
    with rig(on_error=lambda _, __, error: errors.append(error)) as helio:
        tracks = opened(helio.station, durability, resends=0)
        tracks.subscribe(lambda _: tracks.push(Track(2)), where="id = 1")
        receipt = tracks.push_nowait(Track(1))
        assert wait_until(lambda: errors)
        helio.clock.advance(30.0)
        assert isinstance(tracks.monitor, Watching)
        tracks.monitor.tick()
        assert receipt.result(LIMIT) is False
    assert [type(error) for error in errors] == [hg.WouldDeadlock, GivenUp]


def test_a_durable_function_cannot_wait_for_itself(errors: list[BaseException]) -> None:
    with rig(on_error=lambda _, __, error: errors.append(error)) as helio:
        tracks = opened(helio.station, "persistent", resends=0)
        tracks.subscribe(lambda _: tracks.push(Track(2)), where="id = 1", name="loop")
        tracks.push_nowait(Track(1))
        assert wait_until(lambda: errors)
    assert isinstance(errors[0], hg.WouldDeadlock)


def test_what_cannot_acknowledge_is_refused(station: hg.Station, durability: Any) -> None:
    tracks = opened(station, durability)
    with pytest.raises(hg.NotPossible, match="queued"):
        tracks.subscribe(print, inline=True)
    with pytest.raises(hg.NotPossible, match=r"consumer\(\)"):
        tracks.subscribe(print, group="g", ack="manual")


def test_ten_suppliers_lose_no_acknowledgement(station: hg.Station) -> None:
    tracks = opened(station, "volatile")
    seen: Counter[tuple[str, int]] = Counter()
    lock = threading.Lock()

    def count(name: str, track: Track) -> None:
        with lock:
            seen[name, track.id] += 1

    for name in "abc":
        tracks.subscribe(lambda track, name=name: count(name, track), name=name)
    outcomes: list[bool] = []

    def supply(number: int) -> None:
        with tracks.supplier(f"s{number}") as supplier:
            outcomes.extend([supplier.push(Track(number * 1000 + n)) for n in range(50)])

    threads = [threading.Thread(target=supply, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert outcomes == [True] * 500
    assert set(seen.values()) == {1}
    assert len(seen) == 1500
    assert tracks.monitor is not None
    assert tracks.monitor.array() == ()


# The protocol, step by step


def test_the_trace_of_an_event_is_the_six_steps() -> None:
    clock = JumpingClock()
    trace: list[tuple[str, str]] = []
    again: list[tuple[str, ...]] = []
    watching = Watching(
        Ports(clock, ThreadTasks(), SimRandom("0"), None),
        "air.tracks",
        timeout=60.0,
        resends=1,
        resend=lambda item, receivers: again.append((str(item[1].redelivered), *receivers)),
        add_dead_letter=lambda *_: None,
        trace=lambda step, _, receiver: trace.append((step, receiver)),
    )
    header = Header("air.tracks", "air.track", "s", 1, 1, 0, bytes(12))
    event = EventId("s", 1, 1)
    ticket = watching.expect(event)
    watching.passing((Track(1), header, 0), ["a", "b"])
    watching.watch("a")(header, "delivered")
    watching.watch("b")(header, "failed")
    clock.advance(60.0)
    watching.tick()
    watching.watch("b")(header, "delivered", sends=2)
    assert trace == [
        ("notify", ""),
        ("timer", ""),
        ("pass", "a"),
        ("pass", "b"),
        ("ack", "a"),
        ("ack upward", "a"),
        ("resend", "b"),
        ("timer", ""),
        ("ack", "b"),
        ("ack upward", "b"),
        ("delete", ""),
    ]
    assert again == [("True", "b")]
    assert ticket.wait(0) is True
    watching.close()


def test_a_channel_records_the_six_steps_until_its_trace_is_closed(
    station: hg.Station, durability: Any
) -> None:
    tracks = opened(station, durability, ack_timeout=0.3)
    failures = [OSError("not yet")]

    def take(_: Track) -> None:
        if failures:
            raise failures.pop()

    both = {tracks.subscribe(lambda _: None).name, (failed := tracks.subscribe(take).name)}
    with tracks.trace_acks() as trace:
        assert tracks.push(Track(1))
        events = {step.event for step in trace.steps()}
        assert len(events) == 1
        steps = trace.steps(events.pop())
        assert [step.step for step in steps][:4] == ["notify", "timer", "pass", "pass"]
        for name in ("pass", "ack", "ack upward"):
            assert {step.receiver for step in steps if step.step == name} == both
        assert [step.receiver for step in steps if step.step == "resend"] == [failed]
        assert steps[-1].step == "delete"
    assert tracks.push(Track(2))
    assert trace.steps() == steps


def test_a_channel_whose_pushes_wait_for_nobody_has_no_trace(station: hg.Station) -> None:
    with pytest.raises(hg.NotPossible, match=r"QoS\(ack='delivered'\)"):
        station.channel("plain", Track).trace_acks()


class Weather(hg.Event, name="weather"):
    """Of a type that no consumer wants."""


class OneTypeFeed:
    """Passes on what it knows, as a feed does."""

    partitions: ClassVar = {"here": SimpleNamespace(kept_here=False)}

    def __init__(self, watching: Watching) -> None:
        self._watching = watching

    def read_as_pushed(self, _partition: str, _offset: int) -> None:
        """Nobody here wants another version of a class."""

    def durable(self, _partition: str, batches: list[OutgoingBatch], _next_offset: int) -> None:
        for item in chain.from_iterable(batches):
            if isinstance(item[0], Track):
                self._watching.passing(item, ["consumer"])


def test_events_that_a_keeper_sent_and_nobody_is_passed_are_not_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "MAX_WATCHED", 4)
    ports = Ports(JumpingClock(), ThreadTasks(), SimRandom("watch"))
    watching = Watching(
        ports, "air.tracks", timeout=30.0, resends=0, resend=lambda *_: None, add_dead_letter=lambda *_: None
    )
    intake = RemotePersistentSupplier(cast("Any", OneTypeFeed(watching)), watching, lambda _: None)

    def arrived(at: int, event: Any, partition: str) -> Any:
        return event, Header("air.tracks", "t", "s", 1, at, 0, b"x" * 12, 3, (), 0, 0, partition, at), 0

    for at in range(1, 20):
        nobodys = [arrived(2 * at, Track(at), "elsewhere"), arrived(2 * at + 1, Weather(), "here")]
        assert intake.take_in(nobodys) == 2
        for item in nobodys:
            watching.passing(item, ["consumer"])
    assert watching.array() == (), "what nobody expects is not watched"
    for at in range(100, 104):
        intake.take_in([arrived(at, Track(at), "here")])
    assert len(watching.array()) == 4
    with pytest.raises(QueueFull):
        intake.take_in([arrived(200, Track(200), "here")])
    watching.close()


def test_the_time_of_a_push_is_one_for_the_disk_and_for_all_acknowledgements(
    helio: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracks = opened(helio.station, "persistent")
    store = tracks.store
    assert store is not None
    append, waits = store.append, list[float | None]()

    def append_slowly(*asked: Any) -> Any:
        helio.clock.advance(0.5)
        return append(*asked)

    def acknowledged_late(_: object, __: object, timeout: float | None) -> bool:
        waits.append(timeout)
        helio.clock.advance(0.25)
        return True

    monkeypatch.setattr(store, "append", append_slowly)
    monkeypatch.setattr("heliograph.channel.publish.acks.outcome", acknowledged_late)
    supplier = tracks.supplier()
    assert supplier.push(Track(1), timeout=2.0)
    assert supplier.push_many([Track(2), Track(3), Track(4)], timeout=2.0)
    assert waits == [1.5, 1.5, 1.25, 1.0]


def test_a_batch_that_is_not_acknowledged_in_time_says_so(helio: Rig) -> None:
    tracks = opened(helio.station, "volatile")
    with tracks.consumer(), pytest.raises(hg.DeliveryTimeout):
        tracks.supplier().push_many([Track(1), Track(2)], timeout=0.0)


def test_a_receipt_waits_for_the_disk_and_for_acknowledgements_in_one_time() -> None:
    clock, waits = JumpingClock(), list[float | None]()

    class Stored:
        def result(self, timeout: float | None) -> None:
            waits.append(timeout)
            clock.advance(0.5)

    class Acknowledged:
        def wait(self, timeout: float | None) -> bool:
            waits.append(timeout)
            return True

    header = Header("c", "t", "s", 1, 1, 0, b"")
    receipt = Receipt(lambda: header, cast("Any", Stored()), cast("Any", Acknowledged()), clock)
    assert receipt.result(2.0)
    assert receipt.result()
    assert waits == [2.0, 1.5, None, None]

"""Functions in groups that acknowledge: an event is acknowledged when the call returns."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.receive import acking_subscription as calling
from heliograph.channel.receive.acking_subscription import AckingSubscription
from heliograph.channel.receive.consumer import Consumer
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 20.0
PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


@pytest.fixture
def errors() -> list[tuple[str, BaseException]]:
    return []


@pytest.fixture
def station(tmp_path: Path, errors: list[tuple[str, BaseException]]) -> Iterator[hg.Station]:
    with hg.Station(
        tmp_path / "data", on_error=lambda name, _, error: errors.append((name, error))
    ) as station:
        yield station


@pytest.fixture
def tracks(station: hg.Station) -> hg.Channel[Track]:
    return station.channel("air.tracks", Track, qos=PERSISTENT)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "FIRST_DELAY", 0.001)


def test_each_event_is_given_to_one_function_and_keys_stick(tracks: hg.Channel[Track]) -> None:
    calls: list[tuple[int, int]] = []

    def first(track: Track) -> None:
        calls.append((1, track.id))

    @tracks.subscribe(group="workers", start="earliest")
    def second(track: Track, header: hg.Header) -> None:
        assert header.key == (track.id,)
        calls.append((2, track.id))

    tracks.subscribe(first, group="workers", start="earliest")
    tracks.push_many([Track(n % 20) for n in range(200)])
    assert wait_until(lambda: len(calls) == 200)
    owners = Counter(key for _, key in set(calls))
    assert set(owners.values()) == {1}
    assert {member for member, _ in calls} == {1, 2}


def test_a_group_of_functions_and_consumers_goes_on_where_it_was(tmp_path: Path) -> None:
    calls: list[int] = []
    for start in (0, 10):
        with hg.Station(tmp_path / "data") as station:
            tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
            tracks.push_many([Track(start + n) for n in range(10)])
            tracks.subscribe(lambda track: calls.append(track.id), group="workers", start="earliest")
            assert wait_until(lambda: len(calls) == start + 10)  # noqa: B023 - within this round
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        with tracks.consumer(group="workers", until="now") as consumer:
            assert list(consumer) == []
    assert calls == list(range(20))


def test_what_a_function_raised_for_comes_again_and_is_acknowledged_when_it_returns(
    tracks: hg.Channel[Track], errors: list[tuple[str, BaseException]]
) -> None:
    tries: list[tuple[int, bool]] = []

    def shaky(track: Track, header: hg.Header) -> None:
        tries.append((track.id, header.redelivered))
        if len(tries) < 3:
            raise ValueError("not yet")

    with tracks.subscribe(shaky, group="workers") as subscription:
        tracks.push(Track(7))
        assert wait_until(lambda: len(tries) == 3)
        assert wait_until(lambda: subscription.counts().delivered == 1)
        assert subscription.counts().failed == 2
    assert tries == [(7, False), (7, True), (7, True)]
    assert [(name, str(error)) for name, error in errors] == [("shaky", "not yet")] * 2
    assert wait_until(lambda: not tracks.stats().consumers)


def test_after_so_many_deliveries_it_is_with_the_dead(station: hg.Station, tracks: hg.Channel[Track]) -> None:
    def broken(_: Track) -> None:
        raise ValueError("never")

    tracks.subscribe(broken, group="workers", max_deliveries=3, dead_letter="air.dead")
    tracks.push(Track(7))
    with station.channel("air.dead", Track, qos=PERSISTENT).consumer(start="earliest") as grave:
        dead = next(grave.deliveries(timeout=LIMIT))
    assert (dead.header.headers or {})["dead.attempts"] == "3"


def test_by_key_the_next_waits_until_the_one_before_is_done(tracks: hg.Channel[Track]) -> None:
    done: list[float] = []

    def shaky(track: Track, header: hg.Header) -> None:
        if not header.redelivered:
            raise ValueError("once more")
        done.append(track.speed)

    for _ in range(3):
        tracks.subscribe(shaky, group="workers", order="key")
    tracks.push_many([Track(7, float(n)) for n in range(6)])
    assert wait_until(lambda: len(done) == 6)
    assert done == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_an_async_function_is_awaited(tracks: hg.Channel[Track]) -> None:
    async def run() -> list[int]:
        seen: list[int] = []
        done = asyncio.Event()

        async def see(track: Track) -> None:
            await asyncio.sleep(0)
            seen.append(track.id)
            if len(seen) == 5:
                done.set()

        subscription = tracks.subscribe(see, group="workers", start="earliest")
        tracks.push_many([Track(n) for n in range(5)])
        await asyncio.wait_for(done.wait(), LIMIT)
        subscription.close()
        return seen

    assert asyncio.run(run()) == [0, 1, 2, 3, 4]


def test_closing_waits_for_the_call_that_is_running_and_it_counts(tracks: hg.Channel[Track]) -> None:
    came, go = threading.Event(), threading.Event()

    def slow(_: Track) -> None:
        came.set()
        assert go.wait(LIMIT)

    subscription = tracks.subscribe(slow, group="workers")
    tracks.push(Track(1))
    assert came.wait(LIMIT)
    closing = threading.Thread(target=subscription.close)
    closing.start()
    go.set()
    closing.join(LIMIT)
    assert not closing.is_alive()
    with tracks.consumer(group="workers", until="now") as consumer:
        assert list(consumer) == []


def test_closing_from_inside_of_the_call_is_its_last(tracks: hg.Channel[Track]) -> None:
    calls: list[int] = []

    def once(track: Track) -> None:
        calls.append(track.id)
        tracks.unsubscribe(once)

    tracks.subscribe(once, group="workers", start="earliest")
    tracks.push_many([Track(1), Track(2)])
    assert wait_until(lambda: not tracks.stats().consumers)
    assert len(calls) == 1
    with tracks.consumer(group="workers", until="now") as consumer:
        assert [track.id for track in consumer] == [2 if calls == [1] else 1]


def test_a_call_that_never_returns_does_not_keep_a_channel_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "IN_HAND_LIMIT", 0.1)
    came, go = threading.Event(), threading.Event()

    def stuck(_: Track) -> None:
        came.set()
        go.wait(LIMIT)

    station = hg.Station(tmp_path / "data")
    tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
    subscription = tracks.subscribe(stuck, group="workers")
    tracks.push(Track(1))
    assert came.wait(LIMIT)
    subscription.close()
    with tracks.consumer(group="workers", until="now") as consumer:
        assert [(d.event.id, d.redelivered) for d in consumer.deliveries()] == [(1, True)]
    station.close(timeout=0.5)
    go.set()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"group": "workers", "ack": "manual"}, "by returning"),
        ({"max_deliveries": 3}, "give group="),
        ({"group": "workers", "inline": True}, "persistent"),
        ({"group": "workers", "order": "size"}, "order="),
    ],
)
def test_what_does_not_go_together_is_refused(
    tracks: hg.Channel[Track], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(hg.NotPossible, match=reason):
        tracks.subscribe(lambda _: None, **options)
    assert not tracks.stats().consumers


def test_without_a_journal_functions_acknowledge_when_that_is_asked_for(station: hg.Station) -> None:
    tracks = station.channel("air.plots", Track)
    calls: list[int] = []

    def shaky(track: Track) -> None:
        calls.append(track.id)
        if len(calls) == 1:
            raise ValueError("once more")

    tracks.subscribe(shaky, group="workers", max_deliveries=5)
    tracks.push(Track(7))
    assert wait_until(lambda: calls == [7, 7])


def test_an_async_function_whose_loop_ends_leaves_its_group_and_what_it_had_comes_again(
    tracks: hg.Channel[Track],
) -> None:
    async def run() -> None:
        came = asyncio.Event()

        async def stuck(_: Track) -> None:
            came.set()
            await asyncio.sleep(LIMIT)

        tracks.subscribe(stuck, group="workers", order="key")
        tracks.push(Track(7))
        await asyncio.wait_for(came.wait(), LIMIT)

    asyncio.run(run())  # cancels what still runs
    assert wait_until(lambda: not tracks.stats().consumers)
    got: list[tuple[int, bool]] = []
    tracks.subscribe(
        lambda track, header: got.append((track.id, header.redelivered)), group="workers", order="key"
    )
    tracks.push(Track(8))
    assert wait_until(lambda: len(got) == 2)
    assert sorted(got) == [(7, True), (8, False)]


def test_a_member_whose_reading_breaks_leaves_its_group(
    tracks: hg.Channel[Track], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(AckingSubscription, "_enter", lambda *_: 1 // 0)
        broken = tracks.subscribe(lambda _: None, group="workers")
        tracks.push(Track(1))
        assert wait_until(lambda: not tracks.stats().consumers)
    broken.close()
    with tracks.consumer(group="workers", start="earliest", until="now") as consumer:
        assert [track.id for track in consumer] == [1]


def test_closing_waits_once_for_all_functions_and_tells_whose_call_has_not_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came, go = threading.Semaphore(0), threading.Event()

    def stuck(_: Track) -> None:
        came.release()
        go.wait(LIMIT)

    limits: list[float] = []
    stop = AckingSubscription.stop

    def stopped(one: AckingSubscription, seconds: float) -> bool:
        limits.append(seconds)
        return stop(one, seconds)

    monkeypatch.setattr(AckingSubscription, "stop", stopped)
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        for number in range(3):
            tracks.subscribe(stuck, group=f"workers-{number}", name=f"stuck-{number}")
        tracks.push(Track(1))
        assert all(came.acquire(timeout=LIMIT) for _ in range(3))
        assert tracks.close(0.05) == {f"stuck-{number}": 1 for number in range(3)}
        go.set()
    assert (len(limits), limits[1:]) == (3, [0.0, 0.0])


# Durable functions


@pytest.mark.parametrize("said", [{}, {"ack": "auto"}, {"ack": "before"}, {"max_deliveries": 3}], ids=str)
def test_a_named_function_on_a_persistent_channel_goes_on_where_it_was(
    said: dict[str, Any], tmp_path: Path
) -> None:
    got: list[tuple[int, bool]] = []

    def mailer(track: Track, header: hg.Header) -> None:
        got.append((track.id, header.redelivered))

    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        tracks.push(Track(0))
        subscription = tracks.subscribe(mailer, name="mailer", **said)
        assert wait_until(lambda: len(got) == 1)
        tracks.push(Track(1))
        assert wait_until(lambda: len(got) == 2)
        subscription.close()
        tracks.push(Track(2))
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        tracks.subscribe(mailer, name="mailer", **said)
        assert wait_until(lambda: len(got) == 3)
        assert got == [(0, False), (1, False), (2, False)]
        tracks.unsubscribe(mailer)
        with tracks.consumer(name="mailer", until="now") as same:
            assert list(same) == [], "it is the durable consumer of that name"
        assert tracks.stats().balanced


def test_what_a_durable_function_raised_for_comes_again_and_is_dead_in_the_end(
    station: hg.Station, tracks: hg.Channel[Track], errors: list[tuple[str, BaseException]]
) -> None:
    attempts: list[int] = []

    def shaky(track: Track) -> None:
        attempts.append(track.id)
        if track.id == 1:
            raise ValueError("not now")

    tracks.subscribe(shaky, name="mailer", max_deliveries=2, dead_letter="air.dead")
    dead = station.channel("air.dead", Track).consumer(start="earliest")
    tracks.push_many([Track(0), Track(1), Track(2)])
    assert dead.pull(LIMIT) == Track(1)
    assert wait_until(lambda: sorted(attempts) == [0, 1, 1, 2])
    assert [(name, str(error)) for name, error in errors] == [("mailer", "not now")] * 2


def test_a_durable_function_is_exclusive_and_has_no_place_inside_push(tracks: hg.Channel[Track]) -> None:
    tracks.subscribe(print, name="mailer", ack="auto")
    with pytest.raises(hg.HeliographError, match="mailer"):
        tracks.subscribe(print, name="mailer", ack="auto")
    with pytest.raises(hg.NotPossible, match="consumer"):
        tracks.subscribe(print, name="other", ack="manual")
    with pytest.raises(hg.NotPossible, match="inside push"):
        tracks.subscribe(print, name="other", ack="auto", inline=True)


@pytest.mark.parametrize("name", ["mailer", None], ids=["durable", "without a name"])
def test_closing_gives_a_function_all_that_waits_also_what_is_only_in_history(
    name: str | None, tmp_path: Path
) -> None:
    got: list[int] = []
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent", queue=10))
        tracks.subscribe(lambda track: got.append(track.id), name=name)
        tracks.push_many([Track(n) for n in range(500)])
        assert tracks.close(LIMIT) == {}
    assert got == list(range(500))


@pytest.mark.parametrize("queue", [1000, 10])
def test_closing_tells_what_a_durable_function_has_not_dealt_with_and_that_comes_again(
    queue: int, tmp_path: Path
) -> None:
    came, go = threading.Event(), threading.Event()
    got: list[int] = []

    def slow(track: Track) -> None:
        if track.id == 3:
            came.set()
            go.wait(LIMIT)
        got.append(track.id)

    qos = hg.QoS(durability="persistent", queue=queue)
    station = hg.Station(tmp_path / "data")
    tracks = station.channel("air.tracks", Track, qos=qos)
    tracks.subscribe(slow, name="mailer")
    tracks.push_many([Track(n) for n in range(500)])
    assert came.wait(LIMIT)
    assert station.close(0.05) == {"air.tracks/mailer": 497}
    go.set()
    assert wait_until(lambda: len(got) == 4)
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=qos)
        tracks.subscribe(slow, name="mailer")
    assert got == [*range(4), *range(3, 500)], "what was in hand comes again"


def test_closing_does_not_wait_for_what_a_durable_function_raised_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "FIRST_DELAY", 10 * LIMIT)
    monkeypatch.setattr(calling, "LONGEST_DELAY", 10 * LIMIT)
    got: list[int] = []

    def shaky(track: Track) -> None:
        if track.id == 1:
            raise ValueError("not now")
        got.append(track.id)

    with hg.Station(tmp_path / "data", on_error=lambda *_: None) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        tracks.subscribe(shaky, name="mailer")
        tracks.push_many([Track(n) for n in range(5)])
        # Were it waited for, this would take longer than a test may.
        assert tracks.close(1e6) == {"mailer": 1}
    assert got == [0, 2, 3, 4]


def test_closing_from_inside_of_a_durable_function_is_its_last_call(tmp_path: Path) -> None:
    left: list[dict[str, int]] = []
    station = hg.Station(tmp_path / "data")
    tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
    tracks.subscribe(lambda _: left.append(tracks.close(1e6)), name="mailer")
    tracks.push_many([Track(n) for n in range(5)])
    assert wait_until(lambda: left == [{"mailer": 5}])
    station.close()
    with hg.Station(tmp_path / "data") as again:
        tracks = again.channel("air.tracks", Track, qos=PERSISTENT)
        with tracks.consumer(name="mailer", until="now") as rest:
            assert [track.id for track in rest] == [0, 1, 2, 3, 4], (
                "the channel was closed before it returned"
            )


@pytest.mark.parametrize("options", [{"name": "mailer"}, {"name": "mailer", "group": "workers"}], ids=str)
def test_a_function_that_acknowledges_and_does_not_return_is_told_and_detached(
    options: dict[str, Any], tmp_path: Path
) -> None:
    errors: list[tuple[str, BaseException]] = []
    go = threading.Event()

    def stuck(track: Track) -> None:
        if track.id == 3:
            go.wait(LIMIT)

    with hg.Station(
        tmp_path / "data", callback_limit=0.2, on_error=lambda name, _, error: errors.append((name, error))
    ) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        tracks.subscribe(stuck, **options)
        tracks.push_many([Track(n) for n in range(5)])
        assert wait_until(lambda: len(errors) == 1)
        assert errors[0][0] == "mailer"
        assert isinstance(errors[0][1], hg.errors.CallbackStuck)
        assert "comes again" in str(errors[0][1])
        with tracks.consumer(until="now", **options) as other:
            assert [track.id for track in other] == [3, 4]
        go.set()
    assert len(errors) == 1


def test_a_function_that_acknowledges_and_is_called_for_longer_than_the_limit_is_not_stuck(
    tmp_path: Path,
) -> None:
    errors: list[BaseException] = []
    got: list[int] = []

    def quick(track: Track) -> None:
        threading.Event().wait(0.01)
        got.append(track.id)

    with hg.Station(
        tmp_path / "data", callback_limit=0.3, on_error=lambda _, __, error: errors.append(error)
    ) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        tracks.subscribe(quick, name="mailer")
        tracks.push_many([Track(n) for n in range(100)])
        assert tracks.settle(LIMIT)
    assert (got, errors) == (list(range(100)), [])


def test_an_event_that_holds_up_a_durable_function_is_told_once_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.delivery.in_flight_window.MAX_OUT", 20)
    monkeypatch.setattr(calling, "FIRST_DELAY", 0.01)
    told: list[tuple[str, hg.Header | None, hg.errors.WindowFull]] = []
    got: list[int] = []
    refused: list[int] = []

    def on_error(name: str, header: hg.Header | None, error: BaseException) -> None:
        if isinstance(error, hg.errors.WindowFull):
            told.append((name, header, error))

    def shaky(track: Track) -> None:
        if track.id == 0 and not told:
            refused.append(track.id)
            raise ValueError("not now")
        got.append(track.id)

    with hg.Station(tmp_path / "data", on_error=on_error) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent", queue=10))
        tracks.subscribe(shaky, name="mailer")
        first = tracks.push_nowait(Track(0)).header
        tracks.push_many([Track(n) for n in range(1, 500)])
        assert wait_until(lambda: len(got) == 500)
        name, header, error = told[0]
        assert (name, header and header.id, error.event) == ("mailer", first.id, str(first.id))
        assert error.attempts >= 1
        assert "max_deliveries=" in str(error)
    assert len(told) == 1
    assert refused


def test_functions_that_do_not_return_hold_up_no_other(tmp_path: Path) -> None:
    go = threading.Event()
    entered: list[int] = []
    got: list[int] = []

    def stuck(track: Track) -> None:
        entered.append(track.id)
        go.wait(LIMIT)

    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        for n in range(40):
            tracks.subscribe(stuck, name=f"stuck {n}")
        tracks.subscribe(lambda track: got.append(track.id), name="mailer")
        tracks.subscribe(lambda track: got.append(track.id), group="workers")
        tracks.push(Track(1))
        assert wait_until(lambda: len(entered) == 40)
        assert wait_until(lambda: got == [1, 1])
        tracks.push_many([Track(2), Track(3)])
        assert wait_until(lambda: sorted(got) == [1, 1, 2, 2, 3, 3])
        go.set()


def test_a_function_is_called_by_one_thread_at_a_time_and_in_order(tmp_path: Path) -> None:
    got: dict[str, list[int]] = {f"n{n}": [] for n in range(8)}

    def called(name: str, locks: dict[str, threading.Lock]) -> Any:
        def take(track: Track) -> None:
            assert locks[name].acquire(blocking=False), "two calls at a time"
            got[name].append(track.id)
            locks[name].release()

        return take

    locks = {name: threading.Lock() for name in got}
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent", ack="journal"))
        subscriptions = [tracks.subscribe(called(name, locks), name=name) for name in got]
        for n in range(300):
            tracks.push(Track(n))
            for subscription in subscriptions:
                assert isinstance(subscription, AckingSubscription)
                subscription._wake()
        assert tracks.settle(LIMIT)
        assert set(map(tuple, got.values())) == {tuple(range(300))}


def test_a_disk_that_takes_longer_than_the_limit_makes_no_function_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[BaseException] = []
    got: list[int] = []
    waits, go = threading.Event(), threading.Event()
    take = Consumer.take_delivery

    def slow(consumer: Consumer[Any]) -> Any:
        if consumer.name == "mailer" and got and not go.is_set():
            waits.set()
            go.wait(LIMIT)
        return take(consumer)

    monkeypatch.setattr(Consumer, "take_delivery", slow)
    with hg.Station(
        tmp_path / "data", callback_limit=0.1, on_error=lambda _, __, error: errors.append(error)
    ) as station:
        tracks = station.channel("air.tracks", Track, qos=PERSISTENT)
        mailer = tracks.subscribe(lambda track: got.append(track.id), name="mailer")
        assert isinstance(mailer, AckingSubscription)
        stuck, found_stuck = threading.Event(), mailer.stuck

        def tell(seconds: float) -> None:
            found_stuck(seconds)
            stuck.set()

        monkeypatch.setattr(mailer, "stuck", tell)
        tracks.push(Track(1))
        assert waits.wait(LIMIT)
        assert stuck.wait(LIMIT)
        tracks.push(Track(2))
        go.set()
        assert tracks.settle(LIMIT)
        assert (got, errors) == ([1, 2], [])


def test_a_function_whose_taking_fails_in_an_unknown_way_ends_alone(
    tracks: hg.Channel[Track], errors: list[tuple[str, BaseException]], monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Consumer.take_delivery

    def broken(consumer: Consumer[Any]) -> Any:
        if consumer.name == "bad":
            raise RuntimeError("a fault")
        return take(consumer)

    monkeypatch.setattr(Consumer, "take_delivery", broken)
    got: list[int] = []
    tracks.subscribe(lambda track: got.append(track.id), name="good")
    tracks.subscribe(lambda track: got.append(track.id), name="bad")
    tracks.push(Track(1))
    assert wait_until(lambda: got == [1])
    assert wait_until(lambda: [(name, str(error)) for name, error in errors] == [("bad", "a fault")])

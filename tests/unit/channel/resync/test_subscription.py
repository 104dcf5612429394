"""Subscriptions that heal by state or history, inside one station."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from tests.e2e.link_support import LIMIT, Track, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUICK = hg.Resync(grace=0.01, check=0.05, pause=0.01)


class Keyless(hg.Event):
    value: int


@pytest.fixture
def station() -> Iterator[hg.Station]:
    with hg.Station(on_error=lambda *_: None) as opened:
        yield opened


@pytest.fixture
def tracks(station: hg.Station) -> hg.Channel[Track]:
    return station.channel("air.tracks", Track)


def settled(subscription: Any) -> bool:
    return bool(subscription.resync.stats().settled)


def test_who_comes_late_gets_the_latest_of_each_key_and_then_what_comes(tracks: hg.Channel[Track]) -> None:
    tracks.state("latest")
    tracks.push_many([Track(i % 3, float(i)) for i in range(30)])
    got: list[tuple[Track, bool]] = []
    subscription = tracks.subscribe(
        lambda track, header: got.append((track, header.redelivered)), resync="state"
    )
    assert wait_until(lambda: len(got) == 3)
    tracks.push(Track(7, 7.0))
    assert wait_until(lambda: len(got) == 4)
    assert sorted(track.speed for track, _ in got) == [7.0, 27.0, 28.0, 29.0]
    assert [again for _, again in got] == [True, True, True, False]
    assert subscription.resync.state() == {
        i: Track(i, s) for i, s in ((0, 27.0), (1, 28.0), (2, 29.0), (7, 7.0))
    }
    assert tracks.stats().balanced


def test_the_state_is_what_a_function_says_when_it_is_asked(tracks: hg.Channel[Track]) -> None:
    table = {i: Track(i, 1.0) for i in range(1_500)}
    offer = tracks.state(table.values)
    subscription = tracks.subscribe(lambda _: None, resync=QUICK)
    assert wait_until(lambda: subscription.resync.state() == table)
    assert wait_until(lambda: settled(subscription))
    stats = subscription.resync.stats()
    assert (stats.counts.asked, stats.counts.rows, stats.counts.applied) == (1, 1_500, 1_500)
    offer.close()
    with pytest.raises(hg.NoState):
        tracks.fetch_state()


def test_a_filter_holds_for_rows_and_for_events_and_nothing_filtered_counts_as_lost(
    tracks: hg.Channel[Track],
) -> None:
    tracks.state("latest")
    tracks.push_many([Track(1, 100.0), Track(2, 900.0)])
    got: list[int] = []
    subscription = tracks.subscribe(lambda track: got.append(track.id), where="speed > 300", resync=QUICK)
    assert wait_until(lambda: got == [2])
    tracks.push_many([Track(3, 1.0), Track(4, 900.0), Track(5, 2.0)])
    assert wait_until(lambda: got == [2, 4])
    assert wait_until(lambda: settled(subscription))
    assert subscription.resync.stats().counts.asked == 1


def test_a_queue_that_overflows_heals_by_state(tracks: hg.Channel[Track]) -> None:
    tracks.state("latest")
    go_on, state = Event(), {}

    def keep(track: Track) -> None:
        go_on.wait(LIMIT)
        state[track.id] = track.speed

    subscription = tracks.subscribe(keep, resync=QUICK, queue=8, overflow="drop_oldest")
    assert wait_until(lambda: settled(subscription))
    tracks.push_many([Track(i % 50, float(i)) for i in range(1_000)])
    wanted = {i: float(950 + i) for i in range(50)}
    go_on.set()
    assert wait_until(lambda: state == wanted)
    assert wait_until(lambda: settled(subscription))
    stats = subscription.resync.stats()
    assert stats.counts.asked >= 2
    assert tracks.stats().consumers["keep"].dropped
    assert tracks.stats().balanced


def test_a_lost_tail_is_found_though_nothing_comes_after_it(tracks: hg.Channel[Track]) -> None:
    tracks.state("latest")
    begun, go_on, state = Event(), Event(), {}

    def keep(track: Track) -> None:
        begun.set()
        go_on.wait(LIMIT)
        state[track.id] = track.speed

    subscription = tracks.subscribe(keep, resync=QUICK, queue=1, overflow="drop_newest")
    tracks.push(Track(1, 1.0))
    assert begun.wait(LIMIT)
    tracks.push_many([Track(2, 2.0), Track(3, 3.0), Track(1, 4.0)])  # one waits, the others are dropped
    go_on.set()
    assert wait_until(lambda: state == {1: 4.0, 2: 2.0, 3: 3.0})
    assert wait_until(lambda: settled(subscription))


def test_a_function_that_raises_is_asked_again(tracks: hg.Channel[Track]) -> None:
    calls: list[int] = []

    def state() -> list[Track]:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("not ready")
        return [Track(1, 1.0)]

    tracks.state(state)
    subscription = tracks.subscribe(lambda _: None, resync=QUICK)
    assert wait_until(lambda: len(subscription.resync.state()) == 1)
    assert subscription.resync.stats().counts.failed == 2


def test_a_state_that_the_channel_does_not_carry_is_named(tracks: hg.Channel[Track]) -> None:
    tracks.state(lambda: [Keyless(1)])
    with pytest.raises(hg.WrongEventType):
        tracks.fetch_state(LIMIT)


def test_a_function_that_raises_is_named_to_who_asks_once(tracks: hg.Channel[Track]) -> None:
    tracks.state(lambda: 1 // 0)  # type: ignore[arg-type,return-value]  # that is the point
    with pytest.raises(hg.StateFailed, match="ZeroDivisionError"):
        tracks.fetch_state(LIMIT)


def test_keys_that_a_supplier_has_no_more_leave_the_state(tracks: hg.Channel[Track]) -> None:
    table = {1: Track(1, 1.0), 2: Track(2, 1.0)}
    offer = tracks.state(table.values)
    subscription = tracks.subscribe(lambda _: None, resync=QUICK)
    assert wait_until(lambda: len(subscription.resync.state()) == 2)
    offer.close()
    assert wait_until(lambda: tracks.offered_state is None)
    del table[1]
    table[2] = Track(2, 5.0)
    assert wait_until(lambda: settled(subscription))
    tracks.state(table.values)
    assert wait_until(lambda: subscription.resync.state() == {2: Track(2, 5.0)})
    assert subscription.resync.stats().counts.gone == 1


def test_an_async_function_is_called_with_rows_too(station: hg.Station, tracks: hg.Channel[Track]) -> None:
    tracks.state("latest")
    tracks.push(Track(1, 1.0))

    async def program() -> list[int]:
        got: list[int] = []
        came = asyncio.Event()

        async def keep(track: Track) -> None:
            await asyncio.sleep(0)
            got.append(track.id)
            if len(got) == 2:
                came.set()

        with tracks.subscribe(keep, resync=QUICK):
            tracks.push(Track(2, 1.0))
            await came.wait()
        return got

    assert sorted(asyncio.run(asyncio.wait_for(program(), LIMIT))) == [1, 2]


def test_a_persistent_channel_offers_state_too_and_the_cheaper_way_is_taken_with_its_cost(
    tmp_path: Path,
) -> None:
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many([Track(i % 2, float(i)) for i in range(100)])
        by_history: list[float] = []
        only = tracks.subscribe(lambda track: by_history.append(track.speed), resync="cheaper")
        assert only.resync.stats().by == "history"
        assert wait_until(lambda: len(by_history) == 100)
        tracks.state(lambda: [Track(0, 98.0), Track(1, 99.0)])
        by_state: list[float] = []
        cheaper = tracks.subscribe(lambda track: by_state.append(track.speed), resync="cheaper")
        stats = cheaper.resync.stats()
        assert (stats.by, stats.state_rows, stats.history_rows) == ("state", 2, 100)
        assert wait_until(lambda: sorted(by_state) == [98.0, 99.0])
        tracks.push(Track(5, 5.0))
        assert wait_until(lambda: by_state[2:] == [5.0])
        whole: list[float] = []
        tracks.subscribe(lambda track: whole.append(track.speed), resync="history")
        assert wait_until(lambda: len(whole) == 101)
        with pytest.raises(hg.NotPossible, match="heals by its history"):
            tracks.subscribe(whole.append, name="billing", resync="state")


def test_what_does_not_go_together_is_refused(tracks: hg.Channel[Track], station: hg.Station) -> None:
    for options, why in (
        ({"resync": "stat"}, "allowed are state, history, cheaper"),
        ({"resync": hg.Resync(grace=0.0)}, "grace=0.0"),
        ({"resync": hg.Resync(rate=0.0)}, "rate=0.0"),
        ({"resync": "history"}, "it keeps none"),
        ({"resync": "cheaper"}, "no station offers its state"),
        ({"resync": "state", "inline": True}, "inline=True"),
        ({"resync": "state", "group": "g"}, "group="),
        ({"resync": "state", "separation": 1.0}, "separation="),
        ({"resync": "state", "overflow": "coalesce"}, "coalesce"),
        ({"resync": "state", "start": 7}, "start=7"),
    ):
        with pytest.raises(hg.NotPossible, match=why):
            tracks.subscribe(lambda _: None, **options)
    with pytest.raises(hg.NotPossible, match="'latest', or a function"):
        tracks.state("first")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(hg.NotPossible, match="has none"):
        station.channel("keyless", Keyless).state("latest")
    tracks.state("latest")
    with pytest.raises(hg.NotPossible, match="offers a state already"):
        tracks.state("latest")
    with pytest.raises(hg.NotPossible, match="only consumes"):
        station.channel("in", Track, access="consume").state("latest")


def test_a_rate_bounds_how_fast_rows_come(tracks: hg.Channel[Track]) -> None:
    tracks.state(lambda: [Track(i) for i in range(1_100)])
    begun = tracks.ports.clock.monotonic_ns()
    subscription = tracks.subscribe(lambda _: None, resync=hg.Resync(rate=10_000.0))
    assert wait_until(lambda: settled(subscription) and len(subscription.resync.state()) == 1_100)
    assert tracks.ports.clock.monotonic_ns() - begun >= 0.1e9


def test_a_decorated_function_heals_and_is_unsubscribed(tracks: hg.Channel[Track]) -> None:
    tracks.state("latest")
    tracks.push(Track(1))
    got: list[Track] = []

    @tracks.subscribe(resync="state")
    def keep(track: Track) -> None:
        got.append(track)

    assert wait_until(lambda: len(got) == 1)
    tracks.unsubscribe(keep)
    tracks.push(Track(2))
    assert tracks.settle(LIMIT)
    assert len(got) == 1

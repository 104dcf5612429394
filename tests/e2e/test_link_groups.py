"""Groups with members in several stations: the station that keeps the history hands out to all of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import ExitStack
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import QueryFailed
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from heliograph.channel.receive.consumer import Consumer

PERSISTENT = hg.QoS(durability="persistent")
LIFESPAN = 5.0
"""Seconds: whatever the machine has to do besides, what is not held up is delivered by then."""


class Note(hg.Event, name="note"):
    text: str


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@pytest.fixture
def stations(tmp_path: Path) -> Iterator[list[hg.Station]]:
    """The first one keeps."""
    with ExitStack() as stack:
        keeper = hg.Station(tmp_path / "data", domain="air", on_error=lambda *_: None)
        others = [hg.Station(domain="air", on_error=lambda *_: None) for _ in range(2)]
        yield [stack.enter_context(station) for station in (keeper, *others)]


@pytest.fixture
def tracks(stations: list[hg.Station]) -> list[hg.Channel[Track]]:
    return [station.channel("air.tracks", Track, qos=PERSISTENT) for station in stations]


def rest_of(member: Consumer[Track], timeout: float = 0) -> list[hg.Delivery[Track]]:
    return list(member.deliveries(timeout=timeout))


def test_each_event_goes_to_one_member_of_all_stations_and_keys_stick(
    tracks: list[hg.Channel[Track]],
) -> None:
    members = [channel.consumer(group="workers", ack="manual", start="earliest") for channel in tracks]
    tracks[0].push_many([Track(n % 100, float(n)) for n in range(300)])
    shares = [[d.event for d in rest_of(member)] for member in members]
    assert sorted(t.speed for share in shares for t in share) == [float(n) for n in range(300)]
    owners = Counter(key for share in shares for key in {t.id for t in share})
    assert set(owners.values()) == {1}
    assert all(shares), "a hundred keys are enough for three members"
    for share in shares:
        for key in {t.id for t in share}:
            assert all(a < b for a, b in pairwise(t.speed for t in share if t.id == key))
    assert tracks[0].stats().balanced


def test_nothing_crosses_for_a_member_but_what_it_is_handed(
    stations: list[hg.Station], tracks: list[hg.Channel[Track]]
) -> None:
    """Members are no receivers of their station's channel, so no live event is sent to it."""
    with tracks[0].consumer(group="workers"), tracks[1].consumer(group="workers"):
        assert tracks[1].stats().consumers == {}
        assert tracks[0].wait_matched(1, LIMIT)
        assert len(tracks[0].stats().consumers) == 1
    del stations


def test_what_a_member_elsewhere_held_goes_to_the_others_when_it_leaves(
    tracks: list[hg.Channel[Track]],
) -> None:
    tracks[0].push_many([Track(n) for n in range(8)])
    leaving = tracks[1].consumer(group="workers", ack="manual", start="earliest")
    held = rest_of(leaving)
    assert [d.event.id for d in held] == list(range(8))
    assert held[3].ack()
    with tracks[2].consumer(group="workers") as other:
        assert rest_of(other) == []
        leaving.close()
        found = [*islice(other.deliveries(timeout=LIMIT), 7), *rest_of(other)]
    assert sorted(d.event.id for d in found) == [0, 1, 2, 4, 5, 6, 7]
    assert all(d.redelivered and d.attempt == 2 for d in found)


def test_what_a_member_had_fetched_and_not_seen_is_not_marked(tracks: list[hg.Channel[Track]]) -> None:
    """A fast member fetches ahead; what it did not get to is as if it had never been out."""
    tracks[0].push_many([Track(n) for n in range(200)])
    with tracks[1].consumer(group="workers", start="earliest") as fast:
        seen = {track.id for track in fast.read(max=100)}
    with tracks[2].consumer(group="workers") as other:
        found: list[hg.Delivery[Track]] = []
        for delivery in other.deliveries(timeout=LIMIT):
            found.append(delivery)
            if len(seen | {d.event.id for d in found}) == 200:
                break
        found += rest_of(other)
    again = {d.event.id for d in found if d.attempt > 1}
    assert len(again) <= 1, "the one in hand"
    assert seen | {d.event.id for d in found} == set(range(200))


def test_a_lease_that_is_over_brings_the_event_to_another_station(tracks: list[hg.Channel[Track]]) -> None:
    stalled = tracks[1].consumer(group="workers", ack="manual", lease=0.2, start="earliest")
    tracks[0].push(Track(1))
    held = next(stalled.deliveries(timeout=LIMIT))
    assert held.attempt == 1
    with tracks[2].consumer(group="workers") as other:
        stop = threading.Event()
        found: list[hg.Delivery[Track]] = []

        def take(member: Consumer[Track]) -> None:
            """The key is one of the two's: whichever it is gets it."""
            while not stop.is_set():
                found.extend(member.deliveries(timeout=0.05))
                if found:
                    stop.set()

        threads = [threading.Thread(target=take, args=[member]) for member in (stalled, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert (found[0].event, found[0].redelivered, found[0].attempt) == (Track(1), True, 2)


def test_a_refused_event_comes_again_after_its_delay(tracks: list[hg.Channel[Track]]) -> None:
    with tracks[1].consumer(group="workers", ack="manual", start="earliest") as member:
        tracks[0].push_many([Track(1), Track(2)])
        deliveries = member.deliveries(timeout=LIMIT)
        first = next(deliveries)
        first.nak(delay=2.0)
        second = next(deliveries)
        assert (second.event.id, second.ack()) == (2, True)
        again = next(deliveries)
        assert (again.event.id, again.attempt, again.redelivered, again.ack()) == (1, 2, True, True)
        assert not first.ack(), "it is settled"


def test_max_in_flight_holds_across_the_link(tracks: list[hg.Channel[Track]]) -> None:
    with tracks[1].consumer(group="workers", ack="manual", max_in_flight=3, start="earliest") as member:
        tracks[0].push_many([Track(n) for n in range(10)])
        held = rest_of(member)
        assert len(held) == 3
        held[0].ack()
        assert len(rest_of(member)) == 1


def test_by_key_a_later_event_waits_wherever_the_earlier_one_is(tracks: list[hg.Channel[Track]]) -> None:
    members = [c.consumer(group="workers", ack="manual", order="key", start="earliest") for c in tracks]
    tracks[0].push_many([Track(7, float(n)) for n in range(6)])
    order: list[float] = []
    while len(order) < 6:
        handed = [d for member in members for d in rest_of(member)]
        assert len(handed) == 1
        if handed[0].attempt == 1 and handed[0].event.speed % 2 == 0:
            handed[0].nak()
        else:
            order.append(handed[0].event.speed)
            handed[0].ack()
    assert order == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_dead_event_goes_to_the_keeper_s_dead_letter_channel(
    stations: list[hg.Station], tracks: list[hg.Channel[Track]]
) -> None:
    with tracks[1].consumer(
        group="workers", ack="manual", max_deliveries=2, dead_letter="air.dead", start="earliest"
    ) as member:
        tracks[0].push(Track(7))
        for delivery in member.deliveries(timeout=0):
            delivery.nak()
    with stations[0].channel("air.dead", Track, qos=PERSISTENT).consumer(start="earliest") as grave:
        dead = next(grave.deliveries(timeout=LIMIT))
    assert dead.event == Track(7)
    assert (dead.header.headers or {})["dead.attempts"] == "2"


def test_a_group_ends_for_all_its_members_where_it_was_said_to(tracks: list[hg.Channel[Track]]) -> None:
    tracks[0].push_many([Track(n) for n in range(500)])
    seen: list[list[int]] = [[] for _ in tracks]

    def work(channel: hg.Channel[Track], mine: list[int]) -> None:
        with channel.consumer(group="workers", start="earliest", until="now") as member:
            joined.wait(LIMIT)
            mine.extend(track.id for track in member)

    joined = threading.Barrier(len(tracks))
    threads = [threading.Thread(target=work, args=pair) for pair in zip(tracks, seen, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(n for mine in seen for n in mine) == list(range(500))


def test_members_agree_or_are_refused_with_the_reason(tracks: list[hg.Channel[Track]]) -> None:
    with tracks[1].consumer(group="workers", ack="manual", where="speed > 3"):
        with pytest.raises(hg.NotPossible, match="other terms"):
            tracks[2].consumer(group="workers", ack="auto", where="speed > 3")
        with pytest.raises(hg.NotPossible, match="all want the same"):
            tracks[0].consumer(group="workers", where="speed > 4")
        with pytest.raises(hg.NotPossible, match="lease="):
            tracks[2].consumer(group="workers", lease=-1, where="speed > 3")
        with tracks[2].consumer(group="workers", where="speed > 3") as second:
            tracks[0].push_many([Track(1, 2.0), Track(2, 4.0)])
            with tracks[0].consumer(group="workers", where=hg.col("speed") > 3) as third:
                assert len(rest_of(second)) + len(rest_of(third)) <= 1


def test_a_filter_on_a_field_that_the_keeper_has_otherwise_is_refused(stations: list[hg.Station]) -> None:
    class Old(hg.Event, name="air.plot"):
        id: int

    class New(hg.Event, name="air.plot"):
        id: int
        height: float = 0.0

    kept = stations[0].channel("air.plots", Old, qos=PERSISTENT)
    elsewhere = stations[1].channel("air.plots", New, qos=PERSISTENT)
    with pytest.raises(hg.NotPossible, match=r"fields that 'air\.plot' has otherwise"):
        elsewhere.consumer(group="workers", where="height > 3")
    with elsewhere.consumer(group="workers", where="id > 1", start="earliest") as member:
        kept.push_many([Old(1), Old(2)])
        assert [d.event for d in (next(member.deliveries(timeout=LIMIT)), *rest_of(member))] == [New(2)]


def test_members_go_on_when_the_keeper_has_been_away(tmp_path: Path) -> None:
    """What they hold can be acknowledged at the keeper that came back, and does not come again."""
    with hg.Station(domain="air") as other:
        keeper = hg.Station(tmp_path / "data", domain="air")
        kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
        kept.push_many([Track(n) for n in range(6)])
        tracks = other.channel("air.tracks", Track, qos=PERSISTENT)
        member = tracks.consumer(group="workers", ack="manual", max_in_flight=3, start="earliest")
        held = rest_of(member)
        assert [d.event.id for d in held] == [0, 1, 2]
        assert held[0].ack()
        keeper.close()
        assert rest_of(member) == []
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
            assert held[2].ack()
            found: dict[int, bool] = {}
            for delivery in member.deliveries(timeout=LIMIT):
                found[delivery.event.id] = delivery.redelivered
                delivery.ack()
                if len(found) == 4:
                    break
        # Which may have been handed out the last keeper knew by batches.
        assert found.keys() == {1, 3, 4, 5}
        assert found[1]
        member.close()


def test_a_member_is_told_when_there_is_no_keeper_to_acknowledge_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hg.Station(domain="air") as other:
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            keeper.channel("air.tracks", Track, qos=PERSISTENT).push(Track(1))
            tracks = other.channel("air.tracks", Track, qos=PERSISTENT)
            member = tracks.consumer(group="workers", ack="manual", start="earliest")
            held = next(member.deliveries(timeout=LIMIT))
        monkeypatch.setattr("heliograph.links.history.server.KEEPER_LIMIT", 0.3)
        with pytest.raises(QueryFailed):
            held.ack()
        held.nak()
        assert not list(member.deliveries(timeout=0))


def test_a_loop_awaits_the_events_of_its_group(tracks: list[hg.Channel[Track]]) -> None:
    async def work() -> list[int]:
        with tracks[1].consumer(group="workers") as member:
            pushing = threading.Thread(target=tracks[0].push_many, args=[[Track(n) for n in range(20)]])
            pushing.start()
            found: list[int] = []
            async for delivery in member.deliveries(timeout=LIMIT):
                found.append(delivery.event.id)
                if len(found) == 20:
                    break
            pushing.join(LIMIT)
            return found

    assert asyncio.run(work()) == list(range(20))


def test_closing_a_station_ends_its_members_and_gives_back_what_they_held(
    stations: list[hg.Station], tracks: list[hg.Channel[Track]]
) -> None:
    member = tracks[1].consumer(group="workers", ack="manual")
    ended: list[Any] = []
    waiting = threading.Thread(target=lambda: ended.extend([*member.deliveries(), None]))
    waiting.start()
    assert tracks[0].wait_matched(1, LIMIT)
    stations[1].close()
    waiting.join(LIMIT)
    assert ended == [None]
    assert wait_until(lambda: not tracks[0].stats().consumers)


def test_members_under_load_get_every_event_once(tracks: list[hg.Channel[Track]]) -> None:
    total = 3_000
    seen: list[list[int]] = [[] for _ in range(6)]
    members = [tracks[n % 3].consumer(group="workers", start="earliest") for n in range(6)]

    def work(member: Consumer[Track], mine: list[int]) -> None:
        mine.extend(track.id for track in member)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(members, seen, strict=True)]
    for thread in threads:
        thread.start()
    for start in range(0, total, 100):
        tracks[start // 100 % 3].push_many([Track(start + n) for n in range(100)])
    assert wait_until(lambda: sum(map(len, seen)) >= total)
    for member in members:
        member.close()
    for thread in threads:
        thread.join(LIMIT)
    assert sorted(n for mine in seen for n in mine) == list(range(total))


def test_functions_of_several_stations_share_a_stream(tracks: list[hg.Channel[Track]]) -> None:
    calls: list[tuple[int, int]] = []

    def called_in(place: int) -> Callable[[Track], None]:
        def call(track: Track) -> None:
            calls.append((place, track.id))
            if calls.count((place, track.id)) == 1 and track.id == 3:
                raise ValueError("once more")

        return call

    for place, channel in enumerate(tracks):
        channel.subscribe(called_in(place), group="workers", order="key", start="earliest")
    tracks[0].push_many([Track(n % 10, float(n)) for n in range(100)])
    assert wait_until(lambda: len(calls) == 101)
    owners = Counter(key for _, key in set(calls))
    assert set(owners.values()) == {1}


def test_stations_that_keep_a_channel_together_have_one_group(tmp_path: Path) -> None:
    """One keeper hands out what both have kept, to members in both and elsewhere."""
    with (
        hg.Station(tmp_path / "a", domain="air") as a,
        hg.Station(tmp_path / "b", domain="air") as b,
        hg.Station(domain="air") as c,
    ):
        tracks = [station.channel("air.tracks", Track, qos=PERSISTENT) for station in (a, b, c)]
        assert wait_until(lambda: all(len(channel._journal.hosts()) == 2 for channel in tracks))  # type: ignore[union-attr]  # they are persistent
        for n in range(60):
            tracks[n % 3].push(Track(n))
        members = [channel.consumer(group="workers", ack="manual", start="earliest") for channel in tracks]
        held: list[hg.Delivery[Track]] = []
        while len(held) < 60:
            found = [delivery for member in members for delivery in rest_of(member, 1.0)]
            assert found, f"only {len(held)} came"
            held += found
        assert sorted(d.event.id for d in held) == list(range(60))
        assert all(d.ack() for d in held)
        for member in members:
            member.close()
        with tracks[1].consumer(group="workers", until="now") as last:
            assert list(last) == []


def test_what_a_member_elsewhere_has_fetched_ahead_is_not_delivered_after_its_lifespan(
    stations: list[hg.Station],
) -> None:
    qos = hg.QoS(durability="persistent", lifespan=LIFESPAN)
    kept, elsewhere, _ = (station.channel("air.tracks", Track, qos=qos) for station in stations)
    with elsewhere.consumer(group="workers", lease=LIFESPAN) as member:
        kept.push_many([Track(n) for n in range(200)])
        seen = [member.pull(LIMIT) for _ in range(20)]  # by now it fetches several at a time
        over = time.monotonic() + LIFESPAN
        assert wait_until(lambda: time.monotonic() > over)
        assert member.pull(0) is None
        kept.push(Track(999))
        assert member.pull(LIMIT) == Track(999)
        assert wait_until(lambda: member.pull(0) is None and kept.stats().total.expired == 200 - len(seen))
        assert kept.stats().balanced

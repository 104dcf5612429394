"""Consumers that acknowledge: stories in memory, with a clock that jumps."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import GivenUp
from heliograph.testing import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.receive.consumer import Consumer

LIMIT = 10.0
PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


@pytest.fixture(params=["volatile", "persistent"])
def tracks(request: pytest.FixtureRequest, helio: Rig) -> hg.Channel[Track]:
    return helio.station.channel("air.tracks", Track, qos=hg.QoS(durability=request.param))


def next_of(consumer: Consumer[Track]) -> hg.Delivery[Track]:
    return next(consumer.deliveries(timeout=LIMIT))


def none_now(consumer: Consumer[Track]) -> bool:
    return next(consumer.deliveries(timeout=0), None) is None


def test_an_event_that_is_acknowledged_by_hand_does_not_come_again(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer(ack="manual") as consumer:
        tracks.push(Track(1))
        delivery = next_of(consumer)
        assert (delivery.event, delivery.attempt, delivery.redelivered) == (Track(1), 1, False)
        assert delivery.ack()
        assert not delivery.ack()
        assert none_now(consumer)
        assert tracks.stats().balanced


@pytest.mark.parametrize("group", [None, "workers"])
def test_what_is_acknowledged_by_hand_is_taken_with_its_handle(
    tracks: hg.Channel[Track], group: str | None
) -> None:
    with tracks.consumer(ack="manual", group=group) as consumer:
        tracks.push(Track(1))
        for take in (consumer.pull, consumer.read, lambda: next(iter(consumer))):
            with pytest.raises(hg.NotPossible, match=r"ack='manual': .*; use deliveries\(\)"):
                take()
        assert next_of(consumer).ack()


def test_a_refused_event_comes_again_after_its_delay_and_is_marked(
    tracks: hg.Channel[Track], helio: Rig
) -> None:
    with tracks.consumer(ack="manual") as consumer:
        tracks.push_many([Track(1), Track(2)])
        next_of(consumer).nak(delay=5.0)
        assert next_of(consumer).event == Track(2)
        assert none_now(consumer)
        helio.clock.advance(5.0)
        again = next_of(consumer)
        assert (again.event, again.attempt, again.redelivered) == (Track(1), 2, True)
        assert again.header.redelivered


def test_a_lease_that_is_over_brings_the_event_back(tracks: hg.Channel[Track], helio: Rig) -> None:
    with tracks.consumer(ack="manual", lease=2.0) as consumer:
        tracks.push(Track(1))
        first = next_of(consumer)
        helio.clock.advance(2.0)
        assert next_of(consumer).attempt == 2
        assert first.ack()
        helio.clock.advance(2.0)
        assert none_now(consumer)


def test_a_consumer_holds_no_more_than_max_in_flight(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer(ack="manual", max_in_flight=2) as consumer:
        tracks.push_many([Track(n) for n in range(3)])
        held = [next_of(consumer), next_of(consumer)]
        assert none_now(consumer)
        held[1].ack()
        assert next_of(consumer).event == Track(2)


def test_who_waits_is_woken_when_there_is_room_again(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer(ack="manual", max_in_flight=1) as consumer:
        tracks.push_many([Track(1), Track(2)])
        first = next_of(consumer)
        got: list[Track] = []
        waiting = threading.Thread(target=lambda: got.append(next_of(consumer).event))
        waiting.start()
        first.ack()
        waiting.join(LIMIT)
        assert got == [Track(2)]


def test_a_dead_event_goes_to_the_dead_letter_channel_with_its_story(
    tracks: hg.Channel[Track], helio: Rig
) -> None:
    with tracks.consumer(name="billing", ack="manual", max_deliveries=2, dead_letter="air.dead") as consumer:
        tracks.push(Track(7), headers={"site": "a"})
        next_of(consumer).nak()
        delivery = next_of(consumer)
        delivery.nak()
        assert none_now(consumer)
        with helio.station.channel("air.dead").consumer(start="earliest" if tracks.store else None) as dead:
            if tracks.store is None:
                delivery = _die_again(tracks, consumer)
            buried = next_of(dead)
        assert buried.event == Track(7)
        assert buried.header.headers == {
            "site": "a",
            "dead.channel": "air.tracks",
            "dead.consumer": "billing",
            "dead.id": str(delivery.header.id),
            "dead.attempts": "2",
        }
        assert tracks.stats().consumers["billing"].failed >= 1
        assert tracks.stats().balanced


def _die_again(tracks: hg.Channel[Track], consumer: Consumer[Track]) -> hg.Delivery[Track]:
    """A volatile dead-letter channel forgets what came before anybody listened."""
    tracks.push(Track(7), headers={"site": "a"})
    next_of(consumer).nak()
    delivery = next_of(consumer)
    delivery.nak()
    return delivery


def test_a_dead_event_without_a_channel_for_it_is_reported() -> None:
    errors: list[BaseException] = []
    rig = Rig(on_error=lambda _, __, error: errors.append(error))
    tracks = rig.station.channel("air.tracks", Track)
    with tracks.consumer(name="billing", ack="manual", max_deliveries=1) as consumer:
        tracks.push(Track(7))
        next_of(consumer).nak()
        assert none_now(consumer)
    assert isinstance(errors[0], GivenUp)
    assert (errors[0].name, errors[0].attempts) == ("billing", 1)
    rig.station.close()


def test_by_key_a_later_event_waits_for_the_one_that_comes_again(
    tracks: hg.Channel[Track], helio: Rig
) -> None:
    with tracks.consumer(ack="manual", order="key") as consumer:
        tracks.push_many([Track(1, 1.0), Track(1, 2.0), Track(2, 3.0)])
        next_of(consumer).nak(delay=1.0)
        other = next_of(consumer)
        assert other.event == Track(2, 3.0)
        assert none_now(consumer)
        helio.clock.advance(1.0)
        again = next_of(consumer)
        assert again.event == Track(1, 1.0)
        again.ack()
        assert next_of(consumer).event == Track(1, 2.0)


def test_auto_acknowledges_when_the_next_is_asked_for(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer() as consumer:
        tracks.push_many([Track(1), Track(2), Track(3)])
        seen = []
        for delivery in islice(consumer.deliveries(timeout=LIMIT), 4):
            seen.append((delivery.event.id, delivery.redelivered))
            if delivery.event.id == 2 and not delivery.redelivered:
                delivery.nak()
        assert seen == [(1, False), (2, False), (2, True), (3, False)]
        assert none_now(consumer)
        assert tracks.stats().balanced


def test_pulls_then_deliveries_lose_nothing(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer() as consumer:
        tracks.push_many([Track(n) for n in range(4)])
        assert consumer.pull(LIMIT) == Track(0)
        assert [next_of(consumer).event.id for _ in range(3)] == [1, 2, 3]
        consumer.pull(0)
        stats = tracks.stats()
        assert (stats.consumers["consumer"].delivered, stats.balanced) == (4, True)


def test_closing_with_events_out_keeps_the_ledger_in_balance(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer(ack="manual") as consumer:
        tracks.push_many([Track(n) for n in range(4)])
        next_of(consumer).ack()
        next_of(consumer)
    stats = tracks.stats()
    assert stats.departed.delivered == 1
    assert stats.balanced


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ack": "never"}, "allowed is one of auto, manual, before"),
        ({"lease": 0}, "lease"),
        ({"max_in_flight": 0}, "max_in_flight=0"),
        ({"max_deliveries": True}, "max_deliveries=True"),
        ({"dead_letter": "air.dead"}, "only with max_deliveries"),
        ({"dead_letter": "air.tracks", "max_deliveries": 1}, "another channel"),
        ({"ack": "before", "lease": 1.0}, "nothing comes again"),
        ({"order": "size"}, "allowed is one of arrival, key"),
    ],
)
def test_what_cannot_be_agreed_is_refused(
    tracks: hg.Channel[Track], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(hg.NotPossible, match=sentence):
        tracks.consumer(**options)


def test_a_delay_is_a_number_of_seconds(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer() as consumer:
        tracks.push(Track(1))
        with pytest.raises(hg.NotPossible, match="seconds from 0 on"):
            next_of(consumer).nak(delay=-1)


# Durable consumers: what is kept


@pytest.fixture
def before() -> Rig:
    """A station that will not be closed: it dies."""
    return Rig()


def kept(rig: Rig) -> hg.Channel[Track]:
    return rig.station.channel("air.tracks", Track, qos=PERSISTENT)


@contextmanager
def after(before: Rig) -> Iterator[hg.Channel[Track]]:
    """The channel after a loss of power."""
    rig = Rig(disk=before.disk.crash(), seed=1)
    yield kept(rig)
    rig.station.close()


def rest(consumer: Consumer[Track]) -> list[tuple[int, bool]]:
    return [(d.event.id, d.redelivered) for d in consumer.deliveries(timeout=0)]


def test_after_a_crash_what_was_acknowledged_stays_away_and_the_rest_is_marked(before: Rig) -> None:
    tracks = kept(before)
    tracks.push_many([Track(n) for n in range(6)])
    consumer = tracks.consumer(name="billing", ack="manual")
    held = [next_of(consumer) for _ in range(4)]
    held[1].ack()
    held[3].ack()
    with after(before) as tracks, tracks.consumer(name="billing", ack="manual") as consumer:
        tracks.push(Track(100))
        assert rest(consumer) == [(0, True), (2, True), (4, True), (5, True), (100, False)]


def test_of_a_slow_consumer_only_what_it_has_in_hand_comes_again_after_a_crash(before: Rig) -> None:
    """Though it has not come to the end of a batch."""
    tracks = kept(before)
    tracks.push_many([Track(n) for n in range(6)])
    consumer = tracks.consumer(name="billing")
    for n in range(4):
        assert consumer.pull(0) == Track(n)
        before.clock.advance(10.0)
    with after(before) as tracks, tracks.consumer(name="billing") as consumer:
        assert rest(consumer) == [(3, True), (4, True), (5, True)]


def test_after_a_full_disk_refused_an_acknowledgement_the_event_comes_again(helio: Rig) -> None:
    """Though others are acknowledged later, which writes the cursor."""
    tracks = kept(helio)
    tracks.push_many([Track(n) for n in range(4)])
    with tracks.consumer(name="billing", ack="manual") as consumer:
        held = [next_of(consumer) for _ in range(4)]
        helio.disk.medium.capacity = 0
        with pytest.raises(hg.DiskFull):
            held[1].ack()
        helio.disk.medium.capacity = None
        assert all(delivery.ack() for delivery in (held[0], held[2], held[3]))
        assert rest(consumer) == [(1, True)]
    with tracks.consumer(name="billing", ack="manual") as consumer:
        assert rest(consumer) == [(1, True)]


def test_an_event_that_kills_its_consumer_each_time_ends_with_the_dead(before: Rig) -> None:
    def opened(tracks: hg.Channel[Track]) -> Consumer[Track]:
        return tracks.consumer(name="billing", ack="manual", max_deliveries=3, dead_letter="air.dead")

    kept(before).push_many([Track(1), Track(2)])
    rig, attempts = before, list[int]()
    while len(attempts) < 10:
        delivery = next_of(opened(kept(rig)))
        attempts.append(delivery.attempt)
        if delivery.event.id == 2:
            break
        rig = Rig(disk=rig.disk.crash(), seed=len(attempts))
    # The first time is not counted: only what comes again is kept one by one.
    assert attempts == [1, 1, 2, 3, 1]
    grave = rig.station.channel("air.dead", Track)
    dead = next(grave.consumer(start="earliest").deliveries(timeout=LIMIT))
    assert (dead.event.id, (dead.header.headers or {})["dead.attempts"]) == (1, "3")


def test_with_before_nothing_comes_twice_even_after_a_crash(before: Rig) -> None:
    tracks = kept(before)
    tracks.push_many([Track(n) for n in range(6)])
    consumer = tracks.consumer(name="billing", ack="before", max_in_flight=2)
    assert [consumer.pull(LIMIT) for _ in range(3)] == [Track(0), Track(1), Track(2)]
    with after(before) as tracks, tracks.consumer(name="billing", ack="before") as consumer:
        assert consumer.read(timeout=LIMIT) == [Track(3), Track(4), Track(5)], "nothing else is lost either"


def test_an_urgent_event_that_overtook_does_not_settle_those_it_passed(before: Rig) -> None:
    tracks = kept(before)
    consumer = tracks.consumer(name="billing")
    tracks.push(Track(1), priority=1)
    tracks.push(Track(2), priority=5)
    assert consumer.pull(LIMIT) == Track(2)
    consumer.close()
    with after(before) as tracks, tracks.consumer(name="billing") as consumer:
        assert sorted(track.id for track in consumer.read(timeout=LIMIT)) == [1, 2]


def test_a_consumer_that_is_closed_goes_on_where_it_was(before: Rig) -> None:
    tracks = kept(before)
    tracks.push_many([Track(n) for n in range(5)])
    with tracks.consumer(name="billing", ack="manual") as consumer:
        next_of(consumer)
        next_of(consumer).ack()
    with tracks.consumer(name="billing", ack="manual") as consumer:
        assert rest(consumer) == [(0, True), (2, True), (3, True), (4, True)]


def test_events_that_did_not_match_are_not_read_again(before: Rig) -> None:
    tracks = kept(before)
    tracks.push_many([Track(n) for n in range(50)])
    with tracks.consumer(name="billing", where="id = 3") as consumer:
        assert rest(consumer) == [(3, False)]
    assert tracks.store is not None
    assert tracks.store.cursor("billing").position == 50

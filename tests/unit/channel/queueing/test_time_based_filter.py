"""At most one event of a key in so much time, and the last one although none follows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.queueing.time_based_filter import Separation
from heliograph.errors import NotPossible
from heliograph.testing import rig
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.testing import Rig


class Track(hg.Event, name="sep.track", key="id"):
    id: int
    speed: int = 0


class Note(hg.Event, name="sep.note"):
    text: str


def test_of_each_key_one_event_in_so_much_time_and_then_the_latest(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    seen: list[Track] = []
    tracks.subscribe(seen.append, separation=1.0, name="display")
    for speed in range(10):
        tracks.push(Track(1, speed))
        tracks.push(Track(2, 100 + speed))
    helio.settle()
    assert seen == [Track(1, 0), Track(2, 100)]
    assert tracks.stats().consumers["display"].pending == 2
    helio.clock.advance(0.999)
    helio.settle()
    assert len(seen) == 2
    helio.clock.advance(0.001)
    helio.settle()
    assert seen[2:] == [Track(1, 9), Track(2, 109)]
    counts = tracks.stats().consumers["display"]
    assert (counts.delivered, counts.dropped, counts.pending) == (4, {"separated": 16}, 0)
    assert tracks.stats().balanced


def test_the_time_begins_anew_with_what_was_held_back(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    with tracks.consumer(separation=1.0) as consumer:
        tracks.push_many([Track(1, 0), Track(1, 1)])
        assert [track.speed for track in consumer.read(timeout=5)] == [0]
        helio.clock.advance(1.0)
        tracks.push(Track(1, 2))
        assert [track.speed for track in consumer.read(timeout=5)] == [1]
        helio.clock.advance(0.5)
        tracks.push(Track(1, 3))
        assert consumer.read(timeout=0) == []
        helio.clock.advance(0.5)
        assert [track.speed for track in consumer.read(timeout=5)] == [3]
        helio.clock.advance(1.0)
        tracks.push(Track(1, 4))
        assert consumer.pull(5) == Track(1, 4)


def test_the_time_is_kept_at_delivery_however_slow_the_callback_is(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    seen: list[int] = []
    entered, go = threading.Event(), threading.Event()

    def slow(track: Track) -> None:
        seen.append(track.speed)
        entered.set()
        go.wait(30.0)

    tracks.subscribe(slow, separation=1.0, name="display")
    for speed in range(6):
        tracks.push(Track(1, speed))
        assert entered.wait(30.0)
        helio.clock.advance(2.0)
    go.set()
    helio.settle()
    assert seen == [0, 1]
    helio.clock.advance(1.0)
    helio.settle()
    assert seen == [0, 1, 5]
    assert tracks.stats().consumers["display"].dropped == {"separated": 3}
    assert tracks.stats().balanced


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), max_size=60), st.integers(1, 12))
@settings(max_examples=examples(60), deadline=None)
def test_what_comes_is_what_a_look_at_every_instant_gives(
    steps: list[tuple[int, int]], separation: int
) -> None:
    """Steps are (milliseconds that pass, the key of the event that comes then)."""
    expected: list[tuple[int, int, int]] = []
    free: dict[int, int] = {}
    held: dict[int, int] = {}
    now = 0

    def pass_on(until: int) -> None:
        for instant in range(now + 1, until + 1):
            for key in [key for key in held if free[key] <= instant]:
                expected.append((instant, key, held.pop(key)))
                free[key] = instant + separation

    seen: list[tuple[int, int, int]] = []
    with rig() as helio:
        tracks = helio.station.channel("t", Track)
        start = helio.clock.monotonic_ns()
        with tracks.consumer(separation=separation / 1000) as consumer:

            def look() -> None:
                at = (helio.clock.monotonic_ns() - start) // 1_000_000
                seen.extend((at, track.id, track.speed) for track in consumer.read(timeout=0))

            for number, (wait, key) in enumerate([*steps, (separation, 0)]):
                for _ in range(wait):
                    helio.clock.advance(0.001)
                    look()
                pass_on(now + wait)
                now += wait
                if key:
                    tracks.push(Track(key, number))
                    if free.get(key, 0) <= now:
                        expected.append((now, key, number))
                        free[key] = now + separation
                    else:
                        held[key] = number
                    look()
            assert sorted(seen) == sorted(expected)
            assert held == {}
        assert tracks.stats().balanced


def test_events_without_a_key_are_one_and_types_are_apart(helio: Rig) -> None:
    channel: Any = helio.station.channel("c", Track, Note)
    with channel.consumer(separation=1.0) as consumer:
        channel.push_many([Note("a"), Note("b"), Track(1)])
        assert consumer.read(timeout=5) == [Note("a"), Track(1)]


def test_a_filter_is_asked_first(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    with tracks.consumer(separation=1.0, where="speed > 5") as consumer:
        tracks.push_many([Track(1, 1), Track(1, 7)])
        assert consumer.read(timeout=5) == [Track(1, 7)]


def test_what_was_kept_for_who_joins_late_is_separated_too(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track, qos=hg.QoS(durability="transient", history=5))
    tracks.push_many([Track(1, speed) for speed in range(5)])
    with tracks.consumer(separation=1.0) as consumer:
        assert [track.speed for track in consumer.read(timeout=5)] == [0]
        helio.clock.advance(1.0)
        assert [track.speed for track in consumer.read(timeout=5)] == [4]


def test_closing_lets_pass_what_is_held_back(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    seen: list[int] = []
    tracks.subscribe(lambda track: seen.append(track.speed), separation=60.0)
    tracks.push_many([Track(1, 0), Track(1, 1), Track(1, 2)])
    assert tracks.close() == {}
    assert seen == [0, 2]
    assert tracks.stats().balanced


def test_a_receiver_that_leaves_counts_what_it_held_back(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    consumer = tracks.consumer(separation=60.0)
    tracks.push_many([Track(1, 0), Track(1, 1)])
    consumer.close()
    helio.clock.advance(60.0)
    assert tracks.stats().departed.dropped == {"closed": 2}
    assert tracks.stats().balanced


def test_keys_that_are_free_again_are_forgotten(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    with tracks.consumer(separation=1.0, queue=3) as consumer:
        for key in range(50):
            tracks.push(Track(key))
            assert consumer.pull(5) == Track(key)
            helio.clock.advance(0.5)
        (separation,) = consumer.queue._stages
        assert isinstance(separation, Separation)
        assert len(separation) <= 3
        assert len(helio.station.timers) == 0


def test_of_more_keys_than_the_queue_has_room_for_the_oldest_is_dropped(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track, qos=hg.QoS(queue=3))
    with tracks.consumer(separation=1.0) as consumer:
        for key in range(5):
            tracks.push(Track(key))
            assert consumer.pull(5) == Track(key)
        tracks.push_many([Track(key, 1) for key in range(5)])
        helio.clock.advance(1.0)
        assert [track.id for track in consumer.read(timeout=5)] == [2, 3, 4]
        assert tracks.stats().consumers[consumer.name].dropped == {"oldest": 2}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"separation": 0}, "above 0"),
        ({"separation": True}, "above 0"),
        ({"separation": "1 s"}, "above 0"),
        ({"separation": 1.0, "group": "g"}, "share one stream"),
        ({"separation": 1.0, "overflow": "coalesce"}, "both keep the latest"),
    ],
)
def test_what_makes_no_sense_is_refused(helio: Rig, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(NotPossible, match=sentence):
        helio.station.channel("t", Track).consumer(**options)


def test_where_events_are_kept_or_acknowledged_none_is_left_out(helio: Rig) -> None:
    for qos in (hg.QoS(durability="persistent"), hg.QoS(ack="delivered")):
        channel = helio.station.channel(f"c.{qos.ack_level}", Track, qos=qos)
        with pytest.raises(NotPossible, match="for good"):
            channel.consumer(separation=1.0)
    with pytest.raises(NotPossible, match="inline=True has no queue"):
        helio.station.channel("t", Track).subscribe(print, inline=True, separation=1.0)

"""Changing what a receiver wants while it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.channel.routing.filter_index import MERGED
from heliograph.errors import Closed, ExpressionError, NotPossible

if TYPE_CHECKING:
    from heliograph.testing import Rig


class Track(hg.Event, name="change.track", key="id"):
    id: int
    speed: float = 0.0


def test_the_next_event_meets_the_new_filter_and_what_waits_stays(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    with tracks.consumer(where="speed > :limit", params={"limit": 10}) as consumer:
        tracks.push(Track(1, 20.0))
        consumer.change(where="speed > :limit", params={"limit": 100})
        tracks.push(Track(2, 20.0))
        tracks.push(Track(3, 200.0))
        assert [track.id for track in consumer.read(timeout=5)] == [1, 3]
        consumer.change()
        tracks.push(Track(4, 0.0))
        assert consumer.pull(5) == Track(4, 0.0)


def test_the_numbered_parameters_of_dds_are_changed_while_events_flow(helio: Rig) -> None:
    """A comparison, BETWEEN and IN, joined by NOT, AND and OR; each with a value that is replaced."""
    tracks = helio.station.channel("t", Track)
    where = "NOT (id = %0) AND (speed BETWEEN %1 AND %2 OR id IN (%3, 99))"
    with tracks.consumer(where=where, params=[1, 10.0, 20.0, 7]) as consumer:
        tracks.push_many([Track(1, 15.0), Track(2, 15.0), Track(3, 25.0), Track(7), Track(99)])
        consumer.change(where=where, params=[2, 20.0, 30.0, 8])
        tracks.push_many([Track(1, 15.0), Track(2, 25.0), Track(3, 25.0), Track(7), Track(8)])
        assert [track.id for track in consumer.read(timeout=5)] == [2, 7, 99, 3, 8]


def test_a_filter_that_is_wrong_changes_nothing(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    with tracks.consumer(where="speed > 10") as consumer:
        with pytest.raises(ExpressionError):
            consumer.change(where="sped > 10")
        tracks.push_many([Track(1, 0.0), Track(2, 20.0)])
        assert [track.id for track in consumer.read(timeout=5)] == [2]


def test_one_of_very_many_receivers_can_change(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    seen: list[int] = []
    for n in range(MERGED + 5):
        tracks.subscribe(lambda _: None, where="id = :n", params={"n": n})
    changing = tracks.subscribe(lambda track: seen.append(track.id), where="id = 1000")
    tracks.push(Track(1000))
    changing.change(where="id = 2000")
    tracks.push_many([Track(1000), Track(2000)])
    changing.change(where="id = 3000 OR speed > 5")
    tracks.push_many([Track(2000), Track(3000), Track(1, 6.0)])
    helio.settle()
    assert seen == [1000, 2000, 3000, 1]


def test_a_durable_consumer_goes_on_by_the_new_filter(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track, qos=hg.QoS(durability="persistent"))
    with tracks.consumer(name="billing", where="speed > 10") as consumer:
        tracks.push_many([Track(1, 20.0), Track(2, 5.0)])
        assert consumer.pull(5) == Track(1, 20.0)
        consumer.change(where="speed < 10")
        tracks.push_many([Track(3, 20.0), Track(4, 5.0)])
        # Only what was read or pushed after the change is sure to meet the new filter.
        assert consumer.read(timeout=5)[-1] == Track(4, 5.0)


def test_a_closed_receiver_and_a_member_of_a_group_cannot_change(helio: Rig) -> None:
    tracks = helio.station.channel("t", Track)
    consumer = tracks.consumer()
    consumer.close()
    with pytest.raises(Closed):
        consumer.change(where="speed > 1")
    with tracks.consumer(group="g") as member, pytest.raises(NotPossible, match="shares one stream"):
        member.change(where="speed > 1")

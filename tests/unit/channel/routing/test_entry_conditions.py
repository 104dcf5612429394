"""Filters that ask for an event's place: what cannot be decided before is a condition of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.routing.filter_index import MERGED
from heliograph.errors import QueueFull

if TYPE_CHECKING:
    from heliograph.testing import Rig


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


EVEN = "bitand(header.sequence, 1) = 0 AND speed > 1"


def pushed(channel: hg.Channel[Any], how: str, tracks: list[Track]) -> None:
    if how == "together":
        channel.push_many(tracks)
    else:
        for track in tracks:
            channel.push(track)


def ids(consumer: hg.Consumer[Any]) -> list[int]:
    found = []
    while (track := consumer.pull(0)) is not None:
        found.append(track.id)
    return found


@pytest.mark.parametrize("how", ["one by one", "together"])
@pytest.mark.parametrize("others", [0, 1, MERGED + 1])
@pytest.mark.parametrize("durability", ["volatile", "transient", "persistent"])
def test_what_a_queue_stops_at_its_entry_is_not_matched(
    helio: Rig, how: str, others: int, durability: Any
) -> None:
    channel = helio.station.channel("air", Track, qos=hg.QoS(durability=durability))
    even = channel.consumer(where=EVEN, start="now")
    rest = [channel.consumer(where=f"speed > {n % 4}", start="now") for n in range(others)]
    pushed(channel, how, [Track(n, n % 3) for n in range(1, 13)])
    channel.settle(10)
    wanted = [n for n in range(1, 13) if n % 2 == 0 and n % 3 > 1]
    stats = channel.stats()
    matched = len(wanted) + sum(sum(m % 3 > n % 4 for m in range(1, 13)) for n in range(others))
    assert (stats.pushed, stats.matched) == (12, matched)
    assert stats.balanced
    assert ids(even) == wanted
    assert all(ids(one) == [m for m in range(1, 13) if m % 3 > n % 4] for n, one in enumerate(rest))


@pytest.mark.parametrize("how", ["one by one", "together"])
@pytest.mark.parametrize("grouped", [False, True])
def test_numbers_have_no_gaps_though_a_queue_that_asks_for_them_is_full(
    helio: Rig, how: str, grouped: bool
) -> None:
    channel = helio.station.channel("air", Track, qos=hg.QoS(max_blocking=0.0))
    options: dict[str, Any] = {"group": "g"} if grouped else {}
    even = channel.consumer(where=EVEN, queue=2, overflow="block", **options)
    everything = channel.consumer(queue=100)
    pushed(channel, how, [Track(n, 9.0) for n in range(1, 5)])
    with pytest.raises(QueueFull):
        pushed(channel, how, [Track(5, 9.0)])
    pushed(channel, how, [Track(6, 0.5)])  # not for the full one, whatever its number
    assert ids(even) == [2, 4]
    pushed(channel, how, [Track(7, 9.0)])
    numbers = [delivery.header.sequence for delivery in everything.deliveries(timeout=0)]
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert ids(even) == [7]
    assert channel.stats().balanced

"""An event whose lifespan ends while it waits to be handed out is not, however it is received."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.channel import Channel
    from heliograph.testing import Rig

LIMIT = 10.0
LIFESPAN = 5.0
EVENTS = 5


class Track(hg.Event, name="air.track"):
    id: int


@pytest.fixture(params=["volatile", "persistent"])
def tracks(request: pytest.FixtureRequest, helio: Rig) -> Iterator[Channel[Track]]:
    qos = hg.QoS(lifespan=LIFESPAN, durability=request.param)
    channel = helio.station.channel("air.tracks", Track, qos=qos)
    yield channel
    assert channel.stats().balanced


def push_all(tracks: Channel[Track]) -> None:
    tracks.push_many([Track(n) for n in range(EVENTS)])


@pytest.mark.parametrize("options", [{}, {"group": "all"}, {"dispatch": "deadline"}], ids=str)
def test_what_waited_behind_a_slow_call_is_not_called_with(
    helio: Rig, tracks: Channel[Track], options: dict[str, Any]
) -> None:
    seen: list[int] = []

    def slow(track: Track) -> None:
        seen.append(track.id)
        helio.clock.advance(2)

    tracks.subscribe(slow, **options)
    push_all(tracks)
    assert wait_until(lambda: tracks.stats().total.expired == EVENTS - 3)  # groups of a history do not settle
    assert seen == [0, 1, 2]


def test_what_waited_behind_a_slow_await_is_not_called_with(helio: Rig, tracks: Channel[Track]) -> None:
    seen: list[int] = []

    async def slow(track: Track) -> None:
        seen.append(track.id)
        helio.clock.advance(2)
        await asyncio.sleep(0)

    tracks.subscribe(slow)
    push_all(tracks)
    helio.settle()
    assert seen == [0, 1, 2]
    assert tracks.stats().total.expired == EVENTS - 3


def test_pull_gives_nothing_that_is_too_old(helio: Rig, tracks: Channel[Track]) -> None:
    consumer = tracks.consumer()
    push_all(tracks)
    assert consumer.pull(LIMIT) == Track(0)
    helio.clock.advance(6)
    assert consumer.pull(0) is None
    tracks.push(Track(99))
    assert consumer.pull(LIMIT) == Track(99)
    assert (consumer.counts().delivered, consumer.counts().expired) == (2, EVENTS - 1)


def test_asyncio_gets_nothing_that_is_too_old(helio: Rig, tracks: Channel[Track]) -> None:
    async def received() -> list[int]:
        seen: list[int] = []
        async with tracks.consumer() as consumer:
            push_all(tracks)
            async for track in consumer:
                seen.append(track.id)
                if track.id == 99:
                    return seen
                helio.clock.advance(3)
                if len(seen) == 2:
                    tracks.push(Track(99))
        return seen

    assert asyncio.run(asyncio.wait_for(received(), LIMIT)) == [0, 1, 99]


@pytest.mark.parametrize("options", [{}, {"group": "all", "ack": "manual"}], ids=str)
def test_what_was_refused_does_not_come_again_when_it_is_too_old(
    helio: Rig, tracks: Channel[Track], options: dict[str, Any]
) -> None:
    with tracks.consumer(**options) as consumer:
        push_all(tracks)
        deliveries = consumer.deliveries(timeout=0)
        first = next(deliveries)
        first.nak()
        helio.clock.advance(6)
        assert list(deliveries) == []
        tracks.push(Track(99))
        assert next(consumer.deliveries(timeout=LIMIT)).event == Track(99)
        assert tracks.stats().total.expired == EVENTS


def test_what_expired_is_settled_for_a_durable_consumer(helio: Rig) -> None:
    qos = hg.QoS(lifespan=LIFESPAN, durability="persistent")
    tracks = helio.station.channel("air.tracks", Track, qos=qos)
    with tracks.consumer(name="billing") as consumer:
        push_all(tracks)
        assert consumer.pull(LIMIT) == Track(0)
        helio.clock.advance(6)
        assert consumer.pull(0) is None
    with tracks.consumer(name="billing", until="now") as again:
        assert list(again) == []
        assert again.counts().total == 0

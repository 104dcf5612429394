"""A receiver that feeds a cache: back-pressure when the cache is full, and nothing lost or out of order."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Tick(hg.Event, name="feed.tick"):
    n: int


class Cache:
    """Takes so many events."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.got: list[int] = []

    def offer(self, event: Any, _: hg.Header) -> bool:
        if self.room == 0:
            return False
        self.room -= 1
        self.got.append(event.n)
        return True


@pytest.fixture
def channel() -> Iterator[hg.Channel[Tick]]:
    with hg.Station() as station:
        yield station.channel("ticks", Tick, qos=hg.QoS(max_blocking=0.02))


def test_what_is_not_taken_waits_and_a_full_queue_holds_up_the_supplier(channel: hg.Channel[Tick]) -> None:
    cache = Cache(2)
    feed = channel.feed_cache(cache.offer, queue=3)
    for n in range(5):
        channel.push(Tick(n))
    with pytest.raises(hg.QueueFull):
        channel.push(Tick(5))
    assert cache.got == [0, 1]
    feed.resume()
    assert cache.got == [0, 1], "there is no room yet"
    cache.room = 2
    feed.resume()
    assert cache.got == [0, 1, 2, 3]
    channel.push(Tick(5))
    cache.room = 9
    feed.resume()
    assert cache.got == [0, 1, 2, 3, 4, 5]
    counts = channel.stats().consumers[feed.name]
    assert (counts.delivered, counts.pending) == (6, 0)


def test_a_cache_that_raises_is_reported_and_fed_on() -> None:
    told: list[BaseException] = []
    with hg.Station(on_error=lambda _, __, error: told.append(error)) as station:
        channel = station.channel("ticks", Tick)
        got: list[int] = []

        def offer(event: Any, _: hg.Header) -> bool:
            got.append(event.n)
            if event.n == 1:
                raise ValueError("no")
            return True

        channel.feed_cache(offer)
        for n in range(3):
            channel.push(Tick(n))
        assert got == [0, 1, 2]
        assert wait_until(lambda: [str(error) for error in told] == ["no"])


def test_events_come_once_and_in_order_while_others_push_and_make_room(channel: hg.Channel[Tick]) -> None:
    cache = Cache(1)
    feed = channel.feed_cache(cache.offer, queue=50)
    total = 2_000

    def push_all() -> None:
        with channel.supplier() as supplier:
            for n in range(total):
                while True:
                    try:
                        supplier.push(Tick(n))
                        break
                    except hg.QueueFull:
                        continue

    pusher = Thread(target=push_all)
    pusher.start()

    def all_came() -> bool:
        cache.room += 7
        feed.resume()
        return len(cache.got) == total

    assert wait_until(all_came)
    pusher.join()
    assert cache.got == list(range(total))

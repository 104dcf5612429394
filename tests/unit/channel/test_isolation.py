"""A callback that does not return: who is held up by it, and what becomes of its events."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import heliograph as hg
from heliograph.errors import CallbackSuspended, ConsumerSuspended
from tests.e2e.link_support import wait_until

LIMIT = 30.0


class Track(hg.Event, name="isolation.track"):
    id: int


def test_a_callback_that_does_not_return_while_its_queue_is_full_holds_up_nobody_and_joins_again() -> None:
    errors: list[Any] = []
    told, go, caught_up, again = (threading.Event() for _ in range(4))
    healthy: list[int] = []
    sick: list[int] = []

    def on_error(_: str, __: object, error: BaseException) -> None:
        errors.append(error)
        told.set()

    def hangs(track: Track) -> None:
        sick.append(track.id)
        if track.id == 0:
            go.wait(LIMIT)
        if track.id == 1000:
            again.set()

    def goes_on(track: Track) -> None:
        healthy.append(track.id)
        if track.id == 199:
            caught_up.set()

    with hg.Station(on_error=on_error) as station:
        tracks = station.channel("tracks", Track, qos=hg.QoS(queue=10, max_blocking=LIMIT))
        tracks.subscribe(goes_on, name="healthy")
        tracks.subscribe(hangs, name="sick", queue=10)
        for n in range(200):
            tracks.push(Track(n))
        assert caught_up.wait(LIMIT)
        assert healthy == list(range(200))
        assert told.wait(LIMIT)
        assert [type(error) for error in errors] == [CallbackSuspended]
        dropped = tracks.stats().consumers["sick"].dropped["suspended"]
        assert dropped + len(sick) + tracks.stats().consumers["sick"].pending - 1 == 200
        assert tracks.stats().balanced
        go.set()
        queue = next(r.queue for r in tracks.receivers() if r.name == "sick")  # type: ignore[attr-defined]  # it has a queue
        assert queue.wait_empty(LIMIT)
        assert not queue.suspended
        tracks.push(Track(1000))
        assert again.wait(LIMIT)
        assert tracks.stats().balanced
        assert tracks.stats().consumers["sick"].dropped == {"suspended": dropped}


def test_an_async_callback_that_does_not_return_is_suspended_as_any_other_and_joins_again() -> None:
    errors: list[Any] = []
    go, again = threading.Event(), threading.Event()
    healthy: list[int] = []

    async def hangs(track: Track) -> None:
        if track.id == 0:
            await asyncio.to_thread(go.wait, LIMIT)
        if track.id == 1000:
            again.set()

    with hg.Station(on_error=lambda _, __, error: errors.append(error)) as station:
        tracks = station.channel("tracks", Track, qos=hg.QoS(max_blocking=LIMIT))
        tracks.subscribe(lambda track: healthy.append(track.id))
        sick = tracks.subscribe(hangs, queue=10)
        for n in range(200):
            tracks.push(Track(n))
        assert wait_until(lambda: healthy == list(range(200)))
        assert wait_until(lambda: [type(error) for error in errors] == [CallbackSuspended])
        dropped = sick.counts().dropped["suspended"]
        assert dropped + sick.counts().pending == 200
        go.set()
        assert tracks.settle(LIMIT)
        tracks.push(Track(1000))
        assert again.wait(LIMIT)
        assert sick.counts().dropped == {"suspended": dropped}
        assert tracks.stats().balanced


def test_a_consumer_that_is_not_asked_refuses_a_push_and_then_holds_up_nobody_until_it_is_asked() -> None:
    errors: list[Any] = []
    healthy: list[int] = []
    with hg.Station(on_error=lambda _, __, error: errors.append(error)) as station:
        tracks = station.channel("tracks", Track, qos=hg.QoS(queue=10, max_blocking=1.2))
        tracks.subscribe(lambda track: healthy.append(track.id), queue=10_000)
        consumer = tracks.consumer(name="forgotten")
        for n in range(10):
            tracks.push(Track(n))
        with pytest.raises(hg.QueueFull, match="forgotten"):
            tracks.push(Track(10))
        for n in range(10, 100):
            tracks.push(Track(n))
        assert wait_until(lambda: healthy == list(range(100)))
        assert wait_until(lambda: [type(error) for error in errors] == [ConsumerSuspended])
        assert tracks.stats().consumers["forgotten"].dropped == {"suspended": 90}
        assert [track.id for track in consumer.read(100, timeout=0)] == list(range(10))
        tracks.push(Track(100))
        assert consumer.pull(LIMIT) == Track(100)
        assert tracks.stats().balanced


def test_a_consumer_that_is_alone_or_has_not_been_idle_for_long_refuses_each_push() -> None:
    with hg.Station() as station:
        alone = station.channel("alone", Track, qos=hg.QoS(queue=1, max_blocking=1.2))
        only = alone.consumer()
        alone.push(Track(0))
        shared = station.channel("shared", Track, qos=hg.QoS(queue=1, max_blocking=0.01))
        shared.subscribe(lambda _: None)
        idle = shared.consumer()
        shared.push(Track(0))
        for channel in (alone, alone, shared, shared):
            with pytest.raises(hg.QueueFull):
                channel.push(Track(1))
        for consumer in (only, idle):
            assert consumer.read(10, timeout=0) == [Track(0)]
            assert consumer.counts().dropped == {}

"""A callback that does not return: who is held up by it, and what becomes of its events."""

from __future__ import annotations

import threading
from typing import Any

import heliograph as hg
from heliograph.errors import CallbackSuspended

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
        lane = next(r.lane for r in tracks.receivers() if r.name == "sick")  # type: ignore[attr-defined]  # it has a queue
        assert lane.wait_empty(LIMIT)
        assert not lane.suspended
        tracks.push(Track(1000))
        assert again.wait(LIMIT)
        assert tracks.stats().balanced
        assert tracks.stats().consumers["sick"].dropped == {"suspended": dropped}

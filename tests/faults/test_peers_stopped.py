"""SIGSTOP of a station with default settings: it is suspected, holds up nobody, and heals by itself."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.e2e.link_programs import Program, heard
from tests.e2e.link_support import (
    LIMIT,
    TRANSPORT,
    Track,
    own_meeting_folder,
    push_until_full,
    transport,
    wait_until,
)
from tests.ring_support import needs_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


QUEUE = 100
"""Events that wait while a peer makes no room; with the ring full they are not written for it."""


@pytest.fixture(params=["socket", pytest.param("ring", marks=needs_rings)])
def run(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Program]]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(TRANSPORT, request.param)
    programs: list[Program] = []

    def start(*arguments: str) -> Program:
        programs.append(Program(*arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.clean_up()


def test_a_stopped_peer_holds_up_nobody_for_longer_than_seconds_and_heals_by_itself(
    run: Callable[..., Program],
) -> None:
    with hg.Station(domain="e2e", transport=transport()) as station:
        tracks = station.channel("x", Track, qos=hg.QoS(queue=QUEUE, max_blocking=0.05))
        here: list[int] = []
        tracks.subscribe(lambda track: here.append(track.id), inline=True)
        healthy, stopped = run("hear", "x"), run("hear", "x")
        assert tracks.wait_matched(3, LIMIT)
        stopped.stop()
        pushed = full = push_until_full(tracks)

        def flows() -> bool:
            with suppress(hg.QueueFull):
                return tracks.push(Track(pushed))
            return False

        assert wait_until(flows, 10.0), "it still holds up the others"
        pushed += 1
        for _ in range(1_000):
            tracks.push(Track(pushed))
            pushed += 1
        assert here == list(range(pushed))
        assert wait_until(lambda: heard(healthy)[:2] == ({"x": pushed}, True))
        assert tracks.stats().balanced
        assert station.mesh is not None
        assert len(station.mesh.suspected) == 1
        assert station.mesh.meet_all(LIMIT), "nobody waits for it who opens a channel or takes a name"

        stopped.go_on()
        assert tracks.wait_matched(3, LIMIT)
        assert not station.mesh.suspected
        # It reads what it had been sent, and tells: what it got and what it missed is known to the event.
        if transport() == "socket":
            assert wait_until(lambda: delivered(tracks) == 2 * pushed + heard(stopped)[0]["x"])
        else:  # a broadcast counts for all stations together, so the losses of one are with its link
            assert wait_until(lambda: sum(got_and_missed(stopped)) == full - QUEUE)
        before = heard(stopped)[0]["x"]
        for _ in range(100):
            tracks.push(Track(pushed))
            pushed += 1
        assert wait_until(lambda: heard(stopped)[:2] == ({"x": before + 100}, True)), heard(stopped)
        assert wait_until(lambda: heard(healthy)[:2] == ({"x": pushed}, True))
        assert wait_until(lambda: not tracks.stats().total.pending)
        assert tracks.stats().total.dropped, "it was held up, and missed some"
        assert tracks.stats().balanced


def delivered(tracks: hg.Channel[Track]) -> int:
    """What the ledger says that all receivers have got."""
    return tracks.stats().total.delivered


def got_and_missed(hearer: Program) -> tuple[int, int]:
    counts, _, missed = heard(hearer)
    return counts["x"], missed.get("x", 0)

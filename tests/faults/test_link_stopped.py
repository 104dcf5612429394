"""SIGSTOP of a process that hears a broadcast: what it missed is known on both sides, to the event."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.links.broadcast import reader_admission as airing
from heliograph.links.broadcast.carrier_choice import NORMAL
from tests.e2e.link_programs import Program, heard
from tests.e2e.link_support import (
    LIMIT,
    TRANSPORT,
    Track,
    own_meeting_folder,
    push_until_full,
    wait_until,
)
from tests.ring_support import Later, needs_rings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_rings

NOTHING_LOSSY = {"lossy.x": 0, "lossy.y": 0}


@pytest.fixture
def hearer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Program]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(TRANSPORT, "ring")
    program = Program("hear", "x", "y", "lossy.x", "lossy.y")
    yield program
    program.clean_up()


def test_a_stopped_process_is_dropped_and_knows_how_many_events_of_which_channel_it_missed(
    hearer: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 8)
    monkeypatch.setattr(airing, "LEASE", 3_600.0)
    with (
        hg.Station(domain="e2e", transport="ring") as station,
        hg.Station(domain="e2e", transport="ring") as other,
    ):
        qos = hg.QoS(queue=300, max_blocking=0.01)
        first, second = (station.channel(name, Track, qos=qos) for name in ("x", "y"))
        seen: list[int] = []
        other.channel("y", Track, qos=qos).subscribe(lambda track: seen.append(track.id), inline=True)
        assert first.wait_matched(1, LIMIT)
        assert second.wait_matched(2, LIMIT)
        for i in range(5):
            first.push(Track(i))
            second.push(Track(i))
        assert wait_until(lambda: heard(hearer)[0] == {"x": 5, "y": 5} | NOTHING_LOSSY)
        for channel in (first, second):
            assert wait_until(lambda: not channel.stats().total.pending), "it has said so"  # noqa: B023 - called at once

        assert station.mesh is not None
        later = Later.of(station.mesh._airing._broadcasts[NORMAL].ring)
        hearer.stop()
        pushed = {"x": 5, "y": 5}
        for i in range(5, 25):
            second.push(Track(i))
            pushed["y"] += 1
        pushed["x"] += push_until_full(first, lambda i: Track(5 + i))

        later.by_ns = 3_600 * 10**9
        assert wait_until(lambda: overtaken_by(station)), "without a word from the other process"
        overtaken = overtaken_by(station)
        assert wait_until(lambda: len(seen) == 25), "who hears on gets all"
        for channel in (first, second):
            assert wait_until(lambda: channel.stats().balanced)  # noqa: B023 - called at once
        assert second.stats().total.dropped == {"overtaken": overtaken["y"]}

        hearer.go_on()
        assert wait_until(lambda: heard(hearer)[2] == overtaken)
        assert first.wait_matched(1, LIMIT)
        assert second.wait_matched(2, LIMIT)
        second.push(Track(1_000))
        # It may have read some before the signal came.
        got = {name: pushed[name] - overtaken[name] + (name == "y") for name in pushed} | NOTHING_LOSSY
        assert wait_until(lambda: heard(hearer)[:2] == (got, True)), (got, heard(hearer))
        assert {one.reason for one in station.mesh.carriers("y")} == {"", airing.OVERTAKEN}


def test_a_stopped_process_holds_no_best_effort_channel_up_and_knows_what_it_missed_of_each(
    hearer: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 10)
    with hg.Station(domain="e2e", transport="ring") as station:
        qos = hg.QoS(reliability="best-effort")
        first, second = (station.channel(name, Track, qos=qos) for name in NOTHING_LOSSY)
        assert first.wait_matched(1, LIMIT)
        assert second.wait_matched(1, LIMIT)
        first.push(Track(0))
        second.push(Track(0))
        assert wait_until(lambda: heard(hearer)[0]["lossy.y"] == 1)
        hearer.stop()
        for i in range(1, 2_001):
            first.push(Track(i))
        for start in range(1, 501, 100):
            second.push_many([Track(start + i) for i in range(100)])
        hearer.go_on()

        def adds_up() -> bool:
            counts, ordered, missed = heard(hearer)
            assert ordered
            got = [counts[name] + missed.get(name, 0) for name in NOTHING_LOSSY]
            return got == [2_001, 501] and bool(missed)

        assert wait_until(adds_up), heard(hearer)
        assert first.stats().total.dropped == second.stats().total.dropped == {}
        first.push(Track(5_000))
        before = heard(hearer)[2]
        assert wait_until(lambda: sum(heard(hearer)[0].values()) + sum(before.values()) == 2_503)


def overtaken_by(station: hg.Station) -> dict[str, int]:
    """What others did not get of a station's broadcast."""
    assert station.mesh is not None
    return dict(sum((Counter(link.overtaken) for link in station.mesh.stats()), Counter()))

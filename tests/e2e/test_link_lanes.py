"""The lanes of a broadcast: what is of high priority, and what may get lost, do not wait behind all else."""

from __future__ import annotations

from collections import Counter
from threading import Event
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.links.broadcast import carrier_choice
from heliograph.links.broadcast import chunk_throttle as pacing
from heliograph.links.broadcast import reader_admission as airing
from heliograph.ring import RingFolder
from tests.e2e.link_support import (
    LIMIT,
    Track,
    domain_with_rings,
    own_meeting_folder,
    push_until_full,
    ring_station,
    wait_until,
)
from tests.ring_support import Later, needs_rings, without_room_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_rings

BEST_EFFORT = hg.QoS(reliability="best-effort")
HIGH = hg.QoS(priority=5)


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    own_meeting_folder(monkeypatch, tmp_path)
    yield from domain_with_rings()


def lanes_of(domain: str, station: hg.Station) -> list[int]:
    """Those of its broadcast that have a ring; lane 0 is for links."""
    return [ring.lane for ring in RingFolder(domain).rings() if ring.station == station.id and ring.lane]


def missed(station: hg.Station) -> dict[str, int]:
    assert station.mesh is not None
    return dict(sum((Counter(link.missed) for link in station.mesh.stats()), Counter()))


def carriers(station: hg.Station, channel: str) -> set[str]:
    """How a channel's events reach others: by broadcast, or why not."""
    assert station.mesh is not None
    return {one.reason or one.carrier for one in station.mesh.carriers(channel)}


class Stuck:
    """A subscription whose inline callback waits at its first event."""

    def __init__(self, channel: hg.Channel[Track]) -> None:
        self.seen: list[int] = []
        self.go_on = Event()
        channel.subscribe(self._take, inline=True)

    def _take(self, track: Track) -> None:
        self.seen.append(track.id)
        self.go_on.wait(3 * LIMIT)


def test_a_lane_is_made_when_a_channel_first_needs_it(domain: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        made: list[int] = []
        for name, qos, lane in (
            ("kept", hg.QoS(durability="transient"), None),
            ("x", hg.QoS(), carrier_choice.NORMAL),
            ("urgent", HIGH, carrier_choice.HIGH),
            ("lossy", BEST_EFFORT, carrier_choice.BEST_EFFORT),
        ):
            ours = a.channel(name, Track, qos=qos)
            assert lanes_of(domain, a) == made, "what nobody wants needs none"
            consumer = b.channel(name, Track, qos=qos).consumer()
            assert ours.wait_matched(1, LIMIT)
            made += [] if lane is None else [lane]
            assert lanes_of(domain, a) == made
            ours.push(Track(1))
            assert consumer.pull(LIMIT) == Track(1)
            assert carriers(a, name) == {"ring" if lane else "its events are kept"}
        assert lanes_of(domain, b) == []


def test_events_of_high_priority_are_not_behind_a_full_ring_of_others(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 9)
    qos = hg.QoS(queue=10, max_blocking=0.05)
    with ring_station(domain) as a, ring_station(domain) as b:
        low, high = a.channel("x", Track, qos=qos), a.channel("urgent", Track, qos=HIGH)
        stuck = Stuck(b.channel("x", Track, qos=qos))
        consumer = b.channel("urgent", Track, qos=HIGH).consumer()
        assert low.wait_matched(1, LIMIT)
        assert high.wait_matched(1, LIMIT)
        pushed = push_until_full(low)
        for i in range(100):
            high.push(Track(i))
            assert consumer.pull(LIMIT) == Track(i)
        assert len(stuck.seen) == 1
        stuck.go_on.set()
        assert wait_until(lambda: stuck.seen == list(range(pushed)))
        assert low.stats().balanced
        assert high.stats().balanced


def test_a_lane_goes_on_without_a_station_that_still_holds_up_another(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 9)
    monkeypatch.setattr(airing, "LEASE", 3_600.0)
    monkeypatch.setattr(airing, "DRAIN_LIMIT", 0.1)
    qos, urgent = hg.QoS(queue=10, max_blocking=0.05), hg.QoS(queue=10, max_blocking=0.05, priority=5)
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        low, high = a.channel("x", Track, qos=qos), a.channel("urgent", Track, qos=urgent)
        stuck = [Stuck(b.channel("x", Track, qos=qos)), Stuck(b.channel("urgent", Track, qos=urgent))]
        heard: list[int] = []
        c.channel("urgent", Track, qos=urgent).subscribe(lambda track: heard.append(track.id), inline=True)
        assert low.wait_matched(1, LIMIT)
        assert high.wait_matched(2, LIMIT)
        assert a.mesh is not None
        later = Later.of(a.mesh._airing._broadcasts[carrier_choice.HIGH].ring)
        push_until_full(low)
        pushed = push_until_full(high)
        later.by_ns = 3_600 * 10**9
        assert wait_until(lambda: len(heard) == pushed)
        for one in stuck:
            one.go_on.set()
        assert wait_until(lambda: len(stuck[1].seen) + missed(b).get("urgent", 0) == pushed)
        assert high.stats().balanced


def test_who_falls_behind_a_best_effort_channel_knows_what_it_missed_and_nobody_waits_for_it(
    domain: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 10)
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        ours, other = (a.channel(name, Track, qos=BEST_EFFORT) for name in ("lossy", "other"))
        stuck = Stuck(b.channel("lossy", Track, qos=BEST_EFFORT))
        quick = b.channel("other", Track, qos=BEST_EFFORT).consumer()
        heard: list[int] = []
        c.channel("lossy", Track, qos=BEST_EFFORT).subscribe(
            lambda track: heard.append(track.id), inline=True
        )
        assert ours.wait_matched(2, LIMIT)
        assert other.wait_matched(1, LIMIT)
        assert carriers(a, "lossy") == {"ring"}
        ours.push(Track(0))
        assert wait_until(lambda: stuck.seen == [0])
        other.push(Track(0))
        for start in range(1, 4_001, 50):
            for i in range(start, start + 40):
                ours.push(Track(i))
            ours.push_many([Track(i) for i in range(start + 40, start + 50)])
            assert wait_until(lambda: len(heard) == start + 50), "who keeps up loses nothing"  # noqa: B023 - at once
        assert heard == list(range(4_001))
        stuck.go_on.set()
        # Nothing is pushed any more: what it missed at the end is known all the same.
        assert wait_until(lambda: len(stuck.seen) + missed(b).get("lossy", 0) == 4_001)
        got = len([1 for _ in iter(lambda: quick.pull(0), None)])
        assert wait_until(lambda: got + missed(b).get("other", 0) == 1)
        assert len(stuck.seen) < 4_001
        ours.push(Track(10_000))
        assert wait_until(lambda: stuck.seen[-1] == 10_000), "it goes on"
        assert stuck.seen == sorted(set(stuck.seen))
        assert missed(c) == {}
        assert ours.stats().balanced
        assert ours.stats().total.dropped == {}
    assert "were overtaken before they were read" in caplog.text


def test_a_station_that_leaves_a_best_effort_channel_behind_time_knows_what_it_missed_until_then(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 10)
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        ours, kept = (a.channel(name, Track, qos=BEST_EFFORT) for name in ("lossy", "stuck"))
        stuck = Stuck(b.channel("stuck", Track, qos=BEST_EFFORT))
        theirs = b.channel("lossy", Track, qos=BEST_EFFORT)
        leaving = theirs.consumer()
        c.channel("lossy", Track, qos=BEST_EFFORT).consumer()  # so that the channel goes on
        assert ours.wait_matched(2, LIMIT)
        assert kept.wait_matched(1, LIMIT)
        kept.push(Track(0))
        assert wait_until(lambda: stuck.seen == [0])
        for i in range(500):
            ours.push(Track(i))
        assert ours.settle(LIMIT)  # what waits to be written when it leaves is not for it any more
        leaving.close()
        assert wait_until(lambda: not ours.wait_matched(2, 0))
        for i in range(500):
            ours.push(Track(i))
        stuck.go_on.set()
        assert wait_until(lambda: missed(b) == {"lossy": 500})
        again = theirs.consumer()
        assert ours.wait_matched(2, LIMIT)
        ours.push(Track(1))
        assert again.pull(LIMIT) == Track(1)
        assert missed(b) == {"lossy": 500}


@pytest.mark.parametrize("size", [1_100_000, 3_000_000])
def test_best_effort_events_larger_than_the_ring_come_whole_to_who_reads_on(
    domain: str, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(pacing, "PIECE_LIMIT", LIMIT)  # on a busy machine, too, both read on in time
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        ours = a.channel("large", Track, qos=BEST_EFFORT)
        heard = [station.channel("large", Track, qos=BEST_EFFORT).consumer() for station in (b, c)]
        assert ours.wait_matched(2, LIMIT)
        assert carriers(a, "large") == {"ring"}
        pushed = [Track(i, region=str(i) * size) for i in range(4)]
        for track in pushed:
            ours.push(track)
        ours.push(Track(4))
        for consumer in heard:
            assert [consumer.pull(LIMIT) for _ in range(5)] == [*pushed, Track(4)]
        assert missed(b) == missed(c) == {}
        (counts,) = ours.stats().consumers.values()
        assert (counts.delivered, counts.dropped) == (5, {})


def test_a_large_best_effort_event_that_a_station_could_not_read_in_time_counts_as_overtaken(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 10)
    monkeypatch.setattr(pacing, "PIECE_LIMIT", 0.01)
    with ring_station(domain) as a, ring_station(domain) as b:
        kept, ours = (a.channel(name, Track, qos=BEST_EFFORT) for name in ("stuck", "large"))
        stuck = Stuck(b.channel("stuck", Track, qos=BEST_EFFORT))
        consumer = b.channel("large", Track, qos=BEST_EFFORT).consumer()
        assert ours.wait_matched(1, LIMIT)
        assert kept.wait_matched(1, LIMIT)
        kept.push(Track(0))
        assert wait_until(lambda: stuck.seen == [0])
        for i in (1, 2):
            ours.push(Track(i, region="x" * 100_000))
        assert wait_until(lambda: ours.stats().total.dropped == {"overtaken": 2})
        assert ours.stats().total.delivered == 0
        assert ours.stats().balanced
        monkeypatch.setattr(pacing, "PIECE_LIMIT", LIMIT)
        stuck.go_on.set()
        assert wait_until(lambda: missed(b) == {"large": 2}), "as many as the supplier knows of"
        ours.push(large := Track(3, region="y" * 100_000))
        assert consumer.pull(LIMIT) == large
        assert ours.stats().total.dropped == {"overtaken": 2}


def test_without_room_for_one_lane_its_channels_go_by_link_and_say_why(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = without_room_for(carrier_choice.HIGH, monkeypatch)
    with ring_station(domain) as a, ring_station(domain) as b:
        for name, qos, carrier in (
            ("x", hg.QoS(), "ring"),
            ("urgent", HIGH, str(error)),
        ):
            ours, consumer = a.channel(name, Track, qos=qos), b.channel(name, Track, qos=qos).consumer()
            assert ours.wait_matched(1, LIMIT)
            ours.push(Track(1))
            assert consumer.pull(LIMIT) == Track(1)
            assert carriers(a, name) == {carrier}

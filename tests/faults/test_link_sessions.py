"""A station that is struck off, or begins anew, while its reader stands still: sessions are told apart."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.links.broadcast import carrier_choice
from heliograph.links.broadcast import reader_admission as airing
from heliograph.ring.writer import SHORT_LEASE
from tests.e2e.link_support import (
    LIMIT,
    Track,
    domain_with_rings,
    own_meeting_folder,
    push_until_full,
    ring_station,
    wait_until,
)
from tests.ring_support import Later, needs_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from heliograph.links.broadcast.gateway import ReaderSession
    from heliograph.links.broadcast.publisher import Broadcast
    from heliograph.links.mesh.peer import Peer

pytestmark = needs_rings

LEASE = 3_600.0
QOS = hg.QoS(queue=300, max_blocking=0.05)


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setattr(airing, "SLOTS", 1 << 8)
    monkeypatch.setattr(airing, "LEASE", LEASE)
    monkeypatch.setattr(airing, "DRAIN_LIMIT", 0.1)
    yield from domain_with_rings()


def broadcast_of(station: hg.Station) -> Broadcast:
    assert station.mesh is not None
    return station.mesh._airing._broadcasts[carrier_choice.NORMAL]


def peer_of(station: hg.Station, other: hg.Station) -> Peer:
    assert station.mesh is not None
    return station.mesh._peers[other.id]


def hearer_of(station: hg.Station, other: hg.Station) -> ReaderSession | None:
    """The session in which another one hears a station by ring, if it does now."""
    assert station.mesh is not None
    peer = station.mesh._peers.get(other.id)
    return None if peer is None else peer.rings.reads.get(carrier_choice.NORMAL)


def is_broadcast(station: hg.Station, channel: str) -> bool:
    assert station.mesh is not None
    return {one.carrier for one in station.mesh.carriers(channel)} == {"ring"}


def overtaken(station: hg.Station) -> int:
    assert station.mesh is not None
    return sum(sum(link.overtaken.values()) for link in station.mesh.stats())


def missed(station: hg.Station) -> int:
    assert station.mesh is not None
    return sum(sum(link.missed.values()) for link in station.mesh.stats())


def end_lease(station: hg.Station, hearer: ReaderSession | None, later: Later) -> None:
    """Once it is seen that a reader holds the writer up; and only its lease."""
    assert hearer is not None
    ring = broadcast_of(station).ring
    if hearer.is_ended:
        later.by_ns = 0
    elif ring.held_up_by == hearer.row and hearer.row in ring._standing:
        later.by_ns = round(LEASE * 1e9)


def end_lease_of(station: hg.Station, other: hg.Station) -> None:
    """The same for one whose reader keeps the ring full now."""
    ring, hearer = broadcast_of(station).ring, hearer_of(station, other)
    assert hearer is not None
    later = Later.of(ring)
    assert wait_until(lambda: ring.held_up_by == hearer.row and hearer.row in ring._standing)
    later.by_ns = round(LEASE * 1e9)


class Stuck:
    """An inline callback that stays in its first event until it may go on."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.go_on = Event()

    def __call__(self, track: Track) -> None:
        self.seen.append(track.id)
        if len(self.seen) == 1:
            self.go_on.wait(3 * LIMIT)


def push_all(
    channel: hg.Channel[Track], numbers: range, on_full: Callable[[], object], heard: list[int]
) -> None:
    """Push, and wait until all is heard that was pushed here or before; what was queued needs room too."""

    def is_heard() -> bool:
        on_full()
        return len(heard) == numbers.stop

    for number in numbers:

        def is_pushed(number: int = number) -> bool:
            try:
                channel.push(Track(number))
            except hg.QueueFull:
                on_full()
                return False
            return True

        assert wait_until(is_pushed)
    assert wait_until(is_heard)


def push_and_be_stuck(channel: hg.Channel[Track], *stuck: Stuck) -> None:
    """The first event is in hand, and 19 are in the ring."""
    channel.push(Track(0))
    assert wait_until(lambda: all(one.seen == [0] for one in stuck))
    for i in range(1, 20):
        channel.push(Track(i))
    assert channel.settle(LIMIT), "what waits when a station leaves is not for it any more"


@pytest.mark.parametrize("how", ["struck off", "begins anew"])
def test_a_reader_whose_session_is_over_ends_no_other_session_and_what_it_missed_is_known(
    domain: str, how: str
) -> None:
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        ours, stuck, heard = a.channel("x", Track, qos=QOS), Stuck(), []
        b.channel("x", Track, qos=QOS).subscribe(stuck, inline=True)
        c.channel("x", Track, qos=QOS).subscribe(lambda track: heard.append(track.id), inline=True)
        assert ours.wait_matched(2, LIMIT)
        push_and_be_stuck(ours, stuck)
        before = hearer_of(a, b)
        later = Later.of(broadcast_of(a).ring)
        assert a.mesh is not None
        if how == "struck off":
            a.mesh._gone(b.id)
        else:
            peer_of(b, a).link.begin_anew()
        assert wait_until(lambda: hearer_of(a, b) not in (None, before))
        assert ours.wait_matched(2, LIMIT)
        session = peer_of(a, b).link.session

        def on_full() -> None:
            if how == "begins anew":  # who was struck off has no lease
                end_lease(a, before, later)

        push_all(ours, range(20, 1_020), on_full, heard)
        assert wait_until(lambda: len(stuck.seen) == 1_001), "the new session hears all"
        assert peer_of(a, b).link.session == session, "and is not ended"
        assert is_broadcast(a, "x")
        assert wait_until(lambda: missed(b) == overtaken(a) > 0), (missed(b), overtaken(a))
        stats = ours.stats()
        assert stats.balanced
        assert stats.total.dropped == {"overtaken": overtaken(a)}
        stuck.go_on.set()
        assert wait_until(lambda: len(stuck.seen) + missed(b) == 1_020), (len(stuck.seen), missed(b))
        assert stuck.seen == [0, *range(20, 1_020)]


def test_an_event_that_several_stations_wanted_and_did_not_get_counts_once_in_the_ledger(domain: str) -> None:
    with (
        ring_station(domain) as a,
        ring_station(domain) as b,
        ring_station(domain) as c,
        ring_station(domain) as d,
    ):
        ours, heard = a.channel("x", Track, qos=QOS), []
        by_twos, by_threes = Stuck(), Stuck()
        b.channel("x", Track, qos=QOS).subscribe(by_twos, where="id % 2 = 0", inline=True)
        c.channel("x", Track, qos=QOS).subscribe(lambda track: heard.append(track.id), inline=True)
        d.channel("x", Track, qos=QOS).subscribe(by_threes, where="id % 3 = 0", inline=True)
        assert ours.wait_matched(3, LIMIT)
        push_and_be_stuck(ours, by_twos, by_threes)
        assert a.mesh is not None
        before = [hearer_of(a, b), hearer_of(a, d)]
        for other in (b, d):
            a.mesh._gone(other.id)
        assert wait_until(lambda: {hearer_of(a, b), hearer_of(a, d)}.isdisjoint([None, *before]))
        assert ours.wait_matched(3, LIMIT)
        push_all(ours, range(20, 1_020), lambda: None, heard)
        assert wait_until(lambda: (missed(b), missed(d)) == (9, 6)), (missed(b), missed(d))
        stats = ours.stats()
        assert stats.balanced
        assert stats.total.dropped == {"overtaken": 12}
        by_twos.go_on.set()
        by_threes.go_on.set()
        assert wait_until(lambda: by_twos.seen == [0, *range(20, 1_020, 2)])
        assert wait_until(lambda: by_threes.seen == [0, *range(21, 1_020, 3)])


def test_a_station_is_told_of_what_its_filters_let_through_and_of_nothing_else(domain: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        ours, stuck, heard = a.channel("x", Track, qos=QOS), Stuck(), []
        b.channel("x", Track, qos=QOS).subscribe(stuck, where="id % 10 = 0", inline=True)
        c.channel("x", Track, qos=QOS).subscribe(lambda track: heard.append(track.id), inline=True)
        assert ours.wait_matched(2, LIMIT)
        pushed = push_until_full(ours)
        end_lease_of(a, b)
        assert wait_until(lambda: len(heard) == pushed)
        stuck.go_on.set()
        wanted = len(range(0, pushed, 10))
        assert wait_until(lambda: len(stuck.seen) + missed(b) == wanted), (stuck.seen, missed(b), wanted)
        assert missed(b) == overtaken(a) > 0
        stats = ours.stats()
        assert stats.balanced
        assert 0 < stats.total.dropped["overtaken"] <= overtaken(a), "what waited in the queue others got"


def test_a_reader_whose_filters_want_nothing_of_what_waits_for_it_is_waited_for_only_shortly(
    domain: str,
) -> None:
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        ours, other = a.channel("x", Track, qos=QOS), a.channel("y", Track, qos=QOS)
        stuck, heard = Stuck(), []
        b.channel("y", Track, qos=QOS).subscribe(stuck, inline=True)
        b.channel("x", Track, qos=QOS).subscribe(stuck, where="id < 0", inline=True)
        c.channel("x", Track, qos=QOS).subscribe(lambda track: heard.append(track.id), inline=True)
        assert ours.wait_matched(2, LIMIT)
        assert other.wait_matched(1, LIMIT)
        before, later = hearer_of(a, b), Later.of(broadcast_of(a).ring)
        other.push(Track(0))
        assert wait_until(lambda: stuck.seen == [0])
        pushed = push_until_full(ours)
        later.by_ns = round(SHORT_LEASE * 1e9)
        assert wait_until(lambda: len(heard) == pushed)
        stuck.go_on.set()
        assert wait_until(lambda: hearer_of(a, b) not in (None, before)), "it may read again"
        assert wait_until(lambda: other.wait_matched(1, 0) and is_broadcast(a, "y"))
        other.push(Track(1))
        assert wait_until(lambda: stuck.seen == [0, 1])
        assert (missed(b), overtaken(a)) == (0, 0)
        assert ours.stats().total.dropped == other.stats().total.dropped == {}


def test_a_station_that_is_struck_off_and_goes_on_in_time_reads_what_it_had_been_sent(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "DRAIN_LIMIT", LIMIT)
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, stuck = a.channel("x", Track, qos=QOS), Stuck()
        b.channel("x", Track, qos=QOS).subscribe(stuck, inline=True)
        assert ours.wait_matched(1, LIMIT)
        push_and_be_stuck(ours, stuck)
        assert a.mesh is not None
        a.mesh._gone(b.id)
        stuck.go_on.set()
        assert wait_until(lambda: stuck.seen == list(range(20)))
        assert ours.wait_matched(1, LIMIT)
        assert (missed(b), overtaken(a)) == (0, 0)


def test_what_is_forgotten_of_a_session_late_is_not_that_of_the_next_one(domain: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        busy, stuck = Stuck(), Stuck()
        a.channel("w", Track).subscribe(busy, inline=True)
        b.channel("x", Track, qos=QOS).subscribe(stuck, inline=True)
        ours, theirs = a.channel("x", Track, qos=QOS), b.channel("w", Track)
        assert ours.wait_matched(1, LIMIT)
        assert theirs.wait_matched(1, LIMIT)
        theirs.push(Track(0))
        assert wait_until(lambda: bool(busy.seen)), "so that the old session is dropped late"
        assert a.mesh is not None
        old, before = peer_of(a, b), hearer_of(a, b)
        a.mesh._gone(b.id)
        assert wait_until(lambda: hearer_of(a, b) not in (None, before))
        assert ours.wait_matched(1, LIMIT)
        busy.go_on.set()
        assert wait_until(lambda: not old.readers)
        pushed = push_until_full(ours)
        end_lease_of(a, b)
        assert wait_until(lambda: overtaken(a) > 0), "it is known whose reader was ended"
        stuck.go_on.set()
        assert wait_until(lambda: len(stuck.seen) + missed(b) == pushed), (len(stuck.seen), missed(b))
        assert ours.wait_matched(1, LIMIT)
        ours.push(Track(1_000_000))
        assert wait_until(lambda: stuck.seen[-1] == 1_000_000), "it is not deaf"
        assert ours.stats().balanced


def test_a_station_that_nobody_tells_that_it_was_overtaken_begins_anew(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "SESSION_LIMIT", 0.1)
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, stuck = a.channel("x", Track, qos=QOS), Stuck()
        b.channel("x", Track, qos=QOS).subscribe(stuck, inline=True)
        assert ours.wait_matched(1, LIMIT)
        before = hearer_of(a, b)
        push_until_full(ours)
        broadcast_of(a)._readers.clear()  # so that its writer does not know whom it ends
        end_lease_of(a, b)
        assert ours.settle(LIMIT)
        stuck.go_on.set()
        assert wait_until(lambda: hearer_of(a, b) not in (None, before))
        assert ours.wait_matched(1, LIMIT)
        ours.push(Track(1_000_000))
        assert wait_until(lambda: stuck.seen[-1] == 1_000_000)


def test_whatever_goes_wrong_as_a_station_is_dropped_the_others_are_served(
    domain: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        ours, stuck, heard = a.channel("x", Track, qos=QOS), Stuck(), []
        b.channel("x", Track, qos=QOS).subscribe(stuck, inline=True)
        c.channel("x", Track, qos=QOS).subscribe(lambda track: heard.append(track.id), inline=True)
        assert ours.wait_matched(2, LIMIT)
        assert a.mesh is not None
        air, leave = a.mesh._airing, a.mesh._airing._leave

        def leave_badly(peer: Peer) -> None:
            leave(peer)
            raise OSError("as a station is dropped")

        monkeypatch.setattr(air, "_leave", leave_badly)
        pushed = push_until_full(ours)
        end_lease_of(a, b)
        assert wait_until(lambda: len(heard) == pushed)
        stuck.go_on.set()
        assert wait_until(lambda: missed(b) == overtaken(a) > 0)
        assert ours.wait_matched(2, LIMIT)
    assert "as a station is dropped" in caplog.text


@pytest.mark.parametrize("row", [-1, 64, 1 << 40, 63])
def test_a_row_that_a_station_cannot_have_is_refused(domain: str, row: int) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        ours = a.channel("x", Track, qos=QOS)
        b.channel("x", Track, qos=QOS).consumer()
        assert ours.wait_matched(1, LIMIT)
        broadcast, hearer = broadcast_of(a), hearer_of(a, b)
        assert hearer is not None
        assert broadcast.read_by(b.id, row) is None
        assert broadcast.read_by(b.id + 1, hearer.row) is None, "it is another one's"
        assert broadcast._readers == {hearer.row: hearer}


def test_what_an_earlier_gateway_of_a_channel_delivered_is_not_taken_off_the_next_one(domain: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        first, second, third = (a.channel(name, Track, qos=QOS) for name in "xyz")
        stuck, heard = Stuck(), []
        b.channel("x", Track, qos=QOS).subscribe(stuck, inline=True)
        there = b.channel("y", Track, qos=QOS)
        c.channel("z", Track, qos=QOS).subscribe(lambda track: heard.append(track.id), inline=True)
        with there.consumer():
            assert all(channel.wait_matched(1, LIMIT) for channel in (first, second, third))
            first.push(Track(0))
            assert wait_until(lambda: stuck.seen == [0])
            for i in range(100):
                second.push(Track(i))
        assert wait_until(lambda: not second.stats().consumers)
        with there.consumer():
            assert second.wait_matched(1, LIMIT)
            later = Later.of(broadcast_of(a).ring)
            second.push(Track(100))
            count = broadcast_of(a)._gateways["y"].queue.counts

            hearer = hearer_of(a, b)
            push_all(third, range(1_000), lambda: end_lease(a, hearer, later), heard)
            assert wait_until(lambda: overtaken(a) > 0)
            assert (count().delivered, count().dropped) == (0, {"overtaken": 1})
            assert second.stats().balanced
        stuck.go_on.set()
        assert wait_until(lambda: missed(b) == overtaken(a))

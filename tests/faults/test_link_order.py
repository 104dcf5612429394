"""A station that was given up comes back: what it sent before comes before what it sends now, or not."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.links.mesh import mesh
from heliograph.links.session.gateway import PeerGateway
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLD, NEW = range(200), range(1_000, 1_020)


@pytest.fixture
def stations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[hg.Station, hg.Station]]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setattr(mesh, "OLD_SESSION_LIMIT", 0.1)
    with (
        hg.Station(domain="e2e", transport="socket") as one,
        hg.Station(domain="e2e", transport="socket") as other,
    ):
        # The one with the smaller id dials, and it must not be the one whose reader stands still.
        source, receiver = sorted((one, other), key=lambda station: station.id)
        yield source, receiver


def give_up_and_meet_again(receiver: hg.Station, source: hg.Station, tracks: hg.Channel[Track]) -> None:
    before = session_of(source, receiver)
    assert receiver.mesh is not None
    receiver.mesh._gone(source.id)
    # First: till then the gateway of the old session is matched, and what is pushed is lost with it.
    assert wait_until(lambda: session_of(source, receiver) not in (0, before))
    assert tracks.wait_matched(1, LIMIT)


def session_of(source: hg.Station, receiver: hg.Station) -> int:
    """What the source calls its session with the receiver; 0 while there is none."""
    assert source.mesh is not None
    peer = source.mesh._peers.get(receiver.id)
    return 0 if peer is None else peer.reports.owed.session


def all_confirmed(tracks: hg.Channel[Track]) -> bool:
    gateways = [one for one in tracks.receivers() if isinstance(one, PeerGateway)]
    return all(one.wait_confirmed(LIMIT) for one in gateways) and not tracks.stats().total.pending


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "queued"])
@pytest.mark.parametrize("together", [True, False], ids=["one batch", "one by one"])
def test_a_reader_in_the_middle_of_a_batch_delivers_nothing_behind_the_next_session(
    stations: tuple[hg.Station, hg.Station], *, inline: bool, together: bool
) -> None:
    source, receiver = stations
    seen: list[int] = []
    go_on = Event()

    def take(track: Track) -> None:
        seen.append(track.id)
        if len(seen) == 1:
            go_on.wait(2 * LIMIT)

    receiver.channel("x", Track).subscribe(take, inline=inline)
    tracks = source.channel("x", Track)
    assert tracks.wait_matched(1, LIMIT)
    push(tracks, OLD, together=together)
    assert wait_until(lambda: seen == [0])
    give_up_and_meet_again(receiver, source, tracks)
    push(tracks, NEW, together=together)
    if inline:  # each reader calls in its own thread
        assert wait_until(lambda: seen[-1] == NEW[-1])
    go_on.set()
    assert wait_until(lambda: seen[-1] == NEW[-1])
    assert all_confirmed(tracks)
    assert wait_until(lambda: tracks.stats().total.delivered == len(seen)), (len(seen), tracks.stats().total)
    assert seen == sorted(set(seen))
    assert seen[-len(NEW) :] == list(NEW)
    assert tracks.stats().balanced


def push(tracks: hg.Channel[Track], numbers: range, *, together: bool) -> None:
    if together:
        tracks.push_many([Track(number) for number in numbers])
    else:
        for number in numbers:
            tracks.push(Track(number))


def test_what_waits_aside_for_room_is_not_queued_behind_the_next_session(
    stations: tuple[hg.Station, hg.Station],
) -> None:
    source, receiver = stations
    consumer = receiver.channel("x", Track, qos=hg.QoS(queue=10)).consumer()
    tracks = source.channel("x", Track)
    assert tracks.wait_matched(1, LIMIT)
    push(tracks, OLD, together=True)
    assert wait_until(lambda: consumer.queue.waiting == 10)
    give_up_and_meet_again(receiver, source, tracks)
    push(tracks, NEW, together=True)
    seen: list[int] = []

    def is_through() -> bool:
        seen.extend(track.id for track in consumer.read(5, timeout=0.01))
        return seen[-1:] == [NEW[-1]]

    assert wait_until(is_through)
    assert seen == sorted(set(seen))
    assert seen[-len(NEW) :] == list(NEW)
    assert all_confirmed(tracks)
    assert wait_until(lambda: tracks.stats().total.delivered == len(seen)), (len(seen), tracks.stats().total)
    assert tracks.stats().balanced

"""What is pushed together crosses together, with the headers it would have alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.filters.schema import HEADER_FIELDS
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from heliograph.links.contract import Connection
    from heliograph.model.event import Header

MANY = 600


@pytest.fixture(params=["ring", "socket"])
def stations(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[hg.Station, hg.Station]]:
    own_meeting_folder(monkeypatch, tmp_path)
    carrier = request.param
    with (
        hg.Station(domain="air", name="a", transport=carrier) as a,
        hg.Station(domain="air", name="b", transport=carrier) as b,
    ):
        yield a, b


@pytest.fixture
def channels(
    stations: tuple[hg.Station, hg.Station],
) -> tuple[hg.Channel[Track], hg.Channel[Track]]:
    """A channel as two linked stations have it."""
    a, b = stations
    return a.channel("air.tracks", Track), b.channel("air.tracks", Track)


def tracks() -> list[Track]:
    return [Track(n, float(n % 3)) for n in range(MANY)]


def known(ours: hg.Channel[Track]) -> None:
    """Wait for interest, and have the stream announced: what is pushed from here on may go the short way."""
    assert ours.wait_matched(1, LIMIT)
    ours.push(Track(-1, 9.0))


@pytest.mark.parametrize("where", ["speed >= 0", "speed = 1"], ids=["all", "some"])
def test_a_batch_has_the_numbers_and_keys_that_its_events_would_have_alone(
    channels: tuple[hg.Channel[Track], hg.Channel[Track]], where: str
) -> None:
    ours, theirs = channels
    got: list[Header] = []
    theirs.subscribe(lambda _, header: got.append(header), inline=True, where=f"{where} OR speed = 9")
    known(ours)
    ours.push_many(tracks())
    wanted = [track.id for track in tracks() if where != "speed = 1" or track.speed == 1]
    assert wait_until(lambda: len(got) == 1 + len(wanted))
    # The event before the batch has the number 1, and each event of the batch one, wanted or not.
    assert [header.sequence - 2 for header in got[1:]] == wanted
    assert [header.key for header in got[1:]] == [(n,) for n in wanted]
    assert all((header.type, header.hops, header.priority) == ("air.track", 1, 3) for header in got)
    seats = [header.station_seq for header in got]
    assert seats == sorted(set(seats))


def test_a_callback_that_raises_costs_the_others_of_its_batch_nothing(
    channels: tuple[hg.Channel[Track], hg.Channel[Track]],
) -> None:
    ours, theirs = channels
    got: list[int] = []

    def broken(track: Track) -> None:
        if track.id % 10 == 0:
            raise ValueError("every tenth")

    failing = theirs.subscribe(broken, inline=True)
    theirs.subscribe(lambda track: got.append(track.id), inline=True, where="speed < 2")
    known(ours)
    ours.push_many(tracks())
    wanted = [track.id for track in tracks() if track.speed < 2]
    assert wait_until(lambda: got == wanted)
    assert wait_until(lambda: sum(_counts(theirs, failing.name)) == MANY + 1)
    assert _counts(theirs, failing.name) == (MANY + 1 - MANY // 10, MANY // 10)


def test_a_callback_that_leaves_amid_a_batch_is_called_no_more(
    channels: tuple[hg.Channel[Track], hg.Channel[Track]],
) -> None:
    ours, theirs = channels
    left: list[int] = []
    stayed: list[int] = []

    def leaving(track: Track) -> None:
        left.append(track.id)
        if track.id == 100:
            theirs.unsubscribe(leaving)

    theirs.subscribe(leaving, inline=True)
    theirs.subscribe(lambda track: stayed.append(track.id), inline=True)
    known(ours)
    ours.push_many(tracks())
    assert wait_until(lambda: len(stayed) == MANY + 1)
    assert stayed == [-1, *range(MANY)]
    assert left == [-1, *range(101)]


@pytest.mark.parametrize("stations", ["socket"], indirect=True)
def test_a_batch_is_one_frame_for_many_events(
    channels: tuple[hg.Channel[Track], hg.Channel[Track]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = channels
    consumer = theirs.consumer()
    known(ours)
    assert consumer.pull(LIMIT) == Track(-1, 9.0)
    connection = _connection(ours)
    sent: list[int] = []
    offer = connection.offer

    def counted(frame: Any) -> bool:
        sent.append(sum(map(len, frame)))
        return offer(frame)

    monkeypatch.setattr(connection, "offer", counted)
    ours.push_many(tracks()[:200])
    assert [consumer.pull(LIMIT) for _ in range(200)] == tracks()[:200]
    assert len([size for size in sent if size > 1_000]) == 1


def _counts(channel: hg.Channel[Track], name: str) -> tuple[int, int]:
    queue = channel.stats().consumers[name]
    return queue.delivered, queue.failed


def _connection(channel: hg.Channel[Track]) -> Connection:
    (gateway,) = channel.neighbours._members.gateways.values()
    queue: Any = gateway.queue
    connection: Connection = queue.send_bulk.func.__self__._connection
    return connection


ASKED = {
    "channel": "header.channel LIKE 'channel.%'",
    "type": "header.type = 'air.track'",
    "supplier": "header.supplier = 'radar'",
    "epoch": "header.epoch >= 0",
    "sequence": "header.sequence % 2 = 0",
    "source_ts": "header.source_ts > timestamp '2000-01-01T00:00:00Z'",
    "append_ts": "header.append_ts IS NULL",
    "station_seq": "header.station_seq > 0",
    "offset": "header.offset IS NULL",
    "partition": "header.partition IS NULL",
    "priority": "header.priority = 3",
    "hops": "header.hops >= 0",
    "correlation_id": "header.correlation_id IS NULL",
    "redelivered": "NOT header.redelivered",
    "user": "header.user['traceparent'] IS NULL",
}
"""A question to each field of the header that a filter may read."""


def found(
    here: hg.Station, there: hg.Station, name: str, where: str, *, many: bool, inline: bool
) -> list[int]:
    """What a subscription over there with this filter gets of twenty events."""
    ours, theirs = here.channel(name, Track), there.channel(name, Track)
    got: list[int] = []
    theirs.subscribe(lambda track: got.append(track.id), where=f"{where} OR speed = 9", inline=inline)
    known(ours)
    supplier = ours.supplier("radar")
    batch = [Track(n) for n in range(20)]
    if many:
        supplier.push_many(batch)
    else:
        for track in batch:
            supplier.push(track)
    supplier.push(Track(99, 9.0))
    assert wait_until(lambda: 99 in got), where
    return got


def test_a_filter_on_the_links_crossed_is_asked_where_they_have_been(
    stations: tuple[hg.Station, hg.Station],
) -> None:
    assert found(*stations, "hops.here", "header.hops = 1", many=True, inline=False) == [-1, *range(20), 99]
    assert found(*stations, "hops.there", "header.hops = 0", many=True, inline=False) == [-1, 99]


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "queued"])
def test_a_filter_on_the_header_finds_in_a_batch_what_it_finds_one_by_one(
    stations: tuple[hg.Station, hg.Station], *, inline: bool
) -> None:
    assert set(ASKED) == set(HEADER_FIELDS)
    for field, where in ASKED.items():
        alone = found(*stations, f"{field}.one", where, many=False, inline=inline)
        assert found(*stations, f"{field}.many", where, many=True, inline=inline) == alone, where


@pytest.mark.parametrize("durability", ["volatile", "persistent"])
def test_an_event_too_large_for_a_link_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, durability: Any, caplog: pytest.LogCaptureFixture
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setattr("heliograph.links.session.pack.FRAME_BYTES", 1_000)
    monkeypatch.setattr("heliograph.links.session.messages.MAX_EVENT", 2_000)
    qos = hg.QoS(durability=durability)
    with hg.Station(tmp_path / "data", domain="air") as a, hg.Station(domain="air") as b:
        ours, theirs = (station.channel("air.tracks", Track, qos=qos) for station in (a, b))
        got: list[int] = []
        theirs.subscribe(lambda track: got.append(track.id))
        assert ours.wait_matched(1, LIMIT)
        assert a.mesh is not None
        (peer,) = a.mesh._peers.values()
        gateway = peer.carriers["air.tracks"].gateway
        peer.link.pause(gateway, paused=True)
        ours.push(Track(1, region="x" * 3_000), priority=5)
        ours.push(Track(2), priority=1)
        ours.push(Track(3), priority=1)
        peer.link.pause(gateway, paused=False)
        assert wait_until(lambda: got == [2, 3])
    assert "is too large for a link" in caplog.text

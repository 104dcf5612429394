"""Stations of one domain, linked by real sockets, in one process: who gets which event, and what it costs."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes are resolved at run time

import heliograph as hg
from heliograph.errors import NotPossible, QueryFailed, UnsafeRuntimeFolder
from heliograph.links.contract import MAX_FRAME
from heliograph.links.mesh.egress import Egress
from heliograph.links.transports.discovery import DiscoveryFolder
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, push_until_full, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from heliograph.model.event import Header


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@pytest.fixture
def pair() -> Iterator[tuple[hg.Station, hg.Station]]:
    with hg.Station(domain="air", name="a") as a, hg.Station(domain="air", name="b") as b:
        yield a, b


def link_stats(station: hg.Station) -> Any:
    assert station.mesh is not None
    (stats,) = station.mesh.stats()
    return stats


def beyond_heartbeats(station: hg.Station) -> int:
    """Bytes that were sent for another reason."""
    stats = link_stats(station)
    return stats.bytes_sent - stats.heartbeat_bytes  # type: ignore[no-any-return]  # whole numbers


def test_every_life_of_a_station_has_an_id_of_its_own(tmp_path: Path) -> None:
    ids = set()
    for _ in range(3):
        with hg.Station(tmp_path / "data", domain="air") as station:
            assert station.mesh is not None
            assert station.mesh.identity.name == ""
            assert 0 < station.id < 2**64
            ids.add(station.id)
    assert len(ids) == 3


def test_an_event_pushed_in_one_station_is_received_in_the_other(pair: tuple[hg.Station, hg.Station]) -> None:
    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Track)
    consumer = theirs.consumer()
    assert ours.wait_matched(1, LIMIT)
    ours.push(Track(1, 400.0, "north"))
    assert consumer.pull(LIMIT) == Track(1, 400.0, "north")


def test_every_field_of_the_header_survives_and_the_hop_is_counted(
    pair: tuple[hg.Station, hg.Station],
) -> None:
    a, b = pair
    qos = hg.QoS(lifespan=60.0)
    ours, theirs = a.channel("air.tracks", Track, qos=qos), b.channel("air.tracks", Track, qos=qos)
    here: list[Header] = []
    ours.subscribe(lambda event, header: here.append(header), inline=True)
    consumer = theirs.consumer()
    assert ours.wait_matched(2, LIMIT)
    with ours.supplier("radar-1") as radar:
        radar.push(Track(7, 1.0), priority=5, source_ts=123, correlation_id="c", headers={"trace": "t"})
    there = next(consumer.deliveries(LIMIT)).header
    sent = here[0]
    assert there.hops == 1
    assert there.lifetime_ns is not None
    assert 0 < there.lifetime_ns < 60_000_000_000
    assert msgspec.structs.replace(there, hops=0, lifetime_ns=sent.lifetime_ns) == sent
    assert (there.supplier, there.priority, there.key, there.source_ts) == ("radar-1", 5, (7,), 123)


def test_an_event_that_is_put_off_arrives_once_and_at_its_time(pair: tuple[hg.Station, hg.Station]) -> None:
    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Track)
    consumer = theirs.consumer()
    assert ours.wait_matched(1, LIMIT)
    pushed = a.ports.clock.monotonic_ns()
    ours.push(Track(1), deliver_after=2.0)
    ours.push(Track(2))
    assert consumer.pull(LIMIT) == Track(2)
    assert consumer.pull(LIMIT) == Track(1)
    assert a.ports.clock.monotonic_ns() - pushed >= 2_000_000_000
    ours.push(Track(3))
    assert consumer.pull(LIMIT) == Track(3)


def test_twenty_consumers_in_one_station_cost_one_message(pair: tuple[hg.Station, hg.Station]) -> None:
    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Track)
    consumers = [theirs.consumer(where="speed > :limit", params={"limit": i}) for i in range(20)]
    assert ours.wait_matched(20, LIMIT)
    ours.push(Track(1, 100.0))
    assert all(consumer.pull(LIMIT) == Track(1, 100.0) for consumer in consumers)
    assert link_stats(a).events_sent == 1


def test_events_that_nobody_wants_there_cost_no_byte(pair: tuple[hg.Station, hg.Station]) -> None:
    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Track)
    consumer = theirs.consumer(where="speed > 300 AND region = 'north'")
    assert ours.wait_matched(1, LIMIT)
    ours.push(Track(0, 400.0, "north"))
    assert consumer.pull(LIMIT) is not None
    assert a.mesh is not None
    assert a.mesh.meet_all(LIMIT), "and nothing of what was said before is on its way"
    before = beyond_heartbeats(a)
    for i in range(1_000):
        ours.push(Track(i, 400.0, "south"))
        ours.push(Track(i, 200.0, "north"))
    # A heartbeat that is being sent is counted as one when it has been; bytes that were sent stay counted.
    assert wait_until(lambda: beyond_heartbeats(a) == before, 2.0)
    assert link_stats(a).events_sent == 1


def test_a_channel_without_consumers_there_sends_nothing(pair: tuple[hg.Station, hg.Station]) -> None:
    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Track)
    with theirs.consumer() as consumer:
        assert ours.wait_matched(1, LIMIT)
        ours.push(Track(1))
        assert consumer.pull(LIMIT) is not None
    assert wait_until(lambda: not ours.stats().consumers)
    ours.push(Track(2))
    assert link_stats(a).events_sent == 1
    assert not ours.wait_matched(1, 0)


def test_a_change_of_interest_takes_effect_at_the_source(pair: tuple[hg.Station, hg.Station]) -> None:
    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Track)
    fast = theirs.consumer(where="speed > 300")
    assert ours.wait_matched(1, LIMIT)
    ours.push(Track(1, 100.0))
    slow = theirs.consumer(where="speed < 300")
    assert ours.wait_matched(2, LIMIT)
    ours.push(Track(2, 100.0))
    ours.push(Track(3, 400.0))
    assert slow.pull(LIMIT) == Track(2, 100.0)
    assert fast.pull(LIMIT) == Track(3, 400.0)
    assert link_stats(a).events_sent == 2


def test_sources_and_types_are_chosen_at_the_source(pair: tuple[hg.Station, hg.Station]) -> None:
    class Weather(hg.Event, name="air.weather"):
        wind: float

    a, b = pair
    ours, theirs = a.channel("air.all", Track, Weather), b.channel("air.all", Track, Weather)
    radar, storm = ours.supplier("radar"), ours.supplier("storm")
    only_radar = theirs.consumer(types=[Track], sources=["radar"])
    windy = theirs.consumer(where="wind > 10")
    assert ours.wait_matched(2, LIMIT)
    storm.push(Track(1))
    storm.push(Weather(5.0))
    storm.push(Weather(20.0))
    radar.push(Track(2))
    assert only_radar.pull(LIMIT) == Track(2)
    assert windy.pull(LIMIT) == Weather(20.0)
    assert link_stats(a).events_sent == 2


def test_events_keep_the_order_of_their_supplier(pair: tuple[hg.Station, hg.Station]) -> None:
    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Track)
    seen: list[int] = []
    theirs.subscribe(lambda track: seen.append(track.id))
    assert ours.wait_matched(1, LIMIT)
    for i in range(5_000):
        ours.push(Track(i))
    assert wait_until(lambda: len(seen) == 5_000)
    assert seen == list(range(5_000))


def test_three_stations_see_every_event_once() -> None:
    with (
        hg.Station(domain="air") as a,
        hg.Station(domain="air") as b,
        hg.Station(domain="air") as c,
    ):
        channels = [station.channel("air.tracks", Track) for station in (a, b, c)]
        seen: list[list[int]] = [[], [], []]
        for channel, into in zip(channels, seen, strict=True):
            channel.subscribe(lambda track, into=into: into.append(track.id), name="all")
        for channel in channels:
            assert channel.wait_matched(3, LIMIT)
        for number, channel in enumerate(channels):
            for i in range(100):
                channel.push(Track(number * 1_000 + i))
        expected = [number * 1_000 + i for number in range(3) for i in range(100)]
        assert wait_until(lambda: all(len(got) >= 300 for got in seen))
        assert all(sorted(got) == expected for got in seen)
        assert all(stats.duplicates == 0 for station in (a, b, c) for stats in station.mesh.stats())  # type: ignore[union-attr]  # all have a domain


def test_arrays_and_nested_events_cross() -> None:
    class Scan(hg.Event, name="scan"):
        id: int
        samples: NDArray[np.float64]
        track: Track

    with hg.Station(domain="air") as a, hg.Station(domain="air") as b:
        ours, theirs = a.channel("scans", Scan), b.channel("scans", Scan)
        consumer = theirs.consumer(where="id > 1")
        assert ours.wait_matched(1, LIMIT)
        big = np.arange(200_000, dtype=np.float64)
        ours.push(Scan(1, big, Track(1)))
        ours.push(Scan(2, big, Track(2, 5.0)))
        got = consumer.pull(LIMIT)
        assert got == Scan(2, big, Track(2, 5.0))


def test_many_large_events_cross_in_frames_that_are_allowed() -> None:
    class Scan(hg.Event, name="scan"):
        id: int
        raw: bytes

    with hg.Station(domain="air") as a, hg.Station(domain="air") as b:
        ours, theirs = a.channel("scans", Scan), b.channel("scans", Scan)
        consumer = theirs.consumer()
        assert ours.wait_matched(1, LIMIT)
        raw = bytes(3 << 20)
        for i in range(40):
            ours.push(Scan(i, raw))
        got = [consumer.pull(LIMIT) for _ in range(40)]
        assert [(event.id, len(event.raw)) for event in got if event] == [(i, 3 << 20) for i in range(40)]


def test_an_event_that_is_larger_than_a_frame_crosses_in_pieces() -> None:
    class Scan(hg.Event, name="scan"):
        id: int
        raw: bytes

    with hg.Station(domain="air") as a, hg.Station(domain="air") as b:
        ours, theirs = a.channel("scans", Scan), b.channel("scans", Scan)
        consumer = theirs.consumer()
        assert ours.wait_matched(1, LIMIT)
        raw = bytes(range(256)) * (MAX_FRAME // 256 + 1)
        ours.push(Scan(1, raw))
        ours.push(Scan(2, b""))
        first, second = consumer.pull(LIMIT), consumer.pull(LIMIT)
        assert first is not None
        assert (first.id, first.raw == raw) == (1, True)
        assert second == Scan(2, b"")


def test_an_event_that_is_too_large_is_reported_and_the_next_one_crosses(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Scan(hg.Event, name="scan"):
        id: int
        raw: bytes

    monkeypatch.setattr("heliograph.links.session.messages.MAX_EVENT", 6 << 20)

    with hg.Station(domain="air") as a, hg.Station(domain="air") as b:
        ours, theirs = a.channel("scans", Scan), b.channel("scans", Scan)
        consumer = theirs.consumer()
        assert ours.wait_matched(1, LIMIT)
        ours.push(Scan(1, bytes(7 << 20)))
        ours.push(Scan(2, b""))
        assert consumer.pull(LIMIT) == Scan(2, b"")
        assert "too large for a link" in caplog.text


def test_a_class_that_has_evolved_reads_events_of_the_old_one(pair: tuple[hg.Station, hg.Station]) -> None:
    class Newer(hg.Event, name="air.track", key="id"):
        id: int
        speed: float = 0.0
        height: int = -1

    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Newer)
    fast = theirs.consumer(where="speed > 300")
    unknown_height = theirs.consumer(where="height = -1 AND id = 1")
    assert ours.wait_matched(2, LIMIT)
    old = ours.consumer(where="region = 'unknown'")
    assert theirs.wait_matched(3, LIMIT)
    ours.push(Track(1, 400.0, "north"))
    assert fast.pull(LIMIT) == Newer(1, 400.0, -1)
    # The source has no such field, so it sends and the receiver decides with its default.
    assert unknown_height.pull(LIMIT) == Newer(1, 400.0, -1)
    theirs.push(Newer(2, 1.0, 9_000))
    assert old.pull(LIMIT) == Track(2, 1.0, "unknown")


def test_a_channel_may_refuse_events_of_an_older_class(
    pair: tuple[hg.Station, hg.Station], caplog: pytest.LogCaptureFixture
) -> None:
    class Newer(hg.Event, name="air.track", key="id"):
        id: int
        speed: float = 0.0
        region: str = "unknown"
        height: int = -1

    a, b = pair
    ours = a.channel("air.tracks", Track)
    theirs = b.channel("air.tracks", Newer, qos=hg.QoS(missing="refuse"))
    consumer = theirs.consumer()
    assert wait_until(lambda: "no events of type air.track go from here" in caplog.text)
    assert wait_until(lambda: "no events of type air.track come from" in caplog.text)
    assert "height" in caplog.text
    ours.push(Track(1))
    theirs.push(Newer(2))
    assert consumer.pull(LIMIT) == Newer(2), "nothing of the older one came before it"


def test_classes_that_do_not_go_together_are_reported_and_harm_nobody_else(
    pair: tuple[hg.Station, hg.Station], caplog: pytest.LogCaptureFixture
) -> None:
    class Other(hg.Event, name="air.track"):
        id: str

    class Weather(hg.Event, name="air.weather"):
        wind: float

    a, b = pair
    ours, theirs = a.channel("air.all", Track, Weather), b.channel("air.all", Other, Weather)
    consumer = theirs.consumer()
    assert ours.wait_matched(1, LIMIT)
    ours.push(Track(1))
    ours.push(Weather(3.0))
    assert consumer.pull(LIMIT) == Weather(3.0)
    # Told when others are matched already.
    assert wait_until(lambda: "no events of type air.track go from here" in caplog.text)
    assert wait_until(lambda: "no events of type air.track come from" in caplog.text)


def test_a_full_queue_there_blocks_a_reliable_supplier_here_and_no_other_channel(
    pair: tuple[hg.Station, hg.Station],
) -> None:
    a, b = pair
    qos = hg.QoS(queue=10, max_blocking=0.05)
    full_here, full_there = a.channel("full", Track, qos=qos), b.channel("full", Track, qos=qos)
    free_here, free_there = a.channel("free", Track), b.channel("free", Track)
    stalled, flowing = full_there.consumer(), free_there.consumer()
    assert full_here.wait_matched(1, LIMIT)
    assert free_here.wait_matched(1, LIMIT)
    pushed = push_until_full(full_here)
    free_here.push(Track(1))
    assert flowing.pull(LIMIT) == Track(1)
    got = [stalled.pull(LIMIT) for _ in range(pushed)]
    assert got == [Track(i) for i in range(pushed)]


def test_a_best_effort_channel_drops_by_count_and_never_blocks(pair: tuple[hg.Station, hg.Station]) -> None:
    a, b = pair
    qos = hg.QoS(reliability="best-effort", queue=10)
    ours, theirs = a.channel("lossy", Track, qos=qos), b.channel("lossy", Track, qos=qos)
    consumer = theirs.consumer()
    assert ours.wait_matched(1, LIMIT)
    for i in range(20_000):
        ours.push(Track(i))
    ours.push(Track(-1))
    while (event := consumer.pull(LIMIT)) != Track(-1):
        assert event is not None
    assert wait_until(lambda: ours.stats().total.pending == 0)
    stats, there = ours.stats(), theirs.stats()
    assert stats.balanced
    assert there.balanced
    assert stats.total.delivered + sum(stats.total.dropped.values()) == 20_001
    assert there.matched == stats.total.delivered


def test_stations_of_another_domain_do_not_meet() -> None:
    with hg.Station(domain="one") as a, hg.Station(domain="two") as b:
        ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Track)
        theirs.consumer()
        assert not ours.wait_matched(1, 0.6)
        assert a.mesh is not None
        assert a.mesh.stations() == ()


def test_a_channel_opened_later_is_matched_too(pair: tuple[hg.Station, hg.Station]) -> None:
    a, b = pair
    consumer = b.channel("air.tracks", Track).consumer()
    ours = a.channel("air.tracks", Track)
    assert ours.wait_matched(1, LIMIT)
    ours.push(Track(1))
    assert consumer.pull(LIMIT) == Track(1)


def test_closing_a_station_delivers_what_it_has_sent_and_the_other_goes_on() -> None:
    with hg.Station(domain="air") as b:
        theirs = b.channel("air.tracks", Track)
        consumer = theirs.consumer()
        with hg.Station(domain="air") as a:
            ours = a.channel("air.tracks", Track)
            assert ours.wait_matched(1, LIMIT)
            for i in range(3_000):
                ours.push(Track(i))
        assert [consumer.pull(LIMIT) for _ in range(3_000)] == [Track(i) for i in range(3_000)]
        assert b.mesh is not None
        assert b.mesh.wait_for(lambda mesh: not mesh.stations(), LIMIT)


def test_the_meeting_folder_is_for_this_user_alone(tmp_path: Path) -> None:
    with hg.Station(domain="air"):
        folder = tmp_path / "run" / "heliograph" / "air"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert list(folder.iterdir()) == []


def test_a_meeting_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    DiscoveryFolder("air").path.chmod(0o755)
    with pytest.raises(UnsafeRuntimeFolder, match="chmod 700"):
        hg.Station(domain="air")


def test_a_meeting_folder_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "run" / "heliograph").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeRuntimeFolder, match="no folder"):
        hg.Station(domain="air")


def test_files_that_a_dead_station_left_are_removed(tmp_path: Path) -> None:
    folder = DiscoveryFolder("air")
    descriptor = folder.enter(77)
    folder.socket_path(77).touch()
    assert folder.alive() == {77}
    os.close(descriptor)
    with hg.Station(domain="air"):
        assert not folder.socket_path(77).exists()
        assert len(folder.alive()) == 1


def test_in_a_meeting_folder_that_was_cleared_away_there_is_nobody() -> None:
    folder = DiscoveryFolder("air")
    folder.path.rmdir()
    assert folder.alive() == set()


def test_a_station_answers_questions_of_another(pair: tuple[hg.Station, hg.Station]) -> None:
    a, b = pair
    assert a.mesh is not None
    assert b.mesh is not None
    b.mesh.answer("double", lambda _, body, reply: reply(2 * msgspec.msgpack.decode(body)))
    assert a.mesh.wait_for(lambda mesh: bool(mesh.stations()), LIMIT)
    assert msgspec.msgpack.decode(a.mesh.ask(b.id, "double", 21)) == 42
    with pytest.raises(QueryFailed, match="nobody answers"):
        a.mesh.ask(b.id, "halve", 21)
    with pytest.raises(QueryFailed, match="not linked"):
        a.mesh.ask(12345, "double", 21)


def test_a_channel_of_others_is_opened_without_its_class(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        tracks = keeper.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push(Track(7, 410.0))
        reflected: Any = other.channel("air.tracks")
        with reflected.consumer(where="speed > 300", start="earliest") as consumer:
            assert consumer.pull(LIMIT).to_json() == Track(7, 410.0).to_json()
        with pytest.raises(NotPossible, match="no station of the domain has it open to"):
            other.channel("air.trakcs")
    with hg.Station(tmp_path / "data") as alone, pytest.raises(NotPossible, match="helio journal cat"):
        alone.channel("air.tracks")


def test_groups_without_a_journal_are_one_station_s_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with hg.Station(domain="air") as one, hg.Station(domain="air") as two:
        ours, theirs = (station.channel("air.tracks", Track) for station in (one, two))
        here = [ours.consumer(group="workers") for _ in range(2)]
        there = [theirs.consumer(group="workers") for _ in range(2)]
        with ours.consumer(group="others", ack="manual"):
            assert ours.wait_matched(5, LIMIT)
            ours.push_many([Track(n) for n in range(20)])
            for members in (here, there):
                got: list[int] = []
                assert wait_until(lambda got=got, members=members: len(take_all(members, got)) == 20)  # type: ignore[misc]  # bound now
                assert sorted(got) == list(range(20)), "each station's group has all of them"
            for channel in (ours, theirs):
                assert list(channel.stats().groups_apart) == ["workers"]
        for member in there:
            member.close()
        assert wait_until(lambda: not ours.stats().groups_apart)
    assert "group 'workers' has members in station" in caplog.text
    assert "others" not in caplog.text


def take_all(members: list[hg.Consumer[Track]], got: list[int]) -> list[int]:
    for member in members:
        while (track := member.pull(0)) is not None:
            got.append(track.id)
    return got


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "queued"])
def test_what_waited_on_the_way_longer_than_its_lifespan_is_not_delivered(
    pair: tuple[hg.Station, hg.Station], inline: bool
) -> None:
    a, b = pair
    qos = hg.QoS(lifespan=2.0)
    ours, theirs = a.channel("air.tracks", Track, qos=qos), b.channel("air.tracks", Track, qos=qos)
    entered, gate = threading.Event(), threading.Event()
    seen: list[int] = []

    def slow(track: Track) -> None:
        """Called by the reader of the link: what comes behind it waits in the link's buffers."""
        seen.append(track.id)
        entered.set()
        gate.wait(LIMIT)

    blocking = theirs.subscribe(slow, inline=True, where="id = 0")
    theirs.subscribe(lambda track: seen.append(track.id), inline=inline, where="id > 0")
    assert ours.wait_matched(2, LIMIT)
    ours.push(Track(0))
    assert entered.wait(LIMIT)
    for number in range(1, 50):
        ours.push(Track(number))
    over = time.monotonic_ns() + 2_000_000_000
    assert wait_until(lambda: time.monotonic_ns() > over)
    gate.set()
    assert wait_until(lambda: theirs.stats().total.total == 50 and not theirs.stats().total.pending)
    assert seen == [0]
    assert (blocking.counts().delivered, theirs.stats().total.expired) == (1, 49)
    assert theirs.stats().balanced


def test_a_channel_that_is_closed_and_opened_again_is_linked_again(
    pair: tuple[hg.Station, hg.Station],
) -> None:
    here, there = pair
    tracks = here.channel("air.tracks", Track)
    for number in range(3):
        received = there.channel("air.tracks", Track)
        with received.consumer() as consumer:
            assert tracks.wait_matched(1, LIMIT)
            tracks.push(Track(number))
            assert consumer.pull(timeout=LIMIT) == Track(number)
        received.close()
        assert wait_until(lambda: not tracks.stats().consumers)
    tracks.close()
    with there.channel("air.tracks", Track).consumer() as consumer:
        again = here.channel("air.tracks", Track)
        assert again.wait_matched(1, LIMIT)
        again.push(Track(9))
        assert consumer.pull(timeout=LIMIT) == Track(9)


def test_errors_name_the_other_station_where_it_has_a_name() -> None:
    told: list[str] = []
    with (
        hg.Station(
            domain="named", transport="socket", on_error=lambda *said: told.append(str(said[-1]))
        ) as a,
        hg.Station(domain="named", name="tower", transport="socket") as b,
    ):
        called = f"{b.id:016x} (tower)"
        qos = hg.QoS(queue=1, max_blocking=0.05)
        b.channel("x", Track, qos=qos).consumer()
        tracks = a.channel("x", Track, qos=qos)
        assert tracks.wait_matched(1, LIMIT)
        push_until_full(tracks)
        with pytest.raises(hg.QueueFull, match=re.escape(f"link to {called}")):
            tracks.push(Track(0))
        assert a.mesh is not None
        b.mesh.answer("never", lambda *_: None)  # type: ignore[union-attr]  # it has a domain
        with pytest.raises(QueryFailed, match=re.escape(f"station {called}")):
            a.mesh.ask(b.id, "never", None, 0.05)
        a.mesh._gone(b.id)
        assert wait_until(lambda: any(f"station {called} was given up" in text for text in told)), told


def test_who_has_left_is_not_counted_once_nothing_is_sent_to_it(
    pair: tuple[hg.Station, hg.Station], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = Egress._change
    is_gone, go_on = threading.Event(), threading.Event()

    def change_and_wait(egress: Egress, *changed: Any) -> None:
        change(egress, *changed)
        _, channel, carrier, conditions, _ = changed
        if channel.name == "x" and carrier is not None and not conditions:
            is_gone.set()
            assert go_on.wait(LIMIT)

    a, b = pair
    ours, theirs = a.channel("x", Track), b.channel("x", Track)
    with theirs.consumer():
        assert ours.wait_matched(1, LIMIT)
        monkeypatch.setattr(Egress, "_change", change_and_wait)
    try:
        assert is_gone.wait(LIMIT)
        assert not ours.wait_matched(1, 0.0)
    finally:
        go_on.set()

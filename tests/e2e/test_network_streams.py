"""Streams between hosts: put once for all who want the same, repaired where lost, counted at both ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.testing import CliRunner

import heliograph as hg
from heliograph.cli import app
from tests.e2e.link_support import LIMIT, PEER_LIMIT, Track, free_endpoint, own_meeting_folder, wait_until
from tests.e2e.network_process import Image
from tests.e2e.network_support import Cable, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from heliograph.links.streams.gateway import StreamStats
    from tests.e2e.link_programs import Program

LONG = hg.QoS(max_blocking=LIMIT)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hosts]:
    own_meeting_folder(monkeypatch, tmp_path)
    made = Hosts(tmp_path)
    yield made
    made.clean_up()


@pytest.fixture
def endpoint() -> str:
    return free_endpoint()


class Taker:
    """A process of another host that takes a channel."""

    def __init__(
        self, hosts: Hosts, host: str, endpoint: str, *conditions: str, program: str = "take"
    ) -> None:
        self.program: Program = hosts.run(
            host, program, "air.tracks", *conditions, connect=endpoint, module="tests.e2e.stream_process"
        )
        self.program.says("ready")

    def asks(self, line: str = "") -> None:
        stdin = self.program.process.stdin
        assert stdin is not None
        stdin.write(f"{line}\n")
        stdin.flush()

    def says(self) -> list[Any]:
        """How many have come, whether in order and once, the last one, its streams, and what was missed."""
        before = len(self.program.said)
        self.asks()
        assert wait_until(lambda: any(said.startswith("taken") for said in self.program.said[before:]))
        lines = [said for said in self.program.said[before:] if said.startswith("taken")]
        told: list[Any] = json.loads(lines[-1].removeprefix("taken "))
        return told

    def has(self, events: int) -> bool:
        return bool(self.says()[0] >= events)


def streams_of(station: hg.Station) -> dict[str, StreamStats]:
    """What a station sends to other hosts, by derivation."""
    assert station.mesh is not None
    return {stats.derivation: stats for stats in station.mesh.streams() if not stats.peer}


def balance(tracks: hg.Channel[Track]) -> dict[str, int]:
    """What became of the events that others wanted, at their source."""
    total = tracks.stats().total
    return {"delivered": total.delivered, "pending": total.pending, **total.dropped}


def test_what_five_hosts_want_alike_is_put_once(hosts: Hosts, endpoint: str) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        tracks = station.channel("air.tracks", Track, qos=LONG)
        takers = [Taker(hosts, f"b{i}", endpoint, "speed < 500") for i in range(5)]
        assert tracks.wait_matched(5, LIMIT)
        for i in range(2_000):
            tracks.push(Track(i, float(i % 1_000)))
        assert wait_until(lambda: all(taker.has(1_000) for taker in takers))
        (stream,) = streams_of(station).values()
        assert (stream.readers, stream.events, stream.repaired, stream.lost) == (5, 1_000, 0, {})
        listed = CliRunner().invoke(app, ["ls", "--domain", "e2e", "--links", "--json"])
        assert [row["streams"] for row in json.loads(listed.output)] == [[msgspec.to_builtins(stream)]]
        shown = CliRunner().invoke(app, ["ls", "--domain", "e2e", "--links"])
        assert "repaired" in shown.output
        for taker in takers:
            came, is_sound, _, (theirs,), _ = taker.says()
            assert (came, is_sound) == (1_000, True)
            assert (theirs["puts"], theirs["bytes"]) == (stream.puts, stream.bytes), "each got the same puts"
        assert wait_until(lambda: balance(tracks) == {"delivered": 1_000, "pending": 0})


def test_each_filter_has_a_stream_of_its_own_and_what_nobody_wants_is_not_put(
    hosts: Hosts, endpoint: str
) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        tracks = station.channel("air.tracks", Track, qos=LONG)
        for i in range(100):
            tracks.push(Track(i))
        assert streams_of(station) == {}
        few = Taker(hosts, "b", endpoint, "id % 100 = 0")
        many = Taker(hosts, "c", endpoint)
        assert tracks.wait_matched(2, LIMIT)
        for i in range(10_000):
            tracks.push(Track(i))
        assert wait_until(lambda: few.has(100) and many.has(10_000))
        by_events = {stats.events: stats for stats in streams_of(station).values()}
        assert set(by_events) == {100, 10_000}
        assert by_events[100].bytes < by_events[10_000].bytes / 20
        few.program.kill()
        assert wait_until(lambda: [stream.readers for stream in streams_of(station).values()] == [1])
        assert many.program.end() == 0
        assert wait_until(lambda: streams_of(station) == {})


def test_puts_that_are_lost_are_repaired_and_the_others_go_on(
    hosts: Hosts, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        tracks = station.channel("air.tracks", Track, qos=LONG)
        monkeypatch.setenv("HELIO_FAULT", "lose:stream-put:3")
        losing = Taker(hosts, "b", endpoint)
        monkeypatch.delenv("HELIO_FAULT")
        healthy = Taker(hosts, "c", endpoint)
        assert tracks.wait_matched(2, LIMIT)
        for i in range(20_000):
            tracks.push(Track(i))
        assert wait_until(lambda: losing.has(20_000) and healthy.has(20_000))
        (stream,) = streams_of(station).values()
        came, is_sound, _, (theirs,), missed = losing.says()
        assert (came, is_sound, theirs["lost"], missed) == (20_000, True, {}, {})
        assert theirs["repaired"] > 0
        assert stream.repaired >= theirs["repaired"]
        assert healthy.says()[:2] == [20_000, True]
        assert wait_until(lambda: balance(tracks) == {"delivered": 20_000, "pending": 0})


def test_what_is_not_kept_long_enough_is_counted_exactly_at_both_ends(
    hosts: Hosts, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PEER_LIMIT, str(LIMIT))
    with hg.Station(domain="e2e", listen=[endpoint], peer_limit=LIMIT, repair_events=500) as station:
        tracks = station.channel("air.tracks", Track, qos=LONG)
        monkeypatch.setenv("HELIO_FAULT", "lose:stream-put:2")
        deaf = Taker(hosts, "b", endpoint)
        monkeypatch.delenv("HELIO_FAULT")
        healthy = Taker(hosts, "c", endpoint)
        assert tracks.wait_matched(2, LIMIT)
        deaf.program.stop()
        for i in range(20_000):
            tracks.push(Track(i))
        assert wait_until(lambda: healthy.has(20_000)), "nobody waits for one that stands still"
        deaf.program.go_on()
        for i in range(20_000, 20_010):
            tracks.push(Track(i))

        def is_settled() -> bool:
            return balance(tracks)["pending"] == 0 and deaf.says()[2] == [20_009]

        assert wait_until(is_settled), (balance(tracks), deaf.says(), streams_of(station))
        lost = balance(tracks)["overrun"]
        assert lost > 0
        assert balance(tracks) == {"delivered": 20_010 - lost, "pending": 0, "overrun": lost}
        came, is_sound, _, (theirs,), missed = deaf.says()
        assert (came, is_sound) == (20_010 - lost, True)
        assert theirs["lost"] == {"overrun": lost}
        assert missed == {"air.tracks": lost}
        assert [dict(stream.lost) for stream in streams_of(station).values()] == [{"overrun": lost}]
        assert healthy.says()[:2] == [20_010, True]


def test_a_stopped_host_holds_up_neither_the_source_nor_others_and_has_all_that_is_kept_when_it_goes_on(
    hosts: Hosts, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PEER_LIMIT, str(LIMIT))
    with hg.Station(domain="e2e", listen=[endpoint], peer_limit=LIMIT, repair_events=100_000) as station:
        tracks = station.channel("air.tracks", Track, qos=LONG)
        stopped, healthy = Taker(hosts, "b", endpoint), Taker(hosts, "c", endpoint)
        assert tracks.wait_matched(2, LIMIT)
        stopped.program.stop()
        for i in range(50_000):
            tracks.push(Track(i))
        assert wait_until(lambda: healthy.has(50_000))
        stopped.program.go_on()
        assert wait_until(lambda: stopped.has(50_000))
        assert stopped.says()[1] is True
        assert wait_until(lambda: balance(tracks) == {"delivered": 50_000, "pending": 0})


def test_who_changes_what_it_wants_amid_a_stream_loses_nothing_of_what_it_wants_before_and_after(
    hosts: Hosts, endpoint: str
) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        tracks = station.channel("air.tracks", Track, qos=LONG)
        changing = Taker(hosts, "b", endpoint, "id % 2 = 0")
        staying = Taker(hosts, "c", endpoint)
        assert tracks.wait_matched(2, LIMIT)
        wishes = ("id >= 0", "id % 2 = 0", "id % 2 = 0 OR id % 3 = 0", "id % 2 = 0")
        for i in range(40_000):
            if i % 5_000 == 2_500:
                changing.asks(wishes[(i // 5_000) % len(wishes)])
            tracks.push(Track(i))
        assert wait_until(lambda: changing.says()[2] == [39_998] and staying.has(40_000))
        came, is_sound, _, streams, missed = changing.says()
        assert is_sound, "each once, and in order"
        assert came >= 20_000, "every even one"
        assert missed == {}
        assert len(streams) >= 3
        assert staying.says()[:2] == [40_000, True]
        assert wait_until(lambda: balance(tracks)["pending"] == 0)
        assert balance(tracks) == {"delivered": tracks.stats().matched, "pending": 0}


def test_of_a_killed_source_an_unbroken_beginning_has_come_and_what_is_known_to_lack_is_counted(
    hosts: Hosts, endpoint: str
) -> None:
    with hg.Station(domain="e2e", listen=[endpoint], peer_limit=1.0) as station:
        seen: list[int] = []
        tracks = station.channel("air.tracks", Track, qos=LONG)
        tracks.subscribe(lambda track: seen.append(track.id))
        pusher = hosts.run("b", "push_on", "air.tracks", connect=endpoint, module="tests.e2e.stream_process")
        mesh = station.mesh
        assert mesh is not None
        assert wait_until(lambda: len(pusher.said) > 20)
        pusher.kill()
        assert wait_until(lambda: not mesh.stations())
        assert wait_until(lambda: len(seen) == tracks.stats().total.delivered)
        assert seen == sorted(set(seen))
        lost = sum(sum(stats.lost.values()) for stats in mesh.streams() if stats.peer)
        assert seen[-1] + 1 == len(seen) + lost, "what did not come in between is known"


def test_an_event_of_64_megabytes_crosses_by_stream_and_so_does_the_next(hosts: Hosts, endpoint: str) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        assert station.mesh is not None
        with station.channel("air.images", Image).consumer() as consumer:
            supplier = hosts.run_own("b", "supply_large", "air.images", str(64_000_000), connect=endpoint)
            large, small = consumer.pull(2 * LIMIT), consumer.pull(LIMIT)
            assert large is not None
            assert len(large.pixels) == 64_000_000
            assert small is not None
            assert small.id == 2
            (stream,) = station.mesh.streams()
            assert (stream.channel, stream.events, stream.lost) == ("air.images", 2, {})
        supplier.says("pushed")
        assert supplier.end() == 0


def test_a_cut_shorter_than_the_limit_costs_nothing_though_puts_were_lost(
    hosts: Hosts, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PEER_LIMIT, str(LIMIT))
    cable = Cable(endpoint)
    try:
        with hg.Station(domain="e2e", listen=[endpoint], peer_limit=LIMIT) as station:
            tracks = station.channel("air.tracks", Track, qos=LONG)
            taker = Taker(hosts, "b", cable.endpoint)
            assert tracks.wait_matched(1, LIMIT)
            for i in range(6_000):
                tracks.push(Track(i))
                if i % 2_000 == 1_000:
                    cable.cut()
            assert wait_until(lambda: taker.has(6_000))
            assert taker.says()[:2] == [6_000, True]
            assert wait_until(lambda: balance(tracks) == {"delivered": 6_000, "pending": 0})
    finally:
        cable.close()


def test_a_station_of_the_version_before_gets_the_same_by_its_session(hosts: Hosts, endpoint: str) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        tracks = station.channel("air.tracks", Track, qos=LONG)
        before = Taker(hosts, "b", endpoint, program="take_as_before")
        now = Taker(hosts, "c", endpoint)
        assert tracks.wait_matched(2, LIMIT)
        for i in range(5_000):
            tracks.push(Track(i))
        assert wait_until(lambda: before.has(5_000) and now.has(5_000))
        assert before.says()[:4] == [5_000, True, [4_999], []]
        assert now.says()[:2] == [5_000, True]
        (stream,) = streams_of(station).values()
        assert stream.readers == 1
        assert wait_until(lambda: balance(tracks) == {"delivered": 10_000, "pending": 0})

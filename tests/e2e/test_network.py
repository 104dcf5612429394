"""Stations of different hosts, linked over Zenoh: what holds between processes of one host holds here."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import InvalidConfiguration, NotPossible
from tests.e2e.link_support import (
    LIMIT,
    PEER_LIMIT,
    Track,
    free_endpoint,
    own_meeting_folder,
    wait_until,
)
from tests.e2e.network_support import Cable, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hosts]:
    own_meeting_folder(monkeypatch, tmp_path)
    made = Hosts(tmp_path)
    yield made
    made.clean_up()


@pytest.fixture
def endpoint() -> str:
    return free_endpoint()


def balance(tracks: hg.Channel[Track]) -> dict[str, int]:
    """What became of the events that others wanted, at their source."""
    total = tracks.stats().total
    return {"delivered": total.delivered, "pending": total.pending, **total.dropped}


def test_events_go_from_host_to_host_once_and_in_order_and_both_ends_count_them(
    hosts: Hosts, endpoint: str
) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        tracks = station.channel("air.tracks", Track)
        consumer = hosts.run("b", "consume", "air.tracks", "20000", connect=endpoint)
        assert tracks.wait_matched(1, LIMIT)
        for i in range(20_000):
            tracks.push(Track(i))
        assert consumer.says("done") == "done True 0 19999"
        assert wait_until(lambda: balance(tracks) == {"delivered": 20_000, "pending": 0})
        assert station.mesh is not None
        assert [link.carrier for link in station.mesh.stats()] == ["zenoh"]
        assert consumer.end() == 0


def test_a_filter_of_another_host_is_asked_at_the_source_and_nothing_else_is_sent(
    hosts: Hosts, endpoint: str
) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        tracks = station.channel("air.tracks", Track)
        other = station.channel("nobody.wants", Track)
        consumer = hosts.run("b", "consume", "air.tracks", "50", "speed >= 995", connect=endpoint)
        assert tracks.wait_matched(1, LIMIT)
        assert station.mesh is not None
        for i in range(10_000):
            tracks.push(Track(i, float(i % 1_000)))
            other.push(Track(i))
        assert consumer.says("done") == "done True 995 9999"
        assert sum(link.events_sent for link in station.mesh.stats()) == 50
        assert consumer.end() == 0


@pytest.mark.parametrize("far_end", ["client", "router"])
def test_a_cable_that_breaks_again_and_again_costs_nothing(
    hosts: Hosts, endpoint: str, far_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PEER_LIMIT, str(LIMIT))  # what is cut for less than that costs nothing
    cable = Cable(endpoint)
    listen = free_endpoint() if far_end == "router" else ""
    try:
        with hg.Station(domain="e2e", listen=[endpoint], peer_limit=LIMIT) as station:
            tracks = station.channel("air.tracks", Track, qos=hg.QoS(max_blocking=LIMIT))
            consumer = hosts.run("b", "consume", "air.tracks", "3000", listen=listen, connect=cable.endpoint)
            assert tracks.wait_matched(1, LIMIT)
            mesh = station.mesh
            assert mesh is not None
            for i in range(3_000):
                tracks.push(Track(i))
                if i % 1_000 == 500:
                    before = sum(link.connections for link in mesh.stats())
                    cable.cut()
                    assert wait_until(lambda: sum(link.connections for link in mesh.stats()) > before)  # noqa: B023
            assert consumer.says("done") == "done True 0 2999"
            assert cable.cuts >= 3
            assert wait_until(lambda: balance(tracks) == {"delivered": 3_000, "pending": 0})
            assert [link.lost for link in mesh.stats()] == [0]
            assert consumer.end() == 0
    finally:
        cable.close()


def test_a_host_that_cannot_be_reached_holds_nobody_up_and_comes_back_by_itself(
    hosts: Hosts, endpoint: str
) -> None:
    cable = Cable(endpoint)
    try:
        with hg.Station(domain="e2e", listen=[endpoint], peer_limit=1.0) as station:
            tracks = station.channel("air.tracks", Track, qos=hg.QoS(max_blocking=LIMIT))
            hearer = hosts.run("b", "hear", "air.tracks", connect=cable.endpoint)
            assert tracks.wait_matched(1, LIMIT)
            tracks.push(Track(1))
            assert wait_until(lambda: balance(tracks)["delivered"] == 1)
            cable.is_cut = True
            cable.cut()
            mesh = station.mesh
            assert mesh is not None
            assert wait_until(lambda: len(mesh.suspected) == 1)
            for i in range(100_000):  # more than any queue holds
                tracks.push(Track(i))
            cable.is_cut = False
            assert tracks.wait_matched(1, LIMIT)
            assert not mesh.suspected
            before = balance(tracks)["delivered"]
            tracks.push(Track(2))
            assert wait_until(lambda: balance(tracks)["delivered"] == before + 1)
            assert hearer.end() == 0
    finally:
        cable.close()


def test_a_consumer_of_another_host_that_is_killed_is_counted_and_the_next_one_receives(
    hosts: Hosts, endpoint: str
) -> None:
    with hg.Station(domain="e2e", listen=[endpoint], peer_limit=1.0) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(max_blocking=LIMIT))
        first = hosts.run("b", "consume", "air.tracks", "1000000", connect=endpoint)
        assert tracks.wait_matched(1, LIMIT)
        pushed = 0
        while not first.said or not first.said[-1].startswith("got"):
            tracks.push(Track(pushed))
            pushed += 1
        first.kill()
        assert wait_until(lambda: not tracks.stats().consumers)
        total = tracks.stats().total
        assert total.pending == 0
        assert total.delivered + sum(total.dropped.values()) == pushed == tracks.stats().matched
        assert set(total.dropped) <= {"peer-lost"}
        second = hosts.run("c", "consume", "air.tracks", "1000", connect=endpoint)
        assert tracks.wait_matched(1, LIMIT)
        for i in range(1_000):
            tracks.push(Track(i))
        assert second.says("done") == "done True 0 999"
        assert second.end() == 0


def test_a_stopped_station_of_another_host_is_suspected_and_heals(hosts: Hosts, endpoint: str) -> None:
    with hg.Station(domain="e2e", listen=[endpoint], peer_limit=1.0) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(max_blocking=LIMIT))
        consumer = hosts.run("b", "hear", "air.tracks", connect=endpoint)
        assert tracks.wait_matched(1, LIMIT)
        mesh = station.mesh
        assert mesh is not None
        consumer.stop()
        assert wait_until(lambda: len(mesh.suspected) == 1)
        for i in range(100_000):
            tracks.push(Track(i))
        consumer.go_on()
        assert tracks.wait_matched(1, LIMIT)
        before = balance(tracks)["delivered"]
        tracks.push(Track(1))
        assert wait_until(lambda: balance(tracks)["delivered"] == before + 1)
        assert consumer.end() == 0


def test_hosts_that_connect_to_one_that_listens_hear_each_other(hosts: Hosts, endpoint: str) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]):
        consumer = hosts.run("b", "consume", "air.tracks", "5000", connect=endpoint)
        supplier = hosts.run("c", "supply", "air.tracks", "5000", connect=endpoint)
        assert consumer.says("done") == "done True 0 4999"
        assert supplier.end() == 0
        assert consumer.end() == 0


def test_who_listens_may_come_later_than_who_connects(hosts: Hosts, endpoint: str) -> None:
    consumer = hosts.run("b", "consume", "air.tracks", "100", connect=endpoint)
    consumer.says("ready")
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        tracks = station.channel("air.tracks", Track)
        assert tracks.wait_matched(1, LIMIT)
        for i in range(100):
            tracks.push(Track(i))
        assert consumer.says("done") == "done True 0 99"
        assert consumer.end() == 0


def test_stations_of_one_host_that_are_on_the_network_too_are_linked_by_their_host_alone(
    hosts: Hosts, endpoint: str
) -> None:
    with (
        hg.Station(domain="e2e", listen=[endpoint]) as one,
        hg.Station(domain="e2e", connect=[endpoint]) as other,
    ):
        seen: list[int] = []
        tracks = one.channel("air.tracks", Track)
        other.channel("air.tracks", Track).subscribe(lambda track: seen.append(track.id))
        assert tracks.wait_matched(1, LIMIT)
        for i in range(1_000):
            tracks.push(Track(i))
        assert wait_until(lambda: len(seen) >= 1_000)
        assert seen == list(range(1_000))
        assert one.mesh is not None
        assert [link.carrier for link in one.mesh.stats()] != ["zenoh"]
        assert len(one.mesh.stats()) == 1


def test_stations_of_another_domain_are_not_met(hosts: Hosts, endpoint: str) -> None:
    with (
        hg.Station(domain="e2e", listen=[endpoint]) as one,
        hg.Station(domain="other", connect=[endpoint]) as other,
    ):
        other.channel("air.tracks", Track).consumer()
        third = hosts.run("b", "consume", "air.tracks", "1", connect=endpoint)
        tracks = one.channel("air.tracks", Track)
        assert tracks.wait_matched(1, LIMIT)
        assert one.mesh is not None
        assert other.mesh is not None
        assert len(one.mesh.stations()) == 1
        assert not other.mesh.stations()
        tracks.push(Track(1))
        assert third.says("done") == "done True 1 1"
        assert third.end() == 0


def test_nothing_of_the_network_is_opened_or_even_loaded_unless_it_is_asked_for(hosts: Hosts) -> None:
    program = (
        "import sys, os, heliograph as hg\n"
        "before = open('/proc/self/net/tcp').read().count('\\n')\n"
        "with hg.Station(domain='e2e') as station:\n"
        "    links = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')\n"
        "             if os.path.islink(f'/proc/self/fd/{n}')]\n"
        "    own = {link[8:-1] for link in links if link.startswith('socket:[')}\n"
        "    rows = [row.split() for table in ('tcp', 'tcp6', 'udp', 'udp6')\n"
        "            for row in open(f'/proc/self/net/{table}').readlines()[1:]]\n"
        "    print('zenoh' in sys.modules, sum(row[9] in own for row in rows))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "0"]


def test_an_endpoint_that_is_taken_is_refused_by_name(hosts: Hosts, endpoint: str) -> None:
    with (
        hg.Station(domain="e2e", listen=[endpoint]),
        pytest.raises(NotPossible, match=f"{endpoint}: another program listens there"),
    ):
        hg.Station(domain="e2e", listen=[endpoint])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"listen": ["tcp/127.0.0.1:7447"]}, "add domain="),
        ({"domain": "a", "listen": 7447}, "a list of endpoints"),
        ({"domain": "a", "connect": ["nonsense"]}, "protocol/host:port"),
        ({"domain": "a", "connect": ["udp/127.0.0.1:7447"]}, "with tcp, tls, quic as protocol"),
        ({"domain": "a", "listen": ["tcp/0.0.0.0:7447"]}, "insecure=True"),
        ({"domain": "a", "connect": ["tcp/10.1.2.3:7447"]}, "insecure=True"),
        ({"domain": "a", "insecure": True}, "leave it out"),
        ({"domain": "a", "listen": ["tcp/127.0.0.1:1"], "transport": lambda _: None}, "transport of its own"),
    ],
)
def test_what_cannot_be_or_should_not_be_is_refused_with_the_remedy(
    options: dict[str, object], reason: str
) -> None:
    with pytest.raises(NotPossible, match=reason):
        hg.Station(**options)  # type: ignore[arg-type]  # on purpose


def test_a_file_says_where_to_listen_and_connect_in_place_of_the_program(
    hosts: Hosts, tmp_path: Path, endpoint: str
) -> None:
    file = tmp_path / "helio.toml"
    file.write_text(f'[station]\nlisten = ["{endpoint}"]\n')
    with hg.Station(domain="e2e", config=file) as station:
        tracks = station.channel("air.tracks", Track)
        consumer = hosts.run("b", "consume", "air.tracks", "1", connect=endpoint)
        assert tracks.wait_matched(1, LIMIT)
        tracks.push(Track(1))
        assert consumer.says("done") == "done True 1 1"
        assert consumer.end() == 0
    file.write_text('[station]\nlisten = ["tcp/0.0.0.0:7447"]\n')
    with pytest.raises(NotPossible, match="insecure"):
        hg.Station(domain="e2e", config=file)
    file.write_text('[station]\n\nconnect = "tcp/127.0.0.1:7447"\n')
    with pytest.raises(InvalidConfiguration, match=r"3.*list of endpoints"):
        hg.Station(domain="e2e", config=file)

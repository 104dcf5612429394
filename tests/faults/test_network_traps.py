"""What Zenoh is known to do to Python programs, and hostile senders to stations: none of it reaches users."""

from __future__ import annotations

import json
import random
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from tests.e2e.link_support import LIMIT, Track, free_endpoint, own_meeting_folder, wait_until
from tests.e2e.network_process import Image
from tests.e2e.network_support import Hosts

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


def test_a_program_that_ends_with_its_station_open_and_busy_ends(hosts: Hosts, endpoint: str) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        seen: list[int] = []
        station.channel("air.tracks", Track).subscribe(lambda track: seen.append(track.id))
        careless = hosts.run_own("b", "leave_open", "air.tracks", connect=endpoint)
        careless.says("ending")
        assert careless.process.wait(LIMIT) == 0
        assert wait_until(lambda: len(seen) == 100)


def test_a_forked_child_refuses_and_ends_and_its_parent_goes_on(hosts: Hosts, endpoint: str) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        seen: list[int] = []
        station.channel("air.tracks", Track).subscribe(lambda track: seen.append(track.id))
        parent = hosts.run_own("b", "fork", "air.tracks", connect=endpoint)
        assert parent.says("child") == "child 7"
        assert wait_until(lambda: seen == [1, 3])
        assert parent.end() == 0


def test_a_callback_that_takes_long_holds_up_neither_other_channels_nor_questions(
    hosts: Hosts, endpoint: str
) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        entered, may_go_on, other = Event(), Event(), Event()

        def slow(_: Track) -> None:
            entered.set()
            assert may_go_on.wait(LIMIT)

        station.channel("slow", Track).subscribe(slow)
        station.channel("quick", Track).subscribe(lambda _: other.set())
        mesh = station.mesh
        assert mesh is not None
        first = hosts.run("b", "supply", "slow", "1", connect=endpoint)
        assert entered.wait(LIMIT)
        second = hosts.run("c", "supply", "quick", "1", connect=endpoint)
        assert other.wait(LIMIT), "events of another station, and its questions, pass"
        assert mesh.meet_all(LIMIT)
        may_go_on.set()
        assert first.end() == 0
        assert second.end() == 0


def test_an_event_of_many_megabytes_crosses_and_so_does_the_next(hosts: Hosts, endpoint: str) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        with station.channel("air.images", Image).consumer() as consumer:
            supplier = hosts.run_own("b", "supply_large", "air.images", str(40 << 20), connect=endpoint)
            large = consumer.pull(2 * LIMIT)
            assert large is not None
            assert len(large.pixels) == 40 << 20
            small = consumer.pull(LIMIT)
            assert small is not None
            assert small.id == 2
        supplier.says("pushed")
        assert supplier.end() == 0


def test_of_a_supplier_that_is_killed_amid_a_burst_an_unbroken_beginning_has_come(
    hosts: Hosts, endpoint: str
) -> None:
    with hg.Station(domain="e2e", listen=[endpoint], peer_limit=1.0) as station:
        seen: list[int] = []
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(max_blocking=60.0))
        tracks.subscribe(lambda track: seen.append(track.id))
        supplier = hosts.run("b", "supply_forever", "air.tracks", connect=endpoint)
        assert wait_until(lambda: len(supplier.said) > 20)
        supplier.kill()
        mesh = station.mesh
        assert mesh is not None
        assert wait_until(lambda: not mesh.stations())
        assert wait_until(lambda: len(seen) == tracks.stats().total.delivered)
        assert seen == list(range(len(seen)))


def bare_session(endpoint: str) -> Any:
    import zenoh

    config = zenoh.Config()
    settings = {"mode": "client", "connect/endpoints": [endpoint], "scouting/multicast/enabled": False}
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


def test_whatever_a_stranger_puts_harms_nobody(hosts: Hosts, endpoint: str) -> None:
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        tracks = station.channel("air.tracks", Track)
        consumer = hosts.run("b", "consume", "air.tracks", "200", connect=endpoint)
        assert tracks.wait_matched(1, LIMIT)
        mesh = station.mesh
        assert mesh is not None
        known = mesh.stations()[0].station
        stranger = bare_session(endpoint)
        rng = random.Random(1)
        here, claimed = f"hg1/e2e/to/{station.id:016x}", f"{known:016x}"
        try:
            for i in range(200):
                tracks.push(Track(i))
                data = rng.randbytes(rng.randrange(60))
                keys = (
                    f"{here}/{claimed}/{rng.getrandbits(64):016x}",
                    f"{here}/{rng.getrandbits(64):016x}/{0:016x}",
                    f"{here}/nonsense",
                    f"{here}/{claimed}",
                    f"hg1/e2e/station/{'z' * 16}/x",
                )
                # A first frame, a probe, what was taken, a close, and what begins with anything.
                for kind in (
                    b"\0" + bytes(8),
                    b"\2" + b"\xff" * 8,
                    b"\1" + b"\xff" * 8,
                    b"\3" + bytes(8),
                    b"",
                ):
                    stranger.put(rng.choice(keys), kind + data)
            assert consumer.says("done") == "done True 0 199"
            assert mesh.meet_all(LIMIT)
        finally:
            stranger.close()
        assert consumer.end() == 0

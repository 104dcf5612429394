"""The three architectures of DDS by configuration alone: one program, counted alike; and what crosses."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.links.transports.memory import MemoryNetwork
from heliograph.runtime.ports import system_ports
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEDERATED = """
[here]
domain = "one"
[there]
domain = "two"
[[channels]]
name = "air.**"
both = true
"""


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ask(program: Program, events: int) -> None:
    assert program.process.stdin is not None
    program.process.stdin.write(f"{events}\n")
    program.process.stdin.flush()


@pytest.mark.parametrize("architecture", ["decentralised", "centralised", "federated"])
def test_the_same_program_counts_alike_in_every_architecture(
    architecture: str, opened: ExitStack, tmp_path: Path
) -> None:
    def start(*arguments: str, module: str, **environment: str) -> Program:
        program = Program(*arguments, module=module, **environment)
        opened.callback(program.clean_up)
        return program

    domains = ("one", "two") if architecture == "federated" else ("one", "one")
    central = None
    if architecture == "centralised":
        folder = str(tmp_path / "data")
        central = start(
            "station", "--domain", "one", "--folder", folder, "--no-page", module="heliograph.cli"
        )
        central.says("station")
    receiver = start("receive", module="tests.e2e.architecture_process", DOMAIN=domains[1])
    receiver.says("ready")
    if architecture == "federated":
        (tmp_path / "gateway.toml").write_text(FEDERATED)
        start("gateway", str(tmp_path / "gateway.toml"), module="heliograph.cli").says("gateway between")
    supplier = start("supply", module="tests.e2e.architecture_process", DOMAIN=domains[0])
    supplier.says("matched")
    ask(supplier, 100)
    receiver.says("received 100")
    if central is not None:
        central.kill()  # which leaves established flows running
    ask(supplier, 100)
    receiver.says("received 200")
    assert not [line for line in receiver.said if line.startswith("wrong")]


def test_a_hundred_channels_share_the_one_link_of_two_stations(opened: ExitStack) -> None:
    a, b = (opened.enter_context(hg.Station(domain="air", transport="socket")) for _ in range(2))
    got: dict[str, list[int]] = {}
    for number in range(100):
        name = f"air.tracks.{number}"
        got[name] = []
        b.channel(name, Track).subscribe(lambda track, name=name: got[name].append(track.id))
    channels = [a.channel(name, Track) for name in got]
    for channel in channels:
        assert channel.wait_matched(1, LIMIT)
    for i in range(20):
        for channel in channels:
            channel.push(Track(i))
    assert wait_until(lambda: all(len(one) == 20 for one in got.values()))
    assert all(one == list(range(20)) for one in got.values())
    assert a.mesh is not None
    assert b.mesh is not None
    assert (len(a.mesh.stats()), len(b.mesh.stats())) == (1, 1)
    assert a.mesh.stats()[0].events_sent == 2_000


def test_priorities_hold_across_a_gateway(opened: ExitStack) -> None:
    """What waits on the other side is handed out by the priority with which it was pushed."""
    networks = {name: MemoryNetwork(system_ports(None)) for name in ("west", "east")}

    def station(domain: str) -> hg.Station:
        return opened.enter_context(hg.Station(domain=domain, transport=networks[domain].transport))

    tracks = station("west").channel("air.tracks", Track)
    there = station("east").channel("air.tracks", Track)
    consumer = opened.enter_context(there.consumer())
    gateway = hg.Gateway(station("west"), station("east"), "air.tracks")
    opened.callback(gateway.close)
    assert gateway.wait_open("air.tracks", LIMIT)
    assert tracks.wait_matched(1, LIMIT)
    far = next(channel for channel in gateway.there.channels() if channel.name == "air.tracks")
    assert far.wait_matched(1, LIMIT)
    for i in range(50):
        tracks.push(Track(i), priority=1 + i % 5)
    assert wait_until(lambda: _waiting(there) == 50)
    got = [event.id for event in consumer.read(50, LIMIT)]
    assert got == sorted(range(50), key=lambda i: (-(i % 5), i))


def _waiting(channel: hg.Channel[Track]) -> int:
    return sum(counts.pending for counts in channel.stats().consumers.values())


@pytest.mark.parametrize("placed", ["source", "sink"])
def test_a_gateway_at_the_sink_saves_copies_on_the_way_between_sites(placed: str, opened: ExitStack) -> None:
    """Between the sites an event crosses once to a gateway at the sink, and once for each receiver from one
    at the source."""
    networks = {name: MemoryNetwork(system_ports(None)) for name in ("west", "east")}

    def station(domain: str) -> hg.Station:
        return opened.enter_context(hg.Station(domain=domain, transport=networks[domain].transport))

    supplier, here, there = station("west"), station("west"), station("east")
    tracks = supplier.channel("air.tracks", Track)
    got: list[int] = []
    for _ in range(3):
        station("east").channel("air.tracks", Track).subscribe(lambda track: got.append(track.id))
    gateway = hg.Gateway(here, there, "air.tracks")
    opened.callback(gateway.close)
    assert gateway.wait_open("air.tracks", LIMIT)
    assert tracks.wait_matched(1, LIMIT)
    far = next(channel for channel in there.channels() if channel.name == "air.tracks")
    assert far.wait_matched(3, LIMIT)
    for i in range(100):
        tracks.push(Track(i))
    assert wait_until(lambda: len(got) == 300)
    # The sites are joined where one of the gateway's two stations is linked with the other site.
    between = supplier if placed == "sink" else there
    assert between.mesh is not None
    crossed = sum(link.events_sent for link in between.mesh.stats())
    assert crossed == (100 if placed == "sink" else 300)

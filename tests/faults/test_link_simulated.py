"""Two stations in a simulation: one seed drives tasks, clock and what the network does to frames."""

from __future__ import annotations

from dataclasses import replace

import pytest

import heliograph as hg
from heliograph.links.transports.memory import MemoryConnection, MemoryNetwork, MemoryTransport
from heliograph.sim import Simulation


class Track(hg.Event, name="air.track"):
    id: int


@pytest.mark.parametrize("batch", [1, 25])
@pytest.mark.parametrize("seed", range(8))
def test_every_event_arrives_once_and_in_order_whatever_the_seed(seed: int, batch: int) -> None:
    simulation = Simulation(seed, step_ns=20_000)
    ports = replace(simulation.ports, disk=None)
    network = MemoryNetwork(ports, loss=0.2, duplication=0.2, reordering=0.2)

    def story() -> list[int]:
        stations = [hg.Station(domain="sim", ports=ports, transport=network.transport) for _ in range(2)]
        ours, theirs = (station.channel("air.tracks", Track) for station in stations)
        seen: list[int] = []
        theirs.subscribe(lambda track: seen.append(track.id))
        assert ours.wait_matched(1, 60.0)
        for i in range(0, 300, batch):
            ours.push_many([Track(i + j) for j in range(batch)])
            if i % 100 == 50:
                network.cut(stations[0].id, stations[1].id)
        waited = 0
        while len(seen) < 300 and waited < 600:
            ports.tasks.sleep(0.1)
            waited += 1
        for station in stations:
            station.close(10.0)
        return seen

    assert simulation.run(story) == list(range(300))


def connect_three_times(network: MemoryNetwork, *stations: int) -> None:
    """As a station that dials again before it has heard that the other one answered."""
    small, large = min(stations), max(stations)
    for _ in range(3):
        here, there = (MemoryConnection(network, f"{station:016x}") for station in (large, small))
        here.other, there.other = there, here
        network._connections[small, large] = here
        network._transports[large].on_connection(there, None)
        network._transports[small].on_connection(here, large)


@pytest.mark.parametrize("seed", range(8))
def test_connections_that_are_greeted_at_once_do_not_mix_their_sessions(
    seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    simulation = Simulation(seed, step_ns=20_000)
    ports = replace(simulation.ports, disk=None)
    network = MemoryNetwork(ports)
    # In the middle of a greeting: the other one may have its turn there.
    monkeypatch.setattr(
        MemoryTransport, "linked", lambda *_: ports.tasks.sleep(0.02 * ports.random.uniform())
    )

    def story() -> list[int]:
        network.parted = True
        stations = [hg.Station(domain="sim", ports=ports, transport=network.transport) for _ in range(2)]
        ours, theirs = (station.channel("air.tracks", Track) for station in stations)
        seen: list[int] = []
        theirs.subscribe(lambda track: seen.append(track.id))
        network.parted = False
        connect_three_times(network, *(station.id for station in stations))
        ports.tasks.sleep(1.0)  # of the simulation: all three have been greeted
        assert ours.wait_matched(1, 60.0)
        for i in range(1, 3_000):
            ours.push(Track(i))
            ports.tasks.sleep(0.02)
            if seen:
                break
        for station in stations:
            station.close(10.0)
        return seen

    seen = simulation.run(story)
    assert seen == sorted(set(seen))
    assert seen
    assert "never sent" not in caplog.text

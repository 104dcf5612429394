"""Two stations in a simulation: one seed drives tasks, clock and what the network does to frames."""

from __future__ import annotations

from dataclasses import replace

import pytest

import heliograph as hg
from heliograph.links.transports.memory import MemoryNetwork
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

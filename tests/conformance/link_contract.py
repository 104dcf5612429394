"""The transports that the conformance suite of links runs over, and what the stories need of each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import heliograph as hg
from heliograph.links import PEER_LIMIT
from heliograph.links.transports.backoff import Stalls
from heliograph.links.transports.memory import MemoryNetwork
from heliograph.runtime.endpoints import Network
from heliograph.runtime.ports import system_ports
from tests.e2e.link_support import free_endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links import Carrier
    from heliograph.links.contract import Transport
    from heliograph.runtime.ports import Ports

TRANSPORTS = (
    *("unix", "ring", "zenoh", "memory", "losing", "repeating", "reordering", "mistreating"),
    *("streams", "losing streams", "mistreating streams"),
)
LIMIT = 60.0
"""Seconds within which anything waited for must happen, on a busy machine too."""

FAULTS: dict[str, dict[str, float]] = {
    "memory": {},
    "losing": {"loss": 0.2},
    "repeating": {"duplication": 0.3},
    "reordering": {"reordering": 0.3},
    "mistreating": {"loss": 0.15, "duplication": 0.15, "reordering": 0.15},
    "streams": {},
    "losing streams": {"loss": 0.2},
    "mistreating streams": {"loss": 0.15, "duplication": 0.15, "reordering": 0.15},
}


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class AheadClock:
    """A clock of another host: its monotonic one began at another time."""

    def __init__(self, hours: float) -> None:
        self._ahead_ns = round(hours * 3_600e9)

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self._ahead_ns

    def time_ns(self) -> int:
        return time.time_ns()


@dataclass
class Federation:
    """Stations that reach each other over one kind of transport."""

    kind: str
    network: MemoryNetwork | None
    stations: list[hg.Station] = field(default_factory=list)
    endpoints: tuple[str, ...] = ()

    def station(self, name: str = "", *, hours_ahead: float = 0.0) -> hg.Station:
        """One more, whose monotonic clock may be ahead of that of the others."""
        transport: Callable[[int], Transport] | Carrier = "ring" if self.kind == "ring" else "socket"
        ports = system_ports()
        if hours_ahead:
            ports = replace(ports, clock=AheadClock(hours_ahead))
        if self.network is not None:
            transport = self.network.transport
        elif self.kind == "zenoh":
            transport = self._over_zenoh(ports)
        station = hg.Station(domain="conformance", name=name, transport=transport, ports=ports)
        self.stations.append(station)
        return station

    def _over_zenoh(self, ports: Ports) -> Callable[[int], Transport]:
        """As between hosts: the first station listens, the others connect to it."""
        from heliograph.links.transports.zenoh import ZenohTransport

        if not self.stations:
            self.endpoints = (free_endpoint(),)
        is_first = not self.stations
        network = Network(self.endpoints if is_first else (), () if is_first else self.endpoints)
        return lambda station: ZenohTransport(
            "conformance", station, ports, Stalls(), network=network, peer_limit=PEER_LIMIT
        )

    def cut(self, one: hg.Station, other: hg.Station) -> None:
        """Break the connection between two stations, as a network would."""
        if self.network is not None:
            self.network.cut(one.id, other.id)
        else:
            assert one.mesh is not None
            connection = one.mesh._peers[other.id].link._connection
            if connection is not None:
                connection.close()

    def close(self) -> None:
        for station in self.stations:
            station.close(1.0)


def make_federation(kind: str) -> Federation:
    if kind in ("unix", "ring", "zenoh"):
        return Federation(kind, None)
    return Federation(kind, MemoryNetwork(system_ports(), **FAULTS[kind], streams="streams" in kind))


def wait_until(happened: Callable[[], object], limit: float = LIMIT) -> bool:
    """Whether it happened within the limit."""
    deadline = time.monotonic() + limit
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True

"""A network in memory, for tests and simulations, with every fault that a link must survive.

    network = MemoryNetwork(ports, loss=0.1, duplication=0.1, reordering=0.1)
    a = Station(domain="air", transport=network.transport)
    network.cut(a.id, b.id)                     # the connection breaks; the next one is made at once

Faults begin after the greeting: a connection whose hello is lost is no connection. Chance comes from the
ports, so under a seed a run repeats exactly.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from heliograph.errors import LinkLost, NoThreadLeft, QueueClosed
from heliograph.links.contract import MAX_FRAME
from heliograph.links.transports.peer_process import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.links.contract import Buffer, Connected
    from heliograph.links.transports.peer_process import PeerProcess
    from heliograph.runtime.ports import Clock, Ports, Queue

WAITING_FRAMES = 1 << 16


class MemoryConnection:
    """One end of a connection; see `heliograph.links.contract.Connection`."""

    def __init__(self, network: MemoryNetwork, peer: str) -> None:
        self._network = network
        self._peer = peer
        self._inbox: Queue[bytes] = network.ports.tasks.queue(f"frames from {peer}", WAITING_FRAMES)
        self._greeted = False
        self._held: bytes | None = None
        self.other: MemoryConnection
        self.has_unsent = False
        self.carrier = "memory"
        self.process = UNKNOWN
        self.sent_bytes = 0
        self.received_bytes = 0

    def offer(self, frame: Sequence[Buffer]) -> bool:
        data = b"".join(frame)
        assert len(data) <= MAX_FRAME
        self.sent_bytes += len(data)
        arriving = [data]
        if self._greeted:
            arriving = self._network.mistreat(data)
            if self._held is not None:
                arriving.append(self._held)
                self._held = None
            elif arriving and self._network.reorders():
                self._held = arriving.pop()
        self._greeted = True
        try:
            for one in arriving:
                self.other._inbox.put(one)  # noqa: SLF001 - the other end of the same thing
        except QueueClosed:
            raise LinkLost(self._peer, "has closed the connection") from None
        return True

    def flush(self) -> None:
        """Everything is sent at once."""

    def receive_hello(self, clock: Clock, limit: float | None) -> list[memoryview]:  # noqa: ARG002 - frames are whole
        return self.receive()

    def receive(self) -> list[memoryview]:
        try:
            frames = self._inbox.take(1_000)
        except QueueClosed:
            raise LinkLost(self._peer, "has closed the connection") from None
        self.received_bytes += sum(map(len, frames))
        return [memoryview(frame) for frame in frames]

    def drain(self) -> None:
        self.close()  # who reads a queue that is closed gets what is inside

    def close(self) -> None:
        self._inbox.close()
        self.other._inbox.close()  # noqa: SLF001 - as above

    def abandon(self) -> None:
        """Nothing is shared with a forked child."""


class MemoryNetwork:
    """See the module. Probabilities are of each frame."""

    def __init__(
        self, ports: Ports, *, loss: float = 0.0, duplication: float = 0.0, reordering: float = 0.0
    ) -> None:
        self.ports = ports
        self.loss = loss
        self.duplication = duplication
        self.reordering = reordering
        self.dropped = 0
        self.parted = False
        """While it is true no connection is made."""
        self._lock = ports.tasks.lock("network")
        self._transports: dict[int, MemoryTransport] = {}
        self._connections: dict[tuple[int, int], MemoryConnection] = {}

    def transport(self, station: int) -> MemoryTransport:
        return MemoryTransport(self, station)

    def cut(self, one: int, other: int) -> None:
        """Break the connection between two stations."""
        with self._lock:
            connection = self._connections.pop((min(one, other), max(one, other)), None)
        if connection is not None:
            connection.close()

    def mistreat(self, frame: bytes) -> list[bytes]:
        """What arrives of a frame: it once, twice or not at all."""
        if self.ports.random.uniform() < self.loss:
            self.dropped += 1
            return []
        return [frame, frame] if self.ports.random.uniform() < self.duplication else [frame]

    def reorders(self) -> bool:
        return self.ports.random.uniform() < self.reordering

    def enter(self, transport: MemoryTransport) -> None:
        with self._lock:
            others = [station for station in self._transports if station != transport.station]
            self._transports[transport.station] = transport
        for station in others:
            self.connect(transport.station, station)

    def leave(self, station: int) -> None:
        with self._lock:
            self._transports.pop(station, None)
            others = list(self._transports.values())
        for other in others:
            self.cut(station, other.station)
            other.on_gone(station)

    def stations(self) -> set[int]:
        with self._lock:
            return set(self._transports)

    def connect(self, one: int, other: int) -> None:
        """Connect two stations that are there; the one with the smaller id dials."""
        small, large = min(one, other), max(one, other)
        with self._lock:
            dialler, answerer = self._transports.get(small), self._transports.get(large)
            if dialler is None or answerer is None or self.parted or (small, large) in self._connections:
                return
            here, there = MemoryConnection(self, f"{large:016x}"), MemoryConnection(self, f"{small:016x}")
            here.other, there.other = there, here
            self._connections[small, large] = here
        try:
            answerer.on_connection(there, None)
            dialler.on_connection(here, large)
        except NoThreadLeft:
            self.cut(small, large)
            self.ports.tasks.spawn_soon("connection in memory", lambda: self.connect(small, large))


class MemoryTransport:
    """A station's place in a network in memory."""

    on_connection: Connected
    on_gone: Callable[[int], None]

    def __init__(self, network: MemoryNetwork, station: int) -> None:
        self.station = station
        self.secret = b""
        self.streams = None
        self._network = network
        self._refused: set[int] = set()

    def start(self, on_connection: Connected, on_gone: Callable[[int], None]) -> None:
        self.on_connection, self.on_gone = on_connection, on_gone
        self._network.enter(self)

    def others(self) -> set[int]:
        return self._network.stations() - {self.station}

    def doubt(self, station: int, process: PeerProcess, secret: bytes) -> str:  # noqa: ARG002 - all are of one process
        return ""

    def linked(self, station: int, process: PeerProcess) -> None:
        """The network knows its connections."""

    def lost(self, station: int, *, soon: bool = True) -> None:  # noqa: ARG002 - here always at once
        self._network.cut(self.station, station)
        if station not in self._refused:
            with suppress(LinkLost):
                self._network.connect(self.station, station)

    def look(self) -> None:
        """Every station of the network is known at once."""

    def refuse(self, station: int) -> None:
        self._refused.add(station)

    def close(self) -> None:
        self._network.leave(self.station)

    def abandon(self) -> None:
        """Nothing is shared with a forked child."""

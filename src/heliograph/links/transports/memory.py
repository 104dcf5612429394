"""A network in memory, for tests and simulations, with every fault that a link must survive.

    network = MemoryNetwork(ports, loss=0.1, duplication=0.1, reordering=0.1)
    a = Station(domain="air", transport=network.transport)
    network.cut(a.id, b.id)                     # the connection breaks; the next one is made at once
    network.part(a.id, b.id)                    # they cannot reach each other until network.heal()
    network.mute(a.id, b.id)                    # what a sends to b is lost, and not the other way

Faults begin after the greeting: a connection whose hello is lost is no connection. Chance comes from the
ports, so under a seed a run repeats exactly.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from heliograph.errors import LinkLost, NoThreadLeft, QueueClosed
from heliograph.links.contract import MAX_FRAME
from heliograph.links.transports.memory_streams import MemoryStreams
from heliograph.links.transports.peer_process import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.links.contract import Buffer, Connected
    from heliograph.links.transports.peer_process import PeerProcess
    from heliograph.runtime.ports import Clock, Ports, Queue

WAITING_FRAMES = 1 << 16


class MemoryConnection:
    """One end of a connection; see `heliograph.links.contract.Connection`."""

    def __init__(self, network: MemoryNetwork, peer: str, way: tuple[int, int] = (0, 0)) -> None:
        self._network = network
        self._peer = peer
        self._way = way
        self._inbox: Queue[bytes] = network.ports.tasks.queue(f"frames from {peer}", WAITING_FRAMES)
        self._greeted = False
        self._held: bytes | None = None
        self.other: MemoryConnection
        self.has_unsent = False
        self.is_closed = False
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
            arriving = self._network.mistreat(data, self._way)
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
        if self._network.delay and self._greeted:
            self._network.ports.tasks.sleep(self._network.delay * self._network.ports.random.uniform())
        self.received_bytes += sum(map(len, frames))
        return [memoryview(frame) for frame in frames]

    def drain(self) -> None:
        self.close()  # who reads a queue that is closed gets what is inside

    def close(self) -> None:
        self.is_closed = self.other.is_closed = True
        self._inbox.close()
        self.other._inbox.close()  # noqa: SLF001 - as above

    def abandon(self) -> None:
        """Nothing is shared with a forked child."""


class MemoryNetwork:
    """See the module. Probabilities are of each frame."""

    def __init__(
        self,
        ports: Ports,
        *,
        loss: float = 0.0,
        duplication: float = 0.0,
        reordering: float = 0.0,
        streams: bool = False,
    ) -> None:
        self.ports = ports
        self.loss = loss
        self.duplication = duplication
        self.reordering = reordering
        self.delay = 0.0
        """The longest that frames take, in seconds."""
        self.streams = streams
        """Whether events go by stream, as between hosts."""
        self.dropped = 0
        self.parted = False
        """While it is true no connection is made."""
        self._lock = ports.tasks.lock("network")
        self._transports: dict[int, MemoryTransport] = {}
        self._connections: dict[tuple[int, int], MemoryConnection] = {}
        self._parted: set[tuple[int, int]] = set()
        self._muted: set[tuple[int, int]] = set()

    def transport(self, station: int) -> MemoryTransport:
        return MemoryTransport(self, station)

    def cut(self, one: int, other: int) -> None:
        """Break the connection between two stations."""
        with self._lock:
            connection = self._connections.pop((min(one, other), max(one, other)), None)
        if connection is not None:
            connection.close()

    def forget_closed(self, one: int, other: int) -> None:
        """Cut what one of them has closed; a connection that the other has made since stands."""
        current = self._connections.get((min(one, other), max(one, other)))
        if current is not None and current.is_closed:
            self.cut(one, other)

    def part(self, one: int, other: int) -> None:
        """Have two stations not reach each other until `heal`."""
        self._parted.add((min(one, other), max(one, other)))
        self.cut(one, other)

    def mute(self, one: int, other: int) -> None:
        """Lose all that one station sends to the other until `heal`; connections stand."""
        self._muted.add((one, other))

    def heal(self) -> None:
        """Everybody reaches everybody."""
        parted = tuple(self._parted)
        self._parted.clear()
        self._muted.clear()
        for one, other in parted:
            self.connect(one, other)

    def vanish(self, station: int) -> Callable[[], None]:
        """A station's process has died: nothing reaches it from now on. Others hear of it by the call."""
        self._transports.pop(station, None)
        ended = [self._connections.pop(pair) for pair in tuple(self._connections) if station in pair]

        def tell() -> None:
            for connection in ended:
                connection.close()
            for other in tuple(self._transports.values()):
                other.on_gone(station)

        return tell

    def mistreat(self, frame: bytes, way: tuple[int, int] = (0, 0)) -> list[bytes]:
        """What arrives of a frame: it once, twice or not at all."""
        if way in self._muted:
            self.dropped += 1
            return []
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

    def streams_of(self, station: int) -> MemoryStreams | None:
        """Where what is put for a station comes in."""
        with self._lock:
            transport = self._transports.get(station)
        return None if transport is None else transport.streams

    def stations(self) -> set[int]:
        with self._lock:
            return set(self._transports)

    def connect(self, one: int, other: int) -> None:
        """Connect two stations that are there; the one with the smaller id dials."""
        small, large = min(one, other), max(one, other)
        with self._lock:
            dialler, answerer = self._transports.get(small), self._transports.get(large)
            is_cut = self.parted or (small, large) in self._parted
            if dialler is None or answerer is None or is_cut or (small, large) in self._connections:
                return
            here = MemoryConnection(self, f"{large:016x}", (small, large))
            there = MemoryConnection(self, f"{small:016x}", (large, small))
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
        self.streams = MemoryStreams(network, station) if network.streams else None
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
        self._network.forget_closed(self.station, station)
        if station not in self._refused:
            with suppress(LinkLost):
                self._network.connect(self.station, station)

    def look(self) -> None:
        """Every station of the network is known at once."""

    def refuse(self, station: int) -> None:
        self._refused.add(station)

    def close(self) -> None:
        self._network.leave(self.station)
        if self.streams is not None:
            self.streams.close()

    def abandon(self) -> None:
        """Nothing is shared with a forked child."""

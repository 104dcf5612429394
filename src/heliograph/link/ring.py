"""The link through shared memory: stations meet by socket, and their frames go through rings.

    hg.Station(domain="airspace", transport=ring_transport("airspace"))       # every station of the domain

A connection begins on its Unix socket. Each side makes a ring for what it sends and names it in its first
frame; who has opened the other's ring says so; and who hears that sends one last frame by socket and goes on
in the ring. So nothing waits for the ring, order is kept across the change, and where there can be no ring
(another kind of processor, no room in `/dev/shm`) the socket simply stays. Frames larger than the ring takes
go in pieces.

On the socket each frame begins with a byte that says what else it tells:

    OFFER     a ring is named behind this byte: station, lane, incarnation
    ACCEPT    the ring that was offered is open
    SWITCH    this is the last frame by socket

In the ring it begins with LAST, or with MORE when another piece follows.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final

from heliograph.errors import BadFrame, LinkLost, RingClosed, RingError, RingFull
from heliograph.link.contract import KNOCK, MAX_FRAME
from heliograph.link.unix import UnixTransport
from heliograph.ring import RingFolder, RingName, RingReader, RingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.link.contract import Buffer, Connected, Connection
    from heliograph.ports import Ports

log = logging.getLogger(__name__)

SLOTS: Final = 1 << 14
"""A ring of one megabyte for each direction of each pair of stations."""
FRAMES_AT_ONCE: Final = 4096
LOOK_EVERY: Final = 0.1
"""Seconds between two looks, while the ring is full, at whether the connection still stands."""

OFFER, ACCEPT, SWITCH = 1, 2, 4
LAST, MORE = b"\0", b"\1"
_NAME: Final = struct.Struct("<QQQ")


class RingConnection:
    """A connection that moves from its socket into shared memory; see the contract's `Connection`."""

    def __init__(self, socket: Connection, rings: RingFolder, station: int, ports: Ports) -> None:
        self._socket = socket
        self._rings = rings
        self._station = station
        self._ports = ports
        self._writer: RingWriter | None = None
        self._reader: RingReader | None = None
        self._has_offered = False
        self._owes_accept = False
        self._is_accepted = False
        self._sends_by_ring = False
        self._reads_ring = False
        self._unsent: list[bytes] = []
        self._pieces: list[memoryview] = []
        self._reading = ports.tasks.lock("ring reading")
        self._is_closed = False
        self._sent = 0
        self._received = 0

    @property
    def sent_bytes(self) -> int:
        return self._sent + self._socket.sent_bytes

    @property
    def received_bytes(self) -> int:
        return self._received + self._socket.received_bytes

    @property
    def carrier(self) -> str:
        return "ring" if self._sends_by_ring else self._socket.carrier

    def offer(self, frame: Sequence[Buffer]) -> bool:
        if not self._sends_by_ring:
            return self._socket.offer([self._told(), *frame])
        data = b"".join((LAST, *frame))
        self._sent += len(data)
        assert self._writer is not None
        if len(data) <= self._writer.largest:
            self._unsent.append(data)
        else:
            self._unsent += _cut(data[1:], self._writer.largest - 1)
        return self._append_unsent(0.0)

    def flush(self) -> None:
        if not self._unsent:
            self._socket.flush()
        while not self._append_unsent(LOOK_EVERY):
            if self._is_closed:
                raise LinkLost(self._peer, "this side has closed the connection")

    def receive(self) -> list[memoryview]:
        while not self._reads_ring:
            frames = [self._heard(frame) for frame in self._socket.receive()]
            if frames:
                return frames
        while True:
            frames = [frame for data in self._read_ring() if (frame := self._joined(data)) is not None]
            if frames:
                return frames

    def close(self) -> None:
        self._is_closed = True
        self._socket.close()
        if self._writer is not None:
            self._writer.close()
        if self._reader is not None:
            self._reader.interrupt()
            # Whoever reads lets go of the memory when it is through.
            if self._reading.acquire(blocking=False):
                self._reader.close()
                self._reading.release()

    def abandon(self) -> None:
        self._socket.abandon()
        for end in (self._writer, self._reader):
            if end is not None:
                end.abandon()

    @property
    def _peer(self) -> str:
        return "the station at the other end of a ring"

    def _told(self) -> bytes:
        """What the next frame by socket begins with."""
        told, name = 0, b""
        if not self._has_offered:
            self._has_offered = True
            name = self._make_ring()
            told |= OFFER if name else 0
        if self._owes_accept:
            self._owes_accept = False
            told |= ACCEPT
        if self._is_accepted:
            self._sends_by_ring = True
            told |= SWITCH
        return bytes([told]) + name

    def _make_ring(self) -> bytes:
        try:
            self._writer = self._rings.create(self._station, 0, self._ports, slots=SLOTS)
        except RingError as error:
            log.warning("this link stays on its socket: %s", error)
            return b""
        return _NAME.pack(*self._writer.name)

    def _heard(self, frame: memoryview) -> memoryview:
        """A frame that came by socket, without what is said in front of it."""
        if bytes(frame[:2]) == KNOCK:
            return frame
        told, rest = frame[0], frame[1:]
        if told & OFFER and self._reader is None and len(rest) > _NAME.size:
            self._open(RingName(*_NAME.unpack_from(rest)))
            told, rest = told & ~OFFER, rest[_NAME.size :]
        if told & ACCEPT and self._writer is not None:
            self._is_accepted = True
            told &= ~ACCEPT
        if told & SWITCH and self._reader is not None:
            self._reads_ring = True
            told &= ~SWITCH
        if told or not rest:
            raise BadFrame(self._peer, f"a frame by socket says {frame[0]}, which does not follow")
        return rest

    def _open(self, name: RingName) -> None:
        try:
            # Without spinning: a thread that looks keeps the interpreter from all others of its process.
            self._reader = self._rings.open(name, self._ports, reliable=True, wait="block")
        except RingError as error:
            log.warning("the other station's ring stays closed: %s", error)
        else:
            self._owes_accept = True

    def _append_unsent(self, timeout: float) -> bool:
        """Write pieces while there is room; whether none is left."""
        assert self._writer is not None or not self._unsent
        try:
            while self._unsent and self._writer is not None:
                self._writer.append(self._unsent[0], timeout)
                del self._unsent[0]
        except RingFull:
            return False
        except RingClosed as error:
            raise LinkLost(self._peer, error.reason) from None
        return True

    def _read_ring(self) -> list[bytes]:
        assert self._reader is not None
        with self._reading:
            try:
                events = self._reader.read_many(FRAMES_AT_ONCE)
            except RingError as error:
                raise LinkLost(self._peer, error.reason) from None
            finally:
                if self._is_closed:
                    self._reader.close()
        self._received += sum(map(len, events))
        return events

    def _joined(self, data: bytes) -> memoryview | None:
        """The frame that this piece ends, or None when there are more to come."""
        kind, piece = data[:1], memoryview(data)[1:]
        if kind not in (LAST, MORE) or not piece:
            raise BadFrame(self._peer, "a piece of a frame is of no known kind")
        if kind == LAST and not self._pieces:
            return piece
        self._pieces.append(piece)
        size = sum(map(len, self._pieces))
        if size > MAX_FRAME:
            raise BadFrame(self._peer, f"a frame in pieces has more than {MAX_FRAME} bytes")
        if kind == MORE:
            return None
        whole, self._pieces = memoryview(b"".join(self._pieces)), []
        return whole


def _cut(data: bytes, limit: int) -> list[bytes]:
    """A large frame in pieces, each with its mark."""
    pieces = [data[start : start + limit] for start in range(0, len(data), limit)]
    return [MORE + piece for piece in pieces[:-1]] + [LAST + pieces[-1]]


class RingTransport(UnixTransport):
    """Finds stations as Unix sockets do, and moves each connection into shared memory."""

    def __init__(self, domain: str, station: int, ports: Ports) -> None:
        super().__init__(domain, station, ports.tasks)
        self._ports = ports
        self._own = station
        self._rings = RingFolder(domain)

    def start(self, on_connection: Connected, on_gone: Callable[[int], None]) -> None:
        self._rings.rings()  # removes what dead stations left

        def gone(station: int) -> None:
            self._rings.rings()
            on_gone(station)

        def through_rings(connection: Connection, dialled: int | None) -> None:
            on_connection(RingConnection(connection, self._rings, self._own, self._ports), dialled)

        super().start(through_rings, gone)


def ring_transport(domain: str, ports: Ports) -> Callable[[int], RingTransport]:
    """What `Station(transport=...)` takes; `RingNotAvailable` where there can be no rings."""
    return lambda station: RingTransport(domain, station, ports)

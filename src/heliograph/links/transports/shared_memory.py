"""The shared-memory transport: stations meet by Unix socket, and frames go through rings where both can.

    hg.Station(domain="airspace", transport="ring")             # others of the domain may be without
    hg.Station(domain="airspace", transport="spinning-ring")    # looks for 50 µs before it sleeps

A connection begins on its socket. Each side that wants rings makes one for what it sends and names it in its
first frame; the other opens it, or says that it will not; and who hears that it is open sends one last frame
by socket and goes on in the ring. So nothing waits for the ring, order is kept across the change, and where
there can be no ring (another kind of processor, no room in `/dev/shm`) or the other side wants none the
socket simply stays: `carrier_reason` says why. Frames larger than the ring takes go in pieces.

On the socket a frame may have a byte in front of it that no frame begins with, `TOLD` and some of:

    OFFER     a ring is named behind this byte: station, lane, incarnation
    ACCEPT    the ring that was offered is open
    DECLINE   it stays closed
    SWITCH    this is the last frame by socket

In the ring a frame begins with LAST, or with MORE when another piece follows.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final

from heliograph.errors import BadFrame, LinkLost, RingClosed, RingError, RingFull
from heliograph.links.broadcast.reader_admission import Rings
from heliograph.links.contract import MAX_FRAME
from heliograph.links.transports.backoff import Stalls
from heliograph.links.transports.unix import UnixTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.links import Carrier
    from heliograph.links.contract import Buffer, Connected, Connection
    from heliograph.ring import RingFolder, RingReader, RingWriter, WaitMode
    from heliograph.runtime.ports import Clock, Ports

log = logging.getLogger(__name__)

SLOTS: Final = 1 << 12
"""A ring of a quarter of a megabyte for each direction of each pair: most live events go by broadcast."""
FRAMES_AT_ONCE: Final = 4096
LOOK_EVERY: Final = 0.1
"""Seconds between two looks, while the ring is full, at whether the connection still stands."""
LOOK_FOR_WRITER_EVERY: Final = 2.0
"""Seconds between two looks of a sleeping reader at whether the other station lives: seldom, since the
transport says so when it does not, and with many peers each look counts."""

TOLD: Final = 0x80
OFFER, ACCEPT, DECLINE, SWITCH = 1, 2, 4, 8
LAST, MORE = b"\0", b"\1"
_NAME: Final = struct.Struct("<QQQ")

NOT_ASKED_FOR: Final = "this station was not asked to use rings: hg.Station(transport='ring')"
NOT_OPENED_YET: Final = "the other station has not opened the ring yet"
DECLINED: Final = "the other station takes no ring; its own stats say why"


class RingConnection:
    """A connection that may move from its socket into shared memory; see the contract's `Connection`.

    Args:
        rings: where to make and find them; None where this station uses none, for that `reason`.
        wait: how to wait for frames. Who looks before it sleeps has them sooner, and keeps the interpreter
            from all other threads meanwhile: for stations whose consumers are inline.
    """

    def __init__(
        self,
        socket: Connection,
        rings: RingFolder | None,
        station: int,
        ports: Ports,
        *,
        reason: str = "",
        wait: WaitMode = "block",
    ) -> None:
        self._socket = socket
        self._rings = rings
        self._station = station
        self._ports = ports
        self._wait: WaitMode = wait
        self._writer: RingWriter | None = None
        self._reader: RingReader | None = None
        self._has_offered = False
        self._has_heard = False
        self._owes = 0
        self._is_accepted = False
        self._sends_by_ring = False
        self._reads_ring = False
        self._unsent: list[bytes] = []
        self._pieces: list[memoryview] = []
        self._reading = ports.tasks.lock("ring reading")
        self._making = ports.tasks.lock("ring making")
        self._is_ending = False
        self._is_closed = False
        self._sent = 0
        self._received = 0
        self.carrier_reason = reason or NOT_OPENED_YET
        self.process = socket.process
        # Each is replaced by what comes after it, in the task that calls it; so a connection that stays on
        # its socket costs nothing more than the socket.
        self.offer: Callable[[Sequence[Buffer]], bool] = self._offer_by_socket
        self.receive: Callable[[], list[memoryview]] = self._receive_by_socket

    @property
    def sent_bytes(self) -> int:
        return self._sent + self._socket.sent_bytes

    @property
    def received_bytes(self) -> int:
        return self._received + self._socket.received_bytes

    @property
    def carrier(self) -> str:
        return "ring" if self._sends_by_ring else self._socket.carrier

    def flush(self) -> None:
        if not self._unsent:
            self._socket.flush()
        while not self._append_unsent(LOOK_EVERY):
            if self._is_closed:
                raise LinkLost(self._peer, "this side has closed the connection")

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def drain(self) -> None:
        self._socket.drain()
        self._end_ring()
        if self._reader is not None:  # one that is opened after this finds the end by itself
            self._reader.drain()

    def close(self) -> None:
        self._is_closed = True
        self._socket.close()
        self._end_ring()
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

    @property
    def _stays_on_socket(self) -> bool:
        """Whether everything is said about rings, and there is none."""
        is_all_said = self._has_offered and self._has_heard and not self._owes
        return is_all_said and self._writer is None and self._reader is None

    def receive_hello(self, clock: Clock, limit: float | None) -> list[memoryview]:
        return self._frames_by_socket(self._socket.receive_hello(clock, limit))

    def _offer_by_socket(self, frame: Sequence[Buffer]) -> bool:
        told = self._told()
        if self._sends_by_ring:
            self.offer = self._offer_by_ring
        elif self._stays_on_socket:
            self.offer = self._socket.offer
        return self._socket.offer([told, *frame] if told else frame)

    def _offer_by_ring(self, frame: Sequence[Buffer]) -> bool:
        assert self._writer is not None
        data = b"".join((LAST, *frame))
        self._sent += len(data)
        if len(data) > self._writer.largest:
            self._unsent += _cut(data[1:], self._writer.largest - 1)
            return self._append_unsent(0.0)
        try:
            self._writer.append(data, 0.0)
        except RingFull:
            self._unsent.append(data)
            return False
        except RingClosed as error:
            raise LinkLost(self._peer, error.reason) from None
        return True

    def _receive_by_socket(self) -> list[memoryview]:
        return self._frames_by_socket(self._socket.receive())

    def _frames_by_socket(self, came: list[memoryview]) -> list[memoryview]:
        frames = [self._heard(frame) for frame in came]
        if self._reads_ring:
            self.receive = self._receive_by_ring
        elif self._stays_on_socket:
            self.receive = self._socket.receive
        return frames

    def _receive_by_ring(self) -> list[memoryview]:
        while True:
            frames = [frame for data in self._read_ring() if (frame := self._joined(data)) is not None]
            if frames:
                return frames

    def _told(self) -> bytes:
        """What the next frame by socket has in front of it."""
        told, name = 0, b""
        if not self._has_offered:
            self._has_offered = True
            name = self._make_ring()
            told |= OFFER if name else 0
        if self._owes:
            told, self._owes = told | self._owes, 0
        if self._is_accepted:
            self._sends_by_ring = True
            self.carrier_reason = ""
            told |= SWITCH
        return bytes([TOLD | told]) + name if told else b""

    def _make_ring(self) -> bytes:
        if self._rings is None:
            return b""
        with self._making:
            if self._is_ending:  # by another task, which saw no ring: whoever left has none from then on
                return b""
            try:
                writer = self._writer = self._rings.create(self._station, 0, self._ports, slots=SLOTS)
            except RingError as error:
                self.carrier_reason = str(error)
                log.warning("this link stays on its socket: %s", error)
                return b""
        return _NAME.pack(*writer.name)

    def _end_ring(self) -> None:
        """Write no more, and make no ring from now on."""
        with self._making:
            self._is_ending = True
            writer = self._writer
        if writer is not None:
            writer.close()

    def _heard(self, frame: memoryview) -> memoryview:
        """A frame that came by socket, without what is said in front of it."""
        rest = frame if frame[0] < TOLD else self._take_in(frame[0] & ~TOLD, frame[1:])
        self._has_heard = True  # last: who sends looks at it to know that nothing is owed
        return rest

    def _take_in(self, told: int, rest: memoryview) -> memoryview:
        left = told
        if told & OFFER and not self._has_heard and len(rest) > _NAME.size:
            self._owes = self._answer_to(*_NAME.unpack_from(rest))
            left, rest = left & ~OFFER, rest[_NAME.size :]
        if told & ACCEPT and self._writer is not None:
            self._is_accepted = True
            left &= ~ACCEPT
        elif told & DECLINE and self._writer is not None:
            self._drop_writer()
            left &= ~DECLINE
        if told & SWITCH and self._reader is not None:
            self._reads_ring = True
            left &= ~SWITCH
        if left or not rest:
            raise BadFrame(self._peer, f"a frame by socket says {told} of rings, which does not follow")
        return rest

    def _answer_to(self, station: int, lane: int, incarnation: int) -> int:
        """Open the ring that is offered, if this station uses rings."""
        if self._rings is None:
            return DECLINE
        from heliograph.ring import RingName  # noqa: PLC0415 - stations without rings need not load them

        name = RingName(station, lane, incarnation)
        try:
            self._reader = self._rings.open(
                name, self._ports, reliable=True, wait=self._wait, look_every=LOOK_FOR_WRITER_EVERY
            )
        except RingClosed as error:  # the station has left, or its connection has ended, in the meantime
            log.debug("the other station's ring stays closed: %s", error)
            return DECLINE
        except RingError as error:
            log.warning("the other station's ring stays closed: %s", error)
            return DECLINE
        return ACCEPT

    def _drop_writer(self) -> None:
        """The other side will not read the ring: its memory is not needed."""
        assert self._writer is not None
        writer, self._writer = self._writer, None
        writer.close()
        self.carrier_reason = DECLINED

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
                if self._is_closed:  # by another task, which may have let go of the memory
                    raise LinkLost(self._peer, "this side has closed the connection")
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
        if kind == LAST and piece and not self._pieces:
            return piece
        if kind not in (LAST, MORE) or not piece:
            raise BadFrame(self._peer, "a piece of a frame is of no known kind")
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
    """Finds stations as Unix sockets do, and moves connections into shared memory where both sides want it.

    Args:
        carrier: what this station uses; where there can be no rings it does without, and says so.
    """

    def __init__(
        self, domain: str, station: int, ports: Ports, *, carrier: Carrier, stalls: Stalls | None = None
    ) -> None:
        super().__init__(domain, station, ports, stalls or Stalls())
        self._ports = ports
        self._own = station
        self._wait: WaitMode = "spin" if carrier == "spinning-ring" else "block"
        self._rings, self._reason = (None, NOT_ASKED_FOR) if carrier == "socket" else _folder_of(domain)
        self._connections: list[RingConnection] = []
        """Those that are open, and some that no longer are."""

    @property
    def rings(self) -> Rings | None:
        """With which to broadcast; None where this station does without."""
        return None if self._rings is None else Rings(self._rings, self._wait)

    def start(self, on_connection: Connected, on_gone: Callable[[int], None]) -> None:
        self._remove_dead_rings()

        def gone(station: int) -> None:
            self._remove_dead_rings()
            on_gone(station)

        def through_rings(connection: Connection, dialled: int | None) -> None:
            made = RingConnection(
                connection, self._rings, self._own, self._ports, reason=self._reason, wait=self._wait
            )
            self._keep(made)
            on_connection(made, dialled)

        super().start(through_rings, gone)

    def close(self) -> None:
        super().close()
        with self._lock:
            connections, self._connections = self._connections, []
        # Also those that were about to begin: their tasks may take a while to notice, and would make rings.
        for connection in connections:
            connection.drain()

    def _keep(self, made: RingConnection) -> None:
        with self._lock:
            self._connections = [one for one in self._connections if not one.is_closed] + [made]
            is_late = self._closed
        if is_late:
            made.drain()

    def _remove_dead_rings(self) -> None:
        if self._rings is not None:
            self._rings.rings()


def _folder_of(domain: str) -> tuple[RingFolder | None, str]:
    """The folder of a domain's rings, or why there is none."""
    from heliograph.ring import RingFolder  # noqa: PLC0415 - stations without rings need not load them

    try:
        return RingFolder(domain), ""
    except RingError as error:
        log.warning("stations of domain %s are linked by sockets: %s", domain, error)
        return None, str(error)

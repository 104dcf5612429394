"""The Unix-socket transport between the stations of one user and domain on one host.

Each station listens on a socket in the meeting folder (`heliograph.links.transports.discovery`) and looks
around there now and then. Of two stations the one with the smaller id dials, so that there is one connection;
the other knocks when it first sees it, which makes it look around at once.

A frame is a u32 of its size, then its bytes. The kernel says who is at the other end: only processes of
this user are talked to.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from heliograph.errors import BadFrame, LinkError, LinkLost
from heliograph.links.contract import KNOCK, MAX_FRAME, MAX_HELLO
from heliograph.links.transports.backoff import Backoff
from heliograph.links.transports.callers import Callers
from heliograph.links.transports.discovery import DiscoveryFolder, is_same_file
from heliograph.links.transports.peer_process import process_of_same_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from heliograph.links.contract import Buffer, Connected
    from heliograph.links.transports.backoff import Stalls
    from heliograph.links.transports.peer_process import PeerProcess
    from heliograph.runtime.ports import Clock, Ports

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 0.25
"""Seconds between two looks around in the meeting folder."""
LOOK_AGAIN: Final = 0.001
"""Seconds until the first look after one that found a station whose connection has just ended still there;
twice as many each time. The kernel closes what a process had one by one: the connection of one that is killed
may end before its lock is free."""
KEEP_YOUNG_EVERY: Final = 240
"""Looks after which the files of this station get the present time: a minute."""
CHUNK: Final = 1 << 14
MOST_CHUNK: Final = 1 << 18
"""Bytes to read at once: few while little comes, because setting large memory aside costs more than reading
into it; more while the other end is ahead."""
SMALL: Final = 1 << 14
"""Bytes up to which copying a frame's parts together is faster than letting the kernel gather them."""
SOCKET_BUFFER: Final = 1 << 20
"""Asked of the kernel, which may give less: room for what is sent while the other end is busy."""
SECRET: Final = 16
"""Bytes of a station's secret."""
LONGEST_PATH: Final = 100
"""Bytes of a socket's path; the kernel allows 107."""

# As numbers: combining the named flags costs more than sending.
_QUIETLY: Final = int(socket.MSG_NOSIGNAL)
_AT_ONCE: Final = int(socket.MSG_DONTWAIT) | _QUIETLY
_SIZE: Final = struct.Struct("<I")


class UnixConnection:
    """One connected socket; see `heliograph.links.contract.Connection`.

    Args:
        callers: where it is counted, if another station has made it.
    """

    def __init__(
        self, sock: socket.socket, peer: str, callers: Callers[UnixConnection] | None = None
    ) -> None:
        self._sock = sock
        self._callers = callers
        self._peer = peer
        self.has_unsent = False
        self._unsent: Sequence[Buffer] = ()
        self._sent: list[int] = []
        """Bytes of `_unsent` that the kernel has taken."""
        self._rest = b""
        self._chunk = CHUNK
        self._is_reading = False
        self._is_closed = False
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        self._wait_for_input = poll.poll
        self.carrier = "socket"
        self.sent_bytes = 0
        self.received_bytes = 0
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        try:
            self.process = process_of_same_user(sock, peer)
        except BaseException:
            sock.close()
            raise

    def offer(self, frame: Sequence[Buffer]) -> bool:
        assert not self.has_unsent, "flush() comes before the next offer()"
        size = len(frame[0]) if len(frame) == 1 else sum(map(len, frame))
        parts: Sequence[Buffer] = (_SIZE.pack(size), *frame)
        size += _SIZE.size
        if size < SMALL:
            parts = (b"".join(parts),)
        sent: list[int] = []
        note = sent.extend
        self.sent_bytes += size
        self.has_unsent, self._unsent, self._sent = True, parts, sent
        try:
            # Not `sent = send(...)`: a signal handler that raises in between would take the number with it.
            if len(parts) == 1:
                note(map(self._sock.send, parts, (_AT_ONCE,)))
            else:
                note(map(self._sock.sendmsg, (parts,), ((),), (_AT_ONCE,)))
        except BlockingIOError:
            return False
        except OSError as error:
            raise LinkLost(self._peer, f"cannot be written to: {error.strerror}") from None
        if sent[0] < size:
            return False
        self.has_unsent, self._unsent = False, ()
        return True

    def flush(self) -> None:
        if not self.has_unsent:
            return
        try:
            self._sock.sendall(b"".join(self._unsent)[sum(self._sent) :], _QUIETLY)
        except OSError as error:
            raise LinkLost(self._peer, f"cannot be written to: {error.strerror}") from None
        self.has_unsent, self._unsent = False, ()

    def receive_hello(self, clock: Clock, limit: float | None) -> list[memoryview]:
        until = None if limit is None else clock.monotonic_ns() + round(limit * 1e9)
        self._is_reading = True  # as in `receive`
        try:
            if self._is_closed:
                raise LinkLost(self._peer, "this side has closed the connection")
            frames = self._received_first(clock, until)
        finally:
            self._is_reading = False
            if self._is_closed:
                self._sock.close()
        if self._callers is not None:
            self._callers.greeted(self)
        return frames

    def receive(self) -> list[memoryview]:
        self._is_reading = True  # before the look: of two who meet here, one sees the other
        try:
            if self._is_closed:
                raise LinkLost(self._peer, "this side has closed the connection")
            return self._received()
        finally:
            self._is_reading = False
            if self._is_closed:
                self._sock.close()

    def _received(self) -> list[memoryview]:
        while True:
            data = self._rest + self._read()
            if len(data) >= _SIZE.size and self._checked_size(data, 0) == len(data) - _SIZE.size:
                self._rest = b""
                return [memoryview(data)[_SIZE.size :]]
            frames, self._rest = self._split(data)
            if not frames and len(self._rest) >= _SIZE.size:
                frames.append(self._read_large())
            if frames:
                return frames

    def _received_first(self, clock: Clock, until: int | None) -> list[memoryview]:
        """The first frame, which must be small, and those that came with it."""
        data = b""
        while len(data) < _SIZE.size or self._checked_size(data, 0, MAX_HELLO) > len(data) - _SIZE.size:
            left = None if until is None else max(0, until - clock.monotonic_ns()) // 1_000_000
            if not self._wait_for_input(left):
                raise LinkLost(self._peer, "has not said hello in time")
            data += self._read()
        frames, self._rest = self._split(data)
        return frames

    def _split(self, data: bytes) -> tuple[list[memoryview], bytes]:
        """The frames that are whole, and the bytes behind them."""
        frames: list[memoryview] = []
        view = memoryview(data)
        place, end = 0, len(data)
        while end - place >= _SIZE.size:
            size = self._checked_size(data, place)
            start = place + _SIZE.size
            if size > end - start:
                break
            frames.append(view[start : start + size])
            place = start + size
        return frames, data[place:] if place else data

    def drain(self) -> None:
        # The kernel gives what has come, and then the end.
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._is_closed = True
        self.drain()
        # A reader lets go of it itself: the number of the descriptor may be another's at once, and it would
        # wait for that one's input.
        if not self._is_reading:
            self._sock.close()
        if self._callers is not None:
            self._callers.left(self)

    def abandon(self) -> None:
        """In the child of a fork: let go of the descriptor; the parent's connection goes on."""
        self._sock.close()

    def _read(self) -> bytes:
        try:
            # Not by `recv` alone: a thread that waits in it is woken, for nothing, each time the other end
            # has read what this one sent, and the other end pays for that before it gets on with its work.
            self._wait_for_input()
            data = self._sock.recv(self._chunk)
        except OSError as error:
            raise LinkLost(self._peer, f"cannot be read from: {error.strerror}") from None
        if not data:
            raise LinkLost(self._peer, "has closed the connection")
        self._chunk = min(4 * self._chunk, MOST_CHUNK) if len(data) == self._chunk else CHUNK
        self.received_bytes += len(data)
        return data

    def _read_large(self) -> memoryview:
        """The frame that `_rest` begins."""
        size = self._checked_size(self._rest, 0)
        frame = bytearray(size)
        view = memoryview(frame)
        filled = len(self._rest) - _SIZE.size
        view[:filled] = self._rest[_SIZE.size :]
        self._rest = b""
        while filled < size:
            try:
                got = self._sock.recv_into(view[filled:])
            except OSError as error:
                raise LinkLost(self._peer, f"cannot be read from: {error.strerror}") from None
            if not got:
                raise LinkLost(self._peer, "has closed the connection in the middle of a frame")
            filled += got
            self.received_bytes += got
        return view.toreadonly()

    def _checked_size(self, data: bytes, place: int, most: int = MAX_FRAME) -> int:
        size: int = _SIZE.unpack_from(data, place)[0]
        if not 0 < size <= most:
            raise BadFrame(self._peer, f"announces a frame of {size} bytes; 1 to {most} are allowed")
        return size


class UnixTransport:
    """See the module."""

    def __init__(self, domain: str, station: int, ports: Ports, stalls: Stalls) -> None:
        tasks = ports.tasks
        self.secret = ports.random.bytes(SECRET)
        self.streams = None
        self._callers: Callers[UnixConnection] = Callers(tasks)
        self._accepting = Backoff("accepting connections", stalls)
        self._looking = Backoff("looking for stations", stalls)
        self._folder = DiscoveryFolder(domain)
        self._station = station
        self._tasks = tasks
        self._lock = tasks.lock("stations met")
        self._linked: dict[int, PeerProcess] = {}
        self._known: set[int] = set()
        self._refused: set[int] = set()
        self._lost: dict[int, float] = {}
        """Stations whose connection has just ended, and the pause before the next look for each. One that is
        dialled meanwhile stays: a process that is ending may still be connected to."""
        self._look_around = tasks.signal("look around")
        self._closed = False
        self._files = tasks.lock("files in the meeting folder")
        """Held while they are made or removed: none is made again when this station has left."""
        self._alive_lock = -1
        self._listener: socket.socket | None = None
        self._bound: os.stat_result | None = None
        """The file of the socket that is listened on."""
        self._looks = 0
        self._on_connection: Connected | None = None
        self._on_gone: Callable[[int], None] | None = None

    def start(self, on_connection: Connected, on_gone: Callable[[int], None]) -> None:
        self._on_connection, self._on_gone = on_connection, on_gone
        with on_failure(self.close):
            self._listen()
            # Whoever sees the lock file may dial at once, so it comes after the socket.
            self._alive_lock = self._folder.enter(self._station, self.secret)
            self._tasks.spawn("link accept", self._accept)
            self._look()
            self._tasks.spawn("link look-out", self._look_out)

    def others(self) -> set[int]:
        try:
            return self._alive()
        except OSError:  # no descriptor is left: those that were there at the last look
            with self._lock:
                return set(self._known)

    def doubt(self, station: int, process: PeerProcess, secret: bytes) -> str:
        record = self._folder.record(station) if self._folder.is_alive(station) else None
        return "is not in the meeting folder" if record is None else record.doubt(process, secret)

    def linked(self, station: int, process: PeerProcess) -> None:
        with self._lock:
            self._linked[station] = process
            self._known.add(station)

    def lost(self, station: int, *, soon: bool = True) -> None:
        with self._lock:
            self._linked.pop(station, None)
            if soon:
                self._lost[station] = LOOK_AGAIN
        if soon:
            self._look_around.notify()

    def look(self) -> None:
        self._look_around.notify()

    def refuse(self, station: int) -> None:
        with self._lock:
            self._refused.add(station)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._look_around.notify()
        with self._files:
            if self._listener is not None:
                with suppress(OSError):
                    self._listener.shutdown(socket.SHUT_RDWR)
                self._listener.close()
                self._folder.leave(self._station, self._alive_lock)

    def abandon(self) -> None:
        """In the child of a fork: the parent alone is this station."""
        if self._closed:
            return
        self._closed = True
        if self._listener is not None:
            self._listener.close()
            os.close(self._alive_lock)

    def _accept(self) -> None:
        while not self._closed:
            try:
                self._accept_one()
                self._accepting.worked()
            except LinkError as error:
                log.warning("connection refused: %s", error)
            except Exception as error:  # noqa: BLE001 - whatever it is, this station must be met again
                if not self._closed:
                    self._tasks.sleep(self._accepting.failed(error))

    def _accept_one(self) -> None:
        assert self._listener is not None
        assert self._on_connection is not None
        listener = self._listener
        try:
            sock, _ = listener.accept()
        except OSError:
            if listener is self._listener:
                raise
            listener.close()  # another has taken its place
            return
        with on_failure(sock.close):
            connection = UnixConnection(sock, "a caller", self._callers)
        with on_failure(connection.close):
            self._callers.admit(connection)
            self._on_connection(connection, None)

    def _look_out(self) -> None:
        pause = LOOK_EVERY
        while not self._closed:
            self._look_around.wait(pause)
            if not self._closed:
                pause = self._tried_to_look()

    def _tried_to_look(self) -> float:
        """Seconds until the next look."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 - whatever it is, others must be met again
            return self._looking.failed(error)
        self._looking.worked()
        with self._lock:
            pause = min(self._lost.values(), default=LOOK_EVERY)
            self._lost = {lost: 2 * after for lost, after in self._lost.items() if 2 * after < LOOK_EVERY}
        return pause

    def _look(self) -> None:
        """Dial every station that is there and not linked; say which ones are gone."""
        assert self._on_gone is not None
        with self._files:
            if not self._closed:
                self._keep_files()
        alive = self._alive()
        with self._lock:
            gone = self._known - alive
            self._known &= alive
            for station in gone:
                self._linked.pop(station, None)
            self._refused &= alive
            self._lost = {station: pause for station, pause in self._lost.items() if station in alive}
            new = alive - self._known
            to_dial = alive - self._linked.keys() - self._refused
            self._known |= alive
        for station in gone:
            self._on_gone(station)
        for station in sorted(to_dial):
            if self._station < station:
                self._dial(station)
            elif station in new:
                self._knock(station)

    def _alive(self) -> set[int]:
        """The other stations whose processes live."""
        with self._lock:
            linked = dict(self._linked)
        # First: the next line removes what dead stations have left, and those are not missing by mistake.
        swept = {station for station in linked if self._folder.is_missing(station)}
        alive = self._folder.alive() | {station for station in swept if linked[station].is_running()}
        return alive - {self._station}

    def _listen(self) -> None:
        path = self._folder.socket_path(self._station)
        self._listener, old = _listening(path), self._listener
        self._bound = path.lstat()
        if old is not None:
            with suppress(OSError):
                old.shutdown(socket.SHUT_RDWR)  # whoever accepts goes over to the new one

    def _keep_files(self) -> None:
        """Make again what was swept from the meeting folder; else nobody would meet this station any more."""
        self._looks += 1
        if self._looks % KEEP_YOUNG_EVERY == 0:
            self._folder.keep_young(self._station)
        path = self._folder.socket_path(self._station)
        has_socket = self._bound is not None and is_same_file(path, self._bound)
        if has_socket and self._folder.holds_lock(self._station, self._alive_lock):
            return
        log.warning("the files of this station in %s were removed; they are made again", self._folder.path)
        self._folder.make_again()
        if not has_socket:
            path.unlink(missing_ok=True)
            self._listen()
        old, self._alive_lock = self._alive_lock, self._folder.enter(self._station, self.secret)
        os.close(old)

    def _dial(self, station: int) -> None:
        assert self._on_connection is not None
        connection = self._connect(station)
        if connection is not None:
            self.linked(station, connection.process)
            try:
                self._on_connection(connection, station)
            except BaseException:
                connection.close()
                self.lost(station, soon=False)
                raise

    def _knock(self, station: int) -> None:
        connection = self._connect(station)
        if connection is not None:
            with suppress(LinkLost):
                connection.offer([KNOCK])
            connection.close()

    def _connect(self, station: int) -> UnixConnection | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # A station that is stopped accepts nothing, and nobody may wait until it does.
            sock.setblocking(False)
            with short_path(self._folder.socket_path(station)) as path:
                sock.connect(path)
            sock.setblocking(True)
            return UnixConnection(sock, f"station {station:016x}")
        except (OSError, LinkError) as error:
            # It may be starting or ending; the next look tells.
            log.debug("station %016x does not answer: %s", station, error)
            sock.close()
            return None


@contextmanager
def on_failure(undo: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        undo()
        raise


class short_path:  # noqa: N801 - used like a function
    """A path to a socket that the kernel accepts, also where the folder's is too long for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= LONGEST_PATH:
            return str(self._path)
        self._descriptor = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._descriptor}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _listening(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with on_failure(sock.close):
        with short_path(path) as short:
            sock.bind(short)
        path.chmod(0o600)
        sock.listen(128)
    return sock

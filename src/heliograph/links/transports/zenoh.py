"""The transport between hosts, over Eclipse Zenoh: presence, and connections to stations of the same domain.

Only for stations that were told to listen or to connect. Zenoh looks for nobody by itself here: its scouting
is off. A station that listens forwards what is for others (Zenoh's mode `router`), so those that connect to
it, and to those that it connects to, reach each other. One that only connects is a client of the first that
answers, and of another when that one is gone.

    hg1/<domain>/station/<id>/<session>            a liveliness token: the station is there
    hg1/<domain>/to/<id>/<from>/<connection>       frames to a station, of one connection
    hg1/<domain>/live/...                          streams: `heliograph.links.transports.zenoh_streams`

A connection is a pair of such keys and a number that the station with the smaller id chose when it dialled.
Frames are put with congestion control DROP, so that nobody waits for a peer; what is dropped, the session
above sends again. How much may be on its way is ours to bound: `heliograph.links.transports.flow_control`.

When a token is gone, its station may have died, or the network between may be cut, and nobody here can tell.
Its connections end at once. If it has not come back after `peer_limit` seconds it is suspected, as a station
that is there and says nothing. One that leaves in order says so.

Two routers whose connection breaks and is made again at once may have no routes between them from then on
(Zenoh 1.10.2). That is seen by the session that a token names: a station is away though its session is
linked. Then the one that connects opens its session anew.

Zenoh calls back in a thread for each subscriber, of its Python binding: what is called there only notes what
came. Python waits for these threads before a program ends, so the session must be closed before that. Called
directly, in the threads of its core, they abort the process when it ends in the middle of one.
"""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import os
import re
import struct
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from heliograph.errors import BadFrame, LinkLost, LinkRefused, MissingExtra, NotPossible
from heliograph.links.contract import MAX_FRAME, MAX_HELLO, NETWORK
from heliograph.links.transports.backoff import Backoff
from heliograph.links.transports.callers import MAX_CALLERS, Callers
from heliograph.links.transports.flow_control import ReceiveWindow, SendWindow
from heliograph.links.transports.peer_process import UNKNOWN
from heliograph.links.transports.zenoh_streams import ZenohStreams
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.links.contract import Buffer, Connected
    from heliograph.links.transports.backoff import Stalls
    from heliograph.links.transports.peer_process import PeerProcess
    from heliograph.runtime.endpoints import Network
    from heliograph.runtime.ports import Clock, Ports

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 0.25
"""Seconds between two looks at which stations are to be dialled, and which have been away for too long."""
GREETING_LIMIT: Final = 3.0
"""Seconds after which a station that was dialled and has not answered is dialled anew."""
MEET_LIMIT: Final = 2.0
"""Seconds that a new station waits for those that it connects to."""
PROBE_EVERY: Final = 0.2
"""Seconds after which whoever waits for room asks how much the other end has taken."""
UNREACHABLE_LIMIT: Final = 5.0
"""Seconds that a station may be away before it is suspected, where `peer_limit` says nothing."""
FORGET_AFTER: Final = 600.0
"""Seconds after which a station that is away is taken for dead."""
MAX_STATIONS: Final = 4_096
"""Stations of a domain that are known at a time."""
MAX_WAITING: Final = 2 * MAX_FRAME
"""Bytes of one connection that wait to be read; a sender that keeps to its window stays far below."""

LEAVE_LIMIT: Final = 1.0
"""Seconds that closing waits for threads that are inside of Zenoh."""
TRY_LIMIT: Final = 0.5
"""Seconds that one try to connect may take."""
ROUTES_LIMIT: Final = 1.0
"""Seconds that a station may be away though its session is linked."""

SETTINGS: Final[dict[str, Any]] = {
    "scouting/multicast/enabled": False,
    "scouting/gossip/enabled": False,
    "timestamping/enabled": False,
    "connect/exit_on_failure": False,
    "connect/retry": {"period_init_ms": 100, "period_max_ms": 1_000, "period_increase_factor": 2},
    "transport/link/tx/lease": 5_000,
    **{
        f"transport/link/tx/queue/size/{priority.lower()}": 16
        for priority in ("DATA", "DATA_LOW", "DATA_HIGH", "INTERACTIVE_LOW", "INTERACTIVE_HIGH")
    },
    "transport/link/tx/queue/congestion_control/drop/wait_before_drop": 20_000,
    "transport/link/tx/queue/congestion_control/drop/max_wait_before_drop_fragments": 100_000,
    "transport/link/rx/max_message_size": MAX_FRAME + (1 << 16),
}
"""What every session has; times in milliseconds, but for the last two times, in microseconds."""

DATA: Final = 0
TAKEN: Final = 1
"""How far the other end has taken what was sent."""
PROBE: Final = 2
"""Asks for that."""
CLOSE: Final = 3
LEFT: Final = 4
"""The station leaves the network, in order."""
_HEAD: Final = struct.Struct("<BQ")
"""The kind of what is put, and a position in the stream of bytes of a connection."""


def library() -> Any:
    """Zenoh; MissingExtra where it is not installed."""
    try:
        import zenoh  # noqa: PLC0415 - stations of one host do without it
    except ImportError as error:
        raise MissingExtra("listen= or connect=", "eclipse-zenoh", "network") from error
    return zenoh


class ZenohConnection:
    """One of them; see `heliograph.links.contract.Connection`."""

    def __init__(self, transport: ZenohTransport, station: int, number: int) -> None:
        self.station = station
        self.number = number
        self._transport = transport
        self._peer = f"station {station:016x}"
        tasks = transport.ports.tasks
        self._lock = tasks.lock("frames of a connection")
        self._changed = tasks.condition(self._lock, "frames of a connection")
        self._window = SendWindow()
        self._arriving = ReceiveWindow()
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._waiting = 0
        self._is_greeted = False
        self._is_ended = False
        self._is_closed = False
        self._bad: BadFrame | None = None
        self._unsent: Sequence[Buffer] = ()
        self.has_unsent = False
        self.carrier = NETWORK
        self.process = UNKNOWN
        self.sent_bytes = 0
        self.received_bytes = 0

    def offer(self, frame: Sequence[Buffer]) -> bool:
        assert not self.has_unsent, "flush() comes before the next offer()"
        # Before it is put: whoever is interrupted in between sends it a second time, which is allowed.
        self._unsent, self.has_unsent = frame, True
        if self._is_ended:
            raise LinkLost(self._peer, "has ended the connection")
        size = sum(map(len, frame))
        if not self._window.has_room(size):
            return False
        self._send(frame, size)
        return True

    def flush(self) -> None:
        if not self.has_unsent:
            return
        frame = self._unsent
        size = sum(map(len, frame))
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._is_ended or self._window.has_room(size), PROBE_EVERY)
            if self._is_ended:
                raise LinkLost(self._peer, "has ended the connection")
            if self._window.has_room(size):
                break
            self._put(PROBE, self._window.sent)
        self._send(frame, size)

    def receive_hello(self, clock: Clock, limit: float | None) -> list[memoryview]:
        until = clock.monotonic_ns() + round((GREETING_LIMIT if limit is None else limit) * 1e9)
        with self._lock:
            self._changed.wait_for(lambda: self._inbox or self._is_over, seconds_until(clock, until))
            if not self._inbox and not self._is_over:
                raise LinkLost(self._peer, "has not said hello in time")
        frames = self.receive()
        self._is_greeted = True
        self._transport.callers.greeted(self)
        return frames

    def receive(self) -> list[memoryview]:
        with self._lock:
            if not self._inbox:
                self._changed.wait_for(lambda: self._inbox or self._is_over)
            if not self._inbox:
                raise self._bad or LinkLost(self._peer, "has ended the connection")
            frames = list(self._inbox)
            self._inbox.clear()
            self._waiting = 0
            self._arriving.take(frames[-1][0])
            news = self._arriving.news()
        if news is not None:
            self._put(TAKEN, news)
        self.received_bytes += sum(len(data) for _, data in frames)
        return [memoryview(data)[_HEAD.size :] for _, data in frames]

    def drain(self) -> None:
        with self._lock:
            self._is_ended = True
            self._changed.notify_all()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        is_first = not self._is_ended
        self.drain()
        with self._lock:
            self._inbox.clear()
        self._transport.forget(self)
        if is_first:
            self._put(CLOSE, 0)

    def abandon(self) -> None:
        """The session is the parent's; nothing is let go of one by one."""

    # In a thread of Zenoh

    def came(self, kind: int, position: int, data: bytes) -> None:
        answer = None
        with self._lock:
            if kind == DATA:
                self._keep(position, data)
            elif kind == TAKEN:
                if not self._window.taken(position):
                    self._bad = BadFrame(self._peer, f"has taken {position} bytes, more than were sent")
            elif kind == PROBE:
                self._arriving.asked()
                if not self._inbox:
                    self._arriving.take(position)  # nothing of it can still come: frames keep their order
                    answer = self._arriving.news()
            elif kind == CLOSE:
                self._is_ended = True
            else:
                self._bad = BadFrame(self._peer, f"a frame of kind {kind}")
            self._changed.notify_all()
        if answer is not None:
            self._put(TAKEN, answer)

    def _keep(self, position: int, data: bytes) -> None:
        size = len(data) - _HEAD.size
        most = MAX_FRAME if self._is_greeted else MAX_HELLO
        if not 0 < size <= most:
            self._bad = BadFrame(self._peer, f"sends a frame of {size} bytes; 1 to {most} are allowed")
        elif self._waiting + size <= MAX_WAITING:
            self._waiting += size
            self._inbox.append((position + size, data))

    @property
    def _is_over(self) -> bool:
        return self._is_ended or self._bad is not None

    def _send(self, frame: Sequence[Buffer], size: int) -> None:
        self.sent_bytes += size + _HEAD.size
        self._put(DATA, self._window.add(size), *frame)
        self._unsent, self.has_unsent = (), False

    def _put(self, kind: int, position: int, *parts: Buffer) -> None:
        self._transport.put(self.station, self.number, b"".join((_HEAD.pack(kind, position), *parts)))


class ZenohTransport:
    """See the module.

    Args:
        network: where to listen and connect to.
        peer_limit: seconds that a station may be away before it is suspected.
        is_near: whether a station is of this host, and linked by other means.
    """

    def __init__(
        self,
        domain: str,
        station: int,
        ports: Ports,
        stalls: Stalls,
        *,
        network: Network,
        peer_limit: float | None = None,
        is_near: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.ports = ports
        self.secret = b""
        self.callers: Callers[ZenohConnection] = Callers(ports.tasks)
        self.on_unreachable: Callable[[int], object] = lambda _: None
        """Called with a station that has been away for too long, and may live."""
        self._station = station
        self._network = network
        self._limit = peer_limit or UNREACHABLE_LIMIT
        self._is_near = is_near
        self._prefix = f"hg1/{quote(domain, safe='') or '%'}"
        self._zenoh = library()
        self._lock = ports.tasks.lock("stations of the network")
        self._connections: dict[tuple[int, int], ZenohConnection] = {}
        self._present: set[int] = set()
        self._away: dict[int, int] = {}
        """Stations whose token is gone, and since when on the monotonic clock."""
        self._sessions: dict[int, str] = {}
        """The session of Zenoh that each station has."""
        self._given_up: set[int] = set()
        """Those of them that have been away for too long."""
        self._linked: set[int] = set()
        self._refused: set[int] = set()
        self._gone: deque[int] = deque()
        """Stations that have left in order."""
        self._calling: deque[ZenohConnection] = deque()
        """New callers."""
        self._look_around = ports.tasks.signal("look around the network")
        self._looking = Backoff("looking for stations of other hosts", stalls)
        self._closed = False
        self._forked = False
        self._opening = ports.tasks.lock("session with Zenoh")
        self._tokens = f"{self._prefix}/station/*/*"
        self._inside: deque[None] = deque()
        """As many as there are threads inside of Zenoh; a deque, which counts in one step."""
        self.streams = ZenohStreams(self._zenoh, self._prefix, station, ports.tasks, self._inside)
        self._is_told = False
        """Whether it was said that nobody answers."""
        self._session: Any = None
        self._declared: list[Any] = []
        self._on_connection: Connected | None = None
        self._on_gone: Callable[[int], None] | None = None

    def start(self, on_connection: Connected, on_gone: Callable[[int], None]) -> None:
        self._on_connection, self._on_gone = on_connection, on_gone
        try:
            self._open()
            self._meet()
            self._look()
            self.ports.tasks.spawn("network look-out", self._look_out)
        except BaseException:
            self.close()
            raise

    def others(self) -> set[int]:
        with self._lock:
            return self._present | self._away.keys()

    def doubt(self, station: int, process: PeerProcess, secret: bytes) -> str:  # noqa: ARG002 - no kernel tells
        # What it says may come before its token does.
        with self._lock:
            if len(self._present) < MAX_STATIONS:
                self._present.add(station)
        return ""

    def linked(self, station: int, process: PeerProcess) -> None:  # noqa: ARG002 - as above
        with self._lock:
            if station in self._present:
                self._linked.add(station)

    def lost(self, station: int, *, soon: bool = True) -> None:
        with self._lock:
            self._linked.discard(station)
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
        for station in self.others():
            self.put(station, 0, _HEAD.pack(LEFT, 0))
        self._leave()
        self.streams.close()

    def abandon(self) -> None:
        """In the child of a fork Zenoh has no threads: to close it, or let go of it, would wait for ever."""
        self._closed = self._forked = True
        for kept in (self._session, *self._declared, *self.streams.abandoned()):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    # Connections

    def put(self, station: int, number: int, data: bytes) -> None:
        """Send something to a station, or not at all."""
        key = f"{self._prefix}/to/{station:016x}/{self._station:016x}/{number:016x}"
        self._inside.append(None)  # before the session is looked at: whoever closes it waits for this
        try:
            session = self._session
            if session is not None and not self._forked:
                session.put(key, data, congestion_control=self._zenoh.CongestionControl.DROP)
        except self._zenoh.ZError:
            pass  # the session is closed, and with it every connection
        finally:
            self._inside.pop()

    def forget(self, connection: ZenohConnection) -> None:
        with self._lock:
            self._connections.pop((connection.station, connection.number), None)
        self.callers.left(connection)

    def _open(self) -> None:
        """Open a session and say in it that this station is there; without one if none answers."""
        with self._opening:
            if self._session is not None or self._closed:
                return
            try:
                session = self._zenoh.open(self._config())
            except self._zenoh.ZError as error:
                if self._network.listen:
                    raise NotPossible(*_why_not_open(self._network.listen, str(error))) from None
                self._nobody_answers(error)
                return
            self._is_told = False
            self._session = session
            self.streams.opened(session)
            own = f"{self._prefix}/to/{self._station:016x}/**"
            # First what is said to this station: whoever sees its token may dial at once.
            self._declared.append(session.declare_subscriber(own, self._came))
            liveliness = session.liveliness()
            token = f"{self._prefix}/station/{self._station:016x}/{session.info.zid()}"
            self._declared.append(liveliness.declare_token(token))
            self._declared.append(liveliness.declare_subscriber(self._tokens, self._token, history=True))

    def _nobody_answers(self, error: Exception) -> None:
        """Said once. Zenoh does not say why: who is refused hears nothing."""
        where = ", ".join(self._network.connect)
        if not self._is_told:
            self._is_told = True
            refused = ", or who does refuses this station's certificate" if self._network.identity else ""
            log.warning("nobody answers at %s%s; it is tried again by itself", where, refused)
        log.debug("%s: %s", where, error)

    def _config(self) -> Any:
        config = self._zenoh.Config()
        settings = {
            **SETTINGS,
            "mode": "router" if self._network.listen else "client",
            # A router goes on to try by itself, a client only until it was connected once.
            "connect/timeout_ms": -1 if self._network.listen else round(TRY_LIMIT * 1e3),
            "listen/endpoints": list(self._network.listen),
            "connect/endpoints": list(self._network.connect),
        }
        if self._network.identity is not None:
            settings["transport/link/tls"] = _tls(Path(self._network.identity))
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
        return config

    def _leave(self) -> None:
        with self._opening:
            session, self._session = self._session, None
            self._declared.clear()
            self.streams.closing()
            if session is not None:
                session.close()
            # A thread that is inside of Zenoh when Python ends aborts the process.
            until = self.ports.clock.monotonic_ns() + round(LEAVE_LIMIT * 1e9)
            while self._inside and seconds_until(self.ports.clock, until):
                self.ports.tasks.sleep(0.001)

    def _meet(self) -> None:
        """Wait for those that this station connects to, so that it knows of them as of those of its host."""
        clock, session = self.ports.clock, self._session
        if session is None or not self._network.connect:
            return
        until = clock.monotonic_ns() + round(MEET_LIMIT * 1e9)
        while not session.info.routers_zid() and seconds_until(clock, until):
            self.ports.tasks.sleep(0.005)
        if session.info.routers_zid():
            for reply in session.liveliness().get(self._tokens, timeout=MEET_LIMIT):
                if reply.ok is not None:
                    self._is_there(str(reply.ok.key_expr))

    def _linked_sessions(self) -> set[str]:
        self._inside.append(None)  # as in `put`
        try:
            session = self._session
            return set() if session is None else {str(zid) for zid in session.info.routers_zid()}
        finally:
            self._inside.pop()

    def _mend_routes(self) -> None:
        """Open the session anew if a station is away though it is linked."""
        session = self._session
        if session is None or not (self._network.listen and self._network.connect):
            return
        now = self.ports.clock.monotonic_ns()
        with self._lock:
            away = [who for who, since in self._away.items() if now - since > ROUTES_LIMIT * 1e9]
            sessions = {self._sessions[who] for who in away if who in self._sessions}
        if sessions and sessions & self._linked_sessions():
            log.warning("a station is linked and cannot be reached: the session with Zenoh is opened anew")
            self._leave()
            self._open()

    # In threads of Zenoh: nothing is done there but to note what came

    def _token(self, sample: Any) -> None:
        if sample.kind == self._zenoh.SampleKind.PUT:
            self._is_there(str(sample.key_expr))
        else:
            self._is_away(str(sample.key_expr))
        self._look_around.notify()

    def _is_there(self, key: str) -> None:
        station, session = _token_of(key)
        with self._lock:
            if station is None or station == self._station or len(self._present) >= MAX_STATIONS:
                return
            self._present.add(station)
            self._sessions[station] = session
            self._away.pop(station, None)
            self._given_up.discard(station)

    def _is_away(self, key: str) -> None:
        station, session = _token_of(key)
        with self._lock:
            if station not in self._present or self._sessions.get(station, session) != session:
                return  # it has another session by now
            self._present.discard(station)
            self._away[station] = self.ports.clock.monotonic_ns()
            ended = [one for one in self._connections.values() if one.station == station]
        for connection in ended:
            connection.drain()

    def _came(self, sample: Any) -> None:
        data = sample.payload.to_bytes()
        parts = str(sample.key_expr).rsplit("/", 2)
        station, number = _number(parts[-2]), _number(parts[-1])
        if station is None or number is None or station == self._station or len(data) < _HEAD.size:
            return
        kind, position = _HEAD.unpack_from(data)
        with self._lock:
            connection = self._connections.get((station, number))
            is_new = (
                connection is None
                and kind == DATA
                and position == 0
                and not self._closed
                and len(self._connections) < MAX_CALLERS
            )
            if is_new:
                connection = ZenohConnection(self, station, number)
                self._connections[station, number] = connection
            elif kind == LEFT:
                self._gone.append(station)
        if connection is None:
            if kind in (DATA, PROBE):
                self.put(station, number, _HEAD.pack(CLOSE, 0))
            self._look_around.notify()
            return
        connection.came(kind, position, data)
        if is_new:
            self._calling.append(connection)
            self._look_around.notify()

    # In a task of this station

    def _look_out(self) -> None:
        pause = LOOK_EVERY
        while not self._closed:
            self._look_around.wait(pause)
            pause = self._tried_to_look()

    def _tried_to_look(self) -> float:
        """Seconds until the next look."""
        try:
            if not self._closed:
                self._look()
        except Exception as error:  # noqa: BLE001 - whatever it is, others must be met again
            return self._looking.failed(error)
        self._looking.worked()
        return LOOK_EVERY

    def _look(self) -> None:
        """Take in callers, dial every station that is there and not linked, say which ones are gone."""
        assert self._on_connection is not None
        assert self._on_gone is not None
        self._open()
        self._mend_routes()
        while self._calling:
            self._admit(self._calling.popleft())
        now = self.ports.clock.monotonic_ns()
        with self._lock:
            gone = {
                *self._gone,
                *(who for who, since in self._away.items() if now - since > FORGET_AFTER * 1e9),
            }
            self._gone.clear()
            for station in gone:
                self._present.discard(station)
                self._away.pop(station, None)
                self._sessions.pop(station, None)
            self._given_up &= self._away.keys()
            late = [who for who, since in self._away.items() if now - since > self._limit * 1e9]
            unreachable = [who for who in late if who not in self._given_up]
            self._given_up.update(unreachable)
            self._refused &= self._present
            self._linked &= self._present
            to_dial = self._present - self._linked - self._refused
        for station in gone:
            self._on_gone(station)
        for station in unreachable:
            log.warning("station %016x cannot be reached: suspected until it is heard again", station)
            self.on_unreachable(station)
        for station in sorted(to_dial):
            if self._station < station and not self._is_near(station):
                self._dial(station)

    def _admit(self, connection: ZenohConnection) -> None:
        assert self._on_connection is not None
        try:
            self.callers.admit(connection)
            self._on_connection(connection, None)
        except LinkRefused as error:
            log.warning("connection refused: %s", error)
            connection.close()
        except BaseException:
            connection.close()
            raise

    def _dial(self, station: int) -> None:
        assert self._on_connection is not None
        connection = ZenohConnection(self, station, self.ports.random.id64())
        with self._lock:
            self._linked.add(station)
            self._connections[station, connection.number] = connection
        try:
            self._on_connection(connection, station)
        except BaseException:
            connection.close()
            self.lost(station, soon=False)
            raise


def _tls(identity: Path) -> dict[str, Any]:
    """Both ends show a certificate of the domain's authority, for the host that was connected to."""
    certificate, key = str(identity / "certificate.pem"), str(identity / "key.pem")
    return {
        "root_ca_certificate": str(identity / "authority.pem"),
        "enable_mtls": True,
        "verify_name_on_connect": True,
        "close_link_on_expiration": True,
        "listen_certificate": certificate,
        "listen_private_key": key,
        "connect_certificate": certificate,
        "connect_private_key": key,
    }


def _token_of(key: str) -> tuple[int | None, str]:
    """A station and its session, as the key of its token has them."""
    station, _, session = key.rpartition("/station/")[2].partition("/")
    return _number(station), session


def _number(text: str) -> int | None:
    """A station or a connection, as keys have it."""
    try:
        return int(text, 16) if len(text) == 16 else None
    except ValueError:
        return None


_OS_ERROR: Final = re.compile(r"bound to (?P<endpoint>[^\s,]+): .*?\(os error (?P<number>\d+)\)", re.DOTALL)
_PLACE: Final = re.compile(r"\s+at \S*\.rs:\d+\.?")
"""Where in its own source Zenoh met an error."""


def _why_not_open(endpoints: Sequence[str], said: str) -> tuple[str, str]:
    """The endpoint that Zenoh could not listen at, and why: as the system says it, where that was asked."""
    found = _OS_ERROR.search(said)
    if found is None:
        return ", ".join(endpoints), f"cannot be opened: {_PLACE.sub('', said.splitlines()[0])[:300]}"
    endpoint, number = found["endpoint"], int(found["number"])
    if number == errno.EADDRINUSE:
        return endpoint, f"another program listens there: helio doctor --listen {endpoint}"
    return endpoint, f"cannot be opened: {os.strerror(number)}"

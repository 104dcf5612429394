"""Ways to send 64 bytes to another process of the same host, all with the same three calls.

An `End` sends, receives, and closes. `open_end(way, folder, side)` opens one; the two sides are 0 and 1.
Reliable everywhere: where a way can drop, it is told to wait instead. Ways whose library is missing are left
out.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from types import new_class
from typing import TYPE_CHECKING, Any, Literal, Protocol

from heliograph.ring import RingFolder, missing
from heliograph.runtime.ports import Ports, SystemClock, SystemRandom, ThreadTasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.ring import WaitMode

SIZE = 64
LIMIT = 30.0
IDLE_S = 0.005
"""A way that polls looks for so long without a pause; then once a millisecond, not to disturb the others."""
SETTLING_S = 2.0
"""A rival that tells nobody when its memory is mapped has so long for it."""
Side = Literal[0, 1]


class End(Protocol):
    """One of two ends that talk to each other."""

    def send(self, data: bytes) -> object: ...

    def receive(self, limit: float) -> bytes | None:
        """The next 64 bytes; None when none came within so many seconds."""
        ...

    def close(self) -> None: ...


class RingEnd:
    """A ring for each direction."""

    def __init__(self, folder: Path, side: Side, wait: WaitMode) -> None:
        ports = Ports(SystemClock(), ThreadTasks(), SystemRandom())
        self.rings = RingFolder(folder.name)
        self.writer = self.rings.create(side + 1, 0, ports, wait="spin")
        _until(lambda: len(self.rings.rings()) == 2)
        (theirs,) = (name for name in self.rings.rings() if name.station == 2 - side)
        self.reader = self.rings.open(theirs, ports, reliable=True, wait=wait)
        _until(lambda: self.writer.stats().readers)
        self.send = self.writer.append
        self.receive = self.reader.read

    def close(self) -> None:
        self.reader.close()
        self.writer.close()
        try:
            self.rings.path.rmdir()
        except OSError:  # the other end is still there, and will
            return


class SocketEnd:
    """A Unix stream socket; events are of one size, so no frames are needed."""

    def __init__(self, folder: Path, side: Side) -> None:
        path = str(folder / "socket")
        if side == 0:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path)
                server.listen()
                server.settimeout(LIMIT)
                self._socket, _ = server.accept()
        else:
            self._socket = _retried(lambda: _connected(path))
        self._socket.settimeout(None)
        self.send = self._socket.sendall
        self._rest = b""

    def receive(self, limit: float) -> bytes | None:
        rest = self._rest
        while len(rest) < SIZE:
            more = self._socket.recv(65536)
            if not more:
                return None
            rest += more
        self._rest = rest[SIZE:]
        return rest[:SIZE]

    def close(self) -> None:
        self._socket.close()


def _connected(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        made.connect(path)
    except OSError:
        made.close()
        raise
    return made


class ZmqEnd:
    """ZeroMQ's pair over its Unix transport, without a limit on what waits."""

    def __init__(self, folder: Path, side: Side) -> None:
        zmq: Any = import_module("zmq")

        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.sndhwm = self._socket.rcvhwm = 100_000
        self._socket.linger = 0
        address = f"ipc://{folder}/zmq"
        (self._socket.bind if side == 0 else self._socket.connect)(address)
        self.send = self._socket.send

    def receive(self, limit: float) -> bytes | None:
        received: bytes = self._socket.recv()
        return received

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class ZmqPublishEnd:
    """ZeroMQ's publish and subscribe, told to wait instead of dropping (XPUB_NODROP)."""

    def __init__(self, folder: Path, side: Side) -> None:
        zmq: Any = import_module("zmq")

        self._context = zmq.Context()
        self._out, self._in = self._context.socket(zmq.XPUB), self._context.socket(zmq.SUB)
        self._out.setsockopt(zmq.XPUB_NODROP, 1)
        for end in (self._out, self._in):
            end.linger = 0
        self._out.bind(f"ipc://{folder}/zmq-{side}")
        self._in.subscribe(b"")
        self._in.connect(f"ipc://{folder}/zmq-{1 - side}")
        self._out.recv()  # that the other side has subscribed
        self.send = self._out.send

    def receive(self, limit: float) -> bytes | None:
        received: bytes = self._in.recv()
        return received

    def close(self) -> None:
        self._out.close()
        self._in.close()
        self._context.term()


class NngEnd:
    """nanomsg's pair over its Unix transport."""

    def __init__(self, folder: Path, side: Side) -> None:
        pynng: Any = import_module("pynng")

        address = f"ipc://{folder}/nng"
        self._socket = (
            pynng.Pair0(listen=address) if side == 0 else _retried(lambda: pynng.Pair0(dial=address))
        )
        self.send = self._socket.send

    def receive(self, limit: float) -> bytes | None:
        received: bytes = self._socket.recv()
        return received

    def close(self) -> None:
        self._socket.close()


class ZenohEnd:
    """Zenoh between two peers over loopback TCP; scouting is off."""

    def __init__(self, folder: Path, side: Side) -> None:
        zenoh: Any = import_module("zenoh")

        config = zenoh.Config()
        config.insert_json5("scouting/multicast/enabled", "false")
        # Ports of one benchmark run must not meet those of another.
        endpoint = f'["tcp/127.0.0.1:{20_000 + int(folder.name[-4:], 16) % 20_000}"]'
        config.insert_json5("listen/endpoints" if side == 0 else "connect/endpoints", endpoint)
        if side == 1:
            config.insert_json5("listen/endpoints", "[]")
        self._session = zenoh.open(config)
        self._subscriber = self._session.declare_subscriber(
            f"bench/{1 - side}", zenoh.handlers.FifoChannel(100_000)
        )
        self._publisher = self._session.declare_publisher(
            f"bench/{side}", congestion_control=zenoh.CongestionControl.BLOCK
        )
        _until(lambda: self._publisher.matching_status.matching)
        self.send = self._publisher.put

    def receive(self, limit: float) -> bytes | None:
        received: bytes = self._subscriber.recv().payload.to_bytes()
        return received

    def close(self) -> None:
        self._session.close()


class NatsEnd:
    """NATS in its plain protocol, without a client library's cost: each way goes through a server."""

    def __init__(self, folder: Path, side: Side) -> None:
        port = 40_000 + int(folder.name[-4:], 16) % 20_000
        self._server: subprocess.Popen[bytes] | None = None
        if side == 0:
            program = nats_server()
            assert program is not None
            command = [program, "--addr", "127.0.0.1", "--port", str(port)]
            self._server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._socket = _retried(lambda: socket.create_connection(("127.0.0.1", port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        self._socket.sendall(
            b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB bench.%d 1\r\nPING\r\n' % (1 - side)
        )
        while self._answers.readline() != b"PONG\r\n":
            pass
        self._head = b"PUB bench.%d %d\r\n" % (side, SIZE)
        # The server keeps nothing for who has not subscribed yet.
        (folder / f"nats-{side}").touch()
        _until((folder / f"nats-{1 - side}").exists)

    def send(self, data: bytes) -> None:
        self._socket.sendall(b"%b%b\r\n" % (self._head, data))

    def receive(self, limit: float) -> bytes | None:
        while not (line := self._answers.readline()).startswith(b"MSG"):
            if line == b"PING\r\n":
                self._socket.sendall(b"PONG\r\n")
            elif not line:
                return None
        received: bytes = self._answers.read(SIZE + 2)[:SIZE]
        return received

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
        if self._server is not None:
            self._server.terminate()
            self._server.wait()


def nats_server() -> str | None:
    """Where the server is that comes with the wheel of the bench group; None without."""
    return shutil.which("nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


class EcalEnd:
    """eCAL's publish-subscribe through shared memory; its own thread calls back, and wakes who receives."""

    def __init__(self, folder: Path, side: Side) -> None:
        ecal: Any = import_module("ecal.nanobind_core")

        self._ecal = ecal
        ecal.initialize(f"bench-{folder.name}-{side}")
        self._came: SimpleQueue[bytes] = SimpleQueue()
        self._subscriber = ecal.Subscriber(f"bench-{folder.name}-{1 - side}")
        self._subscriber.set_receive_callback(lambda _, __, data: self._came.put(bytes(data.buffer)))
        self._publisher = ecal.Publisher(f"bench-{folder.name}-{side}")
        _until(self._publisher.get_subscriber_count)
        _until(self._subscriber.get_publisher_count)
        # Each side says that it is there until the other does: what is sent before it has the memory is lost.
        (folder / f"ecal-{side}").touch()
        _until((folder / f"ecal-{1 - side}").exists)
        time.sleep(SETTLING_S)
        self.send = self._publisher.send

    def receive(self, limit: float) -> bytes | None:
        try:
            return self._came.get(timeout=limit)
        except Empty:
            return None

    def close(self) -> None:
        self._subscriber.remove_receive_callback()
        self._ecal.finalize()


class Iceoryx2End:
    """iceoryx2's publish-subscribe, which is polled."""

    def __init__(self, folder: Path, side: Side) -> None:
        iceoryx2: Any = import_module("iceoryx2")

        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        self._node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
        own, theirs = (self._service(iceoryx2, f"{folder.name}/{i}") for i in (side, 1 - side))
        self._publisher = (
            own.publisher_builder()
            .backpressure_strategy(iceoryx2.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )
        self._subscriber = theirs.subscriber_builder().create()
        _until(lambda: own.dynamic_config.number_of_subscribers > 0)
        _until(lambda: theirs.dynamic_config.number_of_publishers > 0)

    def _service(self, iceoryx2: Any, name: str) -> Any:
        return (
            self._node.service_builder(iceoryx2.ServiceName.new(name))
            .publish_subscribe(Iceoryx2Event)
            .subscriber_max_buffer_size(4096)
            .enable_safe_overflow(False)
            .open_or_create()
        )

    def send(self, data: bytes) -> None:
        self._publisher.send_copy(Iceoryx2Event.from_buffer_copy(data))

    def receive(self, limit: float) -> bytes | None:
        receive = self._subscriber.receive
        sample = receive()
        if sample is None:
            sample = _polled(receive, limit)
        return None if sample is None else bytes(sample.payload().contents)

    def close(self) -> None:
        self._publisher.delete()
        self._subscriber.delete()


class Iceoryx2SleepingEnd(Iceoryx2End):
    """The same for those who sleep: with the library's events beside it, which wake the receiver."""

    def __init__(self, folder: Path, side: Side) -> None:
        super().__init__(folder, side)
        iceoryx2: Any = import_module("iceoryx2")

        own, theirs = (self._bell(iceoryx2, f"{folder.name}/{i}") for i in (side, 1 - side))
        self._listener = theirs.listener_builder().create()
        self._notifier = own.notifier_builder().create()
        self._new_duration = iceoryx2.Duration.from_secs_f64
        _until(lambda: own.dynamic_config.number_of_listeners > 0)

    def _bell(self, iceoryx2: Any, name: str) -> Any:
        return self._node.service_builder(iceoryx2.ServiceName.new(name)).event().open_or_create()

    def send(self, data: bytes) -> None:
        super().send(data)
        self._notifier.notify()

    def receive(self, limit: float) -> bytes | None:
        sample = self._subscriber.receive()
        end = time.monotonic() + limit if sample is None else 0.0
        while sample is None:
            # It also wakes for what was found before anybody waited, and then may name no event.
            self._listener.timed_wait(self._new_duration(limit))
            sample = self._subscriber.receive()
            if sample is None and time.monotonic() > end:
                return None
        return bytes(sample.payload().contents)

    def close(self) -> None:
        self._notifier.delete()
        self._listener.delete()
        super().close()


class Iceoryx2Event(ctypes.Structure):
    """What crosses: the library takes types of ctypes only."""

    _fields_ = (("data", ctypes.c_uint8 * SIZE),)


class CycloneEnd:
    """Cyclone DDS over loopback, reliable, keep all; text: its sequences of bytes are slow in Python."""

    def __init__(self, folder: Path, side: Side) -> None:
        os.environ["CYCLONEDDS_URI"] = (
            "<CycloneDDS><Domain><General><Interfaces><NetworkInterface address='127.0.0.1'/></Interfaces>"
            "<AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto"
            "</ParticipantIndex><Peers><Peer address='127.0.0.1'/></Peers></Discovery></Domain></CycloneDDS>"
        )
        core: Any = import_module("cyclonedds.core")
        duration: Any = import_module("cyclonedds.util").duration
        topic: Any = import_module("cyclonedds.topic").Topic
        policy = core.Policy
        qos = core.Qos(policy.Reliability.Reliable(duration(seconds=10)), policy.History.KeepAll)
        here = import_module("cyclonedds.domain").DomainParticipant(int(folder.name[-4:], 16) % 200)
        self._make = cyclone_text()
        own, theirs = (topic(here, f"bench{i}", self._make) for i in (side, 1 - side))
        self._writer = import_module("cyclonedds.pub").DataWriter(here, own, qos=qos)
        self._reader = import_module("cyclonedds.sub").DataReader(here, theirs, qos=qos)
        self._waiting = core.WaitSet(here)
        states = core.ViewState.Any | core.InstanceState.Any | core.SampleState.Any
        self._waiting.attach(core.ReadCondition(self._reader, states))
        self._timeout = duration(seconds=LIMIT)
        self._came: list[bytes] = []
        _until(lambda: self._writer.get_matched_subscriptions() and self._reader.get_matched_publications())

    def send(self, data: bytes) -> None:
        self._writer.write(self._make(data.decode("latin-1")))

    def receive(self, limit: float) -> bytes | None:
        while not self._came:
            self._came = [sample.data.encode("latin-1") for sample in reversed(self._reader.take(100))]
            if not self._came and not self._waiting.wait(self._timeout):
                return None
        return self._came.pop()

    def close(self) -> None:
        return


def cyclone_text() -> Any:
    """The type of an event, made when it is needed: the library may not be there."""
    struct: Any = import_module("cyclonedds.idl").IdlStruct
    return dataclass(new_class("Text", (struct,), {"typename": "bench.Text"}, _annotate))


def _annotate(namespace: dict[str, Any]) -> None:
    namespace["__annotations__"] = {"data": str}


def _retried(make: Callable[[], Any]) -> Any:
    end = time.monotonic() + LIMIT
    while True:
        try:
            return make()
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("the other end did not come")
        time.sleep(0.01)


def _polled(receive: Callable[[], Any], limit: float) -> Any:
    started = time.monotonic()
    while True:
        for _ in range(100):
            got = receive()
            if got is not None:
                return got
        waited = time.monotonic() - started
        if waited > limit:
            return None
        if waited > IDLE_S:
            time.sleep(0.001)


WAYS: dict[str, tuple[str, str | None, Callable[[Path, Side], End]]] = {
    "ring, polling": ("looks for 50 µs before it sleeps", None, lambda f, s: RingEnd(f, s, "spin")),
    "ring, blocking": ("sleeps at once", None, lambda f, s: RingEnd(f, s, "block")),
    "Unix socket": ("blocking", None, SocketEnd),
    "iceoryx2": ("polling", "iceoryx2", Iceoryx2End),
    "iceoryx2, blocking": ("with its events, blocking", "iceoryx2", Iceoryx2SleepingEnd),
    "ZeroMQ": ("pair, blocking", "zmq", ZmqEnd),
    "ZeroMQ XPUB": ("publish, no drop, blocking", "zmq", ZmqPublishEnd),
    "nng": ("pair, blocking", "pynng", NngEnd),
    "Zenoh": ("loopback TCP, blocking", "zenoh", ZenohEnd),
    "Cyclone DDS": ("loopback, blocking, text", "cyclonedds", CycloneEnd),
    "NATS": ("loopback TCP through its server, blocking", "nats", NatsEnd),
    "eCAL": ("shared memory, blocking", "ecal", EcalEnd),
}
"""Each way: how it waits, the library it needs, and what opens an end."""


def ways_here() -> list[str]:
    """The ways that this machine and its libraries allow."""
    return [
        name
        for name, (_, library, _) in WAYS.items()
        if _is_installed(library) and not (name.startswith("ring") and missing())
    ]


def ways_missing() -> list[str]:
    """The ways whose library is not installed."""
    return [name for name, (_, library, _) in WAYS.items() if not _is_installed(library)]


def _is_installed(library: str | None) -> bool:
    if library == "nats":  # a program
        return nats_server() is not None
    return library is None or find_spec(library) is not None


def open_end(way: str, folder: Path, side: Side) -> End:
    return WAYS[way][2](folder, side)

"""Acknowledged when it is on the disk: a persistent channel beside NATS JetStream and Redis Streams.

All three write to the same disk and sync before they acknowledge: JetStream with file storage and
`sync_interval: always`, Redis with an append-only file and `appendfsync always`. Their servers are processes
of their own, spoken to in their plain protocols, without a client library's cost; a channel is in this
process. A server that is not installed is left out: `nats-server` comes with the wheel of the bench group,
`redis-server` with the system.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import heliograph as hg
from bench.harness import Benchmark, Case, Size, benchmark
from bench.peers.journals import ROW, TRACK, Suppliers, Track

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 1_000
STARTING = 10.0
"""Seconds that a server may take until it listens."""


C = TypeVar("C")


class Client(Protocol):
    def push(self, count: int) -> None:
        """Send so many events, and wait until all of them are acknowledged."""

    def close(self) -> None: ...


class Jetstream:
    """One connection to a NATS server."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        self._answers.readline()  # what the server says about itself
        self._inbox = b"_INBOX.%d" % id(self)
        self._socket.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB %s 1\r\n' % self._inbox)
        self._row = self._message(b"tracks", ROW)

    def create(self) -> None:
        body = (
            b'{"name":"bench","subjects":["tracks"],"storage":"file","retention":"limits","num_replicas":1}'
        )
        self._socket.sendall(self._message(b"$JS.API.STREAM.CREATE.bench", body))
        self._acknowledged()

    def push(self, count: int) -> None:
        self._socket.sendall(self._row * count)
        for _ in range(count):
            self._acknowledged()

    def _message(self, subject: bytes, body: bytes) -> bytes:
        return b"PUB %s %s %d\r\n%s\r\n" % (subject, self._inbox, len(body), body)

    def _acknowledged(self) -> None:
        while not (line := self._answers.readline()).startswith(b"MSG"):
            if line == b"PING\r\n":
                self._socket.sendall(b"PONG\r\n")
            elif not line.startswith(b"INFO"):
                raise ConnectionError(line.decode())
        answer = self._answers.read(int(line.split()[-1]) + 2)
        if b'"error"' in answer:
            raise ConnectionError(answer.decode())

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


class Redis:
    """One connection to a Redis server."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._answers = self._socket.makefile("rb")
        words = (b"XADD", b"tracks", b"*", b"row", ROW)
        self._row = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    def push(self, count: int) -> None:
        self._socket.sendall(self._row * count)
        for _ in range(count):
            head = self._answers.readline()
            if not head.startswith(b"$"):
                raise ConnectionError(head.decode())
            self._answers.readline()

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def jetstream(stack: ExitStack, folder: str) -> Callable[[], Client] | None:
    """A server with one stream, and how to connect to it; None when it is not installed."""
    program = _program("nats-server")
    if program is None:
        return None
    with socket.create_server(("127.0.0.1", 0)) as free:
        address: tuple[str, int] = free.getsockname()
    settings = Path(folder, "nats.conf")
    stored = f"jetstream {{ store_dir: {folder}/nats, sync_interval: always }}"
    settings.write_text(f"listen: {address[0]}:{address[1]}\n{stored}\n")
    _start(stack, [program, "--config", str(settings)])
    first = _once_it_listens(partial(Jetstream, address))
    first.create()
    first.close()
    return partial(_connected, stack, partial(Jetstream, address))


def redis(stack: ExitStack, folder: str) -> Callable[[], Client] | None:
    """A server, and how to connect to it; None when it is not installed."""
    program = _program("redis-server")
    if program is None:
        return None
    path = f"{folder}/redis.sock"
    kept = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", folder]
    _start(stack, [program, "--port", "0", "--unixsocket", path, *kept])
    _once_it_listens(partial(Redis, path)).close()
    return partial(_connected, stack, partial(Redis, path))


def _connected(stack: ExitStack, connect: Callable[[], Client]) -> Client:
    """A connection that is closed with the benchmark."""
    client = connect()
    stack.callback(client.close)
    return client


def _program(name: str) -> str | None:
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def _start(stack: ExitStack, command: list[str]) -> None:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(server.wait)
    stack.callback(server.terminate)


def _once_it_listens(connect: Callable[[], C]) -> C:
    end = time.monotonic() + STARTING
    while True:
        try:
            return connect()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def of_each_thread(connect: Callable[[], Client]) -> Callable[[int], None]:
    """Pushes over a connection that each thread has for itself."""
    mine = threading.local()

    def push(count: int) -> None:
        if not hasattr(mine, "client"):
            mine.client = connect()
        mine.client.push(count)

    return push


@benchmark("journal-rivals", "Synced pushes beside NATS JetStream and Redis on the same disk; per event")
def rivals(size: Size) -> Benchmark:
    stack = ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    station = stack.enter_context(hg.Station(f"{folder}/data"))
    channel = station.channel("kept", Track, qos=hg.QoS(durability="persistent"))
    batch = [TRACK] * AT_ONCE

    def ours(count: int) -> None:
        if count == 1:
            channel.push(TRACK)
        else:
            channel.push_many(batch)

    pushing: dict[str, Callable[[int], None]] = {"heliograph": ours}
    missing = []
    for name, server in {"JetStream": jetstream, "Redis": redis}.items():
        connect = server(stack, folder)
        if connect is None:
            missing.append(name)
        else:
            pushing[name] = of_each_thread(connect)
    cases = []
    for threads in (1, 8):
        times = max(1, size.scaled(200) // threads)
        for name, push in pushing.items():
            work = Suppliers(threads, times, partial(push, 1))
            cases.append(Case(f"{name}, {threads}", work, ((),), wall=True, events=threads * times))
    for name, push in pushing.items():
        cases.append(
            Case(f"{name}, {AT_ONCE} at once", partial(push, AT_ONCE), ((),), wall=True, events=AT_ONCE)
        )
    return Benchmark(
        cases=tuple(cases),
        baseline="heliograph, 1",
        rounds=15,
        close=stack.close,
        note="From 1 and 8 suppliers that wait for each event, and 1,000 before the first answer is read."
        + "".join(f" {name} is not installed here." for name in missing),
    )

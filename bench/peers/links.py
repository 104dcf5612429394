"""From process to process: typed, filtered events over the socket link against bytes over a bare Unix socket.

The other process is this module run as a program. Both sides block while they wait, and each has a core of
its own where there are two: unpinned, the figures jump between one core and two, the bare socket's as well.

Between the bare socket and the link stands the least that could do the link's work for a single event: a
loop, written by hand, that encodes, numbers and sends, and at the other end checks the number, decodes,
filters and answers. It has no channels, no other types and no queue, keeps nothing for sending again and
acknowledges nothing. It waits as the bare socket does, in `recv`, and once more by `poll`, as the link does:
whoever waits in `recv` on a Unix socket is also woken when the other end has read what was sent before.

The link's round trip is counted inside the reading threads: an inline consumer at each end pushes the answer,
so no other thread is woken. With a consumer that is asked at this end, the reading thread has to wake the one
that asks, which is what the case after it shows.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

import heliograph as hg
from bench.environment import variables
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable


class Ping(hg.Event, name="bench.ping"):
    n: int
    pad: bytes


class LeastPing(msgspec.Struct, array_like=True):
    """A ping without anything that makes it an event."""

    n: int
    pad: bytes


PING = Ping(7, bytes(48))
LIMIT = 30.0
TRIPS = 300
"""Round trips of one call: to start them and to hear that they are over takes two threads to be woken."""


def echo_station(domain: str) -> None:
    """The other process's work, until its input ends."""
    with hg.Station(domain=domain, name="echo", transport="socket") as station:
        serve(station, inline=True)
        sys.stdin.read()


def serve(station: hg.Station, *, inline: bool | None = None) -> None:
    """Send every ping back as a pong, and count what comes in bulk; in callbacks as `subscribe` has them."""
    pongs = station.channel("pong", Ping)
    bulk = station.channel("bulk", Ping)
    station.channel("ping", Ping).subscribe(pongs.push, where="n > 0", inline=inline)
    seen = 0

    def counted(event: Ping) -> None:
        nonlocal seen
        seen += 1
        if event.n == 2:
            pongs.push(Ping(seen, b""))

    bulk.subscribe(counted, where="n > 0", inline=inline)


def echo_socket(path: str) -> None:
    """Send every 64 bytes back."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        peer, _ = server.accept()
        while data := peer.recv(64):
            peer.sendall(data)


_HEAD = struct.Struct("<IQ")
"""Size and number of what follows."""


class Least:
    """One end of the least loop that sends typed, numbered values and filters what it gets."""

    def __init__(self, peer: socket.socket, *, polls: bool) -> None:
        poll = select.poll()
        poll.register(peer, select.POLLIN)
        self._wait = poll.poll if polls else lambda: None
        self._recv, self._send = peer.recv, peer.send
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(LeastPing).decode
        self._sent = self._received = 0

    def send(self, ping: LeastPing) -> None:
        body = self._encode(ping)
        self._sent += 1
        self._send(_HEAD.pack(len(body), self._sent) + body, int(socket.MSG_DONTWAIT))

    def receive(self) -> LeastPing | None:
        """The next ping that passes the filter; None when the other end has gone."""
        while True:
            self._wait()
            data = self._recv(1 << 14)
            if not data:
                return None
            size, number = _HEAD.unpack_from(data)
            if number != self._received + 1 or size != len(data) - _HEAD.size:
                raise ValueError("the least loop has lost count")
            self._received = number
            ping = self._decode(memoryview(data)[_HEAD.size :])
            if ping.n > 0:
                return ping


def echo_least(path: str, *, polls: bool) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        least = Least(server.accept()[0], polls=polls)
        while (ping := least.receive()) is not None:
            least.send(ping)


def pin(core: int) -> Callable[[], None]:
    """Keep this process on one core, if it may use several; returns what undoes it."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[core % len(allowed)]})
    return lambda: os.sched_setaffinity(0, allowed)


def other_process(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.peers.links", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables(),
    )


class Caller:
    """This side of the conversation with whoever serves."""

    def __init__(self, station: hg.Station, many: int, *, inline: bool | None = None) -> None:
        self._pings, self._bulk = station.channel("ping", Ping), station.channel("bulk", Ping)
        self._pongs = station.channel("pong", Ping)
        self._stream = [PING] * (many - 1) + [Ping(2, b"")]
        self._left = 0
        self._seen = 0
        self._pong = PING
        self.lost = 0
        self._ended = threading.Event()
        self._times: list[int] | None = None
        self._pongs.subscribe(self._answer, inline=inline)
        assert self._pings.wait_matched(1, LIMIT)
        assert self._bulk.wait_matched(1, LIMIT)

    def round_trips(self) -> None:
        self._left = TRIPS
        self._pings.push(PING)
        self._wait()

    def timed_round_trips(self, seconds: float) -> list[float]:
        """Those of so many seconds, each by itself, in milliseconds."""
        times = self._times = [time.perf_counter_ns()]
        end = times[0] + seconds * 1e9
        while times[-1] < end:
            self.round_trips()
        self._times = None
        # Between two bundles a thread is woken, which is no part of a round trip.
        return [(b - a) / 1e6 for n, (a, b) in enumerate(pairwise(times)) if n % TRIPS]

    def asked_round_trips(self) -> None:
        with self._pongs.consumer() as asked:
            for _ in range(TRIPS):
                self._pings.push(PING)
                if asked.pull(LIMIT) is None:
                    raise TimeoutError("no pong")
        self._ended.clear()

    def one_by_one(self) -> None:
        self._left = 1
        push = self._bulk.push
        for event in self._stream:
            push(event)
        self._wait_counted()

    def together(self) -> None:
        self._left = 1
        self._bulk.push_many(self._stream)
        self._wait_counted()

    def _answer(self, pong: Ping) -> None:
        self._left -= 1
        self._pong = pong
        if self._times is not None:
            self._times.append(time.perf_counter_ns())
        if self._left > 0:
            self._pings.push(PING)
        else:
            self._ended.set()

    def _wait_counted(self) -> None:
        """The answer to the last event of a stream says how many have come in all."""
        self._wait()
        self.lost += self._seen + len(self._stream) - self._pong.n
        self._seen = self._pong.n
        if self.lost:
            raise RuntimeError(f"{self.lost} events were lost or came twice")

    def _wait(self) -> None:
        if not self._ended.wait(LIMIT):
            raise TimeoutError("no pong")
        self._ended.clear()


def connected(started: ExitStack, kind: str, path: str) -> socket.socket:
    """A socket to another process that answers on it."""
    other = other_process(kind, path)
    started.callback(other.communicate, timeout=LIMIT)
    assert other.stdout is not None
    other.stdout.readline()
    ours = started.enter_context(socket.socket(socket.AF_UNIX))
    ours.connect(path)
    return ours


def least_round_trips(least: Least) -> Callable[[], None]:
    ping = LeastPing(PING.n, PING.pad)

    def trips() -> None:
        for _ in range(TRIPS):
            least.send(ping)
            least.receive()

    return trips


@benchmark("links", "A round trip of 64 bytes to another process, and a stream; figures per event")
def links(size: Size) -> Benchmark:
    started = ExitStack()
    folder = started.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    bare = connected(started, "socket", f"{folder}/bare")
    least = Least(connected(started, "least", f"{folder}/least"), polls=False)
    polling = Least(connected(started, "polling", f"{folder}/polling"), polls=True)
    domain = f"bench-{os.getpid()}"
    started.callback(other_process("station", domain).communicate, timeout=LIMIT)
    many = size.scaled(50_000)
    station = hg.Station(domain=domain, name="bench", transport="socket")
    caller = Caller(started.enter_context(station), many, inline=True)
    started.callback(pin(0))
    caller.one_by_one()
    caller.together()

    def bare_round_trips() -> None:
        for _ in range(TRIPS):
            bare.sendall(bytes(64))
            bare.recv(64)

    def trips(name: str, function: Callable[[], None], note: str) -> Case:
        return Case(name, function, ((),), note, wall=True, events=TRIPS)

    return Benchmark(
        cases=(
            trips("bare socket", bare_round_trips, "bytes, blocking in recv"),
            trips("least", least_round_trips(least), "typed, filtered, numbered by hand; in recv"),
            trips("least, by poll", least_round_trips(polling), "the same, blocking in poll"),
            trips("inline", caller.round_trips, "typed, filtered, over the link; blocking in poll"),
            trips("asked", caller.asked_round_trips, "one more thread is woken"),
            Case("stream, one by one", caller.one_by_one, ((),), wall=True, events=many),
            Case("stream, push_many", caller.together, ((),), wall=True, events=many),
        ),
        baseline="bare socket",
        targets=(
            Target("a round trip against a bare socket's", "inline", "at most", 1.3, "bare socket"),
            Target("a round trip against the least loop's", "inline", "at most", 2.0, "least, by poll"),
            Target("0.5 million events a second, one by one", "stream, one by one", "at most", 2.0),
            Target("1.5 million events a second in batches", "stream, push_many", "at most", 0.667),
        ),
        facts=(Fact("of both streams every event came, and none twice", caller.lost == 0),),
        close=started.close,
        note="Time on the wall, each process on a core of its own.",
    )


if __name__ == "__main__":
    pin(1)
    programs: dict[str, Callable[[str], None]] = {
        "station": echo_station,
        "socket": echo_socket,
        "least": partial(echo_least, polls=False),
        "polling": partial(echo_least, polls=True),
    }
    programs[sys.argv[1]](sys.argv[2])

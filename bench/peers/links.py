"""From process to process: typed, filtered events over the socket link against bytes over a bare Unix socket.

The other process is this module run as a program. Both sides block while they wait, and each has a core of
its own where there are two: unpinned, the figures jump between one core and two, the bare socket's as well.

The round trip is counted inside the reading threads: an inline consumer at each end pushes the answer, so no
other thread is woken. With a consumer that is asked at this end, the reading thread has to wake the one that
asks, which is what the third case shows.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import heliograph as hg
from bench.harness import Benchmark, Case, Size, Target, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable


class Ping(hg.Event, name="bench.ping"):
    n: int
    pad: bytes


PING = Ping(7, bytes(48))
LIMIT = 30.0
TRIPS = 100
"""Round trips of one call."""


def echo_station(domain: str) -> None:
    """Send every ping back as a pong, and count what comes in bulk."""
    with hg.Station(domain=domain, name="echo") as station:
        pongs = station.channel("pong", Ping)
        bulk = station.channel("bulk", Ping)
        station.channel("ping", Ping).subscribe(pongs.push, inline=True, where="n > 0")
        seen = 0

        def counted(event: Ping) -> None:
            nonlocal seen
            seen += 1
            if event.n == 2:
                pongs.push(Ping(seen, b""))

        bulk.subscribe(counted, inline=True, where="n > 0")
        sys.stdin.read()


def echo_socket(path: str) -> None:
    """Send every 64 bytes back."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        peer, _ = server.accept()
        while data := peer.recv(64):
            peer.sendall(data)


def pin(core: int) -> Callable[[], None]:
    """Keep this process on one core, if it may use several; returns what undoes it."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[core % len(allowed)]})
    return lambda: os.sched_setaffinity(0, allowed)


def other_process(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-m", "bench.peers.links", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


class Caller:
    """This side of the conversation with `echo_station`."""

    def __init__(self, station: hg.Station, many: int) -> None:
        self._pings, self._bulk = station.channel("ping", Ping), station.channel("bulk", Ping)
        self._pongs = station.channel("pong", Ping)
        self._stream = [PING] * (many - 1) + [Ping(2, b"")]
        self._left = 0
        self._ended = threading.Event()
        self._pongs.subscribe(self._answer, inline=True)
        assert self._pings.wait_matched(1, LIMIT)
        assert self._bulk.wait_matched(1, LIMIT)

    def round_trips(self) -> None:
        self._left = TRIPS
        self._pings.push(PING)
        self._wait()

    def asked_round_trips(self) -> None:
        with self._pongs.consumer() as asked:
            for _ in range(TRIPS):
                self._pings.push(PING)
                if asked.pull(LIMIT) is None:
                    raise TimeoutError("no pong")
        self._ended.clear()

    def one_by_one(self) -> None:
        self._left = 1
        for event in self._stream:
            self._bulk.push(event)
        self._wait()

    def together(self) -> None:
        self._left = 1
        self._bulk.push_many(self._stream)
        self._wait()

    def _answer(self, _: Ping) -> None:
        self._left -= 1
        if self._left > 0:
            self._pings.push(PING)
        else:
            self._ended.set()

    def _wait(self) -> None:
        if not self._ended.wait(LIMIT):
            raise TimeoutError("no pong")
        self._ended.clear()


@benchmark("links", "A round trip of 64 bytes to another process, and a stream; figures per event")
def links(size: Size) -> Benchmark:
    started = ExitStack()
    folder = started.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    raw = other_process("socket", f"{folder}/echo")
    started.callback(raw.communicate, timeout=LIMIT)
    assert raw.stdout is not None
    raw.stdout.readline()
    bare = started.enter_context(socket.socket(socket.AF_UNIX))
    bare.connect(f"{folder}/echo")
    domain = f"bench-{os.getpid()}"
    started.callback(other_process("station", domain).communicate, timeout=LIMIT)
    many = size.scaled(10_000)
    caller = Caller(started.enter_context(hg.Station(domain=domain, name="bench")), many)
    started.callback(pin(0))

    def bare_round_trips() -> None:
        for _ in range(TRIPS):
            bare.sendall(bytes(64))
            bare.recv(64)

    return Benchmark(
        cases=(
            Case("bare socket", bare_round_trips, ((),), "bytes, blocking", wall=True, events=TRIPS),
            Case("inline", caller.round_trips, ((),), "typed, filtered, blocking", wall=True, events=TRIPS),
            Case(
                "asked", caller.asked_round_trips, ((),), "one more thread is woken", wall=True, events=TRIPS
            ),
            Case("stream, one by one", caller.one_by_one, ((),), wall=True, events=many),
            Case("stream, push_many", caller.together, ((),), wall=True, events=many),
        ),
        baseline="bare socket",
        targets=(Target("a round trip against a bare socket's", "inline", "at most", 1.3, "bare socket"),),
        close=started.close,
        note="0.5 million events a second are 2,000 ns each, 1.5 million 667 ns.",
    )


if __name__ == "__main__":
    pin(1)
    {"station": echo_station, "socket": echo_socket}[sys.argv[1]](sys.argv[2])

"""From process to process: typed, filtered events over the socket link against bytes over a bare Unix socket.

The other process is this module run as a program. Both sides block while they wait.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import heliograph as hg
from bench.harness import Benchmark, Case, Size, Target, benchmark


class Ping(hg.Event, name="bench.ping"):
    n: int
    pad: bytes


PING = Ping(7, bytes(48))
LIMIT = 30.0


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


def other_process(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-m", "bench.peers.links", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


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
    station = started.enter_context(hg.Station(domain=domain, name="bench"))
    pings, bulk = station.channel("ping", Ping), station.channel("bulk", Ping)
    pongs = station.channel("pong", Ping).consumer()
    assert pings.wait_matched(1, LIMIT)
    assert bulk.wait_matched(1, LIMIT)
    many = size.scaled(10_000)
    stream = [PING] * (many - 1) + [Ping(2, b"")]

    def bare_round_trip() -> None:
        bare.sendall(bytes(64))
        bare.recv(64)

    def round_trip() -> None:
        pings.push(PING)
        if pongs.pull(LIMIT) is None:
            raise TimeoutError("no pong")

    def one_by_one() -> None:
        for event in stream:
            bulk.push(event)
        pongs.pull(LIMIT)

    def together() -> None:
        bulk.push_many(stream)
        pongs.pull(LIMIT)

    return Benchmark(
        cases=(
            Case("bare socket", bare_round_trip, ((),), "bytes, blocking", wall=True),
            Case("heliograph", round_trip, ((),), "typed, filtered, blocking", wall=True),
            Case("stream, one by one", one_by_one, ((),), wall=True, events=many),
            Case("stream, push_many", together, ((),), wall=True, events=many),
        ),
        baseline="bare socket",
        targets=(
            Target("a round trip against a bare socket's", "heliograph", "at most", 1.3, "bare socket"),
        ),
        close=started.close,
        note="0.5 million events a second are 2,000 ns each, 1.5 million 667 ns.",
    )


if __name__ == "__main__":
    {"station": echo_station, "socket": echo_socket}[sys.argv[1]](sys.argv[2])

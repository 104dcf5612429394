"""From host to host: typed, filtered events by stream over Zenoh, against bytes over bare Zenoh.

The other process is this module run as a program. Each has a folder of its own to meet in, so that the
stations find each other by TCP on loopback alone. One side listens and the other connects, with bare Zenoh as
with stations. Bare Zenoh is called back in the threads of its binding, and puts with congestion control
BLOCK: with DROP most of a stream is lost. A round trip is counted inside the callbacks.

With TLS both ends show certificates. A derived stream lets one of a hundred events through.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heliograph as hg
from bench.environment import variables
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark
from bench.peers.links import LIMIT, TRIPS, Caller, Ping, pin, serve
from heliograph.links.keys import make_authority, make_identity
from heliograph.runtime import private_folder

if TYPE_CHECKING:
    from collections.abc import Callable

DOMAIN = "bench"
BODY = bytes(64)
LAST = b"\1" * 64
SETTINGS: dict[str, Any] = {
    "scouting/multicast/enabled": False,
    "scouting/gossip/enabled": False,
    "timestamping/enabled": False,
}


def bare_session(endpoint: str, *, listens: bool) -> Any:
    import zenoh

    config = zenoh.Config()
    mode = (
        {"mode": "router", "listen/endpoints": [endpoint]} if listens else {"connect/endpoints": [endpoint]}
    )
    for key, value in {**SETTINGS, "mode": "client", **mode}.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


class BareEnd:
    """One end of bare Zenoh: puts what the other end subscribes to."""

    def __init__(self, session: Any, own: str, other: str, callback: Callable[[bytes], object]) -> None:
        import zenoh

        block = zenoh.CongestionControl.BLOCK
        self._publisher = session.declare_publisher(f"bench/{own}", congestion_control=block)
        self.put = self._publisher.put
        self._subscriber = session.declare_subscriber(
            f"bench/{other}", lambda sample: callback(sample.payload.to_bytes())
        )

    @property
    def is_heard(self) -> bool:
        return bool(self._publisher.matching_status.matching)


def echo_bare(endpoint: str, _: str) -> None:
    """Send every ping back, and say how many came in bulk when the last one has."""
    with bare_session(endpoint, listens=False) as session:
        ping = BareEnd(session, "pong", "ping", lambda data: ping.put(data))  # noqa: PLW0108 - it is not there yet
        seen = 0

        def count(data: bytes) -> None:
            nonlocal seen
            seen += 1
            if data[0]:
                bulk.put(seen.to_bytes(8, "little"))

        bulk = BareEnd(session, "counted", "bulk", count)
        sys.stdin.read()


def echo_station(endpoint: str, identity: str) -> None:
    with hg.Station(domain=DOMAIN, name="echo", connect=[endpoint], identity=identity or None) as station:
        serve(station, inline=True)
        station.channel("whole", Ping).subscribe(lambda _: None)
        station.channel("derived", Ping).subscribe(lambda _: None, where="n % 100 = 0")
        sys.stdin.read()


def other_process(folder: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.peers.network", *arguments],
        stdin=subprocess.PIPE,
        text=True,
        env={**variables(), **host(folder)},
    )


def host(folder: str) -> dict[str, str]:
    """Where stations of one host meet."""
    run, memory = Path(folder, "run"), Path(folder, "shm")
    for path in (run, memory):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {"XDG_RUNTIME_DIR": str(run), private_folder.MEMORY_VARIABLE: str(memory)}


class BareCaller:
    """This side of the conversation over bare Zenoh."""

    def __init__(self, session: Any, many: int) -> None:
        self._ended = threading.Event()
        self._left = 0
        self._many = many
        self._seen = 0
        self._ping = BareEnd(session, "ping", "pong", self._answer)
        self._bulk = BareEnd(session, "bulk", "counted", self._counted)
        until = time.monotonic() + LIMIT
        while not (self._ping.is_heard and self._bulk.is_heard) and time.monotonic() < until:
            time.sleep(0.01)

    def round_trips(self) -> None:
        self._left = TRIPS
        self._ping.put(BODY)
        self._wait()

    def one_by_one(self) -> None:
        put = self._bulk.put
        for _ in range(self._many - 1):
            put(BODY)
        put(LAST)
        self._wait()

    def _answer(self, data: bytes) -> None:
        self._left -= 1
        if self._left > 0:
            self._ping.put(data)
        else:
            self._ended.set()

    def _counted(self, data: bytes) -> None:
        seen = int.from_bytes(data, "little")
        if seen - self._seen != self._many:
            raise RuntimeError(f"bare Zenoh lost {self._many - seen + self._seen}")
        self._seen = seen
        self._ended.set()

    def _wait(self) -> None:
        if not self._ended.wait(LIMIT):
            raise TimeoutError("no answer over bare Zenoh")
        self._ended.clear()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def calling(
    started: ExitStack, folder: str, many: int, *, keys: Path | None = None
) -> tuple[hg.Station, Caller]:
    """A station that listens, and another process that is connected to it."""
    protocol = "tcp" if keys is None else "tls"
    endpoint = f"{protocol}/127.0.0.1:{free_port()}"
    identity = None if keys is None else str(keys / "here")
    theirs = "" if keys is None else str(keys / "there")
    name = f"there-{protocol}"
    os.environ.update(host(f"{folder}/here-{protocol}"))
    station = started.enter_context(
        hg.Station(domain=DOMAIN, name=name, listen=[endpoint], identity=identity)
    )
    other = other_process(f"{folder}/{name}", "station", endpoint, theirs)
    started.callback(other.communicate, timeout=LIMIT)
    return station, Caller(station, many, inline=True)


def share_of_derived(station: hg.Station, many: int) -> float:
    """Bytes that a stream has which lets one of a hundred events through, of those of all of them."""
    derived = station.channel("derived", Ping)
    whole = station.channel("whole", Ping)
    assert station.mesh is not None
    assert derived.wait_matched(1, LIMIT)
    assert whole.wait_matched(1, LIMIT)
    for n in range(1, many + 1):
        derived.push(Ping(n, bytes(48)))
        whole.push(Ping(n, bytes(48)))
    derived.settle(LIMIT)
    whole.settle(LIMIT)
    found = {stats.channel: stats for stats in station.mesh.streams() if not stats.peer}
    return found["derived"].bytes / found["whole"].bytes


@benchmark("network", "A round trip of 64 bytes to another host, and a stream; figures per event")
def network(size: Size) -> Benchmark:
    started = ExitStack()
    before = dict(os.environ)
    started.callback(os.environ.update, {key: before.get(key, "") for key in host("/tmp")})
    folder = started.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    many = size.scaled(50_000)
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    session = started.enter_context(bare_session(endpoint, listens=True))
    started.callback(other_process(f"{folder}/bare", "bare", endpoint, "").communicate, timeout=LIMIT)
    bare = BareCaller(session, many)
    station, plain = calling(started, folder, many)
    keys = Path(folder, "keys")
    make_authority(keys, DOMAIN)
    for name in ("here", "there"):
        make_identity(keys, name, hosts=["127.0.0.1"])
    _, encrypted = calling(started, folder, many, keys=keys)
    started.callback(pin(0))
    share = share_of_derived(station, many)
    for caller in (plain, encrypted):
        caller.one_by_one()
        caller.together()
    bare.one_by_one()

    def trips(name: str, function: Callable[[], None], note: str) -> Case:
        return Case(name, function, ((),), note, wall=True, events=TRIPS)

    def stream(name: str, function: Callable[[], None]) -> Case:
        return Case(name, function, ((),), wall=True, events=many)

    return Benchmark(
        cases=(
            trips("bare Zenoh", bare.round_trips, "bytes"),
            trips("inline", plain.round_trips, "typed, filtered, by stream"),
            trips("inline, TLS", encrypted.round_trips, "the same over TLS with certificates of both"),
            stream("bare stream, one by one", bare.one_by_one),
            stream("stream, one by one", plain.one_by_one),
            stream("stream, one by one, TLS", encrypted.one_by_one),
            stream("stream, push_many", plain.together),
        ),
        baseline="bare Zenoh",
        targets=(
            Target("a round trip against bare Zenoh's", "inline", "at most", 1.3, "bare Zenoh"),
            Target("a round trip with TLS against one without", "inline, TLS", "at most", 1.3, "inline"),
            Target(
                "0.8 times the events a second of bare Zenoh, one by one",
                *("stream, one by one", "at most", 1.25, "bare stream, one by one"),
            ),
            Target(
                "3 times the events a second of bare Zenoh's one by one, in batches",
                *("stream, push_many", "at most", 0.333, "bare stream, one by one"),
            ),
        ),
        facts=(
            Fact("of the streams every event came, and none twice", plain.lost == encrypted.lost == 0),
            Fact(f"a stream that lets 1 % through has {share:.1%} of the bytes, at most 2 %", share <= 0.02),
        ),
        close=started.close,
        note="Time on the wall, each process on a core of its own; TCP on loopback.",
    )


if __name__ == "__main__":
    pin(1)
    programs: dict[str, Callable[[str, str], None]] = {"station": echo_station, "bare": echo_bare}
    programs[sys.argv[1]](*sys.argv[2:])

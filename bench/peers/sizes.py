"""Large events to another process on another core: what each size costs until a small answer is back.

Through the ring the bytes are written once and viewed where they lie; the writer copies and sums them up, the
reader sums them up again. In lent room an event is built where it lies: nothing is copied or summed up, and
its size is hardly felt. Between stations go typed events with a field of bytes, or with an array that is
viewed where it lies in the ring (`views=True`). Beside them a Unix socket, and the least that a copy can
take: the same bytes written into shared memory and no more.
"""

from __future__ import annotations

import mmap
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - event classes are resolved at run time

import heliograph as hg
from bench.environment import variables
from bench.harness import Benchmark, Case, Size, Target, benchmark
from bench.peers.hosts import LIMIT, SIZE, RingEnd

if TYPE_CHECKING:
    from heliograph.links import Carrier

SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": 1 << 20}
SMALL, LARGE = "1 KiB", "1 MiB"
ANSWER = b"A" * SIZE
STOP = b"S" * SIZE


class Large(hg.Event, name="bench.large"):
    data: bytes


class LargeArray(hg.Event, name="bench.large-array"):
    data: NDArray[np.uint8]


class Answer(hg.Event, name="bench.answer"):
    size: int


PAIRS: dict[str, tuple[type[Large | LargeArray], Carrier | None]] = {
    "bytes": (Large, "spinning-ring"),
    "arrays": (LargeArray, "spinning-ring"),
    "default-arrays": (LargeArray, None),
}
"""Programs of stations: what they send, and what carries it."""


def answer_ring(folder: Path) -> None:
    """The other process's work: look at the first byte where it lies, and answer."""
    end = RingEnd(folder, 1, "spin")
    try:
        while (pinned := end.reader.pin(LIMIT * 10)) is not None:
            with pinned:
                is_last = pinned.parts[0][:1] == STOP[:1]
            if is_last:
                return
            end.send(ANSWER)
    finally:
        end.close()


def answer_socket(descriptor: int) -> None:
    """Each event comes behind eight bytes that say how long it is."""
    into = bytearray(max(SIZES.values()))
    with socket.socket(fileno=descriptor) as end:
        while head := end.recv(8, socket.MSG_WAITALL):
            end.recv_into(into, int.from_bytes(head, "little"), socket.MSG_WAITALL)
            end.sendall(ANSWER)


def answer_stations(domain: str, kind: type[Large | LargeArray], carrier: Carrier | None) -> None:
    with hg.Station(domain=domain, transport=carrier) as station:
        answers = station.channel("answers", Answer)
        station.channel("large", kind).subscribe(
            lambda event: answers.push(Answer(len(event.data))), inline=True, views=kind is LargeArray
        )
        sys.stdin.read()


class Ring:
    """This process's side of the ring."""

    def __init__(self, folder: Path) -> None:
        self._end = RingEnd(folder, 0, "spin")

    def send(self, data: bytes) -> None:
        self._end.send(data)
        self._wait()

    def lend(self, data: bytes) -> None:
        """An event of that size of which little is new: what else it holds is not this way's cost."""
        with self._end.writer.lend(len(data)) as room:
            room[:SIZE] = data[:SIZE]
        self._wait()

    def _wait(self) -> None:
        if self._end.receive(LIMIT) is None:
            raise TimeoutError("no answer")

    def close(self) -> None:
        self._end.send(STOP)
        self._end.close()


class Socket:
    """This process's side of a Unix socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, data: bytes) -> None:
        self._end.sendall(len(data).to_bytes(8, "little"))
        self._end.sendall(data)
        if len(self._end.recv(SIZE, socket.MSG_WAITALL)) < SIZE:
            raise TimeoutError("no answer")


class Stations:
    """This process's station."""

    def __init__(self, domain: str, kind: type[Large | LargeArray], carrier: Carrier | None) -> None:
        self._station = hg.Station(domain=domain, transport=carrier)
        self._large: hg.Channel[Any] = self._station.channel("large", kind)
        self._there = threading.Event()
        self._station.channel("answers", Answer).subscribe(lambda _: self._there.set(), inline=True)
        assert self._large.wait_matched(1, LIMIT)

    def send(self, data: bytes) -> None:
        self._push(Large(data))

    def send_array(self, data: bytes) -> None:
        self._push(LargeArray(np.frombuffer(data, np.uint8)))

    def _push(self, event: Large | LargeArray) -> None:
        self._large.push(event)
        if not self._there.wait(LIMIT):
            raise TimeoutError("no answer")
        self._there.clear()

    def close(self) -> None:
        self._station.close()


class Copy:
    """Shared memory that nobody reads."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SIZES[LARGE])

    def send(self, data: bytes) -> None:
        self._memory[: len(data)] = data


def other(started: ExitStack, kind: str, where: str, core: int, pass_fds: tuple[int, ...] = ()) -> None:
    """Start the other process, which ends when this side has closed its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.peers.sizes", kind, where, str(core)],
        stdin=subprocess.PIPE,
        env=variables(),
        pass_fds=pass_fds,
    )
    started.callback(process.communicate, timeout=LIMIT)


@benchmark("rings-sizes", "A large event to another process on another core, until a small answer is back")
def sizes(_: Size) -> Benchmark:
    started = ExitStack()
    allowed = sorted(os.sched_getaffinity(0))
    started.callback(os.sched_setaffinity, 0, allowed)
    os.sched_setaffinity(0, {allowed[0]})
    ways: dict[str, Any] = {"copy": Copy()}
    folder = Path(tempfile.mkdtemp(prefix="helio-", suffix=f"{os.getpid():04x}"[-4:]))
    started.callback(shutil.rmtree, folder)
    other(started, "ring", str(folder), allowed[-1])
    ring = ways["ring"] = Ring(folder)
    started.callback(ring.close)
    ours, theirs = socket.socketpair()
    with theirs:
        other(started, "socket", str(theirs.fileno()), allowed[-1], (theirs.fileno(),))
    ways["Unix socket"] = Socket(started.enter_context(ours))
    pairs = {}
    for program, (kind, carrier) in PAIRS.items():
        # In a ring of their own: memory that another core has read takes longer to be written again.
        domain = f"bench-{program}-{os.getpid()}"
        other(started, program, domain, allowed[-1])
        pairs[program] = Stations(domain, kind, carrier)
        started.callback(pairs[program].close)
    sends = {"ring, lent room": ring.lend, **{way: talk.send for way, talk in ways.items()}}
    sends |= {
        "stations": pairs["bytes"].send,
        "stations, views": pairs["arrays"].send_array,
        "stations, default carrier, views": pairs["default-arrays"].send_array,
    }
    target = partial(Target, direction="at most")
    return Benchmark(
        cases=tuple(
            Case(f"{way}, {label}", send, ((bytes(size),),), wall=True)
            for way, send in sends.items()
            for label, size in SIZES.items()
        ),
        baseline=f"Unix socket, {SMALL}",
        targets=(
            target(
                f"the ring, in lent room, {LARGE} against {SMALL}",
                f"ring, lent room, {LARGE}",
                limit=1.5,
                base=f"ring, lent room, {SMALL}",
            ),
            target(f"the ring, {LARGE} against {SMALL}", f"ring, {LARGE}", limit=1.5, base=f"ring, {SMALL}"),
            target(
                f"stations, an array that is viewed, {LARGE} against {SMALL}",
                f"stations, views, {LARGE}",
                limit=1.5,
                base=f"stations, views, {SMALL}",
            ),
            target(
                f"stations by the default carrier, an array that is viewed, {LARGE} against {SMALL}",
                f"stations, default carrier, views, {LARGE}",
                limit=1.5,
                base=f"stations, default carrier, views, {SMALL}",
            ),
            target(
                f"stations, {LARGE} against {SMALL}",
                f"stations, {LARGE}",
                limit=1.5,
                base=f"stations, {SMALL}",
            ),
            target(
                f"{LARGE}: the ring against a Unix socket",
                f"ring, {LARGE}",
                limit=1.0,
                base=f"Unix socket, {LARGE}",
            ),
        ),
        close=started.close,
        note="Through the ring an event is viewed where it lies; between stations so is an array, if asked.",
        rounds=15,
    )


def main(kind: str, where: str, core: str) -> None:
    """The other process."""
    os.sched_setaffinity(0, {int(core)})
    match kind:
        case "ring":
            answer_ring(Path(where))
        case "socket":
            answer_socket(int(where))
        case _:
            answer_stations(where, *PAIRS[kind])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The other process of the ring's fault tests: `python -m tests.faults.ring_process ROLE DOMAIN [CORE]`.

    writer      makes a ring and writes numbered events without end: one by one, in batches, large and small
    large       makes a ring and writes large events without end, which are not summed up
    reader      reads such a ring and checks each event, copied and pinned
    flip        stores patterns into one word of a new ring, as fast as it can
    echo        answers each event of ring 1 with the same on ring 2, asleep whenever there is nothing to do

Writer, large and flip end when they are killed, the others with the ring that they read.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from heliograph.errors import LeaseLost, RingClosed
from heliograph.ring import RingFolder, RingReader, RingWriter
from heliograph.ring.layout import COMMITTED
from heliograph.ring.reader import REUSED_FROM
from heliograph.ring.waiting import LOOK_EVERY
from tests.ring_support import LIMIT, PORTS

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 700
LATEST_BELL = 5.0
"""Seconds after which a bell that has not rung is lost, and not late: the kernel stops nobody that long."""
PATTERNS = (0, 2**64 - 1, 0x00000000FFFFFFFF, 0x0123456789ABCDEF)


@contextmanager
def victim(role: str, folder: RingFolder) -> Iterator[subprocess.Popen[str]]:
    """That process in that role; killed at the end, or before by whoever wants to."""
    command = [sys.executable, "-m", "tests.faults.ring_process", role, folder.path.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=LIMIT)


def event(n: int) -> bytes:
    """The event with that number: the number, and something that follows from it."""
    return n.to_bytes(8, "little") + bytes([n % 251]) * (n * 7919 % LARGEST)


def check(data: bytes) -> int:
    """The number of an event; AssertionError when it is not whole."""
    n = int.from_bytes(data[:8], "little")
    assert data == event(n), f"event {n} is damaged"
    return n


def ring_of(
    folder: RingFolder, station: int, *, reliable: bool, look_every: float = LOOK_EVERY, reuse: bool = False
) -> RingReader:
    """A reader of a station's ring, once it is there."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        for name in folder.rings():
            if name.station == station:
                return folder.open(
                    name, PORTS, reliable=reliable, wait="block", look_every=look_every, reuse=reuse
                )
        time.sleep(0.001)
    raise TimeoutError(f"no ring of station {station}")


def write(folder: RingFolder) -> None:
    chance = random.Random(os.getpid())
    with folder.create(1, 0, PORTS, slots=1024, wait="spin") as writer:
        print("ready", flush=True)
        n = 0
        while True:
            n += _write_some(writer, n, chance)


def write_large(folder: RingFolder) -> None:
    with folder.create(1, 0, PORTS, slots=4096, wait="block") as writer:
        for n in count():
            writer.append_parts((large_event(n),), summed=False)


def large_event(n: int) -> bytes:
    return bytes([n % 251]) * REUSED_FROM


def _write_some(writer: RingWriter, n: int, chance: random.Random) -> int:
    if chance.random() < 0.7:
        writer.append(event(n))
        return 1
    batch = [event(n + i) for i in range(chance.randrange(1, 30))]
    writer.append_many(batch)
    return len(batch)


def read(folder: RingFolder) -> None:
    with ring_of(folder, 1, reliable=True) as reader:
        print("ready", flush=True)
        try:
            while True:
                _read_some(reader)
        except (RingClosed, LeaseLost):
            return


def _read_some(reader: RingReader) -> None:
    for data in reader.read_many(100, LIMIT):
        check(data)
    with reader.pin(LIMIT) as pinned:  # type: ignore[union-attr] # the writer never stops
        for part in pinned.parts:
            check(bytes(part))


def flip(folder: RingFolder) -> None:
    with folder.create(1, 0, PORTS, slots=16) as writer:
        words = writer._words
        print("ready", flush=True)
        while True:
            for pattern in PATTERNS:
                words[COMMITTED] = pattern


def echo(folder: RingFolder) -> None:
    with (
        folder.create(2, 0, PORTS, slots=1024, wait="block") as answers,
        ring_of(folder, 1, reliable=True, look_every=LATEST_BELL) as questions,
    ):
        try:
            while True:
                answers.append(questions.read() or b"")
        except RingClosed:
            stats = questions.stats()
            print(stats.sleeps, stats.woken_by_timeout, flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        os.sched_setaffinity(0, {int(sys.argv[3])})
    {"writer": write, "large": write_large, "reader": read, "flip": flip, "echo": echo}[sys.argv[1]](
        RingFolder(sys.argv[2])
    )

"""Pushes while the operating system has no thread, or no descriptor, left for this process for a moment.

Every push that returned is counted, and so is what arrived and what is read from the journal afterwards.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import heliograph as hg
from tests.e2e.link_support import LIMIT, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PERSISTENT = hg.QoS(durability="persistent")
CHANNELS = 140
"""More than have their files open at the same time, so that files are opened all the time."""
STACK = 1 << 30
"""Bytes of address space that a thread takes here: then no thread can be had while all else can."""
ROOM = 1 << 29


class Note(hg.Event, name="exhausted.own"):
    n: int


@contextmanager
def no_threads() -> Iterator[None]:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # those that are open stay open
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def main(folder: str, what: str) -> None:
    threading.stack_size(STACK)
    live: list[int] = []
    kept: list[int] = []
    told: list[BaseException] = []
    pushed_live: list[int] = []
    pushed_kept: list[int] = []
    refused = 0
    with hg.Station(folder, on_error=lambda _, __, error: told.append(error)) as station:
        notes = station.channel("live", Note)
        notes.subscribe(lambda note: live.append(note.n))
        channels = [station.channel(f"kept.n{n}", Note, qos=PERSISTENT) for n in range(CHANNELS)]
        for channel in channels:
            channel.subscribe(lambda note: kept.append(note.n))

        def push(first: int) -> int:
            failed = 0
            receipts = {}
            for n, channel in enumerate(channels, first):
                if notes.push(Note(n)):
                    pushed_live.append(n)
                receipts[n] = channel.push_nowait(Note(n))
            for n, receipt in receipts.items():
                try:
                    receipt.result(LIMIT)
                    pushed_kept.append(n)
                except hg.JournalError:
                    failed += 1
            return failed

        with no_threads() if what == "threads" else no_descriptors():
            refused += push(0)
            stalled = sum(station.stalls().values())
        assert not push(CHANNELS), "all works again"
        print("refused", refused + stalled, flush=True)
        wait_until(lambda: len(live) >= len(pushed_live) and len(kept) >= len(pushed_kept))
        print("live", "exact" if live == pushed_live else (len(live), len(pushed_live)), flush=True)
        exact = sorted(kept) == sorted(pushed_kept)
        print("kept", "exact" if exact else (len(kept), len(pushed_kept)), flush=True)
        print("balanced", all(one.balanced for one in station.stats().values()), flush=True)
    with hg.Station(folder) as station:
        read: list[int] = []
        for n in range(CHANNELS):
            with station.channel(f"kept.n{n}", Note).consumer(start="earliest", until="now") as consumer:
                read += [note.n for note in consumer]
    print("read again", "exact" if sorted(read) == sorted(pushed_kept) else sorted(read)[:10], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)

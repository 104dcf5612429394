"""What a process that uses Heliograph is left as, unless it asks for more."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import heliograph as hg
from tests.e2e.link_support import Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    import pytest

IPV4_AND_6 = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")


def network_sockets() -> set[str]:
    """Those of this process: the kernel's tables name sockets by number, its descriptors too."""
    tables = [Path("/proc/self/net", kind).read_text().splitlines()[1:] for kind in IPV4_AND_6]
    numbers = {line.split()[9] for table in tables for line in table}
    own: list[str] = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since, by whoever is running here besides
            own.append(str(entry.readlink()))
    return {name for name in own if name.removeprefix("socket:[").removesuffix("]") in numbers}


def scheduling() -> set[tuple[int, frozenset[int]]]:
    """How each thread of this process is scheduled, and on which cores."""
    found: set[tuple[int, frozenset[int]]] = set()
    for entry in Path("/proc/self/task").iterdir():
        thread = int(entry.name)
        with suppress(ProcessLookupError):  # it has ended since
            found.add((os.sched_getscheduler(thread), frozenset(os.sched_getaffinity(thread))))
    return found


def test_nothing_is_opened_to_the_network_pinned_or_hurried_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    before, interval, sockets = scheduling(), sys.getswitchinterval(), network_sockets()
    received: list[Track] = []
    with hg.Station(tmp_path / "folder", domain="air") as keeper, hg.Station(domain="air") as other:
        kept = keeper.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        there = other.channel("air.tracks", Track)
        for channel in (kept, there):
            channel.subscribe(received.append, priority=5)
            channel.subscribe(received.append, start="earliest")
        there.push(Track(7))
        assert wait_until(lambda: len(received) == 4)
        assert network_sockets() <= sockets
        assert scheduling() <= before
        assert sys.getswitchinterval() == interval

"""The failure detector: who says nothing, and for how long that is nobody's fault."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import heliograph as hg
from heliograph.links.mesh.failure_detector import BUSY, LOOKS, FailureDetector
from heliograph.links.transports.peer_process import process_of
from heliograph.runtime.ports import system_ports
from tests.e2e.link_support import wait_until


class Watched:
    """One link, and whether its station was suspected.

    Args:
        ticks: of processor time that its process uses between two looks; None: nobody knows.
    """

    def __init__(self, ticks: int | None = None) -> None:
        self.ticks = ticks
        self._used = 0
        self.link = SimpleNamespace(
            station=7, called="7", peer=SimpleNamespace(pid=1), waits_behind=0, cpu_ticks=self._cpu_ticks
        )
        self.suspected: list[int] = []
        peers = {7: cast("Any", SimpleNamespace(link=self.link))}
        self._silence = FailureDetector(1.0, system_ports().tasks, peers, self.suspected.append)

    def look(self, times: int) -> list[int]:
        for _ in range(times):
            self._silence.look()
        return self.suspected

    def _cpu_ticks(self) -> int | None:
        self._used += self.ticks or 0
        return None if self.ticks is None else self._used


@pytest.mark.parametrize("ticks", [None, 0])
def test_a_station_that_says_nothing_is_suspected_after_so_many_looks(ticks: int | None) -> None:
    watched = Watched(ticks)
    assert watched.look(LOOKS) == []
    assert watched.look(1) == [7]


def test_whatever_is_heard_begins_it_anew() -> None:
    watched = Watched()
    watched.look(LOOKS)
    watched.link.waits_behind = 25
    assert watched.look(LOOKS) == []
    assert watched.look(1) == [7]


def test_a_station_whose_process_computes_has_several_times_as_long() -> None:
    """One call that holds its interpreter keeps it from beating, for long where the machine is loaded."""
    watched = Watched(ticks=1)
    assert watched.look(LOOKS * BUSY) == []
    assert watched.look(1) == [7]


def test_a_station_that_was_busy_and_is_stopped_then_is_suspected_after_so_many_looks_more() -> None:
    watched = Watched(ticks=1)
    watched.look(LOOKS)
    watched.ticks = 0
    assert watched.look(LOOKS) == [7]


def test_processor_time_tells_a_process_that_computes_from_one_that_is_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as computing:
        try:
            process = process_of(computing.pid)
            first = process.cpu_ticks()
            assert first is not None
            assert wait_until(lambda: (process.cpu_ticks() or 0) > first)
            computing.send_signal(signal.SIGSTOP)
            assert wait_until(lambda: _state(computing.pid) == "T")
            stopped = process.cpu_ticks()
            assert not wait_until(lambda: process.cpu_ticks() != stopped, 0.2)
            assert process._replace(started=process.started + 1).cpu_ticks() is None, "it is another process"
        finally:
            computing.kill()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_nobody_is_silent_while_this_station_does_not_read() -> None:
    """Its reader may be inside a callback: what the other has said since waits to be read."""
    watched = Watched()
    watched.look(LOOKS)
    watched.link.waits_behind = cast("Any", None)
    assert watched.look(10) == []
    watched.link.waits_behind = 0
    assert watched.look(LOOKS) == []


@pytest.mark.parametrize("limit", [0.0, 0.9, -1.0, float("nan"), float("inf"), 1e12, "5", True])
def test_a_limit_that_a_healthy_station_could_miss_or_no_clock_could_wait_is_refused(limit: Any) -> None:
    with pytest.raises(hg.NotPossible, match=r"it is 1 to 1,000,000,000 seconds"):
        hg.Station(domain="d", peer_limit=limit)


def test_without_a_domain_there_is_nobody_to_suspect() -> None:
    with pytest.raises(hg.NotPossible, match="add domain="):
        hg.Station(peer_limit=2.0)

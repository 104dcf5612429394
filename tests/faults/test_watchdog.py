"""`helio station --watchdog`: the station is killed and stopped, the watchdog is killed."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until
from tests.support import EXAMPLES_FACTOR

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERSISTENT = hg.QoS(durability="persistent")


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@contextmanager
def watched(tmp_path: Path) -> Iterator[Program]:
    arguments = (
        "station",
        "--domain",
        "e2e",
        "--folder",
        str(tmp_path / "data"),
        "--watchdog",
        "--ping",
        "0.5",
    )
    program = Program(*arguments, module="heliograph.cli")
    try:
        program.says("station")
        yield program
    finally:
        program.process.terminate()
        program.process.wait(LIMIT)
        program.clean_up()


def lives(program: Program) -> list[int]:
    return [
        int(line.split("process ")[1].split(",")[0]) for line in program.said if line.startswith("station")
    ]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - a file of the kernel
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def test_a_station_that_is_killed_or_stopped_is_back_and_ends_with_its_watchdog(tmp_path: Path) -> None:
    with watched(tmp_path) as watchdog, hg.Station(domain="e2e", on_error=lambda *_: None) as station:
        tracks = station.channel("tracks", Track, qos=PERSISTENT)
        acked = 0
        for turn in range(2 * EXAMPLES_FACTOR):
            tracks.push(Track(acked), timeout=LIMIT)
            acked += 1
            known = len(lives(watchdog))
            os.kill(lives(watchdog)[-1], signal.SIGSTOP if turn % 2 else signal.SIGKILL)
            assert wait_until(lambda known=known: len(lives(watchdog)) > known)  # type: ignore[misc]
        tracks.push(Track(acked), timeout=LIMIT)
        with tracks.consumer(start="earliest", until="now") as consumer:
            assert [track.id for track in consumer] == list(range(acked + 1))
        last = lives(watchdog)[-1]
        watchdog.kill()
        assert wait_until(lambda: not is_alive(last))  # it ends with its watchdog, so that the folder is free


def test_the_service_manager_waits_for_a_station_that_takes_long_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(LIMIT)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with watched(tmp_path):
            told = [listener.recv(100)]
            while told[-1] != b"READY=1":
                told.append(listener.recv(100))
            # While it begins it is alive, and the limit for that is moved.
            assert told[:2] == [b"WATCHDOG=1", b"EXTEND_TIMEOUT_USEC=10000000"]


def test_the_service_manager_is_told_when_a_station_is_ready_and_that_it_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(LIMIT)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        program = Program("station", "--domain", "e2e", module="heliograph.cli")
        try:
            assert listener.recv(100) == b"READY=1"
            assert listener.recv(100) == b"WATCHDOG=1"
        finally:
            program.process.terminate()
            program.process.wait(LIMIT)
            program.clean_up()

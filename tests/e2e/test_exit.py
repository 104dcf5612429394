"""A program that ends with its station open: nobody wrote `with`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 60

PROGRAM = """
import sys, threading, time
import heliograph as hg


class Track(hg.Event, name="exit.track"):
    id: int


def slow(track):
    time.sleep(0.001)
    if track.id == 499:
        print("the last", flush=True)


def main(callback):
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    qos = hg.QoS(durability="persistent" if folder else "volatile")
    tracks = hg.Station(folder).channel("tracks", Track, qos=qos)
    tracks.subscribe(callback, name="listener")
    for n in range(500):
        tracks.push(Track(n))


{main}
"""


def run(main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", PROGRAM.format(main=main), *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=LIMIT, check=False)


@pytest.mark.parametrize("end", ["", "; raise SystemExit(0)"])
def test_a_program_that_ends_with_its_station_open_delivers_what_waits(end: str) -> None:
    done = run(f"main(slow){end}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the last\n", "")


def test_a_program_whose_callback_hangs_ends_and_says_what_was_not_delivered() -> None:
    done = run("main(lambda _: threading.Event().wait())")
    assert done.returncode == 0
    assert "listener" in done.stderr
    assert "undelivered" in done.stderr


KEPT = """
import sys
import heliograph as hg


class Track(hg.Event, name="exit.track"):
    id: int


tracks = hg.Station(sys.argv[1]).channel("tracks", Track, qos=hg.QoS(durability="persistent"))
receipts = [tracks.push_nowait(Track(n)) for n in range(500)]
"""


@pytest.mark.parametrize("more", ["", "receipts[-1].result(10)"])
def test_a_program_that_ends_with_its_station_open_keeps_what_waits_to_be_kept(
    more: str, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", KEPT + more, str(tmp_path / "data")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    count = [sys.executable, "-c", COUNT, str(tmp_path / "data")]
    assert subprocess.run(count, capture_output=True, text=True, timeout=LIMIT, check=True).stdout == "500\n"


COUNT = """
import sys
import heliograph as hg

print(len(hg.history(sys.argv[1], "tracks").arrow()))
"""


def test_a_program_that_ends_with_its_station_open_gives_a_durable_function_what_waits(
    tmp_path: Path,
) -> None:
    done = run("main(slow)", str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "the last\n", "")


def test_a_program_whose_durable_function_hangs_ends_and_says_what_was_not_delivered(tmp_path: Path) -> None:
    done = run("main(lambda _: threading.Event().wait())", str(tmp_path))
    assert done.returncode == 0
    assert "undelivered: {'listener': 500}" in done.stderr

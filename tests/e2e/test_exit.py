"""A program that ends with its station open: nobody wrote `with`."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMIT = 60

PROGRAM = """
import threading, time
import heliograph as hg


class Track(hg.Event, name="exit.track"):
    id: int


def slow(track):
    time.sleep(0.001)
    if track.id == 499:
        print("the last", flush=True)


def main(callback):
    tracks = hg.Station().channel("tracks", Track)
    tracks.subscribe(callback, name="listener")
    for n in range(500):
        tracks.push(Track(n))


{main}
"""


def run(main: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", PROGRAM.format(main=main)]
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

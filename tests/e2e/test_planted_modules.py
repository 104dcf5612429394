"""Processes that a station starts import nothing from the folder in which its program was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ring_support import needs_rings

ROOT = Path(__file__).parents[2]
LIMIT = 60.0
NAMES = (
    "heliograph",
    "msgspec",
    "crc32c",
    "numpy",
    "pyarrow",
    "pyspark",
    "runpy",
    "struct",
    "socket",
    "signal",
)
"""Modules that the processes import, in a folder that anybody can write to."""

SEALS = """
import sys
import heliograph as hg

class Track(hg.Event, name="air.track"):
    id: int

with hg.Station(sys.argv[1]) as station:
    tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
    tracks.push_many([Track(id=n) for n in range(10)])
    assert tracks.store._writer.seal() == 1
print("done")
"""

WORKER = """
import sys
import heliograph as hg
import jobs

if __name__ == "__main__":
    with hg.Station(domain=sys.argv[1], transport="ring") as station:
        done = station.channel("done", jobs.Done).consumer()
        station.band_worker("jobs:answer", priority=4)
        station.channel("jobs", jobs.Job).push(jobs.Job(n=1), priority=4)
        assert done.pull(30.0) is not None
    print("done")
"""

JOBS = """
import heliograph as hg

class Job(hg.Event, name="job"):
    n: int

class Done(hg.Event, name="done"):
    n: int

def answer(station):
    done = station.channel("done", Done)
    station.channel("jobs", Job).subscribe(lambda job: done.push(Done(n=job.n)))
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    folder = tmp_path / "planted"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'a').write({name!r})\n")
    return folder


def run(planted: Path, program: str, *arguments: str) -> None:
    """Run a program of the user that stands elsewhere, in the folder with what somebody has planted."""
    home = planted.parent / "program"
    home.mkdir()
    (home / "jobs.py").write_text(JOBS)
    (home / "main.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(home / "main.py"), *arguments],
        cwd=planted,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_RUNTIME_DIR": str(planted.parent)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stdout.strip() == "done", done.stderr
    ran = planted.parent / "run"
    assert not ran.exists(), f"somebody else's {ran.read_text()} was run"


def test_a_sealing_process_runs_nothing_that_was_planted(planted: Path) -> None:
    run(planted, SEALS, str(planted.parent / "data"))


@needs_rings
def test_a_band_worker_runs_nothing_that_was_planted_and_finds_its_users_module(planted: Path) -> None:
    run(planted, WORKER, f"planted-{os.getpid()}")

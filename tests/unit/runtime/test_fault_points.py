"""A process dies, or stops, where it was told to, and nowhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from heliograph.runtime.fault_points import VARIABLE
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
from heliograph.runtime.fault_points import reach
for turn in range(3):
    reach("in-manifest")
    print(turn, flush=True)
    reach("after-manifest")
"""


def run(fault: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, VARIABLE: fault}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("fault", "printed"),
    [("in-manifest", ""), ("after-manifest:2", "0\n1\n"), ("before-manifest", "0\n1\n2\n")],
)
def test_it_dies_at_the_pass_that_was_named(fault: str, printed: str) -> None:
    done = run(fault)
    assert done.stdout == printed
    assert done.returncode == (0 if printed == "0\n1\n2\n" else -signal.SIGKILL)


def test_with_a_file_it_dies_once_for_all(tmp_path: Path) -> None:
    token = tmp_path / "once"
    token.touch()
    assert run(f"in-manifest@{token}").returncode == -signal.SIGKILL
    assert run(f"in-manifest@{token}").returncode == 0


def test_a_process_that_stops_says_which_it_is(tmp_path: Path) -> None:
    token, told = tmp_path / "once", tmp_path / "once.pid"
    token.touch()
    env = {**os.environ, VARIABLE: f"stop:in-manifest@{token}"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.PIPE) as process:
        assert wait_until(told.exists)
        assert int(told.read_text()) == process.pid
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60)[0] == b"0\n1\n2\n"


@pytest.mark.parametrize("wrong", ["nowhere", "in-manifest:x", "stop:in-manifest"])
def test_a_point_that_does_not_exist_is_refused(wrong: str) -> None:
    done = run(wrong)
    assert done.returncode == 1
    assert "the points are after-staging" in done.stderr

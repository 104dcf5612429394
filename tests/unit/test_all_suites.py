"""A test that fails among all suites is run again alone, and fails the run unless it then always passes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
ONCE = """
from pathlib import Path
def test_once():
    try:
        assert Path("seen").exists()
    finally:
        Path("seen").touch()
"""
ALWAYS = "def test_{}():\n    assert False\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    for name in ("conftest.py", "support.py", "object_server.py", "all_suites.py"):
        shutil.copy(TESTS / name, tmp_path / "tests" / name)
    (tmp_path / "tests" / "budgets.toml").write_text("[minutes]\nunit = 1\nall = 1\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n")
    return tmp_path


def run(project: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (project / "tests" / "unit" / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "tests.all_suites", "-q"]
    return subprocess.run(command, cwd=project, capture_output=True, text=True)


def test_what_failed_once_and_passes_alone_is_called_unsteady(project: Path) -> None:
    outcome = run(project, ONCE)
    assert outcome.returncode == 0, outcome.stdout
    assert "UNSTEADY: failed among all suites, passed 5 times alone: tests/unit/test_it.py::test_once\n" in (
        outcome.stdout
    )


def test_what_fails_again_fails_the_run(project: Path) -> None:
    outcome = run(project, ONCE + ALWAYS.format("broken"))
    assert outcome.returncode == 1
    assert "UNSTEADY" not in outcome.stdout


def test_many_failures_are_not_run_again(project: Path) -> None:
    outcome = run(project, "".join(ALWAYS.format(name) for name in "abcd"))
    assert outcome.returncode == 1
    assert "run again" not in outcome.stdout


def test_a_budget_that_was_exceeded_fails_the_run_though_the_test_passes_alone(project: Path) -> None:
    (project / "tests" / "budgets.toml").write_text("[minutes]\nunit = 1e-12\nall = 1\n")
    outcome = run(project, ONCE)
    assert outcome.returncode == 10
    assert "run again" not in outcome.stdout

"""The budgets of tests/budgets.toml are kept: a run over one fails, with and without workers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
OVER_BUDGET = 10
NOTHING = 1e-12
"""Minutes that no test can keep to."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with our conftest and one test."""
    suite = tmp_path / "tests" / "unit"
    suite.mkdir(parents=True)
    for name in ("conftest.py", "support.py", "object_server.py"):
        shutil.copy(TESTS / name, tmp_path / "tests" / name)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n")
    (suite / "test_it.py").write_text("def test_it():\n    pass\n")
    return tmp_path


def run(project: Path, budgets: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (project / "tests" / "budgets.toml").write_text(f"[minutes]\n{budgets}\n")
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_suite_over_its_budget_fails_the_run(project: Path, workers: tuple[str, ...]) -> None:
    outcome = run(project, f"unit = {NOTHING}\nall = 1", *workers)
    assert outcome.returncode == OVER_BUDGET
    assert "1 passed" in outcome.stdout
    assert "over the budget of tests/budgets.toml: unit\n" in outcome.stdout


def test_a_suite_within_its_budget_passes(project: Path) -> None:
    outcome = run(project, "unit = 1\nall = 1")
    assert outcome.returncode == 0, outcome.stdout
    assert "unit 0.0 of 1" in outcome.stdout


def test_the_wall_clock_has_a_budget_of_its_own(project: Path) -> None:
    outcome = run(project, f"unit = 1\nall = {NOTHING}")
    assert outcome.returncode == OVER_BUDGET
    assert "over the budget of tests/budgets.toml: all\n" in outcome.stdout


def test_a_suite_without_a_budget_fails_the_run(project: Path) -> None:
    outcome = run(project, "all = 1")
    assert outcome.returncode == OVER_BUDGET
    assert "over the budget of tests/budgets.toml: unit\n" in outcome.stdout


def test_the_budgets_fit_into_33_minutes_on_two_cores() -> None:
    minutes = tomllib.loads((TESTS / "budgets.toml").read_text())["minutes"]
    check = 2
    assert minutes["all"] + check <= 33
    assert sum(minutes.values()) - minutes["all"] <= 2 * minutes["all"]

"""Every example runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_to_its_end(example: Path, tmp_path: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout
    assert list(tmp_path.iterdir()) == [], "an example leaves no files behind"


def test_there_is_the_tour_that_make_run_shows() -> None:
    assert "tour.py" in {path.name for path in EXAMPLES}

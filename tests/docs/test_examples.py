"""Every example runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_to_its_end(
    example: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Stations that run elsewhere on this machine have no part in it.
    meeting = str(tmp_path_factory.mktemp("run"))
    outcome = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100", "XDG_RUNTIME_DIR": meeting},
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout
    assert list(tmp_path.iterdir()) == [], "an example leaves no files behind"


def test_make_run_shows_an_example() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    shown = re.findall(r"examples/(\w+\.py)", makefile)
    assert shown
    assert set(shown) <= {path.name for path in EXAMPLES}

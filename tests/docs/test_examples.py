"""Every example runs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def promised(example: Path) -> str | None:
    """What its docstring says that it prints; None when it says nothing of that."""
    text = ast.get_docstring(ast.parse(example.read_text())) or ""
    _, said, lines = text.partition("It prints:\n\n")
    return textwrap.dedent(lines) + "\n" if said else None


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
    printed = promised(example)
    assert printed is None or outcome.stdout == printed
    assert list(tmp_path.iterdir()) == [], "an example leaves no files behind"


def test_the_documents_list_every_example_by_its_own_first_sentence() -> None:
    page = (Path(__file__).parents[2] / "examples" / "README.md").read_text()
    for example in EXAMPLES:
        sentence = (ast.get_docstring(ast.parse(example.read_text())) or "").splitlines()[0]
        assert f"| [{example.stem}]({example.name}) | {sentence} |" in page


def test_make_run_shows_an_example() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    shown = re.findall(r"examples/(\w+\.py)", makefile)
    assert shown
    assert set(shown) <= {path.name for path in EXAMPLES}

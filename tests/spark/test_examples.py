"""The examples in `examples/spark` do what their first sentence says, in one session."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[2] / "examples" / "spark"
EXPECTED: dict[str, Any] = {
    "sessions_of_keys": [("a", 2, 10.0), ("a", 3, 20.0), ("b", 4, 30.0)],
    "joined_streams": [("BA7", 5, 9960.0), ("LH4", 6, 9880.0)],
    "into_sqlite": [(0, 24850), (1, 24950), (2, 25050)],
    "features": (296, 100, [0.6, 0.3, 1.0]),
}


@pytest.mark.parametrize("example", sorted(EXPECTED))
def test_an_example_gives_what_it_should(example: str, spark: SparkSession, tmp_path: Path) -> None:
    # By path: workers get its functions and classes by value, as of a program that is run.
    found = runpy.run_path(str(FOLDER / f"{example}.py"))["main"](spark, tmp_path)
    if example == "features":
        *found, worst = found
        assert worst < 1e-6
        found = tuple(found)
    assert found == EXPECTED[example]


def test_every_example_is_run_and_listed() -> None:
    page = (FOLDER.parent / "README.md").read_text()
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXPECTED)
    for path in FOLDER.glob("*.py"):
        sentence = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
        assert f"| [{path.stem}](spark/{path.name}) | {sentence} |" in page

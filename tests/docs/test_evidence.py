"""docs/reference/evidence.md has every row of what is asked, each with its state and what shows it."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from typing import Final

from bench.__main__ import MODULES
from bench.harness import REGISTRY
from bench.papers.__main__ import MODULES as EXPERIMENTS
from bench.papers.experiment import REGISTRY as PAPERS
from tests.docs.pages import ROOT

PAGE: Final = (ROOT / "docs" / "reference" / "evidence.md").read_text()
ROW: Final = re.compile(
    r"^\| (?P<id>[A-Z]{1,2}\d+) [^|]+ \| (?P<state>[^|]+) \| (?P<shown>[^|]+) \|$", re.MULTILINE
)
TEST: Final = re.compile(r"`([\w/]+\.py)(?:::\w+)?`")

GROUPS: Final = {
    "A": 25, "B": 14, "C": 16, "D": 9, "E": 11, "F": 20, "G": 12, "H": 7, "I": 11, "J": 17, "K": 9, "Q": 22,
    "L": 15, "M": 22, "N": 9, "RL": 14, "RF": 18, "RB": 12, "S": 15,
}  # fmt: skip
"""How many rows each group of requirements has; Q are the 22 policies of DDS."""
ASKED: Final = [
    *(f"{group}{number:02d}" for group, rows in GROUPS.items() for number in range(1, rows + 1)),
    *(f"P{number}" for number in range(1, 8)),
]


def test_no_row_is_left_out_or_there_twice() -> None:
    assert sorted(row["id"] for row in ROW.finditer(PAGE)) == sorted(ASKED)


def test_a_row_is_shown_or_partly_shown_by_a_test_or_names_what_is_missing() -> None:
    for row in ROW.finditer(PAGE):
        if row["state"] == "not yet":
            assert row["shown"].startswith("missing: "), row["id"]
        else:
            assert row["state"] in ("shown", "partly"), row["id"]
            assert TEST.search(row["shown"]), row["id"]


def test_the_files_and_benchmarks_that_rows_name_exist() -> None:
    for file in TEST.findall(PAGE):
        assert (ROOT / "tests" / file).is_file(), file
    for module in (*MODULES, *EXPERIMENTS):
        import_module(module)
    assert set(re.findall(r"`bench ([\w-]+)`", PAGE)) <= set(REGISTRY)
    assert set(re.findall(r"`bench\.papers ([\w-]+)`", PAGE)) <= set(PAPERS)


def test_the_counts_above_the_rows_are_those_of_the_rows() -> None:
    states = Counter(row["state"] for row in ROW.finditer(PAGE))
    counts = ", ".join(f"{states[state]} {state}" for state in ("shown", "partly", "not yet"))
    assert f"{states.total()} rows: {counts}." in PAGE

"""Guarantees name, for each promise, a test that exists, or say with which part it comes."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import ROOT

ROW = re.compile(r"^\| (?P<promise>[^|]+) \| (?P<shown>[^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
LATER = re.compile(r"\*not yet: \w+\*")


PROMISES, EVIDENCE = (
    (ROOT / "docs" / "reference" / name).read_text() for name in ("guarantees.md", "evidence.md")
)


def rows() -> list[tuple[str, str]]:
    return [row for row in ROW.findall(PROMISES) if row[0] != "promise" and "---" not in row[0]]


def test_every_promise_is_shown_by_a_test_or_marked_as_not_there_yet() -> None:
    unmarked = [promise for promise, shown in rows() if not TEST.search(shown) and not LATER.search(shown)]
    assert unmarked == []
    assert rows()


@pytest.mark.parametrize(("file", "name"), sorted(set(TEST.findall(PROMISES + EVIDENCE))))
def test_the_test_that_shows_a_promise_or_a_requirement_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    assert name in {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

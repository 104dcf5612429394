"""docs/reference/log-messages.md lists every line that is logged, under its level, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "log-messages.md"
LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR"}
A_REASON_ALONE = "%s"


def logged() -> set[tuple[str, str]]:
    """Level and text of every call of a logger in the sources."""
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(file.read_text())
        constants = {
            target.id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=method), args=[text, *_]) if (
                    method in LEVELS
                ):
                    said = constants.get(text.id) if isinstance(text, ast.Name) else ast.literal_eval(text)
                    assert isinstance(said, str), f"{file}:{node.lineno}: a line that is logged is a text"
                    found.add((LEVELS[method], said))
    return {one for one in found if one[1] != A_REASON_ALONE}


def documented() -> set[tuple[str, str]]:
    found = set()
    level = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            level = line.split()[1].rstrip(":")
        elif row := re.match(r"\| `(.+?)` \| \S.* \| \S.* \|$", line):
            found.add((level, row[1]))
    return found


def test_every_line_that_is_logged_is_on_the_page() -> None:
    assert logged() - documented() == set()


def test_the_page_lists_no_line_that_nobody_logs() -> None:
    assert documented() - logged() == set()

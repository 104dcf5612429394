"""docs/architecture.md has a line for every room."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = ROOT / "src" / "heliograph"
WITH_ROOMS_OF_THEIR_OWN = ("channel", "spark")


def rooms_in(folder: Path) -> set[str]:
    modules = {path.stem for path in folder.glob("*.py")}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return (modules | packages) - {"__init__", "_version"}


def documented() -> set[str]:
    page = (ROOT / "docs" / "architecture.md").read_text()
    first_cells = re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
    return {room for cell in first_cells for room in re.findall(r"`(\w+)`", cell)}


FOLDERS = [PACKAGE, *(PACKAGE / name for name in WITH_ROOMS_OF_THEIR_OWN)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_room_has_a_line_in_the_tables(folder: Path) -> None:
    assert rooms_in(folder) - documented() == set()


def test_every_line_of_the_tables_is_a_room() -> None:
    assert documented() - set().union(*map(rooms_in, FOLDERS)) == set()
    assert documented()

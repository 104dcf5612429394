"""The index of modules in docs/explanation/architecture.md is made of the modules' own first sentences.

python -m tests.docs.test_architecture      # makes it anew
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "heliograph"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BEGIN = "<!-- index of modules: made by python -m tests.docs.test_architecture -->\n"
END = "<!-- end of the index of modules -->\n"

PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))


def summary(module: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def modules(package: Path) -> list[Path]:
    return sorted(path for path in package.glob("*.py") if not path.name.startswith("__"))


def index() -> str:
    parts: list[str] = []
    for package in PACKAGES:
        name = ".".join(("heliograph", *package.relative_to(SOURCE).parts))
        parts += [f"### `{name}`", "", summary(package / "__init__.py"), ""]
        if modules(package):
            rows = [f"| `{module.stem}` | {summary(module)} |" for module in modules(package)]
            parts += ["| module | what it is |", "|---|---|", *rows, ""]
    return "\n".join(parts) + "\n"


def test_the_index_of_modules_says_what_the_modules_say() -> None:
    page = PAGE.read_text()
    assert page.partition(BEGIN)[2].partition(END)[0] == index()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_every_module_begins_with_a_sentence(package: Path) -> None:
    for module in (package / "__init__.py", *modules(package)):
        assert summary(module).endswith((".", "?")), module.relative_to(SOURCE)


def test_the_modules_that_the_page_sends_a_reader_to_are_there() -> None:
    table = PAGE.read_text().partition("## Where is it?")[2].partition("## Index of modules")[0]
    named = re.findall(r"`((?:\w+\.)+\w+)`", table)
    assert len(named) > 20
    assert [name for name in named if not (SOURCE / f"{name.replace('.', '/')}.py").is_file()] == []


if __name__ == "__main__":
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    PAGE.write_text(before + begin + index() + end + after)

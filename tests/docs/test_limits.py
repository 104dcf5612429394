"""docs/reference/limits.md lists every limit of the code with its number."""

from __future__ import annotations

import ast
import re
from importlib import import_module

from tests.docs.pages import ROOT

SOURCE = ROOT / "src"
# The range of an integer is no choice of ours.
LIMIT = re.compile(r"(?!MAX_INT64)(MAX|DEFAULT)_[A-Z0-9_]+|[A-Z0-9_]+_(LIMIT|TIMEOUT)")
ROW = re.compile(r"^\| `([\w.]+)` \| ([\d,.]+) \|", re.MULTILINE)


def documented() -> dict[str, float]:
    page = (ROOT / "docs" / "reference" / "limits.md").read_text()
    rows = ((name, number.replace(",", "")) for name, number in ROW.findall(page))
    return {f"heliograph.{name}": float(n) if "." in n else int(n) for name, n in rows}


def constants_in_the_code() -> set[str]:
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            found.update(f"{module}.{name}" for name in names if LIMIT.fullmatch(name))
    return found


def test_every_limit_of_the_code_is_documented() -> None:
    assert constants_in_the_code() - set(documented()) == set()


def test_every_documented_number_is_the_one_in_the_code() -> None:
    wrong = {}
    for name, number in documented().items():
        module, _, constant = name.rpartition(".")
        value = getattr(import_module(module), constant)
        if value != number:
            wrong[name] = value
    assert wrong == {}
    assert documented()


def test_no_limit_is_listed_twice() -> None:
    names = [name for name, _ in ROW.findall((ROOT / "docs" / "reference" / "limits.md").read_text())]
    assert sorted(names) == sorted(set(names))

"""Writes docs/explanation/locks.md from the pairs of locks that a run of the tests has seen.

make locks
"""

from __future__ import annotations

import sys
from graphlib import TopologicalSorter
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "locks.md"

HEAD = """\
# Lock order

A thread that holds a lock may take those that stand below it, and none above. Two threads can then not wait
for each other. The order was seen, not decreed: in every run of the tests a checker
(`heliograph.runtime.lock_order`) remembers which kinds of lock are taken while which are held, and fails a
test whose order contradicts what was seen before. A kind is the place in the code that makes a lock, with the
first word of its name.

Kinds of one level are never held together, or only in one order that the checker knows. The last column names
the kinds that were seen taken while this one was held.

Made by `make locks`.

| level | lock | taken while it is held |
|--:|---|---|
"""


def levels(pairs: set[tuple[str, str]]) -> list[list[str]]:
    """Kinds in an order in which each comes before those taken under it."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for held, taken in pairs:
        sorter.add(taken, held)
    sorter.prepare()
    found: list[list[str]] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found.append(ready)
        sorter.done(*ready)
    return found


def page(pairs: set[tuple[str, str]]) -> str:
    rows: list[str] = []
    for level, kinds in enumerate(levels(pairs), 1):
        for kind in kinds:
            under = sorted(taken.rpartition(".")[2] for held, taken in pairs if held == kind)
            rows.append(f"| {level} | `{kind}` | {', '.join(dict.fromkeys(under))} |")
    return HEAD + "\n".join(rows) + "\n"


def read(file: Path) -> set[tuple[str, str]]:
    """The pairs of the product's own locks; tests make some, too."""
    seen = {tuple(line.split("\t")) for line in file.read_text().splitlines()}
    return {(held, taken) for held, taken in seen if not {"tests", "test_"} & {held[:5], taken[:5]}}


if __name__ == "__main__":
    PAGE.write_text(page(read(Path(sys.argv[1]))))

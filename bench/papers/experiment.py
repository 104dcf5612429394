"""What an experiment gives, where it is kept, and the page that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench.environment import Environment
from bench.harness import Fact, Size  # noqa: TC001 - msgspec reads the annotations of Experiment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FOLDER = Path(__file__).parent.parent / "results" / "papers"
PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "papers.md"
FIGURES = PAGE.parent / "figures"
BEGIN = "<!-- results: written by `python -m bench.papers --report` -->"
END = "<!-- end of results -->"


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper, measured here.

    Attributes:
        name: under which it is kept.
        title: with the number that it has in its paper.
        note: how it was done, and where it differs.
        columns, rows: the table.
        figure: the same as an SVG, or nothing.
        facts: what was asked of it.
    """

    name: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    facts: tuple[Fact, ...]
    figure: str = ""


@dataclass(frozen=True)
class Kept:
    """An experiment in its environment."""

    environment: Environment
    experiment: Experiment


REGISTRY: dict[str, Callable[[Size], Experiment]] = {}


def experiment(name: str) -> Callable[[Callable[[Size], Experiment]], Callable[[Size], Experiment]]:
    """Register what runs an experiment."""

    def register(run: Callable[[Size], Experiment]) -> Callable[[Size], Experiment]:
        REGISTRY[name] = run
        return run

    return register


def keep(found: Experiment, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kept = Kept(Environment.here(), found)
    text = msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n"
    (folder / f"{found.name}.json").write_bytes(text)


def read_all(folder: Path = FOLDER) -> list[Kept]:
    return [msgspec.json.decode(path.read_bytes(), type=Kept) for path in sorted(folder.glob("*.json"))]


def write_page(all_kept: Iterable[Kept], page: Path = PAGE, figures: Path = FIGURES) -> None:
    """Replace the results in the page by these, and draw their figures."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = []
    for kept in all_kept:
        if kept.experiment.figure:
            figures.mkdir(exist_ok=True)
            (figures / f"{kept.experiment.name}.svg").write_text(kept.experiment.figure)
        sections.append(section(kept))
    text = "\n".join(sections)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def section(kept: Kept) -> str:
    found, where = kept.experiment, kept.environment
    lines = [f"### {found.title}", "", found.note, ""]
    if found.figure:
        lines += [f"![{found.title}](figures/{found.name}.svg)", ""]
    lines += ["| " + " | ".join(found.columns) + " |", "|---" + "|--:" * (len(found.columns) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in found.rows]
    lines += ["", *(f"- **{verdict(fact)}** {fact.sentence}" for fact in found.facts)]
    machine = f"{where.cpu}, {where.cores} cores, load {where.load}"
    lines += ["", f"{where.taken}, commit {where.commit}, {machine}.", ""]
    return "\n".join(lines)


def verdict(fact: Fact) -> str:
    return "reached" if fact.holds else "MISSED"

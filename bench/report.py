"""Results for people: tables in the terminal, and the same tables in docs/explanation/benchmarks.md.

The page is written by hand but for what stands between its two marks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.harness import Judged, Measured, Outcome
    from bench.results import Result

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "benchmarks.md"
BEGIN = "<!-- results: written by `python -m bench --report` -->"
END = "<!-- end of results -->"


def show(outcome: Outcome, console: Console) -> None:
    """One benchmark in the terminal."""
    table = Table(title=outcome.title, title_justify="left", title_style="bold")
    table.add_column("case")
    for heading in ("per call", "p10 to p90", f"ratio to {outcome.baseline}", "p10 to p90"):
        table.add_column(heading, justify="right")
    for case in outcome.cases:
        table.add_row(*_case_row(case))
    console.print(Group(table, Text(outcome.note, style="dim")) if outcome.note else table)
    for target in outcome.targets:
        console.print(Text(_verdict(target), style="green" if target.reached else "bold red"))
    for fact in outcome.facts:
        console.print(
            Text(f"{_word(fact.holds)}: {fact.sentence}", style="green" if fact.holds else "bold red")
        )
    console.print()


def write_page(results: Iterable[Result], page: Path = PAGE) -> None:
    """Replace the results in the page by these."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = "\n".join(_section(result) for result in results)
    page.write_text(f"{before}{BEGIN}\n\n{sections}\n{END}{after}")


def _section(result: Result) -> str:
    outcome, where = result.outcome, result.environment
    lines = [f"### {outcome.title}", ""]
    if outcome.note:
        lines += [outcome.note, ""]
    lines += [
        f"| case | per call | p10 to p90 | ratio to {outcome.baseline} | p10 to p90 |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += ["| " + " | ".join(_case_row(case)) + " |" for case in outcome.cases]
    lines.append("")
    lines += [
        f"- **{_word(target.reached)}** {_verdict(target).partition(': ')[2]}" for target in outcome.targets
    ]
    lines += [f"- **{_word(fact.holds)}** {fact.sentence}" for fact in outcome.facts]
    libraries = ", ".join(f"{name} {version}" for name, version in where.libraries.items())
    lines += [
        "",
        f"{outcome.rounds} rounds, seed {result.seed}, {where.taken}, commit {where.commit}.",
        f"{where.cpu}, {where.cores} cores, load {where.load} at the start; {where.kernel}, {where.python}.",
        f"{libraries}.",
        "",
    ]
    return "\n".join(lines)


def _case_row(case: Measured) -> tuple[str, ...]:
    name = f"{case.name} ({case.note})" if case.note else case.name
    return (
        name,
        duration(case.ns.median),
        f"{duration(case.ns.p10)} to {duration(case.ns.p90)}",
        f"{case.ratio.median:.2f}",
        f"{case.ratio.p10:.2f} to {case.ratio.p90:.2f}",
    )


def _verdict(target: Judged) -> str:
    spread = target.figure
    if target.unit == "ms":
        figure = f"{spread.p99:.3f} ms at p99 (median {spread.median:.3f}, slowest {spread.max:.3f})"
    else:
        unit = "x" if target.unit == "x" else " µs"
        figure = f"{spread.median:.2f}{unit} ({spread.p10:.2f} to {spread.p90:.2f})"
    asked = f"{target.direction} {target.limit:g} {target.unit}"
    return f"{_word(target.reached)}: {target.sentence}: {asked}, is {figure}"


def _word(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def duration(ns: float) -> str:
    """A time with three digits and the unit that fits it."""
    for unit, size in (("ns", 1e3), ("µs", 1e6), ("ms", 1e9)):
        if ns < size:
            value = ns / size * 1e3
            return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"
    return f"{ns / 1e9:.2f} s"

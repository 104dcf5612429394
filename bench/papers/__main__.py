"""`python -m bench.papers [names]`; see the package."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from bench.harness import Size
from bench.papers import experiment

MODULES = (
    "bench.papers.dds.future_list",
    "bench.papers.dds.round_trip",
    "bench.papers.tao.latency",
    "bench.papers.tao.erd",
    "bench.papers.tao.spacing",
    "bench.papers.tao.utilisation",
    "bench.papers.echo",
    "bench.papers.ramani.resync",
    "bench.papers.ramani.kills",
    "bench.papers.wang.join",
    "bench.papers.wang.resends",
    "bench.papers.wang.starvation",
)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; 2 when it names an experiment that does not exist."""
    for module in MODULES:
        import_module(module)
    parser = argparse.ArgumentParser(prog="python -m bench.papers")
    parser.add_argument("names", nargs="*", help="experiments to run; all when none is given")
    parser.add_argument("--quick", action="store_true", help="a small share of each; results are not stored")
    parser.add_argument(
        "--report", action="store_true", help="write stored results into docs/explanation/papers.md"
    )
    parser.add_argument("--results", type=Path, help="folder of the results")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in experiment.REGISTRY]
    if unknown:
        print(f"no experiment named {', '.join(unknown)}; there are {', '.join(experiment.REGISTRY)}")
        return 2
    if options.report:
        experiment.write_page(experiment.read_all(options.results or experiment.FOLDER))
        return 0
    for name in options.names or list(experiment.REGISTRY):
        found = experiment.REGISTRY[name](Size(quick=options.quick, seed=0))
        show(found)
        if options.results or not options.quick:
            experiment.keep(found, options.results or experiment.FOLDER)
    return 0


def show(found: experiment.Experiment) -> None:
    print(f"{found.title}\n{found.note}")
    for row in (found.columns, *found.rows):
        print("  ".join(f"{cell:>12}" for cell in row))
    for fact in found.facts:
        print(f"{experiment.verdict(fact)}: {fact.sentence}")
    print()


if __name__ == "__main__":
    sys.exit(main())

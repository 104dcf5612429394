"""`python -m bench [names]` measures and stores; `--quick` shows that it runs, `--report` writes the page."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from rich.console import Console

from bench import report, results
from bench.environment import Environment
from bench.harness import EVENTS, REGISTRY, Size, run

MODULES = (
    "bench.peers.records",
    "bench.peers.arrays",
    "bench.peers.filters",
    "bench.peers.subscriptions",
    "bench.peers.channels",
    "bench.peers.isolation",
    "bench.peers.journals",
    "bench.peers.rivals",
    "bench.peers.seals",
    "bench.peers.spark_source",
    "bench.peers.register",
    "bench.peers.pipeline",
    "bench.peers.executors",
    "bench.peers.recovery",
    "bench.peers.scale",
    "bench.peers.links",
    "bench.peers.network",
    "bench.peers.rings",
    "bench.peers.sizes",
    "bench.peers.timers",
    "bench.peers.deadlines",
    "bench.peers.configurations",
    "bench.peers.interest",
    "bench.peers.derived",
    "bench.peers.neighbours",
    "bench.peers.dds",
)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; 2 when it names a benchmark that does not exist."""
    # Processes that are started find modules compiled, as those of an installed package are.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for module in MODULES:
        import_module(module)
    options = _parse(arguments)
    console = Console()
    unknown = [name for name in options.names if name not in REGISTRY]
    if unknown:
        console.print(f"no benchmark named {', '.join(unknown)}; there are {', '.join(REGISTRY)}")
        return 2
    if options.list:
        for registered in REGISTRY.values():
            console.print(f"{registered.name:16} {registered.title}")
        return 0
    if options.report:
        report.write_page(results.read_all(options.results or results.FOLDER))
        return 0
    size = Size(quick=options.quick, seed=options.seed, events=options.events, histories=options.histories)
    for name in options.names or list(REGISTRY):
        environment = Environment.here()
        outcome = run(REGISTRY[name], size)
        report.show(outcome, console)
        # A quick run says nothing about speed: it is kept only where the caller asks for it.
        if options.results or not options.quick:
            result = results.Result(environment, options.seed, options.quick, outcome)
            results.write(result, options.results or results.FOLDER)
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run; all when none is given")
    parser.add_argument("--quick", action="store_true", help="a small share of each; results are not stored")
    parser.add_argument("--list", action="store_true", help="name the benchmarks")
    parser.add_argument(
        "--report", action="store_true", help="write stored results into docs/explanation/benchmarks.md"
    )
    parser.add_argument("--results", type=Path, help="folder of the results; bench/results when not given")
    parser.add_argument("--seed", type=int, default=20261105)
    parser.add_argument("--events", type=int, default=EVENTS, help="events in the histories that Spark reads")
    parser.add_argument(
        "--histories", type=Path, help="folder in which large histories stay for the next run"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""The benchmarks run and their results are well formed; how fast anything is stands in bench/results only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from bench import report, results
from bench.__main__ import main
from bench.environment import Environment
from bench.harness import EVENTS, REGISTRY, Benchmark, Case, Fact, Registered, Size, Spread, Target, run

if TYPE_CHECKING:
    from pathlib import Path

QUICK = Size(quick=True, seed=1)
WITH_SPARK = {
    *("spark-read", "spark-stream", "spark-memory", "spark-executors"),
    *("pipeline-jobs", "pipeline-align"),
}
"""These start a session; `make proof` runs them."""


def spinning(seconds: float) -> None:
    """Use the processor for a while."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def two_cases(_size: Size) -> Benchmark:
    return Benchmark(
        cases=(
            Case("short", spinning, ((0.0005,),)),
            Case("long", spinning, ((0.005,),), "ten times as long"),
            Case("changes", spinning, ((0.0001,),) * 3, alone=True),
        ),
        baseline="short",
        targets=(
            Target("within reach", "long", "at most", 1000.0, "short"),
            Target("out of reach", "short", "at least", 1000.0, "long"),
            Target("each call", "changes", "at most", 60_000.0),
        ),
        facts=(Fact("water is dry", holds=False),),
        note="A made-up one.",
    )


def test_a_ratio_is_taken_within_each_round_and_judged_by_its_median() -> None:
    outcome = run(Registered("made-up", "Two spins", two_cases), QUICK)
    by_name = {case.name: case for case in outcome.cases}
    assert by_name["short"].ratio == Spread(1.0, 1.0, 1.0, 1.0, 1.0)
    assert by_name["long"].ratio.median > 1.0
    assert by_name["changes"].calls == 3 * QUICK.rounds
    assert [(target.reached, target.unit) for target in outcome.targets] == [
        (True, "x"),
        (False, "x"),
        (True, "ms"),
    ]


def test_a_miss_is_reported_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(Registered("made-up", "Two spins", two_cases), QUICK)
    result = results.Result(Environment.here(), 1, quick=True, outcome=outcome)
    results.write(result, tmp_path)
    assert results.read_all(tmp_path) == [result]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_page(results.read_all(tmp_path), page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text
    assert "- **reached** within reach" in text
    assert "- **MISSED** out of reach" in text
    assert "- **MISSED** water is dry" in text
    assert result.environment.cpu in text


def test_every_benchmark_runs_and_stores_a_well_formed_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--list"]) == 0
    names = [name for name in REGISTRY if name not in WITH_SPARK]
    assert main(["--quick", "--results", str(tmp_path), *names]) == 0
    stored = {result.outcome.name: result for result in results.read_all(tmp_path)}
    assert set(stored) == set(names)
    for result in stored.values():
        assert result.quick
        assert result.environment.python
        assert result.outcome.rounds == QUICK.rounds
        assert {case.name for case in result.outcome.cases} >= {result.outcome.baseline}
        assert all(case.ns.p10 <= case.ns.median <= case.ns.p90 for case in result.outcome.cases)
        # Speed says nothing in a quick run, but what is compared must do the same job.
        assert [fact for fact in result.outcome.facts if not fact.holds] == []
    shown = capsys.readouterr().out
    assert all(REGISTRY[name].title in shown for name in names)


def test_an_unknown_name_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record-encode"]) == 2
    shown = capsys.readouterr().out
    assert "no benchmark named record-encode" in shown
    assert "records-encode" in shown


def test_stored_results_are_of_full_runs_of_benchmarks_that_exist() -> None:
    main(["--list"])
    stored = results.read_all(results.FOLDER)
    sizes = (EVENTS, 10 * EVENTS, 50 * EVENTS)
    labels = {Size(quick=False, seed=0, events=events).label(name) for name in REGISTRY for events in sizes}
    assert {result.outcome.name for result in stored} <= labels
    assert not any(result.quick for result in stored)


@pytest.mark.parametrize(
    ("ns", "text"),
    [(7.25, "7.25 ns"), (152.4, "152 ns"), (3_420.0, "3.42 µs"), (2.5e6, "2.5 ms"), (3e9, "3.00 s")],
)
def test_durations_have_three_digits_and_a_unit_that_fits(ns: float, text: str) -> None:
    assert report.duration(ns) == text

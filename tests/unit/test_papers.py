"""The papers' experiments run, and their results become pages and figures; no figure is judged here."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from bench.environment import Environment
from bench.harness import Fact
from bench.papers import experiment
from bench.papers.__main__ import main
from bench.papers.figure import Series, chart

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_every_experiment_runs_and_stores_a_well_formed_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stations that run elsewhere on this machine have no part in it.
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    assert main(["--quick", "--results", str(tmp_path / "results")]) == 0
    kept = experiment.read_all(tmp_path / "results")
    assert {one.experiment.name for one in kept} == set(experiment.REGISTRY)
    (kills,) = (one.experiment for one in kept if one.experiment.name == "ramani-kills")
    assert kills.facts[0].holds, "all agree again after each kill; how fast is not judged here"
    for one in kept:
        assert one.experiment.rows
        assert all(len(row) == len(one.experiment.columns) for row in one.experiment.rows)
        if one.experiment.figure:
            ET.fromstring(one.experiment.figure)
    assert "TAO, Table 1" in capsys.readouterr().out


def test_an_unknown_experiment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such"]) == 2
    assert "tao-spacing" in capsys.readouterr().out


def test_a_page_shows_results_with_misses_and_figures(tmp_path: Path) -> None:
    figure = chart([Series("one", ((1.0, 2.0, 1.0, 3.0), (10.0, -1.0, -2.0, 0.5)))], "x", "y", log_x=True)
    found = experiment.Experiment(
        "made-up",
        "A made-up one",
        "As it came.",
        ("a", "b"),
        (("1", "2"),),
        (Fact("dry", holds=False),),
        figure,
    )
    page = tmp_path / "page.md"
    page.write_text(f"before\n{experiment.BEGIN}\nold\n{experiment.END}\nafter\n")
    experiment.write_page([experiment.Kept(Environment.here(), found)], page, tmp_path / "figures")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "- **MISSED** dry" in text
    assert "![A made-up one](figures/made-up.svg)" in text
    ET.parse(tmp_path / "figures" / "made-up.svg")

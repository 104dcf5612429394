"""A project of declarative pipelines: what is written, and what is refused before anything is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import ExpressionError, InvalidOption, NoHistory
from heliograph.spark.declarative.project import table_name, write_project
from heliograph.spark.declarative.runner import run_project

if TYPE_CHECKING:
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
    return tmp_path / "data"


def definitions(project: Path) -> str:
    (file,) = (project / "transformations").iterdir()
    return file.read_text()


def test_a_project_has_a_spec_and_definitions_that_are_python(data: Path, tmp_path: Path) -> None:
    written = write_project(tmp_path / "air", data, "air.tracks")
    assert [file.relative_to(written.folder).as_posix() for file in written.files] == [
        "spark-pipeline.yml",
        "conf/spark-defaults.conf",
        "transformations/air_tracks.py",
    ]
    compile(definitions(written.folder), "definitions", "exec")
    assert written.quarantine is None


def test_a_quote_in_an_expectation_stays_inside_its_text(data: Path, tmp_path: Path) -> None:
    """An expectation is data: it stands in the definitions as one literal, whatever is in it."""
    hostile = """speed > 0 OR id = length('" + exit() + "')"""
    written = write_project(tmp_path / "air", data, "air.tracks", expect=hostile)
    names: dict[str, object] = {}
    line = next(line for line in definitions(written.folder).splitlines() if line.startswith("EXPECTATION"))
    exec(line, names)
    assert names["EXPECTATION"] == hostile
    assert written.quarantine == "air.tracks.quarantine"


def test_nothing_is_written_where_something_is_already(data: Path, tmp_path: Path) -> None:
    (tmp_path / "air").mkdir()
    with pytest.raises(InvalidOption, match="a folder that does not exist yet"):
        write_project(tmp_path / "air", data, "air.tracks")
    assert list((tmp_path / "air").iterdir()) == []


def test_nothing_is_written_for_a_channel_that_is_not_there(data: Path, tmp_path: Path) -> None:
    with pytest.raises(NoHistory, match=r"air\.tracks"):
        write_project(tmp_path / "air", data, "air.track")
    assert not (tmp_path / "air").exists()


def test_nothing_is_written_for_an_expectation_that_does_not_fit(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ExpressionError, match="sped"):
        write_project(tmp_path / "air", data, "air.tracks", expect="sped > 3")
    assert not (tmp_path / "air").exists()


def test_a_run_needs_a_project(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="helio pipeline init"):
        run_project(tmp_path)


@pytest.mark.parametrize(
    ("channel", "table"),
    [("air.tracks", "air_tracks"), ("2026.runs", "t_2026_runs"), ("Größe", "gr_e"), ("é", "events")],
)
def test_tables_are_called_like_channels_in_letters_that_spark_and_python_take(
    channel: str, table: str
) -> None:
    assert table_name(channel) == table
    assert table.isidentifier()

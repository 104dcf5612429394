"""What the three kinds of tables have in common, without Spark."""

from __future__ import annotations

from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heliograph.errors import TableInUse, TableMismatch
from heliograph.spark.jobs.tables.delta import statistics
from heliograph.spark.jobs.tables.workplace import DataFile, Workplace
from tests.faults.table_player import KEY, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NARROW = pa.schema([("number", pa.int32()), ("event_date", pa.date32())])
WIDE = pa.schema([("number", pa.int64()), ("event_date", pa.date32())])


def at(offset: int) -> dict[str, Any]:
    return {KEY.channel: {KEY.partition: {"epoch": 3, "offset": offset, "from": 0}}}


def put(place: Workplace, table: Any, schema: pa.Schema, number: int) -> None:
    place.clear()
    kept = table.keeps_partition_columns
    rows = pa.table(
        {"number": [number], "event_date": pa.array(["2026-11-18"]).cast(pa.date32())}, schema=schema
    )
    folder = place.staging / ("_event_date=2026-11-18" if kept else "event_date=2026-11-18")
    folder.mkdir(parents=True)
    pq.write_table(rows if kept else rows.drop(["event_date"]), folder / "part.parquet")
    table.commit(place.staged(), schema, ["event_date"], at(number))


@pytest.fixture(params=TABLES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Workplace, Any]]:
    with Workplace.locked(tmp_path / "table") as place:
        table: Any = TABLES[request.param](place)
        with closing(table) if request.param == "iceberg" else nullcontext():
            yield place, table


def test_a_new_table_has_no_positions_and_then_those_of_its_last_commit(
    opened: tuple[Workplace, Any],
) -> None:
    place, table = opened
    assert table.positions([KEY]) is None
    assert table.files() == []
    put(place, table, WIDE, 7)
    put(place, table, WIDE, 8)
    assert table.positions([KEY]) == at(8)
    assert [(file.rows, file.partition) for file in table.files()] == [(1, {"event_date": "2026-11-18"})] * 2
    again: Any = type(table)(place)
    assert again.positions([KEY]) == at(8)
    if hasattr(again, "close"):
        again.close()


def test_a_number_that_became_wider_widens_the_table_or_is_refused_and_leaves_it_as_it_was(
    opened: tuple[Workplace, Any],
) -> None:
    place, table = opened
    put(place, table, NARROW, 7)
    if "Delta" in type(table).__name__:
        with pytest.raises(TableMismatch, match="Delta cannot change a type"):
            put(place, table, WIDE, 1 << 40)
        assert table.positions([KEY]) == at(7)
    else:
        put(place, table, WIDE, 1 << 40)
        assert table.positions([KEY]) == at(1 << 40)


def test_one_job_at_a_time_has_a_table(tmp_path: Path) -> None:
    with (
        Workplace.locked(tmp_path),
        pytest.raises(TableInUse, match="another job has"),
        Workplace.locked(tmp_path),
    ):
        pass
    with Workplace.locked(tmp_path):
        pass


def test_a_list_that_is_no_list_is_refused(tmp_path: Path) -> None:
    with Workplace.locked(tmp_path) as place:
        (place.own / "table.json").write_text("{}")
        with pytest.raises(TableMismatch, match=r"table\.json cannot be read"):
            TABLES["parquet"](place)


def test_the_partition_of_a_file_is_in_its_path() -> None:
    file = DataFile("data/_event_date=2026-11-18/_event_hour=__HIVE_DEFAULT_PARTITION__/a.parquet", 1, 1)
    assert file.partition == {"event_date": "2026-11-18", "event_hour": None}
    assert file.folder == "event_date=2026-11-18/event_hour=__HIVE_DEFAULT_PARTITION__"


def test_statistics_for_delta_are_those_of_the_rows(tmp_path: Path) -> None:
    rows = {
        "id": [3, None, 1],
        "at": [{"x": 5}, {"x": None}, None],
        "name": ["a", "b", None],
        "tags": [["a"], [], None],
    }
    pq.write_table(pa.table(rows), tmp_path / "file.parquet", row_group_size=2)
    assert statistics(tmp_path / "file.parquet") == {
        "numRecords": 3,
        "minValues": {"id": 1, "at": {"x": 5}},
        "maxValues": {"id": 3, "at": {"x": 5}},
        "nullCount": {"id": 1, "at": {"x": 2}, "name": 1},
    }

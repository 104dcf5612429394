"""Writes numbers into a table in batches of 100, each behind what the table has, up to a limit.

python -m tests.faults.table_player FOLDER FORMAT LIMIT             a batch is added, as `archive` does
python -m tests.faults.table_player FOLDER FORMAT LIMIT replace     a batch replaces all, as in `snapshot`
"""

from __future__ import annotations

import json
import sys
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from heliograph.spark.jobs.tables.delta import DeltaLakeTable
from heliograph.spark.jobs.tables.iceberg import IcebergTable
from heliograph.spark.jobs.tables.parquet import ParquetTable
from heliograph.spark.jobs.tables.rewrite import RewritePolicy
from heliograph.spark.jobs.tables.table import opened
from heliograph.spark.jobs.tables.workplace import Workplace
from heliograph.spark.source.partitions import Key

BATCH = 100
DAYS = ("2026-11-17", "2026-11-18")
TABLES = {"parquet": ParquetTable, "delta": DeltaLakeTable, "iceberg": IcebergTable}
KEY = Key("numbers", "p1")
POLICY = RewritePolicy(1 << 20, 3)


def play(folder: Path, kind: str, limit: int) -> None:
    with Workplace.locked(folder) as place:
        table: Any = TABLES[kind](place)
        with closing(table) if kind == "iceberg" else nullcontext():
            while (first := offset(table)) < limit:
                stage(place, first, keep=table.keeps_partition_columns)
                at = {"numbers": {"p1": {"epoch": 1, "offset": first + BATCH}}}
                table.commit(place.staged(), schema(first), ["event_date"], at)
                table.compact(POLICY)


def play_states(folder: Path, kind: str, limit: int) -> None:
    """Replace the table by one batch after the other; two files each."""
    with Workplace.locked(folder) as place, opened(kind, place) as table:
        while (first := offset(table)) < limit:
            place.clear()
            place.staging.mkdir(parents=True)
            numbers = range(first, first + BATCH)
            for part in (0, 1):
                pq.write_table(pa.table({"number": numbers[part::2]}), place.staging / f"{part}.parquet")
            at = {"numbers": {"p1": {"epoch": 1, "offset": first + BATCH}}}
            table.replace(place.staged(), pa.schema([("number", pa.int64())]), at)


def state(folder: Path, kind: str) -> tuple[int, list[int]]:
    """How far the table says that it goes, and what somebody else reads in it."""
    with Workplace.locked(folder) as place, opened(kind, place) as table:
        reached = offset(table)
    if kind == "parquet":
        rows = [n for path in folder.glob("*.parquet") for n in pq.read_table(path)["number"].to_pylist()]
        return reached, sorted(rows)
    return reached, [number for number, _ in numbers(folder, kind)]


def offset(table: Any) -> int:
    positions = table.positions([KEY])
    return positions["numbers"]["p1"]["offset"] if positions else 0


def schema(first: int) -> pa.Schema:
    """From the fourth batch on there is a column more."""
    later = [("square", pa.int64())] if first >= 3 * BATCH else []
    return pa.schema([("number", pa.int64()), *later, ("event_date", pa.date32())])


def stage(place: Workplace, first: int, *, keep: bool) -> None:
    place.clear()
    for day, text in enumerate(DAYS):
        numbers = [n for n in range(first, first + BATCH) if n % len(DAYS) == day]
        columns = {"number": numbers, "square": [n * n for n in numbers]}
        if first < 3 * BATCH:
            del columns["square"]
        rows = pa.table(columns)
        if keep:
            rows = rows.append_column("event_date", pa.array([text] * len(numbers)).cast(pa.date32()))
        target = place.staging / f"{'_' if keep else ''}event_date={text}"
        target.mkdir(parents=True)
        pq.write_table(rows, target / "part.parquet")


def numbers(folder: Path, kind: str) -> list[tuple[int, int | None]]:
    """What somebody else reads in the table, by the format's own reader."""
    if kind == "parquet":
        import pyarrow.dataset as ds

        files = [str(path) for path in folder.glob("event_date=*/*.parquet")]
        found = ds.dataset(files, schema=schema(BATCH * 3)).to_table()
    elif kind == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(folder).to_pyarrow_table()
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        with closing(SqlCatalog("heliograph", uri=f"sqlite:///{folder}/catalog.db")) as catalog:
            found = catalog.load_table("heliograph.events").scan().to_arrow()
    return sorted((row["number"], row.get("square")) for row in found.to_pylist())


def strangers(folder: Path, kind: str) -> set[str]:
    """Files in the folder that no version of the table has or ever had."""
    there = {path.name for path in folder.rglob("*.parquet")}
    if kind == "parquet":
        table = folder / "_heliograph" / "table.json"
        listed = json.loads(table.read_text())["files"] if table.exists() else []
        return there - {Path(path).name for path, _, _ in listed}
    if kind == "delta":
        log = "".join(path.read_text() for path in (folder / "_delta_log").glob("*.json"))
        return {name for name in there if name not in log}
    from pyiceberg.catalog.sql import SqlCatalog

    with closing(SqlCatalog("heliograph", uri=f"sqlite:///{folder}/catalog.db")) as catalog:
        known = catalog.load_table("heliograph.events").inspect.all_files().column("file_path")
    return there - {Path(path).name for path in known.to_pylist()}


if __name__ == "__main__":
    how = play_states if sys.argv[4:] == ["replace"] else play
    how(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))

"""Sealed files are plain Parquet: programs that know nothing of Heliograph read every kind of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake

import heliograph as hg
from heliograph.cli import run
from heliograph.journal.format.records import TOMBSTONE
from heliograph.journal.maintenance.compactor import rewrite
from tests.spark.totals import Colour, Part, Rich
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = ["_offset", "_type", "_body"]
"""In which a row is told from others; all columns are read."""


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class Named(hg.Event, name="air.named"):
    id: str


class Nothing(hg.Event, name="air.nothing"):
    pass


class Hollow(hg.Event, name="air.hollow"):
    inside: Nothing


def rich(keeper: Keeper) -> None:
    when = datetime(2026, 11, 5, 10, 0, 0, 123_456, tzinfo=UTC)
    part = Part(7, "ä")
    event = Rich(
        (1 << 64) - 1, -3, 0.5, when, Colour.GREEN, b"\x00\xff", part, [part], np.zeros(1), {"a": [1]}, None
    )
    keeper.push(event, event, headers={"unit": "kt", "": "é"}, correlation_id="c")


def conflicting(keeper: Keeper) -> None:
    keeper.push(Track(1), Named("one"), Track(2, float("nan")))


def bodies_only(keeper: Keeper) -> None:
    keeper.push(Hollow(Nothing()), Hollow(Nothing()))


def large_numbers(keeper: Keeper) -> None:
    keeper.push(Track(1), Track(2), lifetime_ns=1 << 63)


def tombstones(keeper: Keeper) -> None:
    record = keeper.record(Track(1))
    gone = msgspec.structs.replace(record, sequence=2, kind=TOMBSTONE, body=b"", key=b"\x91\x01")
    keeper.append(record, gone)


def compacted(keeper: Keeper) -> None:
    """Two files that become one; it has the ids of the rows that are not in it any more."""
    partition = keeper.writer._partition
    partition.limits = replace(partition.limits, compact=True)
    keeper.writer._keeper._rewriter = None
    for n in range(20):
        keeper.push(Track(n % 5, float(n)))
        if n == 9:
            keeper.seal()
    keeper.seal()
    keeper.writer._keeper._rewriter = rewrite
    keeper.writer.tidy()
    assert keeper.writer.stats().segments == 1


KINDS = [rich, conflicting, bodies_only, large_numbers, tombstones, compacted]


def by_arrow(file: Path, _: SparkSession) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


def by_polars(file: Path, _: SparkSession) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pl.read_parquet(file).to_dicts()
    return rows


def by_duckdb(file: Path, _: SparkSession) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        table = connection.sql("SELECT * FROM read_parquet(?)", params=[str(file)]).to_arrow_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def by_delta(file: Path, _: SparkSession) -> list[dict[str, Any]]:
    folder = file.parent / f"delta-{file.stem}"
    folder.mkdir()
    shutil.copy(file, folder)
    convert_to_deltalake(str(folder))
    found = QueryBuilder().register("rows", DeltaTable(str(folder))).execute("SELECT * FROM rows")
    rows: list[dict[str, Any]] = pa.table(found.read_all()).to_pylist()
    return rows


def by_spark(file: Path, spark: SparkSession) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.read.parquet(str(file)).collect()]


READERS = [by_arrow, by_polars, by_duckdb, by_delta, by_spark]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_sealed_file_is_read_by_everybody(
    spark: SparkSession, tmp_path: Path, kind: Callable[[Keeper], None]
) -> None:
    with Keeper(tmp_path / "data") as keeper:
        kind(keeper)
        sealed = keeper.seal()[-1]
    exported = tmp_path / "exported.parquet"
    assert run(["journal", "export", str(tmp_path / "data"), "air.tracks", str(exported)]) == 0
    for file in (sealed, *exported.glob("*.parquet")):
        rows = [[row[name] for name in COLUMNS] for row in by_arrow(file, spark)]
        assert rows
        for reader in READERS:
            found = [[row[name] for name in COLUMNS] for row in reader(file, spark)]
            assert sorted(found) == rows, (reader.__name__, file.name)

"""Jobs over events with decimals and maps: each table has the values that were pushed, in every format."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

import heliograph as hg
from heliograph.spark import jobs
from tests.spark.test_snapshot import rows
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Quote(hg.Event, name="shop.quote", key=("price", "day")):
    price: Annotated[Decimal, hg.Digits(6, 2)]
    day: date
    tags: dict[str, str]
    total: Annotated[Decimal, hg.Digits(38, 10)] | None = None


class LaterQuote(hg.Event, name="shop.quote", key=("price", "day")):
    price: Annotated[Decimal, hg.Digits(12, 4)]
    day: date
    tags: dict[str, str]
    total: Annotated[Decimal, hg.Digits(38, 10)] | None = None


DAY = date(2026, 11, 18)


def quotes(count: int) -> list[Quote]:
    return [
        Quote(Decimal(n) + Decimal("0.25"), DAY, {"n": str(n)} if n % 2 else {}, Decimal(n) / 1024)
        for n in range(count)
    ]


def values(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    made = [(row["price"], row["day"], sorted(dict(row["tags"]).items()), row["total"]) for row in found]
    return sorted(made)


EXPECTED = [(q.price, q.day, sorted(q.tags.items()), q.total) for q in quotes(10)]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_an_archive_has_the_values_and_registered_files_do(
    kind: Any, tmp_path: Path, spark: SparkSession
) -> None:
    with Keeper(tmp_path / "data", "quotes") as keeper:
        keeper.push(*quotes(10))
        keeper.seal()
    done = jobs.archive(spark, tmp_path / "data", "quotes", tmp_path / "table", format=kind)
    assert done.events == 10
    assert values(rows(tmp_path / "table", kind, spark)) == EXPECTED
    if kind != "parquet":
        linked = jobs.register(tmp_path / "data", "quotes", tmp_path / "linked", format=kind)
        assert linked.events == 10
        assert values(rows(tmp_path / "linked", kind, spark)) == EXPECTED


def test_plain_readers_find_decimals_and_maps_in_sealed_files(tmp_path: Path, spark: SparkSession) -> None:
    with Keeper(tmp_path / "data", "quotes") as keeper:
        keeper.push(*quotes(10))
        file = str(keeper.seal()[-1])
    assert values(pq.read_table(file).to_pylist()) == EXPECTED
    with duckdb.connect() as connection:
        table = connection.sql("SELECT * FROM read_parquet(?)", params=[file]).to_arrow_table()
        assert values(table.to_pylist()) == EXPECTED
        asked = connection.sql(
            "SELECT sum(price) FROM read_parquet(?) WHERE tags['n'] = '3' OR price = 0.25", params=[file]
        ).fetchall()
        assert asked == [(Decimal("3.50"),)]
    frame = pl.read_parquet(file)
    assert frame["price"].to_list() == [one[0] for one in EXPECTED]
    assert frame["price"].dtype == pl.Decimal(6, 2)
    assert [dict(tags) for tags in frame["tags"].to_list()] == [quote.tags for quote in quotes(10)]
    by_spark = spark.read.parquet(file)
    assert by_spark.schema["price"].dataType.simpleString() == "decimal(6,2)"
    assert by_spark.schema["tags"].dataType.simpleString() == "map<string,string>"
    assert values([row.asDict() for row in by_spark.collect()]) == EXPECTED


def test_a_snapshot_knows_a_key_in_whatever_version_it_was_said(tmp_path: Path, spark: SparkSession) -> None:
    kind = "parquet"  # Delta cannot change the type of a column
    qos = hg.QoS(durability="persistent", compaction="key")
    with hg.Station(tmp_path / "data") as station:
        channel = station.channel("quotes", Quote, qos=qos)
        for quote in quotes(4):
            channel.push(quote)
        channel.forget(Decimal("1.250"), DAY)
    jobs.snapshot(spark, tmp_path / "data", "quotes", tmp_path / "table", format=kind)
    with hg.Station(tmp_path / "data") as station:
        later = station.channel("quotes", LaterQuote, qos=qos)
        later.push(LaterQuote(Decimal("0.25"), DAY, {"new": "yes"}))
        later.forget(Decimal("3.25"), DAY)
        with pytest.raises(hg.InvalidEvent, match=r"4 digits behind the point.*\$\.price"):
            later.forget(Decimal("3.25001"), DAY)
    jobs.snapshot(spark, tmp_path / "data", "quotes", tmp_path / "table", format=kind)
    found = {row["price"]: dict(row["tags"]) for row in rows(tmp_path / "table", kind, spark)}
    assert found == {Decimal("0.25"): {"new": "yes"}, Decimal("2.25"): {}}


def test_quality_and_align_take_decimals_and_maps(tmp_path: Path, spark: SparkSession) -> None:
    for name in ("quotes", "prices"):
        with Keeper(tmp_path / "data", name) as keeper:
            keeper.push(*quotes(10))
    expect = ["price <= 7.25", "map_contains(tags, 'n')"]
    done = jobs.quality(spark, tmp_path / "data", "quotes", expect=expect)
    assert done.violations == {expect[0]: 2, expect[1]: 5}
    options: Any = {"lead": "q", "time": "append"}
    channels = {"q": "quotes", "p": "prices"}
    aligned = jobs.align(spark, tmp_path / "data", channels, tmp_path / "aligned", **options)
    assert aligned.rows == 10

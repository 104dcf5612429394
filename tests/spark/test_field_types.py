"""Fields of every type that Spark has a type for, from events to rows and back, before and after sealing."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from pyspark.sql import types as T  # noqa: N812 - the name that all of Spark's documents use

import heliograph as hg
import heliograph.spark
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PERSISTENT = hg.QoS(durability="persistent")


class Order(hg.Event, name="shop.order", key="order"):
    order: UUID
    day: date
    due: date | None = None


ORDERS = [Order(UUID(int=n << 64), date(2026, 11, n), date.max if n % 2 else None) for n in range(1, 7)]
COLUMNS = {"order": T.StringType(), "day": T.DateType(), "due": T.DateType()}
SAMPLES = {
    "day": "day >= DATE '2026-11-03' AND day <> DATE '2026-11-05'",
    "due": "due = DATE '9999-12-31'",
    "order": "order > '00000000-0000-0003-0000-000000000000'",
    "one order": "order IN ('00000000-0000-0002-0000-000000000000')",
}


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    found = sorted(frame.collect(), key=lambda row: row["header"]["offset"])
    return [{name: row[name] for name in COLUMNS} for row in found]


def save(frame: DataFrame, folder: Path, **options: str) -> None:
    frame.write.format("heliograph").mode("append").options(path=str(folder), **options).save()


def expected(events: list[Any]) -> list[dict[str, Any]]:
    return [{**event.to_dict(), "order": str(event.order)} for event in events]


@pytest.mark.parametrize("sealed", [False, True], ids=["head", "sealed"])
def test_columns_and_filters_are_those_of_the_fields(
    spark: SparkSession, tmp_path: Path, *, sealed: bool
) -> None:
    keeper = Keeper(tmp_path, "orders")
    keeper.push(*ORDERS)
    if sealed:
        keeper.seal()
    keeper.writer.close()
    frame = heliograph.spark.read(spark, tmp_path, "orders")
    assert {name: frame.schema[name].dataType for name in COLUMNS} == COLUMNS
    assert rows(frame) == expected(ORDERS)
    for text in SAMPLES.values():
        wanted = hg.history(tmp_path, "orders", where=text).count()
        assert 0 < wanted < len(ORDERS)
        read = heliograph.spark.read(spark, tmp_path, "orders", where=text)
        source = spark.read.format("heliograph").option("path", str(tmp_path)).option("channel", "orders")
        assert rows(read) == rows(source.option("filter", text).load())
        assert len(rows(read)) == wanted, text


def test_rows_become_events_of_the_class_and_new_channels_get_the_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = T.StructType([T.StructField(name, kind) for name, kind in COLUMNS.items()])
    frame = spark.createDataFrame([tuple(row.values()) for row in expected(ORDERS)], schema)
    with hg.Station(tmp_path) as station:
        station.channel("orders", Order, qos=PERSISTENT)
    save(frame, tmp_path, channel="orders", event=f"{__name__}:Order")
    save(frame, tmp_path, channel="made", create="true", type="shop.made")
    with hg.Station(tmp_path) as station:
        orders = station.channel("orders", Order, mode="open")
        with orders.consumer(start="earliest", until="now") as consumer:
            assert sorted(consumer, key=lambda order: order.order) == ORDERS
    assert rows(heliograph.spark.read(spark, tmp_path, "made").orderBy("order")) == expected(ORDERS)
    bad = frame.selectExpr("'no uuid' AS order", "day")
    with pytest.raises(Exception, match="no UUID"):
        save(bad, tmp_path, channel="orders", event=f"{__name__}:Order")

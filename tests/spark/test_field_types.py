"""Fields of every type that Spark has a type for, from events to rows and back, before and after sealing."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any
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
    price: Annotated[Decimal, hg.Digits(18, 4)]
    attributes: dict[str, str]
    due: date | None = None
    total: Annotated[Decimal, hg.Digits(38, 10)] | None = None
    stock: dict[hg.i16, int | None] | None = None


def order(n: int) -> Order:
    odd = n % 2
    price = Decimal(n) + Decimal("0.2500")
    attributes = {"colour": "red" if n > 3 else "blue"} if n > 1 else {}
    due = date.max if odd else None
    return Order(
        UUID(int=n << 64),
        date(2026, 11, n),
        price,
        attributes,
        due,
        Decimal(-n) * 10**27 if odd else None,
        {n: None, 7: n} if odd else None,
    )


ORDERS = [order(n) for n in range(1, 7)]
COLUMNS = {
    "order": T.StringType(),
    "day": T.DateType(),
    "price": T.DecimalType(18, 4),
    "attributes": T.MapType(T.StringType(), T.StringType()),
    "due": T.DateType(),
    "total": T.DecimalType(38, 10),
    "stock": T.MapType(T.ShortType(), T.LongType()),
}
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
    bad = frame.selectExpr("'no uuid' AS order", "day", "price", "attributes")
    with pytest.raises(Exception, match="no UUID"):
        save(bad, tmp_path, channel="orders", event=f"{__name__}:Order")


def test_a_decimal_that_would_be_rounded_is_refused_with_its_field(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hg.Station(tmp_path) as station:
        station.channel("orders", Order, qos=PERSISTENT)
    frame = spark.sql(
        "SELECT '00000000-0000-0002-0000-000000000000' AS order, DATE '2026-11-18' AS day, "
        "map('a', 'b') AS attributes"
    )
    save(
        frame.selectExpr("*", "CAST(1.5 AS DECIMAL(3, 1)) AS price"),
        tmp_path,
        channel="orders",
        event=f"{__name__}:Order",
    )
    save(frame.selectExpr("*", "7 AS price"), tmp_path, channel="orders", event=f"{__name__}:Order")
    for sql, reason in [
        ("CAST(1.00005 AS DECIMAL(10, 5))", r"more digits than decimal\(18, 4\)"),
        ("1.5D", r"a column of double; decimal\(18, 4\) needs"),
    ]:
        with pytest.raises(Exception, match=reason):
            save(
                frame.selectExpr("*", f"{sql} AS price"),
                tmp_path,
                channel="orders",
                event=f"{__name__}:Order",
            )
    with pytest.raises(Exception, match="the keys of maps in events are text or integers"):
        save(spark.sql("SELECT map(1.5D, 1) AS m"), tmp_path, channel="new", create="true", type="t")
    found = heliograph.spark.read(spark, tmp_path, "orders").select("price").collect()
    assert sorted(row["price"] for row in found) == [Decimal("1.5"), Decimal(7)]


class OldItem(hg.Event, name="shop.item"):
    price: Annotated[Decimal, hg.Digits(6, 2)]
    count: hg.i32
    marks: dict[str, hg.i32]


class NewItem(hg.Event, name="shop.item"):
    price: Annotated[Decimal, hg.Digits(12, 4)]
    count: Annotated[Decimal, hg.Digits(12, 1)]
    marks: dict[str, int | None]


@pytest.mark.parametrize("sealed", [False, True], ids=["head", "sealed"])
def test_versions_with_other_digits_and_values_share_columns(
    spark: SparkSession, tmp_path: Path, *, sealed: bool
) -> None:
    keeper = Keeper(tmp_path, "items")
    keeper.push(OldItem(Decimal("1.25"), 7, {"a": 1}))
    if sealed:
        keeper.seal()
    keeper.push(NewItem(Decimal("1.0005"), Decimal("0.5"), {"b": None}))
    if sealed:
        keeper.seal()
    keeper.writer.close()
    frame = heliograph.spark.read(spark, tmp_path, "items")
    assert frame.schema["price"].dataType == T.DecimalType(12, 4)
    assert frame.schema["count"].dataType == T.DecimalType(12, 1)
    assert frame.schema["marks"].dataType == T.MapType(T.StringType(), T.LongType())
    found = sorted(frame.collect(), key=lambda row: row["header"]["offset"])
    assert [(row["price"], row["count"], row["marks"]) for row in found] == [
        (Decimal("1.25"), Decimal(7), {"a": 1}),
        (Decimal("1.0005"), Decimal("0.5"), {"b": None}),
    ]
    table = hg.history(tmp_path, "items").arrow()
    assert table.column("price").to_pylist() == [Decimal("1.25"), Decimal("1.0005")]

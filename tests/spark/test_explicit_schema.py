"""`.schema()` on the source: parts of structs and wider types, and what the sink takes for a float."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pytest

import heliograph as hg
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class Position(hg.Event, name="air.position"):
    lat: hg.f32
    lon: hg.f32
    height: hg.i16 | None = None


class Track(hg.Event, name="air.track", key="id"):
    id: hg.i32
    price: Annotated[Decimal, hg.Digits(6, 2)]
    position: Position
    line: list[Position]
    places: dict[str, Position]
    counts: dict[hg.i16, hg.i32] | None = None
    speed: float = 0.0


HOME = Position(1.5, 2.5, 3)
TRACKS = [
    Track(1, Decimal("1.25"), HOME, [HOME, Position(0.5, 0.5)], {"home": HOME}, {7: 8}),
    Track(2, Decimal(-2), Position(0.5, 0.5), [], {}),
]


def keep(folder: Path, *, sealed: bool = False) -> None:
    keeper = Keeper(folder, "tracks")
    keeper.push(*TRACKS)
    if sealed:
        keeper.seal()
    keeper.writer.close()


@pytest.fixture(params=[False, True], ids=["head", "sealed"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    keep(tmp_path, sealed=request.param)
    return tmp_path


def source(spark: SparkSession, folder: Path, **options: str) -> Any:
    return spark.read.format("heliograph").options(path=str(folder), channel="tracks", **options)


def test_a_schema_names_parts_of_structs_at_any_depth(spark: SparkSession, kept: Path) -> None:
    schema = (
        "position STRUCT<height: SMALLINT>, line ARRAY<STRUCT<lon: FLOAT>>, "
        "places MAP<STRING, STRUCT<lat: FLOAT>>, header STRUCT<offset: BIGINT>"
    )
    rows = source(spark, kept).schema(schema).load().orderBy("header.offset").collect()
    found = [row.asDict(recursive=True) for row in rows]
    assert found == [
        {
            "position": {"height": 3},
            "line": [{"lon": 2.5}, {"lon": 0.5}],
            "places": {"home": {"lat": 1.5}},
            "header": {"offset": 0},
        },
        {"position": {"height": None}, "line": [], "places": {}, "header": {"offset": 1}},
    ]


def test_a_column_that_is_narrower_widens_also_inside(spark: SparkSession, kept: Path) -> None:
    schema = (
        "id BIGINT, price DECIMAL(20, 4), position STRUCT<lat: DOUBLE, height: DOUBLE>, "
        "line ARRAY<STRUCT<height: INT>>, counts MAP<INT, DECIMAL(12, 2)>"
    )
    frame = source(spark, kept).schema(schema).load()
    assert frame.schema.simpleString() == (
        "struct<id:bigint,price:decimal(20,4),position:struct<lat:double,height:double>,"
        "line:array<struct<height:int>>,counts:map<int,decimal(12,2)>>"
    )
    assert [tuple(row) for row in frame.orderBy("id").collect()] == [
        (1, Decimal("1.25"), (1.5, 3.0), [(3,), (None,)], {7: Decimal(8)}),
        (2, Decimal(-2), (0.5, None), [], None),
    ]


REFUSED = [
    "id SMALLINT",
    "id FLOAT",
    "id DECIMAL(9, 0)",
    "price DECIMAL(6, 1)",
    "price DECIMAL(6, 3)",
    "price DOUBLE",
    "position STRUCT<lat: STRING>",
    "position STRUCT<depth: FLOAT>",
    "line ARRAY<STRUCT<height: TINYINT>>",
    "counts MAP<TINYINT, INT>",
    "nothing INT",
]


def test_what_would_lose_values_or_is_not_there_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    keep(tmp_path)
    for schema in REFUSED:
        with pytest.raises(Exception, match=r"or one that holds all its values|columns of this history"):
            source(spark, tmp_path).schema(schema).load().collect()


def test_a_filter_reads_fields_that_the_schema_does_not_name(spark: SparkSession, kept: Path) -> None:
    frame = (
        source(spark, kept, filter="price > 1.2499 AND places['home'].lat = 1.5").schema("id BIGINT").load()
    )
    assert [row.id for row in frame.collect()] == [1]


def test_the_words_of_other_sources_are_answered_with_ours(spark: SparkSession, tmp_path: Path) -> None:
    keep(tmp_path)
    for option, answer in [("timestampAsOf", "endingTimestamp"), ("versionAsOf", "endingOffsets")]:
        with pytest.raises(Exception, match=answer):
            source(spark, tmp_path, **{option: "2026-11-18T00:00:00Z"}).load().collect()


def save(frame: DataFrame, folder: Path) -> None:
    options = {"path": str(folder), "channel": "tracks", "event": f"{__name__}:Track"}
    frame.write.format("heliograph").mode("append").options(**options).save()


def test_an_int_goes_into_a_float_and_into_a_decimal_unless_it_would_be_rounded(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hg.Station(tmp_path) as station:
        station.channel("tracks", Track, qos=hg.QoS(durability="persistent"))
    row = (
        "named_struct('lat', 1, 'lon', CAST(2 AS FLOAT), 'height', 3L) AS position, "
        "array() AS line, map() AS places, 7 AS price"
    )
    row = row.replace("array()", "CAST(array() AS ARRAY<STRUCT<lat: INT, lon: FLOAT, height: SMALLINT>>)")
    row = row.replace("map()", "CAST(map() AS MAP<STRING, STRUCT<lat: FLOAT, lon: FLOAT, height: INT>>)")
    save(spark.sql(f"SELECT 3 AS id, 9007199254740992L AS speed, {row}"), tmp_path)
    found = source(spark, tmp_path).load().filter("id = 3").first()
    assert found is not None
    assert (found.speed, found.position.lat, found.price) == (2.0**53, 1.0, Decimal(7))
    for wrong in ("9007199254740993L AS speed, 4 AS id", "1 AS speed, 5000000000L AS id"):
        with pytest.raises(Exception, match=r"out of the range of (f64|i32)"):
            save(spark.sql(f"SELECT {wrong}, {row}"), tmp_path)

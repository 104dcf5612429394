"""`format("heliograph")` as a sink in a real Spark: each row of a committed batch is one event, once."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.errors import PySparkException

import heliograph as hg
from tests.e2e.link_support import wait_until
from tests.spark.totals import Colour, Part, Rich, Total

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PERSISTENT = hg.QoS(durability="persistent")


def totals(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.range(first, end).selectExpr("id", "concat('n', id) as note")


def save(frame: DataFrame, folder: Path, **options: Any) -> None:
    """Write a batch."""
    given = {"path": folder / "data", "channel": "totals", **options}
    writer = frame.write.format("heliograph").mode(given.pop("mode", "append"))
    writer.options(**{name: str(value) for name, value in given.items()}).save()


def stream(spark: SparkSession, folder: Path, checkpoint: str, **options: Any) -> None:
    """Stream the files that are in `rows/` into the channel, one per batch, and come to an end."""
    given = {"path": folder / "data", "channel": "totals", "writerId": "totals", **options}
    source = spark.readStream.schema("id long, note string").option("maxFilesPerTrigger", 1)
    query = (
        source.parquet(str(folder / "rows"))
        .writeStream.format("heliograph")
        .options(**{name: str(value) for name, value in given.items()})
        .option("checkpointLocation", str(folder / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert not query.isActive


def kept(folder: Path, channel: str = "totals", cls: type[hg.Event] = Total) -> list[Any]:
    """Every event with its header, by offset. No station may be there."""
    with hg.Station(folder / "data") as station:
        opened = station.channel(channel, cls, mode="open")
        with opened.consumer(start="earliest", until="now") as consumer:
            return [(d.event, d.header) for d in consumer.deliveries()]


def ids(folder: Path) -> list[int]:
    return [event.id for event, _ in kept(folder)]


def leftovers(folder: Path) -> list[str]:
    # Not by `rglob`, which raises when a folder goes while it looks.
    return [f"{where}/{name}" for where, _, names in os.walk(folder / "data" / "inbox") for name in names]


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    """A folder with a channel that has carried one event."""
    with hg.Station(tmp_path / "data") as station:
        station.channel("totals", Total, qos=PERSISTENT).push(Total(-1, "first"))
    return tmp_path


def test_a_batch_write_reaches_live_consumers_and_counts_once_for_its_run(
    spark: SparkSession, channel: Path
) -> None:
    with hg.Station(channel / "data") as station:
        opened = station.channel("totals", Total)
        got: list[int] = []
        opened.subscribe(lambda event: got.append(event.id), start="now")
        save(totals(spark, 0, 500), channel, runId="monday")
        save(totals(spark, 0, 500), channel, runId="monday")
        opened.push(Total(500, "pushed"))
        assert wait_until(lambda: len(got) == 501)
        assert sorted(got[:500]) == list(range(500))
        assert got[500] == 500
    save(totals(spark, 600, 603), channel, runId="tuesday")  # nobody has the folder: it is taken in here
    found = kept(channel)
    assert [event.id for event, _ in found][-3:] == [600, 601, 602]
    assert found[-1][0].note == "n602"
    assert [header.sequence for _, header in found if header.supplier == "run/monday"] == [*range(1, 501)]
    assert leftovers(channel) == []


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ("id", {}, "note"),
        ("id, 'x' as note", {"mode": "overwrite"}, "events are not taken back"),
        (
            "id, 'x' as note",
            {"create": "true", "type": "other"},
            r"carries air\.total, not other",
        ),
        ("id, 'x' as note", {"channel": "total"}, r"did you mean totals\?; to make it, write .option"),
    ],
)
def test_what_cannot_be_written_is_refused_when_it_is_planned(
    spark: SparkSession, channel: Path, columns: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException, match=sentence):
        save(spark.range(3).selectExpr(*columns.split(", ")), channel, **options)
    assert leftovers(channel) == []


def test_a_row_that_does_not_fit_lets_nothing_of_its_batch_through(
    spark: SparkSession, channel: Path
) -> None:
    frame = spark.range(0, 100, numPartitions=2).selectExpr("id", "if(id = 70, null, 'x') as note")
    with pytest.raises(PySparkException, match="1 nulls"):
        save(frame, channel)
    assert ids(channel) == [-1]  # what the other task had staged by then is swept later


def test_every_type_of_field_comes_out_as_it_went_in(spark: SparkSession, tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        station.channel("rich", Rich, qos=PERSISTENT)
    frame = spark.range(1).selectExpr(
        "cast(18446744073709551615 as decimal(20, 0)) as id",
        "cast(-3 as tinyint) as small",
        "cast(0.5 as float) as short",
        "timestamp'2026-11-05 10:00:00.25' as when",
        "'green' as colour",
        "unhex('00ff') as data",
        "named_struct('size', 7L, 'label', 'a') as part",
        "array(named_struct('size', 8L, 'label', 'b')) as parts",
        "named_struct('shape', array(2, 2), 'data', array(1.0D, 2.0D, 3.0D, 4.0D)) as line",
        "'{\"a\": [1, null]}' as anything",
        "cast(null as long) as maybe",
    )
    save(frame, tmp_path, channel="rich", event="tests.spark.totals:Rich", priority=5)
    ((event, header),) = kept(tmp_path, "rich", Rich)
    assert header.priority == 5
    np.testing.assert_array_equal(event.line, [[1.0, 2.0], [3.0, 4.0]])
    event.line = np.zeros(1)
    when = datetime(2026, 11, 5, 10, 0, 0, 250_000, tzinfo=UTC)
    part = Part(7, "a")
    assert event == Rich(
        (1 << 64) - 1, -3, 0.5, when, Colour.GREEN, b"\x00\xff", part, [Part(8, "b")],
        np.zeros(1), {"a": [1, None]}, None,
    )  # fmt: skip


def test_a_channel_is_made_from_columns_only_when_that_is_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="station has kept a history"):
        save(totals(spark, 0, 3), tmp_path, channel="made")
    save(totals(spark, 0, 3), tmp_path, channel="made", create="true", type="made.total", key="id")
    save(totals(spark, 3, 5), tmp_path, channel="made")

    class Made(hg.Event, name="made.total", key="id"):
        id: int
        note: str | None

    assert sorted(event.id for event, _ in kept(tmp_path, "made", Made)) == [0, 1, 2, 3, 4]


def test_a_stream_writes_each_batch_once_however_often_spark_repeats_it(
    spark: SparkSession, channel: Path
) -> None:
    for part in range(3):
        totals(spark, 10 * part, 10 * part + 10).write.mode("append").parquet(str(channel / "rows"))
    stream(spark, channel, "checkpoint")
    everything = sorted(ids(channel))
    assert everything == [-1, *range(30)]
    batches = sorted((channel / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last = batches[-1]
    last.unlink()  # as if the driver had died before Spark wrote down that the batch is committed
    (last.parent / f".{last.name}.crc").unlink()
    stream(spark, channel, "checkpoint")
    assert sorted(ids(channel)) == everything
    sent = [header for _, header in kept(channel) if header.supplier == "totals"]
    assert [(header.epoch, header.sequence) for header in sent] == [(1, n) for n in range(1, 31)]
    assert leftovers(channel) == []


def test_another_checkpoint_under_the_same_writer_is_refused_unless_it_is_accepted(
    spark: SparkSession, channel: Path
) -> None:
    totals(spark, 0, 10).write.parquet(str(channel / "rows"))
    with hg.Station(channel / "data"):
        stream(spark, channel, "checkpoint", adopt="leave")
        assert wait_until(lambda: not leftovers(channel))
        with pytest.raises(PySparkException, match="newCheckpoint=accept"):
            stream(spark, channel, "another")
    assert sorted(ids(channel)) == [-1, *range(10)]
    stream(spark, channel, "third", newCheckpoint="accept")
    assert sorted(ids(channel)) == sorted([-1, *range(10), *range(10)])
    assert {header.epoch for _, header in kept(channel) if header.supplier == "totals"} == {1, 2}
    totals(spark, 10, 11).write.mode("append").parquet(str(channel / "rows"))
    with pytest.raises(PySparkException, match="was replaced by"):
        stream(spark, channel, "checkpoint", newCheckpoint="accept")


def test_columns_say_priority_source_time_headers_and_correlation(spark: SparkSession, channel: Path) -> None:
    rows = spark.range(2).selectExpr(
        "id",
        "concat('n', id) as note",
        "if(id = 0, 5, null) as _priority",
        "timestamp_micros(1000000 * (id + 1)) as _source_ts",
        "if(id = 0, map('trace', 'ab'), null) as _headers",
        "if(id = 0, 'c', null) as _correlation_id",
    )
    save(rows.coalesce(1), channel)
    found = {event.id: header for event, header in kept(channel)}
    header, other = found[0], found[1]
    assert (header.priority, header.source_ts, header.headers, header.correlation_id) == (
        5, 1_000_000_000, {"trace": "ab"}, "c",
    )  # fmt: skip
    assert (other.priority, other.source_ts, other.correlation_id) == (3, 2_000_000_000, None)
    assert not other.headers


def test_one_query_writes_into_several_channels(spark: SparkSession, channel: Path) -> None:
    with hg.Station(channel / "data") as station:
        station.channel("others", Total, qos=PERSISTENT)
    rows = spark.range(10).selectExpr("id", "'x' as note", "if(id % 3 = 0, 'others', 'totals') as _channel")
    given = {"channels": "totals, others", "path": str(channel / "data"), "runId": "r"}
    for _ in range(2):  # the second time nothing is written
        rows.write.format("heliograph").mode("append").options(**given).save()
    assert sorted(event.id for event, _ in kept(channel, "others")) == [0, 3, 6, 9]
    assert sorted(ids(channel)) == [-1, 1, 2, 4, 5, 7, 8]
    with pytest.raises(PySparkException, match="also 'elsewhere'"):
        rows.selectExpr("id", "note", "'elsewhere' as _channel").write.format("heliograph").mode(
            "append"
        ).options(**{**given, "runId": "s"}).save()

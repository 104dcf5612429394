"""Columns that say something about events: what they become, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

import heliograph as hg
from heliograph.codec import encoder
from heliograph.errors import InvalidEvent, InvalidOption
from heliograph.spark.sink.header_columns import Facts, header_runs, insist_on_types
from heliograph.spark.sink.options import SinkOptions
from heliograph.spark.sink.rows import body_maker, sink_target
from heliograph.spark.sink.sink import run_sink

if TYPE_CHECKING:
    from pathlib import Path

MAP = pa.map_(pa.string(), pa.string())
PERSISTENT = hg.QoS(durability="persistent")


class Total(hg.Event, name="air.total"):
    id: int
    mean: float = 0.0


def facts(**columns: pa.Array) -> list[Facts]:
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return list(header_runs("air.total", batch, priority=3, now=99))


def test_rows_without_such_columns_are_one_run() -> None:
    assert facts(id=pa.array([1, 2, 3])) == [Facts(3, 3, 99, None, None)]
    assert facts(id=pa.array([], pa.int64())) == []


def test_rows_with_the_same_header_stay_together_and_nulls_say_nothing() -> None:
    found = facts(
        id=pa.array(range(5)),
        _priority=pa.array([None, 3, 5, 5, 1], pa.int32()),
        _correlation_id=pa.array([None, None, "c", "c", "d"]),
        _headers=pa.array([None, [], [("a", "1")], [("a", "1")], None], MAP),
        _source_ts=pa.array([None, None, 7, 7, 8]),
    )
    assert found == [
        Facts(2, 3, 99, None, None),
        Facts(2, 5, 7, "c", {"a": "1"}),
        Facts(1, 1, 8, "d", None),
    ]


def test_a_time_keeps_its_microseconds() -> None:
    times = pa.array([datetime(1970, 1, 1, 0, 0, 1, 5, UTC), None], pa.timestamp("us", tz="Europe/Paris"))
    assert [one.source_ts for one in facts(_source_ts=times)] == [1_000_005_000, 99]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"_priority": pa.array([6])}, "6 in the column _priority"),
        ({"_headers": pa.array([[("a", None)]], MAP)}, "a null among the values"),
    ],
)
def test_values_that_no_event_can_have_fail_the_batch(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidEvent, match=sentence):
        facts(**columns)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("_priority", pa.string()), ("_source_ts", pa.timestamp("us")), ("_headers", pa.string()),
     ("_correlation_id", pa.int64()), ("_channel", pa.int64())],
)  # fmt: skip
def test_columns_of_another_type_are_refused_before_anything_runs(name: str, kind: pa.DataType) -> None:
    with pytest.raises(InvalidEvent, match=f"{name} has the type"):
        insist_on_types("air.total", pa.schema([(name, kind)]))


def test_they_are_no_fields_of_a_channel_that_is_made(tmp_path: Path) -> None:
    schema = StructType().add("id", LongType()).add("_correlation_id", StringType())
    options = SinkOptions(path=str(tmp_path), channel="new", creates=True, type="air.new")
    assert list(sink_target(options, schema).format.by_name) == ["id"]


def test_whole_numbers_go_into_a_float(tmp_path: Path) -> None:
    schema = StructType().add("id", LongType()).add("mean", LongType())
    with hg.Station(tmp_path) as station:
        station.channel("totals", Total, qos=PERSISTENT)
    make = body_maker(sink_target(SinkOptions(path=str(tmp_path), channel="totals"), schema))
    batch = pa.RecordBatch.from_pydict({"id": [1], "mean": [2]})
    assert make(batch) == [encoder(Total).encode(Total(1, 2.0))]
    with pytest.raises(InvalidEvent, match="mean"):  # it would not come back as it was
        make(pa.RecordBatch.from_pydict({"id": [1], "mean": [2**53 + 1]}))


@pytest.mark.parametrize("given", [{"channels": "a,b"}, {"channel": "a", "column": "_channel"}])
def test_several_channels_need_a_column_and_a_column_needs_their_names(
    tmp_path: Path, given: dict[str, str]
) -> None:
    schema = StructType().add("id", LongType())
    if given.pop("column", None):
        schema = schema.add("_channel", StringType())
    with pytest.raises(InvalidOption, match="_channel"):
        run_sink({"path": str(tmp_path), "create": "true", "type": "t", **given}, schema, overwrite=False)

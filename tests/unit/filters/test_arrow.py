"""Expressions over the shapes that Arrow data comes in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from heliograph.errors import ExpressionError
from heliograph.filters import arrow, python_operations, typed
from heliograph.filters import spark_sql as spark
from heliograph.filters.check import check_projection, check_value
from heliograph.filters.parser import parse, parse_projection
from tests.property.expr_cases import FORMAT, RandomChooser, as_batch, row, same
from tests.unit.filters.examples import TRACK, condition, value


def test_a_mask_is_true_where_the_filter_is_true_and_never_null() -> None:
    batch = pa.record_batch({"alt": pa.array([1.0, None, 500.0])})
    assert arrow.mask(condition("alt > 100"), batch).to_pylist() == [False, False, True]
    assert batch.filter(arrow.mask(condition("alt > 100"), batch)).num_rows == 1


def test_a_table_gives_a_chunked_array() -> None:
    table = pa.concat_tables([pa.table({"id": pa.array([1, 2])}), pa.table({"id": pa.array([3])})])
    assert arrow.mask(condition("id >= 2"), table).to_pylist() == [False, True, True]
    assert arrow.evaluate(value("id + 1"), table).to_pylist() == [2, 3, 4]
    assert arrow.evaluate(value("1.5"), table).to_pylist() == [1.5, 1.5, 1.5]


def test_empty_batches_and_tables_give_empty_results() -> None:
    batch = pa.record_batch({"id": pa.array([], pa.int64()), "samples": pa.array([], pa.list_(pa.float64()))})
    assert arrow.mask(condition("id > 1 AND samples[0] > 1"), batch).to_pylist() == []
    assert arrow.mask(condition("id > 1"), pa.Table.from_batches([], batch.schema)).to_pylist() == []


def test_a_projection_gives_a_batch_or_table_with_its_names() -> None:
    projection = check_projection(parse_projection("id, speed * 2 AS double, TRUE AS yes"), TRACK)
    batch = pa.record_batch({"id": pa.array([1, 2]), "speed": pa.array([1.5, None])})
    rows = [{"id": 1, "double": 3.0, "yes": True}, {"id": 2, "double": None, "yes": True}]
    assert arrow.project(projection, batch).to_pylist() == rows
    table = pa.Table.from_batches([batch])
    assert arrow.project(projection, table).to_pylist() == rows
    assert arrow.project(projection, table.slice(0, 0)).schema.names == ["id", "double", "yes"]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array(["north", "x"]).dictionary_encode(), "region = 'north'"),
        (pa.array(["north", "x"], pa.large_string()), "upper(region) = 'NORTH'"),
        (pa.array(["north", "x"], pa.string_view()), "region LIKE 'n_rth'"),
    ],
)
def test_other_encodings_of_text_are_taken_for_text(column: pa.Array, text: str) -> None:
    assert arrow.mask(condition(text), pa.record_batch({"region": column})).to_pylist() == [True, False]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 2)]
)
def test_elements_are_taken_from_every_kind_of_list_and_from_slices(kind: pa.DataType) -> None:
    column = pa.array([[9.0, 9.0], [1.0, 2.0], None, [3.0, 4.0]], kind)
    batch = pa.record_batch({"samples": column}).slice(1)
    assert arrow.evaluate(value("samples[1]"), batch).to_pylist() == [2.0, None, 4.0]
    assert arrow.evaluate(value("samples[7]"), batch).to_pylist() == [None, None, None]
    assert arrow.evaluate(value("length(samples)"), batch).to_pylist() == [2, None, 2]


def test_a_missing_list_has_no_elements_whatever_lies_below() -> None:
    numbers, missing = pa.array([1.0, 2.0, 3.0, 4.0]), pa.array([False, True])
    for column in (
        pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), numbers, mask=missing),
        pa.FixedSizeListArray.from_arrays(numbers, 2, mask=missing),
    ):
        batch = pa.record_batch({"samples": column})
        assert arrow.evaluate(value("samples[1]"), batch).to_pylist() == [2.0, None]
        assert arrow.evaluate(value("length(samples)"), batch).to_pylist() == [2, None]


def test_a_field_of_a_missing_record_is_null_whatever_lies_below() -> None:
    inner = pa.StructArray.from_arrays(
        [pa.array([1.0, 2.0]), pa.array([3.0, 4.0])], ["lat", "lon"], mask=pa.array([False, True])
    )
    batch = pa.record_batch({"position": inner})
    assert arrow.evaluate(value("position.lat"), batch).to_pylist() == [1.0, None]


def test_nanosecond_times_lose_what_is_below_a_microsecond() -> None:
    times = pa.array([1_999, -1, 0], pa.timestamp("ns", "UTC"))
    batch = pa.record_batch({"seen": times})
    micros = arrow.evaluate(value("seen"), batch).cast(pa.int64()).to_pylist()
    assert micros == [1, -1, 0]


def test_one_overflowing_row_leaves_the_others_alone() -> None:
    batch = pa.record_batch({"id": pa.array([1, (1 << 63) - 1, None, -5])})
    assert arrow.evaluate(value("id + 1"), batch).to_pylist() == [2, None, None, -4]
    assert arrow.evaluate(value("id * 3"), batch).to_pylist() == [3, None, None, -15]
    assert arrow.evaluate(value("id - (0 - 5)"), batch).to_pylist() == [6, None, None, 0]


def test_a_batch_without_the_column_is_refused_by_name() -> None:
    with pytest.raises(ExpressionError, match="no column 'speed'; speed needs it"):
        arrow.mask(condition("speed > 1"), pa.record_batch({"id": pa.array([1])}))
    nested = pa.record_batch({"position": pa.array([{"lat": 1.0}])})
    with pytest.raises(ExpressionError, match=r"no column 'lon'; position\.lon needs it"):
        arrow.mask(condition("position.lon > 1"), nested)


def test_rounding_agrees_with_the_exact_one_near_ties() -> None:
    """The fast way decides most numbers; the rest must not be decided wrongly."""
    choose = RandomChooser(3)
    numbers = [
        float(f"{choose.number(0, 10 ** choose.number(1, 12))}.{choose.number(0, 10**5)}5")
        for _ in range(4_000)
    ]
    numbers += [number + 2.0**-30 for number in numbers[:500]] + [-number for number in numbers[:500]]
    batch = pa.record_batch({"speed": pa.array(numbers)})
    for digits in (0, 1, 2, 5, 6, 15):
        expected = [python_operations.rounded(number, digits) for number in numbers]
        assert arrow.evaluate(value(f"round(speed, {digits})"), batch).to_pylist() == expected


def test_both_layouts_of_columns_give_the_same() -> None:
    choose = RandomChooser(4)
    rows = [row(choose) for _ in range(50)]
    for text in ("u", "u > 9223372036854775807", "u_n + 1", "rgb[0]", "tiny", "free[0]", "length(grid)"):
        checked = check_value(parse(text), FORMAT)
        one, other = (
            arrow.evaluate(checked, as_batch(rows, spark_safe=safe)).to_pylist() for safe in (True, False)
        )
        assert all(map(same, one, other)), text


@pytest.mark.parametrize(
    ("text", "column", "found", "needed"),
    [
        ("region = '1'", pa.array([1]), "int64", "string"),
        ("id = 1", pa.array([1.5]), "double", "int64"),
        ("id = 1", pa.array(["1"]), "string", "int64"),
        ("id = 1", pa.array([True]), "bool", "int64"),
        ("id = 1", pa.array([1 << 63], pa.uint64()), "uint64", "int64"),
        ("serial = 1", pa.array([1.0]), "double", "decimal128"),
        ("speed = 1", pa.array(["x"]), "string", "double"),
        ("speed = 1", pa.array([1]), "int64", "double"),
        ("active", pa.array([1]), "int64", "bool"),
        ("raw = X'00'", pa.array(["x"]), "string", "binary"),
        ("seen > :t", pa.array([7]), "int64", "timestamp"),
        ("seen > :t", pa.array([7], pa.timestamp("us")), r"timestamp\[us\]", r"timestamp\[us, tz=UTC\]"),
        ("position.lat > 0", pa.array([1.0]), "double", "a struct with a field 'lat'"),
        ("samples[0] > 0", pa.array([1.0]), "double", "a list"),
        ("length(samples) > 0", pa.array([1.0]), "double", "a list"),
        ("length(grid) > 0", pa.array([[1.0]]), "list<item: double>", "a struct with a field 'shape'"),
        ("grid[0, 0] > 0", pa.array([[1.0]]), "list<item: double>", "a struct with a field 'shape'"),
        ("region = 'x'", pa.array([1]).dictionary_encode(), "dictionary<values=int64", "string"),
    ],
)
def test_a_column_of_another_type_is_refused_with_both_types(
    text: str, column: pa.Array, found: str, needed: str
) -> None:
    params: dict[str, Any] = {"t": datetime(2026, 1, 1, tzinfo=UTC)} if ":t" in text else {}
    checked = condition(text, **params)
    (read,) = typed.columns(checked.node)
    batch = pa.record_batch({str(read.steps[0].key): column})
    with pytest.raises(ExpressionError, match=f"has {found}.* where {needed}") as caught:
        arrow.mask(checked, batch)
    assert f"{read.path} needs it" in caught.value.reason


@pytest.mark.parametrize(
    "text", ["id = 1", "region = 'x'", "position.lat > 1", "samples[0] > 1", "length(grid) > 1"]
)
def test_a_column_of_nothing_but_null_fits_every_type(text: str) -> None:
    checked = condition(text)
    (read,) = typed.columns(checked.node)
    batch = pa.record_batch({str(read.steps[0].key): pa.nulls(2)})
    assert arrow.evaluate(checked, batch).to_pylist() == [None, None]


def test_a_field_named_header_is_a_column_of_its_own_unless_the_header_is_there() -> None:
    alone = condition("`header` = 'x'")
    assert arrow.mask(alone, pa.record_batch({"header": pa.array(["x", "y"])})).to_pylist() == [True, False]
    header = pa.array([{"type": "air.track"}])
    with pytest.raises(ExpressionError, match="has struct<type: string> where string is needed"):
        arrow.mask(alone, pa.record_batch({"header": header}))
    with pytest.raises(ExpressionError, match="the batch has 2 columns 'header'"):
        arrow.mask(alone, pa.RecordBatch.from_arrays([header, pa.array(["x"])], ["header", "header"]))
    with pytest.raises(ExpressionError, match="has string where a struct with a field 'type'"):
        arrow.mask(condition("header.type = 'x'"), pa.record_batch({"header": pa.array(["x"])}))


def test_a_filter_on_the_header_and_on_a_field_of_that_name_is_refused_over_columns() -> None:
    both = condition("header.type = 'x' AND `header` = 'y'")
    with pytest.raises(ExpressionError, match="are both called `header`"):
        arrow.mask(both, pa.record_batch({"header": pa.array([{"type": "x"}])}))
    with pytest.raises(ExpressionError, match="are both called `header`"):
        spark.to_sql(both)

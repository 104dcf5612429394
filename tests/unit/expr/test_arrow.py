"""Expressions over the shapes that Arrow data comes in."""

from __future__ import annotations

import pyarrow as pa
import pytest

from heliograph.errors import ExpressionError
from heliograph.expr import arrow, runtime
from heliograph.expr.check import check_projection, check_value
from heliograph.expr.parser import parse, parse_projection
from tests.property.expr_cases import FORMAT, RandomChooser, as_batch, row, same
from tests.unit.expr.examples import TRACK, condition, value


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
    with pytest.raises(ExpressionError, match="no column 'speed', which speed needs"):
        arrow.mask(condition("speed > 1"), pa.record_batch({"id": pa.array([1])}))
    nested = pa.record_batch({"position": pa.array([{"lat": 1.0}])})
    with pytest.raises(ExpressionError, match=r"no column 'lon', which position\.lon needs"):
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
        expected = [runtime.rounded(number, digits) for number in numbers]
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

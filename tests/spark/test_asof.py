"""`as_of`: what pandas' merge_asof finds, and what a loop in Python interpolates, of any series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliograph.spark.jobs.asof import Instants, Series, Stretches, as_of
from tests.support import examples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        ("robot", pa.string()),
        ("_t", pa.int64()),
        ("_p", pa.string()),
        ("_o", pa.int64()),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("word", pa.string()),
    ]
)
ROBOTS = ("a", "b", "c", "d", None)
ROW = tuple[str | None, int, str, int, float | None, int | None, str | None]

rows = st.lists(
    st.tuples(
        st.sampled_from(ROBOTS),
        st.integers(0, 400),
        st.sampled_from(["p1", "p2"]),
        st.integers(0, 1_000),
        st.one_of(st.none(), st.floats(-100, 100, width=16)),
        st.one_of(st.none(), st.integers(-50, 50)),
        st.one_of(st.none(), st.sampled_from(["x", ""])),
    ),
    max_size=150,
    unique_by=lambda row: (row[2], row[3]),
)


def frame(spark: SparkSession, found: list[ROW]) -> DataFrame:
    columns = zip(*found, strict=True) if found else [[] for _ in SCHEMA]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=SCHEMA))


def before(found: list[ROW], key: str | None, t: int) -> ROW | None:
    there = [row for row in found if row[0] == key and row[1] <= t]
    return max(there, key=lambda row: row[1:4], default=None)


def behind(found: list[ROW], key: str | None, t: int) -> ROW | None:
    there = [row for row in found if row[0] == key and row[1] > t]
    nearest = min((row[1] for row in there), default=None)
    return max((row for row in there if row[1] == nearest), key=lambda row: row[1:4], default=None)


def last_value(found: list[ROW], key: str | None, t: int, tolerance: int | None) -> tuple[Any, ...]:
    row = before(found, key, t)
    if row is None or (tolerance is not None and t - row[1] > tolerance):
        return (None, None, None, True, None)
    return (*row[4:], False, (t - row[1]) / 1e9)


def linear_value(found: list[ROW], key: str | None, t: int, tolerance: int | None) -> tuple[Any, ...]:
    first, second = before(found, key, t), behind(found, key, t)
    near = 1 << 60 if tolerance is None else tolerance
    if first is None or t - first[1] > near:
        return (None, None, None, True, None)
    if first[1] == t:
        return (first[4], first[5], first[6], False, 0.0)
    if second is None or second[1] - t > near:
        return (None, None, None, True, None)
    share = (t - first[1]) / (second[1] - first[1])
    numbers = [
        None if a is None or b is None else pytest.approx(float(a) + (float(b) - float(a)) * share, abs=1e-6)
        for a, b in ((first[4], second[4]), (first[5], second[5]))
    ]
    return (*numbers, first[6], False, (t - first[1]) / 1e9)


@given(
    slow=rows,
    fast=rows,
    lead=rows,
    tolerance=st.sampled_from([None, 0, 7, 60]),
    after=st.sampled_from([-1, 100]),
    stretches=st.sampled_from([1, 3, 50]),
    method=st.sampled_from(["last", "linear"]),
)
@settings(max_examples=examples(3), deadline=None, suppress_health_check=list(HealthCheck))
def test_each_row_of_a_leading_series_has_what_came_last_before_it(
    spark: SparkSession,
    *,
    slow: list[ROW],
    fast: list[ROW],
    lead: list[ROW],
    tolerance: int | None,
    after: int,
    stretches: int,
    method: str,
) -> None:
    fields = ["x", "n", "word"]
    leading = Series("lead", frame(spark, lead), ["_o"])
    found = as_of(
        [Series("slow", frame(spark, slow), fields), Series("fast", frame(spark, fast), fields, method)],
        Instants(after, 380, lead=leading),
        keys=["robot"],
        tolerance=tolerance,
        stretches=Stretches.over(0, 400, stretches),
    ).collect()
    wanted = [row for row in lead if after < row[1] <= 380]
    assert sorted(row["lead__o"] for row in found) == sorted(row[3] for row in wanted)
    value = last_value if method == "last" else linear_value
    expected = {
        row[3]: (last_value(slow, row[0], row[1], tolerance), value(fast, row[0], row[1], tolerance))
        for row in wanted
    }
    names = (*fields, "gap", "age")
    for row in found:
        sides = tuple(tuple(row[f"{side}_{name}"] for name in names) for side in ("slow", "fast"))
        assert sides == expected[row["lead__o"]]
    assert [row["slow_n"] for row in sorted(found, key=lambda row: row["lead__o"])] == by_pandas(
        slow, wanted, tolerance
    )


def by_pandas(side: list[ROW], lead: list[ROW], tolerance: int | None) -> list[int | None]:
    """The column n by `pandas.merge_asof`, in the order of the leading rows' places."""
    names = ["robot", "t", "p", "o", "x", "n", "word"]
    left = pd.DataFrame(lead, columns=names).astype({"t": "int64"})
    right = pd.DataFrame(side, columns=names).astype({"t": "int64"})
    for one in (left, right):
        one["robot"] = one["robot"].fillna("nobody").astype(str)
    found = pd.merge_asof(
        left.sort_values(["t", "p", "o"])[["robot", "t", "o"]],
        right.sort_values(["t", "p", "o"])[["robot", "t", "n"]],
        on="t",
        by="robot",
        tolerance=tolerance,
    )
    found = found.sort_values("o")
    return [None if pd.isna(value) else int(value) for value in found["n"]]


@given(
    slow=rows,
    fast=rows,
    tolerance=st.sampled_from([None, 0, 7, 60]),
    step=st.sampled_from([1, 10, 37]),
    after=st.sampled_from([-1, 100]),
    stretches=st.sampled_from([1, 3, 50]),
    method=st.sampled_from(["last", "linear"]),
)
@settings(max_examples=examples(3), deadline=None, suppress_health_check=list(HealthCheck))
def test_each_point_of_a_grid_has_what_came_last_before_it(
    spark: SparkSession,
    *,
    slow: list[ROW],
    fast: list[ROW],
    tolerance: int | None,
    step: int,
    after: int,
    stretches: int,
    method: str,
) -> None:
    fields = ["x", "n", "word"]
    found = as_of(
        [Series("slow", frame(spark, slow), fields), Series("fast", frame(spark, fast), fields, method)],
        Instants(after, 390, step=step),
        keys=["robot"],
        tolerance=tolerance,
        stretches=Stretches.over(0, 400, stretches, step),
    ).collect()
    value = last_value if method == "last" else linear_value
    expected = {}
    for key in ROBOTS:
        for t in range(0, 391, step):
            sides = (last_value(slow, key, t, tolerance), value(fast, key, t, tolerance))
            if t > after and not all(side[3] for side in sides):
                expected[key, t] = sides
    names = (*fields, "gap", "age")
    got = {
        (row["robot"], row["_t"]): tuple(
            tuple(row[f"{side}_{name}"] for name in names) for side in ("slow", "fast")
        )
        for row in found
    }
    assert len(got) == len(found)
    assert got == expected

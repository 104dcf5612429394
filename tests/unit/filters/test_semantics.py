"""Each rule of docs/reference/filters.md, one case at a time, in every engine that runs without a JVM.

`tests/spark/test_filters_in_spark.py` holds Spark to the same table.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from heliograph.filters import arrow
from heliograph.filters.python import compile_one
from heliograph.filters.reference import evaluate
from tests.property.expr_cases import as_batch, as_event, same
from tests.unit.filters.rules import ROW, RULES, rule_value


@pytest.mark.parametrize(("text", "expected"), RULES)
def test_the_reference_keeps_the_rule(text: str, expected: Any) -> None:
    checked = rule_value(text)
    assert same(evaluate(checked.node, ROW.event, ROW.header), expected)


@pytest.mark.parametrize(("text", "expected"), RULES)
def test_generated_python_keeps_the_rule(text: str, expected: Any) -> None:
    checked = rule_value(text)
    assert same(compile_one(checked)(ROW.event, ROW.header), expected)
    assert same(compile_one(checked, access="item")(ROW.mapping, ROW.header), expected)


@pytest.mark.parametrize("spark_safe", [False, True])
@pytest.mark.parametrize(("text", "expected"), RULES)
def test_arrow_keeps_the_rule(text: str, expected: Any, *, spark_safe: bool) -> None:
    result = arrow.evaluate(rule_value(text), ROW.batch(spark_safe=spark_safe))
    assert isinstance(result, pa.Array)
    assert same(result.to_pylist()[0], expected)


def test_the_table_of_rules_tells_zero_from_one_and_true() -> None:
    assert not same(1, True)
    assert not same(0, None)
    assert not same(1.0, 2.0)
    assert same(math.nan, math.nan)
    assert same(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "expected"), [("length(free)", None), ("free[0]", None), ("length(free) > 0", None)]
)
def test_an_array_without_dimensions_has_no_length_and_no_items(text: str, expected: Any) -> None:
    values = {**ROW.mapping, "free": np.array(7, np.int32), "header": ROW.header}
    _all_give(text, values, expected)


@pytest.mark.parametrize("source_ts", [1 << 63, -(1 << 63) - 1, 1 << 90, -(1 << 90)])
def test_a_source_time_beyond_64_bits_is_null(source_ts: int) -> None:
    values = {**ROW.mapping, "header": msgspec.structs.replace(ROW.header, source_ts=source_ts)}
    _all_give("header.source_ts > TIMESTAMP '2000-01-01T00:00:00Z'", values, None)
    _all_give("header.source_ts IS NULL", values, expected=True)


def _all_give(text: str, values: dict[str, Any], expected: Any) -> None:
    checked = rule_value(text)
    header, event = values["header"], as_event(values)
    assert evaluate(checked.node, event, header) is expected
    assert compile_one(checked)(event, header) is expected
    assert compile_one(checked, access="item")(values, header) is expected
    assert arrow.evaluate(checked, as_batch([values])).to_pylist() == [expected]

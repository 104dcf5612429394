"""Each rule of docs/filters.md, one case at a time, in every engine that runs without a JVM.

`tests/spark/test_filters_in_spark.py` holds Spark to the same table.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from heliograph.expr import arrow
from heliograph.expr.python import compile_one
from heliograph.expr.reference import evaluate
from tests.property.expr_cases import same
from tests.unit.expr.rules import ROW, RULES, rule_value


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

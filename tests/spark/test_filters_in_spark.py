"""Spark evaluates the same expressions over the same rows, and says the same as Python and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from heliograph.errors import ExpressionError
from heliograph.filters import arrow
from heliograph.filters.check import check, check_projection, check_value
from heliograph.filters.parser import parse, parse_projection
from heliograph.filters.python import compile_one
from heliograph.filters.spark_sql import to_select, to_sql
from tests.property.expr_cases import FORMAT, RandomChooser, Writer, as_batch, as_event, needed, row, same
from tests.unit.filters.rules import ROW, RULES, rule_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from heliograph.filters import typed

EXPRESSIONS = 512
ROWS = 1_024
PER_JOB = 64
"""Expressions evaluated as columns of one job: enough to need few jobs, few enough to compile quickly."""


class Data(NamedTuple):
    rows: list[dict[str, Any]]
    batch: pa.RecordBatch
    frame: DataFrame


@pytest.fixture(scope="module")
def data(spark: SparkSession) -> Data:
    choose = RandomChooser(1717)
    rows = [row(choose) for _ in range(ROWS)]
    batch = as_batch(rows)
    numbered = pa.Table.from_batches([batch]).append_column("row_number", pa.array(range(ROWS)))
    return Data(rows, batch, spark.createDataFrame(numbered).cache())


def random_expressions(count: int) -> list[typed.Checked]:
    choose = RandomChooser(4242)
    found: dict[str, typed.Checked] = {}
    while len(found) < count:
        writer = Writer(choose)
        text = writer.any_value(choose.number(1, 3))
        try:
            found[text] = check_value(parse(text, needed(text, writer.params)), FORMAT)
        except ExpressionError as error:
            # The writer does not know that a constant above 2**63-1 cannot be calculated with.
            if "in arithmetic" not in error.reason:
                raise
    return list(found.values())


def in_spark(frame: DataFrame, expressions: Sequence[typed.Checked]) -> list[list[Any]]:
    """The values of each expression, in the order of the rows."""
    columns = [f"{to_sql(checked)} AS c{number}" for number, checked in enumerate(expressions)]
    table = frame.selectExpr("row_number", *columns).toArrow().sort_by("row_number")
    return [table.column(f"c{number}").to_pylist() for number in range(len(expressions))]


def test_random_expressions_have_one_answer_in_spark_arrow_and_python(
    data: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [as_event(values) for values in data.rows]
    expressions = random_expressions(EXPRESSIONS)
    compared = nulls = jobs = 0
    for start in range(0, EXPRESSIONS, PER_JOB):
        group = expressions[start : start + PER_JOB]
        jobs += 1
        for checked, column in zip(group, in_spark(data.frame, group), strict=True):
            by_python = compile_one(checked)
            by_arrow = arrow.evaluate(checked, data.batch).to_pylist()
            assert len(column) == ROWS
            for event, values, one, other in zip(events, data.rows, column, by_arrow, strict=True):
                expected = by_python(event, values["header"])
                assert same(one, expected), (checked.text, one, expected, values)
                assert same(other, expected), (checked.text, other, expected, values)
                compared += 1
                nulls += expected is None
    with capsys.disabled():
        print(
            f"\nfilters in Spark: {len(expressions)} expressions x {ROWS} rows = {compared} values compared "
            f"in {jobs} jobs, {nulls} of them NULL"
        )
    assert compared == EXPRESSIONS * ROWS
    assert len({checked.text for checked in expressions}) == EXPRESSIONS
    assert compared * 0.02 < nulls < compared * 0.7


def test_spark_keeps_every_rule_of_the_table(spark: SparkSession) -> None:
    batch = ROW.batch(spark_safe=True)
    numbered = pa.Table.from_batches([batch]).append_column("row_number", pa.array([0]))
    frame = spark.createDataFrame(numbered).cache()
    for start in range(0, len(RULES), PER_JOB):
        group = RULES[start : start + PER_JOB]
        results = in_spark(frame, [rule_value(text) for text, _ in group])
        wrong = [
            (text, got, want)
            for (text, want), (got,) in zip(group, results, strict=True)
            if not same(got, want)
        ]
        assert wrong == []


def test_a_filter_selects_the_rows_that_python_selects(data: Data) -> None:
    checked = check(
        parse("(f > 1 OR i_n IS NULL) AND s LIKE :p AND u > 5 AND NOT header.redelivered", {"p": "%a%"}),
        FORMAT,
    )
    kept = [r["row_number"] for r in data.frame.filter(to_sql(checked)).select("row_number").collect()]
    matches = compile_one(checked)
    events = enumerate(data.rows)
    assert sorted(kept) == [n for n, values in events if matches(as_event(values), values["header"])]
    assert kept


def test_a_projection_gives_columns_of_its_names(data: Data) -> None:
    projection = check_projection(parse_projection("i, f * 1.852 AS `km h`, upper(s) AS name"), FORMAT)
    frame = data.frame.selectExpr(*to_select(projection))
    assert dict(frame.dtypes) == {"i": "bigint", "km h": "double", "name": "string"}
    ours = arrow.project(projection, data.batch)
    table = data.frame.selectExpr("row_number", *to_select(projection)).toArrow().sort_by("row_number")
    for name in projection.names:
        assert all(map(same, table.column(name).to_pylist(), ours.column(name).to_pylist()))


def test_nothing_in_a_constant_is_replaced_or_read_by_spark(spark: SparkSession) -> None:
    frame = spark.range(1)
    for text in (
        "${env:HOME}",
        "${spark.app.name}",
        "\\u0041",
        "'; DROP TABLE x; --",
        "a\\'b",
        ":p",
        "?",
        "`x`",
    ):
        fmt_value = check_value(parse(":p", {"p": text}), FORMAT)
        assert frame.selectExpr(f"{to_sql(fmt_value)} AS c").collect()[0]["c"] == text


def test_deep_and_wide_expressions_run_in_spark(data: Data) -> None:
    nested = "f"
    for _ in range(12):
        nested = f"sqrt(abs({nested}) + 1)"
    cases = "i"
    for number in range(6):
        cases = f"CASE ({cases}) + 1 WHEN {number} THEN 1 WHEN {number + 1} THEN 2 ELSE i END"
    wide = " OR ".join(f"(i = {n} AND f > {n})" for n in range(300))
    checks = [check_value(parse(text), FORMAT) for text in (nested, cases, wide)]
    events = [as_event(values) for values in data.rows]
    for checked, column in zip(checks, in_spark(data.frame, checks), strict=True):
        by_python = compile_one(checked)
        assert all(same(one, by_python(event)) for one, event in zip(column, events, strict=True))

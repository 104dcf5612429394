"""The SQL text itself; tests/spark evaluates it."""

from __future__ import annotations

import math
import re

import pytest

from heliograph.errors import ExpressionError
from heliograph.filters.check import check, check_projection
from heliograph.filters.parser import parse, parse_projection
from heliograph.filters.spark_sql import to_select, to_sql
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format
from tests.unit.filters.examples import TRACK, condition, value


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("speed > 300", "(CAST(`speed` AS DOUBLE) > 300.0D)"),
        ("id = -1", "(CAST(`id` AS BIGINT) = (-1L))"),
        ("region = 'north'", "(`region` = 'north')"),
        ("gain < 1.5", "(CAST(CAST(`gain` AS FLOAT) AS DOUBLE) < 1.5D)"),
        ("NOT active", "(NOT `active`)"),
        ("id + 1 > 2", "(try_add(CAST(`id` AS BIGINT), 1L) > 2L)"),
        ("position.lat IS NULL", "(CAST(`position`.`lat` AS DOUBLE) IS NULL)"),
        ("samples[0] > 1", "(CAST(get(`samples`, 0) AS DOUBLE) > 1.0D)"),
        ("header.hops < 2", "(CAST(`header`.`hops` AS BIGINT) < 2L)"),
        ("header.user['a'] = 'b'", "(try_element_at(`header`.`user`, 'a') = 'b')"),
        ("region LIKE 'no%'", "(startswith(`region`, 'no'))"),
        ("region IN ('a', NULL)", "(`region` IN ('a', CAST(NULL AS STRING)))"),
        ("serial = 18446744073709551615",
         "(CAST(`serial` AS DECIMAL(20,0)) = CAST(18446744073709551615BD AS DECIMAL(20,0)))"),
        ("seen > TIMESTAMP '1970-01-01T00:00:01Z'", "(`seen` > timestamp_micros(1000000L))"),
        ("raw = X'00ff'", "(`raw` = X'00ff')"),
    ],
)  # fmt: skip
def test_a_filter_as_sql(text: str, sql: str) -> None:
    assert to_sql(condition(text)) == sql


def test_constants_are_escaped_down_to_letters_digits_and_spaces() -> None:
    everything = "".join(map(chr, range(1, 0x180))) + "${env:HOME}'; DROP TABLE x --\U0001f600"
    literal = re.fullmatch(r"\(`region` = '(.*)'\)", to_sql(condition("region = :p", p=everything)))
    assert literal
    assert re.fullmatch(r"(?:[A-Za-z0-9 ]|\\u[0-9a-f]{4}|\\U[0-9a-f]{8})*", literal[1])


def test_numbers_that_no_literal_can_show_are_cast_from_words() -> None:
    assert "CAST('NaN' AS DOUBLE)" in to_sql(condition("speed = :p", p=math.nan))
    assert "CAST('-Infinity' AS DOUBLE)" in to_sql(condition("speed = :p", p=-math.inf))


def test_names_are_quoted_and_a_name_that_spark_would_substitute_is_refused() -> None:
    def sql(name: str) -> str:
        fmt = Format("odd", (Field(name, ft.Scalar("str")),))
        return to_sql(check(parse(f"`{name.replace('`', '``')}` = 'x'"), fmt))

    assert sql("a.b` OR 1=1") == "(`a.b`` OR 1=1` = 'x')"
    with pytest.raises(ExpressionError, match="which Spark would replace"):
        sql("${env:HOME}")
    projection = check_projection(parse_projection("id AS `${x}`"), TRACK)
    with pytest.raises(ExpressionError, match="which Spark would replace"):
        to_select(projection)


def test_a_projection_names_its_columns() -> None:
    projection = check_projection(parse_projection("id, speed * 2 AS `a b`"), TRACK)
    assert to_select(projection) == [
        "CAST(`id` AS BIGINT) AS `id`",
        "try_multiply(CAST(`speed` AS DOUBLE), 2.0D) AS `a b`",
    ]


def test_an_operand_that_is_needed_twice_is_written_once() -> None:
    nested = "speed"
    for _ in range(20):
        nested = f"sqrt({nested} + 1)"
    sql = to_sql(value(nested))
    assert sql.count("`speed`") == 1
    assert len(sql) < 4_000
    assert to_sql(value("floor(speed)")).count("transform") == 0


def test_a_lambda_variable_never_hides_a_field() -> None:
    fmt = Format("odd", (Field("hg_let0", ft.Scalar("f64")), Field("HG_LET1", ft.Scalar("f64"))))
    checked = check(parse("CASE hg_let0 + 1 WHEN HG_LET1 THEN TRUE ELSE hg_let0 > 1 END"), fmt)
    (variable,) = re.findall(r"(\w+) ->", to_sql(checked))
    assert variable.casefold() not in ("hg_let0", "hg_let1")

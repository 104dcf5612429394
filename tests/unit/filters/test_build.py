"""The builder makes the trees that the parser makes."""

from __future__ import annotations

import copy
import enum
import functools
import math
from datetime import UTC, datetime

import numpy as np
import pytest

from heliograph.errors import ExpressionError
from heliograph.filters.build import (
    Built,
    call,
    case,
    coalesce,
    col,
    length,
    lower,
    param,
    sqrt,
    tree_of,
    upper,
    value,
)
from heliograph.filters.parser import parse


class Mode(enum.Enum):
    AUTO = 7


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (col("speed") > 300, "speed > 300"),
        (300 < col("speed"), "speed > 300"),  # noqa: SIM300 - the reflected operator is the point
        (col("speed") >= 1.5, "speed >= 1.5"),
        (col("speed") < 1, "speed < 1"),
        (col("speed") <= 1, "speed <= 1"),
        (col("region") == "north", "region = 'north'"),
        (col("region") != "north", "region <> 'north'"),
        ((col("a") > 1) & (col("b") > 2) & (col("c") > 3), "a > 1 AND b > 2 AND c > 3"),
        ((col("a") > 1) | (col("b") > 2) & col("c"), "a > 1 OR b > 2 AND c"),
        (~(col("a") > 1), "NOT a > 1"),
        (True & col("a"), "TRUE AND a"),
        (False | col("a"), "FALSE OR a"),
        (col("a").between(1, col("b")), "a BETWEEN 1 AND b"),
        (col("a").in_([1, 2, param("x")]), "a IN (1, 2, :x)"),
        (~col("a").in_("xy"), "a NOT IN ('x', 'y')"),
        (col("a").like("x!%%", "!"), "a LIKE 'x!%%' ESCAPE '!'"),
        (col("a").is_null(), "a IS NULL"),
        (col("a").is_not_null(), "a IS NOT NULL"),
        (col("a") == None, "a = NULL"),  # noqa: E711 - == builds an expression
        (1 + col("a") - 2 * col("b") / 3, "1 + a - 2 * b / 3"),
        (7 % col("a") == col("b") % 2, "7 % a = b % 2"),
        (5 - col("a") == 1 / col("b"), "5 - a = 1 / b"),
        (-col("a") < -value(5), "-a < -5"),
        (col("position").lat > 1, "position.lat > 1"),
        (col("position")["lat"] > 1, "position.lat > 1"),
        (col("position.lat") > 1, "position.lat > 1"),
        (col("a")["like"] > 1, "a.`like` > 1"),
        (col("samples")[0] > 1, "samples[0] > 1"),
        (col("grid")[1, 2] > 1, "grid[1, 2] > 1"),
        (col("samples")[param("i")] > 1, "samples[:i] > 1"),
        (col("header.supplier") == "x", "header.supplier = 'x'"),
        (col("header.user")["trace"] == "x", "header.user['trace'] = 'x'"),
        (col("`odd name`") == 1, "`odd name` = 1"),
        (col("speed") > param("limit"), "speed > :limit"),
        (col("speed") > param(0), "speed > %0"),
        (abs(col("a")) > round(col("b"), 2), "abs(a) > round(b, 2)"),
        (round(col("a")) == math.floor(col("b")), "round(a) = floor(b)"),
        (math.ceil(col("a")) == 1, "ceil(a) = 1"),
        (lower(col("a")) == upper(col("b")), "lower(a) = upper(b)"),
        (length(col("a")) > 0, "length(a) > 0"),
        (coalesce(col("a"), col("b"), 0) > sqrt(col("c")), "coalesce(a, b, 0) > sqrt(c)"),
        (case((col("a"), 1), (col("b"), 2), otherwise=3), "CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END"),
        (case((1, "x"), of=col("a")) == "x", "CASE a WHEN 1 THEN 'x' END = 'x'"),
        (col("a") == b"\x00", "a = X'00'"),
        (col("a") == NOON, "a = TIMESTAMP '2026-01-31T12:00:00Z'"),
        (col("a") == Mode.AUTO, "a = 7"),
        (col("a") == np.int64(7), "a = 7"),
        (col("a") == np.float64(7), "a = 7.0"),
    ],
)  # fmt: skip
def test_the_builder_and_the_text_give_equal_trees(built: Built, text: str) -> None:
    assert tree_of(built) == parse(text)


def test_and_or_not_of_python_are_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"combine conditions with & \| ~"):
        bool(col("a") > 1)
    with pytest.raises(TypeError, match="combine conditions"):
        _ = 1 < col("a") < 3
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(col("a"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(col("a"))


def test_python_can_copy_an_expression_without_finding_fields_in_it() -> None:
    built = col("a") > 1
    assert tree_of(copy.copy(built)) == tree_of(built)
    with pytest.raises(AttributeError):
        _ = built.__nothing__


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: col("a + 1"), "after the expression has ended"),
        (lambda: col(""), "a field's name should"),
        (lambda: (col("a") + 1).lat, "only a field has parts"),
        (lambda: (col("a") + 1)[0], "only a field has parts"),
        (lambda: col("a").in_([]), "in_ takes 1 to 4096 values"),
        (lambda: col("a").in_([col("b")]), "values and parameters only"),
        (lambda: col("a").like(col("b")), "text and parameters only"),
        (lambda: col("a") > object(), "a object is no value"),
        (lambda: col("a") > [1], "a list is no value"),
        (lambda: call("eval", col("a")), "there is no function 'eval'; there are abs"),
        (lambda: call("abs"), "abs takes 1 to 1"),
        (case, "at least one"),
    ],
)
def test_what_cannot_be_built_is_refused_where_it_is_written(make: object, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason):
        make()  # type: ignore[operator]


def test_depth_and_size_are_bounded_while_building() -> None:
    with pytest.raises(ExpressionError, match="nested deeper"):
        functools.reduce(lambda built, _: built + 1, range(100), col("a"))
    with pytest.raises(ExpressionError, match="larger than"):
        functools.reduce(lambda built, _: built & built, range(40), col("a") > 0)


def test_a_chain_stays_flat_while_building() -> None:
    chain = functools.reduce(lambda built, _: built & (col("a") > 0), range(200), col("a") > 0)
    assert tree_of(chain) == parse(" AND ".join(["a > 0"] * 201))

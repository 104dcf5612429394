"""Text to tree: what is accepted, what it means, and where the finger points when it is not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import sqlglot

from heliograph.errors import ExpressionError
from heliograph.filters import tree as t
from heliograph.filters.params import bind
from heliograph.filters.parser import parse, parse_path, parse_projection
from tests.property.expr_cases import RandomChooser, Writer


def column_of(text: str) -> int:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    return caught.value.column


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("a OR b AND c", "a OR (b AND c)"),
        ("NOT a AND b", "(NOT a) AND b"),
        ("NOT a = b", "NOT (a = b)"),
        ("a + b * c", "a + (b * c)"),
        ("a - b - c", "(a - b) - c"),
        ("a / b * c", "(a / b) * c"),
        ("-a * b", "(-a) * b"),
        ("a + 1 > b - 1", "(a + 1) > (b - 1)"),
        ("a BETWEEN 1 AND 2 AND b", "(a BETWEEN 1 AND 2) AND b"),
        ("a AND (b AND c)", "a AND b AND c"),
        ("(a OR b) OR c", "a OR b OR c"),
        ("a not in (1) and b not like 'x'", "NOT (a IN (1)) AND NOT (b LIKE 'x')"),
        ("a IS NOT NULL", "NOT a IS NULL"),
        ("a != 1", "a <> 1"),
        ("grid[1, 2] > 0", "grid[1][2] > 0"),
        ("Round(a,2) = 1 aNd TRUE", "round( a , 2 )\n=\t1 AND true"),
        ("`a` = 1", "a = 1"),
        ("a = - 5", "a = -5"),
        ("a = .5", "a = 0.5"),
        ("a = 1e3", "a = 1000.0"),
        ("a %3 = %0", "(a % 3) = %0"),
    ],
)
def test_two_ways_to_write_one_tree(text: str, same_as: str) -> None:
    assert parse(text) == parse(same_as)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("a = 1", "a = 1.0"),
        ("a = 1", "a = TRUE"),
        ("a = '1'", "a = 1"),
        ("a = X'61'", "a = 'a'"),
        ("a = :b", "a = b"),
        ("a = :b", "a = %0"),
        ("header.type = 'x'", "`header`.type = 'x'"),
        ("a = 'A'", "a = 'a'"),
    ],
)
def test_different_meanings_are_different_trees(text: str, other: str) -> None:
    assert parse(text) != parse(other)


def test_nodes_know_their_columns_and_equality_does_not() -> None:
    spaced, tight = parse("  a  >  :limit").tree, parse("a>:limit").tree
    assert spaced == tight
    assert hash(spaced) == hash(tight)
    assert isinstance(spaced, t.Compare)
    assert (spaced.left.at.column, spaced.at.column, spaced.right.at.column) == (3, 6, 9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9223372036854775807", (1 << 63) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("18446744073709551615", (1 << 64) - 1),
        ("000000000000000000000000007", 7),
        ("'it''s'", "it's"),
        ("''", ""),
        ("'a\nb'", "a\nb"),
        ("'-- no comment ; %0 :p'", "-- no comment ; %0 :p"),
        ("X'00fF'", b"\x00\xff"),
        ("x''", b""),
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ("NULL", None),
        ("TIMESTAMP '2026-01-31T12:00:00Z'", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("timestamp '2026-01-31 13:00:00.5+01:00'", datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)),
    ],
)
def test_literals_have_the_values_they_show(text: str, value: object) -> None:
    tree = parse(text).tree
    assert isinstance(tree, t.Value)
    assert tree.value == value
    assert type(tree.value) is type(value)


def test_a_parameter_becomes_a_value_and_never_text() -> None:
    hostile = "x' OR '1' = '1"
    assert parse("a = :p", {"p": hostile}) == parse("a = '" + hostile.replace("'", "''") + "'")
    assert parse("a = %1 AND b = %0", [1, "two"]) == parse("a = 'two' AND b = 1")


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, r"parameter :p has no value \(given: none\)"),
        ({"q": 1}, r"parameter :p has no value \(given: :q\)"),
        ({"p": object()}, "a object is no value for an expression"),
        ({"p": [1]}, "a list is no value for an expression"),
        ({"p": 1 << 64}, "out of range"),
        ({"p": "\ud800"}, "half a surrogate pair"),
        ({"p": "x" * 70_000}, "70000 characters"),
        ({"p": datetime(2026, 1, 1)}, "has no zone"),  # noqa: DTZ001 - the missing zone is the point
    ],
)
def test_parameters_that_no_expression_can_hold_are_refused(params: object, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason) as caught:
        parse("a = :p", params)  # type: ignore[arg-type]
    assert caught.value.column == 5


@pytest.mark.parametrize("params", ["text", b"x", 7, {1, 2}])
def test_params_are_a_mapping_or_a_list(params: object) -> None:
    for text in ("a = :p", "a = 1"):
        with pytest.raises(ExpressionError, match="params is a mapping of names to values, or a list"):
            parse(text, params)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "params", "reason"),
    [
        ("a > 1", {"typo": 3}, r"params has :typo, which the expression does not use; it uses none"),
        ("a > :limit", {"limit": 1, "x": 2, "y": 3}, r"params has :x, :y, .*; it uses :limit"),
        ("a > %0", [1, 2, 3], r"params has %1, %2, .*; it uses %0"),
        ("a > %1", [1, 2], r"params has %0, .*; it uses %1"),
        ("a > :limit", {"limit": 1, 0: 2}, r"params has %0"),
        ("a > :limit", {"limit": 1, None: 2}, r"params has None"),
        ("a > 1", {f"p{i}": i for i in range(1000)}, r":p7 and 992 more, which"),
        ("a > 1", {"p" * 1000: 1}, r"params has :p{59}, which"),
    ],
)
def test_values_that_no_parameter_asks_for_are_refused(text: str, params: Any, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason):
        parse(text, params)
    with pytest.raises(ExpressionError, match=reason):
        bind(parse(text), params)
    with pytest.raises(ExpressionError, match=reason):
        parse_projection(f"a, {text} AS b", params)


def test_no_values_are_needed_where_nothing_asks_for_them() -> None:
    assert parse("a > 1", {}) == parse("a > 1", []) == parse("a > 1")
    assert parse_projection("a, a > :x AS b, a < :y AS c", {"x": 1, "y": 2}).outputs


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("speed > 300 extra", 13, "after the expression has ended"),
        ("a=1; drop table x", 4, "there are no statements"),
        ("a = 1 -- comment", 7, "there are no comments"),
        ("a == 1", 4, "one = sign"),
        ("a < b < c", 7, "comparisons do not chain"),
        ("a = 1 IS NULL", 7, "comparisons do not chain"),
        ('a = "x"', 5, "single quotes"),
        ("a = 'x", 5, "no closing quote"),
        ("a = `x", 5, "no closing backtick"),
        ("``", 1, "must not be empty"),
        ("a & b", 3, "write AND"),
        ("a || b", 3, "write OR"),
        ("!a", 1, "write NOT"),
        ("a >", 4, "the end stands where an operand should"),
        ("", 1, "is empty; leave out where="),
        ("SELECT a", 1, "leave out SELECT"),
        ("SELECT * FROM a", 1, "leave out SELECT"),
        ("where a > 3", 1, "leave out WHERE"),
        ("foo(1)", 1, "there is no function 'foo'; there are abs, lower"),
        ("abs()", 1, r"abs takes 1 argument"),
        ("round(1, 2, 3)", 1, r"round takes 1 to 2 argument"),
        ("a IN ()", 7, "operand"),
        ("a IN (b)", 7, "literals and parameters only"),
        ("a LIKE b", 8, "literals and parameters only"),
        ("a NOT 1", 7, "only BETWEEN, IN or LIKE"),
        ("a IS 1", 6, "NULL should after IS"),
        ("a BETWEEN 1 OR 2", 13, "AND should between"),
        ("CASE END", 6, "operand"),
        ("CASE a END", 8, "WHEN should"),
        ("CASE WHEN a THEN 1", 19, "END should close CASE"),
        ("(a = 1", 7, "should close the parenthesis"),
        ("a[b] = 1", 3, "an element's position takes literals"),
        ("a. = 1", 4, "a field's name should after the point"),
        ("end = 1", 1, "`end` in backticks"),
        ("header = 1", 8, "a field named header needs backticks"),
        ("300abc", 4, "run together"),
        ("99999999999999999999", 1, "out of range"),
        ("-18446744073709551615", 1, "begin at -2"),
        ("1e999", 1, "too large"),
        ("X'0'", 1, "pairs of hexadecimal"),
        ("X'0g'", 1, "pairs of hexadecimal"),
        ("TIMESTAMP '2026-01-31T12:00:00'", 11, "with its offset"),
        ("TIMESTAMP '2026-02-31T12:00:00Z'", 11, "with its offset"),
        ("%", 1, "numbered parameter"),
        ("a = %12345", 5, "numbered parameter"),
        (":1", 1, "a colon and a name"),
        ("a --1", 3, "a space between two minus signs"),
        ("a /* x */ = 1", 3, "there are no comments"),
        ("a\u00a0= 1", 2, "U.00A0"),
        ("'\ud800'", 1, "surrogate"),
    ],
)
def test_an_error_points_at_the_column_and_says_what_is_allowed(text: str, column: int, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason) as caught:
        parse(text)
    assert caught.value.text == text
    assert caught.value.column == column


def test_letters_that_only_turn_into_ascii_make_no_keywords() -> None:
    assert parse("\u017fqrt = 2") == parse("`\u017fqrt` = 2")
    assert column_of("a I\u017f NULL") == 3
    with pytest.raises(ExpressionError, match="there is no function"):
        parse("\u017fqrt(1)")


def test_nesting_is_counted_in_parentheses_operators_and_calls() -> None:
    parse("(" * 60 + "a" + ")" * 60)
    for text in (
        "(" * 65 + "a" + ")" * 65,
        "(" * 10_000,
        "abs(" * 65 + "a" + ")" * 65,
        "NOT " * 65 + "a",
        "- " * 65 + "a",
        "a" + " + a" * 65,
        "a" + ".a" * 65,
        "a" + "[0]" * 65,
        "CASE WHEN " * 65,
    ):
        with pytest.raises(ExpressionError, match="nested deeper than 64 levels"):
            parse(text)


def test_chains_of_and_and_or_are_flat() -> None:
    tree = parse(" AND ".join(f"f{i}" for i in range(3_000))).tree
    assert isinstance(tree, t.And)
    assert len(tree.items) == 3_000


def test_size_is_bounded() -> None:
    with pytest.raises(ExpressionError, match="at most 65536 are allowed"):
        parse("a" * 1_000_000)
    with pytest.raises(ExpressionError, match="more than 10000 values and operators"):
        parse(" OR ".join(["a=1"] * 4_000))
    with pytest.raises(ExpressionError, match="at most 4096 values"):
        parse(f"a IN ({', '.join('1' for _ in range(4_097))})")


def test_a_projection_is_a_list_of_named_expressions() -> None:
    projection = parse_projection("id, speed * 1.852 AS kmh, position.lat, `odd name`, abs(x) AS `a b`")
    assert [output.name for output in projection.outputs] == ["id", "kmh", "lat", "odd name", "a b"]
    assert projection.outputs[1].tree == parse("speed * 1.852").tree
    assert parse_projection("a + :n AS b", {"n": 1}) == parse_projection("a + 1 AS b")


@pytest.mark.parametrize("text", ["", "id,", "id AS", "id AS 1", "id kmh", "id AS a b", "*", ", id"])
def test_what_is_no_projection_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_projection(text)


def test_a_path_stands_alone() -> None:
    assert parse_path("position.lat") == parse("position.lat").tree
    assert parse_path("header.user['a']") == parse("header.user['a']").tree
    for text in ("a + 1", "1", "a)", "", "abs(x)"):
        with pytest.raises(ExpressionError):
            parse_path(text)


def test_sqlglot_reads_what_we_write() -> None:
    """Our grammar is a part of Spark's SQL: an independent parser must accept every expression of it."""
    choose = RandomChooser(11)
    for _ in range(150):
        text = Writer(choose).condition(3)
        # It has no backslash-free strings in this dialect and no `%0`; both are differences we want.
        assert sqlglot.parse_one(text.replace("\\", ""), read="spark").sql(dialect="spark")


@pytest.mark.parametrize(
    "text", ["speed > 300 extra", "a=1; drop table x", "a > 1 -- more", "a = 1 COLLATE x"]
)
def test_what_sqlglot_lets_pass_is_refused_here(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)

"""Random expressions over random rows: every engine says what the reference interpreter says."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import ExpressionError
from heliograph.filters import arrow, tree, typed
from heliograph.filters import spark_sql as spark
from heliograph.filters.check import check, check_value
from heliograph.filters.parser import parse, parse_projection
from heliograph.filters.python import compile_merged, compile_one
from heliograph.filters.reference import evaluate
from tests.property.expr_cases import (
    FORMAT,
    HypothesisChooser,
    RandomChooser,
    Writer,
    as_batch,
    as_event,
    needed,
    row,
    same,
)
from tests.support import examples

_CHOOSE = RandomChooser(2026)
ROWS = [row(_CHOOSE) for _ in range(64)]
EVENTS = [as_event(values) for values in ROWS]
BATCHES = [as_batch(ROWS, spark_safe=safe) for safe in (True, False)]


def _check(text: str, params: dict[str, Any]) -> typed.Checked:
    # A constant above 2**63-1 in arithmetic is refused by design; the writer does not know, so try without.
    try:
        return check_value(parse(text, needed(text, params)), FORMAT)
    except ExpressionError as error:
        if "in arithmetic" not in error.reason:
            raise
        return check_value(parse("i"), FORMAT)


@st.composite
def values(draw: st.DrawFn) -> typed.Checked:
    choose = HypothesisChooser(draw)
    writer = Writer(choose)
    return _check(writer.any_value(choose.number(0, 4)), writer.params)


@st.composite
def conditions(draw: st.DrawFn) -> typed.Checked:
    choose = HypothesisChooser(draw)
    writer = Writer(choose)
    checked = _check(writer.condition(choose.number(0, 3)), writer.params)
    return checked if checked.node.kind == "bool" else check(parse("b_n"), FORMAT)


@settings(max_examples=examples(800))
@given(values())
def test_python_and_arrow_agree_with_the_reference(checked: typed.Checked) -> None:
    by_attribute, by_item = compile_one(checked), compile_one(checked, access="item")
    columns = [arrow.evaluate(checked, batch).to_pylist() for batch in BATCHES]
    for number, (values, event) in enumerate(zip(ROWS, EVENTS, strict=True)):
        expected = evaluate(checked.node, event, values["header"])
        results = [
            by_attribute(event, values["header"]),
            by_item(values, values["header"]),
            *(column[number] for column in columns),
        ]
        assert all(same(result, expected) for result in results), (expected, results, values)


@settings(max_examples=examples(120))
@given(st.lists(conditions(), max_size=8))
def test_a_merged_function_agrees_with_each_filter_alone(filters: list[typed.Checked]) -> None:
    merged = compile_merged(filters)
    masks = [arrow.mask(checked, BATCHES[0]).to_pylist() for checked in filters]
    for number, (values, event) in enumerate(zip(ROWS, EVENTS, strict=True)):
        expected = [i for i, f in enumerate(filters) if evaluate(f.node, event, values["header"]) is True]
        assert merged(event, values["header"]) == expected
        assert [i for i, mask in enumerate(masks) if mask[number]] == expected


@settings(max_examples=examples(150))
@given(conditions(), st.lists(conditions(), min_size=1, max_size=4))
def test_conjuncts_are_true_together_exactly_when_the_condition_is(
    one: typed.Checked, others: list[typed.Checked]
) -> None:
    node = typed.TypedAnd((one.node, *(other.node for other in others)), nullable=True)
    predicates, rest = typed.conjuncts(node)
    parts = [*(predicate.node for predicate in predicates), *rest]
    for values, event in zip(ROWS, EVENTS, strict=True):
        expected = evaluate(node, event, values["header"]) is True
        assert all(evaluate(part, event, values["header"]) is True for part in parts) == expected


@settings(max_examples=examples(200))
@given(values())
def test_spark_sql_is_written_for_everything_and_its_quotes_and_brackets_close(
    checked: typed.Checked,
) -> None:
    sql = spark.to_sql(checked)
    assert "${" not in sql
    outside = "".join(sql.split("'")[::2])
    assert sql.count("'") % 2 == 0
    assert outside.count("(") == outside.count(")")
    assert outside.isascii()


_FRAGMENTS = st.sampled_from(
    [
        *(
            "i",
            "f_n",
            "s",
            "pos.lat",
            "header.type",
            "header.user['a']",
            "samples[0]",
            "grid[1,0]",
            "nothing",
        ),
        *(
            " = ",
            " < ",
            "<>",
            " AND ",
            " OR ",
            " NOT ",
            " IN (",
            " LIKE ",
            " BETWEEN ",
            " IS NULL",
            " ESCAPE ",
        ),
        *(
            "CASE ",
            " WHEN ",
            " THEN ",
            " ELSE ",
            " END",
            "(",
            ")",
            "[",
            "]",
            ",",
            ".",
            "+",
            "-",
            "*",
            "/",
            "%",
        ),
        *(
            "1",
            "2.5",
            "'x'",
            "''",
            "X'00'",
            "NULL",
            "TRUE",
            ":p",
            "%0",
            "abs(",
            "round(",
            "coalesce(",
            " AS ",
        ),
        *("TIMESTAMP '2026-01-01T00:00:00Z'", "`", "'", '"', ";", "--", "\x00", "\ud800", "é", "9" * 25, " "),
    ]
)


@settings(max_examples=examples(600))
@given(st.one_of(st.text(max_size=60), st.lists(_FRAGMENTS, max_size=16).map("".join)))
def test_any_text_is_an_expression_or_an_expression_error(text: str) -> None:
    for take in (parse, parse_projection):
        column = 1
        try:
            assert take(text) == take(text)
        except ExpressionError as error:
            column = error.column
        assert 1 <= column <= len(text) + 1


@settings(max_examples=examples(300))
@given(st.lists(_FRAGMENTS, max_size=12).map("".join))
def test_whatever_parses_is_checked_or_refused_and_then_evaluated(text: str) -> None:
    params: dict[str | int, Any] = {name: 1 for name in ("p", 0) if str(tree.Param(name)) in text}
    try:
        checked = check_value(parse(text, params), FORMAT)
    except ExpressionError:
        return
    expected = evaluate(checked.node, EVENTS[0], ROWS[0]["header"])
    assert same(compile_one(checked)(EVENTS[0], ROWS[0]["header"]), expected)
    assert same(arrow.evaluate(checked, BATCHES[1]).to_pylist()[0], expected)
    assert spark.to_sql(checked)

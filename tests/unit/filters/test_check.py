"""Names and types: what fits, what is converted, and what is refused with both types named."""

from __future__ import annotations

import pytest

from heliograph.errors import ExpressionError
from heliograph.filters import typed as k
from heliograph.filters.build import call, col, tree_of
from heliograph.filters.check import check, check_projection
from heliograph.filters.parser import parse, parse_projection
from heliograph.filters.tree import Expr, Name, Not, SourceText
from heliograph.model.formats import Field, Format
from tests.unit.filters.examples import TRACK, condition, value


@pytest.mark.parametrize(
    ("text", "kind", "nullable"),
    [
        ("id", "int", False),
        ("speed", "float", False),
        ("alt", "float", True),
        ("serial", "wide", False),
        ("gain", "float", False),
        ("position.lat", "float", True),
        ("samples[0]", "float", True),
        ("rgb[2]", "int", False),
        ("line[3]", "float", True),
        ("grid[1, 0]", "float", True),
        ("free[0, 1, 2]", "int", True),
        ("state", "int", False),
        ("band", "text", False),
        ("header.supplier", "text", False),
        ("header.append_ts", "datetime", True),
        ("header.user['trace']", "text", True),
        ("`header`", "text", False),
        ("id + 1", "int", True),
        ("speed + 1", "float", False),
        ("id / 2", "float", True),
        ("-speed", "float", False),
        ("id + 1.5", "float", False),
        ("coalesce(count, 0)", "int", False),
        ("coalesce(alt, id)", "float", False),
        ("coalesce(serial, id)", "wide", False),
        ("CASE WHEN active THEN 1 END", "int", True),
        ("CASE WHEN active THEN 1 ELSE 2.5 END", "float", False),
        ("floor(speed)", "int", True),
        ("floor(id)", "int", False),
        ("round(speed, 2)", "float", False),
        ("sqrt(id)", "float", True),
        ("length(region)", "int", False),
        ("length(free)", "int", True),
        ("upper(region)", "text", False),
        ("speed > 300", "bool", False),
        ("alt > 300", "bool", True),
        ("alt IS NULL", "bool", False),
        ("id IN (1, NULL)", "bool", True),
        ("region LIKE NULL", "bool", True),
        ("9223372036854775808", "wide", False),
        ("NULL", "bool", True),
    ],
)
def test_every_expression_has_a_kind_and_may_or_may_not_be_null(
    text: str, kind: str, *, nullable: bool
) -> None:
    node = value(text).node
    assert (node.kind, node.nullable) == (kind, nullable)


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("spee > 300", 1, "air.track has no field 'spee'; did you mean speed"),
        ("zzz > 300", 1, "it has active, alt, band"),
        ("position.lta > 1", 10, "position has no field 'lta'; did you mean lat"),
        ("__class__ = 1", 1, "has no field '__class__'"),
        ("header.nothing = 1", 1, "the header has no field 'nothing'; it has channel, type, supplier"),
        ("header.supplier.x = 1", 1, "have no parts"),
        ("header.user = 'x'", 1, "cannot be compared"),
        ("header.user[0] = 'x'", 13, "named by text"),
        ("id.x = 1", 4, "id is an int and has no fields"),
        ("speed = 'x'", 7, r"speed \(a float\) and 'x' \(text\) cannot be compared"),
        ("active = 1", 8, r"active \(a bool\) and 1 \(an int\)"),
        ("raw = 'x'", 5, r"raw \(bytes\) and 'x' \(text\)"),
        ("seen > 5", 6, r"seen \(a datetime\) and 5 \(an int\)"),
        ("id IN (1, 'a')", 4, r"id \(an int\) and 'a' \(text\)"),
        ("id BETWEEN 1 AND 'z'", 4, r"id \(an int\) and 'z' \(text\)"),
        ("CASE id WHEN 'a' THEN 1 END = 1", 1, r"id \(an int\) and 'a' \(text\)"),
        (
            "CASE WHEN active THEN 1 ELSE 'a' END = 1",
            1,
            "1 .* and 'a' .* cannot be the results of one CASE together",
        ),
        ("coalesce(id, 'a') = 1", 1, r"id \(an int\) and 'a' \(text\)"),
        ("active < TRUE", 8, "has no order; only = and <>"),
        ("region + 1 = 2", 1, r"\+ takes numbers, and this is region \(text\)"),
        ("-region = 2", 2, "- takes numbers"),
        ("speed % 2 = 1", 7, "% takes two ints"),
        ("bitand(speed, 2) = 1", 1, "bitand takes two ints"),
        ("serial + 18446744073709551615 = 1", 10, r"end at 2\*\*63-1 in arithmetic"),
        ("extra = 1", 1, r"extra \(nested data\) cannot be compared, only tested with IS NULL"),
        ("samples = 1", 1, "cannot be compared, only tested with IS NULL"),
        ("position > 1", 1, "cannot be compared"),
        ("coalesce(samples, samples) IS NULL", 1, "cannot be among"),
        ("length(id) = 1", 8, r"length takes text, bytes, a list, an array or a map; this is id \(an int\)"),
        ("upper(id) = 'a'", 7, r"upper takes text, and this is id \(an int\)"),
        ("id LIKE 'a'", 4, "LIKE takes text"),
        ("region LIKE 1", 13, "LIKE and ESCAPE take text"),
        ("region LIKE 'a!' ESCAPE '!'", 13, "must stand before %, _ or itself"),
        ("region LIKE 'a' ESCAPE 'ab'", 13, "exactly one character"),
        ("round(speed, 16) = 1", 14, "keeps 0 to 15 digits"),
        ("round(speed, id) = 1", 14, "keeps 0 to 15 digits"),
        ("rgb[3] = 1", 5, "rgb has 3 elements, counted from 0"),
        ("samples[-1] = 1", 9, "no negative ones"),
        ("samples['a'] = 1", 9, "a position is a whole number"),
        ("grid[0] = 1", 6, "1 more dimension"),
        ("grid[2, 0] = 1", 6, "grid has 2 elements"),
        ("grid[0, 0, 0] = 1", 12, "only lists, arrays and maps have elements"),
        ("id[0] = 1", 4, "id is an int; only lists, arrays and maps"),
        ("state = 'BROKEN'", 9, "enum State has no member 'BROKEN'; it has OFF, ON"),
        ("band = 'hihg'", 8, "enum Band has no member 'hihg'; it has low, high; did you mean high?"),
        ("'LOW' <> band", 1, "enum Band has no member 'LOW'; it has low, high"),
        ("band IN ('low', 'mid')", 17, "enum Band has no member 'mid'"),
        ("speed", 1, r"a filter takes a condition, and this is speed \(a float\)"),
        ("speed AND active", 1, "AND takes a condition"),
        ("NOT id", 5, "NOT takes a condition"),
        ("CASE WHEN id THEN 1 END = 1", 11, "WHEN takes a condition"),
        ("speed > :limit", 9, "parameter :limit has no value; pass params="),
        ("price > speed", 7, r"a decimal and speed \(a float\) cannot be compared: a float is rounded"),
        ("price + speed > 1", 7, "a decimal and speed .* cannot be calculated with"),
        ("speed = DECIMAL '1.5'", 7, r"a decimal and speed \(a float\) cannot be compared"),
        ("price / 2 > 1", 7, "/ does not take decimals, for no two engines round"),
        ("price % 2 = 1", 7, "% does not take decimals"),
        ("total * total > 1", 7, r"\* of these decimals may need 77 digits"),
        ("total > id", 7, "these decimals need 39 digits together, and decimals have at most 38"),
        ("total > 1e20", 7, "need 41 digits together"),
        ("price > 1e300", 7, "has more digits than a decimal, 38"),
        ("round(price) = 1", 7, r"round takes ints and floats, and this is price \(a decimal\)"),
        ("price = '10.25'", 7, "there are no conversions between text, numbers"),
        ("DECIMAL 'x' = price", 9, "a decimal is written DECIMAL '10.25'"),
        ("tags = 'red'", 1, r"tags \(a map\) cannot be compared, only tested with IS NULL"),
        ("tags[0] = 'red'", 6, r"the keys of tags are text: tags\['0'\]"),
        ("slots[256] = 1", 7, "the keys of slots are integers from 0 to 255, not 256"),
        ("slots['a'] = 1", 7, "the keys of slots are integers"),
        ("states['BROKEN'] = 'a'", 8, "enum State has no member 'BROKEN'; it has OFF, ON"),
        ("map_contains(region, 'a')", 14, "map_contains takes a map, and this is text"),
        ("map_contains(tags, region)", 20, "the key of a map is text or an integer"),
    ],
)
def test_an_error_points_at_the_column_and_names_the_types(text: str, column: int, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason) as caught:
        check(parse(text), TRACK)
    assert caught.value.column == column


def test_a_dunder_field_is_out_of_reach_even_when_a_format_has_one() -> None:
    odd = Format("odd", (Field("__class__", TRACK.fields[0].type),))
    with pytest.raises(ExpressionError, match="has no field '__class__'"):
        check(parse("__class__ = 1"), odd)


def test_conversions_are_written_into_the_tree() -> None:
    node = condition("id > 2.5").node
    assert isinstance(node, k.TypedCompare)
    assert isinstance(node.left, k.Convert)
    assert node.left.kind == "float"
    assert condition("speed > 300").node == condition("speed > 300.0").node
    assert condition("state = 'ON'").node == condition("state = 1").node


def test_a_literal_beside_a_float_becomes_the_nearest_float() -> None:
    node = condition("speed = 9007199254740993").node
    assert isinstance(node, k.TypedCompare)
    assert node.right == k.Const(9007199254740992.0, "float")


def test_projections_need_names_of_their_own() -> None:
    checked = check_projection(parse_projection("id, speed * 2 AS double, position.lat"), TRACK)
    assert checked.names == ("id", "double", "lat")
    assert [node.kind for node in checked.nodes] == ["int", "float", "float"]
    for text, reason in [
        ("speed * 2", "needs a name"),
        ("id, speed AS id", "two columns are named 'id'"),
        ("header.user", "take a field or an element of it"),
        ("CASE WHEN id > 1 THEN samples END AS x", "a list or array"),
    ]:
        with pytest.raises(ExpressionError, match=reason):
            check_projection(parse_projection(text), TRACK)


def test_trees_made_by_hand_are_measured_too() -> None:
    tree = Name("active")
    for _ in range(100):
        tree = Not(tree)  # type: ignore[assignment]
    with pytest.raises(ExpressionError, match="nested deeper"):
        check(Expr(tree, SourceText("")), TRACK)


def test_a_condition_splits_into_simple_predicates_and_the_rest() -> None:
    node = condition(
        "speed > 300 AND region = 'north' AND 5 >= id AND NOT id = 3 AND alt BETWEEN 1 AND 2 AND active "
        "AND id IN (1, 2) AND NOT count IN (3) AND alt IS NOT NULL AND region LIKE 'no%' "
        "AND speed > alt AND id > 1.5"
    ).node
    predicates, rest = k.conjuncts(node)
    assert [(p.column.path, p.op, p.values or p.value) for p in predicates] == [
        ("speed", ">", 300.0),
        ("region", "=", "north"),
        ("id", "<=", 5),
        ("id", "<>", 3),
        ("alt", ">=", 1.0),
        ("alt", "<=", 2.0),
        ("active", "=", True),
        ("id", "in", (1, 2)),
        ("count", "not in", (3,)),
        ("alt", "is not null", None),
        ("region", "prefix", "no"),
    ]
    assert rest == (condition("speed > alt").node, condition("id > 1.5").node)


def test_columns_lists_what_an_expression_reads() -> None:
    node = value("CASE position.lat WHEN speed THEN id ELSE length(samples) END + coalesce(count, -id)").node
    assert [column.path for column in k.columns(node)] == ["position.lat", "speed", "id", "samples", "count"]


def test_built_expressions_are_checked_like_written_ones() -> None:
    built = tree_of(call("abs", col("speed")) > 300)
    assert check(built, TRACK).node == condition("abs(speed) > 300").node


@pytest.mark.parametrize("text", ["band < 'm'", "band LIKE 'h%'", "lower(band) = 'other'", "band = 'low'"])
def test_text_that_is_no_member_may_stand_where_it_says_something(text: str) -> None:
    assert check(parse(text), TRACK).node.kind == "bool"

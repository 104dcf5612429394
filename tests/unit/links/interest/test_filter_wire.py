"""Filters cross as data: what comes back is what was sent, and nothing else is taken for a filter."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import heliograph as hg
from heliograph.errors import BadFrame
from heliograph.filters.parser import parse
from heliograph.links.interest.filter_wire import condition_for, from_data, to_data
from heliograph.links.session.messages import Want

EXPRESSIONS = (
    "speed > :limit AND region IN ('north', 'south')",
    "NOT (name LIKE 'A!%%' ESCAPE '!') OR name IS NULL",
    "CASE WHEN id = 1 THEN TRUE WHEN id = 2 THEN FALSE ELSE NULL END",
    "CASE id WHEN 1 THEN TRUE END",
    "header.supplier = 'radar' AND header.user['trace'] = 'x'",
    "position.lat BETWEEN 47 AND 49.5 AND samples[3] < 1e300",
    "abs(-speed + 1) * 2 % 3 / 4 - 1 < coalesce(height, round(speed, 2))",
    "seen > TIMESTAMP '2026-01-01T00:00:00Z' AND raw = X'00ff'",
    "big = 18446744073709551615 AND small = -9223372036854775808",
)

WRITTEN: tuple[tuple[str, Any], ...] = (
    (
        "position.lat = 1",
        ["Compare", "=", ["Member", ["Name", "position", False], "lat"], ["Value", 1, "int"]],
    ),
    ("NOT id IS NULL", ["Not", ["IsNull", ["Name", "id", False]]]),
    ("a AND b", ["And", ["", ["Name", "a", False], ["Name", "b", False]]]),
)
"""As stations of earlier versions write and read them."""

BAD: tuple[Any, ...] = (
    None,
    7,
    [],
    ["Nobody", 1],
    ["And", 3],
    ["And", ["", ["Value", True, "bool"]]],
    ["Compare", "=", 1, 2],
    ["Compare", "=>", ["Value", 1, "int"], ["Value", 1, "int"]],
    ["Arith", "**", ["Value", 1, "int"], ["Value", 1, "int"]],
    ["Value", [], "int"],
    ["Value", 3, "text"],
    ["Value", 1 << 64, "int"],
    ["Name", 3, False],
    ["Name", "id", "yes"],
    ["Call", "eval", ["", ["Value", "1", "text"]]],
    ["Call", "abs", [""]],
    ["In", ["Name", "id", False], [""]],
    ["In", ["Name", "id", False], ["", ["Name", "id", False]]],
    ["Case", None, ["", ["", ["Value", True, "bool"]]], None],
    ["Param", "limit"],
    ["__class__", 1],
)


class Track(hg.Event, name="air.track"):
    id: int
    speed: float = 0.0


class Newer(hg.Event, name="air.track"):
    id: int
    speed: int = 0
    height: int = 0


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_comes_back_as_it_was(text: str) -> None:
    sent = parse(text, {"limit": 300} if ":limit" in text else None)
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(to_data(sent.tree)))
    assert from_data(received, "peer") == sent


@pytest.mark.parametrize(("text", "data"), WRITTEN)
def test_nodes_keep_their_names_on_the_wire(text: str, data: Any) -> None:
    assert to_data(parse(text).tree) == data
    assert from_data(data, "peer") == parse(text)


@pytest.mark.parametrize("data", BAD, ids=repr)
def test_what_is_no_expression_is_refused(data: Any) -> None:
    with pytest.raises(BadFrame):
        from_data(data, "peer")


def test_a_condition_nested_too_deeply_is_refused() -> None:
    data: Any = ["Name", "id", False]
    for _ in range(500):
        data = ["Not", data]
    with pytest.raises(BadFrame, match="deeply"):
        from_data(data, "peer")


def want(cls: type[hg.Event], text: str) -> Want:
    return Want("air.track", hg.format_of(cls).id, to_data(parse(text).tree))


def test_the_source_filters_where_both_have_the_same_field() -> None:
    formats = {hg.format_of(Newer).id: hg.format_of(Newer)}
    condition = condition_for(want(Newer, "id = 1"), Track, formats.get, "peer")
    assert condition.checked is not None


@pytest.mark.parametrize("text", ["speed > 1", "height = 0", "id = 1 AND height = 0"])
def test_the_source_sends_all_where_a_field_differs_or_is_missing(text: str) -> None:
    formats = {hg.format_of(Newer).id: hg.format_of(Newer)}
    assert condition_for(want(Newer, text), Track, formats.get, "peer").checked is None


def test_the_source_sends_all_to_a_format_that_nobody_described() -> None:
    assert condition_for(want(Newer, "id = 1"), Track, lambda _: None, "peer").checked is None

"""Filters that can never be true together: found where they are simple, and never claimed falsely."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.routing.conditions import ReceiverCondition
from heliograph.filters.contradiction import why_never
from tests.support import examples


class Blip(hg.Event, name="test.blip"):
    n: int
    x: float = 0.0
    name: str = ""
    here: bool = False
    maybe: int | None = None


def condition(text: str) -> ReceiverCondition:
    with hg.Station() as station:
        found = station.channel("blips", Blip).select(where=text).conditions[Blip]
    assert isinstance(found, ReceiverCondition)
    return found


def nodes(*texts: str) -> list[Any]:
    checked = [condition(text).checked for text in texts]
    return [one.node for one in checked if one is not None]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("x > 300", "x < 100"), "x > 300.0 and x < 100.0 are never both true"),
        (("n = 1 AND n = 2",), "n = 1 and n = 2 are never both true"),
        (("n > 1", "n < 2"), "n > 1 and n < 2 are never both true"),
        (("n IN (1, 2)", "n > 5"), "n in (1, 2) and n > 5 are never both true"),
        (("name = 'a'", "name LIKE 'b%'"), "name = 'a' and name like 'b%' are never both true"),
        (("here", "NOT here"), "here = True and here = False are never both true"),
        (("maybe IS NULL", "maybe = 3"), "maybe is null and maybe = 3 are never both true"),
        (
            ("n BETWEEN 1 AND 2 AND n <> 1", "n <> 2"),
            "n >= 1, n <= 2, n <> 1, n <> 2 are never true together",
        ),
    ],
)
def test_what_excludes_each_other_is_named(texts: tuple[str, ...], said: str) -> None:
    assert why_never(*nodes(*texts)) == said


@pytest.mark.parametrize(
    "texts",
    [
        ("x > 300", "x < 400"),
        ("x > 1", "x < 1.5"),
        ("x >= 3", "x <> 4"),
        ("n > 1 OR n < 0", "n < 1"),
        ("name > 'a'", "name < 'b'"),
        ("here",),
        ("maybe IS NOT NULL", "maybe <> 3"),
    ],
)
def test_nothing_is_claimed_of_what_can_be(texts: tuple[str, ...]) -> None:
    assert why_never(*nodes(*texts)) is None


TESTS = st.one_of(
    st.tuples(
        st.sampled_from(["n", "x", "maybe"]),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        st.integers(-2, 2),
    ).map(lambda test: f"{test[0]} {test[1]} {test[2]}"),
    st.tuples(st.sampled_from(["=", "<>", "<", ">="]), st.sampled_from(["'a'", "'b'", "''"])).map(
        lambda test: f"name {test[0]} {test[1]}"
    ),
    st.sampled_from(
        ["here", "NOT here", "maybe IS NULL", "maybe IS NOT NULL", "name LIKE 'a%'", "n IN (0, 1)"]
    ),
    st.sampled_from(["n NOT IN (0, 1)", "NOT (x < 1)", "NOT (x > 0)", "x BETWEEN -1 AND 1"]),
)
EVENTS = st.builds(
    Blip,
    n=st.integers(-3, 3),
    x=st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 2.0, float("nan"), float("inf")]),
    name=st.sampled_from(["", "a", "ab", "b", "c"]),
    here=st.booleans(),
    maybe=st.none() | st.integers(-3, 3),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(TESTS, min_size=1, max_size=4), EVENTS)
def test_no_event_meets_filters_that_are_said_to_exclude_each_other(tests: list[str], event: Blip) -> None:
    text = " AND ".join(f"({test})" for test in tests)
    found = condition(text)
    holds: Any = found.holds
    if holds(event, None):
        assert why_never(*nodes(text)) is None

"""Events that are pushed together reach whom they would reach alone, whatever a filter asks their headers."""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.filters.schema import HEADER_FIELDS
from tests.e2e.link_support import wait_until
from tests.support import examples

EVENTS: Final = 24


class Point(hg.Event, name="together.point"):
    x: int


NUMBERS = st.integers(-2, 2 * EVENTS)
TIMES = st.sampled_from(["1970-01-01T00:00:00Z", "2000-01-01T00:00:00Z", "2200-01-01T00:00:00Z"])
TEXTS = st.sampled_from(["c", "together.point", "radar", "other"])
OPERATORS = st.sampled_from(["=", "<>", "<", ">="])


@st.composite
def questions_to(draw: st.DrawFn, name: str) -> str:
    """Something that a filter may ask about a field of the header."""
    field = f"header.{name}"
    if name == "user":
        field, kind = "header.user['traceparent']", "text"
    else:
        kind = HEADER_FIELDS[name].kind
    ways = {
        "int": st.one_of(
            st.builds(lambda m, r: f"{field} % {m} = {r}", st.integers(2, 5), st.integers(0, 4)),
            st.builds(lambda op, n: f"{field} {op} {n}", OPERATORS, NUMBERS),
            st.builds(lambda n: f"{field} - x > {n}", NUMBERS),
        ),
        "datetime": st.builds(lambda op, at: f"{field} {op} timestamp '{at}'", OPERATORS, TIMES),
        "text": st.builds(lambda op, text: f"{field} {op} '{text}'", OPERATORS, TEXTS),
        "bool": st.builds(lambda value: f"{field} = {value}", st.sampled_from(["true", "false"])),
    }
    return draw(st.one_of(ways[kind], st.just(f"{field} IS NULL"), st.just(f"{field} IS NOT NULL")))


FILTERS = st.sampled_from(sorted(HEADER_FIELDS)).flatmap(questions_to)
BESIDE = st.sampled_from(["", " AND x % 2 = 0", " OR x = 3"])


def delivered(where: str, *, together: bool, inline: bool, crowded: bool) -> tuple[list[int], int]:
    """What a subscription gets, and what the channel counts."""
    got: list[int] = []
    with hg.Station() as station:
        channel = station.channel("c", Point)
        channel.subscribe(lambda point: got.append(point.x), where=where, inline=inline)
        if crowded:
            channel.subscribe(lambda _: None, where="x < 0", inline=inline)
        supplier = channel.supplier("radar")
        points = [Point(x) for x in range(EVENTS)]
        if together:
            supplier.push_many(points)
        else:
            for point in points:
                supplier.push(point)
        matched = channel.stats().matched
        assert wait_until(lambda: len(got) == matched)
    return got, matched


@given(where=FILTERS, beside=BESIDE, inline=st.booleans(), crowded=st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_together_as_alone(where: str, beside: str, *, inline: bool, crowded: bool) -> None:
    where = f"({where}){beside}"
    alone = delivered(where, together=False, inline=inline, crowded=crowded)
    assert delivered(where, together=True, inline=inline, crowded=crowded) == alone

"""Four filters on the way of an event, against a naive look at each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.explain import KINDS
from heliograph.testing import rig
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.channel.explain import EventExplanation


class A(hg.Event, name="a"):
    n: int
    bits: int = 0
    region: str = "x"


class B(hg.Event, name="b"):
    region: str
    bits: int
    n: int


FILTERS: dict[str, Any] = {
    "": lambda event: True,
    "n > 2": lambda event: event.n > 2,
    "NOT n = 3": lambda event: event.n != 3,
    "bitand(bits, 5) = 4": lambda event: event.bits & 5 == 4,
    "region LIKE 'x%'": lambda event: event.region.startswith("x"),
}
NAMES = ("p", "q", "r")
FILTER = st.sampled_from(sorted(FILTERS))
TYPES = st.sampled_from([None, (A,), (B,), (A, B)])
SOURCES = st.sampled_from([None, ("p",), ("q", "r"), ("nobody",)])
EVENTS = st.one_of(
    st.builds(A, st.integers(0, 5), st.integers(0, 7)),
    st.builds(B, st.sampled_from(["x", "xy", "y"]), st.integers(0, 7), st.integers(0, 5)),
)
WISHES = st.tuples(FILTER, TYPES, SOURCES, FILTER, TYPES, SOURCES, st.booleans())


def said(where: str, types: Any = None, sources: Any = None) -> dict[str, Any]:
    options = {"where": where or None, "types": types, "sources": sources}
    return {name: value for name, value in options.items() if value is not None}


def wants(wish: Any, supplier: str, event: Any) -> bool:
    first, types, sources, second, more_types, more_sources, _ = wish
    return all(
        [
            FILTERS[first](event),
            FILTERS[second](event),
            types is None or isinstance(event, types),
            more_types is None or isinstance(event, more_types),
            sources is None or supplier in sources,
            more_sources is None or supplier in more_sources,
        ]
    )


def none_follows_the_one_that_stopped(explained: EventExplanation) -> bool:
    for receiver in {step.receiver for step in explained.steps}:
        steps = [step for step in explained.steps if step.receiver in ("", receiver)]
        places = [KINDS.index(step.kind) for step in steps]
        if places != sorted(places) or not all(step.passed for step in steps[:-1]):
            return False
    return True


@given(
    FILTER,
    st.lists(FILTER, min_size=3, max_size=3),
    st.lists(WISHES, max_size=5),
    st.lists(st.tuples(st.integers(0, 2), EVENTS), max_size=12),
)
@settings(max_examples=examples(60), deadline=None)
def test_an_event_reaches_whom_all_four_filters_let_it(
    admin: str, own: list[str], wishes: list[Any], pushes: list[tuple[int, Any]]
) -> None:
    with rig() as helio:
        channel: Any = helio.station.channel("both", A, B)
        suppliers = channel.for_suppliers(**said(admin))
        ways = [suppliers.supplier(name, **said(own[i])) for i, name in enumerate(NAMES)]
        seen: list[list[tuple[str, Any]]] = []
        for first, types, sources, second, more_types, more_sources, inline in wishes:
            got: list[tuple[str, Any]] = []
            seen.append(got)
            channel.for_consumers(**said(first, types, sources)).subscribe(
                lambda event, header, got=got: got.append((header.supplier, event)),
                inline=inline,
                name=f"w{len(seen)}",
                **said(second, more_types, more_sources),
            )
        passed = []
        for i, event in pushes:
            explained = ways[i].explain(event)
            ways[i].push(event)
            reached = []
            if FILTERS[admin](event) and FILTERS[own[i]](event):
                passed.append((NAMES[i], event))
                reached = [f"w{n}" for n, wish in enumerate(wishes, 1) if wants(wish, NAMES[i], event)]
            assert list(explained.reaches) == reached
            assert none_follows_the_one_that_stopped(explained)
        helio.settle()
        for wish, got in zip(wishes, seen, strict=True):
            assert sorted(got, key=repr) == sorted([one for one in passed if wants(wish, *one)], key=repr)
        stats = channel.stats()
        assert stats.balanced
        assert stats.pushed == len(passed)
        assert sum(way.filtered for way in ways) == len(pushes) - len(passed)

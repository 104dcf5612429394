"""The machine against a naive evaluator that looks at all of the past anew, on random patterns."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.patterns.machine import Correlator
from heliograph.patterns.pattern import AllOf, AnyOf, Leaf, Node, NoneOf, all_of, any_of, leaves_of, none_of
from tests.support import examples

S = 1_000_000_000


class Stream:
    def as_stream(self) -> Stream:
        return self


class Occurrence(NamedTuple):
    """First and last second, the instant at which it is known, and its events."""

    first: int
    known: int
    values: Any


def occurrences(node: Node, story: list[tuple[int, int]], leaves: list[Node]) -> list[Occurrence]:
    """All occurrences of a pattern in a story of (second, leaf), in the order in which they become known."""
    match node:
        case Leaf():
            mine = next(n for n, leaf in enumerate(leaves) if leaf is node)
            return [Occurrence(at, n, (at, mine)) for n, (at, leaf) in enumerate(story) if leaf == mine]
        case AnyOf(parts=parts):
            found = [
                (o.known, i, o._replace(values={name: o.values}))
                for i, (name, part) in enumerate(parts.items())
                for o in occurrences(part, story, leaves)
            ]
            return [o for _, _, o in sorted(found, key=lambda f: f[:2])]
        case AllOf():
            return conjunctions(node, story, leaves)
    raise AssertionError(node)


def conjunctions(node: AllOf, story: list[tuple[int, int]], leaves: list[Node]) -> list[Occurrence]:
    came = sorted(
        (
            (o.known, i, name, o)
            for i, (name, part) in enumerate(node.parts.items())
            for o in occurrences(part, story, leaves)
        ),
        key=lambda c: c[:2],
    )
    within = None if node.within is None else node.within // S
    matches: list[Occurrence] = []
    used = -1  # everything up to this one is in a match, or was passed over by one
    for position, (known, _, _, _) in enumerate(came):
        now = story[known][0]
        candidates = came[: position + 1] if node.reuse == "latest" else came[used + 1 : position + 1]
        latest = {name: o for _, _, name, o in candidates}
        if within is not None:
            latest = {name: o for name, o in latest.items() if now - o.first <= within}
        if len(latest) == len(node.parts):
            values = {name: latest[name].values for name in node.parts}
            matches.append(Occurrence(min(o.first for o in latest.values()), known, values))
            used = position
    return matches


def patterns() -> st.SearchStrategy[Any]:
    leaf = st.builds(Stream)
    windows = st.one_of(st.none(), st.integers(1, 6))
    names = st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")])

    def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        parts = names.flatmap(lambda ns: st.fixed_dictionaries({n: st.one_of(leaf, inner) for n in ns}))
        return st.one_of(
            st.builds(any_of, parts),
            st.builds(
                lambda p, w, r: all_of(p, within=w, reuse=r),
                parts,
                windows,
                st.sampled_from(["consume", "latest"]),
            ),
        )

    return st.recursive(wider(leaf), wider, max_leaves=4)


@given(patterns(), st.data())
@settings(max_examples=examples(400))
def test_random_patterns_give_the_matches_of_a_naive_evaluator(pattern: Any, data: st.DataObject) -> None:
    leaves = list(leaves_of(pattern))
    steps = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, len(leaves) - 1)), max_size=25))
    story, now = [], 0
    for pause, leaf in steps:
        now += pause
        story.append((now, leaf))
    machine = Correlator(pattern, start=0)
    found = [
        (n, match.values)
        for n, (at, leaf) in enumerate(story)
        for match in machine.offer(leaf, None, (at, leaf), at * S)
    ]
    assert found == [(o.known, o.values) for o in occurrences(pattern, story, leaves)]


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("ax")), max_size=30), st.integers(1, 5))
@settings(max_examples=examples(300))
def test_an_absence_is_found_exactly_when_none_came_in_the_window(
    steps: list[tuple[int, str]], within: int
) -> None:
    pattern = all_of(a=Stream(), no=none_of(x=Stream()), within=within)
    assert isinstance(pattern.parts["no"], NoneOf)
    machine = Correlator(pattern, start=0)
    story, now, found = [], 0, []
    for pause, kind in steps:
        now += pause
        story.append((now, kind))
        found += machine.offer("ax".index(kind), None, len(story) - 1, now * S)
    found += machine.advance((now + within) * S)
    expected = [
        n
        for n, (at, kind) in enumerate(story)
        if kind == "a" and not any(k == "x" and later < at + within for later, k in story[n + 1 :])
    ]
    assert [match.values["a"] for match in found] == expected
    assert all(match.at == (story[match.values["a"]][0] + within) * S for match in found)

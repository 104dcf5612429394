"""Intervals of texts that begin alike: an index finds those that hold a point, wherever they differ."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.filters.index import ranges
from heliograph.filters.index.ranges import RangeIndex
from tests.support import examples

PIECES = st.sampled_from(["", "a", "b", "\0", "é", "\U0001f600", "sensors/", "12345678", "x" * 16, "y" * 600])
TEXTS = st.lists(PIECES, max_size=5).map("".join)


class Numbered:
    def __init__(self, number: int) -> None:
        self.number = number


@settings(max_examples=examples(400))
@given(
    ends=st.lists(st.tuples(TEXTS, TEXTS).filter(lambda pair: pair[0] != pair[1]), max_size=12),
    open_ended=st.sets(st.integers(0, 11)),
    points=st.lists(TEXTS, min_size=1, max_size=8),
    few=st.integers(0, 3),
    as_bytes=st.booleans(),
)
def test_texts_with_a_common_beginning_are_found_by_what_follows_it(
    ends: list[tuple[str, str]], open_ended: set[int], points: list[str], few: int, *, as_bytes: bool
) -> None:
    def made(text: str) -> Any:
        return text.encode() if as_bytes else text

    intervals: dict[Numbered, tuple[Any, Any]] = {}
    for number, pair in enumerate(ends):
        low, high = map(made, sorted(pair))
        intervals[Numbered(number)] = (low, None if number in open_ended else high)
    index = RangeIndex()
    with mock.patch.object(ranges, "SEGMENTED", few):
        for entry, interval in intervals.items():
            index.add(*interval, entry)
        while True:
            for point in map(made, [*points, *(text for pair in ends for text in pair)]):
                found: list[Numbered] = []
                index.stab(point, found)
                expected = [
                    e
                    for e, (low, high) in intervals.items()
                    if low <= point and (high is None or point < high)
                ]
                assert sorted(found, key=lambda entry: entry.number) == expected
            if not intervals:
                break
            entry, interval = intervals.popitem()
            index.remove(*interval, entry)
    assert not index


@pytest.mark.parametrize("beginning", ["sensors/", "a long common beginning ", "é" * 200])
def test_prefixes_that_begin_alike_are_not_searched_one_by_one(beginning: str) -> None:
    index = RangeIndex()
    for number in range(1_000):
        index.add(f"{beginning}{number:06}/", f"{beginning}{number:06}0", Numbered(number))
    found: list[Numbered] = []
    with mock.patch.object(ranges, "_within", side_effect=AssertionError("searched in order")):
        index.stab(f"{beginning}000500/x", found)
    assert [entry.number for entry in found] == [500]

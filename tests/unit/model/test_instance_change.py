"""What the header of an event says of its instance is read back as it was said; all else is a sample."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.model.instance_change import CHANGE, Change, CoherentPart, change_of, said_of

SIZES = st.integers(1, 1_000_000)
PARTS = st.builds(
    lambda number, size, place, group: CoherentPart(number, place % size, size, group),
    st.integers(0, 1 << 40),
    SIZES,
    st.integers(0, 1 << 20),
    st.lists(st.tuples(st.integers(1, 999).map(str), SIZES), max_size=5).map(tuple),
)


@given(st.sampled_from(get_args(Change)), st.none() | PARTS)
def test_what_is_said_is_read(change: Change, part: CoherentPart | None) -> None:
    assert change_of({CHANGE: said_of(change, part)}) == (change, part)


@pytest.mark.parametrize(
    "said",
    ["", "hello", "set/1", "set/1/2/2", "set/a/0/1", "set/1/0/1/=3", "set/1/0/1/w=0", "set/1/0/9999999"],
)
def test_what_no_writer_says_is_a_sample(said: str) -> None:
    assert change_of({CHANGE: said}) == ("write", None)


@given(st.text(max_size=40))
def test_no_text_raises(said: str) -> None:
    change, part = change_of({CHANGE: said})
    assert change in get_args(Change)
    assert part is None or 0 <= part.place < part.size


def test_an_event_without_the_header_is_a_sample() -> None:
    assert change_of(None) == change_of({"traceparent": "x"}) == ("write", None)

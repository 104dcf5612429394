"""A condition, and what of it can be asked before an event has its place among the others."""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.routing.conditions import AnyCondition, ReceiverCondition
from heliograph.channel.selection import conditions_for, parsed
from heliograph.model.event import Header
from tests.support import examples


class Note(hg.Event, name="note"):
    n: int
    text: str = ""


KNOWN: Final = (
    "n > 3",
    "n / 0 = 1",
    "text LIKE 'a%'",
    "header.priority = 3",
    "header.supplier = 's'",
    "header.user['k'] = 'v'",
    "header.correlation_id IS NULL",
)
OF_THE_PLACE: Final = (
    "header.sequence > 3",
    "header.station_seq > 3",
    "header.source_ts > header.append_ts",
    "header.offset > 3",
    "header.partition = 'p'",
    "header.offset + n > 5",
)

texts = st.recursive(
    st.sampled_from([*KNOWN, *OF_THE_PLACE]),
    lambda inner: st.one_of(
        st.builds("NOT ({})".format, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda all_of: " AND ".join(f"({t})" for t in all_of)),
        st.lists(inner, min_size=2, max_size=3).map(lambda any_of: " OR ".join(f"({t})" for t in any_of)),
    ),
    max_leaves=6,
)
sources = st.sampled_from([None, frozenset({"s"}), frozenset({"t"})])
small = st.integers(0, 6)
headers = st.builds(
    Header,
    channel=st.just("c"),
    type=st.just("note"),
    supplier=st.sampled_from("st"),
    epoch=st.just(1),
    sequence=small,
    source_ts=small.map(lambda n: 1_000 * n),
    format_id=st.just(b"x" * 12),
    priority=st.sampled_from([2, 3]),
    key=st.just(()),
    station_seq=small,
    append_ts=st.none() | small.map(lambda n: 1_000 * n),
    partition=st.sampled_from([None, "p", "q"]),
    offset=st.none() | small,
    correlation_id=st.sampled_from([None, "k"]),
    headers=st.sampled_from([None, {"k": "v"}]),
)


def when(text: str, sources: frozenset[str] | None = None) -> ReceiverCondition:
    found = conditions_for([Note], parsed(text, None), sources)[Note]
    assert isinstance(found, ReceiverCondition)
    return found


def before_its_place(header: Header) -> Header:
    unknown: dict[str, Any] = dict.fromkeys(("sequence", "source_ts", "station_seq"), 0)
    return msgspec.structs.replace(header, **unknown, append_ts=None, partition=None, offset=None)


@settings(max_examples=examples(300))
@given(
    conditions=st.lists(st.builds(when, texts, sources), min_size=1, max_size=2),
    n=small,
    text=st.sampled_from(["", "ab"]),
    header=headers,
)
def test_it_holds_where_both_halves_do(
    conditions: list[ReceiverCondition], n: int, text: str, header: Header
) -> None:
    condition = conditions[0] if len(conditions) == 1 else AnyCondition(tuple(conditions))
    early, late = condition.split
    note = Note(n, text)
    halves = early.holds(note, before_its_place(header)) and late.holds(note, header)
    assert halves == condition.holds(note, header)


@pytest.mark.parametrize("text", KNOWN)
@pytest.mark.parametrize("of_the_place", OF_THE_PLACE)
def test_of_conditions_that_all_must_hold_only_those_wait_that_ask_for_the_place(
    text: str, of_the_place: str
) -> None:
    early, late = when(f"{of_the_place} AND {text}").split
    assert early.checked is not None
    assert late.checked is not None
    assert early.checked.node == getattr(when(text).checked, "node", None)
    assert late.checked.node == getattr(when(of_the_place).checked, "node", None)


@pytest.mark.parametrize("text", KNOWN)
def test_what_asks_for_nothing_else_is_asked_as_a_whole_before(text: str) -> None:
    condition = when(text, frozenset({"s"}))
    assert condition.split == (condition, ReceiverCondition())
    assert AnyCondition((condition, condition)).split == (
        AnyCondition((condition, condition)),
        ReceiverCondition(),
    )


@pytest.mark.parametrize("text", OF_THE_PLACE)
def test_of_alternatives_none_is_asked_before_if_one_cannot_be(text: str) -> None:
    either = when(f"{text} OR n > 3")
    assert either.split == (ReceiverCondition(), either)
    receivers = AnyCondition((when("n > 3"), when(text)))
    assert receivers.split == (ReceiverCondition(), receivers)


def test_a_condition_that_can_be_asked_before_does_not_hold_on_to_itself() -> None:
    """Without a filter it is none of the objects that the garbage collector looks at."""
    condition = ReceiverCondition()
    before = sys.getrefcount(condition)
    assert condition.split == (condition, ReceiverCondition())
    assert sys.getrefcount(condition) == before

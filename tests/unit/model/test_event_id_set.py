"""A set of event ids is exact as long as it has room, and refuses what it cannot tell apart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from heliograph.model.event import EventId
from heliograph.model.event_id_set import FULL_BYTES, PAGE, PAGE_BYTES, SUPPLIER_BYTES, EventIdSet
from tests.support import examples

SEQUENCES = st.integers(1, 3 * PAGE) | st.integers(1, 2**62)


class EventIds(RuleBasedStateMachine):
    """Beside a plain set, without a limit that is reached."""

    def __init__(self) -> None:
        super().__init__()
        self.model: set[EventId] = set()
        self.ids = EventIdSet(lambda: 0, limit=1 << 30)

    @rule(supplier=st.sampled_from("ab"), epoch=st.integers(1, 2), sequence=SEQUENCES)
    def add(self, supplier: str, epoch: int, sequence: int) -> None:
        event = EventId(supplier, epoch, sequence)
        assert self.ids.add(event) == ("known" if event in self.model else "new")
        self.model.add(event)

    @rule(supplier=st.sampled_from("ab"), first=st.integers(0, 3), pages=st.integers(1, 2))
    def add_whole_pages(self, supplier: str, first: int, pages: int) -> None:
        for sequence in range(max(1, first * PAGE), (first + pages) * PAGE):
            event = EventId(supplier, 1, sequence)
            assert (self.ids.add(event) == "known") == (event in self.model)
            self.model.add(event)

    @rule(supplier=st.sampled_from("ab"), sequence=SEQUENCES)
    def discard(self, supplier: str, sequence: int) -> None:
        self.ids.discard(EventId(supplier, 1, sequence))
        self.model.discard(EventId(supplier, 1, sequence))

    @rule()
    def dump_and_load(self) -> None:
        again = EventIdSet(lambda: 0, limit=1 << 30)
        again.load(self.ids.dump())
        assert again.bytes == self.ids.bytes
        self.ids = again

    @invariant()
    def holds_the_same(self) -> None:
        assert all(event in self.ids for event in self.model)


TestEventIds = EventIds.TestCase
TestEventIds.settings = settings(max_examples=examples(20), stateful_step_count=15, deadline=None)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40 * PAGE)), max_size=300))
@settings(max_examples=examples(100), deadline=None)
def test_with_little_room_nothing_is_new_twice_and_the_limit_holds(added: list[tuple[str, int]]) -> None:
    limit = 3 * SUPPLIER_BYTES + 5 * PAGE_BYTES
    ids = EventIdSet(lambda: 0, limit=limit)
    new: set[EventId] = set()
    for supplier, sequence in added:
        event = EventId(supplier, 1, sequence)
        if ids.add(event) == "new":
            assert event not in new
            new.add(event)
        assert ids.bytes <= limit


def test_a_supplier_without_holes_costs_the_same_however_long_it_goes_on() -> None:
    ids = EventIdSet(lambda: 0)
    for sequence in range(1, 20 * PAGE):
        assert ids.add(EventId("a", 1, sequence)) == "new"
    assert ids.bytes == SUPPLIER_BYTES
    assert ids.add(EventId("a", 1, 17)) == "known"


def test_a_hole_at_the_beginning_keeps_full_pages_cheap() -> None:
    ids = EventIdSet(lambda: 0)
    for sequence in range(2, 5 * PAGE):
        ids.add(EventId("a", 1, sequence))
    assert ids.bytes == SUPPLIER_BYTES + PAGE_BYTES + 4 * FULL_BYTES
    assert ids.add(EventId("a", 1, 1)) == "new"
    assert ids.bytes == SUPPLIER_BYTES


def test_what_is_older_than_the_lowest_page_is_too_old_and_said_to_be() -> None:
    ids = EventIdSet(lambda: 0, limit=SUPPLIER_BYTES + 2 * PAGE_BYTES)
    for page in range(4):
        assert ids.add(EventId("a", 1, page * PAGE + 1)) == "new"
    assert ids.add(EventId("a", 1, 5)) == "too old"
    assert ids.add(EventId("a", 1, 3 * PAGE + 1)) == "known"
    assert ids.add(EventId("a", 1, 3 * PAGE + 2)) == "new"


def test_a_full_set_takes_no_further_supplier_until_one_was_silent_for_long() -> None:
    now = [0]
    ids = EventIdSet(lambda: now[0], limit=2 * (SUPPLIER_BYTES + PAGE_BYTES), silence=10.0)
    assert ids.add(EventId("a", 1, 1)) == "new"
    now[0] = 5_000_000_000
    assert ids.add(EventId("b", 1, 1)) == "new"
    assert ids.add(EventId("c", 1, 1)) == "no room"
    now[0] = 11_000_000_000
    assert ids.add(EventId("c", 1, 1)) == "new"
    assert list(ids.suppliers()) == [("b", 1), ("c", 1)]


def test_pages_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="a page of 3 bytes"):
        EventIdSet(lambda: 0).load([("a", 1, 0, 0, [(0, b"abc")])])

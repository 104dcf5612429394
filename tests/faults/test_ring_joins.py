"""Readers that come and go while another process writes as fast as it can."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.faults.ring_process import check, ring_of, victim
from tests.ring_support import LIMIT, folder_for_a_test, needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.ring import RingFolder, RingReader

pytestmark = needs_rings
folder = pytest.fixture(folder_for_a_test)


def read_some(reader: RingReader) -> int:
    """Read what is there: each event is whole, and has the number that its sequence says."""
    events = reader.read_many(100, LIMIT)
    end = reader.next_sequence
    assert [check(data) for data in events] == list(range(end - len(events), end))
    return len(events)


def test_readers_that_join_under_load_get_everything_from_their_place_on(folder: RingFolder) -> None:
    with victim("writer", folder):
        for _ in range(examples(200)):
            with ring_of(folder, 1, reliable=True) as reader:
                began = reader.next_sequence
                received = sum(read_some(reader) for _ in range(5))
                assert reader.next_sequence == began + received
                assert reader.stats().lost == 0


def test_a_slow_best_effort_reader_gets_whole_events_and_counts_the_rest(folder: RingFolder) -> None:
    chance = random.Random(7)
    with victim("writer", folder), ring_of(folder, 1, reliable=False) as reader:
        began = reader.next_sequence
        while reader.stats().gaps < examples(30):
            read_some(reader)
            sum(range(chance.randrange(200_000)))  # be slow, without sleeping through a whole lap
        stats = reader.stats()
        assert stats.received + stats.lost == reader.next_sequence - began
        assert stats.lost > 0

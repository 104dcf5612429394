"""Nothing is lost on a lane, whatever the way does to batches."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.links.session.retransmission import (
    MAX_EARLY,
    MAX_UNACKED_BYTES,
    MAX_UNACKED_RECORDS,
    Batch,
    Inbox,
    Outbox,
)
from tests.support import examples


def let_through(inbox: Inbox[list[int]], came: Batch[list[int]]) -> list[int]:
    """The numbers that an inbox lets through when a batch comes."""
    numbers = [number for batch, skip in inbox.take(came) for number in batch.payload[skip:]]
    inbox.received += len(numbers)
    return numbers


def batch(first: int, *payload: int) -> Batch[list[int]]:
    return Batch(first, len(payload), list(payload))


def test_batches_are_numbered_densely_and_kept_until_acknowledged() -> None:
    outbox: Outbox[str] = Outbox()
    assert [outbox.add(2, "ab", 10).first, outbox.add(3, "cde", 10).first] == [1, 3]
    outbox.acknowledge(2)
    assert [kept.payload for kept in outbox.missing(1, 5)] == ["cde"]
    assert outbox.unacked == 3
    outbox.acknowledge(1)
    assert outbox.unacked == 3


def test_an_outbox_has_room_for_a_limited_number_of_records_and_bytes() -> None:
    for count, size in ((MAX_UNACKED_RECORDS, 1), (1, MAX_UNACKED_BYTES)):
        outbox: Outbox[str] = Outbox()
        outbox.add(count, "", size)
        had_room = outbox.has_room
        outbox.acknowledge(1)
        assert (had_room, outbox.has_room) == (False, True)


def test_a_batch_that_comes_early_waits_for_what_it_follows() -> None:
    inbox: Inbox[list[int]] = Inbox()
    assert let_through(inbox, batch(3, 3, 4)) == []
    assert inbox.wanted() == (1, 2)
    assert let_through(inbox, batch(1, 1, 2)) == [1, 2, 3, 4]
    assert inbox.wanted() is None
    assert (inbox.received, inbox.gaps) == (4, 1)


def test_a_batch_that_overlaps_is_let_through_without_its_known_part() -> None:
    inbox: Inbox[list[int]] = Inbox()
    let_through(inbox, batch(1, 1, 2))
    assert let_through(inbox, batch(2, 2, 3, 4)) == [3, 4]
    assert let_through(inbox, batch(1, 1, 2)) == []
    assert inbox.duplicates == 1


def test_a_lost_tail_is_wanted_once_it_has_been_heard_of() -> None:
    inbox: Inbox[list[int]] = Inbox()
    let_through(inbox, batch(1, 1))
    assert inbox.wanted() is None
    inbox.heard_of(7)
    assert inbox.wanted() == (2, 7)


def test_early_batches_are_kept_up_to_a_limit() -> None:
    inbox: Inbox[list[int]] = Inbox()
    for number in range(2, MAX_EARLY + 10):
        let_through(inbox, batch(number, number))
    assert let_through(inbox, batch(1, 1)) == list(range(1, MAX_EARLY + 2))
    assert inbox.wanted() == (MAX_EARLY + 2, MAX_EARLY + 9)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=20),
    seed=st.integers(0, 1 << 32),
    loss=st.floats(0, 0.7),
)
@settings(max_examples=examples(200))
def test_every_record_is_let_through_once_and_in_order(sizes: list[int], seed: int, loss: float) -> None:
    chance = random.Random(seed)
    outbox: Outbox[list[int]] = Outbox()
    inbox: Inbox[list[int]] = Inbox()
    through: list[int] = []
    on_the_way = [
        outbox.add(size, list(range(outbox.last + 1, outbox.last + 1 + size)), size) for size in sizes
    ]
    for _ in range(200):
        chance.shuffle(on_the_way)
        for sent in on_the_way:
            if chance.random() >= loss:
                for _ in range(chance.choice((1, 1, 2))):
                    through += let_through(inbox, sent)
        inbox.heard_of(outbox.last)
        outbox.acknowledge(inbox.received)
        wanted = inbox.wanted()
        on_the_way = [] if wanted is None else outbox.missing(*wanted)
        if wanted is None:
            break
    assert through == list(range(1, inbox.received + 1))
    assert inbox.received == outbox.last
    assert not outbox.unacked

"""A queue takes events in exactly while less than its bound in bytes waits, whatever their sizes are."""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.codec.sizes import size_of
from tests.support import examples

BOUND = 1 << 20
BATCH = 1 << 18
Step: TypeAlias = tuple[Literal["push", "push_many", "take", "take_all"], int, int]


class Note(hg.Event, name="property.note"):
    id: int
    text: str = ""


SIZES = st.sampled_from([8, 100, 512, 513, 1_100, 40_000, 300_000, BOUND - 1, BOUND, 3 * BOUND])
KINDS = st.sampled_from(["push", "push", "push_many", "take", "take_all"])
STEPS = st.tuples(KINDS, SIZES, st.integers(1, 40))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEPS, max_size=60), st.booleans())
def test_a_push_is_refused_if_and_only_if_the_bound_is_reached_by_what_waits(
    steps: list[Step], is_mixed: bool
) -> None:
    with hg.Station() as station:
        notes = station.channel("notes", Note, qos=hg.QoS(queue_bytes=BOUND, max_blocking=0.0))
        queue = notes.consumer(name="slow").queue
        waiting: deque[int] = deque()
        for what, size, count in steps:
            before = sum(waiting)
            if what in ("push", "push_many"):
                events = [Note(0, "x" * (size - 8)) for _ in range(count if what == "push_many" else 1)]
                if is_mixed and len(events) > 1:
                    events[0] = Note(0)
                pushed = len(events)
                try:
                    notes.push(events[0]) if what == "push" else notes.push_many(events)
                except hg.QueueFull as full:
                    pushed = full.pushed
                waiting += [size_of(event) for event in events[:pushed]]
                if pushed < len(events):
                    assert sum(waiting) >= BOUND, "it was refused, and there was room"
                if pushed:
                    assert before < BOUND
                    assert sum(waiting) - waiting[-1] < BOUND + (BATCH if what == "push_many" else 0)
            else:
                taken = queue.take(count if what == "take" else 1_000)
                while taken:
                    assert [size_of(item[0]) for item in taken] == [waiting.popleft() for _ in taken]
                    queue.done += len(taken)
                    queue.settle()
                    taken = queue.take() if what == "take_all" else []
            assert notes.stats().consumers["slow"].waiting_bytes == sum(waiting)
            assert len(queue) == len(waiting)
        assert notes.stats().balanced

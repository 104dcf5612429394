"""Who reads a link: a thread that is relieved in a callback, and the one that reads on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.channel.dispatch.pool import DispatchPool
from heliograph.channel.dispatch.reader_handover import (
    FIRST_PAUSE_NS,
    LONGEST_PAUSE_NS,
    RARELY,
    REMEMBERED_NS,
    HandedOver,
    Reader,
    SlowReceivers,
)
from heliograph.runtime.ports import SystemClock, ThreadTasks


def test_a_thread_that_was_relieved_takes_the_reading_from_nobody_when_its_callback_returns() -> None:
    readers: dict[int, Reader] = {}
    clock, tasks = SystemClock(), ThreadTasks()
    pool = DispatchPool(clock, tasks, callback_limit=30.0, readers=readers)
    reader = Reader("link", readers, clock, tasks)
    run: Any = SimpleNamespace(queue=SimpleNamespace(level=3))
    far_ahead = clock.monotonic_ns() + 3_600_000_000_000  # the watch finds no callback that takes long

    reader.begin()
    relieved = reader.worker
    pool.begin_run(reader, run, far_ahead)
    relieved.marks.pop()  # as the watch does when a callback takes long

    reader.begin()
    reading = reader.worker
    pool.begin_run(reader, run, far_ahead)
    with pytest.raises(HandedOver):
        pool.end_run(relieved)
    pool.end_run(reading)  # it still reads
    reader.end()
    pool.close()


class Receiver:
    """As much of one as is asked for how often it was called."""

    def __init__(self) -> None:
        self.progress = 0


def paused(slow: SlowReceivers, run: Any, now: int) -> int:
    """For how long workers have a receiver that has just cost a thread the reading."""
    slow.add(run, now)
    return slow.until[run] - now


def test_workers_have_a_receiver_twice_as_long_each_time_that_it_is_slow_again() -> None:
    slow = SlowReceivers()
    run: Any = Receiver()
    pauses = [paused(slow, run, n) for n in range(8)]
    assert pauses[:4] == [FIRST_PAUSE_NS, 2 * FIRST_PAUSE_NS, 4 * FIRST_PAUSE_NS, 8 * FIRST_PAUSE_NS]
    assert pauses[-1] == LONGEST_PAUSE_NS


def test_a_receiver_that_is_slow_once_in_a_while_is_left_to_workers_for_a_moment_only() -> None:
    slow = SlowReceivers()
    run: Any = Receiver()
    for n in range(20):
        run.progress = n * RARELY
        assert paused(slow, run, n) == FIRST_PAUSE_NS


def test_of_receivers_that_are_slow_no_more_nothing_is_kept() -> None:
    slow = SlowReceivers()
    run: Any = Receiver()
    paused(slow, run, 0)
    slow.forget(FIRST_PAUSE_NS)
    assert run in slow.until
    slow.forget(FIRST_PAUSE_NS + 1)
    assert run not in slow.until
    assert paused(slow, run, FIRST_PAUSE_NS + 2) == 2 * FIRST_PAUSE_NS
    slow.forget(2 * REMEMBERED_NS)
    assert paused(slow, run, 2 * REMEMBERED_NS) == FIRST_PAUSE_NS

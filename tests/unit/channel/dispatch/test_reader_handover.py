"""Who reads a link: a thread that is relieved in a callback, and the one that reads on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.channel.dispatch.pool import DispatchPool
from heliograph.channel.dispatch.reader_handover import HandedOver, Reader
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

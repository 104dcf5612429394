"""kill -9 at random instants: whoever lives goes on, gets only whole events, and nothing of the dead stays.

CI kills 20 times, `make fuzz` 400 times.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import RingClosed
from tests.faults.ring_process import check, event, large_event, ring_of, victim
from tests.ring_support import LIMIT, PORTS, folder_for_a_test, needs_rings
from tests.support import examples

if TYPE_CHECKING:
    import subprocess

    from heliograph.ring import RingFolder, RingReader

pytestmark = needs_rings
folder = pytest.fixture(folder_for_a_test)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(LIMIT)


def read_some(reader: RingReader, timeout: float) -> None:
    """Read what is there: each event is whole, and has the number that its sequence says."""
    events = reader.read_many(100, timeout)
    end = reader.next_sequence
    assert [check(data) for data in events] == list(range(end - len(events), end))


def read_to_the_end(reader: RingReader) -> str:
    """Read until nothing can come any more; returns why."""
    try:
        while True:
            read_some(reader, LIMIT)
    except RingClosed as end:
        return end.reason


@pytest.mark.parametrize("seed", range(examples(10)))
def test_a_killed_writer_leaves_whole_events_and_an_end(folder: RingFolder, seed: int) -> None:
    with (
        victim("writer", folder) as process,
        ring_of(folder, 1, reliable=True) as careful,
        ring_of(folder, 1, reliable=False) as casual,
    ):
        end = time.monotonic() + random.Random(seed).uniform(0, 0.05)
        while time.monotonic() < end:
            read_some(careful, 0)
        kill(process)
        # Nothing of the dead is in the folder, and what they wrote can still be read.
        assert folder.rings() == []
        assert list(folder.path.iterdir()) == []
        assert "process has ended" in read_to_the_end(careful)
        assert "process has ended" in read_to_the_end(casual)
        assert careful.stats().lost == 0
        assert casual.next_sequence == careful.next_sequence


def test_a_large_event_that_is_viewed_outlives_its_writer(
    folder: RingFolder,
) -> None:
    with victim("large", folder) as process, ring_of(folder, 1, reliable=True, reuse=True) as reader:
        (viewed,) = reader.read_many(9, LIMIT)
        first = reader.next_sequence - 1
        kill(process)
        assert reader.holds
        assert viewed == large_event(first)
        assert not reader.let_go()
        seen: list[bytes] = []
        reason = ""
        while not reason:
            try:
                seen += map(bytes, reader.read_many(9, LIMIT))
            except RingClosed as end:
                reason = end.reason
        assert "process has ended" in reason
        assert seen == [large_event(first + 1 + i) for i in range(len(seen))]
        assert reader.stats().lost == 0


def test_a_writer_that_is_killed_while_it_starts_leaves_nothing(folder: RingFolder) -> None:
    for delay in range(examples(6)):
        with victim("writer", folder) as process:
            time.sleep(0.05 + delay % 12 * 0.03)
            kill(process)
        folder.rings()
        assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize("seed", range(examples(10)))
def test_a_killed_reader_is_not_waited_for(folder: RingFolder, seed: int) -> None:
    chance = random.Random(seed)
    with folder.create(1, 0, PORTS, slots=256, lease=None, wait="spin") as writer:
        with victim("reader", folder) as process:
            end = time.monotonic() + LIMIT
            while not writer.stats().readers and time.monotonic() < end:
                time.sleep(0.001)
            end = time.monotonic() + chance.uniform(0, 0.05)
            n = 0
            while time.monotonic() < end:
                writer.append(event(n), LIMIT)
                n += 1
            kill(process)
        # More than a lap, with a lease that never ends: only the lock can tell that nobody is there.
        for i in range(n, n + 300):
            writer.append(event(i), LIMIT)
        writer.reap()
        stats = writer.stats()
        assert stats.readers == ()
        assert (stats.reaped, stats.revoked) == (1, 0)

"""A reader that sleeps looks a while for what it expects soon, and less and less often if that is in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from heliograph.errors import RingClosed
from heliograph.ring.reader import LINGER_NS
from heliograph.runtime.ports import Ports, SystemRandom, ThreadTasks
from tests.ring_support import folder_for_a_test, needs_rings, small_writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.ring import RingFolder, RingReader

pytestmark = needs_rings
folder = pytest.fixture(folder_for_a_test)


class Clock:
    """So late each time it is read that a second look is the last; what happens meanwhile can be given."""

    def __init__(self) -> None:
        self.reads = 0
        self.meanwhile: Callable[[], object] = int

    def monotonic_ns(self) -> int:
        self.reads += 1
        self.meanwhile()
        return self.reads * LINGER_NS * 2 // 3

    time_ns = monotonic_ns


def patient_reader(folder: RingFolder, clock: Clock) -> RingReader:
    ports = Ports(clock, ThreadTasks(), SystemRandom())
    return folder.open(folder.rings()[-1], ports, reliable=True, wait="block")


def lingers(reader: RingReader, clock: Clock) -> bool:
    """Whether it looks longer for what is expected soon; nothing comes."""
    before = clock.reads
    assert reader.read_many(9, 0) == []
    at_once, before = clock.reads - before, clock.reads
    assert reader.read_many(9, 0, soon=True) == []
    return clock.reads - before > at_once


def test_what_is_looked_for_in_vain_is_looked_for_less_often(folder: RingFolder) -> None:
    clock = Clock()
    with small_writer(folder), patient_reader(folder, clock) as reader:
        assert [n for n in range(20) if lingers(reader, clock)] == [0, 2, 6, 14]


def test_what_is_found_is_looked_for_again_at_once(folder: RingFolder) -> None:
    clock = Clock()
    with small_writer(folder) as writer, patient_reader(folder, clock) as reader:
        assert [n for n in range(6) if lingers(reader, clock)] == [0, 2]
        before = clock.reads
        clock.meanwhile = lambda: clock.reads == before + 2 and writer.append(b"answer")
        assert reader.read_many(9, 1, soon=True) == [b"answer"]
        clock.meanwhile = int
        assert reader.stats().sleeps == 0
        assert [n for n in range(3) if lingers(reader, clock)] == [0, 2]


def test_a_reader_that_was_closed_does_not_look(folder: RingFolder) -> None:
    with small_writer(folder):
        reader = patient_reader(folder, Clock())
        reader.close()
        with pytest.raises(RingClosed):
            reader.read_many(9, 0, soon=True)

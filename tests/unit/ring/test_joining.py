"""A reader takes its place while the writer is somewhere else in its work; the instants are made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from heliograph.errors import RingDamaged, RingFull
from heliograph.ring import joining
from heliograph.ring.layout import FREE, INTENT, MARKS, RELIABLE, ROWS
from tests.ring_support import folder_for_a_test, needs_rings, reader_of, small_writer

if TYPE_CHECKING:
    from heliograph.ring import RingFolder

pytestmark = needs_rings
folder = pytest.fixture(folder_for_a_test)
ROW = 63


def test_a_place_that_the_writer_is_about_to_write_over_is_not_taken(folder: RingFolder) -> None:
    """The writer has stored its intent and looked at the rows just before this reader's was there."""
    with small_writer(folder) as writer:
        segment = writer._segment
        segment.words[INTENT] = 100 + segment.slots
        assert joining.takes_place(segment, ROW, RELIABLE, 100)
        segment.words[INTENT] = 101 + segment.slots
        assert not joining.takes_place(segment, ROW, RELIABLE, 100)
        segment.words[ROWS + ROW * 8] = FREE


def test_a_reader_that_was_slow_to_join_begins_at_what_is_newest_then(
    folder: RingFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest_mark = joining._newest_mark
    with small_writer(folder) as writer:
        writer.append(b"before")
        marks = []

        def slow_the_first_time(words: memoryview) -> tuple[int, int]:
            marks.append(newest_mark(words))
            if len(marks) == 1:
                for i in range(100):
                    writer.append(b"%d" % i, timeout=0)
            return marks[-1]

        monkeypatch.setattr(joining, "_newest_mark", slow_the_first_time)
        with reader_of(folder) as reader:
            assert len(marks) > 1
            assert reader.next_sequence == 101
            writer.append(b"after", timeout=0)
            assert reader.read(0) == b"after"


def test_a_reader_joins_while_the_writer_waits_for_room_for_a_large_event(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as slow:
        for i in range(5):
            writer.append(b"%d" % i, timeout=0)
        with pytest.raises(RingFull):
            writer.append_many([bytes(writer.largest)] * 2, timeout=0)
        with reader_of(folder) as reader:
            assert reader.next_sequence == writer.stats().events
            slow.read_many(99, 0)
            writer.append(b"after", timeout=0)
            assert reader.read(0) == b"after"


def test_half_a_mark_is_not_taken_for_a_whole_one(folder: RingFolder) -> None:
    with small_writer(folder) as writer:
        for i in range(30):
            writer.append(b"%d" % i, timeout=0)
        assert joining._newest_mark(writer._words) > (0, 0)
        for at in range(MARKS, MARKS + 32, 4):
            writer._words[at] += 1000  # the position is new, the rest of the mark still old
        assert joining._newest_mark(writer._words) == (0, 0)
        with pytest.raises(RingDamaged, match="no place to begin"):
            reader_of(folder)
        assert writer.stats().readers == ()

"""Shared memory that another process of this user has scribbled on: found out, and never followed."""

from __future__ import annotations

import os
import random
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import RingDamaged, RingError
from heliograph.ring.layout import CLAIMED, COMMITTED, FIRST_SLOT, HEADER, HEADER_SIZE, MARKS, file_size
from tests.ring_support import folder_for_a_test, needs_rings, new_folder, reader_of, small_writer
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.ring import RingFolder, RingReader

pytestmark = needs_rings
folder = pytest.fixture(folder_for_a_test)

POSITION, SEQUENCE, SIZE, COUNT, CRC = 0, 8, 16, 20, 24


def scribble(reader: RingReader, at: int, value: bytes) -> None:
    reader._segment.memory[at : at + len(value)] = value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (POSITION, b"\x10"),
        (SEQUENCE, b"\x01"),
        (SIZE, b"\x05"),
        (SIZE, b"\xff\xff\xff\xff"),
        (COUNT, b"\x02"),
        (COUNT, b"\xff\xff\xff\xff"),
        (CRC, b"\x00\x00"),
        (HEADER_SIZE, b"X"),
    ],
    ids=["position", "sequence", "size", "endless size", "count", "endless count", "checksum", "body"],
)
@pytest.mark.parametrize("way", ["read", "pin"])
def test_a_damaged_record_is_reported_and_the_reader_goes_on_behind_it(
    folder: RingFolder, field: int, value: bytes, way: str
) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        writer.append(b"an event")
        before = bytes(reader._segment.memory[FIRST_SLOT + field : FIRST_SLOT + field + len(value)])
        assert before != value
        scribble(reader, FIRST_SLOT + field, value)
        take: Callable[[float], object] = getattr(reader, way)
        # A header that cannot be followed stays a wall for whoever begins at the mark before it.
        with pytest.raises(RingDamaged):
            take(0)
        scribble(reader, FIRST_SLOT + field, before)
        reader.read_many(9, 0)
        for i in range(40):
            writer.append(b"%d" % i, timeout=0)
            assert reader.read(0) == b"%d" % i
        writer.append(b"sound again", timeout=0)
        assert reader.read(0) == b"sound again"


def test_what_is_whole_before_the_damage_is_given_first(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        for data in (b"one", b"two", b"three"):
            writer.append(data)
        scribble(reader, FIRST_SLOT + 64 + HEADER_SIZE, b"X")
        assert reader.read_many(9, 0) == [b"one"]
        with pytest.raises(RingDamaged) as caught:
            reader.read(0)
        assert caught.value.lost == 2
        writer.append(b"four")
        assert reader.read(0) == b"four"
        assert (reader.stats().received, reader.stats().lost) == (2, 2)


def test_a_forged_batch_with_right_checksum_cannot_make_a_reader_take_much(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        writer.append(bytes(100))
        for count in (2, 25, 26, 1 << 31):
            body = b"\xff" * 100
            header = HEADER.pack(0, 0, 100, count, crc32c(body, count & 0xFFFFFFFF))
            scribble(reader, FIRST_SLOT, header + body)
            tracemalloc.start()
            with pytest.raises(RingDamaged):
                reader.read(0)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 64 * 1024
            reader._position = reader._sequence = 0


@pytest.mark.parametrize("word", [COMMITTED, CLAIMED])
def test_words_that_lie_lead_to_an_error_and_not_to_a_search_without_end(
    folder: RingFolder, word: int
) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        writer.append(b"an event")
        reader._words[word] = (1 << 64) - 1
        for at in range(MARKS, MARKS + 32):
            reader._words[at] = 7
        with suppress(RingError):
            assert reader.read(0) == b"an event"  # that one is there, whatever the word says
        with pytest.raises(RingError):
            reader.read(0)


@settings(max_examples=examples(150))
@given(seed=st.integers(0, 2**32), scribbles=st.integers(1, 8), reliable=st.booleans())
def test_random_damage_never_gives_an_event_that_was_not_written(
    seed: int, scribbles: int, reliable: bool
) -> None:
    """Errors are fine, and so is not hearing of what came last; a wrong event is not."""
    chance = random.Random(seed)
    folder = new_folder()
    written = {b"%d" % i * (i % 40) for i in range(60)}
    with small_writer(folder, lease=0.0) as writer, reader_of(folder, reliable=reliable) as reader:
        for i in range(60):
            with suppress(RingError):
                writer.append(b"%d" % i * (i % 40), timeout=0)
            if i % 20 == 10:
                for _ in range(scribbles):
                    at = chance.randrange(64, file_size(16))
                    scribble(reader, at, chance.randbytes(1))
            with suppress(RingError):
                assert written.issuperset(reader.read_many(5, 0))
    folder.path.rmdir()


def test_a_file_that_is_cut_short_is_refused_when_it_is_opened(folder: RingFolder) -> None:
    with small_writer(folder) as writer:
        os.truncate(writer.path, 9000)
        with pytest.raises(RingDamaged, match="9000 bytes"):
            reader_of(folder)
        os.truncate(writer.path, file_size(16))

"""One writer and its readers: what goes in comes out, room is waited for, and who falls behind is told."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import (
    EventTooLargeForRing,
    LeaseLost,
    NotPossible,
    RingClosed,
    RingFull,
    TooManyReaders,
)
from heliograph.ring.layout import MAX_READERS, REVOKED, ROW_PROCESS, ROW_STATE, ROWS
from heliograph.ring.reader import REUSED_FROM
from heliograph.ring.writer import MAX_BATCH
from tests.ring_support import (
    LIMIT,
    PORTS,
    Later,
    folder_for_a_test,
    needs_rings,
    open_files,
    reader_of,
    small_writer,
)
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.ring import RingFolder, RingReader, RingWriter

pytestmark = needs_rings
folder = pytest.fixture(folder_for_a_test)

SIXTEEN_SLOTS_OF_EVENTS = 16


def fill(writer: RingWriter, timeout: float = 0) -> int:
    """Append small events until the ring is full; returns how many went in."""
    n = 0
    while True:
        try:
            writer.append(n.to_bytes(8, "little"), timeout=timeout)
        except RingFull:
            return n
        n += 1


def test_every_reader_gets_every_event_in_order(folder: RingFolder) -> None:
    with small_writer(folder, slots=64) as writer, reader_of(folder) as first, reader_of(folder) as second:
        sent = [bytes([i]) * i for i in range(20)]
        sequences = [writer.append(event) for event in sent]
        assert sequences == list(range(20))
        for reader in (first, second):
            assert [reader.read(LIMIT) for _ in sent] == sent
            assert reader.read(0) is None


def test_a_reader_begins_with_what_is_written_after_it_was_opened(folder: RingFolder) -> None:
    with small_writer(folder) as writer:
        for i in range(40):  # more than a lap: nobody holds it back
            writer.append(b"%d" % i)
        with reader_of(folder) as reader:
            assert reader.next_sequence == 40
            writer.append(b"new")
            assert reader.read_many(10, LIMIT) == [b"new"]
            assert reader.stats().lost == 0


def test_the_short_way_into_a_ring_ends_where_readers_must_be_looked_at(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        assert not writer.put(b"first"), "nothing is claimed yet"
        assert writer.append(b"first") == 0
        assert reader.read_many(10, 0) == [b"first"]
        while writer.put(b"more"):
            assert reader.read_many(10, 0) == [b"more"]
        writer.append(b"last", 0)
        assert reader.read_many(10, 0) == [b"last"]
    assert not writer.put(b"closed")


def test_a_reader_that_drains_gives_what_is_there_and_ends(folder: RingFolder) -> None:
    with small_writer(folder, slots=64) as writer, reader_of(folder) as reader:
        for i in range(3):
            writer.append(b"%d" % i)
        reader.drain()
        writer.append(b"later")
        assert reader.read_many(3, LIMIT) == [b"0", b"1", b"2"]
        reader.read_many(1, LIMIT)  # what was copied together with the others
        with pytest.raises(RingClosed):
            reader.read_many(1, LIMIT)


def test_draining_lets_go_of_whoever_waits(folder: RingFolder) -> None:
    with small_writer(folder), reader_of(folder) as reader:
        threading.Timer(0.02, reader.drain).start()
        with pytest.raises(RingClosed):
            reader.read(LIMIT)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 96, 97, 480])
def test_an_event_takes_as_many_slots_as_it_needs(folder: RingFolder, size: int) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        for i in range(50):
            event = bytes([i]) * size
            writer.append(event, timeout=0)
            assert reader.read(0) == event


def test_events_that_do_not_fit_into_half_the_ring_are_refused_and_nothing_is_written(
    folder: RingFolder,
) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        assert writer.largest == 8 * 64 - 32
        with pytest.raises(EventTooLargeForRing) as caught:
            writer.append(bytes(writer.largest + 1))
        assert caught.value.limit == writer.largest
        with pytest.raises(EventTooLargeForRing):
            writer.append_many([b"small"] * 10 + [bytes(writer.largest + 1)])
        writer.append(bytes(writer.largest), timeout=0)
        assert reader.read(0) == bytes(writer.largest)


def test_parts_are_joined_in_the_ring_whatever_their_items_are(folder: RingFolder) -> None:
    array = np.arange(30, dtype=np.float64).reshape(5, 6)
    with small_writer(folder) as writer, reader_of(folder) as reader:
        writer.append_parts((b"head", array.data, bytearray(b""), np.empty((0, 3)).data))
        assert reader.read(LIMIT) == b"head" + array.tobytes()
        writer.append(array.data)
        assert reader.read(LIMIT) == array.tobytes()


def test_a_batch_is_one_record_and_comes_out_as_its_events(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        assert writer.append_many([b"a", b"", bytearray(b"ccc")]) == 0
        assert writer.append_many([b"d"]) == 3
        assert reader.read_many(2, LIMIT) == [b"a", b""]
        assert reader.next_sequence == 2
        assert reader.read_many(9, LIMIT) == [b"ccc", b"d"]
        assert writer.append_many([]) == 4


def test_a_batch_that_is_too_long_for_one_record_becomes_several(folder: RingFolder) -> None:
    sent = [b"%d" % i for i in range(MAX_BATCH + 10)]
    with small_writer(folder, slots=4096) as writer, reader_of(folder) as reader:
        writer.append_many(sent)
        got: list[bytes] = []
        while len(got) < len(sent):
            got += reader.read_many(1000, LIMIT)
        assert got == sent


def test_a_full_ring_keeps_what_a_reliable_reader_has_not_read(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        assert fill(writer) == SIXTEEN_SLOTS_OF_EVENTS
        with pytest.raises(RingFull) as caught:
            writer.append(b"one more", timeout=0.01)
        assert caught.value.reader == os.getpid()
        assert caught.value.waited >= 0.01
        assert [int.from_bytes(e, "little") for e in reader.read_many(99, 0)] == list(range(16))
        writer.append(b"room again", timeout=0)


def test_a_batch_that_stops_for_want_of_room_says_how_much_went_in(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        with pytest.raises(RingFull) as caught:
            writer.append_many([b"%03d" % i + bytes(97) for i in range(20)], timeout=0)
        went_in = caught.value.appended
        got = reader.read_many(99, 0)
        assert 0 < went_in < 20
        assert [event[:3] for event in got] == [b"%03d" % i for i in range(went_in)]


def test_a_waiting_writer_goes_on_as_soon_as_a_reader_makes_room(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        fill(writer)
        thread = threading.Thread(target=writer.append, args=(b"waited", LIMIT))
        thread.start()
        got = reader.read_many(16, LIMIT)
        got += reader.read_many(16, LIMIT)
        thread.join(LIMIT)
        assert got[-1] == b"waited"


def test_a_reader_that_has_closed_is_not_waited_for(folder: RingFolder) -> None:
    with small_writer(folder) as writer:
        reader = reader_of(folder)
        fill(writer)
        reader.close()
        writer.append(b"no wait", timeout=0)
        assert writer.stats().readers == ()


def test_threads_share_a_writer(folder: RingFolder) -> None:
    with small_writer(folder, slots=1024) as writer, reader_of(folder) as reader:

        def push(mark: int) -> None:
            for i in range(500):
                writer.append(bytes([mark]) + i.to_bytes(2, "little"), LIMIT)

        threads = [threading.Thread(target=push, args=(mark,)) for mark in range(4)]
        for thread in threads:
            thread.start()
        got: list[bytes] = []
        while len(got) < 2000:
            got += reader.read_many(100, LIMIT)
        for thread in threads:
            thread.join(LIMIT)
        for mark in range(4):
            own = [int.from_bytes(e[1:], "little") for e in got if e[0] == mark]
            assert own == list(range(500))


def test_a_best_effort_reader_never_holds_the_writer_and_counts_what_it_missed(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder, reliable=False) as reader:
        writer.append(b"seen", timeout=0)
        assert reader.read(0) == b"seen"
        for i in range(100):
            writer.append(b"%d" % i, timeout=0)
        assert reader.read(0) is None
        writer.append(b"after", timeout=0)
        assert reader.read(0) == b"after"
        stats = reader.stats()
        assert (stats.received, stats.lost, stats.gaps) == (2, 100, 1)


def test_a_best_effort_reader_is_waited_for_if_the_writer_asks_until_it_has_lost_its_place(
    folder: RingFolder,
) -> None:
    with small_writer(folder) as writer, reader_of(folder, reliable=False) as reader:
        quarter = writer.largest // 2 - 16  # and its header
        for _ in range(3):
            assert writer.wait_for_best_effort(quarter, 0)
            writer.append(bytes(quarter))
        assert not writer.wait_for_best_effort(quarter, 0), "nothing would be left for what comes next"
        assert writer.outruns(quarter) == set()
        writer.append(bytes(quarter))
        assert writer.outruns(quarter) == {reader.row}
        waiting = threading.Thread(target=reader.read_many, args=(4, LIMIT))
        waiting.start()
        assert writer.wait_for_best_effort(quarter, LIMIT), "it goes on as soon as there is room"
        waiting.join(LIMIT)
        for _ in range(5):
            writer.append(bytes(quarter))
        assert writer.outruns(quarter) == {reader.row}
        assert writer.wait_for_best_effort(quarter, LIMIT), "it has nothing more to lose"
        assert reader.read(0) is None
        assert writer.outruns(quarter) == set(), "it has gone on"


def test_a_reliable_reader_that_outstays_its_lease_is_told_exactly_what_it_lost(folder: RingFolder) -> None:
    with small_writer(folder, lease=0.01) as writer, reader_of(folder) as reader:
        writer.append(b"seen")
        assert reader.read(0) == b"seen"
        for i in range(40):
            writer.append(b"%d" % i, timeout=LIMIT)
        with pytest.raises(LeaseLost) as caught:
            reader.read(0)
        assert (caught.value.first, caught.value.lost) == (1, 40)
        assert writer.stats().revoked == 1
        writer.append(b"after")
        assert reader.read(0) == b"after"
        assert (reader.stats().received, reader.stats().lost) == (2, 40)
        assert writer.stats().readers[0].is_reliable


def test_a_reader_that_was_given_up_but_not_overtaken_loses_nothing(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        writer.append(b"kept")
        reader._words[ROWS + ROW_STATE] = REVOKED
        assert reader.read(0) == b"kept"
        assert fill(writer) == SIXTEEN_SLOTS_OF_EVENTS
        assert len(reader.read_many(99, 0)) == SIXTEEN_SLOTS_OF_EVENTS
        assert reader.stats().lost == 0


def ending_writer(folder: RingFolder, told: list[tuple[int, list[bytes]]]) -> RingWriter:
    """One that ends whoever holds it up, at once."""
    writer = small_writer(folder, lease=0.0)
    writer.on_ended = lambda _row, first, unread: told.append((first, unread))
    return writer


def test_who_is_ended_did_not_get_what_the_owner_of_the_writer_was_told(folder: RingFolder) -> None:
    told: list[tuple[int, list[bytes]]] = []
    with ending_writer(folder, told) as writer, reader_of(folder) as reader:
        writer.append(b"seen")
        assert reader.read(0) == b"seen"
        written = fill(writer)
        assert not told, "who has no time to wait ends nobody"
        assert fill(writer, LIMIT) == 0
        assert told == [(1, [i.to_bytes(8, "little") for i in range(written)])]
        writer.append(b"after")
        with pytest.raises(LeaseLost) as caught:
            reader.read(0)
        assert (caught.value.first, caught.value.lost) == (1, written)
        assert (reader.stats().received, reader.stats().lost) == (1, written)
        with pytest.raises(RingClosed):
            reader.read(0)
        assert not writer.is_read_by(reader.row)


def test_several_who_stand_still_are_waited_for_together(folder: RingFolder) -> None:
    ended: list[int] = []
    with small_writer(folder, lease=3_600.0) as writer, ExitStack() as stack:
        writer.on_ended = lambda row, _first, _unread: ended.append(row)
        later = Later.of(writer)
        readers = [stack.enter_context(reader_of(folder)) for _ in range(4)]
        for reader in readers:  # each stands elsewhere
            writer.append(b"event")
            for one in readers[readers.index(reader) + 1 :]:
                assert one.read(0) == b"event"
        fill(writer)
        later.by_ns = 3_600 * 10**9
        for n in range(len(readers)):
            fill(writer, LIMIT)
            assert ended == [reader.row for reader in readers[: n + 1]]


def test_a_reader_is_not_taken_for_one_that_stands_still_because_there_was_nothing_to_read(
    folder: RingFolder,
) -> None:
    with small_writer(folder, lease=3_600.0) as writer, reader_of(folder) as slow, reader_of(folder) as idle:
        later = Later.of(writer)
        fill(writer)
        assert len(idle.read_many(99, 0)) == SIXTEEN_SLOTS_OF_EVENTS
        fill(writer)
        later.by_ns = 3_600 * 10**9
        writer.append(b"event", timeout=LIMIT)
        assert not writer.is_read_by(slow.row)
        assert writer.is_read_by(idle.row)
        fill(writer)
        assert writer.is_read_by(idle.row), "its lease begins when it has something to read"


def test_who_is_hurried_is_ended_as_soon_as_it_holds_the_writer_up_and_not_before(folder: RingFolder) -> None:
    ended: list[int] = []
    with small_writer(folder, lease=3_600.0) as writer, reader_of(folder) as reader:
        writer.on_ended = lambda row, _first, _unread: ended.append(row)
        writer.hurry(reader.row)
        fill(writer)
        assert len(reader.read_many(99, 0)) == SIXTEEN_SLOTS_OF_EVENTS, "it may still read"
        fill(writer)
        assert not ended
        with pytest.raises(RingFull):
            writer.append(b"event", timeout=LIMIT)
        assert ended == [reader.row]


def test_a_writer_that_waits_already_hears_that_it_need_not(folder: RingFolder) -> None:
    with small_writer(folder, lease=3_600.0) as writer, reader_of(folder) as reader:
        fill(writer)
        hurry = threading.Timer(0.05, writer.hurry, (reader.row,))
        hurry.start()
        writer.append(b"event", timeout=LIMIT)
        hurry.join()
        assert not writer.is_read_by(reader.row)


@pytest.mark.parametrize("lone", [True, False])
@pytest.mark.parametrize("sees", [True, False])
def test_what_is_read_as_the_lease_ends_counts_for_both_or_for_none(
    folder: RingFolder, *, lone: bool, sees: bool
) -> None:
    """The writer looks at the cursor right before it moves, or right after."""
    told: list[tuple[int, list[bytes]]] = []
    with ending_writer(folder, told) as writer, reader_of(folder) as reader:
        events = [b"%d" % i for i in range(1 if lone else 3)]
        for event in events:
            writer.append(event)
        words, on_ended = reader._words, writer.on_ended

        class Words:
            """As the reader sees them; the writer ends it as the cursor moves."""

            def __getitem__(self, at: int) -> int:
                return words[at]

            def __setitem__(self, at: int, value: int) -> None:
                if at == reader._cursor_at and not told:
                    if sees:
                        words[at] = value
                    assert on_ended is not None
                    on_ended(reader.row, *writer._end(reader.row))
                words[at] = value

        reader._words = cast("memoryview", Words())
        read = reader.read_many(9, 0) if sees else []
        if sees:
            writer.append(b"after")
        with pytest.raises(LeaseLost) as caught:
            reader.read_many(9, 0)
        assert read + told[0][1] == events
        assert (caught.value.first, caught.value.lost) == (len(read), len(events) - len(read))
        reader._words = words


def test_whenever_a_reader_is_ended_nothing_is_lost_that_was_not_told(folder: RingFolder) -> None:
    for patience in range(10):
        told: list[tuple[int, list[bytes]]] = []
        seen: list[bytes] = []
        with ending_writer(folder, told) as writer, reader_of(folder) as reader:

            def read() -> None:
                with suppress(LeaseLost, RingClosed):
                    while True:
                        seen.extend(reader.read_many(1 + patience % 5, LIMIT))  # noqa: B023 - ends with its turn

            reading = threading.Thread(target=read)
            reading.start()
            for i in range(1_000):
                with suppress(RingFull):
                    writer.append(b"%d" % i, timeout=0.0001)
                if told:
                    break
            if not told:
                writer.close()
            reading.join(LIMIT)
            written = seen + (told[0][1] if told else [])
            assert written == sorted(written, key=int)
            assert len(written) == writer.sequence


def test_a_pinned_event_stays_where_it_is_until_it_is_released(folder: RingFolder) -> None:
    array = np.arange(20, dtype=np.int64)
    with small_writer(folder) as writer, reader_of(folder) as reader:
        writer.append_parts((array.data,))
        pinned = reader.pin(0)
        assert pinned is not None
        seen = np.frombuffer(pinned.parts[0], np.int64)
        assert not seen.flags.writeable
        written = fill(writer)
        assert 0 < written < SIXTEEN_SLOTS_OF_EVENTS
        assert (seen == array).all()
        assert len(reader.read_many(99, 0)) == written
        assert fill(writer) == 0  # slots are used in turn: one that is pinned holds up all behind it
        with pytest.raises(NotPossible, match="still uses"):
            pinned.release()
        del seen
        pinned.release()
        reader.read_many(99, 0)
        assert fill(writer) == SIXTEEN_SLOTS_OF_EVENTS


def test_an_event_that_is_built_where_it_lies_is_read_like_any_other(folder: RingFolder) -> None:
    """By readers that copy and by those that pin, between events that were copied in."""
    with (
        small_writer(folder) as writer,
        reader_of(folder) as copying,
        reader_of(folder) as pinning,
        reader_of(folder, reliable=False) as looking,
    ):
        for lap in range(40):
            writer.append(b"before")
            with writer.lend(100) as room:
                room[:] = bytes([lap]) * 100
            writer.append_many([b"a", b"bc"])
            expected = [b"before", bytes([lap]) * 100, b"a", b"bc"]
            assert copying.read_many(9, 0) == expected
            assert looking.read_many(9, 0) == expected
            seen: list[bytes] = []
            while len(seen) < 4:
                with pinning.pin(0) as pinned:  # type: ignore[union-attr]  # it is there
                    seen += [bytes(part) for part in pinned.parts]
            assert seen == expected


def test_lent_room_is_no_event_before_the_end_of_the_block_or_when_that_raises(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        with writer.lend(10) as room:
            room[:] = b"0123456789"
            assert reader.read(0) is None
        assert reader.read(0) == b"0123456789"
        with pytest.raises(ValueError, match="no more"), writer.lend(10):
            raise ValueError("no more")
        with pytest.raises(NotPossible, match="still uses it"), writer.lend(8) as room:
            kept = np.frombuffer(room, np.int64)
        assert reader.read(0) is None
        del kept
        writer.append(b"next")
        assert reader.read(0) == b"next"
        with pytest.raises(EventTooLargeForRing), writer.lend(1 << 20):
            pass


def test_who_joins_behind_an_event_that_was_built_where_it_lies_finds_its_feet(folder: RingFolder) -> None:
    with small_writer(folder) as writer:
        with writer.lend(100) as room:
            room[:] = bytes(100)
        with reader_of(folder) as reader:
            assert reader.next_sequence == 1
            writer.append(b"next")
            assert reader.read(0) == b"next"


def test_pins_may_be_released_in_any_order(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        writer.append_many([b"one", b"two"])
        writer.append(b"three")
        first, second = reader.pin(0), reader.pin(0)
        assert first is not None
        assert second is not None
        assert [bytes(part) for part in first.parts] == [b"one", b"two"]
        assert (first.sequence, second.sequence) == (0, 2)
        second.release()
        assert fill(writer) == SIXTEEN_SLOTS_OF_EVENTS - 2
        first.release()
        assert fill(writer) == 2


def test_copies_that_wait_come_out_of_pin_too(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        writer.append_many([b"one", b"two"])
        assert reader.read(0) == b"one"
        with reader.pin(0) as pinned:  # type: ignore[union-attr] # it is there
            assert pinned.sequence == 1
            assert bytes(pinned.parts[0]) == b"two"


def test_a_pin_that_outlived_the_lease_says_so_when_it_is_released(folder: RingFolder) -> None:
    with small_writer(folder, lease=0.01) as writer, reader_of(folder) as reader:
        writer.append(b"pinned")
        pinned = reader.pin(0)
        assert pinned is not None
        for _ in range(40):
            writer.append(b"later", timeout=LIMIT)
        with pytest.raises(LeaseLost) as caught:
            pinned.release()
        assert (caught.value.first, caught.value.lost) == (0, 1)
        with pytest.raises(LeaseLost) as caught:
            reader.read(0)
        assert (caught.value.first, caught.value.lost) == (1, 40)


def test_best_effort_readers_cannot_pin(folder: RingFolder) -> None:
    with (
        small_writer(folder),
        reader_of(folder, reliable=False) as reader,
        pytest.raises(NotPossible, match="reliable=True"),
    ):
        reader.pin(0)


def test_what_is_in_a_closed_ring_is_read_before_its_end_is_told(folder: RingFolder) -> None:
    writer = small_writer(folder)
    with reader_of(folder) as reader:
        writer.append(b"last")
        writer.close()
        assert reader.read(0) == b"last"
        with pytest.raises(RingClosed, match="closed"):
            reader.read(LIMIT)
    for call in (lambda: writer.append(b"x"), lambda: writer.append_many([b"x"]), writer.stats):
        with pytest.raises(RingClosed):
            call()
    writer.close()


def large_reader(folder: RingFolder, *, reliable: bool = True) -> RingReader:
    return folder.open(folder.rings()[-1], PORTS, reliable=reliable, wait="block", reuse=True)


def holds(reader: RingReader) -> bool:
    return reader.holds


def read_all(reader: RingReader) -> list[bytes]:
    """What is there, each large event by itself."""
    seen: list[bytes] = []
    while given := reader.read_many(9, 0):
        assert len(given) == 1 or not any(isinstance(one, memoryview) for one in given)
        seen += map(bytes, given)
    return seen


sizes = st.one_of(
    st.integers(0, 600),
    st.integers(REUSED_FROM - 70, REUSED_FROM + 70),
    st.integers(2 * REUSED_FROM - 40, 2 * REUSED_FROM - 32),
)


@settings(max_examples=examples(40))
@given(
    steps=st.lists(
        st.tuples(sizes, st.sampled_from(["append", "parts", "unsummed", "lend"]), st.booleans()), max_size=20
    )
)
def test_events_of_any_size_are_read_as_they_were_written_however_and_wherever_they_lie(
    steps: list[tuple[int, str, bool]],
) -> None:
    """Of up to half of the ring, around its end, by readers that copy and by one that does not."""
    with ExitStack() as stack:
        folder = stack.enter_context(contextmanager(folder_for_a_test)())
        writer = stack.enter_context(small_writer(folder, slots=REUSED_FROM >> 4))
        assert writer.largest == 2 * REUSED_FROM - 32
        looking = stack.enter_context(large_reader(folder, reliable=False))
        waiting = [stack.enter_context(large_reader(folder)), stack.enter_context(reader_of(folder))]
        unread: list[bytes] = []
        for number, (size, how, reads) in enumerate(steps):
            event = (number + 1).to_bytes(1, "little") * size
            try:
                write(writer, event, how)
            except RingFull:
                assert [read_all(reader) for reader in waiting] == [unread] * 2
                unread = []
                write(writer, event, how)
            unread.append(event)
            assert read_all(looking) == [event]
            if reads:
                assert [read_all(reader) for reader in waiting] == [unread] * 2
                unread = []
        assert [read_all(reader) for reader in waiting] == [unread] * 2
        assert [reader.stats().lost for reader in (looking, *waiting)] == [0, 0, 0]


def write(writer: RingWriter, event: bytes, how: str) -> None:
    half = memoryview(event)[: len(event) // 2], memoryview(event)[len(event) // 2 :]
    match how:
        case "append":
            writer.append(event, timeout=0)
        case "lend":
            with writer.lend(len(event), timeout=0) as room:
                room[:] = event
        case _:
            writer.append_parts(half, timeout=0, summed=how == "parts")


def test_a_large_event_keeps_its_place_until_it_is_let_go_or_the_next_one_is_read(folder: RingFolder) -> None:
    first, second, third = (os.urandom(2 * REUSED_FROM - 32) for _ in range(3))
    with small_writer(folder, slots=REUSED_FROM >> 4) as writer, large_reader(folder) as reader:
        writer.append_parts((first,), summed=False)
        (given,) = reader.read_many(9, LIMIT)
        assert holds(reader)
        writer.append(second, timeout=0)
        with pytest.raises(RingFull):
            writer.append(third, timeout=0)
        assert given == first
        assert not reader.let_go()
        assert not holds(reader)
        writer.append(third, timeout=0)
        assert reader.read(0) == second
        assert reader.read_many(9, 0) == [third]
        assert reader.copied() == third
        assert not holds(reader)
        assert reader.read(0) is None
        assert reader.stats().received == 3


def test_a_large_event_that_somebody_still_views_is_let_go_and_that_is_told(folder: RingFolder) -> None:
    half = 2 * REUSED_FROM - 32
    with small_writer(folder, slots=REUSED_FROM >> 4) as writer, large_reader(folder) as reader:
        writer.append(bytes(half))
        (given,) = reader.read_many(9, LIMIT)
        kept = np.frombuffer(memoryview(given)[8:], np.int64)
        assert reader.let_go()
        for _ in range(2):
            writer.append(b"\1" * half, timeout=0)
        assert kept[0] == 0x0101010101010101, "it shows what lies there now"


@pytest.mark.parametrize("written_over", [False, True])
def test_a_large_event_whose_reader_was_ended_meanwhile_counts_as_lost(
    folder: RingFolder, *, written_over: bool
) -> None:
    told: list[tuple[int, int]] = []
    half = bytes(2 * REUSED_FROM - 32)
    with (
        small_writer(folder, slots=REUSED_FROM >> 4, lease=3_600.0) as writer,
        large_reader(folder) as reader,
    ):
        later = Later.of(writer)
        writer.on_ended = lambda _row, first, unread: told.append((first, len(unread)))
        writer.append(b"before")
        assert reader.read_many(9, 0) == [b"before"]
        writer.append(half)
        assert reader.read_many(9, 0) == [half]
        for timeout, ended in ((0, []), (LIMIT, [(1, 1)])):
            with pytest.raises(RingFull):
                writer.append(half, timeout=timeout)
            assert told == ended
            later.by_ns = 3_600 * 10**9
        if written_over:
            writer.append(half)
            writer.append(half)
        for what_says_so in (reader.let_go, partial(reader.read, 0)):
            with pytest.raises(LeaseLost) as caught:
                what_says_so()
            assert (caught.value.first, caught.value.lost) == (1, 1)
        assert reader.was_ended
        assert (reader.stats().received, reader.stats().lost) == (1, 1)


def test_a_best_effort_reader_gets_each_large_event_whole_where_the_last_one_was(folder: RingFolder) -> None:
    with (
        small_writer(folder, slots=1 << 14) as writer,
        large_reader(folder, reliable=False) as reader,
    ):
        writer.append_parts((b"1" * REUSED_FROM,), summed=False)
        (before,) = reader.read_many(9, LIMIT)
        assert before == b"1" * REUSED_FROM
        assert not holds(reader)
        writer.append(bytes(REUSED_FROM))
        assert reader.read_many(9, LIMIT) == [before] == [bytes(REUSED_FROM)], "it lies where that lay"


def test_a_closed_reader_says_so_however_it_is_asked(folder: RingFolder) -> None:
    with small_writer(folder):
        reader = reader_of(folder)
        reader.close()
        for call in (lambda: reader.read(0), lambda: reader.read_many(9, 0)):
            with pytest.raises(RingClosed, match="this reader was closed"):
                call()


def test_closing_lets_go_of_a_thread_that_waits_for_room(folder: RingFolder) -> None:
    writer = small_writer(folder)
    with reader_of(folder) as reader:
        fill(writer)
        task = PORTS.tasks.spawn("waits for room", lambda: writer.append(b"never"))
        writer.close()
        with pytest.raises(RingClosed):
            task.join(LIMIT)
        assert len(reader.read_many(99, 0)) == SIXTEEN_SLOTS_OF_EVENTS


def test_a_waiting_reader_can_be_interrupted(folder: RingFolder) -> None:
    with small_writer(folder), reader_of(folder) as reader:
        caught: list[BaseException] = []

        def wait() -> None:
            try:
                reader.read()
            except RingClosed as error:
                caught.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        reader.interrupt()
        thread.join(LIMIT)
        assert len(caught) == 1


def test_a_reader_too_many_is_refused_and_takes_nothing(folder: RingFolder) -> None:
    with small_writer(folder):
        readers = [reader_of(folder, reliable=False) for _ in range(MAX_READERS)]
        open_before = open_files(folder)
        assert open_before
        with pytest.raises(TooManyReaders):
            reader_of(folder)
        assert open_files(folder) == open_before
        for reader in readers:
            reader.close()
        reader_of(folder).close()


def test_a_row_of_a_dead_reader_is_freed_though_its_process_id_is_in_use_again(folder: RingFolder) -> None:
    with small_writer(folder) as writer:
        dead = reader_of(folder)
        fill(writer)
        # What is left of a killed process: its row as it was, its locks gone. The id is that of a living one.
        dead._words[ROWS + ROW_PROCESS] = os.getppid()
        dead.abandon()
        writer.append(b"goes on", timeout=0)
        assert writer.stats().reaped == 1


def test_a_place_is_free_again_though_a_forked_child_has_a_copy_of_the_descriptor(folder: RingFolder) -> None:
    with small_writer(folder) as writer:
        reader = reader_of(folder)
        copy = os.dup(reader._segment.descriptor)
        reader.close()
        with reader_of(folder):
            assert [seen.row for seen in writer.stats().readers] == [0]
        os.close(copy)


def test_a_cursor_that_no_reader_can_have_takes_the_row_its_say(folder: RingFolder) -> None:
    with small_writer(folder) as writer, reader_of(folder) as reader:
        fill(writer)
        reader._words[reader._cursor_at] = 1 << 63
        writer.append(b"goes on", timeout=0)
        assert writer.stats().revoked == 1


def test_rings_of_one_station_are_told_apart_by_lane_and_incarnation(folder: RingFolder) -> None:
    with small_writer(folder), small_writer(folder), folder.create(1, 5, PORTS, slots=16):
        names = folder.rings()
        assert [name.lane for name in names] == [0, 0, 5]
        assert len({name.incarnation for name in names}) == 3
    assert folder.rings() == []


def test_a_folder_that_was_taken_away_has_no_rings(folder: RingFolder) -> None:
    folder.path.rmdir()
    assert folder.rings() == []
    folder.path.mkdir(mode=0o700)

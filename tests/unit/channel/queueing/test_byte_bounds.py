"""Queues and histories are bounded in bytes as they are in events."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray  # noqa: TC002 - annotations of events are read at run time

import heliograph as hg
from heliograph.channel.queueing.queue import TAKEN_BYTES
from heliograph.codec.sizes import size_of
from tests.e2e.link_support import wait_until

KIB = 1 << 10
LIMIT = 20.0


class Note(hg.Event, name="bytes.note", key="id"):
    id: int
    text: str = ""


class Frame(hg.Event, name="bytes.frame", key="id"):
    id: int
    pixels: Annotated[NDArray[np.uint8], hg.Shape(KIB)]


class Point(hg.Event, name="bytes.point"):
    id: int


def note(number: int, size: int = KIB) -> Note:
    return Note(number, "x" * (size - 8))


def frame(number: int) -> Frame:
    return Frame(number, np.zeros(KIB, np.uint8))


def kept(channel: hg.Channel[Any]) -> list[int]:
    with channel.consumer(start="earliest") as consumer:
        return ids(consumer)


def ids(consumer: hg.Consumer[Any]) -> list[int]:
    return [event.id for event in consumer.read(1_000, timeout=0)]


@pytest.fixture
def station() -> Any:
    with hg.Station() as station:
        yield station


@pytest.mark.parametrize("dispatch", ["strict", "aged"])
def test_a_queue_that_is_full_by_its_bytes_blocks_then_raises_and_goes_on_when_there_is_room(
    station: hg.Station, dispatch: Any
) -> None:
    qos = hg.QoS(queue_bytes=4 * KIB, max_blocking=0.01, dispatch=dispatch)
    notes = station.channel("notes", Note, qos=qos)
    consumer = notes.consumer(name="slow")
    for number in range(4):
        notes.push(note(number))
    with pytest.raises(hg.QueueFull, match=r"slow has events of 4,096 bytes waiting.*queue_bytes") as raised:
        notes.push(note(4))
    assert raised.value.bytes_waiting == 4 * KIB
    assert notes.stats().consumers["slow"].waiting_bytes == 4 * KIB
    assert ids(consumer) == [0, 1, 2, 3]
    assert notes.stats().consumers["slow"].waiting_bytes == 0
    notes.push(note(4))
    assert ids(consumer) == [4]
    assert notes.stats().balanced


def test_a_push_that_waits_goes_on_when_bytes_are_taken(station: hg.Station) -> None:
    notes = station.channel("notes", Note, qos=hg.QoS(queue_bytes=2 * KIB, max_blocking=LIMIT))
    consumer = notes.consumer()
    notes.push_many([note(0), note(1)])
    thread = threading.Thread(target=notes.push, args=[note(2)])
    thread.start()
    got: list[int] = []
    while len(got) < 3:
        event = consumer.pull(LIMIT)
        assert event is not None
        got.append(event.id)
    thread.join(LIMIT)
    assert got == [0, 1, 2]


def test_an_event_that_is_larger_than_the_bound_is_taken_in_when_nothing_waits(station: hg.Station) -> None:
    notes = station.channel("notes", Note, qos=hg.QoS(queue_bytes=KIB, max_blocking=0.01))
    consumer = notes.consumer()
    notes.push(note(0, 10 * KIB))
    with pytest.raises(hg.QueueFull):
        notes.push(note(1, 16))
    assert ids(consumer) == [0]
    notes.push(note(1, 16))
    assert ids(consumer) == [1]


@pytest.mark.parametrize(
    ("overflow", "left", "dropped"),
    [
        ("drop_oldest", [6, 7, 8, 9], {"oldest": 6}),
        ("drop_newest", [0, 1, 2, 3], {"newest": 6}),
        ("coalesce", [6, 7, 8, 9], {"oldest": 6}),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_policies_that_drop_do_so_by_bytes(
    station: hg.Station, overflow: Any, left: list[int], dropped: dict[str, int], together: bool
) -> None:
    notes = station.channel("notes", Note, qos=hg.QoS(queue_bytes=4 * KIB))
    consumer = notes.consumer(name="slow", overflow=overflow)
    if together:
        notes.push_many([note(number) for number in range(10)])
    else:
        for number in range(10):
            notes.push(note(number))
    assert notes.stats().consumers["slow"].dropped == dropped
    assert ids(consumer) == left
    assert notes.stats().balanced


def test_a_coalescing_queue_counts_the_bytes_of_the_latest_event_of_each_key(station: hg.Station) -> None:
    notes = station.channel("notes", Note)
    consumer = notes.consumer(name="slow", overflow="coalesce", queue_bytes=4 * KIB)
    for number in range(20):
        notes.push(note(number % 2, KIB if number < 18 else 2 * KIB - 8))
    counts = notes.stats().consumers["slow"]
    assert (counts.waiting_bytes, counts.dropped) == (4 * KIB - 16, {"coalesced": 18})
    assert ids(consumer) == [0, 1]
    assert notes.stats().consumers["slow"].waiting_bytes == 0


def test_events_of_one_size_are_bounded_by_fewer_events_and_never_measured(station: hg.Station) -> None:
    frames = station.channel(
        "frames", Frame, qos=hg.QoS(queue_bytes=4 * size_of(frame(0)), max_blocking=0.01)
    )
    consumer = frames.consumer(name="slow")
    frames.push_many([frame(number) for number in range(4)])
    with pytest.raises(hg.QueueFull, match="more queue_bytes"):
        frames.push(frame(4))
    assert consumer.queue.limit == 4
    assert frames.stats().consumers["slow"].waiting_bytes == 4 * size_of(frame(0))
    assert ids(consumer) == [0, 1, 2, 3]


def test_a_batch_exceeds_the_bound_by_little(station: hg.Station) -> None:
    notes = station.channel("notes", Note, qos=hg.QoS(queue_bytes=1 << 20, max_blocking=0.01))
    consumer = notes.consumer(name="slow")
    with pytest.raises(hg.QueueFull) as raised:
        notes.push_many([note(number, 16 * KIB) for number in range(500)])
    waiting = notes.stats().consumers["slow"].waiting_bytes
    assert 1 << 20 <= waiting <= (1 << 20) + (1 << 18)
    assert raised.value.pushed == waiting // (16 * KIB)
    assert ids(consumer) == list(range(raised.value.pushed))


def test_the_bound_holds_when_a_channel_carries_further_types(station: hg.Station) -> None:
    qos = hg.QoS(queue_bytes=4 * KIB, max_blocking=0.01)
    station.channel("mixed", Point, qos=qos)
    channel: hg.Channel[Any] = station.channel("mixed", Point)
    consumer = channel.consumer(name="slow")
    for number in range(10):
        channel.push(Point(number))
    channel = station.channel("mixed", Point, Note)
    for number in range(4):
        channel.push(note(number))
    with pytest.raises(hg.QueueFull):
        channel.push(note(4))
    assert ids(consumer) == [*range(10), *range(4)]
    assert channel.stats().consumers["slow"].waiting_bytes == 0


def test_large_events_are_taken_few_at_a_time(station: hg.Station) -> None:
    notes = station.channel("notes", Note)
    consumer = notes.consumer(name="slow")
    for number in range(20):
        notes.push(note(number, TAKEN_BYTES // 2))
    assert consumer.pull() is not None
    taken = 20 * TAKEN_BYTES // 2 - notes.stats().consumers["slow"].waiting_bytes
    assert taken <= TAKEN_BYTES


def test_what_is_given_back_counts_again(station: hg.Station) -> None:
    """A callback of which the queue was halted by a higher priority."""
    notes = station.channel("notes", Note, qos=hg.QoS(queue_bytes=64 * KIB))
    begun, go_on, got = threading.Event(), threading.Event(), []

    def show(event: Note) -> None:
        got.append(event.id)
        begun.set()
        go_on.wait(LIMIT)

    notes.subscribe(show)
    notes.push(note(0))
    assert begun.wait(LIMIT)
    for number in range(1, 10):
        notes.push(note(number))
    notes.push(note(10), priority=5)
    go_on.set()
    assert wait_until(lambda: len(got) == 11)
    assert got == [0, 10, *range(1, 10)]
    assert wait_until(lambda: not notes.stats().total.pending)
    assert notes.stats().total.waiting_bytes == 0


def test_what_is_held_back_by_a_separation_is_bounded_in_bytes(station: hg.Station) -> None:
    notes = station.channel("notes", Note)
    notes.consumer(name="slow", separation=60.0, queue_bytes=4 * KIB, overflow="drop_newest")
    for _ in range(2):
        for number in range(4):
            notes.push(note(number))
    for number in range(4):
        notes.push(note(number, 3 * KIB))
    counts = notes.stats().consumers["slow"]
    assert counts.pending == 4 + 2
    assert notes.stats().balanced


@pytest.mark.parametrize("durability", ["transient", "transient-local"])
@pytest.mark.parametrize("history", [None, 2])
def test_a_history_in_memory_keeps_the_latest_events_within_its_bytes(
    station: hg.Station, durability: Any, history: int | None
) -> None:
    qos = hg.QoS(durability=durability, history=history, queue_bytes=4 * KIB)
    notes = station.channel("notes", Note, qos=qos)
    for number in range(3_000):
        notes.push(note(number))
    stats = notes.stats()
    assert (stats.kept, stats.kept_bytes, stats.forgotten) == (3, 3 * KIB, 2_997)
    assert kept(notes) == [2_997, 2_998, 2_999]
    for _ in range(3_000):
        notes.push(note(7, 16))
    stats = notes.stats()
    if history is not None:
        assert (stats.kept, stats.kept_bytes) == (5, 3 * KIB + 2 * 16)
    else:
        assert (stats.kept, stats.kept_bytes) == (255, 255 * 16)
    notes.push(note(8, 10 * KIB))
    assert kept(notes) == [8], "one is kept, however large it is"


@pytest.mark.parametrize(("size", "allowed"), [(0, "1"), (-5, "1"), ("1", "whole")])
def test_a_bound_that_cannot_be_is_refused(station: hg.Station, size: Any, allowed: str) -> None:
    with pytest.raises(hg.InvalidQoS, match="queue_bytes"):
        hg.QoS(queue_bytes=size)
    with pytest.raises(hg.NotPossible, match=f"queue_bytes.*{allowed}"):
        station.channel("notes", Note).consumer(queue_bytes=size)


def test_a_receiver_that_reads_the_journal_has_no_more_than_its_bytes_or_a_page_in_memory(
    tmp_path: Any,
) -> None:
    page = 16 << 20
    with hg.Station(tmp_path / "data") as station:
        qos = hg.QoS(durability="persistent", queue_bytes=4 << 20)
        notes = station.channel("notes", Note, qos=qos)
        live, late = notes.consumer(name="live"), None
        for number in range(40):
            notes.push(note(number, 1 << 20))
        assert notes.stats().consumers["live"].waiting_bytes <= 5 << 20
        late = notes.consumer(start="earliest")
        for consumer in (live, late):
            most, got = 0, []
            while (event := consumer.pull(0)) is not None:
                got.append(event.id)
                most = max(most, consumer.counts().waiting_bytes)
            assert got == list(range(40))
            assert most <= page


class Names(hg.Event, name="bounds.names"):
    id: int
    names: list[str]


def test_an_event_that_a_callback_made_wrong_harms_no_other_receiver(station: hg.Station) -> None:
    """Receivers share the object: whoever puts something else into it must not end the dispatch of others."""
    names = station.channel("names", Names)
    seen: list[int] = []
    go_on = threading.Event()

    def slow(event: Names) -> None:
        assert go_on.wait(LIMIT)
        seen.append(event.id)

    def spoil(event: Names) -> None:
        event.names.append(5)  # type: ignore[arg-type]  # it is wrong

    names.subscribe(slow)
    names.subscribe(spoil)
    for number in range(50):
        assert names.push(Names(number, ["x"]))
    go_on.set()
    assert names.settle(LIMIT)
    assert seen == [*range(50)]
    assert names.stats().balanced


def test_what_is_kept_in_memory_counts_as_it_was_kept_whoever_changes_it_later(station: hg.Station) -> None:
    names = station.channel("kept", Names, qos=hg.QoS(durability="transient", history=None, queue=10))
    names.subscribe(lambda event: event.names.clear(), inline=True)
    for number in range(50):
        assert names.push(Names(number, ["x" * 100]))
    stats = names.stats()
    assert stats.kept == 10
    assert 1_000 < stats.kept_bytes < 10_000
    assert stats.forgotten == 0

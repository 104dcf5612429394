"""What came is acknowledged when it has been handed on, and what cannot be handed on harms nothing else."""

from __future__ import annotations

import pytest

from heliograph.errors import BadFrame
from heliograph.links.session import messages as m
from heliograph.links.session.retransmission import Outbox
from heliograph.links.session.unpack import TRIES, Unpacker

LANE = 3
STREAM = 7


class Receiver:
    """Remembers what an unpacker hands on, and raises where it is told to."""

    def __init__(self) -> None:
        self.unpacker = Unpacker("peer", self.on_message, self.on_run, self.on_left_out)
        self.outbox: Outbox[bytes] = Outbox()
        self.got: list[object] = []
        self.raises: set[object] = set()
        self.left_out: list[tuple[int, int]] = []

    def on_left_out(self, run: m.Run, events: int) -> None:
        self.left_out.append((run.stream, events))

    def on_message(self, message: m.Message) -> None:
        assert isinstance(message, m.ChannelGone)
        self._take(message.name)

    def on_run(self, run: m.Run, skip: int) -> None:
        for record in bytes(run.records)[skip:]:
            self._take(record)

    def _take(self, what: object) -> None:
        if what in self.raises:
            raise MemoryError(f"no room for {what}")
        self.got.append(what)

    def frame(self, count: int, *runs: bytes) -> memoryview:
        batch = self.outbox.add(count, b"".join(runs), 1)
        return memoryview(b"".join(m.data_frame(LANE, batch)))

    @property
    def received(self) -> int:
        return self.unpacker.received[LANE]


def events(*records: int) -> bytes:
    return m.run_bytes(m.RECORDS, STREAM, len(records), bytes(records))


def told(*names: str) -> bytes:
    posted = m.array_of([m.encode(m.ChannelGone(name)) for name in names])
    return m.run_bytes(m.RECORDS, m.MESSAGES, len(names), posted)


def test_a_run_that_could_not_be_handed_on_is_not_received_and_comes_again() -> None:
    receiver = Receiver()
    frame = receiver.frame(2, events(1, 2))
    receiver.raises = {1}
    with pytest.raises(MemoryError):
        receiver.unpacker.take(frame)
    assert receiver.received == 0
    receiver.raises = set()
    receiver.unpacker.take(frame)
    assert (receiver.received, receiver.got) == (2, [1, 2])


def test_of_a_batch_only_what_was_not_handed_on_is_handed_on_again() -> None:
    receiver = Receiver()
    frame = receiver.frame(5, told("a", "b"), events(1), events(2, 3))
    for fails, received in (("b", 1), (2, 3)):
        receiver.raises = {fails}
        with pytest.raises(MemoryError):
            receiver.unpacker.take(frame)
        assert receiver.received == received
    receiver.raises = set()
    receiver.unpacker.take(frame)
    assert (receiver.received, receiver.got) == (5, ["a", "b", 1, 2, 3])


def test_an_event_in_pieces_that_could_not_be_handed_on_comes_again_with_its_last_piece() -> None:
    receiver = Receiver()
    first, last = (receiver.frame(1, payload) for payload in m.pieces(STREAM, bytes([8, 9]), 1))
    receiver.unpacker.take(first)
    receiver.raises = {8}
    with pytest.raises(MemoryError):
        receiver.unpacker.take(last)
    assert receiver.received == 1
    receiver.raises = set()
    receiver.unpacker.take(last)
    assert (receiver.received, receiver.got) == (2, [8, 9])


def test_early_batches_that_could_not_be_handed_on_are_wanted_again() -> None:
    receiver = Receiver()
    first, second = receiver.frame(1, events(1)), receiver.frame(1, events(2))
    assert receiver.unpacker.take(second)
    receiver.raises = {2}
    with pytest.raises(MemoryError):
        receiver.unpacker.take(first)
    assert (receiver.received, receiver.unpacker.inboxes[LANE].wanted()) == (1, (2, 2))


@pytest.mark.parametrize("bad", [events(5), b"cut"], ids=["refused", "malformed"])
def test_what_fails_every_time_is_left_out_and_counted(bad: bytes, caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver()
    receiver.raises = {5}
    frame = receiver.frame(2, events(1), bad)
    for _ in range(TRIES - 1):
        with pytest.raises((MemoryError, BadFrame)):
            receiver.unpacker.take(frame)
    receiver.unpacker.take(frame)
    receiver.unpacker.take(receiver.frame(1, events(3)))
    assert receiver.received == 3
    assert receiver.got[-1] == 3
    left_out = 1 if bad != b"cut" else 2
    assert receiver.unpacker.left_out == left_out
    assert f"records {3 - left_out} to 2 of lane {LANE} of station peer are left out" in caplog.text


@pytest.mark.parametrize("bad_piece", [1, 2], ids=["amid", "last"])
def test_an_event_in_pieces_that_is_left_out_takes_nothing_else_with_it(bad_piece: int) -> None:
    receiver = Receiver()
    receiver.raises = {7}
    payloads = m.pieces(STREAM, bytes([7, 8, 9]), 1)
    if bad_piece == 1:
        payloads[1] = m.pieces(STREAM + 1, bytes([7, 8, 9]), 1)[1]
    frames = [receiver.frame(1, payload) for payload in payloads]
    frames += [receiver.frame(1, payload) for payload in m.pieces(STREAM, bytes([4, 5, 6]), 1)]
    frames += [receiver.frame(1, events(n)) for n in (1, 2)]
    broken = 0
    while receiver.received < len(frames):
        try:
            receiver.unpacker.take(frames[receiver.received])
        except (MemoryError, BadFrame):
            broken += 1
    assert (broken, receiver.got) == (TRIES - 1, [4, 5, 6, 1, 2])
    assert receiver.unpacker.left_out == 3 - bad_piece


def test_pieces_after_a_frame_that_nobody_can_read_are_left_out_until_another_event_comes() -> None:
    receiver = Receiver()
    pieces = m.pieces(STREAM, bytes([7, 8, 9]), 1)
    frames = [receiver.frame(1, payload) for payload in (b"cut" * 9, *pieces[1:], *pieces, events(1))]
    for _ in range(TRIES - 1):
        with pytest.raises(BadFrame):
            receiver.unpacker.take(frames[0])
    for frame in frames:
        receiver.unpacker.take(frame)
    assert (receiver.got, receiver.unpacker.left_out) == ([1], 6)

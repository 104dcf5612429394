"""Frames through rings: the way from socket to ring, pieces, and what is left when it ends."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import BadFrame, LinkLost, NoRoomForRing
from heliograph.link.contract import KNOCK
from heliograph.link.ring import RingConnection, ring_transport
from heliograph.ports import system_ports
from heliograph.ring import RingFolder
from tests.ring_support import PORTS, folder_for_a_test, needs_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from heliograph.link.contract import Buffer
    from heliograph.ports import Task

pytestmark = needs_rings
folder = pytest.fixture(folder_for_a_test)
LIMIT = 20.0


class Wire:
    """A socket in memory: what one side offers, the other receives."""

    def __init__(self) -> None:
        self.frames: list[memoryview] = []
        self.other = self
        self.carrier = "wire"
        self.sent_bytes = self.received_bytes = 0

    def offer(self, frame: Sequence[Buffer]) -> bool:
        self.other.frames.append(memoryview(b"".join(frame)))
        return True

    def flush(self) -> None: ...

    def receive(self) -> list[memoryview]:
        if not self.frames:
            raise LinkLost("wire", "has nothing")
        frames, self.frames = self.frames, []
        return frames

    def close(self) -> None: ...

    def abandon(self) -> None: ...


@pytest.fixture
def ends(folder: RingFolder) -> Iterator[tuple[RingConnection, RingConnection]]:
    one, other = Wire(), Wire()
    one.other, other.other = other, one
    pair = RingConnection(one, folder, 1, PORTS), RingConnection(other, folder, 2, PORTS)
    yield pair
    for end in pair:
        end.close()
    assert list(folder.path.iterdir()) == []


def spawned(run: Callable[[], object]) -> Task:
    return PORTS.tasks.spawn("other side", run)


def crosses(sender: RingConnection, receiver: RingConnection, frame: bytes) -> None:
    sender.offer([frame])
    assert [bytes(got) for got in receiver.receive()] == [frame]


def test_a_few_frames_go_by_socket_and_the_rest_through_the_ring(
    ends: tuple[RingConnection, RingConnection],
) -> None:
    one, other = ends
    crosses(one, other, b"hello")
    crosses(other, one, b"hello, I have opened your ring")
    crosses(one, other, b"the last by socket")
    assert (one.carrier, other.carrier) == ("ring", "wire")
    crosses(one, other, b"through the ring")
    crosses(other, one, b"last, too")
    crosses(other, one, b"through the ring, too")
    assert other.carrier == "ring"
    assert one.received_bytes > 0
    assert one.sent_bytes > 0


def switched(ends: tuple[RingConnection, RingConnection]) -> tuple[RingConnection, RingConnection]:
    one, other = ends
    for _ in range(3):
        crosses(one, other, b"ping")
        crosses(other, one, b"pong")
    assert one.carrier == "ring"
    return ends


def test_a_frame_that_the_ring_cannot_take_at_once_goes_in_pieces(
    ends: tuple[RingConnection, RingConnection],
) -> None:
    one, other = switched(ends)
    frame = bytes(range(256)) * 3 * (1 << 12)  # three times the ring
    sent = one.offer([frame[:100], frame[100:]])
    assert not sent
    got = spawned(one.flush)
    assert [bytes(whole) for whole in other.receive()] == [frame]
    assert got.join(LIMIT)


def test_a_peer_that_closes_is_heard_after_what_it_has_sent(
    ends: tuple[RingConnection, RingConnection],
) -> None:
    one, other = switched(ends)
    one.offer([b"bye"])
    one.close()
    assert [bytes(frame) for frame in other.receive()] == [b"bye"]
    with pytest.raises(LinkLost, match="closed"):
        other.receive()


def test_closing_lets_go_of_whoever_receives_and_whoever_flushes(
    ends: tuple[RingConnection, RingConnection],
) -> None:
    one, _ = switched(ends)
    while one.offer([bytes(10_000)]):
        pass
    receiver, flusher = spawned(one.receive), spawned(one.flush)
    one.close()
    for task in (receiver, flusher):
        with pytest.raises(LinkLost):
            task.join(LIMIT)


def test_without_room_for_a_ring_everything_stays_on_the_socket(
    ends: tuple[RingConnection, RingConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NoRoomForRing("ring", 2, 1)

    one, other = ends
    monkeypatch.setattr(one._rings, "create", refuse)
    for _ in range(4):
        crosses(one, other, b"ping")
        crosses(other, one, b"pong")
    assert (one.carrier, other.carrier) == ("wire", "wire")


@pytest.mark.parametrize("frame", [b"\x80rest", b"\x01short", b"\x02x", b"\x04x", b"\x00", b"\x07"])
def test_what_does_not_follow_is_refused(ends: tuple[RingConnection, RingConnection], frame: bytes) -> None:
    one, _ = ends
    one._socket.frames.append(memoryview(frame))  # type: ignore[attr-defined] # it is a Wire
    with pytest.raises(BadFrame):
        one.receive()


def test_a_knock_is_handed_on(ends: tuple[RingConnection, RingConnection]) -> None:
    one, _ = ends
    one._socket.frames.append(memoryview(KNOCK))  # type: ignore[attr-defined] # it is a Wire
    assert one.receive() == [KNOCK]


class Blob(hg.Event, name="ring.blob"):
    n: int
    data: bytes = b""


def test_stations_talk_through_rings_and_leave_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    domain = f"test-{PORTS.random.id64():016x}"
    with ExitStack() as stations:
        a, b = (
            stations.enter_context(
                hg.Station(domain=domain, transport=ring_transport(domain, system_ports()))
            )
            for _ in range(2)
        )
        sent, seen = a.channel("blobs", Blob), b.channel("blobs", Blob).consumer()
        assert sent.wait_matched(1, LIMIT)
        events = [Blob(i, bytes(i % 7 * 100_000)) for i in range(50)]
        for event in events:
            sent.push(event)
        assert [seen.pull(LIMIT) for _ in events] == events
        assert a.mesh is not None
        assert [stats.carrier for stats in a.mesh.stats()] == ["ring"]
    assert list(RingFolder(domain).path.iterdir()) == []
    RingFolder(domain).path.rmdir()

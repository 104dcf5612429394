"""Frames through rings: the way from socket to ring, pieces, and what is left when it ends."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import BadFrame, LinkLost, NoRoomForRing, NotPossible
from heliograph.links.contract import KNOCK
from heliograph.links.transports.discovery import DiscoveryFolder
from heliograph.links.transports.peer_process import UNKNOWN
from heliograph.links.transports.shared_memory import DECLINED, NOT_ASKED_FOR, RingConnection, RingTransport
from heliograph.links.transports.unix import short_path
from heliograph.ring import RingFolder, kernel
from tests.e2e.link_support import wait_until
from tests.ring_support import PORTS, folder_for_a_test, needs_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from heliograph.links import Carrier
    from heliograph.links.contract import Buffer, Connection
    from heliograph.links.session.link import LinkStats
    from heliograph.runtime.ports import Clock, Task

pytestmark = needs_rings
folder = pytest.fixture(folder_for_a_test)
LIMIT = 20.0


class Wire:
    """A socket in memory: what one side offers, the other receives."""

    def __init__(self) -> None:
        self.frames: list[memoryview] = []
        self.other = self
        self.carrier = "wire"
        self.carrier_reason = ""
        self.process = UNKNOWN
        self.sent_bytes = self.received_bytes = 0

    def offer(self, frame: Sequence[Buffer]) -> bool:
        self.other.frames.append(memoryview(b"".join(frame)))
        return True

    def flush(self) -> None: ...

    def receive_hello(self, _clock: Clock, _limit: float | None) -> list[memoryview]:
        return self.receive()

    def receive(self) -> list[memoryview]:
        if not self.frames:
            raise LinkLost("wire", "has nothing")
        frames, self.frames = self.frames, []
        return frames

    def drain(self) -> None: ...

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


def test_who_receives_after_another_task_has_closed_it_is_told_so(
    ends: tuple[RingConnection, RingConnection],
) -> None:
    one, _ = switched(ends)
    one.close()
    with pytest.raises(LinkLost, match="this side has closed the connection"):
        one.receive()
    one.drain()


def test_what_has_come_can_be_received_when_it_is_drained(
    ends: tuple[RingConnection, RingConnection],
) -> None:
    one, other = switched(ends)
    one.offer([b"the last"])
    other.drain()
    assert [bytes(frame) for frame in other.receive()] == [b"the last"]
    with pytest.raises(LinkLost, match="closed"):
        other.receive()


@pytest.mark.parametrize("how", ["drain", "close"])
def test_a_connection_that_has_ended_makes_no_ring(
    ends: tuple[RingConnection, RingConnection], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    one, _ = ends
    monkeypatch.setattr(RingFolder, "create", lambda *_, **__: pytest.fail("a ring was made"))
    getattr(one, how)()
    one.offer([b"hello"])


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
    assert "2 bytes" in one.carrier_reason


@pytest.mark.parametrize("speaks_first", ["with", "without"])
def test_a_station_that_uses_no_rings_declines_and_no_memory_stays_set_aside(
    folder: RingFolder, speaks_first: str
) -> None:
    one, other = Wire(), Wire()
    one.other, other.other = other, one
    with_rings = RingConnection(one, folder, 1, PORTS)
    without = RingConnection(other, None, 2, PORTS, reason=NOT_ASKED_FOR)
    if speaks_first == "without":
        crosses(without, with_rings, b"hello")
    crosses(with_rings, without, b"hello, here is a ring")
    assert len(list(folder.path.iterdir())) == 1
    crosses(without, with_rings, b"no ring please")
    assert list(folder.path.iterdir()) == []
    assert (with_rings.carrier_reason, without.carrier_reason) == (DECLINED, NOT_ASKED_FOR)
    for _ in range(3):
        crosses(with_rings, without, b"ping")
        crosses(without, with_rings, b"pong")
    # Nothing is left between the link and its socket.
    assert (with_rings.offer, without.offer) == (one.offer, other.offer)
    assert (with_rings.receive, without.receive) == (one.receive, other.receive)


@pytest.mark.parametrize("frame", [b"\xf0rest", b"\x81short", b"\x82x", b"\x84x", b"\x88x", b"\x80"])
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


@pytest.fixture
def domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    name = f"test-{PORTS.random.id64():016x}"
    yield name
    monkeypatch.undo()
    # A call that was under way when a station left ends in a task of its own, and takes its ring with it.
    assert wait_until(lambda: not list(RingFolder(name).path.iterdir()))
    RingFolder(name).path.rmdir()


def carriers_after_events(domain: str, *transports: Carrier) -> list[LinkStats]:
    """Two stations that have sent each other events; what the link of each says."""
    with ExitStack() as opened:
        stations = [opened.enter_context(hg.Station(domain=domain, transport=kind)) for kind in transports]
        for sender, receiver in (stations, reversed(stations)):
            sent, seen = sender.channel("blobs", Blob), receiver.channel("blobs", Blob).consumer()
            assert sent.wait_matched(1, LIMIT)
            events = [Blob(i, bytes(i % 7 * 100_000)) for i in range(50)]
            for event in events:
                sent.push(event)
            assert [seen.pull(LIMIT) for _ in events] == events
            seen.close()
        return [station.mesh.stats()[0] for station in stations if station.mesh is not None]


@pytest.mark.parametrize("kind", ["ring", "spinning-ring"])
def test_stations_talk_through_rings_and_leave_none(domain: str, kind: Carrier) -> None:
    found = carriers_after_events(domain, kind, "ring")
    assert [(stats.carrier, stats.carrier_reason) for stats in found] == [("ring", "")] * 2


@contextmanager
def silent_station(domain: str, station: int) -> Iterator[None]:
    """One that can be dialled, and does not answer."""
    meeting = DiscoveryFolder(domain)
    with socket.socket(socket.AF_UNIX) as listener:
        with short_path(meeting.socket_path(station)) as path:
            listener.bind(path)
        listener.listen()
        lock = meeting.enter(station)
        yield
        meeting.leave(station, lock)


def test_a_transport_that_is_closed_has_no_ring_though_a_connection_has_just_begun(domain: str) -> None:
    begun: dict[int | None, Connection] = {}
    with silent_station(domain, 2), silent_station(domain, 3):
        transport = RingTransport(domain, 1, PORTS, carrier="ring")
        transport.start(lambda made, dialled: begun.update({dialled: made}), lambda _: None)
        begun[2].offer([b"hello"])
        assert len(RingFolder(domain).rings()) == 1
        transport.close()
        with suppress(LinkLost):
            begun[3].offer([b"hello"])
        assert list(RingFolder(domain).path.iterdir()) == []
    for connection in begun.values():
        connection.close()


def test_a_station_with_rings_and_one_without_talk_by_socket_and_say_why(domain: str) -> None:
    found = carriers_after_events(domain, "ring", "socket")
    assert [(stats.carrier, stats.carrier_reason) for stats in found] == [
        ("socket", DECLINED),
        ("socket", NOT_ASKED_FOR),
    ]


def test_where_there_can_be_no_ring_the_socket_serves_and_says_why(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(kernel, "missing", lambda: "needs 64-bit Linux on x86-64, this is a toaster")
        found = carriers_after_events(domain, "ring", "ring")
    assert [stats.carrier for stats in found] == ["socket", "socket"]
    assert all("toaster" in stats.carrier_reason for stats in found)


def test_a_small_memory_is_refused_cleanly_and_the_socket_serves(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as small:
        small.setattr("os.posix_fallocate", full)
        found = carriers_after_events(domain, "ring", "ring")
    assert [stats.carrier for stats in found] == ["socket", "socket"]
    assert all("bytes" in stats.carrier_reason for stats in found)


def test_a_transport_that_is_none_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(NotPossible, match="socket, ring"):
        hg.Station(domain="x", transport="carrier pigeon")  # type: ignore[arg-type] # the mistake that is tested

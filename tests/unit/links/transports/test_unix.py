"""Unix sockets as connections: what a closed one must not do to others, and who is gone with one."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import LinkLost
from heliograph.links.transports.backoff import Stalls
from heliograph.links.transports.discovery import DiscoveryFolder
from heliograph.links.transports.peer_process import this_process
from heliograph.links.transports.unix import LOOK_EVERY, UnixConnection, UnixTransport
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until
from tests.ring_support import PORTS

if TYPE_CHECKING:
    from pathlib import Path


def test_who_is_about_to_wait_as_it_is_closed_does_not_wait_for_what_has_its_descriptor_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, far = socket.socketpair()
    connection = UnixConnection(near, "peer")
    later: list[socket.socket] = []
    wait = connection._wait_for_input

    def closed_meanwhile() -> object:
        connection.close()
        later.extend(socket.socketpair())  # the number of the first, were it free
        return wait()

    monkeypatch.setattr(connection, "_wait_for_input", closed_meanwhile)
    reading = PORTS.tasks.spawn("reader", connection.receive)
    with pytest.raises(LinkLost):
        assert reading.join(LIMIT), "it waits for another's input"
    assert near.fileno() < 0, "and then it has let go"
    with pytest.raises(LinkLost, match="this side has closed"):
        connection.receive()
    for other in (far, *later):
        other.close()


def test_a_station_whose_connection_ends_before_its_lock_is_free_is_looked_for_again_soon_and_ever_less(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    gone: list[int] = []
    pauses: list[float] = []
    transport = UnixTransport("e2e", 2, PORTS, Stalls())
    look = transport._tried_to_look

    def noted() -> float:
        pauses.append(look())
        return pauses[-1]

    monkeypatch.setattr(transport, "_tried_to_look", noted)
    transport.start(lambda *_: None, gone.append)
    folder = DiscoveryFolder("e2e")
    lock = folder.enter(1)
    try:
        transport.linked(1, this_process())
        transport.lost(1)
        assert wait_until(lambda: LOOK_EVERY in pauses[1:])
        assert [pause for pause in pauses if pause < LOOK_EVERY] == [0.001 * 2**i for i in range(8)]
        assert not gone
    finally:
        folder.leave(1, lock)
    assert wait_until(lambda: gone == [1])
    transport.close()

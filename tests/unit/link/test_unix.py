"""Unix sockets as connections: what a closed one must not do to others."""

from __future__ import annotations

import socket

import pytest

from heliograph.errors import LinkLost
from heliograph.link.unix import UnixConnection
from tests.e2e.link_support import LIMIT
from tests.ring_support import PORTS


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

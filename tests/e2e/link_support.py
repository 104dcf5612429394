"""What the tests of links share: a meeting folder of their own, event types, and waiting for a thing."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Literal, cast

import heliograph as hg
from heliograph.ring import RingFolder
from tests.ring_support import PORTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

LIMIT = 60.0
"""Seconds within which anything waited for must happen, on a busy machine too."""


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str = "unknown"


TRANSPORT = "E2E_TRANSPORT"
"""Names the transport of all stations of a test, in other processes too."""


def transport() -> Literal["socket", "ring"]:
    return cast("Literal['socket', 'ring']", os.environ.get(TRANSPORT, "ring"))


PEER_LIMIT = "E2E_PEER_LIMIT"
"""After how many seconds of silence they suspect each other: what is cut for less than that costs nothing."""
LISTEN, CONNECT, IDENTITY = "E2E_LISTEN", "E2E_CONNECT", "E2E_IDENTITY"
"""Where all stations of a test listen on the network, or connect to, and with which keys."""


def open_station(folder: str | None = None, **more: Any) -> hg.Station:
    """As the environment says."""
    network: dict[str, Any] = {
        option: [endpoint]
        for option, variable in (("listen", LISTEN), ("connect", CONNECT))
        if (endpoint := os.environ.get(variable))
    }
    network["identity"] = os.environ.get(IDENTITY) or None
    if limit := os.environ.get(PEER_LIMIT):
        more.setdefault("peer_limit", float(limit))
    return hg.Station(folder, domain="e2e", transport=transport(), **network, **more)


def free_endpoint(protocol: str = "tcp") -> str:
    """An endpoint of loopback that nobody listens at.

    Below the ports that Linux gives to connections that go out: one of those could take it before a station
    listens there that begins later.
    """
    while True:
        port = SystemRandom().randint(20_000, 32_000)  # not from a seed: two workers would take the same
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return f"{protocol}/127.0.0.1:{port}"


def own_meeting_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the stations of a test apart from all others."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))


def wait_until(happened: Callable[[], object], limit: float = LIMIT) -> bool:
    """Whether it happened within the limit."""
    deadline = time.monotonic() + limit
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def push_until_full(channel: hg.Channel[Any], make: Callable[[int], Any] = Track) -> int:
    """Push until a queue is full and stays so; how many went in.

    One refusal says little: the machine may have let a reader wait for longer than a push may.
    """
    pushed = refused = 0
    while refused < 3:
        try:
            channel.push(make(pushed))
        except hg.QueueFull:
            refused += 1
        else:
            pushed, refused = pushed + 1, 0
        assert pushed < 1_000_000, "nothing stopped the supplier"
    return pushed


def ring_station(domain: str, **more: Any) -> hg.Station:
    return hg.Station(domain=domain, transport="ring", **more)


def domain_with_rings() -> Iterator[str]:
    """The body of a fixture: when its stations have left, no ring of theirs may be there."""
    name = f"test-{PORTS.random.id64():016x}"
    yield name
    folder = RingFolder(name)
    assert wait_until(lambda: not folder.rings())
    folder.leave()
    assert not folder.path.exists()

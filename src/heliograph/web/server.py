"""Serves the page of a station: a thread with uvicorn in it, on a loopback address if no other is named.

with hg.Station(page=True) as station:
    print(station.page)         # http://127.0.0.1:8470/?token=...
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from typing import TYPE_CHECKING, Final

from heliograph.errors import MissingExtra, NotPossible

if TYPE_CHECKING:
    from heliograph.station import Station

LOOPBACK: Final = "127.0.0.1"
PORT: Final = 8470
"""Of the first page on a machine; further ones have any that is free."""
TOKEN: Final = "HELIO_PAGE_TOKEN"  # noqa: S105 - the name of a variable
"""Names the token, for links that outlive a station; without it each station has a new one."""
END_LIMIT: Final = 3.0
"""Seconds that closing waits for open streams to end."""


class PageServer:
    """See the module.

    Args:
        station: what is shown.
        address: True for a loopback address; a port of it; or "host:port".
    """

    def __init__(self, station: Station, address: bool | int | str) -> None:
        try:
            import uvicorn  # noqa: PLC0415 - of an extra

            from heliograph.web.app import StationPage  # noqa: PLC0415 - likewise
        except ModuleNotFoundError as error:
            raise MissingExtra("page=True", error.name or "starlette", "page") from error
        host, port = _address(address)
        self._socket = _listening(host, port)
        token = os.environ.get(TOKEN) or secrets.token_urlsafe(16)
        self._page = StationPage(station)
        config = uvicorn.Config(
            self._page.guarded(token),
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        shown, bound = self._socket.getsockname()[:2]
        place = f"[{shown}]" if ":" in shown else shown
        self.link = f"http://{place}:{bound}/?token={token}"
        self.address = f"http://{place}:{bound}"
        self.token = token
        self._thread = threading.Thread(target=self._serve, name="heliograph page", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def close(self) -> None:
        """End all streams, then the server."""
        self._page.close()
        self._server.should_exit = True
        self._thread.join(END_LIMIT)
        self._socket.close()


def _address(address: bool | int | str) -> tuple[str, int | None]:
    if address is True:
        return LOOPBACK, None
    if isinstance(address, int):
        return LOOPBACK, address
    host, colon, port = str(address).rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise NotPossible("page", f"{address!r:.60} is no address: True, a port, or 'host:port'")
    return host.strip("[]") or LOOPBACK, int(port)


def _listening(host: str, port: int | None) -> socket.socket:
    """A socket; without a port, the usual one or any that is free."""
    try:
        ports = (PORT, 0) if port is None else (port,)
        for number, wanted in enumerate(ports, 1):
            try:
                return socket.create_server((host, wanted), family=_family(host), backlog=64)
            except OSError:
                if number == len(ports):
                    raise
    except OSError as error:
        raise NotPossible("page", f"{host}:{port or PORT} cannot be listened to: {error.strerror}") from error
    raise AssertionError("a socket or an error")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET

"""Two transports as one: by sockets to the stations of this host, over a network to those of others.

A station of this host is linked by its socket, though it be in the network, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links.contract import Connected, Transport
    from heliograph.links.transports.peer_process import PeerProcess


class CombinedTransport:
    """See the module, and `heliograph.links.contract.Transport`."""

    def __init__(self, host: Transport, network: Transport) -> None:
        self._host = host
        self._network = network
        self.secret = host.secret
        self.streams = network.streams

    def start(self, on_connection: Connected, on_gone: Callable[[int], None]) -> None:
        def gone_from_network(station: int) -> None:
            if station not in self._host.others():
                on_gone(station)

        # First: who comes by the network is looked up among those of this host.
        self._host.start(on_connection, on_gone)
        try:
            self._network.start(on_connection, gone_from_network)
        except BaseException:
            self._host.close()
            raise

    def others(self) -> set[int]:
        return self._host.others() | self._network.others()

    def doubt(self, station: int, process: PeerProcess, secret: bytes) -> str:
        return self._of(station).doubt(station, process, secret)

    def linked(self, station: int, process: PeerProcess) -> None:
        self._of(station).linked(station, process)

    def lost(self, station: int, *, soon: bool = True) -> None:
        self._host.lost(station, soon=soon)
        self._network.lost(station, soon=soon)

    def look(self) -> None:
        self._host.look()
        self._network.look()

    def refuse(self, station: int) -> None:
        self._host.refuse(station)
        self._network.refuse(station)

    def close(self) -> None:
        try:
            self._network.close()
        finally:
            self._host.close()

    def abandon(self) -> None:
        self._network.abandon()
        self._host.abandon()

    def _of(self, station: int) -> Transport:
        return self._host if station in self._host.others() else self._network

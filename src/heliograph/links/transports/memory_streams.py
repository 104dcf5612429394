"""Streams in memory, for tests and simulations: puts are lost, repeated and reordered as frames are."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from heliograph.errors import LinkLost, QueueClosed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.links.contract import StreamKey
    from heliograph.links.transports.memory import MemoryNetwork
    from heliograph.runtime.ports import Queue

WAITING = 8_192


class MemoryPutter:
    """See `heliograph.links.contract.StreamPutter`."""

    def __init__(self, network: MemoryNetwork, key: StreamKey, stations: Iterable[int]) -> None:
        self._network = network
        self._key = key
        self._stations = tuple(stations)
        self._held: bytes | None = None

    def put(self, data: bytes) -> None:
        for station in self._stations:
            streams = self._network.streams_of(station)
            arriving = self._network.mistreat(data)
            if self._held is not None:
                arriving.append(self._held)
                self._held = None
            elif arriving and self._network.reorders():
                self._held = arriving.pop()
            for one in arriving:
                if streams is not None:
                    streams.came(self._key, one)

    def close(self) -> None:
        """Nothing is declared."""


class MemoryStreams:
    """See `heliograph.links.contract.StreamTransport`."""

    def __init__(self, network: MemoryNetwork, station: int) -> None:
        self._network = network
        self._came: Queue[tuple[StreamKey, bytes] | bool] = network.ports.tasks.queue(
            f"puts for {station:016x}", WAITING
        )

    def putter(self, key: StreamKey, stations: Iterable[int]) -> MemoryPutter:
        return MemoryPutter(self._network, key, stations)

    def receive(self, most: int) -> list[tuple[StreamKey, bytes]]:
        try:
            return [one for one in self._came.take(most) if not isinstance(one, bool)]
        except QueueClosed:
            raise LinkLost("the network", "is closed") from None

    def wake(self) -> None:
        self._put(True)

    def came(self, key: StreamKey, data: bytes) -> None:
        """In the thread that puts."""
        self._put((key, data))

    def close(self) -> None:
        self._came.close()

    def _put(self, one: tuple[StreamKey, bytes] | bool) -> None:
        with suppress(QueueClosed):
            self._came.put_evicting(one)

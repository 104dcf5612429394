"""The event monitors of linked stations: which consumer has acknowledged which event that is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import QueryFailed
from heliograph.links.session import messages as m
from heliograph.model.event import Name

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.session.rpc import Reply

TOPIC: Final = "monitor"
MONITOR_LIMIT: Final = 5.0
"""Seconds for a station to show its monitor."""
MAX_ROWS: Final = 1_000
"""Rows of a monitor that are shown."""


class MonitorRow(msgspec.Struct, frozen=True):
    """An event under way, as one station's monitor has it."""

    station: str
    supplier: str
    event: str
    """Its id."""
    state: dict[str, bool]
    """Whether each consumer has acknowledged it; those of a linked station are one, by its link."""
    seconds: float
    """Since it was passed to its consumers."""
    resends: int


_rows: Final = msgspec.msgpack.Decoder(list[MonitorRow]).decode
_name: Final = msgspec.msgpack.Decoder(Name).decode


def answer_monitors(mesh: Mesh, channel: Callable[[str], Channel[Any] | None]) -> None:
    """Show linked stations what the monitors of this one have."""

    def answer(station: int, body: msgspec.Raw, reply: Reply) -> None:
        reply(
            monitor_rows(channel(m.decoded(_name, body, f"{station:016x}")), f"{mesh.identity.station:016x}")
        )

    mesh.answer(TOPIC, answer)


def monitor_rows(channel: Channel[Any] | None, station: str) -> list[MonitorRow]:
    """What the monitor of a channel of this station has."""
    if channel is None or channel.monitor is None:
        return []
    return [
        MonitorRow(station, row.supplier, str(row.event), row.state, row.elapsed, row.resends)
        for row in channel.monitor.array()[:MAX_ROWS]
    ]


def linked_rows(mesh: Mesh, channel: str) -> list[MonitorRow]:
    """What the monitors of all linked stations have; one that does not answer shows nothing."""
    found: list[MonitorRow] = []
    for other in mesh.stations():
        try:
            told = mesh.ask(other.station, TOPIC, channel, MONITOR_LIMIT)
        except QueryFailed:
            continue
        found += m.decoded(_rows, told, f"{other.station:016x}")
    return found

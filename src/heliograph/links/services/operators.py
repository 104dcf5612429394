"""Operations on histories that linked stations keep; see `heliograph.channel.history.operations`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import NotPossible
from heliograph.links.session import messages as m
from heliograph.links.session.rpc import reply_apart
from heliograph.model.event import Name  # noqa: TC001 - msgspec reads it at run time

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.session.rpc import Reply
    from heliograph.runtime.ports import Tasks

TOPIC: Final = "operate"
OPERATION_LIMIT: Final = 60.0
"""Seconds for an operation elsewhere: a purge seals what is not sealed first."""


class Operation(msgspec.Struct, array_like=True):
    channel: Name
    call: Name
    arguments: dict[str, Any]


_operation: Final = msgspec.msgpack.Decoder(Operation).decode
_result: Final = msgspec.msgpack.Decoder().decode


class LinkedOperations:
    """Both sides of it."""

    def __init__(self, mesh: Mesh, channel: Callable[[str], Channel[Any] | None], tasks: Tasks) -> None:
        self._mesh = mesh
        self._channel = channel
        self._tasks = tasks
        mesh.answer(TOPIC, self._answer)

    def run(self, channel: str, call: str, arguments: dict[str, Any]) -> list[Any]:
        keepers = [
            other.station
            for other in self._mesh.stations()
            if any(state.name == channel and state.keeper is not None for state in other.channels)
        ]
        body = Operation(channel, call, arguments)
        return [_result(self._mesh.ask(station, TOPIC, body, OPERATION_LIMIT)) for station in keepers]

    def _answer(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = m.decoded(_operation, body, f"{station:016x}")
        channel = self._channel(ask.channel)
        if channel is None:
            reply(None)
            return

        def work() -> Any:
            try:
                return channel.operations.run(ask.call, ask.arguments)
            except (TypeError, ValueError) as error:
                raise NotPossible(ask.channel, f"operation {ask.call[:40]!r}: {error}"[:400]) from error

        reply_apart(self._tasks, f"operation on {ask.channel}", reply, work)

"""The parameters that linked stations declare: both sides of a request that crosses a link.

What was set is said again to each source that comes later, or comes back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from heliograph.channel.parameters import (
    MAX_PARAMETERS,
    MAX_TEXT,
    SET_TIMEOUT,
    Asking,
    ParameterState,
)
from heliograph.errors import HeliographError, QueryFailed
from heliograph.links.session import messages as m
from heliograph.model.event import Name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.session.rpc import Reply
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)

SET: Final = "parameters.set"
GET: Final = "parameters.get"

Value = bool | int | float | Annotated[str, Meta(max_length=MAX_TEXT)] | None


class SetAsk(msgspec.Struct, array_like=True):
    channel: Name
    setter: Name
    values: Annotated[dict[Name, Value], Meta(max_length=MAX_PARAMETERS)]


_set: Final = msgspec.msgpack.Decoder(SetAsk).decode
_name: Final = msgspec.msgpack.Decoder(Name).decode
_states: Final = msgspec.msgpack.Decoder(dict[str, ParameterState]).decode


class LinkedParameters:
    """See the module."""

    def __init__(
        self,
        mesh: Mesh,
        channel: Callable[[str], Channel[Any] | None],
        channels: Callable[[], Iterable[Channel[Any]]],
        tasks: Tasks,
    ) -> None:
        self._mesh = mesh
        self._channel = channel
        self._channels = channels
        self._tasks = tasks
        self._lock = tasks.lock("parameters of linked stations")
        self._wanted: dict[tuple[str, str], dict[str, Any]] = {}
        """By channel and setter: what was set here."""
        self._told: dict[int, set[tuple[str, str]]] = {}
        """By station: what it has been told of that."""
        self._is_wanted = self._is_telling = False
        mesh.answer(SET, self._answer_set)
        mesh.answer(GET, self._answer_get)
        mesh.on_left(self._station_left)
        mesh.watch(self._look_soon)

    # In the station that sets

    def sources(self, channel: str, timeout: float) -> list[int]:
        found: list[int] = []

        def is_there(_: Mesh) -> bool:
            found[:] = [
                other.station
                for other in self._mesh.stations()
                if any(state.name == channel and state.parameters for state in other.channels)
            ]
            return bool(found)

        if not is_there(self._mesh) and timeout > 0:
            self._mesh.wait_for(is_there, timeout)
        return sorted(found)

    def set(self, station: int, channel: str, setter: str, values: Mapping[str, Any], timeout: float) -> None:
        self._mesh.ask(station, SET, SetAsk(channel, setter, dict(values)), timeout)

    def get(self, station: int, channel: str, timeout: float) -> dict[str, ParameterState]:
        return m.decoded(_states, self._mesh.ask(station, GET, channel, timeout), f"{station:016x}")

    def keep(self, channel: str, setter: str, values: Mapping[str, Any], told: Iterable[int]) -> None:
        with self._lock:
            wanted = self._wanted.setdefault((channel, setter), {})
            wanted.update(values)
            for name in [name for name, value in wanted.items() if value is None]:
                del wanted[name]
            if not wanted:
                del self._wanted[channel, setter]
            for station in told:
                self._told.setdefault(station, set()).add((channel, setter))

    def forget(self, channel: str) -> None:
        with self._lock:
            for key in [key for key in self._wanted if key[0] == channel]:
                del self._wanted[key]

    def _look_soon(self) -> None:
        with self._lock:
            self._is_wanted = bool(self._wanted)
            if not self._is_wanted or self._is_telling:
                return
            self._is_telling = True
        self._tasks.spawn_soon("parameters", self._tell_all)

    def _tell_all(self) -> None:
        """Say to each source what was set here, unless it has been told."""
        while True:
            with self._lock:
                if not self._is_wanted:
                    self._is_telling = False
                    return
                self._is_wanted = False
                wanted = {key: dict(values) for key, values in self._wanted.items()}
            for (channel, setter), values in wanted.items():
                for station in self.sources(channel, 0.0):
                    with self._lock:
                        told = self._told.setdefault(station, set())
                        is_told = (channel, setter) in told
                        told.add((channel, setter))
                    if not is_told:
                        self._tell(station, channel, setter, values)

    def _tell(self, station: int, channel: str, setter: str, values: Mapping[str, Any]) -> None:
        try:
            self.set(station, channel, setter, values, SET_TIMEOUT)
        except QueryFailed:
            with self._lock:  # when it is met again
                self._told.get(station, set()).discard((channel, setter))
        except HeliographError as error:
            log.warning("a source that came back does not take what was set: %s", error)

    # In the station that declares

    def _answer_set(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = m.decoded(_set, body, f"{station:016x}")
        channel = self._declaring(ask.channel)
        channel.parameters.take_in(ask.setter, self._asking(station, ask.channel), ask.values)
        reply(None)

    def _asking(self, station: int, channel: str) -> Asking:
        found = [other for other in self._mesh.stations() if other.station == station]
        states = [state for other in found for state in other.channels if state.consumers]
        own = [
            s for s in states if s.name == channel or (s.derived is not None and s.derived.data[0] == channel)
        ]
        return Asking(f"{station:016x}", found[0].name if found else "", bool(own))

    def _answer_get(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        reply(self._declaring(m.decoded(_name, body, f"{station:016x}")).parameters.states())

    def _declaring(self, name: str) -> Channel[Any]:
        channel = self._channel(name)
        if channel is None or not channel.declared_parameters:
            raise QueryFailed(f"parameters of {name}", "are not declared here any more")
        return channel

    def _station_left(self, station: int) -> None:
        with self._lock:
            self._told.pop(station, None)
        for channel in self._channels():
            if channel.declared_parameters:
                channel.parameters.station_left(f"{station:016x}")

"""The parameters that linked stations declare: both sides of a request that crosses a link.

What was set is said again to each source that comes later, or comes back. Questions to a station keep their
order, so what is said again is read and sent in one step, and waits while the same setter asks for something
else: an older value never comes after a newer one. A station that closes the channel says so to the sources,
and what it asked for holds for the lease.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
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
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.session.rpc import Reply
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)

SET: Final = "parameters.set"
GET: Final = "parameters.get"
LEFT: Final = "parameters.left"

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
        self._order = tasks.lock("order of parameters")
        """Held while what was set is read and sent, and taken before `_lock`."""
        self._asking: Counter[tuple[str, str]] = Counter()
        """By channel and setter: calls that ask sources for something new."""
        self._is_put_off = False
        """Whether something was not said because of one of those."""
        self._is_wanted = self._is_telling = False
        mesh.answer(SET, self._answer_set)
        mesh.answer(GET, self._answer_get)
        mesh.answer(LEFT, self._answer_left)
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

    @contextmanager
    def asking(self, channel: str, setter: str) -> Iterator[None]:
        with self._order, self._lock:
            self._asking[channel, setter] += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking[channel, setter] -= 1
                if not self._asking[channel, setter]:
                    del self._asking[channel, setter]
                is_put_off, self._is_put_off = self._is_put_off, False
            if is_put_off:
                self._look_soon()

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
        with self._order:
            with self._lock:
                for key in [key for key in self._wanted if key[0] == channel]:
                    del self._wanted[key]
                for told in self._told.values():
                    told -= {key for key in told if key[0] == channel}
            for station in self.sources(channel, 0.0):
                # One that has gone, or is of a version that does not know of it, needs no answer.
                self._mesh.ask_later(station, LEFT, channel, lambda _: None)

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
                wanted = tuple(self._wanted)
            for channel, setter in wanted:
                for station in self.sources(channel, 0.0):
                    self._tell(station, channel, setter)

    def _tell(self, station: int, channel: str, setter: str) -> None:
        key = channel, setter
        done = self._tasks.event("answer to what was set")
        outcome: list[msgspec.Raw | HeliographError] = []

        def came(answer: msgspec.Raw | HeliographError) -> None:
            outcome.append(answer)
            done.set()

        with self._order:
            with self._lock:
                values = dict(self._wanted.get(key, ()))
                told = self._told.setdefault(station, set())
                if not values or key in told:
                    return
                if self._asking[key]:
                    self._is_put_off = True
                    return
                told.add(key)
            give_up = self._mesh.ask_later(station, SET, SetAsk(channel, setter, values), came)
        if not done.wait(SET_TIMEOUT):
            give_up()
        error = outcome[0] if outcome else QueryFailed(f"station {station:016x}", "has not answered")
        if isinstance(error, QueryFailed):
            with self._lock:  # when it is met again
                self._told.get(station, set()).discard(key)
        elif isinstance(error, HeliographError):
            log.warning("a source that came back does not take what was set: %s", error)

    # In the station that declares

    def _answer_set(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = m.decoded(_set, body, f"{station:016x}")
        channel = self._declaring(ask.channel)
        channel.parameters.take_in(ask.setter, self._asker(station, ask.channel), ask.values)
        reply(None)

    def _answer_left(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        channel = self._declaring(m.decoded(_name, body, f"{station:016x}"))
        channel.parameters.station_left(f"{station:016x}")
        reply(None)

    def _asker(self, station: int, channel: str) -> Asking:
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

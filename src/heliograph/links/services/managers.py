"""The managers of linked stations: both sides of what participants in other processes ask for.

Every station with a folder has a manager. What is asked of a channel is answered by the one that has it; a
new channel goes to the one that has most channels, or else to the first: all stations choose the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import EventChannelNotFound, EventsUnderWay, HeliographError, NotPossible, QueryFailed
from heliograph.links.session import messages as m
from heliograph.model.event import Name, info_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.session.rpc import Reply
    from heliograph.manager.manager import Manager
    from heliograph.runtime.ports import Tasks

TOPIC: Final = "manager"
MANAGER_LIMIT: Final = 10.0
"""Seconds for a manager elsewhere to answer: it may wait for its disk."""
HERE: Final = 0
"""In place of a station's id: this one."""


class ManagerCall(msgspec.Struct, array_like=True):
    channel: Name
    call: Name
    arguments: dict[str, Any]


class ManagerAnswer(msgspec.Struct, array_like=True):
    """What a manager says."""

    manages: int = -1
    """How many channels it has; -1: this station has no folder, and no manager."""
    has: bool = False
    """Whether it has the channel."""
    value: Any = None
    lacking: list[str] | None = None
    """Of a channel that cannot be destroyed: who lacks events."""
    waiting: int = 0


_call: Final = msgspec.msgpack.Decoder(ManagerCall).decode
_told: Final = msgspec.msgpack.Decoder(ManagerAnswer).decode


class LinkedManagers:
    """See the module.

    Args:
        manager: this station's, opened; None where it has no folder.
    """

    def __init__(self, mesh: Mesh, manager: Callable[[], Manager | None], tasks: Tasks) -> None:
        self._mesh = mesh
        self._manager = manager
        self._tasks = tasks
        self._places: dict[str, int] = {}
        """Which station had a channel when it was last asked for."""
        mesh.answer(TOPIC, self._answer)

    # In the station that asks

    def call(self, channel: str, call: str, arguments: dict[str, Any]) -> Any:
        told = self._ask_where_it_was(channel, call, arguments)
        if told is None:
            known = self._ask_all(channel, "has", {})
            places = [station for station, told in known.items() if told.has]
            if not places and call != "create":
                raise EventChannelNotFound(channel)
            place = places[0] if places else _place_of_new(channel, known, self._mesh.identity.station)
            told = self._ask(place, channel, call, arguments)
            self._places[channel] = place
        if told.lacking is not None:
            raise EventsUnderWay(channel, tuple(told.lacking), told.waiting)
        return told.value

    def _ask_where_it_was(self, channel: str, call: str, arguments: dict[str, Any]) -> ManagerAnswer | None:
        """Ask the station that had the channel last; None when it has not any more, or is away."""
        place = self._places.get(channel)
        if place is None or call == "create":
            return None
        try:
            return self._ask(place, channel, call, arguments)
        except (EventChannelNotFound, QueryFailed):
            self._places.pop(channel, None)
            return None

    def call_all(self, call: str, arguments: dict[str, Any]) -> list[Any]:
        return [told.value for told in self._ask_all("", call, arguments).values() if told.manages >= 0]

    def _ask_all(self, channel: str, call: str, arguments: dict[str, Any]) -> dict[int, ManagerAnswer]:
        """What each station says; one that is gone or silent says nothing."""
        stations = [other.station for other in self._mesh.stations()]
        if not stations:
            self._mesh.meet_all(MANAGER_LIMIT)
            stations = [other.station for other in self._mesh.stations()]
        told: dict[int, ManagerAnswer] = {}
        for station in [HERE, *stations]:
            try:
                told[station] = self._ask(station, channel, call, arguments)
            except QueryFailed:
                continue
        return told

    def _ask(self, station: int, channel: str, call: str, arguments: dict[str, Any]) -> ManagerAnswer:
        if station == HERE:  # with its own classes: others open the channel with what is made of a format
            return _told(m.encode(self._do(ManagerCall(channel, call, arguments))))
        sent = dict(arguments)
        if "types" in sent:
            sent["types"] = [info_of(cls).format.description for cls in sent["types"]]
        ask = ManagerCall(channel, call, sent)
        return m.decoded(_told, self._mesh.ask(station, TOPIC, ask, MANAGER_LIMIT), f"station {station:016x}")

    # In the station that keeps the channel

    def _answer(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = m.decoded(_call, body, f"{station:016x}")
        # In a task of its own: it may wait for the disk, and other questions do not wait for it.
        self._tasks.spawn_soon("manager", partial(self._do_and_reply, ask, reply))

    def _do_and_reply(self, ask: ManagerCall, reply: Reply) -> None:
        try:
            reply(self._do(ask))
        except HeliographError as error:
            reply(error)
        except (TypeError, ValueError, KeyError) as error:
            reply(NotPossible(ask.channel, f"manager.{ask.call[:40]}: {error}"[:400]))

    def _do(self, ask: ManagerCall) -> ManagerAnswer:
        manager = self._manager()
        if manager is None:
            return ManagerAnswer()
        managed = manager.channels()
        has = any(one.name == ask.channel for one in managed)
        if ask.call == "has":
            return ManagerAnswer(len(managed), has)
        try:
            # A copy: who calls takes out of it, and other stations are asked with the same.
            value = _CALLS[ask.call](manager, ask.channel, dict(ask.arguments))
        except EventsUnderWay as error:
            return ManagerAnswer(len(managed), has, None, list(error.lacking), error.delayed)
        return ManagerAnswer(len(managed), has, msgspec.to_builtins(value))


def _place_of_new(channel: str, known: dict[int, ManagerAnswer], own: int) -> int:
    """Where a new channel is kept: with those that there are, or else in the first station with a folder."""
    managers = {station: told.manages for station, told in known.items() if told.manages >= 0}
    if not managers:
        raise NotPossible(
            channel,
            "no station of the domain has a folder to keep it in: helio station --folder data --domain ...",
        )
    # By its id here, too: two stations that create the same at once ask the same one, which refuses one.
    return max(managers, key=lambda station: (managers[station], -(station or own)))


def _create(manager: Manager, name: str, said: dict[str, Any]) -> None:
    from heliograph.codec.dynamic.classes import class_for  # noqa: PLC0415 - few stations keep for others
    from heliograph.model.formats import Format  # noqa: PLC0415 - as above
    from heliograph.qos.policies import qos_of  # noqa: PLC0415 - as above

    types = [
        one if isinstance(one, type) else class_for(Format.from_description(one)) for one in said.pop("types")
    ]
    manager.create(name, *types, qos=qos_of(said.pop("qos")), **said)


def _find(manager: Manager, name: str, said: dict[str, Any]) -> Any:
    return {"managed": manager.find_managed(name), "partition": manager.partition, **said}


def _join(manager: Manager, name: str, said: dict[str, Any]) -> None:
    manager.join(name, said.pop("user"), **said)


def _transfer_event(manager: Manager, name: str, said: dict[str, Any]) -> bool:
    return manager.transfer_event(name, said["to"], said["offset"], by=said["by"])


_CALLS: Final[dict[str, Callable[[Any, str, dict[str, Any]], Any]]] = {
    "create": _create,
    "find": _find,
    "search": lambda manager, _, said: manager.search(said.pop("pattern"), **said),
    "join": _join,
    "leave": lambda manager, name, said: manager.leave(name, said["user"]),
    "renew": lambda manager, name, said: manager.renew(name, said["user"]),
    "suspend": lambda manager, name, said: manager.suspend(name, by=said["by"]),
    "restart": lambda manager, name, said: manager.restart(name, by=said["by"]),
    "transfer": lambda manager, name, said: manager.transfer(name, by=said["by"], to=said["to"]),
    "destroy": lambda manager, name, said: manager.destroy(name, by=said["by"]),
    "transfer_event": _transfer_event,
}

"""The managers of linked stations: both sides of what participants in other processes ask for.

Every station with a folder has a manager. What is asked of a channel is answered by the one that has it; a
new channel goes to the one that has most channels, or else to the first: all stations choose the same.

A manager that is lost is waited for, for a moment: a standby may take its folder over. Each answer names the
folder and the manager's term, and each question the latest term that was heard of for that folder. So an
answer of a manager that was succeeded counts for nothing, and it hears of its successor from whoever asks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import (
    EventChannelNotFound,
    EventsUnderWay,
    ManagerAway,
    ManagerFenced,
    NotPossible,
    QueryFailed,
)
from heliograph.links.session import messages as m
from heliograph.links.session.rpc import GONE, SILENT, reply_apart
from heliograph.model.event import Name, info_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.session.rpc import Reply
    from heliograph.manager.manager import Manager
    from heliograph.runtime.ports import Ports

TOPIC: Final = "manager"
MANAGER_LIMIT: Final = 10.0
"""Seconds for a manager elsewhere to answer: it may wait for its disk."""
TAKEOVER_SECONDS: Final = 3.0
"""How long a manager that was lost is waited for: its standby opens the folder and is met."""
LOOK_SECONDS: Final = 0.05
HERE: Final = 0
"""In place of a station's id: this one."""


class ManagerCall(msgspec.Struct, array_like=True):
    channel: Name
    call: Name
    arguments: dict[str, Any]
    folder: str = ""
    """The partition of the manager that is asked, where it is known."""
    term: int = 0
    """The latest term of that folder's managers that was heard of."""


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
    folder: str = ""
    """The partition that its station keeps of each of its channels."""
    term: int = 0
    """Counts the managers of that folder."""


_call: Final = msgspec.msgpack.Decoder(ManagerCall).decode
_told: Final = msgspec.msgpack.Decoder(ManagerAnswer).decode


class LinkedManagers:
    """See the module.

    Args:
        manager: this station's, opened; None where it has no folder.
    """

    def __init__(self, mesh: Mesh, manager: Callable[[], Manager | None], ports: Ports) -> None:
        self._mesh = mesh
        self._manager = manager
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._places: dict[str, int] = {}
        """Which station had a channel when it was last asked for."""
        self._folders: dict[int, str] = {}
        """Which folder a station has."""
        self._terms: dict[str, int] = {}
        """The latest term of each folder's managers."""
        mesh.answer(TOPIC, self._answer)

    # In the station that asks

    def call(self, channel: str, call: str, arguments: dict[str, Any]) -> Any:
        told = self._ask_where_it_was(channel, call, arguments)
        if told is None:
            place = self._place(channel, call)
            self._places[channel] = place
            told = self._ask_once(place, channel, call, arguments)
        if told.lacking is not None:
            raise EventsUnderWay(channel, tuple(told.lacking), told.waiting)
        return told.value

    def _ask_where_it_was(self, channel: str, call: str, arguments: dict[str, Any]) -> ManagerAnswer | None:
        """Ask the station that had the channel last; None when it has not any more, or is away."""
        place = self._places.get(channel)
        if place is None or call == "create":
            return None
        try:
            return self._ask_once(place, channel, call, arguments)
        except EventChannelNotFound:
            self._places.pop(channel, None)
        except (QueryFailed, ManagerFenced):
            pass  # and it is looked for where its folder is now
        return None

    def _ask_once(self, station: int, channel: str, call: str, arguments: dict[str, Any]) -> ManagerAnswer:
        """ManagerAway for a change that may have been recorded before the manager was lost."""
        try:
            return self._ask(station, channel, call, arguments)
        except QueryFailed as error:
            if call in CHANGES and (error.reason == GONE or error.reason.startswith(SILENT)):
                raise ManagerAway(channel, call, unknown=True) from error
            raise

    def _place(self, channel: str, call: str) -> int:
        """The station that manages a channel. One that was lost is waited for, or its standby."""
        was_there = channel in self._places and call != "create"
        deadline = self._clock.monotonic_ns() + round(TAKEOVER_SECONDS * 1e9)
        while True:
            known = self._ask_all(channel, "has", {})
            places = [station for station, told in known.items() if told.has]
            if places:
                return places[0]
            if call == "create":
                return _place_of_new(channel, known, self._mesh.identity.station)
            if not was_there or self._is_managed_elsewhere(channel, known):
                self._places.pop(channel, None)
                raise EventChannelNotFound(channel)
            if self._clock.monotonic_ns() >= deadline:
                raise ManagerAway(channel, call)
            self._tasks.sleep(LOOK_SECONDS)

    def _is_managed_elsewhere(self, channel: str, known: dict[int, ManagerAnswer]) -> bool:
        """Whether the folder that had the channel is there, and has it no more."""
        folder = self._folders.get(self._places[channel])
        return folder is not None and any(told.folder == folder for told in known.values())

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
            except (QueryFailed, ManagerFenced):
                continue
        return told

    def _ask(self, station: int, channel: str, call: str, arguments: dict[str, Any]) -> ManagerAnswer:
        folder = self._folders.get(station, "")
        term = self._terms.get(folder, 0)
        if station == HERE:  # with its own classes: others open the channel with what is made of a format
            return self._heard(
                station, _told(m.encode(self._do(ManagerCall(channel, call, arguments, folder, term))))
            )
        sent = dict(arguments)
        if "types" in sent:
            sent["types"] = [info_of(cls).format.description for cls in sent["types"]]
        ask = ManagerCall(channel, call, sent, folder, term)
        answer = self._mesh.ask(station, TOPIC, ask, MANAGER_LIMIT)
        return self._heard(station, m.decoded(_told, answer, f"station {station:016x}"))

    def _heard(self, station: int, told: ManagerAnswer) -> ManagerAnswer:
        """An answer, unless a later manager of the same folder was heard of."""
        if told.folder:
            self._folders[station] = told.folder
            latest = self._terms.get(told.folder, 0)
            if told.term < latest:
                raise ManagerFenced(told.folder, told.term, latest)
            self._terms[told.folder] = told.term
        return told

    # In the station that keeps the channel

    def _answer(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = m.decoded(_call, body, f"{station:016x}")
        reply_apart(self._tasks, "manager", reply, partial(self._do_asked, ask))

    def _do_asked(self, ask: ManagerCall) -> ManagerAnswer:
        try:
            return self._do(ask)
        except (TypeError, ValueError, KeyError) as error:
            raise NotPossible(ask.channel, f"manager.{ask.call[:40]}: {error}"[:400]) from error

    def _do(self, ask: ManagerCall) -> ManagerAnswer:
        manager = self._manager()
        if manager is None:
            return ManagerAnswer()
        folder = manager.partition
        manager.check_term(ask.term if ask.folder == folder else 0)
        managed = manager.channels()
        has = any(one.name == ask.channel for one in managed)
        if ask.call == "has":
            return ManagerAnswer(len(managed), has, folder=folder, term=manager.term)
        try:
            # A copy: who calls takes out of it, and other stations are asked with the same.
            value = _CALLS[ask.call](manager, ask.channel, dict(ask.arguments))
        except EventsUnderWay as error:
            return ManagerAnswer(
                len(managed), has, None, list(error.lacking), error.delayed, folder, manager.term
            )
        return ManagerAnswer(len(managed), has, msgspec.to_builtins(value), folder=folder, term=manager.term)


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
CHANGES: Final = frozenset(_CALLS) - {"find", "search", "renew"}
"""Calls that are recorded: one that was cut off is not repeated by itself."""

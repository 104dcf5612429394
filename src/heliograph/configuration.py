"""A station's configuration file: which modules it has, and how its channels dispatch.

    # helio.toml                        hg.Station(config="helio.toml")
    configuration = "full"              # or "erm", "efd", "erd": see below

    [station]
    callback_limit = 10.0

    [channels]                          # of every channel: any field of hg.QoS
    dispatch = "aged"

    [channel."air.tracks"]              # of one
    dispatch = "mine.orders:TurnByTurn" # a class of the user's own: module:Class
    threads = { kind = "pool", workers = 4 }

What the file says takes the place of what the program says, field by field, so that a deployment changes no
code. A file with a mistake is refused whole, with its line and what is allowed there.

The configurations are TAO's:

    full    filtering, correlation and dispatching
    erd     event real-time dispatching: no filters, no patterns
    efd     event forwarding discriminator: no dispatching, callbacks run inside push
    erm     event registration multiplexer: neither
"""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from heliograph.errors import InvalidConfiguration, InvalidQoS
from heliograph.qos import QoS
from heliograph.threads import Threads

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

MAX_CONFIGURATION: Final = 1_048_576
"""Bytes of a configuration file."""

_TOP: Final = ("configuration", "station", "channels", "channel")
_STATION: Final = ("callback_limit",)
_KEY: Final = re.compile(r"""\s*("[^"]*"|'[^']*'|[A-Za-z0-9_-]+)\s*[.=]""")
_LINE: Final = re.compile(r"at line (\d+)")


class Modules(msgspec.Struct, frozen=True):
    """What a station's channels have."""

    name: str = "full"
    filtering: bool = True
    """Filters in subscriptions, and patterns over several events."""
    dispatching: bool = True
    """Queues that workers empty; without, callbacks run inside push."""


CONFIGURATIONS: Final = {
    "full": Modules("full"),
    "erd": Modules("erd", filtering=False),
    "efd": Modules("efd", dispatching=False),
    "erm": Modules("erm", filtering=False, dispatching=False),
}


class Configuration(msgspec.Struct, frozen=True):
    """What a file says, checked."""

    modules: Modules = CONFIGURATIONS["full"]
    callback_limit: float | None = None
    every_channel: Mapping[str, Any] = {}
    """Fields of `QoS`."""
    channels: Mapping[str, Mapping[str, Any]] = {}

    def qos(self, channel: str, said: QoS) -> QoS:
        """The quality of service of a channel: what the program said, and in its place what the file says."""
        inline = {} if self.modules.dispatching or said.journalled else {"threads": Threads("inline")}
        changed = {**inline, **self.every_channel, **self.channels.get(channel, {})}
        return _qos({**_fields(said), **changed}) if changed else said


def load(path: str | os.PathLike[str] | None) -> Configuration:
    """Read a file; InvalidConfiguration names the line of the first mistake. Without one, as usual."""
    return Configuration() if path is None else _Reading(str(path), _text(path)).configuration()


class _Reading:
    """A file that is being read."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        try:
            self._tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = _LINE.search(str(error))
            line = int(found[1]) if found else len(text.splitlines())
            raise InvalidConfiguration(name, line, str(error)) from error

    def configuration(self) -> Configuration:
        self._check_names((), self._tables, _TOP)
        station = self._table(("station",))
        self._check_names(("station",), station, _STATION)
        limit = station.get("callback_limit")
        if limit is not None and (type(limit) not in (int, float) or not limit > 0):
            self._refuse(("station", "callback_limit"), f"{limit!r}: seconds above 0")
        modules = self._modules()
        every = self._policies(("channels",), {}, modules)
        names = self._table(("channel",))
        channels = {name: self._policies(("channel", name), every, modules) for name in names}
        return Configuration(modules, limit, every, channels)

    def _modules(self) -> Modules:
        said = self._tables.get("configuration", "full")
        if not isinstance(said, str) or said not in CONFIGURATIONS:
            self._refuse(("configuration",), f"{said!r}: one of {', '.join(CONFIGURATIONS)}")
        return CONFIGURATIONS[said]

    def _policies(self, path: tuple[str, ...], below: Mapping[str, Any], modules: Modules) -> dict[str, Any]:
        """The fields of `QoS` in one table, which are checked together with those that hold for all."""
        table = self._table(path)
        self._check_names(path, table, QoS.__struct_fields__)
        policies = {name: self._policy((*path, name), value) for name, value in table.items()}
        try:
            qos = _qos({**_fields(QoS()), **below, **policies})
        except InvalidQoS as error:
            self._refuse((*path, error.policy), f"{error.value!r}: {error.allowed}")
        if (
            not modules.dispatching
            and policies.keys() & {"threads", "dispatch"}
            and qos.threads.kind != "inline"
        ):
            key = "threads" if "threads" in policies else "dispatch"
            self._refuse((*path, key), f"the configuration {modules.name!r} has no dispatching; leave it out")
        return policies

    def _policy(self, path: tuple[str, ...], value: Any) -> Any:
        if path[-1] == "threads":
            return self._threads(path, value)
        if path[-1] == "dispatch" and isinstance(value, str) and ":" in value:
            return self._made(path, value)
        return value

    def _threads(self, path: tuple[str, ...], value: Any) -> Threads:
        said = {"kind": value} if isinstance(value, str) else value
        if not isinstance(said, dict):
            self._refuse(path, f"{value!r}: a name, or a table of {', '.join(Threads.__struct_fields__)}")
        self._check_names(path, said, Threads.__struct_fields__)
        try:
            return Threads(**said)
        except InvalidQoS as error:
            return self._refuse(path, f"{error.policy} = {error.value!r}: {error.allowed}")

    def _made(self, path: tuple[str, ...], text: str) -> Any:
        """An object of a class of the user's own."""
        module, _, name = text.partition(":")
        try:
            return getattr(importlib.import_module(module), name)()
        except Exception as error:  # noqa: BLE001 - importing runs the user's code, which may raise anything
            return self._refuse(path, f"{text!r}: no object of it could be made: {error!r}")

    def _table(self, path: tuple[str, ...]) -> dict[str, Any]:
        table: Any = self._tables
        for part in path:
            table = table.get(part, {})
            if not isinstance(table, dict):
                self._refuse(path, f"is a table: [{'.'.join(path)}]")
        return table  # type: ignore[no-any-return]  # checked above

    def _check_names(self, path: tuple[str, ...], table: Mapping[str, Any], allowed: Iterable[str]) -> None:
        for name in table:
            if name not in allowed:
                self._refuse((*path, name), f"is not known here; allowed are {', '.join(allowed)}")

    def _refuse(self, path: tuple[str, ...], reason: str) -> NoReturn:
        line = line_of(self._text, path)
        raise InvalidConfiguration(self._name, line, f"{'.'.join(path)} {reason}")


def line_of(text: str, path: tuple[str, ...]) -> int:
    """The line, from 1, where a key stands, or the table that it is missing in; tomllib does not tell."""
    table: tuple[str, ...] = ()
    best, depth = 1, 0
    for number, line in enumerate(text.splitlines(), 1):
        here = table
        if line.lstrip().startswith("["):
            here = table = _header(line)
        elif key := _KEY.match(line):
            here = (*table, key[1].strip("\"'"))
        common = len(here) if here == path[: len(here)] else 0
        if common > depth:
            best, depth = number, common
    return best


def _header(line: str) -> tuple[str, ...]:
    try:
        table: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:  # a line of an array
        return ()
    path: list[str] = []
    while isinstance(table, dict) and table:
        ((name, table),) = table.items()
        path.append(name)
    return tuple(path)


def _text(path: str | os.PathLike[str]) -> str:
    file = Path(path)
    try:
        if file.stat().st_size > MAX_CONFIGURATION:
            raise InvalidConfiguration(str(path), 1, f"is larger than {MAX_CONFIGURATION:,} bytes")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(str(path), 1, f"cannot be read: {error}") from error


def _fields(qos: QoS) -> dict[str, Any]:
    return {name: getattr(qos, name) for name in qos.__struct_fields__}


def _qos(fields: Mapping[str, Any]) -> QoS:
    return QoS(**fields)

"""A station's configuration file: which modules it has, which strategies they use, and how its channels are.

    # helio.toml                        hg.Station(config="helio.toml")
    configuration = "full"              # or "erm", "efd", "erd": see below

    [station]
    callback_limit = 10.0
    transport = "ring"
    listen = ["tcp/127.0.0.1:7447"]     # and connect: stations of other hosts

    [timers]
    limit = 10_000

    [correlation]                       # enabled, and the limits of every pattern
    keys = 500

    [channels]                          # of every channel: any field of hg.QoS
    dispatch = "aged"

    [channel."air.tracks"]              # of one
    dispatch = "mine.orders:TurnByTurn" # a class of the user's own: module:Class
    threads = { kind = "pool", workers = 4 }
    journal = { keep_seconds = 86_400.0, keep_bytes = 1_000_000_000 }
    filters.consumers = "quality > 3"
    filters.suppliers = { class = "mine.filters:Plausible", most = 900.0 }

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
import os
import re
import tomllib
from collections.abc import Mapping, Sequence  # noqa: TC003 - annotations are read at run time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypedDict

import msgspec

from heliograph.errors import ExpressionError, InvalidConfiguration, InvalidQoS, NotPossible
from heliograph.errors.sentences import hint
from heliograph.qos.policies import PRIORITY, QoS
from heliograph.qos.threads import Threads
from heliograph.runtime.declared_options import (
    Choice,
    Object,
    Option,
    Switch,
    Text,
    rows_of,
    seconds,
    whole,
)
from heliograph.runtime.endpoints import MAX_REPAIR_BYTES, MAX_REPAIR_EVENTS, Network, why_not_endpoints
from heliograph.runtime.timers import MAX_TIMERS

if TYPE_CHECKING:
    from collections.abc import Collection

    from heliograph.runtime.declared_options import Allowed

MAX_CONFIGURATION: Final = 1_048_576
"""Bytes of a configuration file."""
MAX_STATION_NAME: Final = 255
"""Characters of a station's name: it travels in the hello, which is small."""
MAX_BOUND: Final = 100_000_000
"""The highest limit of patterns that a file may set."""

_LONGEST: Final = 1e9
"""Seconds."""
_TOP: Final = (
    "configuration",
    "station",
    "store",
    "timers",
    "filtering",
    "correlation",
    "channels",
    "channel",
)
_CLASS: Final = "class"
"""In a table, what names a class of the user's own; the rest of the table is handed to it."""
_KEY: Final = re.compile(r"""\s*("[^"]*"|'[^']*'|[A-Za-z0-9_-]+)\s*[.=]""")
_LINE: Final = re.compile(r"at line (\d+)")


class Modules(msgspec.Struct, frozen=True):
    """What a station's channels have."""

    name: str = "full"
    filtering: bool = True
    """Filters in subscriptions."""
    correlation: bool = True
    """Patterns over several events."""
    dispatching: bool = True
    """Queues that workers empty; without, callbacks run inside push."""


CONFIGURATIONS: Final = {
    "full": Modules("full"),
    "erd": Modules("erd", filtering=False, correlation=False),
    "efd": Modules("efd", dispatching=False),
    "erm": Modules("erm", filtering=False, correlation=False, dispatching=False),
}


class Bounds(msgspec.Struct, frozen=True):
    """What every pattern may remember; None: what the program says."""

    keys: int | None = None
    depth: int | None = None
    queue: int | None = None
    """Matches that wait for the callback."""


class Filters(msgspec.Struct, frozen=True):
    """What a file lets into a channel, and out to its receivers."""

    suppliers: Any = None
    """A filter, or an object of the user's own that has a method `lets_through(event)`."""
    consumers: str | None = None
    channel: str = ""
    file: str = ""
    lines: Mapping[str, int] = {}
    """Where the file says them."""

    def refused(self, side: str, error: ExpressionError) -> InvalidConfiguration:
        """Why the channel cannot be opened with the filter of that side."""
        key = _shown(("channel", self.channel, "filters", side))
        return InvalidConfiguration(
            self.file, self.lines[side], f"{key} fits none of the channel's events: {error}"
        )


class Configuration(msgspec.Struct, frozen=True):
    """What a file says, checked."""

    modules: Modules = CONFIGURATIONS["full"]
    callback_limit: float | None = None
    peer_limit: float | None = None
    transport: Any = None
    """The name of a carrier; None: what the program says. So it is with the next."""
    priority: int | None = None
    listen: Sequence[str] | None = None
    connect: Sequence[str] | None = None
    insecure: bool | None = None
    identity: str | None = None
    repair_events: int | None = None
    repair_bytes: int | None = None
    timers: int = MAX_TIMERS
    patterns: Bounds = Bounds()
    every_channel: Mapping[str, Any] = {}
    """Fields of `QoS`."""
    channels: Mapping[str, Mapping[str, Any]] = {}
    filters: Mapping[str, Filters] = {}
    """By channel."""
    journals: Mapping[str, Mapping[str, Any]] = {}
    """By channel, fields of `Limits`; under "" those of every channel."""
    store: Mapping[str, Any] = {}
    """Where sealed files are published; empty: what the program says."""

    def qos(self, channel: str, said: QoS) -> QoS:
        """The quality of service of a channel: what the program said, and in its place what the file says."""
        inline = {} if self.modules.dispatching or said.journalled else {"threads": Threads("inline")}
        changed = {**inline, **self.every_channel, **self.channels.get(channel, {})}
        return _qos({**_fields(said), **changed}) if changed else said

    def network(self, said: Network) -> Network:
        """How a station meets those of other hosts: what the file says, or else what the program said."""
        identity = said.identity if self.identity is None else self.identity
        return Network(
            tuple(said.listen if self.listen is None else self.listen),
            tuple(said.connect if self.connect is None else self.connect),
            said.insecure if self.insecure is None else self.insecure,
            None if identity is None else os.fspath(identity),
            self.repair_events or said.repair_events,
            self.repair_bytes or said.repair_bytes,
        )

    def journal_of(self, channel: str) -> dict[str, Any]:
        """How much of a channel's history is kept: what the file says in place of the program."""
        return {**self.journals.get("", {}), **self.journals.get(channel, {})}

    def filters_of(self, channel: str) -> Filters:
        return self.filters.get(channel, Filters())


def load(
    path: str | os.PathLike[str] | None,
    carriers: tuple[str, ...] = (),
    limits: Mapping[str, Option] | None = None,
    store: Mapping[str, Option] | None = None,
) -> Configuration:
    """Read a file; InvalidConfiguration names the line of the first mistake. Without one, as usual.

    Args:
        path: of the file.
        carriers: the names that `transport` may have.
        limits: what may be said of how much of a history is kept.
        store: what a store of published segments may be told.
    """
    if path is None:
        return Configuration()
    return _Reading(str(path), text_of(path), carriers, limits or {}, store or {}).configuration()


def _no_path(value: Any) -> str | None:
    fits = isinstance(value, str | os.PathLike) and str(value)
    return None if fits else "a path, such as 'data'"


def _not_callable(value: Any) -> str | None:
    return None if callable(value) else "a function of (receiver's name, header, exception)"


def _no_page(value: Any) -> str | None:
    allowed = "True for a loopback address, a port of it, or 'host:port'"
    if isinstance(value, bool) or (isinstance(value, int) and 0 <= value < 65_536):
        return None
    _, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return None if colon and port.isascii() and port.isdigit() and int(port) < 65_536 else allowed


class StationOptions(TypedDict, total=False):
    """The options of `hg.Station`, which has them as parameters with the same names."""

    folder: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "where persistent channels keep their history; made if missing; one station at a time has it",
            Object("a path, such as 'data'", _no_path),
        ),
    ]
    domain: Annotated[
        str | None,
        Option(
            "joins this user's stations of that domain on this host: channels of one name are one channel",
            Object("text, such as 'airspace'"),
        ),
    ]
    name: Annotated[
        str, Option("how other stations see this one; need not be unique", Text(MAX_STATION_NAME))
    ]
    transport: Annotated[
        Any | None,
        Option(
            "what carries events between stations of a domain; None: ring, or socket where that cannot work",
            Object("one of ring, spinning-ring, socket"),
        ),
    ]
    priority: Annotated[
        int | None, Option("of receivers that name none; None: events have their own", PRIORITY)
    ]
    config: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "a file that chooses modules, dispatch and policies in place of the program",
            Object("the path of a TOML file"),
        ),
    ]
    journal: Annotated[
        Any | None,
        Option(
            "when the files of persistent channels are rotated, and how much of them is kept",
            Object("hg.Limits(...)"),
        ),
    ]
    store: Annotated[
        Any | None,
        Option(
            "where sealed files are published for readers that do not see the folder; None: nowhere",
            Object("hg.Store(...), or its URL"),
        ),
    ]
    callback_limit: Annotated[
        float,
        Option(
            "after which a callback that does not return is reported and detached",
            seconds(0, _LONGEST, above=True),
        ),
    ]
    peer_limit: Annotated[
        float | None,
        Option(
            "after which a silent station is suspected: it holds up nobody until it is heard again",
            seconds(1, _LONGEST, reason="stations beat twice a second"),
        ),
    ]
    listen: Annotated[
        Sequence[str],
        Option(
            "where stations of other hosts can connect to this one, over Zenoh",
            Object("a list of endpoints, such as ['tcp/127.0.0.1:7447']", why_not_endpoints),
        ),
    ]
    connect: Annotated[
        Sequence[str],
        Option(
            "where stations of other hosts listen; those that are not there are waited for",
            Object("a list of endpoints, such as ['tcp/127.0.0.1:7447']", why_not_endpoints),
        ),
    ]
    identity: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "the certificate and key that this station shows where endpoints are tls or quic",
            Object("the path of a folder that `helio keys add` has made", _no_path),
        ),
    ]
    insecure: Annotated[
        bool,
        Option("lets both be other than loopback, though nothing is encrypted and everybody is let in"),
    ]
    standby: Annotated[
        float,
        Option(
            "for which a folder that another station has is waited for, to take it over; 0: it is refused",
            seconds(0, _LONGEST),
        ),
    ]
    repair_events: Annotated[
        int,
        Option(
            "that each lane of a stream to other hosts keeps for stations that did not get them",
            whole(1, MAX_REPAIR_EVENTS),
        ),
    ]
    repair_bytes: Annotated[
        int, Option("likewise; what reaches its bound first counts", whole(1_024, MAX_REPAIR_BYTES))
    ]
    page: Annotated[
        bool | int | str,
        Option(
            "serves a page that shows this station and its domain, `station.page` is its link; False: none",
            Object("True for a loopback address, a port of it, or 'host:port'", _no_page),
        ),
    ]
    on_error: Annotated[
        Any | None,
        Option(
            "called when a callback raises, a receiver has a gap, or a worker dies; None: it is logged",
            Object("a function of (receiver's name, header, exception)", _not_callable),
        ),
    ]
    ports: Annotated[
        Any | None,
        Option("clock, disk, tasks and chance, for tests", Object("heliograph.runtime.ports.Ports")),
    ]


def check_station(options: Mapping[str, Any]) -> None:
    """NotPossible for what a program says of its station and no station could be."""
    rows = rows_of(StationOptions)
    for name, value in options.items():
        if (allowed := rows[name].why_not(value)) is not None:
            raise NotPossible(f"{name}={value!r:.60}", f"allowed is {allowed}")


_STATION: Final = (
    *("callback_limit", "peer_limit", "priority"),
    *("listen", "connect", "insecure", "identity", "repair_events", "repair_bytes"),
)
"""Options of a station that its file may say, beside `transport`."""
_SWITCH: Final = Switch("true or false")


def _is_class(value: Any) -> bool:
    """Whether a value names a class: by `module:Class`, or in a table with options for it."""
    text = value.get(_CLASS) if isinstance(value, dict) else value
    return isinstance(text, str) and re.fullmatch(r"[\w.]+:\w+", text) is not None


class _Reading:
    """A file that is being read."""

    def __init__(
        self,
        name: str,
        text: str,
        carriers: tuple[str, ...],
        limits: Mapping[str, Option],
        store: Mapping[str, Option],
    ) -> None:
        self._limits = limits
        self._name = name
        self._text = text
        self._carriers = carriers
        self._store = store
        try:
            self._tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = _LINE.search(str(error))
            line = int(found[1]) if found else len(text.splitlines())
            raise InvalidConfiguration(name, line, str(error)) from error

    def configuration(self) -> Configuration:
        self._check_names((), self._tables, _TOP)
        modules = self._modules()
        rows = rows_of(StationOptions)
        allowed = {name: rows[name].allowed for name in _STATION}
        station = self._checked("station", **allowed, transport=Choice(self._carriers))
        timers = self._checked("timers", limit=whole(1, MAX_TIMERS))
        store = self._checked("store", **{name: row.allowed for name, row in self._store.items()})
        if "store" in self._tables and "url" not in store:
            self._refuse(("store",), 'it has no url, such as url = "s3://bucket/path"')
        bound = whole(1, MAX_BOUND)
        bounds = self._checked("correlation", enabled=_SWITCH, keys=bound, depth=bound, queue=bound)
        bounds.pop("enabled", None)
        if bounds and not modules.correlation:
            self._refuse(
                ("correlation", next(iter(bounds))), "bounds patterns, and there are none here; leave it out"
            )
        every = self._policies(("channels",), {}, modules)
        names = self._table(("channel",))
        return Configuration(
            modules,
            timers=timers.get("limit", MAX_TIMERS),
            patterns=Bounds(**bounds),
            every_channel=every,
            channels={name: self._policies(("channel", name), every, modules) for name in names},
            filters={name: self._filters(("channel", name), modules) for name in names},
            journals={
                "": self._journal(("channels",)),
                **{name: self._journal(("channel", name)) for name in names},
            },
            store=store,
            **station,
        )

    def _modules(self) -> Modules:
        said = self._tables.get("configuration", "full")
        if not isinstance(said, str) or said not in CONFIGURATIONS:
            self._refuse(("configuration",), f"{said!r}: one of {', '.join(CONFIGURATIONS)}")
        modules = CONFIGURATIONS[said]
        for part in ("filtering", "correlation"):
            enabled = self._table((part,)).get("enabled")
            if enabled is True and not getattr(modules, part):
                self._refuse((part, "enabled"), f"the configuration {said!r} has no {part}; leave it out")
            if enabled is False:
                modules = msgspec.structs.replace(modules, **{part: False})
        self._checked("filtering", enabled=_SWITCH)
        return modules

    def _checked(self, table: str, **known: Allowed) -> dict[str, Any]:
        """A table of plain values."""
        said = self._table((table,))
        self._check_names((table,), said, known)
        for name, value in said.items():
            if (allowed := known[name].why_not(value)) is not None:
                self._refuse((table, name), f"{value!r:.60}: {allowed}")
        return dict(said)

    def _policies(self, path: tuple[str, ...], below: Mapping[str, Any], modules: Modules) -> dict[str, Any]:
        """The fields of `QoS` in one table, which are checked together with those that hold for all."""
        also = ("filters", "journal") if path[0] == "channel" else ("journal",)
        self._check_names(path, self._table(path), (*QoS.__struct_fields__, *also))
        table = {name: value for name, value in self._table(path).items() if name not in also}
        policies = {name: self._policy((*path, name), value) for name, value in table.items()}
        try:
            qos = _qos({**_fields(QoS()), **below, **policies})
        except InvalidQoS as error:
            self._refuse((*path, error.policy), f"{error.value!r}; allowed is {error.allowed}")
        if (
            not modules.dispatching
            and policies.keys() & {"threads", "dispatch"}
            and qos.threads.kind != "inline"
        ):
            key = "threads" if "threads" in policies else "dispatch"
            self._refuse((*path, key), f"the configuration {modules.name!r} has no dispatching; leave it out")
        return policies

    def _journal(self, channel: tuple[str, ...]) -> dict[str, Any]:
        """How much of a history is kept."""
        path = (*channel, "journal")
        table = self._table(path)
        known = tuple(name for name in self._limits if name not in ("compact", "tombstone_seconds"))
        self._check_names(path, table, known)
        for name, value in table.items():
            if (allowed := self._limits[name].why_not(value)) is not None:
                self._refuse((*path, name), f"{value!r:.60}: {allowed}")
        return dict(table)

    def _filters(self, channel: tuple[str, ...], modules: Modules) -> Filters:
        path = (*channel, "filters")
        table = self._table(path)
        self._check_names(path, table, ("suppliers", "consumers"))
        if table and not modules.filtering:
            self._refuse(path, f"the configuration {modules.name!r} has no filtering; leave it out")
        consumers = table.get("consumers")
        if consumers is not None:
            self._check_filter((*path, "consumers"), consumers)
        suppliers: Any = table.get("suppliers")
        if _is_class(suppliers):
            suppliers = self._made((*path, "suppliers"), suppliers)
            if not callable(getattr(suppliers, "lets_through", None)):
                self._refuse((*path, "suppliers"), "is an object that has a method lets_through(event)")
        elif suppliers is not None:
            self._check_filter((*path, "suppliers"), suppliers)
        lines = {side: line_of(self._text, (*path, side)) for side in table}
        return Filters(suppliers, consumers, channel[1], self._name, lines)

    def _check_filter(self, path: tuple[str, ...], text: Any) -> None:
        """Whether it is one at all; which fields there are is known when the channel is opened."""
        if not isinstance(text, str):
            self._refuse(path, f"{text!r:.60}: a filter, as text")
        from heliograph.filters.parser import parse  # noqa: PLC0415 - few files have filters

        try:
            parse(text)
        except ExpressionError as error:
            self._refuse(path, f"is no filter: {error}")

    def _policy(self, path: tuple[str, ...], value: Any) -> Any:
        if path[-1] == "threads":
            return self._threads(path, value)
        if path[-1] == "dispatch" and _is_class(value):
            return self._made(path, value)
        return value

    def _threads(self, path: tuple[str, ...], value: Any) -> Threads:
        said = {"kind": value} if isinstance(value, str) else value
        if not isinstance(said, dict):
            self._refuse(path, f"{value!r}: a name, or a table of {', '.join(Threads.__struct_fields__)}")
        self._check_names(path, said, Threads.__struct_fields__)
        if "strategy" in said:
            own = (*path, "strategy")
            if not _is_class(said["strategy"]):
                self._refuse(own, f"{said['strategy']!r:.60}: a class of your own, module:Class")
            said = {**said, "strategy": self._made(own, said["strategy"])}
        try:
            return Threads(**said)
        except InvalidQoS as error:
            return self._refuse(path, f"{error.policy} = {error.value!r}: {error.allowed}")

    def _made(self, path: tuple[str, ...], said: str | dict[str, Any]) -> Any:
        """An object of a class of the user's own, made with the options beside its name."""
        options = {} if isinstance(said, str) else {key: said[key] for key in said if key != _CLASS}
        text = said if isinstance(said, str) else said[_CLASS]
        module, _, name = text.partition(":")
        try:
            return getattr(importlib.import_module(module), name)(**options)
        except Exception as error:  # noqa: BLE001 - importing runs the user's code, which may raise anything
            return self._refuse(path, f"{text!r}: no object of it could be made: {error!r}")

    def _table(self, path: tuple[str, ...]) -> dict[str, Any]:
        table: Any = self._tables
        for part in path:
            table = table.get(part, {})
            if not isinstance(table, dict):
                self._refuse(path, f"is a table: [{_shown(path)}]")
        return table  # type: ignore[no-any-return]  # checked above

    def _check_names(self, path: tuple[str, ...], table: Mapping[str, Any], allowed: Collection[str]) -> None:
        for name in table:
            if name not in allowed:
                self._refuse((*path, name), _not_known(path, name, table[name], allowed))

    def _refuse(self, path: tuple[str, ...], reason: str) -> NoReturn:
        line = line_of(self._text, path)
        raise InvalidConfiguration(self._name, line, f"{_shown(path)} {reason}")


def _shown(path: tuple[str, ...]) -> str:
    """A key as the file has it: names of channels in quotes, because of their dots."""
    return ".".join(f'"{part}"' if "." in part else part for part in path)


def _not_known(path: tuple[str, ...], name: str, value: Any, allowed: Collection[str]) -> str:
    near = hint(name, allowed)
    if path[:-1] == ("channel",) and isinstance(value, dict) and not near:
        quoted = f'[channel."{path[1]}.{name}"]'
        return f"is not known here; a channel whose name has dots stands in quotes: {quoted}"
    return f"is not known here; allowed are {', '.join(allowed)}{near}"


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


def text_of(path: str | os.PathLike[str]) -> str:
    """A configuration file's text; InvalidConfiguration when it cannot be read."""
    try:
        file = Path(path)
    except TypeError:
        raise NotPossible(f"config={path!r:.60}", "is the path of a TOML file") from None
    try:
        if file.stat().st_size > MAX_CONFIGURATION:
            raise InvalidConfiguration(str(path), 1, f"is larger than {MAX_CONFIGURATION:,} bytes")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InvalidConfiguration(str(path), 0, "there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(str(path), 0, f"cannot be read: {error}") from error


def _fields(qos: QoS) -> dict[str, Any]:
    return {name: getattr(qos, name) for name in qos.__struct_fields__}


def _qos(fields: Mapping[str, Any]) -> QoS:
    return QoS(**fields)

"""`helio station` and `helio ls`: a station on its own, and the stations of a domain.

helio station --domain airspace --folder data     keeps histories, and channels that others open
helio station --listen tcp/127.0.0.1:7447         stations of other hosts can connect to it
helio station --folder data --standby             takes the folder over when its station is lost
helio ls --domain airspace                        stations, their channels, types and consumers
helio ls --domain airspace --links                what carries each link, and why not shared memory
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from contextlib import contextmanager
from enum import StrEnum
from itertools import groupby
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from heliograph.cli.output import JsonFlag, print_json, print_line, print_problem, print_table
from heliograph.links import PEER_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from heliograph.links.mesh.mesh import Mesh
    from heliograph.model.event import Event
    from heliograph.station import Station

MEET_LIMIT = 2.0
"""Seconds to wait for the other stations of a domain to tell what they have."""

WAKE_UP = 0.5
"""Seconds after which a station that waits for its end looks whether it was interrupted."""


class LogFormat(StrEnum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


MOST_DOMAINS: Final = 8
"""Other domains that are looked at for a channel, or for the other side of one."""
ASKS_STATIONS: Final = re.compile(r"\bhelio (?:consumer|doctor|info|ls|purge|redrive|top)\b[^;,`]*")
"""A command in a text that says what to try."""

Domain: TypeAlias = Annotated[
    str, typer.Option(envvar="HELIO_DOMAIN", help="The domain: stations of one user and domain are linked.")
]


def station(
    *,
    domain: Domain = "default",
    folder: Annotated[
        str | None, typer.Option(help="Where histories are kept; none without it.", show_default=False)
    ] = None,
    name: Annotated[str, typer.Option(help="How others see this station.", show_default=False)] = "",
    store: Annotated[
        str | None,
        typer.Option(help="Where sealed files are published: a folder or s3://…", show_default=False),
    ] = None,
    peer_limit: Annotated[
        float, typer.Option(help="Seconds after which a station that says nothing is suspected, from 1.")
    ] = PEER_LIMIT,
    listen: Annotated[
        list[str] | None,
        typer.Option(help="Where other hosts can connect: tcp/HOST:PORT. Repeatable.", show_default=False),
    ] = None,
    connect: Annotated[
        list[str] | None,
        typer.Option(help="Where another host listens: tcp/HOST:PORT. Repeatable.", show_default=False),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(help="The folder of its keys, for tls/HOST:PORT; see helio keys.", show_default=False),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Listen or connect beyond this host though nothing is encrypted there."
        ),
    ] = False,
    config: Annotated[
        str | None,
        typer.Option(help="A TOML file: policies, and how much of each history is kept.", show_default=False),
    ] = None,
    page: Annotated[
        bool, typer.Option(help="Serve the page that shows the domain in a browser, and print its link.")
    ] = True,
    page_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where to serve it; a loopback address without it.", show_default=False
        ),
    ] = None,
    watchdog: Annotated[
        bool, typer.Option("--watchdog", help="In a process of its own, begun again when it dies or hangs.")
    ] = False,
    ping: Annotated[
        float, typer.Option(min=0.1, help="Seconds; without an answer for two of them it is begun again.")
    ] = 1.0,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait while another station has the folder, and take it over then."),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="How warnings and errors are written to standard error.")
    ] = LogFormat.TEXT,
    as_json: JsonFlag = False,
) -> None:
    """Run a station until Ctrl-C or SIGTERM ends it.

    With a folder it keeps the channels with a history there, and those that other
    stations open and none keeps yet.
    """
    if standby and folder is None:
        raise typer.BadParameter("--standby takes a folder over: --folder FOLDER")
    from heliograph.cli.watchdog import end_with_watchdog, watch  # noqa: PLC0415 - commands import late

    end_with_watchdog()
    if log_format is LogFormat.JSON:
        _log_as_json()
    if watchdog:
        with until_interrupted():
            watch(domain, _but_watchdog(sys.argv[1:]), ping)
        return
    options = {
        "name": name or "helio station",
        "peer_limit": peer_limit,
        "listen": listen or (),
        "connect": connect or (),
        "insecure": insecure,
        "identity": identity,
        "config": config,
        "store": store,
    }
    with until_interrupted():
        opened = _standing_by if standby and folder is not None else _opened
        _run(opened(domain, folder, options), domain, folder, page=page_address or page, as_json=as_json)


def _opened(domain: str, folder: str | None, options: Mapping[str, Any]) -> Station:
    from heliograph.station import Station  # noqa: PLC0415 - commands import what they need when they run

    return Station(folder, domain=domain, **options)


def _standing_by(domain: str, folder: str | None, options: Mapping[str, Any]) -> Station:
    """The station of a folder, once no other has it. Until then the domain has it as a standby."""
    import heliograph.manager  # noqa: F401, PLC0415 - what is loaded now need not be when it is in a hurry
    from heliograph.errors import FolderInUse  # noqa: PLC0415 - as above
    from heliograph.runtime.service_manager import notify  # noqa: PLC0415 - as above
    from heliograph.station import Station  # noqa: PLC0415 - as above

    waiting = {**options, "name": f"{options['name']}, standby", "store": None}
    with Station(domain=domain, **waiting):
        is_told = False
        while True:
            try:
                return Station(folder, domain=domain, **options, standby=WAKE_UP)
            except FolderInUse as held:
                if not is_told:
                    print_problem(f"standby for {folder}, which another station has ({held.holder})")
                is_told = True
                # A standby that waits is ready: it is not begun again, and not taken for one that hangs.
                notify("READY=1")
                notify("WATCHDOG=1")


def _log_as_json() -> None:
    from heliograph.runtime.json_logs import JsonLogFormatter  # noqa: PLC0415 - as above

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLogFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def _run(opened: Station, domain: str, folder: str | None, *, page: bool | str, as_json: bool) -> None:
    from heliograph.runtime.service_manager import notify, watchdog_seconds  # noqa: PLC0415 - as the next

    with opened as running:
        if folder is not None:
            _open_manager(running, folder)
        channels = _keep_all(running, folder) if folder is not None else []
        if folder is not None:
            running.keep_for_others()
        link, problem = _served(running, page)
        if as_json:
            told = {"station": f"{running.id:016x}", "domain": domain, "channels": channels, "page": link}
            print_json(told)
        else:
            kept = f", keeping {', '.join(channels)}" if channels else ""
            print_line(f"station {running.id:016x} of domain {domain}{kept}; Ctrl-C ends it")
            if link or problem:
                print_line(f"page: {link or problem}")
        sys.stdout.flush()
        notify("READY=1")
        alive = watchdog_seconds()
        end = running.ports.tasks.event("end")
        # Not for ever: where a signal reaches another thread first, this one sees it when it wakes up.
        while not end.wait(min(WAKE_UP, alive or WAKE_UP)):
            if alive is not None:
                notify("WATCHDOG=1")


def _served(running: Station, page: bool | str) -> tuple[str | None, str | None]:
    """The link of its page, or why it has none: a keeper keeps all the same.

    An address that was asked for and cannot be had is an error.
    """
    from heliograph.errors import MissingExtra, NotPossible  # noqa: PLC0415 - as above

    if page is False:
        return None, None
    try:
        return running.serve_page(page), None
    except (MissingExtra, NotPossible) as error:
        if isinstance(error, NotPossible) and page is not True:
            raise
        return None, f"none; {error}"


def _but_watchdog(arguments: list[str]) -> list[str]:
    """The options of the station itself, as they were given."""
    left = iter(arguments[1:])
    return [one for one in left if one != "--watchdog" and not (one == "--ping" and next(left, None))]


@contextmanager
def until_interrupted() -> Iterator[None]:
    """What ends services is as good as Ctrl-C, also while the station starts: it is closed in order."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)


SILENT: Final = "does not answer: it may be stopped, or busy"
NO_CHANNEL: Final = {"channel": None, "types": (), "consumers": 0, "durability": None, "keeps": False}
NO_LINKS: Final = {"links": (), "streams": ()}


def ls(
    *,
    domain: Annotated[
        str | None,
        typer.Option(
            envvar="HELIO_DOMAIN",
            help="The domain; without one, which domains there are.",
            show_default=False,
        ),
    ] = None,
    links: Annotated[
        bool,
        typer.Option("--links", help="Show what carries each link, and why it is not shared memory."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the stations of a domain, their channels, types and consumers; or the domains that there are.

    With --links, of each station the others that it is linked to.
    """
    if domain is None:
        if links:
            raise typer.BadParameter("--links shows the stations of one domain: --domain NAME")
        _list_domains(as_json=as_json)
        return
    from heliograph.station import Station  # noqa: PLC0415 - as above

    with Station(domain=domain, name="helio ls") as here:
        mesh = meet_all(here)
        known = {here.id, *(other.station for other in mesh.stations())}
        rows = list(_link_rows(mesh, here.id) if links else _rows(mesh))
        rows += _silent_rows(domain, known, NO_LINKS if links else NO_CHANNEL)
    if as_json:
        print_json(rows)
    elif not rows:
        from heliograph.errors.sentences import hint  # noqa: PLC0415 - as above
        from heliograph.links.transports.discovery import domains  # noqa: PLC0415 - as above

        print_line(f"no station of domain {domain} is there{hint(domain, domains())}")
    elif links:
        _print_links(rows)
    else:
        _print_by_station(rows)


def _list_domains(*, as_json: bool) -> None:
    from heliograph.links.transports.discovery import domains  # noqa: PLC0415 - as above

    rows = [{"domain": name, "stations": stations} for name, stations in domains().items()]
    if as_json:
        print_json(rows)
        return
    if rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        print_line("no station of this user is there")
    print_line(
        "hg.Station(domain='NAME') joins a domain or begins it, and so does `helio station --domain NAME`; "
        "`helio ls --domain NAME` lists its stations"
    )


def _print_links(rows: list[dict[str, Any]]) -> None:
    """A line for each link, and one for the reason, which is a sentence."""
    for number, row in enumerate(rows):
        print_line(("\n" if number else "") + _who(row["station"], row["name"], row["pid"]))
        if not row["answers"]:
            print_line(SILENT)
            continue
        for link in row["links"]:
            named = f" ({link['name']})" if link["name"] else ""
            print_line(f"{link['carrier'] or 'no connection'} to {link['peer']}{named}")
            if link["reason"]:
                print_line(f"  {link['reason']}")
        if not row["links"]:
            print_line("no links")
        if row["streams"]:
            print_table(
                list(row["streams"][0]),
                [[_cell(value) for value in stream.values()] for stream in row["streams"]],
            )


def _who(station: str, name: str, pid: int) -> str:
    return f"station {station}{f' ({name})' if name else ''}, process {pid}"


def _print_by_station(rows: list[dict[str, Any]]) -> None:
    """Each station once, and below it its channels: one line with all of it is wider than most terminals."""
    for number, (who, of_one) in enumerate(
        groupby(rows, lambda row: (row["station"], row["name"], row["pid"], row["answers"]))
    ):
        station, name, pid, answers = who
        print_line(("\n" if number else "") + _who(station, name, pid))
        if not answers:
            print_line(SILENT)
            continue
        channels = [list(row.items())[len(who) :] for row in of_one if row["channel"] is not None]
        if channels:
            print_table(
                [column for column, _ in channels[0]],
                [[_cell(value) for _, value in row] for row in channels],
            )
        else:
            print_line("no channels")


def no_channel(mesh: Mesh, domain: str, channel: str) -> str:
    """That nobody has a channel, and what was probably meant: one with a name like it, or another domain."""
    from heliograph.links.transports.discovery import domains  # noqa: PLC0415 - as above

    others = [name for name in domains() if name != domain]
    return in_domain(
        f"no station of domain {domain} has a channel {channel}{_meant(mesh, domain, channel, others)}"
        "; see: helio ls",
        domain,
    )


def _meant(mesh: Mesh, domain: str, channel: str, others: list[str]) -> str:
    from heliograph.errors.sentences import hint  # noqa: PLC0415 - as above
    from heliograph.station import Station  # noqa: PLC0415 - as above

    stations = mesh.stations()
    if stations and (near := hint(channel, {state.name for other in stations for state in other.channels})):
        return near
    if not stations and (near := hint(domain, others)):
        return near
    for other in others[:MOST_DOMAINS]:
        with Station(domain=other, name="helio") as there:
            if any(state.name == channel for one in meet_all(there).stations() for state in one.channels):
                return f"; domain {other} has it: --domain {quote(other)}"
    return "" if stations else ", and no station is there"


def in_domain(text: str, domain: str) -> str:
    """A text with the domain at each command that asks stations, unless those ask that domain anyway."""
    if domain == os.environ.get("HELIO_DOMAIN", "default"):
        return text
    return ASKS_STATIONS.sub(lambda found: f"{found[0]} --domain {quote(domain)}", text)


def meet_all(here: Station) -> Mesh:
    """Wait until the stations that are there have told what they have."""
    assert here.mesh is not None
    here.mesh.meet_all(MEET_LIMIT)
    return here.mesh


def _rows(mesh: Mesh) -> Iterator[dict[str, Any]]:
    for other in mesh.stations():
        who = {
            "station": f"{other.station:016x}",
            "name": other.name,
            "pid": other.pid,
            "answers": True,
        }
        for state in other.channels:
            names = sorted({fmt.name for fmt in mesh.formats(state.name) if fmt.id in state.formats})
            yield {
                **who,
                "channel": state.name,
                "types": names,
                "consumers": state.consumers,
                "durability": state.durability,
                "keeps": state.keeper is not None,
            }
        if not other.channels:
            yield {**who, **NO_CHANNEL}


def _link_rows(mesh: Mesh, here: int) -> Iterator[dict[str, Any]]:
    """Of each station its links, but for that to this command."""
    import msgspec  # noqa: PLC0415 - as above

    from heliograph.errors import QueryFailed  # noqa: PLC0415 - as above

    for other in mesh.stations():
        try:
            told = [link for link in mesh.links_of(other.station, MEET_LIMIT) if link.peer != f"{here:016x}"]
        except QueryFailed:
            told = None
        yield {
            "station": f"{other.station:016x}",
            "name": other.name,
            "pid": other.pid,
            "answers": told is not None,
            "links": [msgspec.structs.asdict(link) for link in told or ()],
            "streams": [] if told is None else _streams_of(mesh, other.station),
        }


def _streams_of(mesh: Mesh, station: int) -> list[dict[str, Any]]:
    """The streams of a station to and from other hosts; none of one of an older version."""
    import msgspec  # noqa: PLC0415 - as above

    from heliograph.errors import QueryFailed  # noqa: PLC0415 - as above

    try:
        return [msgspec.structs.asdict(stream) for stream in mesh.streams_of(station, MEET_LIMIT)]
    except QueryFailed:
        return []


def _silent_rows(domain: str, known: set[int], nothing: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The stations whose processes live, and that have said nothing."""
    from heliograph.links.transports.discovery import DiscoveryFolder  # noqa: PLC0415 - as above

    folder = DiscoveryFolder(domain)
    for station in sorted(folder.alive() - known):
        record = folder.record(station)
        if record is not None:
            yield {
                "station": f"{station:016x}",
                "name": "",
                "pid": record.pid,
                "answers": False,
                **nothing,
            }


def _cell(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value


def _keep_all(running: Station, folder: str) -> list[str]:
    """Open every channel with a history in the folder, with classes made of the formats found there."""
    from heliograph.journal.format.folder import StationFolder  # noqa: PLC0415 - as above

    found = StationFolder(folder)
    opened = []
    there = {channel.name for channel in running.channels()}
    for name in found.channels():
        types = [] if name in there else _types_in(found, name)
        if types:
            running.channel(name, *types)
            opened.append(name)
    return opened


def _open_manager(running: Station, folder: str) -> None:
    """Open the manager where there are members: their leases hold from now on."""
    from heliograph.journal.format.folder import StationFolder  # noqa: PLC0415 - as above
    from heliograph.journal.names import ACTIVITY  # noqa: PLC0415 - as above

    if ACTIVITY in StationFolder(folder).channels():
        _ = running.manager


def _types_in(folder: Any, channel: str) -> list[type[Event]]:
    from heliograph.codec.dynamic.classes import class_for  # noqa: PLC0415 - as above
    from heliograph.journal.format.folder import learn_formats_of_heads  # noqa: PLC0415 - as above

    found = {fmt.id: fmt for fmt in folder.declared(channel)}
    for partition in folder.partitions(channel):
        with folder.reader(channel, partition) as reader:
            learn_formats_of_heads(reader)
            if reader.watermark > reader.earliest:
                reader.read(reader.watermark - 1, max_events=1)
            found.update({fmt.id: fmt for fmt in reader.formats.formats()})
    return [class_for(fmt) for fmt in found.values()]

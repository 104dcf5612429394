"""`helio pub` and `helio sub`: push and receive events by hand, also of formats this program never saw.

    helio sub air.tracks --where "speed > 300"
    helio pub air.tracks '{"id": 7, "lat": 48.1, "lon": 11.6, "speed": 410, "region": "north"}'

The types of a channel are learned from the stations of the domain that have it open.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.journal import Point, point
from heliograph.cli.output import CommandFailed, JsonFlag, print_json, print_line, print_problem, printable
from heliograph.cli.station import MEET_LIMIT, Domain, meet_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.core import Channel
    from heliograph.event import Event
    from heliograph.link.mesh import Mesh
    from heliograph.station import Station

LOOK_EVERY = 0.2
"""Seconds between two looks for types that a channel carries since."""

ChannelName = Annotated[str, typer.Argument(help="The name of a channel.", show_default=False)]


def pub(
    channel: ChannelName,
    events: Annotated[
        list[str],
        typer.Argument(metavar="JSON...", help="Events; '-' reads lines of standard input."),
    ],
    *,
    domain: Domain = "default",
    type_name: Annotated[
        str | None, typer.Option("--type", help="The event type, if there are several.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Push events into a channel that a station of the domain has open."""
    from heliograph.station import Station  # noqa: PLC0415 - commands import what they need when they run

    with Station(domain=domain, name="helio pub") as here:
        classes = _classes(meet_all(here), channel, domain)
        cls = _chosen(classes, type_name, channel)
        opened = _open(here, channel, [cls])
        made = _made(cls, events)
        if "-" not in events:
            made = iter(list(made))  # all are read before the first is pushed
        pushed = 0
        for event in made:
            opened.push(event)
            pushed += 1
        consumers = sum(state.consumers for _, state in _states(here.mesh, channel))
    if as_json:
        told = {"channel": channel, "type": type_name or _name(cls), "pushed": pushed, "consumers": consumers}
        print_json(told)
    else:
        print_line(f"pushed {pushed} to {channel}, where {consumers} consumers are")


def sub(
    channel: ChannelName,
    *,
    domain: Domain = "default",
    where: Annotated[
        str | None, typer.Option(help="Only events for which this is true.", show_default=False)
    ] = None,
    number: Annotated[
        int | None, typer.Option("--count", min=1, help="End after so many events.", show_default=False)
    ] = None,
    start: Point = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the events of a channel as they come, one JSON object per line.

    With --start it begins with what has been kept.
    """
    if as_json and number is None:
        raise CommandFailed("--json prints one document, so it needs --count")
    import msgspec  # noqa: PLC0415 - as above

    from heliograph.station import Station  # noqa: PLC0415 - as above

    place = point(start or "now")
    taken: list[Any] = []
    with Station(domain=domain, name="helio sub") as here:
        events = _events(here, channel, where, place)
        try:
            for count, event in enumerate(events, 1):
                line = event.to_json()
                if as_json:
                    taken.append(msgspec.Raw(line))
                else:
                    typer.echo(printable(line.decode()))
                    sys.stdout.flush()
                if count == number:
                    break
        except KeyboardInterrupt:
            return
    if as_json:
        print_json(taken)


def _events(here: Station, name: str, where: str | None, start: Any) -> Iterator[Event]:
    """Events of a channel for ever, of types that it carries later too."""
    mesh = meet_all(here)
    if not mesh.wait_for(lambda known: bool(known.formats(name)), MEET_LIMIT):
        domain = mesh.identity.domain
        print_problem(f"no station of domain {domain} has a channel {name}; waiting for one (see: helio ls)")
        mesh.wait_for(lambda known: bool(known.formats(name)))
    channel = _open(here, name, list(_classes(mesh, name, "").values()))
    with channel.consumer(where=where, start=start) as consumer:
        while True:
            event = consumer.pull(LOOK_EVERY)
            if event is not None:
                yield event
                continue
            known = set(channel.type_names)
            new = [cls for other, cls in _classes(mesh, name, "").items() if other not in known]
            if new:
                here.channel(name, *new)


def _classes(mesh: Mesh, channel: str, domain: str) -> dict[str, type[Event]]:
    """A class for each event type of a channel, by its name."""
    from heliograph.classes import class_for  # noqa: PLC0415 - as above

    if domain:
        mesh.wait_for(lambda known: bool(known.formats(channel)), MEET_LIMIT)
    found = {fmt.name: class_for(fmt) for fmt in mesh.formats(channel)}
    if domain and not found:
        raise CommandFailed(f"no station of domain {domain} has a channel {channel}; see: helio ls")
    return found


def _chosen(classes: dict[str, type[Event]], name: str | None, channel: str) -> type[Event]:
    if name is None and len(classes) == 1:
        return next(iter(classes.values()))
    cls = classes.get(name or "")
    if cls is None:
        raise CommandFailed(f"{channel} carries {', '.join(sorted(classes))}; choose one with --type")
    return cls


def _open(here: Station, name: str, types: list[type[Event]]) -> Channel[Event]:
    """The channel as the others have it: kept by one of them if it is persistent."""
    return here.channel(name, *types)


def _states(mesh: Mesh | None, name: str) -> Iterator[tuple[int, Any]]:
    assert mesh is not None
    for other in mesh.stations():
        for state in other.channels:
            if state.name == name:
                yield other.station, state


def _made(cls: type[Event], events: list[str]) -> Iterator[Event]:
    from heliograph.errors import HeliographError  # noqa: PLC0415 - as above

    is_stream = "-" in events
    for number, text in enumerate(_texts(events), 1):
        try:
            event = cls.from_json(text)
        except HeliographError as error:
            done = f"the {number - 1} before it are pushed" if is_stream else "nothing was pushed"
            raise CommandFailed(f"event {number} is no {_name(cls)}, {done}: {error}") from error
        yield event


def _texts(events: list[str]) -> Iterator[str]:
    for text in events:
        if text == "-":
            yield from (line for line in sys.stdin if line.strip())
        else:
            yield text


def _name(cls: type[Event]) -> str:
    from heliograph.event import info_of  # noqa: PLC0415 - as above

    return info_of(cls).name

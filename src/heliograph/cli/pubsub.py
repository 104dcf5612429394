"""`helio pub`, `sub`, `ask`, `state`, `explain`: push, receive and ask by hand, also unknown formats.

    helio sub air.tracks --where "speed > 300" --headers --timeout 10
    helio sub 'air.*' --headers
    helio pub air.tracks '{"id": 7, "lat": 48.1, "lon": 11.6, "speed": 410, "region": "north"}' --priority 5
    helio ask prices '{"part": "bolt"}' --type price.ask
    helio explain air.tracks --code

The types of a channel are learned from the stations of the domain that have it open. A format does not say
which fields have defaults: `pub` needs every field, or the class.
"""

from __future__ import annotations

import queue
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from heliograph.cli.formats import import_class
from heliograph.cli.journal import Point, point
from heliograph.cli.output import (
    CommandFailed,
    JsonFlag,
    counted,
    header_document,
    print_json,
    print_json_line,
    print_line,
    print_problem,
)
from heliograph.cli.station import MEET_LIMIT, Domain, in_domain, meet_all, no_channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.channel.receive.delivery import Delivery
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.model.event import Event, Header
    from heliograph.station import Station

LOOK_EVERY = 0.2
"""Seconds between two looks for types that a channel carries since."""
WAITING = 1_000
"""Events of a pattern that wait to be printed; further ones wait in the queues of their channels."""

ChannelName = Annotated[str, typer.Argument(help="The name of a channel.", show_default=False)]
ClassName = Annotated[
    str | None,
    typer.Option(
        "--class",
        metavar="MODULE:CLASS",
        help="The event class: its defaults fill in fields.",
        show_default=False,
    ),
]


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
    target: ClassName = None,
    priority: Annotated[
        int | None, typer.Option(min=1, max=5, help="1 (low) to 5 (high).", show_default=False)
    ] = None,
    deliver_after: Annotated[
        float | None, typer.Option(min=0, help="Seconds before which nobody gets them.", show_default=False)
    ] = None,
    cloudevents: Annotated[bool, typer.Option("--cloudevents", help="The JSON is CloudEvents.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Push events into a channel that a station of the domain has open."""
    from heliograph.station import Station  # noqa: PLC0415 - commands import what they need when they run

    with Station(domain=domain, name="helio pub") as here:
        classes = _classes(meet_all(here), channel, domain)
        versions = (
            _chosen(classes, type_name, channel) if target is None else [_given(classes, target, channel)]
        )
        opened = here.channel(
            channel, *versions
        )  # reliable, or as it is kept: that meets whatever is asked for
        if deliver_after is not None and not opened.qos.journalled:
            raise CommandFailed(
                f"--deliver-after: {channel} keeps nothing, and this command ends before that"
            )
        made = _made(versions, events, _from_cloudevent if cloudevents else _from_json)
        if "-" not in events:
            made = iter(list(made))  # all are read before the first is pushed
        pushed = 0
        for event, said in made:
            opened.push(event, **{"priority": priority, **said}, deliver_after=deliver_after)
            pushed += 1
        consumers = sum(state.consumers for _, state in states_of(here.mesh, channel))
    if as_json:
        type_name = type_name or _name(versions[0])
        told = {"channel": channel, "type": type_name, "pushed": pushed, "consumers": consumers}
        print_json(told)
    else:
        print_line(f"pushed {pushed} to {channel}, which has {counted(consumers, 'consumer')}")


def sub(
    channel: Annotated[
        str,
        typer.Argument(
            help="The name of a channel, or a pattern: '*' stands for one part of a name, '**' for several.",
            show_default=False,
        ),
    ],
    *,
    domain: Domain = "default",
    where: Annotated[
        str | None, typer.Option(help="Only events for which this is true.", show_default=False)
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help="Only these columns, made where events are pushed: 'id, speed * 1.852 AS kmh'.",
            show_default=False,
        ),
    ] = None,
    number: Annotated[
        int | None, typer.Option("--count", min=1, help="End after so many events.", show_default=False)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="End when none has come for so many seconds.", show_default=False),
    ] = None,
    headers: Annotated[bool, typer.Option("--headers", help="Print the headers too.")] = False,
    cloudevents: Annotated[bool, typer.Option("--cloudevents", help="Print them as CloudEvents.")] = False,
    start: Point = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the events of a channel as they come, one JSON object per line.

    With --start it begins with what has been kept. Exit code 1: fewer than --count came before --timeout.
    """
    if cloudevents and headers:
        raise CommandFailed(
            "--cloudevents has what it knows of headers in its attributes; leave out --headers"
        )
    if as_json and number is None and timeout is None:
        raise CommandFailed("--json prints one document, so it needs --count or --timeout")
    from heliograph.station import Station  # noqa: PLC0415 - as above

    place = point(start or "now")
    documents: list[Any] = []
    count = 0
    with Station(domain=domain, name="helio sub") as here:
        try:
            received = _of_pattern if "*" in channel else _of_channel
            if select is not None and "*" in channel:
                raise CommandFailed("--select is of the columns of one channel: name it instead of a pattern")
            for event, header in received(here, channel, WantedEvents(where, select), place, timeout):
                document = (
                    _cloudevent(event, header) if cloudevents else _document(event, header, headers=headers)
                )
                if as_json:
                    documents.append(document)
                else:
                    print_json_line(document)
                    sys.stdout.flush()
                count += 1
                if count == number:
                    break
        except KeyboardInterrupt:
            return
    if as_json:
        print_json(documents)
    if number is not None and count < number:
        print_problem(f"{count} of {number} events came before none had for {timeout:g} s")
        raise typer.Exit(1)


def ask(
    channel: ChannelName,
    question: Annotated[str, typer.Argument(metavar="JSON", help="The question, an event.")],
    *,
    domain: Domain = "default",
    type_name: Annotated[
        str | None, typer.Option("--type", help="The event type, if there are several.", show_default=False)
    ] = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the answer.")] = 5.0,
    as_json: JsonFlag = False,
) -> None:
    """Ask a question that a station of the domain answers, and print the answer as JSON."""
    from heliograph.station import Station  # noqa: PLC0415 - as above

    with Station(domain=domain, name="helio ask") as here:
        classes = _classes(meet_all(here), channel, domain)
        opened = here.channel(channel, *(cls for versions in classes.values() for cls in versions))
        answer = opened.ask(next(_made(_chosen(classes, type_name, channel), [question]))[0], timeout)
    import msgspec  # noqa: PLC0415 - as above

    document = None if answer is None else msgspec.Raw(answer.to_json())
    if as_json:
        print_json({"channel": channel, "answer": document})
    else:
        print_json_line(document)


def state(
    channel: ChannelName,
    *,
    domain: Domain = "default",
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for it.")] = 5.0,
    as_json: JsonFlag = False,
) -> None:
    """Print the current state that the suppliers of a channel offer, one JSON object per line."""
    import msgspec  # noqa: PLC0415 - as above

    from heliograph.station import Station  # noqa: PLC0415 - as above

    with Station(domain=domain, name="helio state") as here:
        classes = _classes(meet_all(here), channel, domain)
        opened = here.channel(channel, *(cls for versions in classes.values() for cls in versions))
        rows = [msgspec.Raw(event.to_json()) for event in opened.fetch_state(timeout)]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            print_json_line(row)


def explain(
    channel: ChannelName,
    event: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="An event; it is not pushed.", show_default=False)
    ] = None,
    *,
    code: Annotated[
        bool, typer.Option("--code", help="Print the functions that are generated for a push.")
    ] = False,
    domain: Domain = "default",
    type_name: Annotated[
        str | None, typer.Option("--type", help="The event type, if there are several.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which receivers would get an event of this command, or print the generated code of its push.

    Receivers of another station are one receiver here, its link: their filters are asked where one pushes.
    """
    if event is None and not code:
        raise CommandFailed("give an event as JSON, or --code, or both")
    from heliograph.station import Station  # noqa: PLC0415 - as above

    with Station(domain=domain, name="helio explain") as here:
        classes = _classes(meet_all(here), channel, domain)
        several = [cls for versions in classes.values() for cls in versions]
        chosen = several if event is None and type_name is None else _chosen(classes, type_name, channel)
        opened = here.channel(channel, *several)
        made = None if event is None else next(_made(chosen, [event]))[0]
        if not code:
            assert made is not None
            explanation = opened.explain(made)
            if as_json:
                steps = [step._asdict() for step in explanation.steps]
                print_json({"reaches": explanation.reaches, "steps": steps})
            else:
                print_line(str(explanation) or f"nobody receives from {channel}")
            return
        shown = opened.explain(made, code=True)
        of_types = {_name(cls) for cls in chosen}
        functions = [one for one in shown.functions if one.event_type in of_types]
    if as_json:
        print_json([one._asdict() for one in functions])
    else:
        print_line("\n".join(map(str, functions)).rstrip())


def _document(event: Event, header: Header, *, headers: bool) -> Any:
    import msgspec  # noqa: PLC0415 - as above

    body = msgspec.Raw(event.to_json())
    return {"header": header_document(header), "event": body} if headers else body


def _cloudevent(event: Event, header: Header) -> Any:
    from heliograph.interchange.cloudevents import to_cloudevent  # noqa: PLC0415 - as above

    return to_cloudevent(event, header)


def _of_pattern(
    here: Station, pattern: str, wanted: WantedEvents, start: Any, timeout: float | None
) -> Iterator[tuple[Event, Header]]:
    """What all channels carry whose name fits, those too that come later, until none has come in time."""
    meet_all(here)
    waiting: queue.Queue[tuple[Event, Header]] = queue.Queue(WAITING)
    is_over = threading.Event()

    def receive(event: Event, header: Header) -> None:
        while not is_over.is_set():
            with suppress(queue.Full):
                waiting.put((event, header), timeout=LOOK_EVERY)
                return

    subscription = here.subscribe(pattern, receive, where=wanted.where, start=start)
    try:
        if not here.channels():
            assert here.mesh is not None
            domain = here.mesh.identity.domain
            print_problem(f"no station of domain {domain} has a channel that fits {pattern}; waiting for one")
        with suppress(queue.Empty):
            while True:
                yield waiting.get(timeout=timeout)
    finally:
        is_over.set()
        subscription.close()


class WantedEvents(NamedTuple):
    """What of a channel's events."""

    where: str | None = None
    select: str | None = None


def _of_channel(
    here: Station, name: str, wanted: WantedEvents, start: Any, timeout: float | None
) -> Iterator[tuple[Event, Header]]:
    for delivery in _deliveries(here, name, wanted, start, timeout):
        yield delivery.event, delivery.header


def _deliveries(
    here: Station, name: str, wanted: WantedEvents, start: Any, timeout: float | None
) -> Iterator[Delivery[Event]]:
    """What a channel carries until none has come in time, of types that it carries later too."""
    from heliograph.links.history.directory import classes_of, least_qos  # noqa: PLC0415 - as above

    mesh = meet_all(here)
    limit = MEET_LIMIT if timeout is None else min(timeout, MEET_LIMIT)
    if not mesh.wait_for(lambda known: bool(known.formats(name)), limit):
        domain = mesh.identity.domain
        hint = in_domain("(see: helio ls", domain) + ")"
        print_problem(f"no station of domain {domain} has a channel {name}; waiting for one {hint}")
        if not mesh.wait_for(lambda known: bool(known.formats(name)), timeout):
            return
    channel = here.channel(name, *classes_of(mesh, name), qos=least_qos(mesh, name))
    if wanted.select is None:
        opened = channel.consumer(where=wanted.where, start=start)
    else:
        opened = channel.derive(wanted.select, where=wanted.where).consumer(start=start)
    with opened as consumer:
        idle = 0.0
        while timeout is None or idle < timeout:
            wait = LOOK_EVERY if timeout is None else min(LOOK_EVERY, timeout - idle)
            for delivery in consumer.deliveries(wait):
                idle = 0.0
                yield delivery
            idle += wait
            if new := [cls for cls in classes_of(mesh, name) if cls not in channel.types]:
                here.channel(name, *new)


def _classes(mesh: Mesh, channel: str, domain: str) -> dict[str, list[type[Event]]]:
    """The classes of each event type of a channel, by its name; of several versions the fullest first.

    So an event that has all fields of a version is not pushed as one that has fewer.
    """
    from heliograph.links.history.directory import classes_of  # noqa: PLC0415 - as above

    mesh.wait_for(lambda known: bool(known.formats(channel)), MEET_LIMIT)
    found: dict[str, list[type[Event]]] = {}
    for cls in sorted(classes_of(mesh, channel), key=lambda cls: -len(cls.__struct_fields__)):
        found.setdefault(_name(cls), []).append(cls)
    if not found:
        raise CommandFailed(no_channel(mesh, domain, channel))
    return found


def _chosen(classes: dict[str, list[type[Event]]], name: str | None, channel: str) -> list[type[Event]]:
    if name is None and len(classes) == 1:
        return next(iter(classes.values()))
    versions = classes.get(name or "")
    if versions is None:
        raise CommandFailed(f"{channel} carries {', '.join(sorted(classes))}; choose one with --type")
    return versions


def _given(classes: dict[str, list[type[Event]]], target: str, channel: str) -> type[Event]:
    """The class that the user has; its events must be of the format that the channel has."""
    from heliograph.model.event import format_of  # noqa: PLC0415 - as above

    module, _, name = target.partition(":")
    if not (module and name):
        raise CommandFailed(f"--class {target!r}: write module:Class")
    cls: type[Event] = import_class(module, name)
    if all(format_of(other).id != format_of(cls).id for other in classes.get(_name(cls), ())):
        carried = ", ".join(sorted(classes))
        raise CommandFailed(
            f"{channel} carries {carried}, in other formats than {target} (see: helio formats)"
        )
    return cls


def with_class(types: list[type[Event]], target: str, channel: str) -> list[type[Event]]:
    """The classes of a channel, with one that the user has in place of the one of its format."""
    from heliograph.model.event import format_of  # noqa: PLC0415 - as above

    classes: dict[str, list[type[Event]]] = {}
    for cls in types:
        classes.setdefault(_name(cls), []).append(cls)
    given = _given(classes, target, channel)
    return [given, *(cls for cls in types if format_of(cls).id != format_of(given).id)]


def states_of(mesh: Mesh | None, name: str) -> Iterator[tuple[int, Any]]:
    """What other stations have said of a channel."""
    assert mesh is not None
    for other in mesh.stations():
        for state in other.channels:
            if state.name == name:
                yield other.station, state


def _from_json(cls: type[Event], text: str) -> tuple[Event, dict[str, Any]]:
    return cls.from_json(text), {}


def _from_cloudevent(cls: type[Event], text: str) -> tuple[Event, dict[str, Any]]:
    import msgspec  # noqa: PLC0415 - as above

    from heliograph.interchange.cloudevents import from_cloudevent  # noqa: PLC0415 - as above

    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise CommandFailed(f"this is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise CommandFailed("a CloudEvent is a JSON object")
    received = from_cloudevent(cls, document)
    return received.event, received.options


def _made(
    versions: list[type[Event]],
    events: list[str],
    read: Callable[[type[Event], str], tuple[Event, dict[str, Any]]] = _from_json,
) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Events of the first of these versions that each of them is one of, and what is said about them."""
    from heliograph.errors import HeliographError  # noqa: PLC0415 - as above

    is_stream = "-" in events
    for number, text in enumerate(_texts(events), 1):
        problem: HeliographError | None = None
        for cls in versions:
            try:
                event = read(cls, text)
            except HeliographError as error:
                problem = problem or error
            else:
                yield event
                break
        else:
            assert problem is not None
            done = f"the {number - 1} before it are pushed" if is_stream else "nothing was pushed"
            raise CommandFailed(
                f"event {number} is no {_name(versions[0])}, {done}: {problem}{defaults_hint(problem)}"
            ) from problem


def defaults_hint(error: Exception) -> str:
    """The end of a sentence about an event that lacks a field."""
    if "missing" not in str(error):
        return ""
    return "; a format does not say which fields have defaults: --class MODULE:CLASS does, and fills them in"


def _texts(events: list[str]) -> Iterator[str]:
    for text in events:
        if text == "-":
            yield from (line for line in sys.stdin if line.strip())
        else:
            yield text


def _name(cls: type[Event]) -> str:
    from heliograph.model.event import info_of  # noqa: PLC0415 - as above

    return info_of(cls).name

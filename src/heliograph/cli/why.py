"""`helio why` and `helio trace`: what became of one event, for one receiver or step by step for all.

helio why air.tracks 41 billing                    the event at offset 41 of the history
helio why air.tracks '{"id": 7, ...}' display      an event that was never pushed
helio trace air.tracks 41                          from its source over links to every receiver, with times
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from heliograph.cli.operate import opened_channel
from heliograph.cli.output import CommandFailed, JsonFlag, print_json, print_line, print_table, time_text
from heliograph.cli.pubsub import ChannelName, ClassName, defaults_hint
from heliograph.cli.station import Domain, in_domain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.explain import Why
    from heliograph.model.event import Header
    from heliograph.monitoring.snapshot import StationSnapshot

GOT_IT: Final = ("delivered", "acknowledged", "would be delivered")
NOT_DELIVERED = 1

EventName = Annotated[
    str,
    typer.Argument(
        metavar="EVENT",
        help="An offset, partition:offset, supplier:epoch:sequence, or an event as JSON.",
        show_default=False,
    ),
]


def why(
    channel: ChannelName,
    event: EventName,
    receiver: Annotated[
        str,
        typer.Argument(metavar="CONSUMER", help="The name of a receiver.", show_default=False),
    ],
    *,
    domain: Domain = "default",
    target: ClassName = None,
    as_json: JsonFlag = False,
) -> None:
    """Say why a receiver got an event or did not: the stage, the rule, the values that decided.

    Exit code 1: it did not get it, or nobody knows.
    """
    import msgspec  # noqa: PLC0415 - commands import what they need when they run

    with opened_channel(channel, domain, "helio why", target) as (here, opened), _hinting():
        answer = here.asker.why(opened, event, receiver, only_asks=True)
    answer = msgspec.structs.replace(answer, remedy=in_domain(answer.remedy, domain))
    if as_json:
        print_json(_document(answer))
    else:
        print_line(str(answer))
    if answer.verdict not in GOT_IT:
        raise typer.Exit(NOT_DELIVERED)


def trace(
    channel: ChannelName,
    event: EventName,
    *,
    domain: Domain = "default",
    target: ClassName = None,
    as_json: JsonFlag = False,
) -> None:
    """Follow one event from its source over links to every receiver of the domain, and to Spark.

    Every step has its time where that is known.

    Times of deliveries are known where the channel records them: hg.QoS(delivery_records='all').
    """
    from heliograph.monitoring.snapshot import ask_all  # noqa: PLC0415 - commands import what they need when they run

    with opened_channel(channel, domain, "helio trace", target) as (here, opened), _hinting():
        found, answers = here.asker.all_of(opened, event)
        stations, _ = ask_all(here.mesh, channel)
    rows = list(map(_step, answers))
    if found.is_pushed:
        rows = [
            *_origin(found.header),
            *_links(found.header, answers, stations),
            *rows,
            *_outside(found.header, stations),
        ]
    if as_json:
        header = {"id": str(found.header.id), "channel": channel, "is_pushed": found.is_pushed}
        print_json({**header, "steps": rows, "answers": [_document(one) for one in answers]})
        return
    if found.is_pushed:
        print_line(f"event {found.header.id} of {channel}")
    begun = found.header.source_ts
    cells = [
        (row["step"], row["where"], _clock(row["at_ns"]), _after(row["at_ns"], begun), row["what"])
        for row in rows
    ]
    print_table(("step", "where", "time", "after", "what"), cells)


@contextmanager
def _hinting() -> Iterator[None]:
    """An event that lacks a field may have a default for it: say who knows."""
    from heliograph.errors import InvalidEvent  # noqa: PLC0415 - as above

    try:
        yield
    except InvalidEvent as error:
        raise CommandFailed(f"{error}{defaults_hint(error)}") from error


def _origin(header: Header) -> list[dict[str, Any]]:
    rows = [_row("source", header.supplier, header.source_ts, f"sequence {header.sequence}")]
    if header.append_ts is not None:
        where = f"{header.partition}:{header.offset}"
        rows.append(_row("history", where, header.append_ts, "appended, durable"))
    return rows


def _links(header: Header, answers: list[Why], stations: list[StationSnapshot]) -> Iterator[dict[str, Any]]:
    """The links that it took from where it was kept or pushed to the stations of its receivers."""
    source = next((one for one in stations if _keeps(one, header) or one.station in header.supplier), None)
    if source is None:
        return
    for link in source.links:
        if (link.name or link.peer) in {answer.station for answer in answers}:
            where = f"{source.name or source.station} to {link.name or link.peer}"
            told = f"by {link.carrier}" if link.connected else "there is no connection now"
            yield _row("link", where, None, told)


def _outside(header: Header, stations: list[StationSnapshot]) -> Iterator[dict[str, Any]]:
    """Queries of Spark, and other readers of the files that say how far they are."""
    from heliograph.journal.consumers.lag import OUTSIDE  # noqa: PLC0415 - as above

    for station in stations:
        for channel in station.channels if _keeps(station, header) else ():
            for reader in channel.durable:
                if reader.owner == OUTSIDE and header.offset is not None:
                    is_done = header.offset < reader.acknowledged
                    said = "processed" if is_done else "not yet processed"
                    yield _row("Spark", reader.name, None, f"{said}: it is at offset {reader.acknowledged}")


def _keeps(station: StationSnapshot, header: Header) -> bool:
    """Whether a station keeps the partition that an event is in."""
    kept = (one.journal for one in station.channels)
    return any(one is not None and one.partition == header.partition for one in kept)


def _step(answer: Why) -> dict[str, Any]:
    values = ", ".join(f"{name} = {value}" for name, value in answer.values.items())
    said = f"{answer.verdict}: {answer.rule}" + (f" ({values})" if values else "")
    return _row("receiver", f"{answer.receiver} in {answer.station}", answer.at_ns, said)


def _row(step: str, where: str, at_ns: int | None, what: str) -> dict[str, Any]:
    return {"step": step, "where": where, "at_ns": at_ns, "what": what}


def _clock(at_ns: int | None) -> str:
    return "" if at_ns is None else str(time_text(at_ns))


def _after(at_ns: int | None, begun: int) -> str:
    return "" if at_ns is None else f"{(at_ns - begun) / 1e6:+.3f} ms"


def _document(answer: Why) -> Any:
    import msgspec  # noqa: PLC0415 - commands import what they need when they run

    return msgspec.to_builtins(answer)

"""`helio info`, `consumer`, `purge` and `redrive`: what operators do to channels of a running domain.

    helio info air.tracks                            stations, types, history, durable consumers
    helio consumer seek air.tracks billing earliest  it goes on there when it is opened next
    helio consumer delete air.tracks billing
    helio purge air.tracks --before 2026-11-01T00:00:00+00:00
    helio redrive tracks.dead --where "speed > 0"    dead letters go back to where they came from

All of them ask the stations that keep the history.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.output import (
    CommandFailed,
    JsonFlag,
    counted,
    print_json,
    print_line,
    print_table,
    show_help_without_command,
)
from heliograph.cli.pubsub import ChannelName, states_of, with_class
from heliograph.cli.station import Domain, meet_all, no_channel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.channel import Channel
    from heliograph.monitoring.snapshot import StationSnapshot
    from heliograph.station import Station

consumer = typer.Typer(help="Durable consumers: list, seek, reset, delete.", no_args_is_help=False)

ConsumerName = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="Its name; of a group group:NAME.", show_default=False)
]


@consumer.callback(invoke_without_command=True)
def _consumer(context: typer.Context) -> None:
    show_help_without_command(context)


def offers(
    where: Annotated[
        str | None,
        typer.Argument(help="A filter such as \"kind = 'radar'\".", show_default=False),
    ] = None,
    *,
    domain: Domain = "default",
    as_json: JsonFlag = False,
) -> None:
    """List the services that stations of a domain have exported to the trader."""
    from heliograph.station import Station  # noqa: PLC0415 - as above

    with Station(domain=domain, name="helio offers") as here:
        meet_all(here)
        found = here.trader.query(where)
    if as_json:
        print_json([offer.to_dict() for offer in found])
    elif found:
        rows = [[one.kind, one.name, one.channel, one.station, one.description] for one in found]
        print_table(["kind", "name", "channel", "station", "description"], rows)
    else:
        print_line("nothing that fits is offered")


def monitor(
    channel: ChannelName,
    *,
    every: Annotated[
        float | None,
        typer.Option(min=0.1, help="Show it again after so many seconds, until Ctrl-C.", show_default=False),
    ] = None,
    domain: Domain = "default",
    as_json: JsonFlag = False,
) -> None:
    """Show which consumers have acknowledged which events that are under way, where push waits for them."""
    from heliograph.links.services.monitors import linked_rows  # noqa: PLC0415 - as above
    from heliograph.station import Station  # noqa: PLC0415 - as above

    if as_json and every is not None:
        raise CommandFailed("--json prints one document, so it does not go with --every")
    with Station(domain=domain, name="helio monitor") as here:
        mesh = meet_all(here)
        try:
            while True:
                _print_rows(channel, [_plain(row) for row in linked_rows(mesh, channel)], as_json=as_json)
                if every is None:
                    return
                here.ports.tasks.sleep(every)
        except KeyboardInterrupt:
            return


def _print_rows(channel: str, rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_line(f"no event of {channel} waits for an acknowledgement")
        return
    shown = [
        [
            row["event"],
            _who(row["state"], has=True),
            _who(row["state"], has=False),
            f"{row['seconds']:.1f}",
            row["resends"],
        ]
        for row in rows
    ]
    print_table(["event", "acknowledged by", "not by", "seconds", "resends"], shown)


def _who(state: dict[str, bool], *, has: bool) -> str:
    return ", ".join(name for name, acked in state.items() if acked is has)


def info(channel: ChannelName, *, domain: Domain = "default", as_json: JsonFlag = False) -> None:
    """Show a channel: who has it open, what it carries, its receivers by name, its history, and how far
    durable consumers are.
    """
    from heliograph.monitoring.snapshot import ask_all  # noqa: PLC0415 - commands import what they need when they run

    with opened_channel(channel, domain, "helio info") as (here, opened):
        assert here.mesh is not None
        names = {other.station: other.name for other in here.mesh.stations()}
        stations = [
            {
                "station": f"{station:016x}",
                "name": names.get(station, ""),
                "consumers": state.consumers,
                "answerers": state.answerers,
                "offers_state": bool(state.offered_state),
                "keeps": state.keeper,
                "suspended_by": state.suspended,
            }
            for station, state in states_of(here.mesh, channel)
        ]
        found, _ = ask_all(here.mesh, channel)
        told = {
            "channel": channel,
            "types": list(opened.type_names),
            "durability": opened.qos.durability,
            "reliability": opened.qos.reliability,
            "stations": stations,
            "receivers": list(_receivers(found, channel)),
            "derivations": list(_derivations(found, channel)),
            "history": [_plain(part) for part in opened.operations.info()] if opened.store else [],
        }
    if as_json:
        print_json(told)
    else:
        _print_info(told)


def _derivations(stations: list[StationSnapshot], channel: str) -> Iterator[dict[str, Any]]:
    """What is derived from a channel, and who receives it."""
    found: dict[str, dict[str, Any]] = {}
    for station in stations:
        for one in station.channels:
            if one.derived is None or one.derived.original != channel:
                continue
            own = [
                {"name": receiver.name, "station": station.station, "where": receiver.where}
                for receiver in one.receivers
                if receiver.kind != "gateway"
            ]
            row = found.setdefault(one.name, {"select": "", "where": None, "receivers": []})
            if own or not row["select"]:  # the text is known where it was written
                row |= {"select": one.derived.select, "where": one.derived.where}
            row["receivers"] += own
    yield from found.values()


def _receivers(stations: list[StationSnapshot], channel: str) -> Iterator[dict[str, Any]]:
    """The receivers of all stations, without the gateways that stand for those of others."""
    for station in stations:
        for found in (one for one in station.channels if one.name == channel):
            for receiver in found.receivers:
                if receiver.kind != "gateway":
                    yield {
                        "name": receiver.name,
                        "station": station.station,
                        "kind": receiver.kind,
                        "where": receiver.where,
                        "delivered": receiver.delivered,
                        "failed": receiver.failed,
                        "dropped": sum(receiver.dropped.values()),
                        "waiting": receiver.pending,
                    }


def _plain(part: Any) -> Any:
    import msgspec  # noqa: PLC0415 - commands import what they need when they run

    return msgspec.to_builtins(part)


def _print_info(told: dict[str, Any]) -> None:
    print_line(f"{told['channel']}: {', '.join(told['types'])}; {told['reliability']}, {told['durability']}")
    columns = ("station", "name", "consumers", "answerers", "state", "suspended by")
    rows = [
        (
            row["station"],
            row["name"],
            row["consumers"],
            row["answerers"],
            "offered" if row["offers_state"] else "",
            row["suspended_by"] or "",
        )
        for row in told["stations"]
    ]
    print_table(list(columns), [list(row) for row in rows])
    if told["receivers"]:
        print_line("")
        print_table(list(told["receivers"][0]), [list(row.values()) for row in told["receivers"]])
    for derived in told["derivations"]:
        where = "" if derived["where"] is None else f" where {derived['where']}"
        names = ", ".join(f"{one['name']} in {one['station']}" for one in derived["receivers"]) or "nobody"
        print_line(f"\nderived: {derived['select']}{where}; received by {names}")
    for part in told["history"]:
        kept = part["watermark"] - part["earliest"]
        print_line(f"\npartition {part['partition']}, kept by {part['station']}")
        print_line(f"offsets {part['earliest']} to {part['watermark']}, {counted(kept, 'event')} at most")
        if part["consumers"]:
            print_table(
                ["consumer", "offset", "behind", "last seen"],
                [[c["name"], c["offset"], c["behind"], _when(c["seen_ts"])] for c in part["consumers"]],
            )


def _when(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="seconds") if ns else "never"


@consumer.command("ls")
def list_consumers(channel: ChannelName, *, domain: Domain = "default", as_json: JsonFlag = False) -> None:
    """List the durable consumers and groups of a channel, and how far behind they are."""
    with opened_channel(channel, domain, "helio consumer") as (_, opened):
        places = [_plain(place) for place in opened.operations.consumers()]
    if as_json:
        print_json(places)
    elif places:
        print_table(
            ["consumer", "partition", "offset", "behind"],
            [[p["name"], p["partition"], p["offset"], p["behind"]] for p in places],
        )
    else:
        print_line(f"{channel} has no durable consumer")


@consumer.command()
def seek(
    channel: ChannelName,
    name: ConsumerName,
    to: Annotated[str, typer.Argument(help="earliest, latest, an offset, or an instant such as ISO 8601.")],
    *,
    domain: Domain = "default",
    as_json: JsonFlag = False,
) -> None:
    """Have a durable consumer go on elsewhere when it is opened next."""
    with opened_channel(channel, domain, "helio consumer") as (_, opened):
        _print_offsets(opened.operations.seek(name, _point(to)), f"{name} goes on", as_json=as_json)


@consumer.command()
def reset(
    channel: ChannelName, name: ConsumerName, *, domain: Domain = "default", as_json: JsonFlag = False
) -> None:
    """Have a durable consumer begin anew with all that is kept."""
    with opened_channel(channel, domain, "helio consumer") as (_, opened):
        _print_offsets(opened.operations.reset(name), f"{name} goes on", as_json=as_json)


@consumer.command()
def delete(
    channel: ChannelName, name: ConsumerName, *, domain: Domain = "default", as_json: JsonFlag = False
) -> None:
    """Forget a durable consumer: nothing is kept for it any more."""
    with opened_channel(channel, domain, "helio consumer") as (_, opened):
        opened.operations.delete(name)
    if as_json:
        print_json({"deleted": name})
    else:
        print_line(f"{name} is forgotten")


def purge(
    channel: ChannelName,
    *,
    before: Annotated[
        str, typer.Option(help="latest, an offset, or an instant; drops whole files.")
    ] = "latest",
    unread: Annotated[
        bool, typer.Option("--unread", help="Also what durable consumers have not read.")
    ] = False,
    domain: Domain = "default",
    as_json: JsonFlag = False,
) -> None:
    """Drop the older part of a channel's history."""
    with opened_channel(channel, domain, "helio purge") as (_, opened):
        left = opened.operations.purge(_point(before), unread=unread)
    _print_offsets(left, f"{channel} begins", as_json=as_json)


def redrive(
    channel: ChannelName,
    *,
    where: Annotated[
        str | None, typer.Option(help="Only events for which this is true.", show_default=False)
    ] = None,
    most: Annotated[
        int | None, typer.Option("--count", min=1, help="So many at most.", show_default=False)
    ] = None,
    domain: Domain = "default",
    as_json: JsonFlag = False,
) -> None:
    """Push the dead letters of a channel into the channels that they came from."""
    with opened_channel(channel, domain, "helio redrive") as (_, opened):
        pushed = opened.redrive(where=where, most=most)
    if as_json:
        print_json(pushed)
    elif pushed:
        for name, number in pushed.items():
            print_line(f"{counted(number, 'event')} pushed into {name}")
    else:
        print_line(f"{channel} has no dead letter to re-drive")


@contextmanager
def opened_channel(
    name: str, domain: str, command: str, target: str | None = None
) -> Iterator[tuple[Station, Channel[Any]]]:
    """A channel that stations of the domain have, with the quality of service of its keeper.

    Args:
        target: "module:Class", the class to have in place of the one that its format makes.
    """
    from heliograph.links.history.directory import classes_of  # noqa: PLC0415 - as above
    from heliograph.station import Station  # noqa: PLC0415 - as above

    with Station(domain=domain, name=command) as here:
        mesh = meet_all(here)
        types = classes_of(mesh, name)
        if not types:
            raise CommandFailed(no_channel(mesh, domain, name))
        if target is not None:
            types = with_class(types, target, name)
        yield here, here.channel(name, *types)


def _point(text: str) -> Any:
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal():
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(
            f"{text!r}: earliest, latest, an offset, or an instant such as 2026-11-18T12:00Z"
        ) from None
    return instant if instant.tzinfo is not None else instant.astimezone()


def _print_offsets(offsets: dict[str, int], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(offsets)
        return
    for partition, offset in offsets.items():
        print_line(f"{what} at offset {offset} of partition {partition}")

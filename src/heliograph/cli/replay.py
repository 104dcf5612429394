"""`helio replay`: the history of a channel pushed again into another one, at the pace at which it came.

    helio replay data air.tracks again.tracks --domain rehearsal              in original time
    helio replay data air.tracks again.tracks --speed 10 --where "speed > 300"
    helio replay data air.tracks again.tracks --speed max --name load         goes on where it was killed

The folder is opened as a station of the domain, so no other station may have it; stations of the domain
receive what is replayed as anything that is pushed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from heliograph.cli.job_command import Where, progress_bar
from heliograph.cli.journal import Point, point
from heliograph.cli.output import CommandFailed, JsonFlag, counted, print_json, print_line
from heliograph.cli.station import Domain  # noqa: TC001 - typer looks at the annotation

if TYPE_CHECKING:
    from heliograph.channel.replay import Replayed
    from heliograph.model.event import Event


SHOWN: Final = 100
"""Events between two looks at how far it is."""


def replay(
    folder: Annotated[str, typer.Argument(help="The folder of a station that does not run.")],
    channel: Annotated[str, typer.Argument(help="The channel whose history it is.", show_default=False)],
    to: Annotated[str, typer.Argument(help="The channel to push into; made persistent if it is new.")],
    *,
    speed: Annotated[str, typer.Option(help="2 is twice as fast as it was; max: as fast as possible.")] = "1",
    by: Annotated[str, typer.Option(help="The times that set the pace: append or source.")] = "append",
    name: Annotated[
        str | None,
        typer.Option(help="Go on where a replay of this name ended; no event twice.", show_default=False),
    ] = None,
    where: Where = None,
    start: Point = None,
    until: Point = None,
    domain: Domain = "default",
    as_json: JsonFlag = False,
) -> None:
    """Push the events of a channel's history into another channel, at the pace at which they came."""
    from heliograph.qos.policies import QoS  # noqa: PLC0415 - commands import what they need when they run
    from heliograph.station import Station  # noqa: PLC0415 - as above

    pace = _speed(speed)
    if by not in ("append", "source"):
        raise CommandFailed(f"--by {by}: allowed are append and source")
    first, end = point(start), point(until)
    classes = _classes(folder, channel)
    with (
        progress_bar(f"replay {channel}") as show,
        Station(folder, domain=domain, name="helio replay") as here,
    ):
        source = here.channel(channel, *classes)
        target = here.channel(to, *classes, qos=QoS(durability="persistent"))
        done = source.replay(
            target,
            speed=pace,
            by="append" if by == "append" else "source",
            name=name,
            where=where,
            start=first or "earliest",
            until=end or "now",
            progress=lambda so_far: (
                show(so_far.events, 0, f"into {to}") if not so_far.events % SHOWN else None
            ),
        )
    _print(done, channel, to, as_json=as_json, paced=pace is not None)


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not speed > 0:
        raise CommandFailed(f"--speed {text}: a number above 0, or max")
    return speed


def _classes(folder: str, channel: str) -> list[type[Event]]:
    """A class for each format of the history."""
    from heliograph.codec.dynamic.classes import class_for  # noqa: PLC0415 - as above
    from heliograph.history_rows import formats_of  # noqa: PLC0415 - as above

    return [class_for(fmt) for fmt in formats_of(folder, channel)]


def _print(done: Replayed, channel: str, to: str, *, as_json: bool, paced: bool) -> None:
    if as_json:
        facts = {name: getattr(done, name) for name in done.__struct_fields__}
        print_json({"channel": channel, "to": to, **facts})
        return
    print_line(f"{counted(done.events, 'event')} of {channel} replayed into {to} in {done.seconds:.1f} s")
    if paced and done.events:
        median, most = done.late_median * 1e3, done.late_max * 1e3
        print_line(f"  behind schedule: {median:.2f} ms at the median, {most:.2f} ms at most")

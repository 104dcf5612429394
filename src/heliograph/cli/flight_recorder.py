"""`helio recorder`: keeps what is around each trigger on a channel of the domain, in a folder of its own.

    helio recorder black-box air.tracks --when "speed > 900" --before 10 --after 5
    helio replay black-box recorded.air.tracks again.tracks

It runs until Ctrl-C or SIGTERM; then the cut-out that is open ends, and what was kept is said in numbers.
"""

from __future__ import annotations

from typing import Annotated

import typer

from heliograph.cli.job_command import After, Before, stopping
from heliograph.cli.output import CommandFailed, JsonFlag, counted, print_json, print_line
from heliograph.cli.pubsub import ChannelName  # noqa: TC001 - typer looks at the annotation
from heliograph.cli.station import MEET_LIMIT, Domain, meet_all, no_channel


def recorder(
    folder: Annotated[str, typer.Argument(help="A folder for what is kept, as a station of its own.")],
    channel: ChannelName,
    to: Annotated[
        str | None,
        typer.Option(help="The channel that keeps it. [default: recorded.CHANNEL]", show_default=False),
    ] = None,
    *,
    when: Annotated[str, typer.Option(help="A filter: an event for which it is true is a trigger.")],
    before: Before = 10.0,
    after: After = 5.0,
    thin: Annotated[
        float | None,
        typer.Option(
            help="Elsewhere keep one event of each key in so many seconds. [default: none]",
            show_default=False,
        ),
    ] = None,
    events: Annotated[int, typer.Option(help="Held in memory, at most.", min=1)] = 100_000,
    most_bytes: Annotated[int, typer.Option("--bytes", help="Of their values, at most.", min=1)] = 64 << 20,
    domain: Domain = "default",
    as_json: JsonFlag = False,
) -> None:
    """Keep what comes before and after each trigger on a channel, in full; the rest thinned or not at all."""
    from heliograph.flight_recorder import FlightRecorder  # noqa: PLC0415 - commands import what they need when they run
    from heliograph.links.history.directory import classes_of, least_qos  # noqa: PLC0415 - as above
    from heliograph.qos.policies import QoS  # noqa: PLC0415 - as above
    from heliograph.station import Station  # noqa: PLC0415 - as above

    with stopping() as stop, Station(folder, domain=domain, name="helio recorder") as here:
        mesh = meet_all(here)
        if not mesh.wait_for(lambda known: bool(known.formats(channel)), MEET_LIMIT):
            raise CommandFailed(no_channel(mesh, domain, channel))
        classes = classes_of(mesh, channel)
        source = here.channel(channel, *classes, qos=least_qos(mesh, channel))
        target = here.channel(to or f"recorded.{channel}", *classes, qos=QoS(durability="persistent"))
        with FlightRecorder(
            here,
            source,
            target,
            when=when,
            before=before,
            after=after,
            events=events,
            bytes=most_bytes,
            thin=thin,
        ) as recording:
            if not as_json:
                print_line(f"recording {channel} into {target.name} until Ctrl-C")
            stop.wait()
        done = recording.stats()
    if as_json:
        print_json({"channel": channel, "to": target.name, **done._asdict()})
        return
    print_line(
        f"{counted(done.cuts, 'cut-out')} with {counted(done.kept, 'event')} of {done.seen} in {target.name}"
    )
    if thin is not None:
        print_line(f"  {counted(done.thinned, 'event')} besides, thinned")

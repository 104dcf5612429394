"""`helio gateway`: joins two domains until it is ended.

helio gateway gateway.toml                                        as a file says
helio gateway --here west --there east --channel 'air.**'         or as options say
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli.output import JsonFlag, print_json, print_line
from heliograph.cli.station import until_interrupted

if TYPE_CHECKING:
    from heliograph.federation.gateway import Gateway

WAKE_UP = 0.5
"""Seconds after which a gateway that waits for its end looks whether it was interrupted."""


def gateway(
    *,
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(help="A TOML file with its stations and channels.", show_default=False)
    ] = None,
    here: Annotated[str | None, typer.Option(help="The first domain.", show_default=False)] = None,
    there: Annotated[str | None, typer.Option(help="The second one.", show_default=False)] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(help="A name or a pattern of names; repeatable.", show_default=False),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Only events for which this is true cross.", show_default=False)
    ] = None,
    both: Annotated[bool, typer.Option("--both", help="Events cross the other way, too.")] = False,
    hops: Annotated[int, typer.Option(help="Domains that an event may have been in.")] = 8,
    name: Annotated[
        str | None,
        typer.Option(help="Of its durable consumers: it goes on where that was.", show_default=False),
    ] = None,
    here_folder: Annotated[
        str | None, typer.Option(help="Where the station of the first domain keeps.", show_default=False)
    ] = None,
    there_folder: Annotated[
        str | None, typer.Option(help="Where that of the second keeps.", show_default=False)
    ] = None,
    here_connect: Annotated[
        list[str] | None, typer.Option(help="tcp/HOST:PORT of the first domain.", show_default=False)
    ] = None,
    there_connect: Annotated[
        list[str] | None, typer.Option(help="tcp/HOST:PORT of the second domain.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Join two domains until Ctrl-C or SIGTERM ends it; says at its end what has crossed."""
    from heliograph.cli.watchdog import end_with_watchdog  # noqa: PLC0415 - commands import late
    from heliograph.federation import gateway_file as files  # noqa: PLC0415 - as above

    end_with_watchdog()
    if file is None:
        if not (here and there and channel):
            raise typer.BadParameter("give a file, or --here, --there and --channel")
        said = files.GatewayFile(
            files.SideSaid(here, here_folder, "helio gateway", connect=here_connect or []),
            files.SideSaid(there, there_folder, "helio gateway", connect=there_connect or []),
            [files.ChannelSaid(one, where, None, both) for one in channel],
            files.GatewaySaid(name, hops),
        )
    else:
        _check_alone(context)
    with until_interrupted():
        running = files.open_file(file) if file is not None else said.open()
        try:
            _run(running, as_json=as_json)
        finally:
            rows = running.stats()
            running.close()
            for row in rows:
                print_line(f"{row.channel} from {row.source} to {row.target}: {row.forwarded} crossed")
            sys.stdout.flush()


def _check_alone(context: typer.Context) -> None:
    """No option but --json was given beside a file: the file says all else."""
    given = []
    for option in context.command.params:
        source = context.get_parameter_source(option.name)
        if source is not None and source.name == "COMMANDLINE" and option.name not in {"file", "as_json"}:
            given.append(option.opts[0])
    if given:
        raise typer.BadParameter(f"a file says all: leave out {', '.join(given)}")


def _run(running: Gateway, *, as_json: bool) -> None:
    from heliograph.runtime.service_manager import notify  # noqa: PLC0415 - as above

    domains = {"here": running.here.domain, "there": running.there.domain}
    if as_json:
        print_json({**domains, "channels": sorted({row.channel for row in running.stats()})})
    else:
        print_line(f"gateway between {running.here.domain} and {running.there.domain}; Ctrl-C ends it")
    sys.stdout.flush()
    notify("READY=1")
    end = running.here.ports.tasks.event("end")
    while not end.wait(WAKE_UP):
        pass

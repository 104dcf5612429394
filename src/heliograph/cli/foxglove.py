"""`helio foxglove`: the live channels of a domain, for Foxglove's app.

helio foxglove --domain robot                    all channels
helio foxglove 'robot.**' --port 8770            those whose names fit, at another port
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from heliograph.cli.output import JsonFlag, print_json, print_line
from heliograph.cli.station import WAKE_UP, Domain, meet_all, until_interrupted


def foxglove(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATTERN...",
            help="Channels to show: '*' stands for one part of a name, '**' for several. All without one.",
            show_default=False,
        ),
    ] = None,
    *,
    domain: Domain = "default",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port on 127.0.0.1; 0 for any that is free.")
    ] = 8765,
    as_json: JsonFlag = False,
) -> None:
    """Serve live channels to Foxglove until Ctrl-C: in its app, open a connection of type WebSocket."""
    # Commands import what they need when they run.
    from heliograph.interchange.foxglove import FoxgloveServer  # noqa: PLC0415 - see above
    from heliograph.station import Station  # noqa: PLC0415 - see above

    with until_interrupted(), Station(domain=domain, name="helio foxglove") as here:
        meet_all(here)
        with FoxgloveServer(here, patterns or ("**",), port=port) as server:
            if as_json:
                print_json({"link": server.link, "domain": domain})
            else:
                print_line(f"Foxglove can connect to {server.link}; Ctrl-C ends it")
            sys.stdout.flush()
            end = here.ports.tasks.event("end")
            while not end.wait(WAKE_UP):
                pass

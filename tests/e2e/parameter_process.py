"""Programs that declare parameters of a channel and that set them, as processes of their own."""

from __future__ import annotations

import sys
from typing import Any

import heliograph as hg
from tests.e2e.link_process import say
from tests.e2e.link_support import LIMIT, open_station


class Frame(hg.Event, name="parameters.frame"):
    number: int


LEASE = 3.0
DECLARED: dict[str, hg.Parameter] = {
    "rate": hg.Parameter(10.0, minimum=1.0, maximum=60.0, policy="max", lease=LEASE),
    "zoom": hg.Parameter(1, who="owner"),
    "region": hg.Parameter("all", who=("display",), lease=LEASE),
}


def source() -> None:
    """Declare, and say each change."""
    with open_station(name="camera") as station:
        camera = station.channel("camera", Frame)
        camera.parameters.declare(**DECLARED)
        camera.parameters.on_change(lambda name, value: say("changed", name, value))
        say("declared")
        sys.stdin.read()


def setter(name: str, by: str, rate: str) -> None:
    """Receive, set a rate when a line of standard input says so, and stay until that ends."""
    with open_station(name=name) as station:
        camera = station.channel("camera", Frame)
        camera.subscribe(lambda _: None)
        say("ready")
        sys.stdin.readline()
        wanted: dict[str, Any] = {"rate": float(rate)}
        camera.parameters.set(wanted, by=by, timeout=LIMIT)
        say("set", rate)
        sys.stdin.read()


if __name__ == "__main__":
    setter(*sys.argv[2:]) if sys.argv[1] == "setter" else source()

"""Programs that push into channels of which others derive, and that derive, as processes of their own."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

import heliograph as hg
from heliograph.derived.derivations import Derivations
from heliograph.links.mesh.mesh import Mesh
from tests.e2e.link_process import say
from tests.e2e.link_support import LIMIT, open_station


class Row(hg.Event, name="derived.row", key="id"):
    id: int
    speed: float
    note: str = ""


SELECT = "id, speed * 2 AS double"
WHERE = "id % 10 = 0"
NOTE = "x" * 400


def supply(folder: str = "") -> None:
    """Push as many events as each line of standard input says, and tell what that cost."""
    with open_station(folder or None, name="source") as station:
        qos = hg.QoS(durability="persistent") if folder else None
        rows = station.channel("rows", Row, qos=qos)
        pushed = 0
        say("open")
        for line in sys.stdin:
            if line.startswith("match"):
                assert rows.wait_matched(int(line.split()[1]), LIMIT)
                say("matched", line.split()[1])
            elif line.startswith("stats"):
                derived = [one for one in station.channels() if one.derives is not None]
                counts = [one.derives.transform.counts().derived for one in derived if one.derives]
                links = sum(one.bytes_sent for one in station.snapshot().links)
                say("stats", json.dumps({"derived": counts, "bytes": links, "pushed": pushed}))
            else:
                number = int(line)
                events = [Row(pushed + n, float(n), NOTE) for n in range(number)]
                pushed += number
                for event in events[: number // 2]:
                    rows.push(event)
                rows.push_many(events[number // 2 :])
                say("pushed", pushed)


def receive() -> None:
    """Derive, and say each event."""
    with open_station(name="receiver") as station:
        derived = station.channel("rows", Row).derive(SELECT, where=WHERE)
        derived.subscribe(lambda event: say("got", event.id, event.double))
        say("receives", derived.digest)
        sys.stdin.read()


def older(folder: str = "") -> None:
    """As a station of a version that derives nothing: push as `supply` does."""
    mesh: Any = Mesh
    derivations: Any = Derivations
    hello = mesh._hello

    def without(*args: Any, **more: Any) -> Any:
        return msgspec.structs.replace(hello(*args, **more), derives=False)

    mesh._hello = without
    derivations.look_soon = lambda _: None  # it knows nothing of them
    supply(folder)


if __name__ == "__main__":
    {"supply": supply, "receive": receive, "older": older}[sys.argv[1]](*sys.argv[2:])

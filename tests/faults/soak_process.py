"""One process of the soak test: a keeper, a supplier, or consumers. `tests/faults/soak.py` starts them.

Each goes on until its standard input is closed, and then says what it counted.
"""

from __future__ import annotations

import sys
from threading import Event, Thread
from typing import TYPE_CHECKING

import heliograph as hg
from tests.e2e.link_process import say

if TYPE_CHECKING:
    from collections.abc import Callable

DOMAIN = "soak"
LIMIT = 60.0


class Reading(hg.Event, name="soak.reading", key="sensor"):
    """What is pushed: numbered by its supplier."""

    number: int
    sensor: int
    text: str = ""


LIVE = hg.QoS(queue=50_000, max_blocking=LIMIT)
KEPT = hg.QoS(durability="persistent")
SMALL = hg.Limits(head_seconds=5.0, keep_bytes=32 << 20, grace_seconds=5.0)


def until_told() -> Event:
    """Set when standard input is closed."""
    told = Event()

    def listen() -> None:
        sys.stdin.read()
        told.set()

    Thread(target=listen, daemon=True).start()
    return told


def keeper(folder: str) -> None:
    with hg.Station(folder, domain=DOMAIN, name="keeper", journal=SMALL) as station:
        kept = station.channel("soak.kept", Reading, qos=KEPT)
        say("ready")
        until_told().wait()
        say(f"kept {kept.stats().balanced}")


def supplier() -> None:
    with hg.Station(domain=DOMAIN, name="supplier") as station:
        live = station.channel("soak.live", Reading, qos=LIVE)
        kept = station.channel("soak.kept", Reading, qos=KEPT)
        told, number = until_told(), 0
        assert live.wait_matched(1, LIMIT)
        while not told.wait(0.02):
            batch = [Reading(number + i, i % 7, "x" * (i % 50)) for i in range(50)]
            live.push_many(batch)
            kept.push_many(batch[:10])
            number += len(batch)
        assert live.settle(LIMIT)
        stats = live.stats()
        say(f"pushed {number} {number // 5} {stats.balanced} {dict(stats.departed.dropped)}")


def consumer() -> None:
    """Counts all live events, and a durable one's; fails when one of its stream is missing."""
    with hg.Station(domain=DOMAIN, name="consumer") as station:
        seen, missing = 0, 0

        def count(reading: Reading) -> None:
            nonlocal seen, missing
            missing += reading.number != seen
            seen = reading.number + 1

        live = station.channel("soak.live", Reading, qos=LIVE)
        live.subscribe(count)
        with station.channel("soak.kept", Reading, qos=KEPT).consumer(
            name="durable", start="earliest"
        ) as durable:
            told, read = until_told(), 0
            say("ready")
            while not told.is_set():
                read += len(durable.read(max=500, timeout=0.5))
            while batch := durable.read(max=500, timeout=2.0):
                read += len(batch)
            say(f"got {seen} {missing} {read} {live.stats().balanced}")


def worker() -> None:
    """A member of a group, which is killed now and then."""
    with hg.Station(domain=DOMAIN, name="worker") as station:
        kept = station.channel("soak.kept", Reading, qos=KEPT)
        kept.subscribe(lambda reading: None, group="workers")
        say("ready")
        until_told().wait()


ROLES: dict[str, Callable[..., None]] = {
    "keeper": keeper,
    "supplier": supplier,
    "consumer": consumer,
    "worker": worker,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])

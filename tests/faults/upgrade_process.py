"""Programs that tests run and kill while a class is upgraded: a keeper, and a durable consumer.

The consumer writes what it does into a file, a whole line per event, before it acknowledges it: what is there
is what was done, in the order in which it was done, whoever was killed.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import heliograph as hg
from heliograph.errors import CursorHeld, NotPossible, QueryFailed
from tests.e2e.event_versions import ExtendedNew, ExtendedOld
from tests.e2e.link_support import transport
from tests.faults.group_process import patiently

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = hg.QoS(durability="persistent")
CHANNEL, CONSUMER, DOMAIN = "x", "billing", "upgrade"
CLASSES: dict[str, type[ExtendedOld | ExtendedNew]] = {"old": ExtendedOld, "new": ExtendedNew}
STOP = "stop"
"""What stands in the file in place of an event that could not be read."""


def keep(folder: str, version: str) -> None:
    """Keep the channel, and say so, until standard input ends or it is killed."""
    with hg.Station(folder, domain=DOMAIN, transport=transport(), on_error=lambda *_: None) as station:
        station.channel(CHANNEL, CLASSES[version], qos=KEPT)
        print("keeping", flush=True)
        sys.stdin.read()


def work(log: str, version: str) -> None:
    """As a durable consumer, write down and acknowledge what comes; say where it has to stop."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    with hg.Station(domain=DOMAIN, transport=transport(), on_error=lambda *_: None) as station:
        away = (NotPossible, QueryFailed, CursorHeld)  # the keeper, or this consumer, was killed a moment ago
        channel = patiently(lambda: station.channel(CHANNEL, CLASSES[version], qos=KEPT), *away)
        consumer: hg.Consumer[Any] = patiently(lambda: channel.consumer(name=CONSUMER, ack="manual"), *away)
        print("working", flush=True)
        try:
            for delivery in consumer.deliveries():
                os.write(file, f"{version} {delivery.event.id}\n".encode())
                with suppress(QueryFailed):  # the keeper is away for long: it comes again
                    delivery.ack()
        except hg.IncompatibleFormats:
            os.write(file, f"{version} {STOP}\n".encode())
            print("stopped", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"keep": keep, "work": work}
    programs[sys.argv[1]](*sys.argv[2:])

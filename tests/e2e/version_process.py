"""A station in a process of its own that does what it is told, line by line, for the matrix of versions.

Each line of standard input is `number [what, argument...]` as JSON; each answer is `number result`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import heliograph as hg
from tests.e2e.event_versions import CHANGES, plain
from tests.e2e.link_support import LIMIT, transport, wait_until

if TYPE_CHECKING:
    from tests.e2e.event_versions import Version

KEPT = hg.QoS(durability="persistent")


class Actor:
    """What a test can have the station do."""

    def __init__(self, station: hg.Station, told: list[str]) -> None:
        self._station = station
        self._told = told
        self._consumers: dict[str, hg.Consumer[Any]] = {}

    def keep(self, channel: str, change: str, version: Version) -> None:
        self._station.channel(channel, CHANGES[change].cls(version), qos=KEPT)

    def open(self, channel: str, change: str, version: Version | None) -> None:
        classes = () if version is None else (CHANGES[change].cls(version),)
        self._station.channel(channel, *classes)

    def push(self, channel: str, change: str, version: Version, number: int) -> str:
        try:
            pushed: hg.Channel[Any] = self._station.channel(channel)
            pushed.push(CHANGES[change].make(version, number))
        except hg.HeliographError as error:
            return type(error).__name__
        return ""

    def listen(self, channel: str, key: str, options: dict[str, Any]) -> None:
        self._consumers[key] = self._station.channel(channel).consumer(**options)

    def take(self, key: str, number: int) -> tuple[list[dict[str, Any]], str]:
        """So many events, or those before an error, and its name."""
        found: list[dict[str, Any]] = []
        with self._consumers.pop(key) as consumer:
            try:
                while len(found) < number and (event := consumer.pull(LIMIT)) is not None:
                    found.append(plain(event))
            except hg.HeliographError as error:
                return found, type(error).__name__
        return found, ""

    def matched(self, channel: str) -> bool:
        """Whether somebody gets what is pushed here, once that is known."""
        known: hg.Channel[Any] = self._station.channel(channel)
        assert wait_until(lambda: known.stats().unmatched or known.wait_matched(1, 0))
        return not known.stats().unmatched

    def told(self) -> tuple[list[str], int]:
        """What on_error was told of since it was asked last, and the connections that there were per link."""
        assert self._station.mesh is not None
        told, self._told[:] = list(self._told), []
        return sorted(told), max((link.connections for link in self._station.mesh.stats()), default=0)


def main(name: str, folder: str = "") -> None:
    told: list[str] = []

    def on_error(_: str, __: object, error: BaseException) -> None:
        told.append(type(error).__name__)

    with hg.Station(
        folder or None, domain="e2e", name=name, transport=transport(), on_error=on_error
    ) as station:
        actor = Actor(station, told)
        print("ready", flush=True)
        for line in sys.stdin:
            number, _, words = line.partition(" ")
            what, *arguments = json.loads(words)
            print(number, json.dumps(getattr(actor, what)(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

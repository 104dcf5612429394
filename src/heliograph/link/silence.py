"""Stations that are there and say nothing: struck off when that was asked for, until they are heard again.

Every station beats twice a second, so one that is silent is stopped, or so busy that it does nothing else.
It is not dead: what it owes and is owed waits for it, and a push that must not lose anything waits with it.
With `Station(peer_limit=5.0)` such a station counts as gone after that time. Its consumers are dropped from
every channel, with what waited for them, and what it kept is looked for elsewhere. The connection is made
anew at once, and greets it when it goes on.

Looks are counted, not seconds: a process that was stopped itself, or hardly ran, takes nobody for silent
before it has had the time to read what came meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from heliograph.channel.stamp import LONGEST_WAIT
from heliograph.errors import NotPossible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.link.gates import Peer
    from heliograph.ports import Tasks

log = logging.getLogger(__name__)

LOOKS: Final = 4
"""Times in a row that nothing was heard of a station; so many looks are in the limit."""
LEAST: Final = 1.0
"""Seconds of the shortest limit: two heartbeats."""


def check_limit(limit: float | None) -> None:
    """NotPossible for a limit that a station in good health could miss."""
    if limit is not None and (type(limit) not in (int, float) or not LEAST <= limit <= LONGEST_WAIT):
        raise NotPossible(
            f"peer_limit={limit!r:.60}",
            f"stations beat twice a second: it is {LEAST:g} to {LONGEST_WAIT:,.15g} seconds",
        )


class Silence:
    """Watches the links of one station.

    Args:
        limit: seconds of silence after which a station is struck off; None: never.
        peers: the stations that are linked, at any time.
        strike_off: what to do about one, called with its station.
    """

    def __init__(
        self,
        limit: float | None,
        tasks: Tasks,
        peers: Mapping[int, Peer],
        strike_off: Callable[[int], object],
    ) -> None:
        self._limit = limit
        self._peers = peers
        self._strike_off = strike_off
        self._wake = tasks.signal("silence")
        self._tasks = tasks
        self._closed = False
        self._heard: dict[int, tuple[int, int]] = {}
        """By station: the bytes that have come, and how many looks found no more."""

    def start(self) -> None:
        limit = self._limit
        if limit is not None:
            self._tasks.spawn("link silence", lambda: self._run(limit))

    def close(self) -> None:
        self._closed = True
        self._wake.notify()

    def look(self) -> None:
        """Strike off who has said nothing for so many looks; while nobody reads here, nobody is silent."""
        before, self._heard = self._heard, {}
        for peer in tuple(self._peers.values()):
            link = peer.link
            came = link.waits_behind
            if came is None:
                continue
            known, looks = before.get(link.station, (-1, 0))
            looks = looks + 1 if came == known else 0
            self._heard[link.station] = came, looks
            if looks >= LOOKS:
                log.warning(
                    "station %s (pid %d) has said nothing for %g s: struck off until it is heard again",
                    link.name,
                    link.peer.pid,
                    self._limit,
                )
                self._strike_off(link.station)

    def _run(self, limit: float) -> None:
        while not self._closed:
            self._wake.wait(limit / LOOKS)
            if not self._closed:
                self.look()

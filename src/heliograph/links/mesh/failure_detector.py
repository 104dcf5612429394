"""The failure detector: peers that are there and say nothing are suspected until they are heard again.

Every station beats twice a second, so a peer that is silent is stopped, or so busy that it does nothing
else. It is not dead, but whoever waits for it waits for an unknown time. After `peer_limit` seconds it is
suspected: its consumers leave every channel, what waited for them is counted as dropped, and what it keeps
is looked for elsewhere. So it holds up nobody. The connection is made anew at once, and greets the peer
when it goes on; a peer that was suspected wrongly loses no more than that.

A heartbeat is sent by a thread of the peer's interpreter, and one call into C that holds the interpreter
keeps it from beating. On a loaded machine such a call takes several times as long. The kernel can tell that
from a process that is stopped: a peer on this host whose process has used processor time since the last
look is suspected only after `BUSY` times the limit.

Looks are counted, not seconds: a process that was stopped itself, or hardly ran, suspects nobody before it
has had the time to read what came meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.errors import NotPossible
from heliograph.runtime.timeouts import LONGEST_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.links.mesh.peer import Peer
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)

LOOKS: Final = 4
"""Times in a row that nothing was heard of a station; so many looks are in the limit."""
BUSY: Final = 4
"""Times the limit after which a peer is suspected whose process computes and says nothing."""
LEAST: Final = 1.0
"""Seconds of the shortest limit: two heartbeats."""


def check_limit(limit: float | None) -> None:
    """NotPossible for a limit that a station in good health could miss."""
    if limit is not None and (type(limit) not in (int, float) or not LEAST <= limit <= LONGEST_WAIT):
        raise NotPossible(
            f"peer_limit={limit!r:.60}",
            f"stations beat twice a second: it is {LEAST:g} to {LONGEST_WAIT:,.15g} seconds",
        )


class _Heard(NamedTuple):
    """What a look found of one peer."""

    received: int
    """Bytes that have come over its connection."""
    looks: int
    """How many looks in a row found no more."""
    idle_looks: int
    """Those of them that found that its process had used no processor time either."""
    cpu_ticks: int | None


class FailureDetector:
    """Watches the links of one station.

    Args:
        limit: seconds of silence after which a peer is suspected; None: never.
        peers: the stations that are linked, at any time.
        suspect: what to do about one, called with its station.
    """

    def __init__(
        self,
        limit: float | None,
        tasks: Tasks,
        peers: Mapping[int, Peer],
        suspect: Callable[[int], object],
    ) -> None:
        self._limit = limit
        self._peers = peers
        self._suspect = suspect
        self._wake = tasks.signal("silence")
        self._tasks = tasks
        self._closed = False
        self._heard: dict[int, _Heard] = {}

    def start(self) -> None:
        limit = self._limit
        if limit is not None:
            self._tasks.spawn_soon("link silence", lambda: self._run(limit))

    def close(self) -> None:
        self._closed = True
        self._wake.notify()

    def look(self) -> None:
        """Suspect peers that were silent at so many looks; while nobody reads here, nobody is silent."""
        before, self._heard = self._heard, {}
        for peer in tuple(self._peers.values()):
            link = peer.link
            came = link.waits_behind
            if came is None:
                continue
            heard = self._heard[link.station] = _looked(before.get(link.station), came, link.cpu_ticks())
            if heard.idle_looks >= LOOKS or heard.looks >= LOOKS * BUSY:
                log.warning(
                    "station %s (pid %d) has said nothing for %g s: suspected until it is heard again",
                    link.called,
                    link.peer.pid,
                    (self._limit or 0.0) * heard.looks / LOOKS,
                )
                self._suspect(link.station)

    def _run(self, limit: float) -> None:
        while not self._closed:
            self._wake.wait(limit / LOOKS)
            if not self._closed:
                self.look()


def _looked(before: _Heard | None, received: int, cpu_ticks: int | None) -> _Heard:
    if before is None or received != before.received:
        return _Heard(received, 0, 0, cpu_ticks)
    is_idle = cpu_ticks is None or cpu_ticks == before.cpu_ticks
    return _Heard(received, before.looks + 1, before.idle_looks + is_idle, cpu_ticks)

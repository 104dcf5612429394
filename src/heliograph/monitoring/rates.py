"""Rates of a station's channels over time, made of snapshots: a pure window of counters.

    window = RateWindow()
    window.add(station.snapshot())          about once a second, while somebody looks
    window.rates()["air.tracks"].pushed     events per second, over the last two snapshots
    window.series("air.tracks")             for charts

Counters that went back belong to a channel that was opened anew: their rate is unknown, not negative.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.monitoring.snapshot import ChannelSnapshot, StationSnapshot

LONGEST: Final = 300
"""Points that a window keeps: five minutes at one a second."""
SHORTEST_NS: Final = 50_000_000
"""Between two snapshots of which rates are made; closer ones are too coarse."""


class Rates(msgspec.Struct, frozen=True):
    """One channel over the time between two snapshots, per second."""

    pushed: float = 0.0
    delivered: float = 0.0
    dropped: float = 0.0
    failed: float = 0.0
    expired: float = 0.0
    journal_bytes: float = 0.0
    pending: int = 0
    """Events that wait now."""
    wait_s: float | None = None
    """How long an event waits on average, by Little's law: waiting events / deliveries per second. None where
    nothing is delivered."""


class _Counters(msgspec.Struct, frozen=True):
    pushed: int
    delivered: int
    dropped: int
    failed: int
    expired: int
    journal_bytes: int
    pending: int


class _Point(msgspec.Struct, frozen=True):
    monotonic_ns: int
    time_ns: int
    channels: dict[str, _Counters]


class RateWindow:
    """The last minutes of one station."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._points: deque[_Point] = deque(maxlen=longest)

    def add(self, snapshot: StationSnapshot) -> bool:
        """Take a snapshot in; False for one that is too close to the last."""
        if self._points and snapshot.monotonic_ns - self._points[-1].monotonic_ns < SHORTEST_NS:
            return False
        counters = {one.name: _counters(one) for one in snapshot.channels}
        self._points.append(_Point(snapshot.monotonic_ns, snapshot.time_ns, counters))
        return True

    def rates(self) -> Mapping[str, Rates]:
        """Of every channel of the last snapshot; zeros for one that was not there before."""
        if not self._points:
            return {}
        last = self._points[-1]
        before = self._points[-2] if len(self._points) > 1 else None
        return {
            name: _between(before, last, name) or Rates(pending=now.pending)
            for name, now in last.channels.items()
        }

    def series(self, channel: str) -> list[tuple[float, Rates | None]]:
        """(seconds since 1970, rates) of a channel; None where it was not there."""
        points = list(self._points)
        return [
            (after.time_ns / 1e9, _between(before, after, channel))
            for before, after in itertools.pairwise(points)
        ]


def _counters(channel: ChannelSnapshot) -> _Counters:
    return _Counters(
        channel.pushed,
        channel.delivered,
        sum(channel.dropped.values()),
        channel.failed,
        channel.expired,
        0 if channel.journal is None else channel.journal.bytes,
        channel.pending,
    )


def _between(before: _Point | None, after: _Point, name: str) -> Rates | None:
    old, new = None if before is None else before.channels.get(name), after.channels.get(name)
    if before is None or old is None or new is None or new.pushed < old.pushed:
        return None
    seconds = (after.monotonic_ns - before.monotonic_ns) / 1e9

    def rate(counter: str) -> float:
        more: int = getattr(new, counter) - getattr(old, counter)
        return max(0.0, more / seconds)

    delivered = rate("delivered")
    return Rates(
        pushed=rate("pushed"),
        delivered=delivered,
        dropped=rate("dropped"),
        failed=rate("failed"),
        expired=rate("expired"),
        journal_bytes=rate("journal_bytes"),
        pending=new.pending,
        wait_s=new.pending / delivered if delivered else None,
    )

"""How long events of a channel waited until they were delivered: counts in buckets, and missed deadlines.

The buckets are the same everywhere (1, 2, 5 in each power of ten, from a microsecond to 100 seconds), so that
histograms of several stations add up. Filled from delivery records, so a channel that records no deliveries
has none, and one that samples has a sample.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import msgspec

BOUNDS_S: Final = (*(float(f"{digit}e{power}") for power in range(-6, 2) for digit in (1, 2, 5)), 100.0)
"""Upper bounds of the buckets in seconds; what took longer is in one more."""
_BOUNDS_NS: Final = tuple(round(bound * 1e9) for bound in BOUNDS_S)


class LatencyCounts(msgspec.Struct, frozen=True):
    """A histogram at one instant."""

    buckets: tuple[int, ...]
    """How many were delivered within each bound and not within the one before; the last, beyond all."""
    sum_s: float
    longest_s: float
    in_time: int
    late: int
    """Of those that have a deadline; what was never delivered is late."""
    least_laxity_s: float | None
    """What was left until the deadline of the one that was closest to it, or beyond it (negative)."""

    @property
    def events(self) -> int:
        return sum(self.buckets)

    def percentile(self, share: float) -> float:
        """The bound below which a share of the events was delivered; the longest where that is beyond all."""
        wanted = share * self.events
        reached = 0
        for bound, n in zip(BOUNDS_S, self.buckets, strict=False):
            reached += n
            if reached >= wanted:
                return min(bound, self.longest_s)
        return self.longest_s


class LatencyHistogram:
    """Counts of one channel. One task adds; anybody may look."""

    def __init__(self) -> None:
        self._buckets = [0] * (len(_BOUNDS_NS) + 1)
        self._sum_ns = 0
        self._longest_ns = 0
        self._in_time = 0
        self._late = 0
        self._least_ns: int | None = None

    def add(self, waited_ns: int, limit_ns: int | None, *, is_delivered: bool) -> None:
        """One outcome; `limit_ns`: within which it was to be delivered."""
        if is_delivered:
            self._buckets[bisect_left(_BOUNDS_NS, waited_ns)] += 1
            self._sum_ns += max(0, waited_ns)
            self._longest_ns = max(self._longest_ns, waited_ns)
        if limit_ns is None:
            return
        if is_delivered and waited_ns <= limit_ns:
            self._in_time += 1
        else:
            self._late += 1
        laxity = limit_ns - waited_ns
        if self._least_ns is None or laxity < self._least_ns:
            self._least_ns = laxity

    def counts(self) -> LatencyCounts:
        return LatencyCounts(
            tuple(self._buckets),
            self._sum_ns / 1e9,
            self._longest_ns / 1e9,
            self._in_time,
            self._late,
            None if self._least_ns is None else self._least_ns / 1e9,
        )

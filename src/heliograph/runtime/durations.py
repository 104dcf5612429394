"""Durations in a memory whose size does not grow with their number.

memory = Durations()
memory.add(1_250_000)
memory.percentile(0.5), memory.most           # nanoseconds
"""

from __future__ import annotations

from typing import Final

_BITS: Final = 7
"""Leading bits of a duration that are told apart: it is known to within 1.6 %."""


class Durations:
    """A bounded memory of durations in nanoseconds. One task at a time adds."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least = 0
        self.most = 0
        self._buckets: dict[int, int] = {}

    def add(self, ns: int) -> None:
        self.least = min(ns, self.least) if self.count else ns
        self.most = max(ns, self.most) if self.count else ns
        self.count += 1
        self.total += ns
        shift = max(0, ns.bit_length() - _BITS)
        edge = ((max(ns, 0) >> shift) + 1 << shift) - 1
        self._buckets[edge] = self._buckets.get(edge, 0) + 1

    def percentile(self, part: float) -> int:
        """The shortest time that so large a part of the durations did not exceed, rounded up; 0 of none."""
        left = part * self.count
        for edge, times in sorted(self._buckets.copy().items()):
            left -= times
            if left <= 0:
                return min(edge, self.most)
        return self.most

"""A sketch of latencies: how many lie in each of many small ranges, so that sketches can be added up.

    whole = Sketch.merged(record.sketch for record in records if record.measure == "latency_sketch")
    whole.percentile(0.99)                                            seconds, to within 1 %

Percentiles of two batches cannot be combined; their sketches can, in any order and any number. Ranges grow by
2 % each, so a value is known to 1 %, whatever its size. One of a thousand million deliveries between a
microsecond and an hour has at most 1,111 ranges.
"""

from __future__ import annotations

from collections import Counter
from math import log
from typing import TYPE_CHECKING, Final, Self

import msgspec

from heliograph.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable

RATIO: Final = 1.02
"""Of the ends of a range."""
SQL: Final = f"CAST(ceil(ln(greatest({{ns}}, 1)) / {log(RATIO)!r}D) AS INT)"
"""The number of the range in which a column of nanoseconds lies."""


class Sketch:
    """Counts by range: range n has what is above RATIO ** (n - 1) nanoseconds, and up to RATIO ** n."""

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts = Counter(counts or {})

    @classmethod
    def of(cls, text: str) -> Self:
        """From what `text` made; InvalidOption for anything else."""
        try:
            return cls(msgspec.json.decode(text, type=dict[int, int]))
        except msgspec.MsgspecError as error:
            raise InvalidOption("sketch", text[:80], f"counts by range, as JSON ({error})") from None

    @classmethod
    def merged(cls, texts: Iterable[str | None]) -> Self:
        """All of them together; None is passed over."""
        whole = cls()
        for text in texts:
            if text is not None:
                whole.counts.update(cls.of(text).counts)
        return whole

    @property
    def n(self) -> int:
        return self.counts.total()

    def percentile(self, share: float) -> float | None:
        """The value in seconds below which this share lies, 0.99 for p99; None of nothing."""
        if not 0 <= share <= 1:
            raise InvalidOption("share", str(share), "a number from 0 to 1")
        left = share * (self.n - 1)
        for number, count in sorted(self.counts.items()):
            if left < count:
                # The middle, in ratio: as far from both ends.
                return float(RATIO**number * 2 / (1 + RATIO)) / 1e9
            left -= count
        return None

    def text(self) -> str:
        return msgspec.json.encode(dict(sorted(self.counts.items()))).decode()

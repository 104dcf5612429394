"""What several test suites share."""

from __future__ import annotations

import os

EXAMPLES_FACTOR = int(os.environ.get("HELIO_EXAMPLES", "1"))
"""`make fuzz` sets it; 1 is CI's share."""


def examples(n: int) -> int:
    """How many Hypothesis examples to run where CI runs `n`."""
    return n * EXAMPLES_FACTOR

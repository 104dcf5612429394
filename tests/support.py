"""What several test suites share."""

from __future__ import annotations

import os


def examples(n: int) -> int:
    """How many Hypothesis examples to run: CI's share, times HELIO_EXAMPLES for `make fuzz`."""
    return n * int(os.environ.get("HELIO_EXAMPLES", "1"))

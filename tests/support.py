"""What several test suites share."""

from __future__ import annotations

import os
from math import inf
from typing import TYPE_CHECKING

from heliograph.errors import NoThreadLeft
from heliograph.runtime.ports import ThreadTasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.runtime.ports import ThreadTask

EXAMPLES_FACTOR = int(os.environ.get("HELIO_EXAMPLES", "1"))
"""`make fuzz` sets it; 1 is CI's share."""


def examples(n: int) -> int:
    """How many Hypothesis examples to run where CI runs `n`."""
    return n * EXAMPLES_FACTOR


class ScarceTasks(ThreadTasks):
    """The tasks of the machine, of which so many more can be started as are `left`."""

    def __init__(self) -> None:
        super().__init__()
        self.left = inf
        self.refused = 0

    def spawn(self, name: str, run: Callable[[], object]) -> ThreadTask:
        if not self.left:
            self.refused += 1
            raise NoThreadLeft(name, "can't start new thread")
        self.left -= 1
        return super().spawn(name, run)

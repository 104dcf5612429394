"""Places at which a process can be made to die, for whoever wants to see a guarantee hold.

    HELIO_FAULT="after-staging:3"                     killed at the third time that this process comes there
    HELIO_FAULT="after-adoption@/tmp/once"            killed only if it can remove that file: once for all

Dying means SIGKILL: nothing is flushed, closed or told. The points stand where a batch on its way from Spark
into a journal has just changed its state; `docs/spark.md` lists them. Without the variable a point costs
nothing worth measuring.
"""

from __future__ import annotations

import os
import signal
from typing import Final, NamedTuple

VARIABLE: Final = "HELIO_FAULT"
POINTS: Final = (
    "after-staging",
    "before-manifest",
    "in-manifest",
    "after-manifest",
    "before-adoption",
    "in-adoption",
    "after-adoption",
    "after-unlink",
)


class _Armed(NamedTuple):
    point: str
    passes: int
    token: str


def _armed(text: str | None) -> _Armed | None:
    if not text:
        return None
    head, _, token = text.partition("@")
    point, _, passes = head.partition(":")
    if point not in POINTS or not (passes or "1").isdigit():
        known = ", ".join(POINTS)
        raise ValueError(f"{VARIABLE}={text!r}: it is POINT[:PASSES][@FILE], and the points are {known}")
    return _Armed(point, int(passes or "1"), token)


_fault = _armed(os.environ.get(VARIABLE))
_passed = 0


def reach(point: str) -> None:
    """This process is at a point; it dies here if that is what it was told."""
    global _passed  # noqa: PLW0603 - what counts is how often this process came here
    if _fault is None or _fault.point != point:
        return
    _passed += 1
    if _passed < _fault.passes:
        return
    if _fault.token:
        try:
            os.remove(_fault.token)  # noqa: PTH107 - nothing of pathlib is needed here
        except FileNotFoundError:
            return
    os.kill(os.getpid(), signal.SIGKILL)

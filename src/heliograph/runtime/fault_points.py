"""Named points at which a process can be told to die, to show that a guarantee holds.

    HELIO_FAULT="after-staging:3"                     killed at the third time that this process comes there
    HELIO_FAULT="after-adoption@/tmp/once"            killed only if it can remove that file: once for all
    HELIO_FAULT="stop:in-manifest@/tmp/once"          stopped there instead, so that others can be killed

Dying means SIGKILL: nothing is flushed, closed or told. A process that is stopped (SIGSTOP) has written its
id to `FILE.pid` before. The points stand where a batch on its way from Spark into a journal has just changed
its state, where a job has changed a table, and where a segment was published; `docs/guides/spark.md`,
`docs/guides/pipeline.md` and `docs/guides/stores.md` list them. Without the variable a point costs nothing
worth measuring.
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
TABLE_POINTS: Final = (
    "table-staged",
    "table-moving",
    "table-moved",
    "table-committed",
    "table-rewritten",
    "table-replaced",
)
LINK_POINTS: Final = ("table-linked", "table-registered", "table-swept")
STORE_POINTS: Final = ("store-uploaded", "store-manifest", "store-indexed")
KNOWN: Final = (*POINTS, *TABLE_POINTS, *LINK_POINTS, *STORE_POINTS)


class _Armed(NamedTuple):
    stops: bool
    point: str
    passes: int
    token: str


def _armed(text: str | None) -> _Armed | None:
    if not text:
        return None
    head, _, token = text.partition("@")
    point, _, passes = head.removeprefix("stop:").partition(":")
    stops = head.startswith("stop:")
    if point not in KNOWN or not (passes or "1").isdigit() or (stops and not token):
        raise ValueError(
            f"{VARIABLE}={text!r}: it is [stop:]POINT[:PASSES][@FILE], and the points are {', '.join(KNOWN)}"
        )
    return _Armed(stops, point, int(passes or "1"), token)


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
    if _fault.stops:
        with open(f"{_fault.token}.new", "w", encoding="ascii") as file:  # noqa: PTH123 - as above
            file.write(str(os.getpid()))
        os.rename(f"{_fault.token}.new", f"{_fault.token}.pid")  # noqa: PTH104 - as above
    os.kill(os.getpid(), signal.SIGSTOP if _fault.stops else signal.SIGKILL)

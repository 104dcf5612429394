"""Named points at which a process can be told to die, to show that a guarantee holds.

    HELIO_FAULT="after-staging:3"                     killed at the third time that this process comes there
    HELIO_FAULT="after-adoption@/tmp/once"            killed only if it can remove that file: once for all
    HELIO_FAULT="stop:in-manifest@/tmp/once"          stopped there instead, so that others can be killed
    HELIO_FAULT="lose:stream-put:7"                   what comes there is lost, every seventh time

Dying means SIGKILL: nothing is flushed, closed or told. A process that is stopped (SIGSTOP) has written its
id to `FILE.pid` before. The points stand where a batch on its way from Spark into a journal has just changed
its state, where a job has changed a table, where a segment was published, and where a put of another host
comes in; `docs/guides/spark.md`, `docs/guides/pipeline.md`, `docs/guides/stores.md` and
`docs/guides/network.md` list them. Without the variable a point costs nothing
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
DOORS: Final = ("stream-put",)
"""Where something comes in that may be lost."""
KNOWN: Final = (*POINTS, *TABLE_POINTS, *LINK_POINTS, *STORE_POINTS, *DOORS)


class _Armed(NamedTuple):
    stops: bool
    loses: bool
    point: str
    passes: int
    token: str


def _armed(text: str | None) -> _Armed | None:
    if not text:
        return None
    head, _, token = text.partition("@")
    point, _, passes = head.removeprefix("stop:").removeprefix("lose:").partition(":")
    stops, loses = head.startswith("stop:"), head.startswith("lose:")
    is_sound = point in KNOWN and (passes or "1").isdigit() and int(passes or "1") > 0
    if not is_sound or (stops and not token) or loses != (point in DOORS):
        raise ValueError(
            f"{VARIABLE}={text!r}: it is [stop:]POINT[:PASSES][@FILE], or lose:POINT:PASSES for "
            f"{', '.join(DOORS)}, and the points are {', '.join(KNOWN)}"
        )
    return _Armed(stops, loses, point, int(passes or "1"), token)


_fault = _armed(os.environ.get(VARIABLE))
_passed = 0


def loses(point: str) -> bool:
    """Whether what has come in at a point is to be lost."""
    global _passed  # noqa: PLW0603 - as below
    if _fault is None or not _fault.loses or _fault.point != point:
        return False
    _passed += 1
    return _passed % _fault.passes == 0


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

"""Pauses between tries of something that links need, while the host has no descriptor, thread or memory left.

    backoff = Backoff("accepting connections", stalls)
    while not closed:
        try:
            accept()
            backoff.worked()
        except OSError as error:
            wake.wait(backoff.failed(error))

Nobody waits for such a task, so nobody would notice its end: it goes on, each failure is counted, and the
first of each row is reported.
"""

from __future__ import annotations

import logging
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Final

from heliograph.errors import LinkStalled

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.05
"""Seconds; each further failure in a row doubles it."""
LONGEST_PAUSE: Final = 1.0


class Stalls:
    """What links of one station could not do for a while: counted, and the first of each row reported."""

    def __init__(self, report: Callable[[str, None, BaseException], object] | None = None) -> None:
        self._report = report
        self._lock = Lock()
        self.counts: Counter[str] = Counter()

    def add(self, error: LinkStalled, *, is_first: bool) -> None:
        with self._lock:
            self.counts[error.peer] += 1
        if is_first and self._report is not None:
            self._report("links of this station", None, error)
        elif is_first:
            log.error("%s", error)


class Backoff:
    """See the module."""

    def __init__(self, what: str, stalls: Stalls) -> None:
        self._what = what
        self._stalls = stalls
        self._in_a_row = 0

    def worked(self) -> None:
        self._in_a_row = 0

    def failed(self, error: BaseException) -> float:
        """Seconds to wait before the next try."""
        self._in_a_row += 1
        reason = f"{error}; it is tried again by itself"
        self._stalls.add(LinkStalled(self._what, reason), is_first=self._in_a_row == 1)
        return min(FIRST_PAUSE * 2.0 ** min(self._in_a_row - 1, 10), LONGEST_PAUSE)

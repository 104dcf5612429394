"""What goes wrong where no caller waits for it: told to `on_error`, or logged; and nothing ends by it.

report = reporter(on_error)     # what the user gave, or None
report("billing", header, error)
run_all([first, second])        # closing: the second runs although the first raises
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from heliograph.errors import HistoryDamaged, HistoryGone, NotMatched, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.event import Header

    OnError = Callable[[str, Header | None, BaseException], None]

log = logging.getLogger(__name__)


def reporter(on_error: OnError | None) -> OnError:
    """Tells `on_error`, and logs what that raises: the thread that reports has more to do."""
    if on_error is None:
        return log_error

    def report(receiver: str, header: Header | None, error: BaseException) -> None:
        try:
            on_error(receiver, header, error)
        except BaseException:
            log_error(receiver, header, error)
            log.exception("on_error raised when it was told of that")

    return report


def log_error(receiver: str, header: Header | None, error: BaseException) -> None:
    if isinstance(error, HistoryGone | HistoryDamaged):
        log.error("%s missed a part of the history: %s", receiver, error)
    elif isinstance(error, NotMatched | WorkerError):
        log.error("%s", error)
    elif header is None:
        log.error("%s raised", receiver, exc_info=error)
    else:
        log.error("%s raised for event %s on %s", receiver, header.id, header.channel, exc_info=error)


def run_all(steps: Iterable[Callable[[], object]]) -> None:
    """Run every step, whatever the others raise; then raise what the first of them did."""
    first: BaseException | None = None
    for step in steps:
        try:
            step()
        except BaseException as error:
            log.exception("a step of closing failed; the others follow")
            first = first or error
    if first is not None:
        raise first

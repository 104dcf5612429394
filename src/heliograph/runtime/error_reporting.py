"""Reports errors that no caller waits for, to `on_error` or the log, without ending the reporting task.

report = reporter(on_error)     # what the user gave, or None
report("billing", header, error)
ErrorReports(tasks, report).tell("billing", header, error)   # goes on though `on_error` does not return
run_all([first, second])        # closing: the second runs although the first raises
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from heliograph.errors import HistoryDamaged, HistoryGone, HistoryReset, LinkError, NotMatched, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.model.event import Header
    from heliograph.runtime.ports import Tasks

    OnError = Callable[[str, Header | None, BaseException], None]

log = logging.getLogger(__name__)

MAX_REPEATED: Final = 1_000
"""Events and receivers of which it is remembered how often they were logged."""
REPORT_LIMIT: Final = 1.0
"""Seconds for which whoever watches a worker waits for `on_error` to return, and then goes on."""


def reporter(on_error: OnError | None) -> OnError:
    """Tells `on_error`, and logs what that raises: the thread that reports has more to do."""
    if on_error is None:
        return ErrorLog()

    def report(receiver: str, header: Header | None, error: BaseException) -> None:
        try:
            on_error(receiver, header, error)
        except BaseException:
            log_error(receiver, header, error)
            log.exception("on_error raised when it was told of that")

    return report


class ErrorLog:
    """Logs errors; of one that comes again and again with the same event, ever more seldom.

    A durable receiver gets an event again until it returns: the first time is logged with its traceback, then
    the second, fourth, eighth and so on with a line.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], int] = {}

    def __call__(self, receiver: str, header: Header | None, error: BaseException) -> None:
        if header is None:
            log_error(receiver, header, error)
            return
        key = receiver, str(header.id)
        times = self._times.pop(key, 0) + 1
        self._times[key] = times  # behind all others: what was not heard of for longest is forgotten
        if len(self._times) > MAX_REPEATED:
            with suppress(RuntimeError):  # another thread has changed it; the next one forgets
                self._times.pop(next(iter(self._times)), None)
        if times == 1:
            log_error(receiver, header, error)
        elif not times & (times - 1):
            log.error("%s raised %d times for event %s: %r", receiver, times, header.id, error)


class ErrorReports:
    """Tells `on_error` one thing after the other, in a task of its own while there is something to tell."""

    def __init__(self, tasks: Tasks, report: OnError) -> None:
        self._tasks = tasks
        self._report = report
        self._changed = tasks.condition(None, "reports")
        self._waiting: deque[tuple[str, Header | None, BaseException]] = deque()
        self._is_telling = False
        self._came = self._told = 0

    def tell(self, receiver: str, header: Header | None, error: BaseException) -> None:
        """Returns when `on_error` has, or does not for `REPORT_LIMIT` seconds."""
        number = self.post(receiver, header, error)
        with self._changed:
            self._changed.wait_for(lambda: self._told >= number, REPORT_LIMIT)

    def post(self, receiver: str, header: Header | None, error: BaseException) -> int:
        """Have it told, without waiting; which one it is. Where no thread is left, when one is again."""
        with self._changed:
            self._came += 1
            self._waiting.append((receiver, header, error))
            if not self._is_telling:
                self._tasks.spawn_soon("reports", self._tell_all)
                self._is_telling = True
            return self._came

    def _tell_all(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._is_telling = False
                    return
                report = self._waiting.popleft()
            self._report(*report)
            with self._changed:
                self._told += 1
                self._changed.notify_all()


def log_error(receiver: str, header: Header | None, error: BaseException) -> None:
    if isinstance(error, HistoryGone | HistoryDamaged | HistoryReset):
        log.error("%s missed a part of the history: %s", receiver, error)
    elif isinstance(error, NotMatched | WorkerError | LinkError):
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

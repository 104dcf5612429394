"""Reports of events that could not be derived, to `on_error` of the station, in a task of their own.

Who derives holds the locks of a push, and `on_error` may hang. One report is on its way at a time: what fails
meanwhile is counted by the transform and reported by nobody, so that a class that raises for each event
starts no thread for each.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heliograph.channel.channel import Channel
    from heliograph.model.event import Header


class FailureReports:
    """See the module.

    Args:
        original: whose events are derived.
        name: of the derived channel.
    """

    def __init__(self, original: Channel[Any], name: str) -> None:
        self._original = original
        self._name = name
        self._lock = original.ports.tasks.lock(f"reports of {name}")
        self._is_busy = False

    def __call__(self, header: Header, error: Exception) -> None:
        with self._lock:
            if self._is_busy:
                return
            self._is_busy = True
        self._original.ports.tasks.spawn_soon(f"reports {self._name}", partial(self._tell, header, error))

    def _tell(self, header: Header, error: Exception) -> None:
        try:
            self._original.report(self._name, header, error)
        finally:
            with self._lock:
                self._is_busy = False

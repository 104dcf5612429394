"""Listeners: objects that are told of statuses, in one thread per domain and in the order of what happened.

A listener has methods named as the statuses: `on_data_available(reader)`, `on_liveliness_lost(writer,
status)`. Its mask says which it is for; without one, those that it has. A status that an entity's own
listener does not take goes to the one of its publisher or subscriber, then of its participant (2.2.4.2.3.1);
`data_on_readers` comes before `data_available`, and in its place.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.facades.dcps.statuses import StatusKind
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)


class Listening:
    """The listener of an entity, and what it is told of."""

    def __init__(self, listener: Any, mask: Iterable[StatusKind] | None) -> None:
        self.listener = listener
        self._mask = None if mask is None else frozenset(mask)

    def method(self, kind: StatusKind) -> Callable[..., object] | None:
        if self.listener is None or (self._mask is not None and kind not in self._mask):
            return None
        found: Callable[..., object] | None = getattr(self.listener, f"on_{kind}", None)
        return found


class ListenerCalls:
    """Calls listeners one after the other, in a task that is there while there is something to call."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._lock = tasks.lock("dcps listeners")
        self._calls: deque[Callable[[], object]] = deque()
        self._is_running = False
        self._is_closed = False

    def post(self, call: Callable[[], object]) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._calls.append(call)
            if self._is_running:
                return
            self._is_running = True
        self._tasks.spawn_soon("dcps listeners", self._run)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._is_running = False
                    return
                call = self._calls.popleft()
            try:
                call()
            except Exception:  # the listener's own code: others are told all the same
                log.exception("a listener raised")

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._calls.clear()

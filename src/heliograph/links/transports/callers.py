"""The connections that others have made to a station: how many there are, and which have not said hello.

A caller that says nothing costs a thread until its time is up, so there are few of them: a new one takes the
place of the one that has waited longest, and the station can always be reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from heliograph.errors import LinkRefused

if TYPE_CHECKING:
    from heliograph.runtime.ports import Tasks

MAX_HALF_OPEN: Final = 32
"""Callers that have not said hello yet; of more, the one that has waited longest is hung up on."""
MAX_CALLERS: Final = 4_096
"""Connections that others have made to this station."""


class Closable(Protocol):
    """A connection, as far as it is hung up on."""

    def close(self) -> None: ...

    def __hash__(self) -> int: ...


C = TypeVar("C", bound=Closable)


class Callers(Generic[C]):
    """See the module."""

    def __init__(self, tasks: Tasks) -> None:
        self._lock = tasks.lock("callers")
        self._half_open: dict[C, None] = {}
        self._open: set[C] = set()

    def admit(self, connection: C) -> None:
        """One more; LinkRefused when there is no room."""
        with self._lock:
            if len(self._open) >= MAX_CALLERS:
                raise LinkRefused("a caller", f"{MAX_CALLERS} connections are open already")
            self._open.add(connection)
            self._half_open[connection] = None
            oldest = next(iter(self._half_open)) if len(self._half_open) > MAX_HALF_OPEN else None
        if oldest is not None:
            oldest.close()

    def greeted(self, connection: C) -> None:
        with self._lock:
            self._half_open.pop(connection, None)

    def left(self, connection: C) -> None:
        with self._lock:
            self._half_open.pop(connection, None)
            self._open.discard(connection)

"""What participants have open: consumers, subscriptions and suppliers, which are closed when they leave."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

from heliograph.errors import HeliographError

if TYPE_CHECKING:
    from collections.abc import Hashable

log = logging.getLogger(__name__)

K = TypeVar("K", bound="Hashable")


class OpenEnds(Generic[K]):
    """By participant. What nobody holds any more is not kept for this."""

    def __init__(self) -> None:
        self._ends: dict[K, WeakSet[Any]] = {}

    def add(self, participant: K, end: Any) -> None:
        self._ends.setdefault(participant, WeakSet()).add(end)

    def close(self, participant: K) -> None:
        """Close all that it has open. May wait for a function that is being called."""
        for end in tuple(self._ends.pop(participant, ())):
            close_end(end)


def close_end(end: Any) -> None:
    """Close what a former participant had open; leaving is recorded, and a failure here does not undo it."""
    try:
        end.close()
    except HeliographError as error:
        log.warning("%r was closed, and not all of it could be kept: %s", end, error)

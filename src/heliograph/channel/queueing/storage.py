"""How the events of one priority wait in a queue: in a row, or the latest of each key.

A queue has a band for each priority that waits, or for each line of its dispatch order. A storage makes bands
and knows what is in them; it keeps nothing itself. What stands in a band is an event with its header and
deadline, or `heliograph.qos.dispatch_order.Waiting`, which begins with those.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class Storage(Protocol):
    """See the module. Of the calls that put an event in, each returns what it took the place of, if any."""

    @property
    def is_plain(self) -> bool:
        """Whether bands are deques, to which a queue appends what comes in."""
        ...

    @property
    def oldest_first(self) -> bool:
        """Whether the head of a band is the oldest in it."""
        ...

    def new_band(self) -> Any:
        """An empty one; its length is the number of events in it."""
        ...

    def swap(self, band: Any | None, held: Any) -> Any | None:
        """Put an event in the place of a waiting one, as old as that one; None when there is none for it.

        The band is None where nothing of its priority waits.
        """
        ...

    def add(self, band: Any, held: Any) -> Any | None:
        """Put it at the end."""
        ...

    def add_first(self, band: Any, held: Any) -> Any | None:
        """Put one at the front that was there before."""
        ...

    def head(self, band: Any) -> Any:
        """What would be popped next; there is something."""
        ...

    def items(self, band: Any) -> Iterable[Any]:
        """All of it, in order."""
        ...

    def pop(self, band: Any, most: int) -> list[Any]:
        """Take out the first ones."""
        ...


class Fifo:
    """In the order in which they came."""

    is_plain = True
    oldest_first = True

    def new_band(self) -> Any:
        return deque()

    def swap(self, band: Any | None, held: Any) -> None:  # noqa: ARG002 - none takes another's place
        return None

    def add(self, band: Any, held: Any) -> None:
        band.append(held)

    def add_first(self, band: Any, held: Any) -> None:
        band.appendleft(held)

    def head(self, band: Any) -> Any:
        return band[0]

    def items(self, band: Any) -> Iterable[Any]:
        return band  # type: ignore[no-any-return]  # a deque

    def pop(self, band: Any, most: int) -> list[Any]:
        if len(band) <= most:
            items = list(band)
            band.clear()
            return items
        pop = band.popleft
        return [pop() for _ in range(most)]

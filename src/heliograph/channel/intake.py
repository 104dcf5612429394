"""Events that other stations pushed, on their way to this station's own receivers.

They come with their headers, in the order of their suppliers, and go to no gateway: an event is sent to other
stations by the one where it was pushed, so that none comes twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from heliograph.channel.entry import FOLD_EVERY
from heliograph.channel.supplier import Supplier
from heliograph.errors import Closed, ForkedStation
from heliograph.event import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.channel.feed import Feed
    from heliograph.channel.lane import Lane
    from heliograph.channel.pipeline import Route

T = TypeVar("T", bound=Event)

ROOM_LIMIT = 0.5
"""Seconds between two looks at whether the channel is still there, while a queue is full."""


class FeedIntake:
    """The way in on a persistent channel that another station keeps: what it sends has its offset already."""

    def __init__(self, feed: Feed, partition: str) -> None:
        self._feed = feed
        self._partition = partition
        self.pushed = 0

    def take_in(self, arrived: Sequence[Any], *, wait: bool = False) -> int:  # noqa: ARG002 - nobody waits for room: who has none reads on later
        """Offer events to all receivers; those of another partition are none of this channel's history."""
        items = [(item[0], item[1], 0) for item in arrived if item[1].partition == self._partition]
        if items:
            last = items[-1][1].offset
            self._feed.durable(items, last + 1)
            self.pushed += len(items)
        return len(arrived)

    def close(self) -> None:
        """It stands in no list."""


class Intake(Supplier[T]):
    """Stands among the suppliers of a channel for everything that one link brings."""

    forwards = False

    @property
    def pushed(self) -> int:
        return self._taken_in

    _taken_in = 0

    def take_in(self, arrived: Sequence[Any], *, wait: bool = False) -> int:
        """Queue events, given as (event, header, ...), for all receivers that want them.

        Returns how many were queued before one could not be, because a consumer that must not lose it has
        no room. With `wait`, waits for room; events for a channel that has been closed are let go.
        """
        done = 0
        try:
            while done < len(arrived):
                done, full = self._queue_from(arrived, done)
                if full is not None:
                    if not wait:
                        return done
                    full.wait_for_room(ROOM_LIMIT)
        except (Closed, ForkedStation):
            return len(arrived)
        return done

    def _queue_from(self, arrived: Sequence[Any], first: int) -> tuple[int, Lane | None]:
        """Queue until one is full, or an inline callback is to run, which it does without the lock."""
        with self._lock:
            if self._gone is not None:
                raise self._gone()
            for index in range(first, len(arrived)):
                event, header = arrived[index][0], arrived[index][1]
                route: Route | None = self._routes.get(event.__class__)
                if route is None:
                    continue
                full = self._enqueue(route, event, header)
                if full is not None:
                    return index, full
                self._taken_in += 1
                inline = route.inline
                if inline is not None:
                    break
            else:
                return len(arrived), None
        self._inline_log.append(inline(event, header))
        if not self._taken_in % FOLD_EVERY:
            self._channel.count_inline()
        return index + 1, None

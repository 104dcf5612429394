"""Routes with more receivers than one function can merge find them through the filter index.

A merged function is fastest up to about a hundred filters and is made anew whenever one changes. Past that,
a receiver with a filter goes into `heliograph.filters.index`: joining and leaving then cost the same however
many there are, and a push asks the index once. It asks before it takes its turn, as it asks other filters.
Routes stay the same when such a receiver comes or goes, so a push looks, once it has its turn, whether the
index has changed since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from heliograph.channel.routing.conditions import ReceiverCondition
from heliograph.model.event import info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.channel.routing.conditions import AnyCondition
    from heliograph.filters.index import Handle, Matcher
    from heliograph.model.event import Event, Header

MERGED: Final = 100
"""Receivers of a channel whose filters are merged; the next ones are indexed."""


class FilterIndex:
    """The indexed receivers of one channel. Changed only while no push is half done."""

    def __init__(self) -> None:
        self.changes = 0
        """How many changes are whole. One that is under way shows by counting later."""
        self._matchers: dict[type[Event], Matcher[EventQueue]] = {}
        self._handles: dict[EventQueue, list[tuple[Matcher[EventQueue], Handle[EventQueue]]]] = {}

    def __contains__(self, queue: EventQueue) -> bool:
        return queue in self._handles

    def __len__(self) -> int:
        return len(self._handles)

    @staticmethod
    def takes(conditions: Mapping[type[Event], ReceiverCondition | AnyCondition]) -> bool:
        """Whether an index can find this receiver, before an event has its place.

        It has a filter for each type and names no suppliers.
        """
        return bool(conditions) and all(
            isinstance(c, ReceiverCondition)
            and c.checked is not None
            and c.sources is None
            and c.split[1].is_open
            for c in conditions.values()
        )

    def add(
        self, queue: EventQueue, conditions: Mapping[type[Event], ReceiverCondition | AnyCondition]
    ) -> bool:
        """Index a receiver; whether routes must be made anew: a type is indexed for the first time."""
        from heliograph.filters.index import Matcher  # noqa: PLC0415 - few channels have a crowd

        new_type = False
        handles = []
        for cls, condition in conditions.items():
            matcher = self._matchers.get(cls)
            if matcher is None:
                matcher = self._matchers[cls] = Matcher(info_of(cls).format)
                new_type = True
            assert isinstance(condition, ReceiverCondition)
            assert condition.checked is not None
            handles.append((matcher, matcher.add(condition.checked, queue)))
        self._handles[queue] = handles
        self.changes += 1
        return new_type

    def remove(self, queue: EventQueue) -> None:
        for matcher, handle in self._handles.pop(queue):
            matcher.remove(handle)
        self.changes += 1

    def index_of(self, cls: type[Event]) -> Index | None:
        """What a route asks; None when nobody of this type is indexed."""
        matcher = self._matchers.get(cls)
        return None if matcher is None else Index(self, matcher.match)


class Index:
    """The indexed receivers of one event type."""

    def __init__(self, crowd: FilterIndex, match: Callable[[Any, Header], list[EventQueue]]) -> None:
        self._crowd = crowd
        self.match = match
        """The queues that an event is for. Any thread may ask at any time."""

    @property
    def changes(self) -> int:
        """How many changes of the index are whole."""
        return self._crowd.changes

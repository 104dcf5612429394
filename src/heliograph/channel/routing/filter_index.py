"""Routes with more receivers than one function can merge find them through the filter index.

A merged function is fastest up to about a hundred filters and is made anew whenever one changes. Past that,
a receiver with a filter goes into `heliograph.filters.index`: joining and leaving then cost the same however
many there are, and a push asks the index once. It asks before it takes its turn, as it asks other filters.
Routes stay the same when such a receiver comes or goes, so what was found says of which state of the index it
is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.channel.routing.conditions import Condition
from heliograph.model.event import info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from heliograph.channel.queueing.queue import Lane
    from heliograph.channel.routing.conditions import AnyOf
    from heliograph.filters.index import Handle, Matcher
    from heliograph.model.event import Event, Header

MERGED: Final = 100
"""Receivers of a channel whose filters are merged; the next ones are indexed."""


class FilterIndex:
    """The indexed receivers of one channel. Changed only while no push is half done."""

    def __init__(self) -> None:
        self.changes = 0
        """How many changes are whole. One that is under way shows by counting later."""
        self._matchers: dict[type[Event], Matcher[Lane]] = {}
        self._handles: dict[Lane, list[tuple[Matcher[Lane], Handle[Lane]]]] = {}

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._handles

    def __len__(self) -> int:
        return len(self._handles)

    @staticmethod
    def takes(conditions: Mapping[type[Event], Condition | AnyOf]) -> bool:
        """Whether an index can find this receiver, before an event has its place.

        It has a filter for each type and names no suppliers.
        """
        return bool(conditions) and all(
            isinstance(c, Condition) and c.checked is not None and c.sources is None and c.split[1].is_open
            for c in conditions.values()
        )

    def add(self, lane: Lane, conditions: Mapping[type[Event], Condition | AnyOf]) -> bool:
        """Index a receiver; whether routes must be made anew: a type is indexed for the first time."""
        from heliograph.filters.index import Matcher  # noqa: PLC0415 - few channels have a crowd

        new_type = False
        handles = []
        for cls, condition in conditions.items():
            matcher = self._matchers.get(cls)
            if matcher is None:
                matcher = self._matchers[cls] = Matcher(info_of(cls).format)
                new_type = True
            assert isinstance(condition, Condition)
            assert condition.checked is not None
            handles.append((matcher, matcher.add(condition.checked, lane)))
        self._handles[lane] = handles
        self.changes += 1
        return new_type

    def remove(self, lane: Lane) -> None:
        for matcher, handle in self._handles.pop(lane):
            matcher.remove(handle)
        self.changes += 1

    def index_of(self, cls: type[Event]) -> Index | None:
        """What a route asks; None when nobody of this type is indexed."""
        matcher = self._matchers.get(cls)
        return None if matcher is None else Index(self, matcher.match)


class Index:
    """The indexed receivers of one event type."""

    def __init__(self, crowd: FilterIndex, match: Callable[[Any, Header], list[Lane]]) -> None:
        self._crowd = crowd
        self.match = match
        """The lanes that an event is for. Any thread may ask at any time."""

    def ask(self, event: Any, known: Header) -> Some:
        """The same, before it has its place."""
        changes = self._crowd.changes  # first: a change that is half done when it is asked counts later
        return Some(self, changes, self.match(event, known))

    def settled(self, some: Some, event: Any, header: Header) -> list[Lane]:
        """While nothing changes: what was found, or would be now."""
        return some.lanes if some.changes == self._crowd.changes else self.match(event, header)


class Some(NamedTuple):
    """Lanes that an index has found, in one state of it."""

    of: Index
    changes: int
    lanes: list[Lane]

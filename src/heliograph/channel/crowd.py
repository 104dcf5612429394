"""Receivers beyond those whose filters are merged into one function: found through an index instead.

A merged function is fastest up to about a hundred filters and is made anew whenever one changes. Past that,
a receiver with a filter goes into `heliograph.match`: joining and leaving then cost the same however many
there are, and a push asks the index once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from heliograph.channel.condition import Condition
from heliograph.event import info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from heliograph.channel.condition import AnyOf
    from heliograph.channel.lane import Lane
    from heliograph.event import Event, Header
    from heliograph.match import Handle, Matcher

MERGED: Final = 100
"""Receivers of a channel whose filters are merged; the next ones are indexed."""


class Crowd:
    """The indexed receivers of one channel. Changed only while no push is half done."""

    def __init__(self) -> None:
        self._matchers: dict[type[Event], Matcher[Lane]] = {}
        self._handles: dict[Lane, list[tuple[Matcher[Lane], Handle[Lane]]]] = {}

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._handles

    def __len__(self) -> int:
        return len(self._handles)

    @staticmethod
    def takes(conditions: Mapping[type[Event], Condition | AnyOf]) -> bool:
        """Whether an index can find this receiver: it has a filter for each type and names no suppliers."""
        return bool(conditions) and all(
            isinstance(c, Condition) and c.checked is not None and c.sources is None
            for c in conditions.values()
        )

    def add(self, lane: Lane, conditions: Mapping[type[Event], Condition | AnyOf]) -> bool:
        """Index a receiver; whether routes must be made anew: a type is indexed for the first time."""
        from heliograph.match import Matcher  # noqa: PLC0415 - few channels have a crowd

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
        return new_type

    def remove(self, lane: Lane) -> None:
        for matcher, handle in self._handles.pop(lane):
            matcher.remove(handle)

    def matcher_of(self, cls: type[Event]) -> Callable[[Any, Header], list[Lane]] | None:
        """The question that a route asks; None when nobody of this type is indexed."""
        matcher = self._matchers.get(cls)
        return None if matcher is None else matcher.match

"""The history side of a persistent channel: its store, the feed, and where in the past a receiver begins."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from heliograph.channel.feed import Feed, JournalLane
from heliograph.errors import NotPossible
from heliograph.event import info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.core import Services
    from heliograph.channel.lane import Lane
    from heliograph.channel.selection import Selection
    from heliograph.channel.store import Cursor, Store
    from heliograph.event import Event
    from heliograph.qos import QoS

Point: TypeAlias = str | int | datetime | None
"""A place in a channel's history: "earliest", "now" or "latest", an offset, or an aware datetime."""


class Journalled:
    """See the module."""

    def __init__(
        self, channel: str, qos: QoS, services: Services, types: Callable[[], tuple[type[Event], ...]]
    ) -> None:
        assert services.open_store is not None, "the station refuses persistent channels without a folder"
        check_keyed(channel, types(), qos)
        self._channel = channel
        self._qos = qos
        self._services = services
        self.feed = Feed(services.ports.tasks)
        self.store: Store = services.open_store(channel, types, self.feed.durable, qos)
        self.feed.begin(self.store.watermark)

    def place(self, selection: Selection, start: Point, until: Point) -> Selection:
        """A selection with the offsets at which it begins and ends."""
        position = (
            None if start in ("now", "latest") else self._offset("earliest" if start is None else start)
        )
        end = None if until is None else self._offset(until)
        return msgspec.structs.replace(selection, position=position, until=end)

    def resume(self, selection: Selection, name: str) -> tuple[Selection, Cursor]:
        """The cursor of a durable consumer, and a selection that goes on where it was."""
        cursor = self.store.cursor(name)
        if cursor.position is None:
            # It begins here, also if it is opened again only much later, and retention knows of it.
            cursor.commit(self.store.watermark if selection.position is None else selection.position)
        return msgspec.structs.replace(selection, position=cursor.position), cursor

    def lane(self, name: str, selection: Selection, on_ready: Callable[[Lane], None]) -> JournalLane:
        return JournalLane(
            name,
            store=self.store,
            feed=self.feed,
            conditions=selection.conditions,
            position=selection.position,
            until=selection.until,
            on_gap=lambda gap: self._services.on_error(name, None, gap),
            clock=self._services.ports.clock,
            tasks=self._services.ports.tasks,
            limit=selection.queue or self._qos.queue,
            priority=selection.priority,
            on_ready=on_ready,
        )

    def _offset(self, point: Any) -> int:
        match point:
            case "earliest":
                return self.store.earliest
            case "now" | "latest":
                return self.store.watermark
            case int() if point >= 0 and not isinstance(point, bool):
                return point
            case datetime() if point.tzinfo is not None:
                return self.store.offset_at(round(point.timestamp() * 1e6) * 1000)
            case _:
                raise NotPossible(
                    self._channel,
                    f"{point!r} is no place in its history: 'earliest', 'now', 'latest', an offset and an "
                    "aware datetime are",
                )


def check_keyed(channel: str, types: Iterable[type[Event]], qos: QoS) -> None:
    """A history that is compacted by key carries types that have one."""
    for cls in types if qos.compaction == "key" else ():
        if not info_of(cls).key:
            name = info_of(cls).name
            raise NotPossible(
                channel, f"compaction='key' and {name!r} has no key: class {cls.__name__}(hg.Event, key=...)"
            )

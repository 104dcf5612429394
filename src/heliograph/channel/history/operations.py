"""What operators do to a history and its durable consumers: look, move, delete, purge.

    operations = channel.operations
    operations.consumers()                      # where each durable consumer and group is, and how far behind
    operations.seek("billing", "earliest")      # it goes on there when it is opened next
    operations.delete("billing")
    operations.purge(before=1_000)              # by whole files; refused while a durable consumer lacks them

They are done by the stations that keep the history: by this one, and by those that are linked.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from heliograph.errors import NotPossible

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.history.store import HistoryStore


To: TypeAlias = "str | int | datetime"


class ConsumerPlace(msgspec.Struct, frozen=True):
    """Where a durable consumer or group is in one partition."""

    name: str
    """As it was opened; of a group `group:NAME`."""
    partition: str
    offset: int
    """It has everything below."""
    behind: int
    """Events that it lacks at most."""
    owner: str
    """Who opened it last."""
    seen_ts: int
    """When it was last heard of, in ns since 1970."""


class PartitionInfo(msgspec.Struct, frozen=True):
    """One partition of a history."""

    partition: str
    station: str
    earliest: int
    watermark: int
    consumers: tuple[ConsumerPlace, ...]


class RemoteOperations(Protocol):
    """The keepers of linked stations."""

    def run(self, channel: str, call: str, arguments: dict[str, Any]) -> list[Any]:
        """What each of them returns; what one raises is raised."""
        ...


class KeptChannel(Protocol):
    """The channel of a history."""

    @property
    def name(self) -> str: ...
    @property
    def store(self) -> HistoryStore | None: ...


class OperationsServices(Protocol):
    """What the operations of a station share."""

    @property
    def station(self) -> str: ...
    @property
    def remote_operations(self) -> RemoteOperations | None: ...


class Operations:
    """See the module; reached as `channel.operations`."""

    def __init__(self, channel: KeptChannel, services: OperationsServices) -> None:
        self._channel = channel
        self._services = services

    # The face

    def info(self) -> list[PartitionInfo]:
        """The partitions of the history, and who is where in them."""
        return msgspec.convert(self._everywhere("info"), list[PartitionInfo])

    def consumers(self) -> list[ConsumerPlace]:
        """Where each durable consumer and group is."""
        return [place for part in self.info() for place in part.consumers]

    def seek(self, consumer: str, to: To) -> dict[str, int]:
        """Have a durable consumer go on elsewhere when it is opened next; where that is, by partition.

        Args:
            consumer: its name; of a group `group:NAME`.
            to: "earliest", "latest", an offset, or a datetime by which events were appended.
        """
        _check_point(self._channel.name, to)
        self._insist_on(consumer)
        arguments = {"consumer": consumer, "to": to}
        return dict(self._everywhere("seek", **arguments))

    def reset(self, consumer: str) -> dict[str, int]:
        """Have a durable consumer begin anew with all that is kept."""
        return self.seek(consumer, "earliest")

    def delete(self, consumer: str) -> None:
        """Forget a durable consumer: nothing is kept for it any more. CursorHeld while it is open."""
        self._insist_on(consumer)
        self._everywhere("delete", consumer=consumer)

    def purge(self, before: To = "latest", *, unread: bool = False) -> dict[str, int]:
        """Drop what is older, by whole files; the earliest offset that is left, by partition.

        Args:
            before: "latest" for all that is there, an offset, or a datetime.
            unread: also what a durable consumer has not read; else that is refused.
        """
        _check_point(self._channel.name, before)
        if not unread:
            self._check_read(before)
        return dict(self._everywhere("purge", to=before))

    # In the station that keeps the history

    def run(self, call: str, arguments: dict[str, Any]) -> Any:
        """What a linked station asks for; None when nothing is kept here."""
        if self._store is None:
            return None
        calls: dict[str, Callable[..., Any]] = {
            "info": self._info,
            "seek": self._seek,
            "delete": self._delete,
            "purge": self._purge,
        }
        if call not in calls:
            raise NotPossible(self._channel.name, f"operation {call[:40]!r}: is this station older?")
        return calls[call](**arguments)

    @property
    def _store(self) -> Any:
        store = self._channel.store
        return store if store is not None and store.kept_here else None

    def _info(self) -> Any:
        store, watermark = self._store, self._store.watermark
        consumers = tuple(
            ConsumerPlace(
                state.name,
                store.partition,
                place.low,
                max(0, watermark - place.low),
                state.owner,
                state.seen_ts,
            )
            for state in store.known_consumers()
            if (place := state.positions.get(store.partition)) is not None
            and not state.name.startswith("supplier:")
        )
        found = PartitionInfo(store.partition, self._services.station, store.earliest, watermark, consumers)
        return msgspec.to_builtins(found)

    def _seek(self, consumer: str, to: To) -> tuple[str, int] | None:
        store = self._store
        if store.settled(consumer) is None:
            return None
        offset = self._offset(to)
        store.seek_consumer(consumer, offset)
        return store.partition, offset

    def _delete(self, consumer: str) -> None:
        self._store.forget_consumer(consumer)

    def _purge(self, to: To) -> tuple[str, int]:
        store = self._store
        return store.partition, store.purge(self._offset(to))

    def _offset(self, to: To) -> int:
        store = self._store
        if isinstance(to, datetime):
            return int(store.offset_at(round(to.timestamp() * 1e9)))
        if isinstance(to, int):
            return int(min(max(to, store.earliest), store.watermark))
        return int(store.earliest if to == "earliest" else store.watermark)

    # Inside

    def _everywhere(self, call: str, **arguments: Any) -> list[Any]:
        if self._channel.store is None:
            raise NotPossible(self._channel.name, "keeps no history: hg.QoS(durability='persistent')")
        done = [] if self._store is None else [self.run(call, arguments)]
        remote = self._services.remote_operations
        if remote is not None:
            done += remote.run(self._channel.name, call, arguments)
        return [one for one in done if one is not None]

    def _insist_on(self, consumer: str) -> None:
        names = sorted({place.name for place in self.consumers()})
        if consumer not in names:
            known = f"there are {', '.join(names)}" if names else "there is none"
            raise NotPossible(self._channel.name, f"no durable consumer {consumer!r:.60}; {known}")

    def _check_read(self, before: To) -> None:
        for part in self.info():
            limit = part.watermark if isinstance(before, str | datetime) else min(before, part.watermark)
            lacking = [place for place in part.consumers if place.offset < limit]
            if lacking and not isinstance(before, datetime):
                raise NotPossible(
                    self._channel.name,
                    f"{lacking[0].name!r} has not read offsets from {lacking[0].offset} on: unread=True "
                    "purges all the same, seek() or delete() moves it away",
                )


def _check_point(channel: str, to: Any) -> None:
    is_offset = type(to) is int and to >= 0
    is_time = isinstance(to, datetime) and to.tzinfo is not None
    if not (is_offset or is_time or to in ("earliest", "latest")):
        raise NotPossible(
            channel, f"{to!r:.60}: 'earliest', 'latest', an offset, or a datetime with a time zone"
        )

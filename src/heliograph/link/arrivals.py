"""Events that arrive over a link, on their way into this station's own channel.

The receiver makes right: a stream says once in which format its events come, and a reader made for that
format and this station's class turns them into events, whole runs at a time where the two are the same.

A consumer's full queue must not hold up other channels. What cannot be queued is kept aside here, the other
station is told to pause this channel, and a task of its own queues it as soon as there is room. What is on
its way meanwhile is limited by what the other station keeps for resending.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from heliograph import fieldtypes as ft
from heliograph.codec import decoder
from heliograph.errors import DecodeError, FormatError
from heliograph.event import Event, Header, info_of
from heliograph.evolution import defaults_of
from heliograph.link.gateway import is_plain
from heliograph.link.messages import decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.core import Channel
    from heliograph.formats import Format
    from heliograph.ports import Tasks

log = logging.getLogger(__name__)

Arrived: TypeAlias = tuple[Any, ...]
"""An event, its header, and what else its record held."""

_raise_hops: Final = msgspec.structs.force_setattr
_split: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class Stream:
    """Reads the events of one channel in one wire format."""

    def __init__(self, channel: str, wire: Format) -> None:
        self.channel = channel
        self.wire = wire
        self.undecodable = 0
        self._cls: type[Event] | None = None
        self._read_run: Callable[[Any], list[Any]] | None = None
        self._read_one: Callable[[Any], Any] | None = None
        self._convert: Callable[[Any], Any] | None = None

    def read(
        self, records: memoryview, types: tuple[type[Event], ...], peer: str, skip: int = 0
    ) -> list[Arrived]:
        """The events of a run, but for the first ones, as events of this station's class.

        Those that cannot be are left out and counted.
        """
        if self._cls not in types:
            self._prepare(types)
        if self._read_run is None:
            self.undecodable += len(decoded(_split, records, peer)) - skip
            return []
        try:
            run = self._read_run(records)[skip:] if skip else self._read_run(records)
            events = run if self._convert is None else [(self._convert(r[0]), r[1]) for r in run]
        except (ValueError, RecursionError, DecodeError):
            events = self._read_each(records, peer, skip)
        for item in events:
            header = item[1]
            _raise_hops(header, "hops", header.hops + 1)
        return events

    def _prepare(self, types: tuple[type[Event], ...]) -> None:
        self._cls = next((cls for cls in types if info_of(cls).name == self.wire.name), None)
        self._read_run = self._convert = None
        if self._cls is None:
            return
        body: Any = msgspec.Raw if is_plain(self.wire) else bytes
        try:
            if _reads_at_once(self._cls, self.wire):
                body = self._cls
            else:
                convert = decoder(self.wire, self._cls)
                # A body among others is msgspec's own piece of the buffer; decoders take plain ones.
                self._convert = convert if body is bytes else lambda raw: convert(memoryview(raw))
        except FormatError as error:
            log.error("events of %s cannot be read on channel %s: %s", self.wire, self.channel, error)  # noqa: TRY400 - the sentence says all
            return
        record: Any = tuple[body, Header, int]
        self._read_run = msgspec.msgpack.Decoder(list[record]).decode
        self._read_one = msgspec.msgpack.Decoder(record).decode

    def _read_each(self, records: memoryview, peer: str, skip: int) -> list[Arrived]:
        """One by one, so that one event that does not fit this station's class costs no other."""
        events: list[Arrived] = []
        assert self._read_one is not None
        for raw in decoded(_split, records, peer)[skip:]:
            try:
                body, header, _ = self._read_one(raw)
                events.append((body if self._convert is None else self._convert(body), header))
            except (ValueError, RecursionError, DecodeError) as error:
                if not self.undecodable:
                    log.error("an event of %s on channel %s is left out: %s", self.wire, self.channel, error)  # noqa: TRY400 - as above
                self.undecodable += 1
        return events


def _reads_at_once(cls: type[Event], wire: Format) -> bool:
    """Whether msgspec alone, decoding a whole run into the class, checks all that the codec would."""
    return (
        info_of(cls).format.id == wire.id
        and wire.body == "packed"
        and all(isinstance(field.type, ft.Scalar) for field in wire.fields)
        and not defaults_of(cls)
        and not hasattr(cls, "__post_init__")
    )


class Arrivals:
    """What came in over one link for one channel."""

    def __init__(
        self, channel: Channel[Any], peer: str, tasks: Tasks, on_pause: Callable[[str, bool], None]
    ) -> None:
        self.channel = channel
        self._intake = channel.neighbours.intake(f"link from {peer}")
        self._tasks = tasks
        self._on_pause = on_pause
        self._lock = tasks.lock(f"aside of {channel.name}")
        self._aside: deque[Arrived] = deque()

    def add(self, events: list[Arrived]) -> None:
        """Queue events for this station's consumers. Called by the link's reader alone."""
        with self._lock:
            if self._aside:
                self._aside.extend(events)
                return
        taken = self._intake.take_in(events)
        if taken < len(events):
            self._put_aside(events[taken:])

    def close(self) -> None:
        with self._lock:
            self._aside.clear()
        self._intake.close()

    @property
    def received(self) -> int:
        return self._intake.pushed

    def _put_aside(self, events: Iterable[Arrived]) -> None:
        with self._lock:
            self._aside.extend(events)
            self._on_pause(self.channel.name, True)
        self._tasks.spawn(f"aside of {self.channel.name}", self._queue_aside)

    def _queue_aside(self) -> None:
        """Queue what was put aside as room comes; ends when all of it is queued."""
        while True:
            with self._lock:
                events = list(self._aside)
            taken = self._intake.take_in(events, wait=True)
            with self._lock:
                for _ in range(min(taken, len(self._aside))):
                    self._aside.popleft()
                if not self._aside:
                    self._on_pause(self.channel.name, False)
                    return

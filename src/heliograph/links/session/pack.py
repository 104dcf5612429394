"""Packs what waits at gateways into numbered frames: batches of one class, several in a frame, none too
large.

One packer belongs to one link and is used under its lock for sending.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from heliograph.links.contract import CONTROL, LANES
from heliograph.links.session import messages as m
from heliograph.links.session.gateway import Gateway, GatewayLane
from heliograph.links.session.sequence import Batch, Outbox
from heliograph.links.session.wire_events import said_of
from heliograph.model.event import info_of

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from heliograph.channel.publish.batch import OutgoingBatch
    from heliograph.channel.queueing.queue import Item, Lane
    from heliograph.links.contract import Buffer
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.model.event import Event

log = logging.getLogger(__name__)

M = TypeVar("M")

MOST_AT_ONCE: Final = 1_024
"""Events in one frame: enough to share the cost of a system call, few enough for others to have a turn."""
FRAME_BYTES: Final = 4 << 20
"""Bytes of events or messages from which on they are sent in several frames, a single event in pieces."""


class RunGateway(Protocol):
    """Where the events of a run come from."""

    @property
    def lane(self) -> Lane: ...


class Packer:
    """See the module.

    Args:
        writer: turns events into runs.
        stream_of: the number of the stream of a channel and a format.
    """

    def __init__(self, writer: EventWriter, stream_of: Callable[[str, bytes], int]) -> None:
        self._writer = writer
        self._stream_of = stream_of
        self._told: dict[tuple[int, str, type[Event]], int] = {}
        self.out: list[Outbox[bytes]] = []
        self.has_room = True
        self.events_sent = 0
        self.lost = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew, because the other station does."""
        self.lost += sum(outbox.unacked for outbox in self.out[1:])
        self.out = [Outbox() for _ in range(LANES)]
        self.has_room = True
        self._told.clear()

    def look_for_room(self) -> None:
        self.has_room = all(outbox.has_room for outbox in self.out)

    def messages(self, waiting: deque[m.Message]) -> Batch[bytes]:
        """The next batch of messages."""
        posted: list[bytes] = []
        size = 0
        while waiting and len(posted) < MOST_AT_ONCE and size < FRAME_BYTES:
            posted.append(m.encode(waiting.popleft()))
            size += len(posted[-1])
        payload = m.data_payload([m.Run(m.RECORDS, m.MESSAGES, len(posted), m.array_of(posted))])
        return self.out[CONTROL].add(len(posted), payload, len(payload))

    def events(self, gateway: Gateway) -> list[tuple[int, Batch[bytes]]] | None:
        """Take events of a gateway and put them into batches of one lane each; None when none waited.

        There are no batches when what waited was too large for any.
        """
        lane = gateway.lane
        if isinstance(lane, GatewayLane):
            priority, items = lane.drain(MOST_AT_ONCE)
            self.events_sent += len(items)
            return self._batches(gateway, priority, items) if items else None
        items = lane.take(MOST_AT_ONCE)
        if not items:
            return None
        by_lane: dict[int, list[Item]] = {}
        for item in items:
            by_lane.setdefault(lane.priority or item[1].priority, []).append(item)
        lane.done += len(items)
        lane.settle()
        self.events_sent += len(items)
        return [batch for number, some in by_lane.items() for batch in self._batches(gateway, number, some)]

    def only(self, gateway: Gateway, item: Item) -> list[Buffer] | None:
        """An event alone, as a frame that is numbered and kept like any batch; None when that cannot be.

        It cannot be before its stream has been announced on its lane, nor if it is large.
        """
        lane = item[1].priority
        stream = self._told.get((lane, gateway.channel.name, item[0].__class__))
        if stream is None or not self.has_room:
            return None
        record = made_or_none(self._writer.record, item)
        if record is None or len(record) > FRAME_BYTES:
            return None
        self.events_sent += 1
        outbox = self.out[lane]
        frame = m.record_frame(lane, outbox.last + 1, stream, record)
        outbox.add(1, frame[m.RUNS_AT :], len(frame))
        self.has_room = outbox.has_room
        return [frame]

    def bulk(self, gateway: Gateway, bulk: OutgoingBatch) -> list[Buffer] | None:
        """As `only`, for events that were pushed together."""
        lane, cls = bulk.first.priority, bulk.events[0].__class__
        stream = self._told.get((lane, gateway.channel.name, cls))
        if stream is None or not self.has_room:
            return None
        records = made_or_none(self._writer.bulk, cls, bulk)
        if records is None or len(records) > FRAME_BYTES:
            return None
        self.events_sent += len(bulk)
        return m.data_frame(
            lane, self._batch(gateway.channel.name, lane, [(cls, len(bulk), m.UNIFORM, records)], len(bulk))
        )

    def _batches(self, gateway: Gateway, lane: int, items: list[Item]) -> list[tuple[int, Batch[bytes]]]:
        """One batch, or several where the events are large."""
        # A history may hold several versions of one class.
        several = len(gateway.channel.types) > 1 or not isinstance(gateway.lane, GatewayLane)
        runs: list[tuple[Any, int, int, bytes]] = []
        for cls, run in runs_of(items, several=several):
            sound, form, records = sound_run(self._writer, gateway, cls, run)
            if sound:
                runs.append((cls, len(sound), form, records))
        if not runs:
            return []
        size = sum([len(records) for _, _, _, records in runs])
        if size > FRAME_BYTES and len(items) > 1:
            half = len(items) // 2
            return [*self._batches(gateway, lane, items[:half]), *self._batches(gateway, lane, items[half:])]
        if size > FRAME_BYTES:
            return self._pieces(gateway, lane, items[0], runs[0][3])
        count = sum([events for _, events, _, _ in runs])
        return [(lane, self._batch(gateway.channel.name, lane, runs, count))]

    def _pieces(
        self, gateway: Gateway, lane: int, item: Item, records: bytes
    ) -> list[tuple[int, Batch[bytes]]]:
        """One event that is too large for a frame."""
        if len(records) > m.MAX_EVENT:
            log.error("%s: an event of %d bytes is too large for a link", item[1].id, len(records))
            self.lost += 1
            drop_unsent(gateway, item)
            return []
        announced, stream = self._stream(gateway.channel.name, lane, type(item[0]))
        payloads = [m.data_payload([run]) for run in announced] + m.pieces(stream, records, FRAME_BYTES)
        outbox = self.out[lane]
        batches = [(lane, outbox.add(1, payload, len(payload))) for payload in payloads]
        self.has_room = self.has_room and outbox.has_room
        return batches

    def _batch(
        self, channel: str, lane: int, runs: list[tuple[type[Event], int, int, bytes]], count: int
    ) -> Batch[bytes]:
        parts: list[m.Run] = []
        for cls, events, form, records in runs:
            announced, stream = self._stream(channel, lane, cls)
            parts += announced
            count += len(announced)
            parts.append(m.Run(form, stream, events, records))
        payload = m.data_payload(parts)
        outbox = self.out[lane]
        batch = outbox.add(count, payload, len(payload))
        self.has_room = self.has_room and outbox.has_room
        return batch

    def _stream(self, channel: str, lane: int, cls: type[Event]) -> tuple[list[m.Run], int]:
        """The stream of a channel's events of a class; before its first use on a lane it is announced."""
        known = self._told.get((lane, channel, cls))
        if known is not None:
            return [], known
        fmt = info_of(cls).format
        stream = self._told[lane, channel, cls] = self._stream_of(channel, fmt.id)
        announce = m.Announce(stream, channel, fmt.id, fmt.description)
        return [m.Run(m.RECORDS, m.MESSAGES, 1, m.encode([announce]))], stream


def runs_of(items: list[Item], *, several: bool) -> list[tuple[Any, list[Item]]]:
    """Items in runs of one class."""
    if not several:
        return [(type(items[0][0]), items)]
    runs: list[tuple[Any, list[Item]]] = []
    for item in items:
        if not runs or runs[-1][0] is not type(item[0]):
            runs.append((type(item[0]), []))
        runs[-1][1].append(item)
    return runs


def lots_of(writer: EventWriter, run: list[Item]) -> list[list[Item]]:
    """A run, or its events one by one where the first is large."""
    return [[item] for item in run] if writer.is_large(run[0][0]) else [run]


def large_record(writer: EventWriter, head: tuple[bytes, int], items: list[Item]) -> bytes | None:
    """The record of a large event that is alone and has no lifespan; None of all others."""
    event, header, deadline = items[0]
    if len(items) > 1 or deadline or not writer.is_large(event):
        return None
    parts = made_or_none(writer.lone, *head, event, said_of(header))
    return None if parts is None else b"".join(parts)


def made_or_none(make: Callable[..., M], *args: Any) -> M | None:
    """What is sent at once; None when that cannot be written, so that it is queued and looked at alone."""
    try:
        return make(*args)
    except Exception:  # noqa: BLE001 - an event may hold anything by now, and `sound_run` says what it was
        return None


def drop_unsent(gateway: RunGateway, item: Item) -> None:
    """Count one that was taken from a gateway's queue, and cannot be sent."""
    if isinstance(gateway.lane, GatewayLane):
        gateway.lane.drop_drained(item)
    elif isinstance(gateway, Gateway) and gateway.owed is not None:
        gateway.owed.refuse(gateway, 1)


def sound_run(
    writer: EventWriter, gateway: RunGateway, cls: type[Event], items: list[Item]
) -> tuple[list[Item], int, bytes]:
    """Events of one class as a form and its bytes, without those that cannot be written: these are dropped.

    They could be when they were pushed. Whoever changes an event afterwards must not harm others.
    """
    try:
        return items, *writer.run(cls, items)
    except Exception as error:
        if len(items) == 1:
            log.error("%s cannot be sent, it was changed after it was pushed: %s", items[0][1].id, error)  # noqa: TRY400 - the sentence says all
            drop_unsent(gateway, items[0])
            return [], m.RECORDS, b""
        sound = [item for item in items if sound_run(writer, gateway, cls, [item])[0]]
        if len(sound) == len(items):
            raise
        return sound_run(writer, gateway, cls, sound) if sound else ([], m.RECORDS, b"")

"""Packs what waits at gateways into numbered frames: batches of one class, several in a frame, none too
large.

One packer belongs to one link and is used under its lock for sending. What it takes stays in hand until it
is in a batch (`Outbox.add`): an exception in between, which a signal handler may raise at any instant, leaves
it where it waited.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from itertools import groupby, repeat, starmap
from typing import TYPE_CHECKING, Any, Final, TypeVar

from heliograph.links.contract import CONTROL, LANES
from heliograph.links.session import messages as m
from heliograph.links.session.retransmission import Outbox
from heliograph.links.session.wire_events import said_of
from heliograph.model.event import info_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.contract import Buffer
    from heliograph.links.session.gateway import PeerGateway
    from heliograph.links.session.retransmission import Batch, RecordSource
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.model.event import Event

log = logging.getLogger(__name__)

M = TypeVar("M")

MOST_AT_ONCE: Final = 1_024
"""Events in one frame: enough to share the cost of a system call, few enough for others to have a turn."""
FRAME_BYTES: Final = 4 << 20
"""Bytes of events or messages from which on they are sent in several frames, a single event in pieces."""


UNWRITABLE: Final = "unwritable"
"""The reason under which a queue counts events that cannot be sent."""


class Posted:
    """Messages that wait to be sent. Anybody may post; one at a time takes."""

    def __init__(self) -> None:
        self._waiting: deque[m.Message] = deque()
        self._hand: list[m.Message] = []
        self.done = 0
        """How many of those in hand are in a batch."""

    def post(self, posted: tuple[m.Message, ...]) -> None:
        self._waiting.extend(posted)

    def take(self, most: int) -> list[m.Message]:
        """The next ones, which are in hand until they are done."""
        del self._hand[: self.done]
        self.done = 0
        more = min(most - len(self._hand), len(self._waiting))
        # In one call, so that each is either here or there.
        self._hand.extend(starmap(self._waiting.popleft, repeat((), more)))
        return self._hand

    def clear(self) -> None:
        self._waiting.clear()
        self._hand.clear()
        self.done = 0

    def __bool__(self) -> bool:
        return bool(self._waiting) or len(self._hand) > self.done


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

    def messages(self, waiting: Posted) -> Batch[bytes]:
        """The next batch of messages."""
        posted: list[bytes] = []
        size = 0
        for message in waiting.take(MOST_AT_ONCE):
            posted.append(m.encode(message))
            size += len(posted[-1])
            if size >= FRAME_BYTES:
                break
        payload = m.data_payload([m.Run(m.RECORDS, m.MESSAGES, len(posted), m.array_of(posted))])
        return self.out[CONTROL].add(len(posted), payload, len(payload), waiting, len(posted))

    def events(self, gateway: PeerGateway) -> list[tuple[int, Batch[bytes]]] | None:
        """Take events of a gateway and put them into batches of one lane each; None when none waited.

        There are no batches when what waited was too large for any.
        """
        queue = gateway.queue
        queue.settle()  # what a call that was interrupted had in hand
        try:
            items = queue.take(MOST_AT_ONCE)
            if not items:
                return None
            self.events_sent += len(items)
            if queue.priority or gateway.bypassed is not None:  # all are of one priority
                return self._batches(gateway, queue.priority or items[0][1].priority, items)
            by_lane = groupby(items, lambda item: item[1].priority)
            return [batch for number, some in by_lane for batch in self._batches(gateway, number, [*some])]
        finally:
            queue.settle()

    def only(self, gateway: PeerGateway, item: Item) -> list[Buffer] | None:
        """An event alone, as a frame that is numbered and kept like any batch; None when that cannot be.

        It cannot be before its stream has been announced on its lane, nor if it is large.
        """
        lane = item[1].priority
        stream = self._told.get((lane, gateway.channel.name, item[0].__class__))
        if stream is None or not self.has_room:
            return None
        assert gateway.bypassed is not None
        record = made_or_none(self._writer.record, item)
        if record is None or len(record) > FRAME_BYTES:
            return None
        self.events_sent += 1
        outbox = self.out[lane]
        frame = m.record_frame(lane, outbox.last + 1, stream, record)
        outbox.add(1, frame[m.RUNS_AT :], len(frame), gateway.bypassed.direct, 1)
        self.has_room = outbox.has_room
        return [frame]

    def bulk(self, gateway: PeerGateway, bulk: OutgoingBatch) -> list[Buffer] | None:
        """As `only`, for events that were pushed together."""
        lane, cls = bulk.first.priority, bulk.events[0].__class__
        stream = self._told.get((lane, gateway.channel.name, cls))
        if stream is None or not self.has_room:
            return None
        assert gateway.bypassed is not None
        records = made_or_none(self._writer.bulk, cls, bulk)
        if records is None or len(records) > FRAME_BYTES:
            return None
        self.events_sent += len(bulk)
        runs = [(cls, len(bulk), m.UNIFORM, records)]
        return m.data_frame(lane, self._batch(gateway.channel.name, lane, runs, gateway.bypassed.direct))

    def _batches(self, gateway: PeerGateway, lane: int, items: list[Item]) -> list[tuple[int, Batch[bytes]]]:
        """One batch, or several where the events are large."""
        # A history may hold several versions of one class.
        several = len(gateway.channel.types) > 1 or gateway.bypassed is None
        drop = partial(gateway.queue.drop_taken, reason=UNWRITABLE)
        runs: list[tuple[Any, int, int, bytes]] = []
        written: list[Item] = []
        for cls, run in runs_of(items, several=several):
            sound, form, records = sound_run(self._writer, cls, run, drop)
            if sound:
                runs.append((cls, len(sound), form, records))
                written += sound
        if not runs:
            return []
        size = sum([len(records) for _, _, _, records in runs])
        if size > FRAME_BYTES and len(written) > 1:
            half = len(written) // 2
            parts = (written[:half], written[half:])
            return [batch for part in parts for batch in self._batches(gateway, lane, part)]
        if size > FRAME_BYTES:
            return self._pieces(gateway, lane, written[0], runs[0][3])
        return [(lane, self._batch(gateway.channel.name, lane, runs, gateway.queue))]

    def _pieces(
        self, gateway: PeerGateway, lane: int, item: Item, records: bytes
    ) -> list[tuple[int, Batch[bytes]]]:
        """One event that is too large for a frame."""
        if len(records) > m.MAX_EVENT:
            log.error("%s: an event of %d bytes is too large for a link", item[1].id, len(records))
            self.lost += 1
            gateway.queue.drop_taken(item, UNWRITABLE)
            return []
        told: dict[tuple[int, str, type[Event]], int] = {}
        announced, stream = self._stream(gateway.channel.name, lane, type(item[0]), told)
        pieces = m.pieces(stream, records, FRAME_BYTES)
        payloads = [m.data_payload([run]) for run in announced] + pieces
        outbox = self.out[lane]
        batches = outbox.add_pieces([(payload, len(payload)) for payload in payloads], gateway.queue)
        self._told.update(told)
        self.has_room = self.has_room and outbox.has_room
        return [(lane, batch) for batch in batches]

    def _batch(
        self, channel: str, lane: int, runs: list[tuple[type[Event], int, int, bytes]], source: RecordSource
    ) -> Batch[bytes]:
        """Number runs of events, which are from now on sent or sent again until they have arrived."""
        parts: list[m.Run] = []
        told: dict[tuple[int, str, type[Event]], int] = {}
        for cls, events, form, records in runs:
            announced, stream = self._stream(channel, lane, cls, told)
            parts += announced
            parts.append(m.Run(form, stream, events, records))
        payload = m.data_payload(parts)
        outbox = self.out[lane]
        taken = sum([events for _, events, _, _ in runs])
        batch = outbox.add(taken + len(told), payload, len(payload), source, taken)
        self._told.update(told)
        self.has_room = self.has_room and outbox.has_room
        return batch

    def _stream(
        self, channel: str, lane: int, cls: type[Event], told: dict[tuple[int, str, type[Event]], int]
    ) -> tuple[list[m.Run], int]:
        """The stream of a channel's events of a class; before its first use on a lane it is announced.

        What is announced counts as said when its batch is numbered: till then it is in `told`.
        """
        key = (lane, channel, cls)
        known = self._told.get(key, told.get(key))
        if known is not None:
            return [], known
        fmt = info_of(cls).format
        stream = told[key] = self._stream_of(channel, fmt.id)
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


def sound_run(
    writer: EventWriter, cls: type[Event], items: list[Item], drop: Callable[[Item], object]
) -> tuple[list[Item], int, bytes]:
    """Events of one class as a form and its bytes, without those that cannot be written: these are dropped.

    They could be when they were pushed. Whoever changes an event afterwards must not harm others.
    """
    try:
        return items, *writer.run(cls, items)
    except Exception as error:
        if len(items) == 1:
            log.error("%s cannot be sent, it was changed after it was pushed: %s", items[0][1].id, error)  # noqa: TRY400 - the sentence says all
            drop(items[0])
            return [], m.RECORDS, b""
        sound = [item for item in items if sound_run(writer, cls, [item], drop)[0]]
        if len(sound) == len(items):
            raise
        return sound_run(writer, cls, sound, drop) if sound else ([], m.RECORDS, b"")

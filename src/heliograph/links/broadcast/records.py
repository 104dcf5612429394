"""Encodes what waits for the ring as records: batches of one class, large events alone or in pieces.

A class is said in the ring before the first record of its events (`Announce`). Everything here runs under the
broadcast's lock for sending.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from heliograph.channel.publish.fast_path import ROW
from heliograph.links.broadcast.loss_count import LONE, LONE_HEAD
from heliograph.links.session import messages as m
from heliograph.links.session.gateway import GatewayQueue
from heliograph.links.session.pack import large_record, lots_of, made_or_none, runs_of, sound_run
from heliograph.links.session.wire_events import WireEventReader
from heliograph.model.event import info_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.queueing.queue import Item
    from heliograph.links.broadcast.gateway import BroadcastGateway
    from heliograph.links.broadcast.queue import PendingBatch, RowGateway
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.model.event import Event

log = logging.getLogger(__name__)


class BroadcastEncoder:
    """See the module.

    Args:
        writer: turns events into runs.
        stream_of: the number of the stream of a channel and a format.
        largest: bytes of the largest record.
    """

    def __init__(self, writer: EventWriter, stream_of: Callable[[str, bytes], int], largest: int) -> None:
        self._writer = writer
        self._stream_of = stream_of
        self._largest = largest
        self.unsent: deque[bytes] = deque()
        """Records that were made, and are not written yet."""
        self.streams: dict[int, WireEventReader] = {}
        """What was said in the ring, by number."""

    def add_rows(self, of: PendingBatch) -> bool:
        """Records of what a supplier has waiting; whether there are any."""
        gateway = of.gateway
        if gateway.paused or not of.rows:
            return False
        head = self._head(gateway, of.cls)
        rows = of.queue.take_rows(of)
        if not rows:
            return bool(self.unsent)
        for lot in of.lots(self._writer, rows):
            record = made_or_none(of.record, self._writer, head, lot)
            if not self._leave(gateway, record, len(lot) // ROW):
                self._pack_run(gateway, head[1], of.cls, of.as_items(lot))
        return True

    def _head(self, gateway: RowGateway, cls: type[Event]) -> tuple[bytes, int]:
        """How a lone event of a class begins, and its stream; said in the ring when it is new."""
        head = gateway.heads.get(cls)
        if head is None:
            stream = self._stream_of(gateway.channel.name, info_of(cls).format.id)
            self.streams[stream] = WireEventReader(gateway.channel.name, info_of(cls).format)
            head = gateway.heads[cls] = LONE_HEAD.pack(LONE, stream), stream
            said = m.array_of([m.encode(self.announced(gateway, cls))])
            self.unsent.append(m.run_bytes(m.RECORDS, m.MESSAGES, 1, said))
        return head

    def add(self, gateway: BroadcastGateway, items: list[Item]) -> None:
        """Records of events that waited in a gateway's queue."""
        for cls, run in runs_of(items, several=len(gateway.channel.types) > 1):
            head = self._head(gateway, cls)
            for lot in lots_of(self._writer, run):
                if not self._leave(gateway, large_record(self._writer, head, lot), 1):
                    self._pack_run(gateway, head[1], cls, lot)

    def _leave(self, gateway: RowGateway, record: bytes | None, events: int) -> bool:
        """Have a record written soon; False when it was not made, or is too large for one."""
        if record is None or len(record) > self._largest:
            return False
        self.unsent.append(record)
        gateway.made += events
        return True

    def _pack_run(self, gateway: RowGateway, stream: int, cls: type[Event], items: list[Item]) -> None:
        assert isinstance(gateway.queue, GatewayQueue)
        drop = gateway.queue.drop_drained
        items, form, records = sound_run(self._writer, cls, items, drop)
        if not items:
            return
        if self._leave(gateway, m.run_bytes(form, stream, len(items), records), len(items)):
            return
        if len(items) > 1:
            half = len(items) // 2
            self._pack_run(gateway, stream, cls, items[:half])
            self._pack_run(gateway, stream, cls, items[half:])
        elif len(records) > m.MAX_EVENT:
            log.error("%s: an event of %d bytes is too large for a link", items[0][1].id, len(records))
            drop(items[0])
        else:
            self.unsent.extend(m.pieces(stream, records, self._largest // 2))
            gateway.made += 1

    def announced(self, gateway: RowGateway, cls: type[Event]) -> m.Announce:
        """What readers must know of a class of a channel."""
        fmt = info_of(cls).format
        stream = self._stream_of(gateway.channel.name, fmt.id)
        return m.Announce(stream, gateway.channel.name, fmt.id, fmt.description)

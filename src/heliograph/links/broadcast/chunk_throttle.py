"""Writes events larger than a record of the best-effort ring in chunks, no faster than they are read.

Nobody holds up a best-effort ring, so the pieces of an event that is larger than the ring would be written
over each other before anybody could read them. Before each piece the broadcast's own task waits for those who
have not read on, for a short time; who pushes does not. A reader that took longer is outrun, as anybody is
who falls behind there, and does not get the event. It is not waited for again until it has gone on.
Other than with small events the writer knows it at once, and the ledger counts the event as `overtaken`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from heliograph.errors import RingClosed, RingFull
from heliograph.links.broadcast.carrier_choice import BEST_EFFORT
from heliograph.links.broadcast.loss_count import SELF
from heliograph.links.session import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.links.broadcast.gateway import BroadcastGateway
    from heliograph.links.session.wire_events import WireEventReader
    from heliograph.ring import RingWriter

PIECE_LIMIT: Final = 0.2
"""Seconds for which readers are waited for before a piece is written."""


class ChunkThrottle:
    """See the module.

    Args:
        ring: where pieces are written; by one thread at a time.
        streams: what was said in it, by number.
        gateways: of the channels that it carries.
        append: writes a record, and waits for room for `timeout` seconds; whether there was any.
    """

    def __init__(
        self,
        ring: RingWriter,
        streams: Mapping[int, WireEventReader],
        gateways: Mapping[str, BroadcastGateway],
        append: Callable[..., bool],
    ) -> None:
        self._ring = ring
        self._streams = streams
        self._gateways = gateways
        self._append = append
        self._to_come = 0
        """Bytes of the event in hand that are not written yet."""
        self._is_counted = False

    def write(self, record: bytes, timeout: float | None) -> bool:
        """Whether a record was written: there was room, and for a piece the time to wait for readers."""
        if record[0] != m.PIECE or self._ring.name.lane != BEST_EFFORT:
            return self._append(record, timeout=timeout)
        limit = PIECE_LIMIT if timeout is None else min(PIECE_LIMIT, timeout)
        try:
            if not self._ring.wait_for_best_effort(len(record), limit) and not limit:
                return False
            outrun = self._ring.outruns(len(record))
        except RingFull:
            return False
        except RingClosed:
            outrun = set()  # as the next line finds out
        if not self._append(record, timeout=timeout):
            return False
        self._count(m.read_run(memoryview(record), SELF), outrun)
        return True

    def _count(self, piece: m.Run, outrun: set[int]) -> None:
        whole, here = m.piece_sizes(piece)
        if not self._to_come:
            self._to_come, self._is_counted = whole, False
        self._to_come -= here
        channel = self._streams[piece.stream].channel
        gateway = self._gateways.get(channel)
        if gateway is None or self._is_counted or self._ring.sequence < gateway.begins_at:
            return
        if any(hearer.row in outrun and channel in hearer.takes for hearer in tuple(gateway.wants)):
            gateway.count_outrun()
            self._is_counted = True

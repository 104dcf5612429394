"""Reads another station's best-effort broadcast; a reader that falls behind loses events and counts them.

The ring gives whole records or none, and says when some were written over. Among those may have been what
streams are, and what this station takes; so from a gap on it takes nothing, and asks by the link (`on_gap`)
to hear it again. `Takes` says how many events of the channel stand in the ring before it. From one of them to
the next, that number less what was seen is what was missed: also of a tail behind which nothing came.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from heliograph.links.broadcast.loss_count import LONE_HEAD
from heliograph.links.broadcast.reader import HEAD, BroadcastReader
from heliograph.links.session import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links.broadcast.record_handler import Take
    from heliograph.links.mesh.ingress import Ingress
    from heliograph.links.session.wire_events import WireEventReader
    from heliograph.ring import RingReader

log = logging.getLogger(__name__)

MAX_ASIDE: Final = 4_096
"""Events of a channel that wait for a consumer which insists on each (`overflow="block"`)."""
NEVER_NS: Final = 1 << 62


class BestEffortReader(BroadcastReader):
    """See the module.

    Args:
        missed: where to count what was overtaken, by channel.
        on_gap: asks the other station to say again what this one takes.
    """

    # A slow inline callback makes it fall behind, which is what may happen here; nothing is put aside for it.
    patience_ns = NEVER_NS

    def __init__(
        self, reader: RingReader, *args: Any, missed: Counter[str], on_gap: Callable[[], None], **more: Any
    ) -> None:
        self._missed = missed
        self._on_gap = on_gap
        self._since: dict[str, int] = {}
        """What `Takes` said last of each channel."""
        self._seen: Counter[str] = Counter()
        self._has_gap = False
        reader.on_gap = self._gap
        super().__init__(reader, *args, **more)

    def _gap(self) -> None:
        self._has_gap = True
        self._channels.clear()
        self._pieces.clear()
        self.forget()
        self._on_gap()

    def _take_in(self, message: m.Message) -> None:
        if isinstance(message, m.Takes) and self._is_for_us(message):
            self._settle(message.channel, message.sent)
            if message.takes:
                self._since[message.channel] = message.sent
                self._has_gap = False
        super()._take_in(message)

    def _settle(self, channel: str, sent: int) -> None:
        since = self._since.pop(channel, None)
        missed = 0 if since is None else sent - since - self._seen.pop(channel, 0)
        if missed > 0:
            self._missed[channel] += missed
            log.warning(
                "%d events of channel %s of station %s were overtaken before they were read",
                missed,
                channel,
                self._peer,
            )

    def _taker(self, head: bytes) -> Take | None:
        take = super()._taker(head)
        stream = self._streams.get(LONE_HEAD.unpack(head)[1])
        if stream is None or stream.channel not in self._channels:
            return take
        seen, channel = self._seen, stream.channel

        def count_and_take(data: bytes | memoryview, until: int, is_late: bool) -> None:
            seen[channel] += 1
            if take is not None:
                take(data, until, is_late)

        if take is not None:
            self._takers[head[:HEAD]] = count_and_take
        return count_and_take

    def _way_in(self, stream: WireEventReader, events: int) -> Ingress | None:
        arrivals = super()._way_in(stream, events)
        if arrivals is not None and len(arrivals.aside) >= MAX_ASIDE:
            self._left_out[stream.channel] += events
            return None
        return arrivals

    def _count(self, stream: WireEventReader, events: int) -> None:
        self._seen[stream.channel] += events

    def _ended_with(self, late: int) -> None:
        super()._ended_with(late)
        if self._has_gap:
            log.warning("station %s ended its broadcast before it said what was overtaken", self._peer)

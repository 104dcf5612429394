"""The gateway of a channel to one station: one more receiver, which sends what anybody there wants.

However many consumers the other station has, an event crosses once, and it crosses only if the condition of
at least one of them holds here. Its lane is a consumer's lane: bounded, by priority, and full it does what
the channel's quality of service says. On a persistent channel it goes by offset instead.

When somebody queues an event the link is told (`Link.ready`) and decides who sends it: the pushing thread
itself, which saves waking another one, or the link's own task.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from heliograph.channel.consumer import QueuedReceiver
from heliograph.channel.feed import JournalLane
from heliograph.channel.lane import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.core import Channel
    from heliograph.channel.lane import Item
    from heliograph.channel.selection import Selection


class GatewayLane(Lane):
    """A lane that is emptied many events at a time, by the thread that fills it if that is soonest."""

    expires = False
    """Whether its events have a lifespan."""
    send_now: Callable[[Item], bool]
    """Sends an event that finds the lane empty; False when it has to be queued."""

    def rest(self) -> None:
        """Call `on_ready` for the next event too, though this one waits still."""
        self._watched = False

    def put(self, item: Item) -> None:
        if self.waiting or item[2] or self.closed or not self.send_now(item):
            super().put(item)
        else:
            # Nobody else counts meanwhile: whoever takes from the lane finds it empty, and who puts holds
            # the lock that all who put share.
            self._delivered += 1

    def drain(self, most: int) -> tuple[int, list[Item]]:
        """Events of the highest priority that waits, and that priority. They count as delivered."""
        with self._lock:
            priority, items = self._pop_highest(most)
            if items:
                self._delivered += len(items)
                if self._waiters:
                    self._room.notify(len(items))
            if not self.waiting:
                self._watched = False
                self._quiet.notify_all()
        return priority, items

    def _pop_highest(self, most: int) -> tuple[int, list[Item]]:
        priority = max((p for p, band in self._bands.items() if band), default=0)
        if not priority:
            return 0, []
        band = self._bands[priority]
        items: list[Item] = []
        while band and not items:
            items = self._pop(band, most)
            self.waiting -= len(items)
            if self.expires:
                items = self._in_time(items)
        return priority, items


class Gateway(QueuedReceiver):
    """See the module."""

    def __init__(
        self,
        channel: Channel[Any],
        peer: str,
        selection: Selection,
        on_ready: Callable[[Gateway], None],
        send_now: Callable[[Gateway, Item], bool],
    ) -> None:
        super().__init__(channel, f"link to {peer}", selection)
        self.channel = channel
        self.paused = False
        self.listed = False
        """Whether it stands in the link's list of those that have something to send."""
        self.burst_at = 0
        """How many events must wait for the next pushing thread to send them itself."""
        self.lane = channel.new_lane(self.name, selection, lambda _: on_ready(self), kind=GatewayLane)
        if isinstance(self.lane, GatewayLane):
            self.lane.expires = channel.qos.lifespan is not None
            self.lane.send_now = partial(send_now, self)
        elif isinstance(self.lane, JournalLane):
            # The other station takes a history up by offsets: here no event may overtake another. The queues
            # of its consumers go by priority.
            self.lane.priority = channel.qos.priority

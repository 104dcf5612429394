"""A receiver whose events go into a cache: in the thread that queued them, while the cache takes them.

    feed = channel.feed_cache(offer, name="reader")        # offer(event, header) -> whether it was taken
    feed.resume()                                          # after the cache has made room

An event that is not taken, and all behind it, waits in the receiver's queue until `resume`; so a full cache
fills the queue, and a full queue holds up suppliers or drops, as its overflow policy says. `offer` runs under
locks of the channel: it must not call the channel, and never the code of a user.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from heliograph.channel.receive.consumer import leave_behind
from heliograph.channel.receive.subscription import QueuedReceiver

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.channel.receive.host import ReceiverHost
    from heliograph.channel.selection import Selection
    from heliograph.model.event import Header


class CacheFeed(QueuedReceiver):
    """See the module."""

    def __init__(
        self, channel: ReceiverHost, name: str, selection: Selection, offer: Callable[[Any, Header], bool]
    ) -> None:
        super().__init__(channel, name, selection)
        self._offer = offer
        self._lock = channel.ports.tasks.lock(f"feed {name}")
        self._is_running = False
        """A thread is about to offer what waits."""
        self._is_stopped = False
        """The cache did not take an event: the queue is looked at after `resume`."""
        self._is_wanted = False
        """Whoever runs has to look once more."""
        self.queue = channel.new_queue(name, selection, self._drain)
        self.queue.on_stalled = partial(leave_behind, self, channel)
        self.queue.watch = self._watch

    def resume(self) -> None:
        """The cache may have room again."""
        with self._lock:
            if self._is_running:
                self._is_wanted = True
            begins, self._is_stopped = self._is_stopped, False
        if begins:
            self._drain(self.queue)

    def _drain(self, queue: EventQueue) -> None:
        with self._lock:
            if self._is_running:
                self._is_wanted = True
                return
            self._is_running = True
        while True:
            is_refused = self._offer_all(queue)
            with self._lock:
                if not self._is_wanted:
                    self._is_running, self._is_stopped = False, is_refused
                    return
                self._is_wanted = False

    def _offer_all(self, queue: EventQueue) -> bool:
        """Until nothing waits, or the cache does not take an event: then True, and it waits again."""
        while items := queue.take():
            for event, header, deadline in items:
                if queue.halted:
                    break
                if deadline and queue.is_over(header, deadline):
                    continue
                if not self._take(event, header):
                    queue.settle()
                    return True
                queue.done += 1
            queue.settle()
        return False

    def _take(self, event: Any, header: Header) -> bool:
        try:
            return self._offer(event, header)
        except Exception as error:  # noqa: BLE001 - as a callback that raises
            report = partial(self._channel.report, self.name, header, error)
            self._channel.ports.tasks.spawn_soon(f"reports {self.name}", report)
            return True

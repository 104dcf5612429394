"""A tap: the receiver of a channel that derives its events and puts them into the derived channel.

Of a channel that keeps nothing. The tap stands among the gateways: it gets what was pushed in this station
and nothing that came from another one, which derives by itself.

An event that finds the tap idle is derived by the pushing thread and queued for the receivers of the derived
channel at once. While they have no room, or where one of them is called inline, it waits in the tap's own
queue, which is bounded as that of any receiver, and a task of the station takes it from there: so a slow
receiver of the derived channel holds up suppliers as one of the channel itself would, and a callback never
runs in the middle of a push.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from heliograph.channel.receive.subscription import QueuedReceiver
from heliograph.links.session.gateway import GatewayQueue
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.channel import Channel
    from heliograph.channel.publish.remote_supplier import RemoteSupplier
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.channel.selection import Selection
    from heliograph.derived.transform import Transform
    from heliograph.runtime.task_pool import TaskPool

SOME: Final = 256
"""Events that a task derives at once."""
LOOK_AGAIN: Final = 0.001
"""Seconds between two looks at whether a task has taken what is left."""


class Tap(QueuedReceiver):
    """See the module.

    Args:
        channel: the original.
        name: among its receivers.
        selection: what is derived of it.
        transform: derives.
        inlet: the way into the derived channel.
        pool: whose tasks take what had to wait.
    """

    def __init__(  # noqa: PLR0917 - what it stands between
        self,
        channel: Channel[Any],
        name: str,
        selection: Selection,
        transform: Transform,
        inlet: RemoteSupplier,
        pool: TaskPool,
    ) -> None:
        super().__init__(channel, name, selection)
        self.transform = transform
        self._inlet = inlet
        self._pool = pool
        self._hand = channel.ports.tasks.lock(f"tap {name}")
        """Held by who derives: what is pushed meanwhile waits behind it."""
        self._left: list[Item] = []
        """Derived, and not queued for its receivers yet."""
        self._state = channel.ports.tasks.lock(f"state of tap {name}")
        self._is_wanted = self._is_running = False
        self.queue = channel.new_queue(name, selection, self._ready, kind=GatewayQueue)
        if isinstance(self.queue, GatewayQueue):
            self.queue.send_now = self._send_now
            self.queue.send_bulk = self._send_bulk
            self.queue.expires = channel.qos.lifespan is not None

    # In the pushing thread, which holds the channel's queues still

    def _send_now(self, item: Item) -> bool:
        return self._try_to(lambda: self._put((item,)), 1)

    def _send_bulk(self, bulk: OutgoingBatch) -> bool:
        return self._try_to(lambda: self._put_bulk(bulk), len(bulk))

    def _try_to(self, put: Callable[[], object], events: int) -> bool:
        """Derive at once, unless somebody is at it or receivers have to be waited for."""
        hand = self._hand
        if hand.mine() or not hand.acquire(blocking=False):
            return False
        try:
            if self._left or self._calls_inline():
                return False
            put()
            assert isinstance(self.queue, GatewayQueue)
            self.queue.direct.done += events
            return True
        finally:
            hand.release()

    def _calls_inline(self) -> bool:
        """Whether a receiver of the derived channel would be called by who puts into it."""
        route = self._inlet.entry.routes.get(self.transform.cls)
        return route is not None and route.inline is not None

    def _put(self, items: Sequence[Item]) -> None:
        self._hand_on(self.transform.items(items))

    def _put_bulk(self, bulk: OutgoingBatch) -> None:
        whole = self.transform.batch(bulk)
        if whole is None:
            self._hand_on(self.transform.items(list(bulk)))
        elif not self._put_whole(whole):
            self._hand_on(list(whole))

    def _hand_on(self, derived: list[Item]) -> None:
        """Queue derived events; those for which there is no room wait, and all others behind them."""
        taken = self._inlet.take_in(derived) if derived else 0
        if taken < len(derived):
            self._left = derived[taken:]
            self._ready(self.queue)

    def _put_whole(self, batch: OutgoingBatch) -> bool:
        """Hand a batch to the only queue of the derived channel as one, without a header for each event."""
        entry = self._inlet.entry
        route = entry.routes.get(self.transform.cls)
        if route is None or route.sole is None or not route.sole[1].is_open:
            return False
        queue = route.sole[0]
        with entry.lock:
            if entry.routes.get(self.transform.cls) is not route or entry.gone is not None:
                return False
            if len(batch) > queue.blocks_at - queue.waiting:
                return False
            queue.put_bulk(batch)
            entry.matched += len(batch)
            self._inlet.count(len(batch))
        return True

    # In a task of the pool

    def _ready(self, _: EventQueue) -> None:
        with self._state:
            self._is_wanted = True
            if self._is_running:
                return
            self._is_running = True
        self._pool.submit(self._run)

    def _run(self) -> None:
        is_done = False
        try:
            while True:
                with self._state:
                    if not self._is_wanted:
                        self._is_running = False
                        is_done = True
                        return
                    self._is_wanted = False
                with self._hand:
                    self._pass_on()
        finally:
            if not is_done:  # whatever ended it, the next event starts it again
                with self._state:
                    self._is_running = False

    def _pass_on(self) -> None:
        """Derive what waits until nothing does; as long as a receiver has no room, wait for it."""
        while True:
            if self._left:
                # It may wait for ever, for a receiver that is not asked: others need the pool.
                self._pool.step_aside()
                try:
                    self._inlet.take_in(self._left, wait=True)
                finally:
                    self._pool.step_back()
                self._left = []
            items = self._taken()
            if not items:
                return
            self._left = self.transform.items(items)

    def _taken(self) -> Sequence[Item]:
        queue = self.queue
        if isinstance(queue, GatewayQueue):
            return queue.drain(SOME)[1]
        items = queue.take(SOME)
        queue.done += len(items)
        queue.settle()
        return items

    def wait_idle(self, timeout: float | None) -> bool:
        """Wait until all that was pushed before is queued for the receivers of the derived channel."""
        clock = self._channel.ports.clock
        until = None if timeout is None else clock.monotonic_ns() + round(timeout * 1e9)
        while self.queue.wait_empty(None if until is None else seconds_until(clock, until)):
            if not self._hand.acquire(timeout=-1 if until is None else seconds_until(clock, until)):
                return False
            is_idle = not (self._left or self.queue.waiting)
            self._hand.release()
            if is_idle:
                return True
            self._channel.ports.tasks.sleep(LOOK_AGAIN)  # a task is about to take it
        return False

    def wait_confirmed(self, timeout: float) -> bool:
        return self.wait_idle(timeout)

    def shut(self, reason: str) -> None:
        super().shut(reason)
        self._ready(self.queue)

"""The send scheduler: whether the thread that pushes sends what waits, or a task of the link's own.

A link and a broadcast each have one. A gateway that has events is listed; the pushing thread sends them
itself when nothing was sent for a while, since then somebody may wait for them, and it saves waking another
thread. In a burst the link's own task is woken once, and the pushing thread sends whenever `BURST` events
wait.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links.session.gateway import PeerGateway
    from heliograph.runtime.ports import Signal

QUIET_NS: Final = 10_000
"""A link that sent nothing for so long is quiet: the thread that pushes the next event sends it."""
BURST: Final = 256
"""Events that a pushing thread queues in a burst before it sends them itself."""


class SendScheduler:
    """See the module.

    Args:
        wake: wakes the task that sends what pushing threads left over.
        is_quiet: whether nothing was sent for a while.
        send: sends what can be sent without waiting, and arms for the rest.
    """

    def __init__(self, wake: Signal, is_quiet: Callable[[], bool], send: Callable[[], None]) -> None:
        self._wake = wake
        self._is_quiet = is_quiet
        self._send = send
        self.listed: deque[PeerGateway] = deque()
        """The gateways that have something to send."""
        self.is_armed = False
        """Whether the task was woken and has not looked yet; it sets this back before it looks."""

    def ready(self, gateway: PeerGateway) -> None:
        """A gateway has events. Called by the pushing thread when it queues the first one, and in a burst."""
        queue = gateway.queue
        quiet = not gateway.listed and self._is_quiet()
        if not gateway.listed:
            gateway.burst_at = BURST
            self.list(gateway)
        if quiet or queue.waiting >= gateway.burst_at:
            self._send()
            gateway.burst_at = queue.waiting + BURST
        else:
            self.arm()
        if gateway.bypassed is not None:
            gateway.bypassed.rest(gateway.burst_at)

    def list(self, gateway: PeerGateway) -> None:
        gateway.listed = True
        self.listed.append(gateway)

    def arm(self) -> None:
        """Have the task look at everything, soon."""
        if not self.is_armed:
            try:
                self.is_armed = True
                self._wake.notify()
            except BaseException:  # an interrupt: who comes next wakes it
                self.is_armed = False
                raise

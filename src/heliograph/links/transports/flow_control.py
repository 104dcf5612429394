"""Flow control of a connection over a network that drops what it has no room for. Pure.

Zenoh never makes a sender wait for long: what does not fit is dropped. A session repairs that, at the price
of a round trip each time. So a connection has no more on its way than the other end has said that it took,
and a peer that stands still fills nobody's queues but its own.

Both ends count bytes. Each frame says how many were sent before it, so that the other end knows what has
passed, also where frames were lost in between: `taken` is a position in the stream, not a sum of what came.
"""

from __future__ import annotations

from typing import Final

WINDOW: Final = 1 << 20
"""Bytes that may be on their way; one frame that is larger goes alone."""
TELL_EVERY: Final = WINDOW // 4
"""Bytes after which the other end is told what was taken."""


class SendWindow:
    """At the sending end."""

    def __init__(self) -> None:
        self.sent = 0
        self._taken = 0

    def has_room(self, size: int) -> bool:
        return self.sent == self._taken or self.sent + size - self._taken <= WINDOW

    def add(self, size: int) -> int:
        """A frame is sent; the number of bytes before it."""
        before, self.sent = self.sent, self.sent + size
        return before

    def taken(self, position: int) -> bool:
        """The other end says how far it is; False when that cannot be."""
        if not 0 <= position <= self.sent:
            return False
        self._taken = max(self._taken, position)
        return True


class ReceiveWindow:
    """At the receiving end."""

    def __init__(self) -> None:
        self.position = 0
        """How far what was taken reaches."""
        self._told = 0
        self._is_asked = False

    def take(self, end: int) -> None:
        """What was sent up to this position has been taken, or was lost on its way."""
        self.position = max(self.position, end)

    def asked(self) -> None:
        """The other end wants to know."""
        self._is_asked = True

    def news(self) -> int | None:
        """What to tell the other end, if it is time."""
        if not self._is_asked and self.position - self._told < TELL_EVERY:
            return None
        self._is_asked = False
        self._told = self.position
        return self.position

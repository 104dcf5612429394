"""The observer hook, told what became of single events; delivery records are made through it.

A channel that is observed gives each of its receivers a `Watch`, which is told once per event that the
receiver was given and that has come to an end:

    watch(header, "delivered")                  the callback returned, or the consumer handed it out
    watch(header, "failed", sends=3)            it raised; after so many attempts
    watch(header, "expired")                    its lifespan ended while it waited
    watch(header, "dropped", "oldest")          by reason, as in the ledger

Where nobody observes there is no watch: callbacks are called as they are, and queues look for one only where
they expire or drop an event.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from heliograph.channel.ledger import QueueCounts
    from heliograph.model.event import Header

Outcome: TypeAlias = Literal["delivered", "failed", "expired", "dropped"]


class Watch(Protocol):
    """Told of one receiver's outcomes, also under the lock of a queue: it neither waits nor raises."""

    def __call__(self, header: Header, outcome: Outcome, reason: str = "", sends: int = 1) -> None: ...


class Observer(Protocol):
    """Observes one channel."""

    def watch(self, receiver: str) -> Watch:
        """The watch of a new receiver."""
        ...


class Recording(Observer, Protocol):
    """Observes one channel, and writes down what its receivers have counted."""

    def left(self, receiver: str, counts: Callable[[], QueueCounts]) -> None:
        """A receiver is there no more; what it was in the middle of may still be counted."""
        ...


class Both:
    """Two observers of one channel."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self._first = first
        self._second = second

    def watch(self, receiver: str) -> Watch:
        first, second = self._first.watch(receiver), self._second.watch(receiver)

        def watch(header: Header, outcome: Outcome, reason: str = "", sends: int = 1) -> None:
            first(header, outcome, reason, sends)
            second(header, outcome, reason, sends)

        return watch


def joined(*observers: Observer | None) -> Observer | None:
    """One observer in place of those that there are; None when there is none."""
    present = [observer for observer in observers if observer is not None]
    return reduce(Both, present) if present else None


def watched(
    watch: Watch, callback: Callable[..., object], *, with_header: bool
) -> Callable[[Any, Header], None]:
    """A callback that takes (event, header), calls the given one and tells how it ended."""

    def call(event: Any, header: Header) -> None:
        try:
            if with_header:
                callback(event, header)
            else:
                callback(event)
        except BaseException:
            watch(header, "failed")
            raise
        watch(header, "delivered")

    return call


def watched_async(
    watch: Watch, callback: Callable[..., Awaitable[object]], *, with_header: bool
) -> Callable[[Any, Header], Awaitable[None]]:
    """As `watched`, for `async def`."""

    async def call(event: Any, header: Header) -> None:
        try:
            await (callback(event, header) if with_header else callback(event))
        except Exception:  # a cancelled task says nothing about the event
            watch(header, "failed")
            raise
        watch(header, "delivered")

    return call

"""A delivery: an event with its header, to be acknowledged (`ack`) or refused (`nak`).

for delivery in consumer.deliveries(): ...
async for delivery in consumer.deliveries(): ...
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from heliograph.channel.ack_protocol import MAX_REASON, REJECTED
from heliograph.errors import NotPossible
from heliograph.model.event import Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from heliograph.channel.ack_protocol import GroupMembership, Handed
    from heliograph.model.event import Header

T = TypeVar("T", bound=Event)


class Delivery(Generic[T]):
    """An event in a consumer's hands, with its header."""

    __slots__ = ("_handed", "_seat")

    def __init__(self, handed: Handed, seat: GroupMembership) -> None:
        self._handed = handed
        self._seat = seat

    @property
    def event(self) -> T:
        return self._handed.event  # type: ignore[return-value]  # queues hold what the channel carries

    @property
    def header(self) -> Header:
        return self._handed.header

    @property
    def deadline_ns(self) -> int:
        """The instant of the monotonic clock when its lifespan ends, in nanoseconds; 0: it does not."""
        return self._handed.deadline

    @property
    def attempt(self) -> int:
        """How often it was handed out, this time included, since its consumer or group was opened.

        With `max_deliveries` on a persistent channel, also before, but for a first time before a crash.
        """
        return self._handed.attempt

    @property
    def redelivered(self) -> bool:
        """Whether somebody may have had it before."""
        return self._handed.header.redelivered

    def ack(self) -> bool:
        """It is done with, and will not come again; False when that was said before, by anybody.

        Also when there is no such event any more, because its keeper was restored from an older copy.
        """
        return self._seat.ack(self._handed.number)

    async def aack(self) -> bool:
        """As `ack`, for asyncio: waiting for the disk does not hold up the loop."""
        return await asyncio.to_thread(self.ack)

    def settle(self) -> None:
        """As `ack`, without waiting for the disk: it is kept with what is acknowledged next.

        For who can have it again: it may come again after a crash.
        """
        self._seat.settle(self._handed.number)

    def nak(self, delay: float = 0.0, reason: str = "") -> None:
        """Have it delivered again, after `delay` seconds; to any member, in a group.

        The reason of the last refusal is a header of the dead letter that it may become.
        """
        if type(delay) not in (int, float) or not 0 <= delay <= 1e9:
            raise NotPossible("nak", f"delay={delay!r}: seconds from 0 on")
        self._seat.nak(self._handed.number, delay, _reason("nak", reason))

    def reject(self, reason: str = "") -> None:
        """Have it not delivered again, to anybody: it is a dead letter, or reported as given up."""
        self._seat.nak(self._handed.number, REJECTED, _reason("reject", reason))

    def extend(self, seconds: float) -> bool:
        """Keep it for so many seconds from now on, whatever the lease; False when it is another's already."""
        if type(seconds) not in (int, float) or not 0 < seconds <= 1e9:
            raise NotPossible("extend", f"seconds={seconds!r}: above 0")
        return self._seat.extend(self._handed.number, seconds)

    def __repr__(self) -> str:
        return f"Delivery({self.event!r}, id={self.header.id})"


class Deliveries(Generic[T]):
    """Deliveries one after the other, for threads or, awaited, for one task.

    Args:
        wait: the next one, None at the end.
        arriving: the same, awaited.
    """

    def __init__(
        self, wait: Callable[[], Delivery[T] | None], arriving: Callable[[], AsyncIterator[Delivery[T]]]
    ) -> None:
        self._wait = wait
        self._arriving = arriving

    def __iter__(self) -> Deliveries[T]:
        return self

    def __next__(self) -> Delivery[T]:
        delivery = self._wait()
        if delivery is None:
            raise StopIteration
        return delivery

    def __aiter__(self) -> AsyncIterator[Delivery[T]]:
        return self._arriving()


def _reason(call: str, reason: str) -> str:
    if not isinstance(reason, str):
        raise NotPossible(call, f"reason={reason!r:.60}: a text")
    return reason[:MAX_REASON]

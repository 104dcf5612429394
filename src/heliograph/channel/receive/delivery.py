"""A delivery: an event with its header, to be acknowledged (`ack`) or refused (`nak`).

for delivery in consumer.deliveries(): ...
async for delivery in consumer.deliveries(): ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from heliograph.errors import NotPossible
from heliograph.model.event import Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from heliograph.channel.receive.ack_protocol import GroupMembership, Handed
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

    def nak(self, delay: float = 0.0) -> None:
        """Have it delivered again, after `delay` seconds; to any member, in a group."""
        if type(delay) not in (int, float) or not 0 <= delay <= 1e9:
            raise NotPossible("nak", f"delay={delay!r}: seconds from 0 on")
        self._seat.nak(self._handed.number, delay)

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

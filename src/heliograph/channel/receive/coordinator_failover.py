"""The membership of a group's member, which finds another coordinator when its own is gone.

The coordinator of a group on a persistent channel is in one of the stations that keep it. When that station
leaves, or does not know the member any more because it was started again, the member looks for another
coordinator. All walk through the keepers in one order, and the first that can have every partition within
reach opens one: so they meet again. What they hold can be acknowledged at the new coordinator; what is not
comes again there, marked.
Of a history that went back in time meanwhile they may hold events that it has no more: acknowledging those
settles nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from heliograph.channel.ack_protocol import Handed, SpotNumbers, spot_of
from heliograph.errors import Closed, CursorHeld, DecodeError, FormatError, QueryFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.ack_protocol import CoordinatorPort, GroupMembership, Spot
    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.errors import HeliographError
    from heliograph.model.event import Event
    from heliograph.runtime.ports import Tasks

T = TypeVar("T")


class FoundCoordinator(NamedTuple):
    """A coordinator for a member."""

    desk: CoordinatorPort
    queue: EventQueue | None = None
    """What it takes from, if it is in this station."""
    types: Callable[[], tuple[type[Event], ...]] = tuple
    """The classes of this station, in which its own members get what is handed out as it was pushed."""

    def check(self) -> None:
        """Raise why there is nothing to be had at it any more."""
        if self.queue is not None and self.queue.failed_with is not None:
            raise self.queue.failed_with


class FailoverCoordinator:
    """See the module, and `heliograph.channel.ack_protocol.CoordinatorPort`; for one member.

    Args:
        found: where it sits down first.
        find: walks through the keepers; CursorHeld or QueryFailed when none of them can have it for now.
    """

    def __init__(self, found: FoundCoordinator, find: Callable[[], FoundCoordinator], tasks: Tasks) -> None:
        self.terms = found.desk.terms
        self._found = found
        self._find = find
        self._tasks = tasks

    def sit(self, member: str, ring: Callable[[], object]) -> FailoverMembership:
        return FailoverMembership(self._found, self._find, member, ring, self._tasks)

    def number_of(self, spot: Spot) -> int | None:
        return self._found.desk.number_of(spot)

    def ready(self, queue: object) -> None:
        """The queue tells the coordinator that takes from it."""

    def members(self) -> tuple[str, ...]:
        return self._found.desk.members()

    def close(self) -> None:
        """It is its station's; a member leaves by itself."""


class FailoverMembership:
    """See the module, and `heliograph.channel.ack_protocol.GroupMembership`. Its numbers stay,
    whichever coordinator it has."""

    def __init__(
        self,
        found: FoundCoordinator,
        find: Callable[[], FoundCoordinator],
        member: str,
        ring: Callable[[], object],
        tasks: Tasks,
    ) -> None:
        self._find = find
        self._member = member
        self._ring = ring
        self._moving = tasks.lock(f"seat of {member}")
        self._at: tuple[FoundCoordinator, GroupMembership] = (found, found.desk.sit(member, ring))
        self._numbers = SpotNumbers()
        self._left = False
        self._failure: HeliographError | None = None
        """Why it has left: an event that this member cannot read."""

    @property
    def lost(self) -> bool:
        return self._at[1].lost

    def unsent(self) -> list[Spot]:
        return self._at[1].unsent()

    def withdrawn(self) -> list[Spot]:
        return self._at[1].withdrawn()

    def take(self, most: int = 1) -> list[Handed]:
        if self._failure is not None:
            self.leave()
            raise self._failure
        found, seat = self._at
        handed = seat.take(most)
        if not handed and seat.lost and self._move(seat):
            found, seat = self._at
            handed = seat.take(most)
        if not handed:
            found.check()
        return self._read(found, seat, handed)

    def ack(self, number: int) -> bool:
        _, seat = self._at
        failed: QueryFailed | None = None
        try:
            if self._tell(number, lambda seat, there: seat.ack(there)):
                return True
        except QueryFailed as error:
            failed = error
        if seat.lost and self._move(seat):
            return bool(self._tell(number, lambda seat, there: seat.ack(there)))
        if failed is not None:
            raise failed
        return False

    # Of what a station keeps that is away, and that the present coordinator does not know: it comes again.

    def withdraw(self, number: int) -> None:
        with suppress(QueryFailed):
            self._tell(number, lambda seat, there: seat.withdraw(there))

    def nak(self, number: int, delay: float, reason: str = "") -> None:
        with suppress(QueryFailed):
            self._tell(number, lambda seat, there: seat.nak(there, delay, reason))

    def extend(self, number: int, seconds: float) -> bool:
        with suppress(QueryFailed):
            return bool(self._tell(number, lambda seat, there: seat.extend(there, seconds)))
        return False

    def settle(self, number: int) -> None:
        with suppress(QueryFailed):
            self._tell(number, lambda seat, there: seat.settle(there))

    def give_back(self, numbers: Iterable[int]) -> None:
        with suppress(QueryFailed):
            for number in numbers:
                self._tell(number, lambda seat, there: seat.give_back([there]))

    def wait_seconds(self) -> float | None:
        return self._at[1].wait_seconds()

    def ended(self) -> bool:
        return self._at[1].ended()

    def leave(self) -> None:
        with self._moving:
            if not self._left:
                self._left = True
                self._at[1].leave()

    def leave_behind(self) -> None:
        """It looks for another coordinator by itself."""

    # Inside

    def _read(self, found: FoundCoordinator, seat: GroupMembership, handed: list[Handed]) -> list[Handed]:
        """What was handed out, in this station's classes; from the first that cannot be on it is given back.

        Other members may be able to read it. This one leaves, and is told why.
        """
        types = found.types()
        readable: list[Handed] = []
        for place, one in enumerate(handed):
            event = one.event
            if types and event.__class__ not in types:
                from heliograph.codec.dynamic.classes import as_read_by  # noqa: PLC0415 - most are of the class

                try:
                    event = as_read_by(event, types)
                except (FormatError, DecodeError) as error:
                    seat.give_back([other.number for other in handed[place:]])
                    self._failure = error
                    break
            readable.append(Handed(self._numbers.number_of(spot_of(one)), event, one.header, one.attempt))
        if self._failure is not None and not readable:
            self.leave()
            raise self._failure
        return readable

    def _move(self, lost: GroupMembership) -> bool:
        """Join another coordinator, or this one again; False when there is none for now."""
        with self._moving:
            if self._at[1] is not lost:
                return True
            if self._left:
                return False
            try:
                found = self._find()
            except (CursorHeld, QueryFailed, Closed):
                return False
            self._at = (found, found.desk.sit(self._member, self._ring))
        for spot in lost.unsent():
            with suppress(QueryFailed):  # where that is kept is away: it comes again
                if (number := found.desk.number_of(spot)) is not None:
                    self._at[1].ack(number)
        for spot in lost.withdrawn():
            with suppress(QueryFailed):
                if (number := found.desk.number_of(spot)) is not None:
                    self._at[1].withdraw(number)
        lost.leave_behind()
        return True

    def _tell(self, number: int, say: Callable[[GroupMembership, int], T]) -> T | None:
        """Say something of an event to the coordinator, by its number there; None if no history has it."""
        found, seat = self._at
        there = found.desk.number_of(self._numbers.spot_of(number))
        return None if there is None else say(seat, there)

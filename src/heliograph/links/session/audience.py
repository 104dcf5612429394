"""The sessions that hear one gateway, where several stations get the same events: by ring or by stream.

An event counts as delivered when all who hear the gateway have said so, and once, however many lost it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from heliograph.channel.ledger import QueueCounts
from heliograph.links.session.confirmation import REFUSED, Account
from heliograph.links.session.gateway import ASK_AGAIN
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.links.session.confirmation import Owed
    from heliograph.runtime.ports import Clock


class AiringGateway(Protocol):
    """A gateway that several stations hear."""

    name: str
    channel: Channel[Any]

    @property
    def aired(self) -> int:
        """Events that were sent, or will be before all that is made from now on."""
        ...


G = TypeVar("G", bound=AiringGateway)
H = TypeVar("H")


class Hearing(Generic[G, H]):
    """What one session of a station was sent of one gateway's events, and has confirmed.

    From when it takes the channel until it takes it no more; both are known between two events.
    """

    sends_again = False

    def __init__(self, gateway: G, hearer: H, owed: Owed, ask: Callable[[], None]) -> None:
        self.name = gateway.name
        self.channel = gateway.channel
        self.gateway = gateway
        self.hearer = hearer
        self.account = Account()
        self.owed = owed
        self.ask = ask
        """Has the station say soon what it has taken in."""
        self.missed = 0
        """Events that it did not get, and that the gateway has counted."""
        self._since: int | None = None
        self._until: int | None = None

    def begin(self, aired: int) -> None:
        """It gets what is sent behind so many events of the channel."""
        if self._since is None:
            self._since = aired

    def end(self, aired: int) -> None:
        """It gets nothing that is sent behind so many."""
        if self._until is None:
            self._until = aired

    def handed(self) -> int:
        if self._since is None:
            return 0
        return (self.gateway.aired if self._until is None else self._until) - self._since

    @property
    def unconfirmed(self) -> int:
        return self.account.unconfirmed(self.handed())

    def counts(self) -> QueueCounts:
        return QueueCounts(dropped={self.account.reason: self.missed + self.unconfirmed})


class Audience(Generic[G, H]):
    """See the module."""

    def __init__(self) -> None:
        self._hearings: list[Hearing[G, H]] = []
        self._refused = 0
        """Events that stations refused which have confirmed all that they were sent."""

    def add(self, hearing: Hearing[G, H], is_current: Callable[[H], bool]) -> None:
        """One more; those that are settled and not current are summed up."""
        kept = [one for one in self._hearings if one.unconfirmed or is_current(one.hearer)]
        self._refused += sum(one.account.refused for one in self._hearings if one not in kept)
        self._hearings = [*kept, hearing]
        hearing.owed.open(hearing.channel.name, hearing)

    def of(self, hearer: H) -> list[Hearing[G, H]]:
        return [one for one in self._hearings if one.hearer is hearer]

    def applied_to(self, counts: QueueCounts) -> QueueCounts:
        """The ledger's counts, from those of a queue, which has as delivered what was sent."""
        lost: Counter[str] = Counter({REFUSED: self._refused})
        pending = 0
        for hearing in tuple(self._hearings):
            left = hearing.unconfirmed
            lost[REFUSED] += hearing.account.refused
            if hearing.account.reason:
                lost[hearing.account.reason] += left
            else:
                pending = max(pending, left)
        # An event may be lost for one station and on its way to another: it counts once.
        sent = counts.delivered
        for reason in tuple(lost):
            lost[reason] = min(lost[reason], sent)
            sent -= lost[reason]
        pending = min(pending, sent)
        return msgspec.structs.replace(
            counts,
            delivered=sent - pending,
            dropped=dict(+(lost + Counter(counts.dropped))),
            pending=counts.pending + pending,
        )

    @property
    def is_final(self) -> bool:
        """Whether no report can change the counts."""
        return all(hearing.account.is_final or not hearing.unconfirmed for hearing in tuple(self._hearings))

    def wait_confirmed(self, clock: Clock, timeout: float) -> bool:
        """Ask all what they have taken in, until that is all of it, or nothing more can be heard."""
        until = clock.monotonic_ns() + round(timeout * 1e9)
        for hearing in tuple(self._hearings):
            while not hearing.account.reason and hearing.unconfirmed:
                left = seconds_until(clock, until)
                if left <= 0:
                    return False
                hearing.ask()
                hearing.owed.wait(hearing, min(ASK_AGAIN, left))
        return True

"""What became of events that were sent to another station: nothing counts as delivered before it says so.

The receiving station counts, per channel and session, the events that it has put into the queues of its
receivers or given to their callbacks (`taken`), and those that it will give to nobody (`refused`: the channel
is closed there, or the event does not fit the class). It reports both sums with its heartbeats (`m.Taken`),
so a report costs one message per half second, whatever the traffic.

At the source a gateway counts what it has handed to the link. The difference is pending. When the peer is
given up, the difference becomes dropped, under a reason:

    peer-lost   its process was killed, it was silent for too long, or a session could not be resumed
    peer-left   it closed its station in order while events were on their way

A peer that was given up may have taken in more than it had reported. If it comes back, the first message of
the next session says how much (`m.Taken` names the session that it is about), and the counts become exact.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from heliograph.links.session import messages as m

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.channel.channel import Channel
    from heliograph.channel.ledger import QueueCounts
    from heliograph.runtime.ports import Tasks

PEER_LOST: Final = "peer-lost"
PEER_LEFT: Final = "peer-left"
MAX_SESSIONS: Final = 8
"""Sessions that are over and of which a station that comes back may still say what it had taken in."""
CLOSED: Final = "closed"
"""Why nothing more is confirmed when this station leaves."""
NOTHING: Final[Mapping[str, int]] = {}
REFUSED: Final = "refused"
"""The reason under which a source counts what the receiving station could give to nobody."""


NO_SESSION: Final = 0


class Account:
    """What a gateway has handed over in one session, and what the receiving station said of it.

    Args:
        first: events that the gateway had handed over in sessions before.
        earlier: those of them that were dropped, by reason.
    """

    __slots__ = ("earlier", "first", "is_final", "reason", "refused", "taken")

    def __init__(self, first: int = 0, earlier: Mapping[str, int] = NOTHING) -> None:
        self.first = first
        self.earlier = earlier
        self.taken = 0
        self.refused = 0
        self.reason = ""
        """Why nothing more will be confirmed; empty while it may be."""
        self.is_final = False
        """Whether no report can come any more that changes it."""

    def unconfirmed(self, handed: int) -> int:
        """Of so many events that the gateway has handed over in all."""
        # A report may overtake the count of the pushing thread that sent the event.
        return max(0, handed - self.first - self.taken - self.refused)

    def applied_to(self, counts: QueueCounts) -> QueueCounts:
        """The ledger's counts, from those of a gateway's queue: its `delivered` is what was handed over."""
        handed = counts.delivered
        refused = min(self.refused, handed - self.first)
        left = self.unconfirmed(handed)
        if not (refused or left or self.earlier):
            return counts
        dropped = Counter(self.earlier)
        dropped[REFUSED] += refused
        dropped[self.reason] += left if self.reason else 0
        return msgspec.structs.replace(
            counts,
            delivered=handed - dropped.total() - (0 if self.reason else left),
            dropped={reason: n for reason, n in (dropped + Counter(counts.dropped)).items() if n},
            pending=counts.pending + (0 if self.reason else left),
        )

    def followed(self, handed: int) -> Account:
        """That of the next session, when the gateway goes on in it; nothing more is heard of this one."""
        dropped = Counter(self.earlier)
        dropped[REFUSED] += min(self.refused, handed - self.first)
        dropped[self.reason or PEER_LOST] += self.unconfirmed(handed)
        return Account(handed, +dropped)


class Accountable(Protocol):
    """A gateway, as far as its session looks at it."""

    name: str
    channel: Channel[Any]
    account: Account

    @property
    def sends_again(self) -> bool:
        """Whether what is lost with a session reaches its receivers after all."""
        ...

    def counts(self) -> QueueCounts: ...

    def handed(self) -> int:
        """How many events it has handed over in all."""
        ...


class Owed:
    """The accounts of one session, at the source."""

    def __init__(self, tasks: Tasks, session: int = NO_SESSION) -> None:
        self.session = session
        self.reason = ""
        """Why it was given up; empty while it goes on."""
        self.is_reported = False
        """Whether `on_error` was told what was lost with it."""
        self._lock = tasks.lock("unconfirmed events")
        self._changed = tasks.condition(self._lock, "confirmed events")
        self._gateways: dict[str, list[tuple[Accountable, Account]]] = {}
        self._reported: dict[str, tuple[int, int]] = {}

    def open(self, channel: str, gateway: Accountable) -> None:
        """A gateway of a channel sends in this session from now on."""
        with self._lock:
            self._gateways.setdefault(channel, []).append((gateway, gateway.account))

    def confirm(self, message: m.Taken) -> bool:
        """The receiving station says what it has taken in; False when it speaks of another session."""
        if message.session != self.session:
            return False
        for channel, (taken, refused) in message.events.items():
            self.report(channel, taken, refused)
        return True

    def report(self, channel: str, taken: int, refused: int) -> None:
        """So many events of a channel were taken in by the receiving station in this session, and refused."""
        with self._lock:
            if channel not in self._gateways:
                return
            before = self._reported.get(channel, (0, 0))
            new_taken, new_refused = max(0, taken - before[0]), max(0, refused - before[1])
            self._reported[channel] = before[0] + new_taken, before[1] + new_refused
            opened = self._gateways.get(channel, [])
            # A channel that was closed and opened again has several: the events of the first come first.
            while len(opened) > 1:
                gateway, account = opened[0]
                left = account.unconfirmed(gateway.handed())
                some = min(left, new_refused)
                account.refused += some
                new_refused -= some
                others = min(left - some, new_taken)
                account.taken += others
                new_taken -= others
                if some + others < left:
                    break
                account.is_final = True
                opened.pop(0)
            else:
                for _, account in opened:
                    account.taken += new_taken
                    account.refused += new_refused
            self._changed.notify_all()

    def settle(self, account: Account, events: int) -> None:
        """So many of those that were handed over are counted elsewhere, or were not for the station."""
        with self._lock:
            account.taken += events
            self._changed.notify_all()

    def give_up(self, reason: str) -> None:
        """Wait for no further report: what is unconfirmed counts as dropped from now on.

        This is the one place where pending events of a peer become dropped. The first reason stands.
        """
        with self._lock:
            self.reason = self.reason or reason
            for _, account in self._each():
                account.reason = account.reason or reason
            self._changed.notify_all()

    def conclude(self) -> None:
        """The station will not come back: no report can follow."""
        with self._lock:
            for _, account in self._each():
                account.is_final = True
            self._gateways.clear()

    def lost(self) -> dict[Channel[Any], int]:
        """Events by channel that were dropped because the station was given up, and come no other way."""
        found: Counter[Channel[Any]] = Counter()
        with self._lock:
            for gateway, _ in self._each():
                if not gateway.sends_again:
                    found[gateway.channel] += gateway.counts().dropped.get(self.reason, 0)
        return +found

    def wait(self, gateway: Accountable, timeout: float) -> bool:
        """Wait until all that a gateway has handed over is confirmed, or will not be; False if it is not."""
        with self._lock:
            return self._changed.wait_for(
                lambda: bool(self.reason) or not gateway.account.unconfirmed(gateway.handed()), timeout
            )

    def _each(self) -> list[tuple[Accountable, Account]]:
        return [each for opened in self._gateways.values() for each in opened]


class Arrived(Protocol):
    """One way in for the events of a channel."""

    @property
    def received(self) -> int:
        """Events that are in the queues of receivers, or were given to callbacks."""
        ...

    @property
    def refused(self) -> int: ...


class TakenIn:
    """What this station has taken in of another one's events in one session."""

    def __init__(self, session: int = NO_SESSION) -> None:
        self.session = session
        """As the other station calls it, once it has said so."""
        self._ways: dict[str, list[Arrived]] = {}
        self._refused: Counter[str] = Counter()
        self._told: dict[str, tuple[int, int]] = {}

    def add_way(self, channel: str, way: Arrived) -> None:
        self._ways[channel] = [*self._ways.get(channel, ()), way]

    def refuse(self, channel: str, events: int) -> None:
        """By the task that reads them."""
        if events:
            self._refused[channel] += events

    def counts(self) -> Mapping[str, tuple[int, int]]:
        """Taken and refused, by channel."""
        counted: dict[str, tuple[int, int]] = {}
        for channel in {**self._ways, **self._refused}:
            ways = self._ways.get(channel, ())
            counted[channel] = (
                sum(way.received for way in ways),
                self._refused[channel] + sum(way.refused for way in ways),
            )
        return counted

    def news(self) -> m.Taken | None:
        """A report of the channels of which more has come since the last one."""
        news = {name: sums for name, sums in self.counts().items() if self._told.get(name, (0, 0)) != sums}
        if not news or self.session == NO_SESSION:
            return None
        self._told.update(news)
        return m.Taken(self.session, news)

    def last_report(self) -> m.Taken:
        """All of it, for the session that follows."""
        return m.Taken(self.session, dict(self.counts()))


class Confirmations:
    """Both directions of one linked station: what it has confirmed, and what was taken in of its events.

    And both of the sessions before: a station that was given up several times in a row, and comes back, says
    in the next session that lasts what it had taken in of all of them.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.owed = Owed(tasks)
        self.taken = TakenIn()
        self._owed_before: list[Owed] = []
        self._taken_before: list[TakenIn] = []
        self._unclaimed: deque[m.Taken] = deque(maxlen=MAX_SESSIONS)

    @property
    def has_begun(self) -> bool:
        return self.owed.session != NO_SESSION

    def begin(self, session: int, before: Confirmations | None = None) -> None:
        """A session begins, in which this station's events are called that.

        The last one may have been another link's.
        """
        if before is not None:
            self.follow(before)
        if self.has_begun:
            self.follow(self)
        self.owed, self.taken = Owed(self._tasks, session), TakenIn()

    def follow(self, last: Confirmations) -> None:
        """That was the session before this one, with those before it."""
        if last is not self:
            self._owed_before = [*last._owed_before, *self._owed_before]
            self._taken_before = [*last._taken_before, *self._taken_before]
        self._owed_before.append(last.owed)
        self._taken_before.append(last.taken)
        while len(self._owed_before) > MAX_SESSIONS:
            self._owed_before.pop(0).conclude()
        del self._taken_before[:-MAX_SESSIONS]
        for message in self._unclaimed:
            last.owed.confirm(message)

    def conclude(self) -> None:
        """The station will not come back."""
        for owed in (self.owed, *self._owed_before):
            owed.conclude()

    def last_reports(self) -> list[m.Taken]:
        """What to say first in a session: all that was taken in of those before."""
        return [taken.last_report() for taken in self._taken_before if taken.session != NO_SESSION]

    def news(self) -> list[m.Taken]:
        """What to say of its events that were taken in since it was last told."""
        sessions = (*self._taken_before, self.taken)
        return [news for taken in sessions if (news := taken.news()) is not None]

    def confirm(self, message: m.Taken) -> Owed | None:
        """The station has said what it took in; the session before, if that is what it spoke of."""
        if self.owed.confirm(message):
            return None
        for owed in self._owed_before:
            if owed.confirm(message):
                return owed
        self._unclaimed.append(message)  # it knows already that a session is over, and this station not yet
        return None

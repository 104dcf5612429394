"""The event monitor: watches each pushed event until every consumer has acknowledged it, or gives up.

The six steps of an event, and who takes them:

    1 notify       the channel tells the monitor of an event and of the consumers that it is for
    2 timer        the monitor opens a timer for it
    3 pass         the channel passes it to those consumers
    4 ack          a consumer acknowledges it to its proxy
    5 ack upward   the proxy tells the monitor
    6 delete       all have acknowledged before the timer rang: the event leaves the monitor array;
      resend       or some have not: it is passed again, to those alone, and the timer is opened anew;
      give up      after so many resends
      end          a consumer has left, or was lost, without an ack: the others are waited for, and then the
                   event leaves the array as not delivered

    monitor = Monitor(timeout_ns=1_000_000_000, resends=3)
    monitor.notify("a:1:1", ("billing", "audit"), now)  # [StartTimer("a:1:1", ...), Pass("a:1:1", both)]
    monitor.acked("a:1:1", "billing")                   # []
    monitor.tick(later)                                 # [Resend("a:1:1", ("audit",), 1), StartTimer(...)]

It is a pure state machine: inputs come with the time, actions go out as a list. Whoever uses it holds a lock,
so that all suppliers of a channel share one array.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

E = TypeVar("E", bound="Hashable")
"""What names an event: an `EventId`, or any text in tests."""

MAX_WATCHED: Final = 100_000
"""Events that a channel's monitor watches at once."""


class StartTimer(NamedTuple, Generic[E]):
    """Step 2: ring for this event at that instant."""

    event: E
    due: int


class Pass(NamedTuple, Generic[E]):
    """Step 3: pass the event to these consumers."""

    event: E
    consumers: tuple[str, ...]


class Delete(NamedTuple, Generic[E]):
    """Step 6: everybody has it."""

    event: E


class Resend(NamedTuple, Generic[E]):
    """Step 6: pass it again, to those who lack it and to nobody else."""

    event: E
    consumers: tuple[str, ...]
    attempt: int


class GiveUp(NamedTuple, Generic[E]):
    """Step 6, at the end: these never acknowledged it."""

    event: E
    lacking: tuple[str, ...]
    attempts: int


class End(NamedTuple, Generic[E]):
    """Step 6, when nobody else is waited for: these left the channel and had not acknowledged it."""

    event: E
    left: tuple[str, ...]


Action: TypeAlias = StartTimer[E] | Pass[E] | Delete[E] | Resend[E] | GiveUp[E] | End[E]


class Row(NamedTuple, Generic[E]):
    """One row of the monitor array."""

    supplier: str
    event: E
    state: dict[str, bool]
    """Whether each consumer has acknowledged it. A consumer that leaves the channel leaves its rows, and an
    event that it had not acknowledged is not delivered."""
    resends: int


class _Watched:
    __slots__ = ("due", "left", "resends", "state", "supplier")

    def __init__(self, supplier: str, consumers: Iterable[str], due: int) -> None:
        self.supplier = supplier
        self.state = dict.fromkeys(consumers, False)
        self.left: list[str] = []
        """Those that are not on the channel any more, and had not acknowledged it."""
        self.resends = 0
        self.due = due

    def lacking(self) -> tuple[str, ...]:
        return tuple(consumer for consumer, has_it in self.state.items() if not has_it)


class Monitor(Generic[E]):
    """See the module.

    Args:
        timeout_ns: how long all acknowledgements may take before the event is sent again.
        resends: how often it is, before the monitor gives up.
    """

    def __init__(self, *, timeout_ns: int, resends: int) -> None:
        self._timeout_ns = timeout_ns
        self._resends = resends
        self._array: dict[E, _Watched] = {}
        # Each watched event has exactly one entry that carries its present `due`; others are stale.
        self._timers: list[tuple[int, int, E]] = []
        self._ticket = 0
        self.deleted = 0
        self.resent = 0
        self.given_up = 0
        self.ended = 0
        """Events that ended because a consumer left before it had acknowledged them."""
        self.late = 0
        """Acknowledgements of events that were not watched any more."""

    def notify(self, event: E, consumers: Iterable[str], now: int, supplier: str = "") -> list[Action[E]]:
        """Step 1. An event for nobody has been delivered."""
        watched = _Watched(supplier, consumers, now + self._timeout_ns)
        if not watched.state:
            self.deleted += 1
            return [Delete(event)]
        self._array[event] = watched
        return [self._timer(event, watched), Pass(event, tuple(watched.state))]

    def acked(self, event: E, consumer: str) -> list[Action[E]]:
        """Step 5. Repeated and late acknowledgements change nothing."""
        watched = self._array.get(event)
        if watched is None or consumer not in watched.state:
            self.late += 1
            return []
        watched.state[consumer] = True
        return self._end_if_complete(event, watched)

    def left(self, consumer: str) -> list[Action[E]]:
        """A consumer is no longer on the channel: nobody waits for it.

        An event that it had not acknowledged is not delivered, whatever the others say.
        """
        actions: list[Action[E]] = []
        for event, watched in list(self._array.items()):
            has_it = watched.state.pop(consumer, None)
            if has_it is not None:
                if not has_it:
                    watched.left.append(consumer)
                actions += self._end_if_complete(event, watched)
        return actions

    def tick(self, now: int) -> list[Action[E]]:
        """Timers that were due by now ring: step 6 for the events that somebody lacks."""
        actions: list[Action[E]] = []
        while self._timers and self._timers[0][0] <= now:
            due, _, event = heapq.heappop(self._timers)
            watched = self._array.get(event)
            if watched is None or watched.due != due:
                continue
            lacking = watched.lacking()
            if watched.resends >= self._resends:
                del self._array[event]
                self.given_up += 1
                actions.append(GiveUp(event, lacking, watched.resends))
                continue
            watched.resends += 1
            watched.due = now + self._timeout_ns
            self.resent += len(lacking)
            actions.append(Resend(event, lacking, watched.resends))
            actions.append(self._timer(event, watched))
        return actions

    def forget(self, event: E) -> None:
        """The event never was: it could not be passed to anybody."""
        self._array.pop(event, None)

    @property
    def next_due(self) -> int | None:
        """When to call `tick`; None while nothing is watched."""
        while self._timers:
            due, _, event = self._timers[0]
            watched = self._array.get(event)
            if watched is not None and watched.due == due:
                return due
            heapq.heappop(self._timers)
        return None

    def array(self) -> tuple[Row[E], ...]:
        """The monitor array at this instant."""
        return tuple(
            Row(watched.supplier, event, dict(watched.state), watched.resends)
            for event, watched in self._array.items()
        )

    def __len__(self) -> int:
        return len(self._array)

    def _timer(self, event: E, watched: _Watched) -> StartTimer[E]:
        self._ticket += 1  # events need not compare: the ticket decides between equal instants
        heapq.heappush(self._timers, (watched.due, self._ticket, event))
        return StartTimer(event, watched.due)

    def _end_if_complete(self, event: E, watched: _Watched) -> list[Action[E]]:
        if not all(watched.state.values()):
            return []
        del self._array[event]
        if watched.left:
            self.ended += 1
            return [End(event, tuple(watched.left))]
        self.deleted += 1
        return [Delete(event)]

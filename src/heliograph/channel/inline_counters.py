"""Counters of inline callbacks and of receivers that have closed, for the ledger.

A member that leaves hands in what it had counted. A queue that still delivers when it is closed goes on
counting among the leaving until it is done.

Inline callbacks have no queue and no lock. Each route has a tally of outcomes: which of its callbacks an
event was for, which of those raised, and for which it came too late, as bits of one number. A push raises the
count of its outcome by one, and whoever looks adds up what has come since. Raising a count is one C call
(`itertools.count`), so it is atomic under CPython's interpreter lock.

When routes change, a push may be inside a callback of the old ones, for as long as that takes, and counts
there afterwards. What calls callbacks holds the tally of its route: an old one is done with when nobody does.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Final, Protocol
from weakref import ref

from heliograph.channel.ledger import QueueCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from heliograph.model.event import Header


MOST_OUTCOMES: Final = 1_000
"""Outcomes of a route with a count of their own; what comes after them is counted callback by callback."""


class CountedReceiver(Protocol):
    """A receiver, as far as it is counted."""

    @property
    def name(self) -> str: ...
    @property
    def is_final(self) -> bool:
        """Whether it counts nothing more once nothing is pending."""
        ...

    def counts(self) -> QueueCounts: ...


class InlineTarget(CountedReceiver, Protocol):
    """An inline callback, as a route calls it and counts what became of it."""

    @property
    def call(self) -> Callable[..., object]: ...
    @property
    def with_header(self) -> bool: ...
    @property
    def views(self) -> bool:
        """Whether it may be given views of bytes that hold only while it runs."""
        ...

    def is_late(self, header: Header) -> None:
        """The lifespan of an event for it was over."""
        ...

    def raised(self, header: Header, error: BaseException) -> None: ...
    def add(self, counts: QueueCounts) -> None: ...


class InlineTally:
    """The outcomes of one route; see the module."""

    def __init__(self, subscriptions: tuple[InlineTarget, ...]) -> None:
        self.subscriptions = subscriptions
        self.retired = False
        """Whether there are newer routes: only a push that is half done may still count."""
        self._ticks: dict[int, Callable[[], int]] = {}
        self._seen: dict[int, int] = {}
        self.known = self._ticks.get
        """`known(outcome)` is what raises its count; None when it is new: then ask `tick`."""

    def outcome(self, place: int, *, raised: bool = False) -> int:
        """The outcome of one callback alone; several are joined by `|`."""
        called = 1 << place
        return called | called << len(self.subscriptions) if raised else called

    def expired(self, place: int) -> int:
        """The outcome of a callback that was not called, since the event's lifespan was over."""
        return 1 << place << len(self.subscriptions)

    def tick(self, outcome: int) -> Callable[[], object]:
        """What raises the count of an outcome."""
        if outcome in self._ticks or len(self._ticks) < MOST_OUTCOMES:
            return self._ticks.setdefault(outcome, count().__next__)
        return partial(self._tick_each, outcome)

    def news(self) -> Iterator[tuple[int, int]]:
        """Outcomes and how often each came since the last time."""
        for outcome, tick in list(self._ticks.items()):
            times = count_of(tick) - self._seen.get(outcome, 0)
            if times:
                self._seen[outcome] = self._seen.get(outcome, 0) + times
                yield outcome, times

    def _tick_each(self, outcome: int) -> None:
        for place in range(len(self.subscriptions)):
            alone = outcome & self.outcome(place, raised=True)
            if alone:
                self._ticks.setdefault(alone, count().__next__)()


def count_of(tick: Callable[[], int]) -> int:
    """How often the `__next__` of an `itertools.count()` has been called."""
    counter: count[int] = tick.__self__  # type: ignore[attr-defined]  # it is a bound method
    return int(repr(counter)[len("count(") : -1])


def take_numbers(tick: Callable[[], int], times: int) -> range:
    """What so many calls of the `__next__` of an `itertools.count()` would give, at least one, as one C call.

    So nobody else gets a number in between.
    """
    counter: count[int] = tick.__self__  # type: ignore[attr-defined]  # it is a bound method
    last = next(islice(counter, times - 1, None))
    return range(last - times + 1, last + 1)


def take_each(tick: Callable[[], int], times: int) -> list[int]:
    """As `take_numbers`, for a counter whose numbers may be further apart."""
    counter: count[int] = tick.__self__  # type: ignore[attr-defined]  # it is a bound method
    return list(islice(counter, times))


class Accounts:
    """See the module. Used while no push is half done, except for what inline callbacks count."""

    def __init__(self) -> None:
        self.pushed = 0
        self.matched = 0
        self._departed = QueueCounts()
        self._leaving: list[CountedReceiver] = []
        self._tallies: list[InlineTally] = []
        self._retired: list[tuple[ref[InlineTally], InlineTally]] = []
        """Of old routes, as long as somebody may count there; beside each a copy that has the same counts."""

    def leave(self, receiver: CountedReceiver) -> None:
        self._leaving.append(receiver)

    def tally(self, subscriptions: tuple[InlineTarget, ...]) -> InlineTally:
        """The tally of a new route."""
        tally = InlineTally(subscriptions)
        self._tallies.append(tally)
        return tally

    def retire_tallies(self, receivers: Mapping[str, CountedReceiver]) -> None:
        """New routes are about to be made."""
        self._fold_tallies(receivers)
        for tally in self._tallies:
            tally.retired = True
        self._retired += [(ref(tally), copy(tally)) for tally in self._tallies]
        self._tallies = []

    @property
    def departed(self) -> QueueCounts:
        """What receivers that have left have counted so far."""
        return sum((r.counts() for r in self._leaving), self._departed)

    def fold(self, receivers: Mapping[str, CountedReceiver]) -> None:
        """Bring the counts of inline callbacks and of members that have left up to date."""
        self._fold_tallies(receivers)
        for receiver in list(self._leaving):
            counts = receiver.counts()
            if not counts.pending and receiver.is_final:
                self._departed += counts
                self._leaving.remove(receiver)

    def _fold_tallies(self, receivers: Mapping[str, CountedReceiver]) -> None:
        # Who holds one is asked before it is added up: then nothing can come after the last time.
        held = [pair for pair in self._retired if pair[0]() is not None]
        for tally in (*self._tallies, *(counted for _, counted in self._retired)):
            self._fold_tally(tally, receivers)
        self._retired = held

    def _fold_tally(self, tally: InlineTally, receivers: Mapping[str, CountedReceiver]) -> None:
        """Each outcome adds to `matched` and to subscriptions alike."""
        for outcome, times in tally.news():
            for place, subscription in enumerate(tally.subscriptions):
                alone = outcome & tally.outcome(place, raised=True)
                if not alone:
                    continue
                self.matched += times
                if alone == tally.expired(place):
                    counts = QueueCounts(expired=times)
                elif alone == tally.outcome(place):
                    counts = QueueCounts(delivered=times)
                else:
                    counts = QueueCounts(failed=times)
                # One may have left while it was called.
                known = receivers.get(subscription.name) is subscription
                if known or subscription in self._leaving:
                    subscription.add(counts)
                else:
                    self._departed += counts

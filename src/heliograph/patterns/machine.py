"""The correlator: a state machine that finds the matches of a pattern. Events and instants in, matches
out; pure.

    machine = Correlator(pattern, start=now)
    machine.offer(leaf, key, event, now)       matches that this event completes, those of timers first
    machine.advance(now)                       matches that time alone completes
    machine.due                                the instant to call `advance` at, if nothing comes before

The same inputs give the same matches wherever they come from: live, from history, in Spark. Instants are
nanoseconds on one clock and do not go back: an earlier one counts as the latest seen.

Each key has a state of its own, which is forgotten when nothing waits in it. What has to give way, because a
limit is reached, is counted (`counts`).
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from heliograph.patterns.pattern import KEYS, After, AllOf, AnyOf, Every, Leaf, NoneOf

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from heliograph.patterns.pattern import Node, Pattern


NOBODY: Final = object()
FEW: Final = 64
"""Instants to wake at that nobody waits for any more, of which no notice is taken."""


class Occurrence(NamedTuple):
    """One occurrence of a pattern: from when to when, and what it is made of, by name."""

    first: int
    last: int
    values: dict[str, Any]
    missing: tuple[str, ...] = ()


class Match(NamedTuple):
    """What the machine gives out.

    Attributes:
        key: what its events share; None without `by`.
        at: the instant of the match.
        values: events by name; patterns inside as mappings of their own; what is not part of it is left out.
        missing: when the watchdog reports, the parts that have not come; else empty.
    """

    key: Hashable
    at: int
    values: dict[str, Any]
    missing: tuple[str, ...]


class Counts(msgspec.Struct):
    """What did not become part of a match.

    Attributes:
        superseded: a later event of that name came before the set was complete.
        expired: waited longer than `within` for the others.
        refuted: waited, or were complete, when one of `none_of` came.
        overflowed: complete, but gave way because more than `depth` waited for their window to close.
        evicted: keys that gave way because more than `keys` had something waiting.
    """

    superseded: int = 0
    expired: int = 0
    refuted: int = 0
    overflowed: int = 0
    evicted: int = 0


class Correlator:
    """See the module."""

    def __init__(self, pattern: Pattern, start: int) -> None:
        self._pattern = pattern
        self._start = start
        self._now = start
        self._keyed = isinstance(pattern, AllOf) and pattern.by is not None
        self._limit = pattern.keys if isinstance(pattern, AllOf) else KEYS
        self._states: OrderedDict[Hashable, _State] = OrderedDict()
        # Instants at which a key wants to be woken; one that is no longer its state's is passed over.
        self._wakes: list[tuple[int, int, Hashable]] = []
        self._pushed = 0
        self.counts = Counts()
        self.evicted: Hashable = NOBODY
        """The key that gave way to the last event, if any did."""
        if not self._keyed:
            self._state(None, start)

    @property
    def due(self) -> int | None:
        self._drop_stale()
        return self._wakes[0][0] if self._wakes else None

    @property
    def now(self) -> int:
        """The latest instant that it has seen."""
        return self._now

    @property
    def keys(self) -> int:
        """How many keys have something waiting."""
        return len(self._states)

    def offer(self, leaf: int, key: Hashable, event: Any, now: int) -> list[Match]:
        """An event of the pattern's leaf of that number, counted from the left."""
        self.evicted = NOBODY
        matches = self.advance(now)
        state = self._state(_as_key(key) if self._keyed else None, self._now)
        found = state.root.feed(leaf, event, self._now)
        matches += [_match(state.key, self._now, one) for one in found]
        self._after(state)
        return matches

    def advance(self, now: int) -> list[Match]:
        """Let time pass; what falls due is found in the order of its instants."""
        matches: list[Match] = []
        until = max(now, self._now)
        while (due := self.due) is not None and due <= until:
            state = self._states[heapq.heappop(self._wakes)[2]]
            state.wake = None
            self._now = max(due, self._now)
            matches += [_match(state.key, due, one) for one in state.root.tick(due)]
            self._after(state)
        self._now = until
        return matches

    def forget(self, key: Hashable, now: int) -> list[Match]:
        """Drop what waits for a key, as when it gives way; what falls due until then is found first."""
        matches = self.advance(now)
        self._states.pop(_as_key(key), None)
        return matches

    def _state(self, key: Hashable, now: int) -> _State:
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= self._limit:
                self.evicted = self._states.popitem(last=False)[0]
                self.counts.evicted += 1
            state = self._states[key] = _State(key, _built(self._pattern, self._start, now, self.counts))
            self._schedule(state)
        else:
            self._states.move_to_end(key)
        return state

    def _after(self, state: _State) -> None:
        if self._keyed and state.root.idle:
            del self._states[state.key]
        else:
            self._schedule(state)

    def _schedule(self, state: _State) -> None:
        due = state.root.due
        if due != state.wake:
            state.wake = due
            if due is not None:
                self._pushed += 1
                heapq.heappush(self._wakes, (due, self._pushed, state.key))
                if len(self._wakes) > 2 * len(self._states) + FEW:
                    self._forget_stale()

    def _forget_stale(self) -> None:
        """Behind a key that waits long, what others no longer wait for would pile up."""
        current: dict[Hashable, tuple[int, int, Hashable]] = {}
        for wake in sorted(self._wakes):
            state = self._states.get(wake[2])
            if state is not None and state.wake == wake[0]:
                current.setdefault(wake[2], wake)
        self._wakes = list(current.values())  # sorted, so it is a heap

    def _drop_stale(self) -> None:
        while self._wakes:
            due, _, key = self._wakes[0]
            state = self._states.get(key)
            if state is not None and state.wake == due:
                return
            heapq.heappop(self._wakes)


class _State:
    """What waits for one key."""

    __slots__ = ("key", "root", "wake")

    def __init__(self, key: Hashable, root: _Finder) -> None:
        self.key = key
        self.root = root
        self.wake: int | None = None


def _as_key(value: Hashable) -> Hashable:
    """NaN is equal to itself here, as it is in filters: one and the same object for all."""
    return value if value == value else math.nan  # noqa: PLR0124 - only NaN differs from itself


def _match(key: Hashable, at: int, found: Occurrence) -> Match:
    return Match(key, at, found.values, found.missing)


class _Finder(Protocol):
    """One node of the pattern with what it remembers."""

    @property
    def due(self) -> int | None:
        """When time alone may complete something."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        ...

    def feed(self, leaf: int, event: Any, now: int) -> list[Occurrence]: ...

    def tick(self, now: int) -> list[Occurrence]:
        """Its due instant has come; only then."""
        ...


def _built(pattern: Node, start: int, now: int, counts: Counts) -> _Finder:
    numbers = count()  # as `leaves_of` counts them: from the left

    def build(node: Node) -> _Finder:
        match node:
            case Leaf():
                return _LeafFinder(next(numbers))
            case Every(period=period):
                next(numbers)
                return _Ticker(start + ((now - start) // period + 1) * period, period)
            case After(delay=delay):
                next(numbers)
                return _Ticker(start + delay if start + delay > now else None, None)
            case AnyOf(parts=parts):
                return _AnyFinder({name: build(part) for name, part in parts.items()})
            case NoneOf(parts=parts, within=within):
                return _Silence([build(part) for part in parts.values()], tuple(parts), within, now)
            case AllOf():
                finders = {name: build(part) for name, part in node.parts.items()}
                return _AllFinder(node, finders, now, counts)

    return build(pattern)


class _LeafFinder:
    """A stream: each event is an occurrence."""

    due = None
    idle = True

    def __init__(self, number: int) -> None:
        self._number = number

    def feed(self, leaf: int, event: Any, now: int) -> list[Occurrence]:
        return [Occurrence(now, now, {"": event})] if leaf == self._number else []

    def tick(self, now: int) -> list[Occurrence]:
        raise AssertionError(f"a stream is never due, not at {now}")


class _Ticker:
    """The clock: on the grid that began with the machine, or once. The value is the instant."""

    def __init__(self, due: int | None, period: int | None) -> None:
        self.due = due
        self._period = period

    @property
    def idle(self) -> bool:
        return self.due is None

    def feed(self, leaf: int, event: Any, now: int) -> list[Occurrence]:  # noqa: ARG002 - the clock takes no events
        return []

    def tick(self, now: int) -> list[Occurrence]:
        self.due = None if self._period is None else now + self._period
        return [Occurrence(now, now, {"": now})]


def _earliest(finders: Sequence[_Finder], *more: int | None) -> int | None:
    dues = [due for due in (*(finder.due for finder in finders), *more) if due is not None]
    return min(dues, default=None)


def _value(found: Occurrence) -> Any:
    """A leaf's event itself, anything else by name."""
    return found.values.get("", found.values)


class _AnyFinder:
    """Every occurrence of a part is one."""

    def __init__(self, parts: dict[str, _Finder]) -> None:
        self._parts = parts
        self._finders = list(parts.values())

    @property
    def due(self) -> int | None:
        return _earliest(self._finders)

    @property
    def idle(self) -> bool:
        return all(finder.idle for finder in self._finders)

    def feed(self, leaf: int, event: Any, now: int) -> list[Occurrence]:
        found = ((name, one) for name, part in self._parts.items() for one in part.feed(leaf, event, now))
        return [one._replace(values={name: _value(one)}) for name, one in found]

    def tick(self, now: int) -> list[Occurrence]:
        due = ((name, part) for name, part in self._parts.items() if part.due == now)
        return [one._replace(values={name: _value(one)}) for name, part in due for one in part.tick(now)]


class _Silence:
    """None of its parts for a while: said once, and again only after one has come.

    Without a window of its own it only hears: `feed` then gives what it heard.
    """

    def __init__(self, parts: list[_Finder], names: tuple[str, ...], within: int | None, now: int) -> None:
        self._parts = parts
        self._names = names
        self._within = within
        self._since = now
        self._said = within is None

    @property
    def due(self) -> int | None:
        return _earliest(self._parts, None if self._said else self._end)

    @property
    def idle(self) -> bool:
        return self._within is None and all(part.idle for part in self._parts)

    @property
    def _end(self) -> int:
        return self._since + (self._within or 0)

    def feed(self, leaf: int, event: Any, now: int) -> list[Occurrence]:
        return self._heard([one for part in self._parts for one in part.feed(leaf, event, now)], now)

    def tick(self, now: int) -> list[Occurrence]:
        heard = self._heard([one for part in self._parts if part.due == now for one in part.tick(now)], now)
        if not self._said and self._end == now:
            self._said = True
            return [Occurrence(self._since, now, {}, self._names)]
        return heard

    def _heard(self, found: list[Occurrence], now: int) -> list[Occurrence]:
        if self._within is None:
            return found
        if found:
            self._since = now
            self._said = False
        return []


class _AllFinder:
    """One occurrence of each part within a window, and none of those that must not come.

    Of several that come under one name the latest waits. A match empties the set, unless it uses the latest
    again.
    """

    def __init__(self, node: AllOf, parts: dict[str, _Finder], now: int, counts: Counts) -> None:
        self._within = node.within
        self._keeps = node.reuse == "latest"
        self._depth = node.depth
        self._counts = counts
        self._forbidden = [p for name, p in parts.items() if isinstance(node.parts[name], NoneOf)]
        self._wanted = {name: p for name, p in parts.items() if not isinstance(node.parts[name], NoneOf)}
        self._all = list(parts.values())
        self._waiting: dict[str, Occurrence] = {}
        # Complete, and given out when the window has closed without one of the forbidden.
        self._held: list[Occurrence] = []
        self._watchdog = node.watchdog
        self._bark = None if node.watchdog is None else now + node.watchdog

    @property
    def due(self) -> int | None:
        return _earliest(self._all, self._closing, self._bark)

    @property
    def idle(self) -> bool:
        busy = self._held or self._waiting or self._bark is not None
        return not busy and all(finder.idle for finder in self._all)

    @property
    def _closing(self) -> int | None:
        return min(found.first for found in self._held) + (self._within or 0) if self._held else None

    def feed(self, leaf: int, event: Any, now: int) -> list[Occurrence]:
        if [one for finder in self._forbidden for one in finder.feed(leaf, event, now)]:
            self._refute()
        came = [(name, found) for name, part in self._wanted.items() for found in part.feed(leaf, event, now)]
        return self._taken(came, now)

    def tick(self, now: int) -> list[Occurrence]:
        closed = []
        while self._closing == now:
            closed.append(self._held.pop(min(range(len(self._held)), key=lambda n: self._held[n].first)))
        if [one for finder in self._forbidden if finder.due == now for one in finder.tick(now)]:
            self._refute()
        due = [(name, part) for name, part in self._wanted.items() if part.due == now]
        matches = closed + self._taken([(name, one) for name, part in due for one in part.tick(now)], now)
        if self._bark != now:
            return matches
        self._bark = None
        # Where the latest are used again, whatever comes once all are there gives a match: nothing has.
        waiting = {} if len(self._waiting) == len(self._wanted) else self._waiting
        missing = tuple(name for name in self._wanted if name not in waiting)
        there = {name: _value(found) for name, found in waiting.items()}
        return [*matches, Occurrence(now - (self._watchdog or 0), now, there, missing)]

    def _taken(self, came: list[tuple[str, Occurrence]], now: int) -> list[Occurrence]:
        """Let occurrences wait for the others; what they complete."""
        matches: list[Occurrence] = []
        for name, found in came:
            if name in self._waiting and not self._keeps:
                self._counts.superseded += 1
            self._waiting[name] = found
            self._expire(now)
            if len(self._waiting) == len(self._wanted):
                matches.append(self._complete())
        if came and self._watchdog is not None and (matches or self._bark is None):
            self._bark = now + self._watchdog
        return self._hold(matches) if self._forbidden else matches

    def _expire(self, now: int) -> None:
        """Drop what is too old for any match that is still to come."""
        if self._within is not None:
            for name in [n for n, found in self._waiting.items() if now - found.first > self._within]:
                del self._waiting[name]
                self._counts.expired += not self._keeps

    def _complete(self) -> Occurrence:
        parts = {name: self._waiting[name] for name in self._wanted}
        if not self._keeps:
            self._waiting.clear()
        first = min(found.first for found in parts.values())
        last = max(found.last for found in parts.values())
        return Occurrence(first, last, {name: _value(found) for name, found in parts.items()})

    def _hold(self, matches: list[Occurrence]) -> list[Occurrence]:
        self._held += matches
        while len(self._held) > self._depth:
            self._held.pop(0)
            self._counts.overflowed += 1
        return []

    def _refute(self) -> None:
        self._counts.refuted += len(self._held) + len(self._waiting)
        self._held.clear()
        self._waiting.clear()

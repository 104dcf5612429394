"""The pure state machine of a receiver that heals by state: what is new to it, and whom to ask, and when.

What comes in are events, rows of snapshots and what stations say of themselves; what goes out are decisions
(is this news?) and questions (`due`). It neither waits nor sends. Times are nanoseconds of one clock.

    numbers     per supplier and epoch: which sequence numbers were received; a number that is missing for
                longer than `grace` is a gap, so order is not needed
    marks       how far each supplier of a station was when its snapshot was taken: all up to there is in it
    known       per key the latest event, and its version: what a snapshot says anew is ignored

A snapshot is asked for when a station is met (the receiver has begun, or the supplier has begun again), on a
gap, however it came about, and again when it failed. One that heals nothing is not repeated at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from heliograph.model.event import DELAYED_EPOCHS

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping

Source: TypeAlias = "tuple[str, int]"
"""A supplier and its epoch."""

MAX_AHEAD: Final = 10_000
"""Sequence numbers of a supplier that are remembered behind one that is missing."""
MAX_LEFT: Final = 1_000
"""Stations that have left and are remembered, so that what is late of them is known for that."""
MAX_SOURCES: Final = 10_000
"""Suppliers, each with its epochs, whose numbers a receiver remembers."""
MAX_KEYS: Final = 1_000_000
"""Keys whose latest event a receiver remembers."""


class Version(NamedTuple):
    """Which event made a key what it is."""

    supplier: str
    epoch: int
    sequence: int

    @property
    def source(self) -> Source:
        return self.supplier, self.epoch


class AskForState(NamedTuple):
    """Ask a station for its state."""

    station: int
    number: int


class Check(NamedTuple):
    """Ask a station how far its suppliers are: a lost tail makes no gap by itself."""

    station: int


class ResyncCounts(msgspec.Struct):
    """What has happened since the receiver was opened."""

    asked: int = 0
    """Snapshots that were asked for."""
    failed: int = 0
    """Those that did not come whole."""
    gaps: int = 0
    """Times when a number was missing for longer than `grace`."""
    events: int = 0
    """Events that were news."""
    repeated: int = 0
    """Events that were none: had before, or older than what is known of their key."""
    rows: int = 0
    """Rows of snapshots."""
    applied: int = 0
    """Those that were news."""
    gone: int = 0
    """Keys that a snapshot had no more."""
    unhealed: int = 0
    """Events of suppliers whose state nobody offers that were missed."""


class Numbers:
    """Which sequence numbers of one source were received."""

    __slots__ = ("above", "expected", "is_heard", "low", "missing_since", "tried")

    def __init__(self, low: int) -> None:
        self.low = low
        """All up to this one."""
        self.above: set[int] = set()
        self.expected = low
        """The highest that was pushed, as far as is known."""
        self.is_heard = True
        """Whether it was heard of since it was last looked at as one to forget."""
        self.missing_since: int | None = None
        self.tried: set[int] = set()
        """Stations that were asked for it in vain, where it is not known whose it is."""

    def add(self, number: int) -> bool:
        self.is_heard = True
        if number <= self.low or number in self.above:
            return False
        self.above.add(number)
        self.expected = max(self.expected, number)
        self._close_up()
        return True

    def raise_to(self, number: int) -> None:
        self.expected = max(self.expected, number)
        if number > self.low:
            self.low = number
            self.above = {one for one in self.above if one > number}
            self._close_up()

    def _close_up(self) -> None:
        while self.low + 1 in self.above:
            self.low += 1
            self.above.discard(self.low)

    @property
    def missing(self) -> int:
        return self.expected - self.low - len(self.above)

    def look(self, now: int) -> None:
        """Remember since when one is missing."""
        if not self.missing:
            self.missing_since = None
            self.tried.clear()
        elif self.missing_since is None:
            self.missing_since = now


class _Station:
    """A station that offers its state."""

    __slots__ = ("asking", "checking", "heard", "keys", "marks", "met", "next_at", "pause", "wanted")

    def __init__(self, now: int, pause: int) -> None:
        self.met = now
        self.wanted = True
        self.asking = 0
        """The number of the question that is under way; 0: none is."""
        self.checking = False
        self.next_at = now
        self.pause = pause
        self.heard = now
        self.marks: dict[Source, int] = {}
        self.keys: set[Hashable] = set()
        """Keys of the snapshot that is coming."""


class Known(NamedTuple):
    """The latest event of a key."""

    version: Version
    event: Any


class ResyncMachine:
    """See the module.

    Args:
        grace: how long a number may be missing before it counts as lost; what is only out of order comes.
        check: after how much silence of a station it is asked how far it is.
        pause: between two snapshots of a station; doubled while they heal nothing, up to `longest`.
        longest: the longest pause.
    """

    def __init__(self, *, grace: int, check: int, pause: int, longest: int) -> None:
        self._grace = grace
        self._check = check
        self._pause = pause
        self._longest = longest
        self._numbers: dict[Source, Numbers] = {}
        self._gapped: set[Source] = set()
        self._stations: dict[int, _Station] = {}
        self._left: dict[int, int] = {}
        """When a station that is owner of known keys has left."""
        self._owners: dict[Source, int] = {}
        self._known: dict[Hashable, Known] = {}
        self._question = 0
        self._is_begun = False
        """Whether a snapshot has come whole: from then on every supplier is heard from its first event on."""
        self.counts = ResyncCounts()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is missing, and nothing asked for is under way."""
        return not self._gapped and not any(one.asking or one.wanted for one in self._stations.values())

    @property
    def sources(self) -> Collection[Source]:
        """The suppliers whose numbers are remembered."""
        return self._numbers.keys()

    @property
    def known(self) -> Mapping[Hashable, Known]:
        """The latest event of each key."""
        return self._known

    # What comes in

    def offers(self, now: int, stations: Collection[int]) -> None:
        """These stations offer their state now."""
        for station in self._stations.keys() - set(stations):
            del self._stations[station]
            self._left[station] = now
            for source in [one for one in self._gapped if self._owners.get(one) == station]:
                self._settle(source)  # nobody can tell any more; who takes its place is asked for all
        while len(self._left) > MAX_LEFT:
            self._forget_station(next(iter(self._left)))
        for station in set(stations) - self._stations.keys():
            self._stations[station] = _Station(now, self._pause)
            self._left.pop(station, None)

    def event(self, now: int, version: Version, key: Hashable, event: Any) -> bool:
        """An event has come; whether it is news."""
        if version.epoch < DELAYED_EPOCHS:
            numbers = self._numbers_of(version.source, version.sequence - 1)
            if not numbers.add(version.sequence):
                self.counts.repeated += 1
                return False
            if len(numbers.above) > MAX_AHEAD:
                self._give_up(numbers)
            self._look(now, version.source, numbers)
        before = self._known.get(key)
        if before is not None and self._is_older(version, before.version):
            self.counts.repeated += 1
            return False
        self.counts.events += 1
        self._know(key, Known(version, event))
        return True

    def begin(self, now: int, station: int, number: int, marks: Mapping[Source, int]) -> bool:
        """A snapshot begins to come; False when nobody waits for it any more."""
        asked = self._stations.get(station)
        if asked is None or asked.asking != number:
            return False
        asked.heard = now
        asked.marks = dict(marks)
        asked.keys = set()
        for source, mark in marks.items():
            self._owners[source] = station
            numbers = self._numbers_of(source, mark)
            numbers.raise_to(mark)
            self._look(now, source, numbers, anew=True)
        return True

    def row(
        self, station: int, marks: Mapping[Source, int], key: Hashable, version: Version | None, event: Any
    ) -> bool:
        """A row of a snapshot of a station with these marks; whether it is news.

        Without a version it is of no single event: it is what the state was when the snapshot was taken.
        """
        self.counts.rows += 1
        before = self._known.get(key)
        if before is not None and (self._is_later(before.version, marks, station) or before.event == event):
            return False
        self.counts.applied += 1
        self._know(key, Known(version or _as_of(station), event))
        return True

    def coming(self, station: int, number: int, keys: Collection[Hashable]) -> bool:
        """Rows of these keys are on their way; False when nobody waits for them."""
        asked = self._stations.get(station)
        if asked is None or asked.asking != number:
            return False
        asked.keys.update(keys)
        return True

    def end(self, now: int, station: int, number: int) -> None:
        """A snapshot has come whole."""
        asked = self._stations.get(station)
        if asked is None or asked.asking != number:
            return
        asked.asking, asked.wanted, asked.heard = 0, False, now
        self._is_begun = True
        self._forget_gone(station, asked)
        self._settle_unowned(station)
        healed = not any(self._owners.get(source) in (None, station) for source in self._gapped)
        asked.pause = self._pause if healed else min(2 * asked.pause, self._longest)
        asked.next_at = now + asked.pause

    def failed(self, now: int, station: int, number: int) -> None:
        """A snapshot did not come whole: it is asked for again."""
        asked = self._stations.get(station)
        if asked is None or asked.asking != number:
            return
        self.counts.failed += 1
        asked.asking, asked.wanted = 0, True
        asked.pause = min(2 * asked.pause, self._longest)
        asked.next_at = now + asked.pause

    def told(self, now: int, station: int, marks: Mapping[Source, int] | None) -> None:
        """How far the suppliers of a station are, if it said so; all they sent before has been looked at."""
        asked = self._stations.get(station)
        if asked is None:
            return
        asked.checking, asked.heard = False, now
        for source, mark in (marks or {}).items():
            self._owners[source] = station
            numbers = self._numbers_of(source, 0)
            numbers.expected = max(numbers.expected, mark)
            self._look(now, source, numbers)

    # What goes out

    def due(self, now: int) -> list[AskForState | Check]:
        """The questions to ask now."""
        self._want_missing(now)
        actions: list[AskForState | Check] = []
        for station, one in self._stations.items():
            if one.asking:
                continue
            if one.wanted and now >= one.next_at:
                self._question += 1
                self.counts.asked += 1
                one.asking = self._question
                actions.append(AskForState(station, one.asking))
            elif not one.wanted and not one.checking and now - one.heard >= self._check:
                one.checking = True
                actions.append(Check(station))
        return actions

    def _want_missing(self, now: int) -> None:
        for source in self._gapped:
            since = self._numbers[source].missing_since
            if since is None or now - since < self._grace:
                continue
            owner = self._owners.get(source)
            for station in (owner,) if owner in self._stations else tuple(self._stations):
                one = self._stations[station]
                if not one.wanted and not one.asking:
                    self.counts.gaps += 1
                    one.wanted = True

    # Inside

    def _numbers_of(self, source: Source, first: int) -> Numbers:
        """What was received of a source; of a new one, all is expected that comes after a first snapshot."""
        numbers = self._numbers.get(source)
        if numbers is None:
            if len(self._numbers) >= MAX_SOURCES:
                self._forget_source()
            numbers = self._numbers[source] = Numbers(0 if self._is_begun else first)
        return numbers

    def _forget_source(self) -> None:
        """Forget a supplier that was not heard of for long, and misses nothing.

        When it is heard of again after all, all its events up to then are missing, and a snapshot heals that.
        """
        for _ in range(2 * len(self._numbers)):
            source, numbers = next(iter(self._numbers.items()))
            del self._numbers[source]
            if source not in self._gapped and not numbers.is_heard:
                self._owners.pop(source, None)
                return
            numbers.is_heard = False
            self._numbers[source] = numbers
        # All miss something: the oldest of them is given up, and what it misses is asked for at once.
        source = next(iter(self._numbers))
        self._gapped.discard(source)
        del self._numbers[source]
        owner = self._owners.pop(source, None)
        for station, one in self._stations.items():
            if owner in (None, station) and not one.asking:
                one.wanted = True

    def _look(self, now: int, source: Source, numbers: Numbers, *, anew: bool = False) -> None:
        if anew:
            numbers.missing_since = None
        numbers.look(now)
        if numbers.missing_since is None:
            self._gapped.discard(source)
        else:
            self._gapped.add(source)

    def _give_up(self, numbers: Numbers) -> None:
        """Too many came behind one that is missing: that is not waited for, and counts as lost at once."""
        self.counts.unhealed += numbers.missing
        numbers.raise_to(numbers.expected)
        for one in self._stations.values():
            one.wanted = one.wanted or not one.asking

    def _is_older(self, version: Version, known: Version) -> bool:
        """Whether an event was pushed before what is known of its key.

        So are those of a station that has left, where another has taken the key over.
        """
        if version.source == known.source:
            return version.sequence < known.sequence
        return self._owners.get(version.source) in self._left and self._owner(known) in self._stations

    def _is_later(self, version: Version, marks: Mapping[Source, int], station: int) -> bool:
        """Whether what is known was made by an event that a snapshot does not have."""
        mark = marks.get(version.source)
        if mark is not None:
            return version.sequence > mark
        owner = self._owner(version)
        return owner != station and owner in self._stations

    def _owner(self, version: Version) -> int | None:
        if version.epoch == 0:
            return version.sequence
        return self._owners.get(version.source)

    def _know(self, key: Hashable, known: Known) -> None:
        if key in self._known or len(self._known) < MAX_KEYS:
            self._known[key] = known

    def _forget_gone(self, station: int, asked: _Station) -> None:
        """Forget keys that the station had before, or one that has left since, and that it has no more."""
        gone = [
            key
            for key, known in self._known.items()
            if key not in asked.keys and self._is_gone(known.version, station, asked)
        ]
        for key in gone:
            del self._known[key]
        self.counts.gone += len(gone)

    def _is_gone(self, version: Version, station: int, asked: _Station) -> bool:
        owner = self._owner(version)
        if owner == station:
            return version.sequence <= asked.marks.get(version.source, version.sequence)
        left = None if owner is None else self._left.get(owner)
        return left is not None and left <= asked.met

    def _forget_station(self, station: int) -> None:
        """Nothing of a station that left long ago comes any more."""
        del self._left[station]
        for source in [source for source, owner in self._owners.items() if owner == station]:
            del self._owners[source]
            self._numbers.pop(source, None)
            self._gapped.discard(source)

    def _settle_unowned(self, station: int) -> None:
        """Numbers of suppliers of whom no station knows are given up when all were asked."""
        for source in tuple(self._gapped):
            if source in self._owners:
                continue
            numbers = self._numbers[source]
            numbers.tried.add(station)
            if numbers.tried >= self._stations.keys():
                self._settle(source)

    def _settle(self, source: Source) -> None:
        """Miss what is missing of a source for good."""
        numbers = self._numbers[source]
        self.counts.unhealed += numbers.missing
        numbers.raise_to(numbers.expected)
        numbers.missing_since = None
        self._gapped.discard(source)


def _as_of(station: int) -> Version:
    """The version of what a snapshot says that is of no single event: its epoch is 0."""
    return Version("", 0, station)

"""Many intervals of one ordered domain: which of them hold a given point?

`RangeIndex` is an interval tree whose backbone is not stored but calculated (Kriegel, Pötke and Seidl,
"Managing Intervals Efficiently in Object-Relational Databases", VLDB 2000). Points are numbers; the fork of
an interval is the longest common prefix of the bits of its two ends, and the interval lies in the node of
that prefix. All intervals of a node hold the point in its middle, so that below the middle only their low
ends decide, above it only their high ends: each node keeps them in order of both. A point visits the nodes on
its own prefixes, at most one per level that is in use. Nothing is ever rebalanced, so adding costs the same
whatever is there.

Only so many bytes of a text fit into a number. Intervals whose ends have more than that in common, as those
of `LIKE 'sensors/north/%'` have, lie in a tree of their own for each such beginning, without it.

Intervals without an end on one side are kept in order of the other, outside the tree. The first few
intervals, which are all there are in most parts of an index, lie in a table of segments instead: one search
finds them all.

Reading needs no lock while one thread writes: every table and every sorted run is published as a whole, and
one point reads one run of a node. A reader sees an entry that is being added or removed, or does not; never
anything else.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from heliograph.filters.index.regions import Interval, Point

CHUNK: Final = 512
"""Entries copied at most when one is added to or removed from a run."""
SEGMENTED: Final = 128
"""Intervals that lie in a table of segments; each may have to be entered in twice as many segments."""
_BACKBONE_BYTES: Final = 8
MAX_BEGINNINGS: Final = 64
"""How often eight bytes of a common beginning are left out; what is longer is searched in order."""
_BIAS: Final = 1 << 63


class Numbered(Protocol):
    """What runs hold: entries are numbered in the order in which they are made."""

    @property
    def number(self) -> int: ...


_number = attrgetter("number")


class SortedChunks:
    """Entries in order of their keys, in chunks that are never changed, only replaced."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        # First key of each chunk; then the chunks, as keys and entries.
        self._parts: tuple[list[Point], list[tuple[list[Point], list[Any]]]] = ([], [])

    def __bool__(self) -> bool:
        return bool(self._parts[0])

    def up_to(self, point: Point, found: list[Any]) -> None:
        """Append the entries whose key is at most `point`."""
        firsts, chunks = self._parts
        last = bisect_right(firsts, point) - 1
        if last < 0:
            return
        if last:
            for _, entries in chunks[:last]:
                found += entries
        keys, entries = chunks[last]
        found += entries[: bisect_right(keys, point)]

    def above(self, point: Point, found: list[Any]) -> None:
        """Append the entries whose key is greater than `point`."""
        firsts, chunks = self._parts
        first = bisect_right(firsts, point)
        if first:
            keys, entries = chunks[first - 1]
            found += entries[bisect_right(keys, point) :]
        if first < len(chunks):
            for _, entries in chunks[first:]:
                found += entries

    def add(self, key: Point, entry: Numbered) -> None:
        firsts, chunks = self._parts
        i = max(bisect_right(firsts, key) - 1, 0)
        keys, entries = chunks[i] if chunks else ([], [])
        j = bisect_right(keys, key)
        self._replace(i, [*keys[:j], key, *keys[j:]], [*entries[:j], entry, *entries[j:]])

    def remove(self, key: Point, entry: Numbered) -> None:
        """Take out an entry that was added under this key."""
        firsts, chunks = self._parts
        # Entries of one key may fill several chunks; among them they are in the order of their numbers.
        for i in range(max(bisect_left(firsts, key) - 1, 0), len(chunks)):
            keys, entries = chunks[i]
            start, stop = bisect_left(keys, key), bisect_right(keys, key)
            j = bisect_left(entries, entry.number, start, stop, key=_number)
            if j < stop:
                assert entries[j] is entry
                self._replace(i, keys[:j] + keys[j + 1 :], entries[:j] + entries[j + 1 :])
                return
        raise KeyError(key)

    def _replace(self, i: int, keys: list[Point], entries: list[Any]) -> None:
        firsts, chunks = self._parts
        if len(keys) <= CHUNK:
            cut = [(keys, entries)] if keys else []
        else:
            half = CHUNK // 2
            cut = [(keys[:half], entries[:half]), (keys[half:], entries[half:])]
        self._parts = (
            [*firsts[:i], *(chunk[0][0] for chunk in cut), *firsts[i + 1 :]],
            [*chunks[:i], *cut, *chunks[i + 1 :]],
        )


class _Fork:
    """One node: its intervals by their low ends and by their high ends."""

    __slots__ = ("highs", "lows")

    def __init__(self) -> None:
        self.lows = SortedChunks()
        self.highs = SortedChunks()


class _Segments:
    """A few intervals, as the segments into which their ends cut the domain, each with what covers it."""

    __slots__ = ("_members", "_parts")

    def __init__(self) -> None:
        self._members: set[Numbered] = set()
        # The ends in order; then, from before the first to behind the last, what covers each segment.
        self._parts: tuple[list[Point], list[tuple[Any, ...]]] = ([], [()])

    def __bool__(self) -> bool:
        return bool(self._members)

    def __contains__(self, entry: Numbered) -> bool:
        return entry in self._members

    @property
    def is_full(self) -> bool:
        return len(self._members) >= SEGMENTED

    def stab(self, point: Point, found: list[Any]) -> None:
        ends, covers = self._parts
        found += covers[bisect_right(ends, point)]

    def add(self, low: Point | None, high: Point | None, entry: Numbered) -> None:
        ends, covers = self._parts[0].copy(), self._parts[1].copy()
        for end in (low, high):
            place = 0 if end is None else bisect_left(ends, end)
            if end is not None and (place == len(ends) or ends[place] != end):
                ends.insert(place, end)
                covers.insert(place, covers[place])
        for i in _covered(ends, low, high):
            covers[i] = (*covers[i], entry)
        self._members.add(entry)
        self._parts = ends, covers

    def remove(self, low: Point | None, high: Point | None, entry: Numbered) -> None:
        ends, covers = self._parts[0].copy(), self._parts[1].copy()
        for i in _covered(ends, low, high):
            cover = covers[i]
            j = cover.index(entry)
            covers[i] = cover[:j] + cover[j + 1 :]
        for end in (high, low):
            # An end that no other interval has does not part anything any more.
            place = 0 if end is None else bisect_left(ends, end)
            if end is not None and covers[place] == covers[place + 1]:
                del ends[place], covers[place]
        self._members.remove(entry)
        self._parts = ends, covers


def _covered(ends: list[Point], low: Point | None, high: Point | None) -> range:
    start = 0 if low is None else bisect_right(ends, low)
    return range(start, len(ends) + 1 if high is None else bisect_left(ends, high) + 1)


class _Stratum:
    """The intervals of a domain behind one common beginning, and what lies behind longer ones."""

    __slots__ = ("_below", "_few", "_from", "_levels", "deeper")

    def __init__(self) -> None:
        self._few = _Segments()
        # None while empty, because asking an empty run costs as much as asking a full one.
        self._from: SortedChunks | None = None
        self._below: SortedChunks | None = None
        self._levels: tuple[tuple[int, dict[int, _Fork]], ...] = ()
        # By the next part of a beginning that both ends of an interval share.
        self.deeper: dict[bytes, _Stratum] = {}

    def __bool__(self) -> bool:
        return bool(self._few or self._from or self._below or self._levels or self.deeper)

    @property
    def has_room(self) -> bool:
        """Whether the next interval can lie here, whatever its ends have in common."""
        return not self._few.is_full

    def holds(self, entry: Numbered) -> bool:
        """Whether an entry lies here because there was space."""
        return entry in self._few

    def stab(self, point: Point, found: list[Any]) -> None:
        self._few.stab(point, found)
        run = self._from
        if run is not None:
            run.up_to(point, found)
        run = self._below
        if run is not None:
            run.above(point, found)
        levels = self._levels
        if not levels:
            return
        place = _place(point)
        for level, forks in levels:
            fork = forks.get(place >> level)
            if fork is None:
                continue
            if not level:
                found += _within(fork, point)
            elif place >> (level - 1) & 1:
                fork.highs.above(point, found)
            else:
                fork.lows.up_to(point, found)

    def add(self, low: Point | None, high: Point | None, entry: Numbered) -> None:
        if not self._few.is_full:
            self._few.add(low, high, entry)
        elif high is None:
            self._from = self._from or SortedChunks()
            self._from.add(low, entry)
        elif low is None:
            self._below = self._below or SortedChunks()
            self._below.add(high, entry)
        else:
            level, prefix = _fork_of(low, high)
            forks = dict(self._levels).get(level)
            if forks is None:
                forks = {}
                self._levels = (*self._levels, (level, forks))
            fork = forks.setdefault(prefix, _Fork())
            fork.lows.add(low, entry)
            fork.highs.add(high, entry)

    def remove(self, low: Point | None, high: Point | None, entry: Numbered) -> None:
        if entry in self._few:
            self._few.remove(low, high, entry)
        elif high is None:
            assert self._from is not None
            self._from.remove(low, entry)
            self._from = self._from or None
        elif low is None:
            assert self._below is not None
            self._below.remove(high, entry)
            self._below = self._below or None
        else:
            level, prefix = _fork_of(low, high)
            forks = dict(self._levels)[level]
            fork = forks[prefix]
            fork.lows.remove(low, entry)
            fork.highs.remove(high, entry)
            if not fork.lows:
                del forks[prefix]
            if not forks:
                self._levels = tuple(pair for pair in self._levels if pair[0] != level)


class RangeIndex:
    """Entries, each under an interval with at least one end."""

    __slots__ = ("_top",)

    def __init__(self) -> None:
        self._top = _Stratum()

    def __bool__(self) -> bool:
        return bool(self._top)

    def stab(self, point: Point, found: list[Any]) -> None:
        """Append the entries whose interval holds `point`."""
        stratum: _Stratum | None = self._top
        while stratum is not None:
            stratum.stab(point, found)
            if not stratum.deeper:
                return
            # A text that ends within a beginning is none of those that begin so.
            point = _raw(point)
            stratum = stratum.deeper.get(point[:_BACKBONE_BYTES])
            point = point[_BACKBONE_BYTES:]

    def add(self, low: Point | None, high: Point | None, entry: Numbered) -> None:
        stratum = self._top
        for _ in range(MAX_BEGINNINGS):
            cut = None if stratum.has_room else _behind_common(low, high)
            if cut is None:
                break
            beginning, low, high = cut
            stratum = stratum.deeper.setdefault(beginning, _Stratum())
        stratum.add(low, high, entry)

    def remove(self, low: Point | None, high: Point | None, entry: Numbered) -> None:
        """Take out an entry that was added under this interval."""
        stratum = self._top
        passed: list[tuple[_Stratum, bytes]] = []
        for _ in range(MAX_BEGINNINGS):
            cut = None if stratum.holds(entry) else _behind_common(low, high)
            if cut is None:
                break
            beginning, low, high = cut
            passed.append((stratum, beginning))
            stratum = stratum.deeper[beginning]
        stratum.remove(low, high, entry)
        for above, beginning in reversed(passed):
            if above.deeper[beginning]:
                break
            del above.deeper[beginning]


class CrossIndex:
    """Entries, each under an interval with two ends on one domain and any interval on another.

    The forks of the first domain hold an index over the second. What is found lies in its second interval,
    and near its first: whether in it is left to the caller.
    """

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: tuple[tuple[int, dict[int, RangeIndex]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self._levels)

    def stab(self, first: Point, second: Point, found: list[Any]) -> None:
        """Append the entries whose intervals can hold both points."""
        place = _place(first)
        for level, forks in self._levels:
            index = forks.get(place >> level)
            if index is not None:
                index.stab(second, found)

    def add(self, first: tuple[Point, Point], second: Interval, entry: Numbered) -> None:
        level, prefix = _fork_of(*first)
        forks = dict(self._levels).get(level)
        if forks is None:
            forks = {}
            self._levels = (*self._levels, (level, forks))
        forks.setdefault(prefix, RangeIndex()).add(*second, entry)

    def remove(self, first: tuple[Point, Point], second: Interval, entry: Numbered) -> None:
        """Take out an entry that was added under these intervals."""
        level, prefix = _fork_of(*first)
        forks = dict(self._levels)[level]
        forks[prefix].remove(*second, entry)
        if not forks[prefix]:
            del forks[prefix]
        if not forks:
            self._levels = tuple(pair for pair in self._levels if pair[0] != level)


def _place(point: Point) -> int:
    """Where a point lies on the backbone, never negative. In order, but texts with a long common beginning
    share a node: the runs of a fork compare the points themselves, so that nothing else depends on it.
    """
    if isinstance(point, int):
        return point + _BIAS
    if isinstance(point, str):
        # UTF-8 keeps the order of code points.
        point = point[:_BACKBONE_BYTES].encode("utf-8", "surrogatepass")
    return int.from_bytes(point[:_BACKBONE_BYTES].ljust(_BACKBONE_BYTES, b"\0"), "big")


def _raw(point: Any) -> bytes:
    """A text as bytes in the same order; bytes as they are."""
    return point.encode("utf-8", "surrogatepass") if isinstance(point, str) else point


def _behind_common(low: Any, high: Any) -> tuple[bytes, bytes, bytes] | None:
    """What two ends have in common, if that fills a node of the backbone, and what is left of both."""
    if low is None or high is None or isinstance(low, int):
        return None
    low, high = _raw(low), _raw(high)
    beginning = low[:_BACKBONE_BYTES]
    if len(beginning) < _BACKBONE_BYTES or high[:_BACKBONE_BYTES] != beginning:
        return None
    return beginning, low[_BACKBONE_BYTES:], high[_BACKBONE_BYTES:]


def _fork_of(low: Point, high: Point) -> tuple[int, int]:
    place = _place(low)
    level = (place ^ _place(high)).bit_length()
    return level, place >> level


def _within(fork: _Fork, point: Point) -> list[Any]:
    """At level 0 both ends of an interval share one node, and so does the point: both ends decide."""
    started: list[Any] = []
    fork.lows.up_to(point, started)
    unfinished: list[Any] = []
    fork.highs.above(point, unfinished)
    wanted = set(map(id, unfinished))
    return [entry for entry in started if id(entry) in wanted]

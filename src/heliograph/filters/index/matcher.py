"""An index over many subscriptions of one event type: which of them does an event match?

    matcher = Matcher(format_of(Track))
    handle = matcher.add(check(parse("region = 'north' AND speed > 300"), matcher.format), token=consumer)
    matcher.match(event, header)          the tokens of all that match, in the order in which they were added
    matcher.remove(handle)

The result is that of evaluating each condition by itself. Equal conditions are kept once, whatever the number
of subscriptions. Adding or removing one touches its own entries only: nothing else is compiled or moved, and
the cost hardly depends on how many there are.

Threads: `match` may be called from any number of threads at any time and takes no lock. `add` and `remove`
are for one thread at a time; the owner of the matcher serialises them. An event that is matched while a
subscription is being added or removed sees it or not; after `add` has returned every match sees it, after
`remove` none does.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from heliograph.errors import ExpressionError, FormatError
from heliograph.filters.index import compiled
from heliograph.filters.index.access import MAX_ENTRIES, Spans, access_of
from heliograph.filters.index.plan import alternatives
from heliograph.filters.index.ranges import CrossIndex, RangeIndex

if TYPE_CHECKING:
    from heliograph.filters.index.compiled import Condition, Load
    from heliograph.filters.index.regions import Interval, Point
    from heliograph.filters.python_codegen import Access as EventAccess
    from heliograph.filters.typed import Checked, Column, Node
    from heliograph.model.event import Header
    from heliograph.model.formats import Format

T = TypeVar("T")


class Handle(Generic[T]):
    """One subscription in a matcher; `remove` takes it."""

    __slots__ = ("_rule", "number", "token")

    def __init__(self, number: int, token: T, rule: _Rule[T]) -> None:
        self.number = number
        self.token = token
        self._rule = rule


class MatcherStats(msgspec.Struct, frozen=True):
    """A snapshot of what a matcher holds.

    Attributes:
        subscriptions: how many have been added and not removed.
        conditions: how many of their conditions differ.
        entries: positions in the index; a condition with OR or IN has several.
        groups: sets of columns that are looked up for each event.
        scanned: entries that no column leads to: they are evaluated for every event.
        residuals: how many different conditions are left to evaluate behind the index.
    """

    subscriptions: int
    conditions: int
    entries: int
    groups: int
    scanned: int
    residuals: int


class _Residual:
    """What the index cannot decide, compiled when it is first asked for."""

    __slots__ = ("__weakref__", "_access", "_node", "holds")

    def __init__(self, node: Node, access: EventAccess) -> None:
        self._node = node
        self._access = access
        self.holds: Condition | None = None

    def compile(self) -> Condition:
        holds = self.holds = compiled.condition(self._node, self._access)
        return holds


class _Rule(Generic[T]):
    """One condition, the subscriptions that share it, and where it lies in the index."""

    __slots__ = ("members", "node", "places")

    def __init__(self, node: Node) -> None:
        self.node = node
        # A dict for its order and cheap removal: handles are the keys.
        self.members: dict[Handle[T], None] = {}
        self.places: list[_Place[T]] = []


class _Entry(Generic[T]):
    """One position of a rule in the index, numbered in the order in which they are made."""

    __slots__ = ("number", "residual", "rule")

    def __init__(self, number: int, rule: _Rule[T], residual: _Residual | None) -> None:
        self.number = number
        self.rule = rule
        self.residual = residual


class _Place(msgspec.Struct, Generic[T], frozen=True):
    """Where an entry was put, so that it can be taken out again."""

    group: _Group[T]
    key: Any
    ranged: Column | None
    interval: Interval
    across: tuple[Column, Interval] | None
    entry: _Entry[T]


class _Bucket(Generic[T]):
    """The entries under one value of a group's columns."""

    __slots__ = ("crossed", "plain", "ranged")

    def __init__(self) -> None:
        self.plain: dict[_Entry[T], None] = {}
        self.ranged: tuple[tuple[Column, Load, RangeIndex], ...] = ()
        self.crossed: tuple[tuple[tuple[Column, Column], Load, Load, CrossIndex], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.plain or self.ranged or self.crossed)

    def range_index(self, column: Column) -> RangeIndex | None:
        return next((index for known, _, index in self.ranged if known == column), None)

    def cross_index(self, columns: tuple[Column, Column]) -> CrossIndex | None:
        return next((index for known, _, _, index in self.crossed if known == columns), None)


class _Group(Generic[T]):
    """The entries that are found by the values of the same columns."""

    __slots__ = ("buckets", "columns", "load")

    def __init__(self, columns: tuple[Column, ...], load: Load) -> None:
        self.columns = columns
        self.load = load
        self.buckets: dict[Any, _Bucket[T]] = {}


class Matcher(Generic[T]):
    """An index over subscriptions to one event type, each a checked condition with a token of the caller's.

    Events are objects with attributes, or mappings with `access="item"`.
    """

    def __init__(self, fmt: Format, *, access: EventAccess = "attr") -> None:
        self.format = fmt
        self._access = access
        self._groups: tuple[_Group[T], ...] = ()
        self._rules: dict[Node, _Rule[T]] = {}
        self._residuals: WeakValueDictionary[Node, _Residual] = WeakValueDictionary()
        self._points: dict[Column, Load] = {}
        self._spans = Spans()
        self._subscriptions = 0
        self._entries = 0
        self._next_handle = 0
        self._next_entry = 0
        # Rules with several entries may be found twice by one event; without any, that is not checked.
        self._spread_rules = 0

    def __len__(self) -> int:
        return self._subscriptions

    def match(self, event: Any, header: Header) -> list[T]:
        """The tokens of the subscriptions whose condition is TRUE, in the order in which they were added."""
        found: list[_Entry[T]] = []
        for group in self._groups:
            bucket = group.buckets.get(group.load(event, header))
            if bucket is None:
                continue
            if bucket.plain:
                found += bucket.plain
            for _, load, index in bucket.ranged:
                point = load(event, header)
                if point is not None:
                    index.stab(point, found)
            for _, load, load_second, cross in bucket.crossed:
                point = load(event, header)
                second = load_second(event, header)
                if point is not None and second is not None:
                    cross.stab(point, second, found)
        if not found:
            return []
        rules = [
            entry.rule
            for entry in found
            if (left := entry.residual) is None or (left.holds or left.compile())(event, header)
        ]
        if len(rules) > 1 and self._spread_rules:
            rules = list(dict.fromkeys(rules))
        handles: list[Handle[T]] = []
        for rule in rules:
            # One step of the interpreter, so that no other thread changes the dict meanwhile.
            handles += rule.members
        if len(rules) > 1:
            handles.sort(key=_number)
        return [handle.token for handle in handles]

    def add(self, checked: Checked, token: T) -> Handle[T]:
        """Add a subscription with a condition on this matcher's format."""
        if checked.format != self.format:
            raise FormatError(f"a condition on {checked.format} cannot join an index over {self.format}")
        if checked.node.kind != "bool":
            raise ExpressionError(
                f"a subscription needs a condition; this gives {checked.node.kind}",
                text=checked.text,
                column=1,
            )
        rule = self._rules.get(checked.node) or _Rule(checked.node)
        handle = Handle(self._next_handle, token, rule)
        rule.members[handle] = None
        if rule.node not in self._rules:
            self._insert(rule)
            self._rules[rule.node] = rule
        self._next_handle += 1
        self._subscriptions += 1
        return handle

    def remove(self, handle: Handle[T]) -> bool:
        """Remove a subscription; False when it had been removed before."""
        rule = handle._rule  # noqa: SLF001 - a handle is this module's own
        if handle not in rule.members:
            return False
        del rule.members[handle]
        self._subscriptions -= 1
        if not rule.members:
            del self._rules[rule.node]
            for place in rule.places:
                self._take_out(place)
            self._spread_rules -= len(rule.places) > 1
            rule.places.clear()
        return True

    def stats(self) -> MatcherStats:
        root = next((group for group in self._groups if not group.columns), None)
        return MatcherStats(
            subscriptions=self._subscriptions,
            conditions=len(self._rules),
            entries=self._entries,
            groups=len(self._groups),
            scanned=len(root.buckets[()].plain) if root else 0,
            residuals=len(self._residuals),
        )

    def _insert(self, rule: _Rule[T]) -> None:
        ways = alternatives(rule.node)
        for way in ways:
            self._spans.learn(way)
        budget = max(MAX_ENTRIES // max(len(ways), 1), 1)
        for way in ways:
            known = {group.columns for group in self._groups}
            access = access_of(way, budget, self._spans, known)
            residual = self._residual(access.residual)
            group = self._group(access.columns)
            for points in access.keys:
                for interval in access.intervals or ((None, None),):
                    entry = _Entry(self._next_entry, rule, residual)
                    self._next_entry += 1
                    rule.places.append(
                        _Place(group, _key(points), access.ranged, interval, access.across, entry)
                    )
        # Before the first of several entries can be found, the check for the second must be on.
        self._spread_rules += len(rule.places) > 1
        for place in rule.places:
            self._put_in(place)

    def _residual(self, node: Node | None) -> _Residual | None:
        if node is None:
            return None
        residual = self._residuals.get(node)
        if residual is None:
            residual = self._residuals[node] = _Residual(node, self._access)
        return residual

    def _group(self, columns: tuple[Column, ...]) -> _Group[T]:
        for group in self._groups:
            if group.columns == columns:
                return group
        group = _Group(columns, compiled.key(columns, self._access))
        self._groups = (*self._groups, group)
        return group

    def _point(self, column: Column) -> Load:
        load = self._points.get(column)
        if load is None:
            load = self._points[column] = compiled.point(column, self._access)
        return load

    def _put_in(self, place: _Place[T]) -> None:
        self._entries += 1
        bucket = place.group.buckets.get(place.key)
        if bucket is None:
            bucket = place.group.buckets[place.key] = _Bucket()
        if place.ranged is None:
            bucket.plain[place.entry] = None
        elif place.across is None:
            index = bucket.range_index(place.ranged)
            if index is None:
                index = RangeIndex()
                bucket.ranged = (*bucket.ranged, (place.ranged, self._point(place.ranged), index))
            index.add(*place.interval, place.entry)
        else:
            first, interval = place.across
            cross = bucket.cross_index((first, place.ranged))
            if cross is None:
                cross = CrossIndex()
                loads = self._point(first), self._point(place.ranged)
                bucket.crossed = (*bucket.crossed, ((first, place.ranged), *loads, cross))
            cross.add(interval, place.interval, place.entry)

    def _take_out(self, place: _Place[T]) -> None:
        self._entries -= 1
        group = place.group
        bucket = group.buckets[place.key]
        if place.ranged is None:
            del bucket.plain[place.entry]
        elif place.across is None:
            index = bucket.range_index(place.ranged)
            assert index is not None
            index.remove(*place.interval, place.entry)
            if not index:
                bucket.ranged = tuple(part for part in bucket.ranged if part[-1] is not index)
        else:
            first, interval = place.across
            cross = bucket.cross_index((first, place.ranged))
            assert cross is not None
            cross.remove(interval, place.interval, place.entry)
            if not cross:
                bucket.crossed = tuple(part for part in bucket.crossed if part[-1] is not cross)
        if not bucket:
            del group.buckets[place.key]
        if not group.buckets:
            self._groups = tuple(other for other in self._groups if other is not group)


_number = attrgetter("number")


def _key(points: tuple[Point | None, ...]) -> Any:
    """As `compiled.key` gives it for an event."""
    return points[0] if len(points) == 1 else points

"""The index gives what evaluating each subscription gives, whatever is added and removed in between."""

from __future__ import annotations

import enum
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import heliograph as hg
from heliograph.filters.check import check
from heliograph.filters.index import Matcher, ranges
from heliograph.filters.index.ranges import RangeIndex
from heliograph.filters.index.regions import rank, unrank
from heliograph.filters.parser import parse
from heliograph.filters.reference import evaluate
from heliograph.model.event import Header, format_of
from tests.support import examples

WHEN = datetime(2026, 11, 5, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(hg.Event):
    depth: int
    name: str | None = None


class Sample(hg.Event, name="sample"):
    i: int
    f: float
    s: str
    b: bool
    u: hg.u64
    g: hg.f32
    t: datetime
    c: Colour
    raw: bytes
    inner: Inner
    price: Annotated[Decimal, hg.Digits(12, 4)]
    marks: dict[str, int]
    by_colour: dict[Colour, str]
    oi: int | None = None
    of: float | None = None
    os: str | None = None
    ob: bool | None = None
    tags: list[int] | None = None
    op: Annotated[Decimal, hg.Digits(10, 2)] | None = None


FORMAT = format_of(Sample)
NO_HEADER: Any = None

# Few values, so that conditions and events meet; the edges of every domain are among them.
INTS = [0, 1, 2, 3, 7, 8, -1, -8, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
WIDES = [0, 1, 8, 2**63 - 1, 2**63, 2**64 - 1]
FLOATS = [0.0, -0.0, 1.0, 1.5, 2.0, -2.5, 3.0, 5e-324, 1e308, 2.0**53, math.inf, -math.inf, math.nan]
SINGLES = [0.0, -0.0, 0.1, 1.5, 3.4e38, math.inf, math.nan]
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "abcdefghi",
    "abcdefghij",
    "abcdefghik",
    "b",
    "é",
    "\U0010ffff",
    "a\0",
    "ab\U0010ffff",
]
DECIMALS = list(map(Decimal, ("0.00", "10.25", "-10.25", "0.01", "99999999.99", "-99999999.99")))
TIMES = [WHEN, WHEN + timedelta(microseconds=1), WHEN - timedelta(days=400), datetime(1, 1, 1, tzinfo=UTC)]

# Columns and the parameters that they can be compared with; integers and floats are compared across.
NUMBERS = {
    "i": INTS + FLOATS,
    "f": FLOATS + INTS,
    "u": WIDES + FLOATS,
    "g": FLOATS,
    "oi": INTS + FLOATS,
    "of": FLOATS,
}
COLUMNS: dict[str, list[Any]] = {
    **NUMBERS,
    "s": TEXTS,
    "os": TEXTS,
    "inner.name": TEXTS,
    "inner.depth": INTS,
    "t": TIMES,
    "header.priority": [1, 2, 3],
    "header.user['trace']": TEXTS,
    "raw": [t.encode() for t in TEXTS],
    "price": [*DECIMALS, Decimal("10.2501"), 10.25, 0.1, 3],
    "op": [*DECIMALS, Decimal("10.2501"), 10.25, 0.1, 3],
    "marks['a']": [0, 1, 2, 3, 7, 8, -1],
    "by_colour['red']": TEXTS,
}
NULLABLE = [
    "op",
    "marks['a']",
    "by_colour['blue']",
    "oi",
    "of",
    "os",
    "ob",
    "tags",
    "inner.name",
    "header.offset",
]


class Conditions:
    """Draws a condition's text, gathering the values that it names as parameters."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.params: dict[str, Any] = {}

    def _value(self, values: list[Any]) -> str:
        name = f"p{len(self.params)}"
        self.params[name] = self._draw(st.sampled_from(values))
        return f":{name}"

    def test(self) -> str:
        column = self._draw(st.sampled_from(list(COLUMNS)))
        values = COLUMNS[column]
        match self._draw(st.integers(0, 11)):
            case 0 | 1 | 2 | 3:
                op = self._draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
                return f"{column} {op} {self._value(values)}"
            case 4:
                return f"{self._value(values)} {self._draw(st.sampled_from(['=', '<', '>=']))} {column}"
            case 5:
                return f"{column} BETWEEN {self._value(values)} AND {self._value(values)}"
            case 6:
                items = ", ".join(self._value([*values, None]) for _ in range(self._draw(st.integers(1, 3))))
                return f"{column} {self._draw(st.sampled_from(['', 'NOT ']))}IN ({items})"
            case 7:
                test = self._draw(st.sampled_from(["IS NULL", "IS NOT NULL"]))
                return f"{self._draw(st.sampled_from(NULLABLE))} {test}"
            case 8:
                pattern = self._draw(
                    st.sampled_from(["a%", "ab%", "abcdefghi%", "%b", "a_c", "\U0010ffff%", "%", "ab"])
                )
                self.params[f"p{len(self.params)}"] = pattern
                return (
                    f"{self._draw(st.sampled_from(['s', 'os', 'inner.name']))} LIKE :p{len(self.params) - 1}"
                )
            case 9:
                return self._draw(
                    st.sampled_from(
                        [
                            "b",
                            "ob",
                            "b = FALSE",
                            "ob <> TRUE",
                            "c = 'red'",
                            "c <> 'red'",
                            "map_contains(marks, 'a')",
                        ]
                    )
                )
            case 10:
                return self._draw(
                    st.sampled_from(["i + oi > 2", "f = of", "length(s) > 1", "TRUE", "FALSE", "NULL"])
                )
            case _:
                return f"lower({self._draw(st.sampled_from(['s', 'os']))}) >= {self._value(TEXTS)}"

    def condition(self, depth: int) -> str:
        if depth == 0 or self._draw(st.booleans()):
            return self.test()
        match self._draw(st.integers(0, 2)):
            case 0:
                return f"NOT ({self.condition(depth - 1)})"
            case 1:
                return (
                    "("
                    + " AND ".join(self.condition(depth - 1) for _ in range(self._draw(st.integers(2, 4))))
                    + ")"
                )
            case _:
                return (
                    "("
                    + " OR ".join(self.condition(depth - 1) for _ in range(self._draw(st.integers(2, 3))))
                    + ")"
                )


@st.composite
def checked_conditions(draw: st.DrawFn) -> Any:
    conditions = Conditions(draw)
    text = conditions.condition(draw(st.integers(0, 3)))
    return check(parse(text, conditions.params), FORMAT)


def maybe(values: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from([*values, None])


EVENTS = st.builds(
    Sample,
    i=st.sampled_from(INTS),
    f=st.sampled_from([*FLOATS, 1, 2**53 + 1]),
    s=st.sampled_from(TEXTS),
    b=st.booleans(),
    u=st.sampled_from(WIDES),
    g=st.sampled_from(SINGLES),
    t=st.sampled_from(TIMES),
    c=st.sampled_from(Colour),
    raw=st.sampled_from([t.encode() for t in TEXTS]),
    price=st.sampled_from([*DECIMALS, Decimal("10.2501")]),
    marks=st.sampled_from([{}, {"a": 1}, {"a": 7, "b": 1}, {"b": 2}]),
    by_colour=st.sampled_from([{}, {Colour.RED: "a"}, {Colour.BLUE: "b"}]),
    op=maybe(DECIMALS),
    inner=st.builds(Inner, depth=st.sampled_from(INTS), name=maybe(TEXTS)),
    oi=maybe(INTS),
    of=maybe(FLOATS),
    os=maybe(TEXTS),
    ob=maybe([True, False]),
    tags=maybe([[], [1]]),
)
HEADERS = st.builds(
    Header,
    channel=st.just("samples"),
    type=st.just("sample"),
    supplier=st.just("s"),
    epoch=st.just(1),
    sequence=st.just(1),
    source_ts=st.just(0),
    format_id=st.just(FORMAT.id),
    priority=st.integers(1, 3),
    offset=maybe([0, 1]),
    headers=st.one_of(st.none(), st.dictionaries(st.just("trace"), st.sampled_from(TEXTS))),
)


SEGMENTED = st.sampled_from([0, 4, ranges.SEGMENTED])


def few_in_segments(n: int) -> Any:
    """Send all but the first n intervals into the tree, which otherwise takes many to begin."""
    return mock.patch.object(ranges, "SEGMENTED", n)


@settings(max_examples=examples(250))
@given(
    conditions=st.lists(checked_conditions(), min_size=1, max_size=12),
    steps=st.lists(st.integers(0, 40), max_size=40),
    rows=st.lists(st.tuples(EVENTS, HEADERS), min_size=1, max_size=6),
    segmented=SEGMENTED,
)
def test_matching_is_evaluating_each_subscription(
    conditions: list[Any], steps: list[int], rows: list[Any], segmented: int
) -> None:
    with few_in_segments(segmented):
        check_matcher(conditions, steps, rows)


def check_matcher(conditions: list[Any], steps: list[int], rows: list[Any]) -> None:
    matcher: Matcher[int] = Matcher(FORMAT)
    live: list[tuple[int, Any, Any]] = []
    added = 0

    def agrees() -> None:
        for event, header in rows:
            expected = [token for token, node, _ in live if evaluate(node, event, header) is True]
            assert matcher.match(event, header) == expected

    # Even steps add one of the conditions (so that equal ones meet), odd steps remove one that is there.
    for step in [*range(0, 2 * len(conditions), 2), *steps]:
        if step % 2 and live:
            _, _, handle = live.pop(step % len(live))
            assert matcher.remove(handle)
        else:
            checked = conditions[step // 2 % len(conditions)]
            live.append((added, checked.node, matcher.add(checked, added)))
            added += 1
        assert len(matcher) == len(live)
    agrees()
    while len(live) > 1:
        assert matcher.remove(live.pop(len(live) // 2)[2])
    agrees()
    for _, _, handle in live:
        matcher.remove(handle)
    live.clear()
    agrees()
    stats = matcher.stats()
    assert (stats.subscriptions, stats.conditions, stats.entries, stats.groups) == (0, 0, 0, 0)


# Crowded, so that many an event lies just beside a box.
SIDES = st.tuples(st.integers(0, 9), st.integers(1, 5))
PLACES = st.sampled_from([None, *range(-1, 15)])


@settings(max_examples=examples(150))
@given(
    boxes=st.lists(st.tuples(SIDES, SIDES, SIDES), min_size=5, max_size=25),
    places=st.lists(st.tuples(st.integers(-1, 14), PLACES, PLACES), min_size=5, max_size=20),
    event=EVENTS,
    segmented=SEGMENTED,
)
def test_boxes_hold_the_events_that_lie_in_all_their_ranges(
    boxes: list[Any], places: list[Any], event: Sample, segmented: int
) -> None:
    matcher: Matcher[int] = Matcher(FORMAT)
    text = "i BETWEEN :a AND :A AND oi BETWEEN :b AND :B AND of >= :c AND of < :C"
    # A box that covers everything sets the span, so that the others count as narrow.
    boxes = [((-1, 50), (-1, 50), (-1, 50)), *boxes]

    def inside(box: Any, place: Any) -> bool:
        (a, wide_a), (b, wide_b), (c, wide_c) = box
        i, oi, of = place
        if oi is None or of is None:
            return False
        return bool(a <= i <= a + wide_a and b <= oi <= b + wide_b and c <= of < c + wide_c)

    def agrees(live: dict[int, Any]) -> None:
        for place in places:
            row = replace(event, i=place[0], oi=place[1], of=place[2])
            expected = [number for number in sorted(live) if inside(boxes[number], place)]
            assert matcher.match(row, NO_HEADER) == expected

    with few_in_segments(segmented):
        live: dict[int, Any] = {}
        for number, ((a, wide_a), (b, wide_b), (c, wide_c)) in enumerate(boxes):
            params = {"a": a, "A": a + wide_a, "b": b, "B": b + wide_b, "c": c, "C": c + wide_c}
            live[number] = matcher.add(check(parse(text, params), FORMAT), number)
        agrees(live)
        for number in range(0, len(boxes), 2):
            assert matcher.remove(live.pop(number))
        agrees(live)
        for handle in live.values():
            assert matcher.remove(handle)
    assert matcher.stats().groups == matcher.stats().entries == 0


class Numbered:
    def __init__(self, number: int) -> None:
        self.number = number


POINTS = st.one_of(
    st.lists(st.integers(-(2**63), 2**64), min_size=1, max_size=40, unique=True),
    st.lists(st.integers(-20, 20), min_size=1, max_size=40),
    st.lists(st.text("ab\0é\U0010ffff", max_size=11), min_size=1, max_size=40),
    st.lists(st.text("ab\0", max_size=3).map("01234567".__add__), min_size=1, max_size=40),
    st.lists(st.binary(max_size=10), min_size=1, max_size=40),
)


@settings(max_examples=examples(200))
@given(
    points=POINTS,
    pairs=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=40),
    segmented=SEGMENTED,
    data=st.data(),
)
def test_a_point_finds_exactly_the_intervals_that_hold_it(
    points: list[Any], pairs: list[tuple[int, int]], segmented: int, data: st.DataObject
) -> None:
    with few_in_segments(segmented):
        check_index(points, pairs, data)


def check_index(points: list[Any], pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    index = RangeIndex()
    ends = [None, *sorted(points)]
    intervals = []
    for number, (a, b) in enumerate(pairs):
        low, high = ends[a % len(ends)], ends[b % len(ends)]
        if (low is None and high is None) or (low is not None and high is not None and low >= high):
            continue
        entry = Numbered(number)
        intervals.append((low, high, entry))
        index.add(low, high, entry)
    while intervals:
        for point in points:
            found: list[Numbered] = []
            index.stab(point, found)
            expected = [
                entry
                for low, high, entry in intervals
                if (low is None or low <= point) and (high is None or point < high)
            ]
            assert sorted(found, key=id) == sorted(expected, key=id)
        for _ in range(data.draw(st.integers(1, 10))):
            if intervals:
                index.remove(*intervals.pop(data.draw(st.integers(0, len(intervals) - 1))))
    assert not index


@settings(max_examples=examples(300))
@given(a=st.floats(), b=st.floats())
def test_ranks_order_floats_with_nan_above_all_and_one_zero(a: float, b: float) -> None:
    ordered = (math.isnan(a), 0.0 if math.isnan(a) else a) < (math.isnan(b), 0.0 if math.isnan(b) else b)
    assert (rank(a) < rank(b)) == ordered
    assert rank(unrank(rank(a))) == rank(a)

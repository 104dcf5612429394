"""The index over many subscriptions: its cost at 10 and at 100,000, and the cost of adding and removing.

Events are drawn so that about as many subscriptions match at either size: what is compared is finding them,
not handing over more of them.
"""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING, Any

import heliograph as hg
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark
from heliograph.filters.check import check
from heliograph.filters.index import Matcher
from heliograph.filters.parser import parse
from heliograph.filters.python import compile_one
from heliograph.model.event import format_of

if TYPE_CHECKING:
    from heliograph.filters.typed import Checked

MANY = 100_000
PER_REGION = 100
SPAN = 1000.0
BAND, LIMIT, THREE = "equality and band", "equality and limit", "three ranges"
NO_HEADER: Any = None
"""None of the conditions looks at it."""


class Track(hg.Event, name="air.track"):
    id: int
    speed: float
    region: str
    altitude: float = 0.0


FORMAT = format_of(Track)


class Population:
    """Subscriptions to regions and speeds, and events that about one of them matches."""

    def __init__(self, n: int, seed: int) -> None:
        self._chance = random.Random(seed)
        self._per_region = min(PER_REGION, max(n // 10, 1))
        self._regions = max(n // self._per_region, 1)

    def _region(self) -> str:
        return f"region-{self._chance.randrange(self._regions)}"

    def subscription(self, kind: str) -> Checked:
        chance = self._chance
        if kind == THREE:
            # Each range is a fiftieth of its span.
            a, b, c, width = *(chance.uniform(0, SPAN) for _ in range(3)), SPAN / 50
            params: dict[str, Any] = {
                "a": a,
                "A": a + width,
                "b": int(b),
                "B": int(b + width),
                "c": c,
                "C": c + width,
            }
            text = "speed BETWEEN :a AND :A AND id BETWEEN :b AND :B AND altitude BETWEEN :c AND :C"
        elif kind == BAND:
            # The bands of one region together cover the span about once.
            low = chance.uniform(0, SPAN)
            params = {"r": self._region(), "low": low, "high": low + SPAN / self._per_region}
            text = "region = :r AND speed BETWEEN :low AND :high"
        else:
            params = {"r": self._region(), "low": chance.uniform(0, SPAN)}
            text = "region = :r AND speed > :low"
        return check(parse(text, params), FORMAT)

    def event(self, kind: str) -> Track:
        chance = self._chance
        # Fast enough for about one of the limits of a region.
        speed = SPAN / self._per_region if kind == LIMIT else chance.uniform(0, SPAN)
        return Track(chance.randrange(int(SPAN)), speed, self._region(), chance.uniform(0, SPAN))


@cache
def _subscriptions(kind: str, n: int, seed: int) -> list[Checked]:
    population = Population(n, seed)
    return [population.subscription(kind) for _ in range(n)]


def _filled(conditions: list[Checked]) -> Matcher[int]:
    matcher: Matcher[int] = Matcher(FORMAT)
    for number, checked in enumerate(conditions):
        matcher.add(checked, number)
    return matcher


@benchmark("subscriptions-match", "One event against 10 and against 100,000 subscriptions")
def match(size: Size) -> Benchmark:
    cases: list[Case] = []
    hits = []
    agree = True
    for kind in (BAND, LIMIT, THREE):
        for n, label in ((10, "10"), (size.scaled(MANY), "100,000")):
            conditions = _subscriptions(kind, n, size.seed)
            matcher = _filled(conditions)
            population = Population(n, size.seed + 1)
            # What is left to evaluate is compiled when it is first met: few events keep that short.
            events = [population.event(kind) for _ in range(20 if kind == THREE else 200)]
            matches = sum(len(matcher.match(event, NO_HEADER)) for event in events) / len(events)
            hits.append(f"{kind}, {label}: {matches:.2f}")
            agree = agree and _agrees(matcher, conditions, events[:3])
            cases.append(Case(f"{kind}, {label}", matcher.match, tuple((e, NO_HEADER) for e in events)))
            if kind == BAND and n > 10:
                cases.append(_one_by_one(conditions[:1000], events))
    return Benchmark(
        tuple(cases),
        f"{BAND}, 10",
        tuple(
            Target(f"{kind}: 100,000 against 10", f"{kind}, 100,000", "at most", 5.0, f"{kind}, 10")
            for kind in (BAND, LIMIT)
        ),
        (Fact("the index gives what evaluating each subscription gives", agree),),
        f"{PER_REGION} subscriptions per region at 100,000. Matches per event: {'; '.join(hits)}.",
    )


def _one_by_one(conditions: list[Checked], events: list[Track]) -> Case:
    """What it costs without an index, at a size that can still be compiled in a moment."""
    each = [(number, compile_one(checked)) for number, checked in enumerate(conditions)]

    def evaluate_all(event: Track, header: None) -> list[int]:
        return [number for number, matches in each if matches(event, header)]

    inputs = tuple((event, NO_HEADER) for event in events[:20])
    return Case(f"{BAND}, 1,000 without index", evaluate_all, inputs, "each by its own function")


def _agrees(matcher: Matcher[int], conditions: list[Checked], events: list[Track]) -> bool:
    # Compiling all of 100,000 takes long; a part of them shows a difference as well.
    part = range(0, len(conditions), max(len(conditions) // 500, 1))
    compiled = {number: compile_one(conditions[number]) for number in part}
    return all(
        [number for number in matcher.match(event, NO_HEADER) if number in compiled]
        == [number for number, matches in compiled.items() if matches(event, NO_HEADER)]
        for event in events
    )


@benchmark("subscriptions-push", "A push that one of 10, and one of 1,000 consumers of a channel wants")
def push(size: Size) -> Benchmark:
    station = hg.Station()
    many = size.scaled(1000)
    cases = []
    for n, label in ((10, "10"), (many, "1,000")):
        channel = station.channel(f"c{n}", Track)
        for number in range(n):
            channel.subscribe(
                _take, where="id = :id", params={"id": number}, overflow="drop_oldest", queue=10
            )
        cases.append(Case(f"{label} consumers", channel.push, ((Track(n // 2, 1.0, "r"),),), "one wants it"))
    return Benchmark(
        tuple(cases),
        "10 consumers",
        (Target("1,000 consumers against 10", "1,000 consumers", "at most", 2.0, "10 consumers"),),
        close=station.close,
    )


def _take(_: Track) -> None:
    """The callback: nothing."""


@benchmark("subscriptions-change", "Adding and removing one of 100,000 subscriptions")
def change(size: Size) -> Benchmark:
    cases: list[Case] = []
    n, changes = size.scaled(MANY), 20 if size.quick else 200
    for kind in (BAND, LIMIT, THREE):
        matcher = _filled(_subscriptions(kind, n, size.seed))
        population = Population(n, size.seed + 1)
        fresh = tuple((population.subscription(kind),) for _ in range(changes))

        def replace(checked: Checked, matcher: Matcher[int] = matcher) -> None:
            matcher.remove(matcher.add(checked, -1))

        cases.append(Case(kind, replace, fresh, "added, then removed", alone=True))
    return Benchmark(
        tuple(cases),
        BAND,
        tuple(
            Target(f"{kind}: adding and removing one", kind, "at most", 1.0) for kind in (BAND, LIMIT, THREE)
        ),
        note=f"{n} subscriptions are there.",
    )

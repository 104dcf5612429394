"""One event against 20 different subscriptions: the merged function that is generated for them, against the
same conditions written by hand in one function, and against one function per subscription.
"""

# ruff: noqa: PLR0124 - comparing a float with itself is how a careful programmer asks for NaN in a hurry

from __future__ import annotations

import random
from typing import Any

import heliograph as hg
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark
from heliograph.filters.check import check
from heliograph.filters.index import Matcher
from heliograph.filters.parser import parse
from heliograph.filters.python import compile_merged, compile_one
from heliograph.filters.reference import evaluate
from heliograph.model.event import format_of


class Track(hg.Event, name="air.track"):
    id: int
    lat: float
    lon: float
    speed: float
    region: str
    altitude: float | None = None
    squawk: int | None = None
    callsign: str | None = None


NO_HEADER: Any = None
"""None of the conditions looks at it."""

TEXTS = (
    "speed > 300",
    "speed > 300 AND region = 'north'",
    "speed > 900 AND altitude > 10000",
    "region = 'south'",
    "region IN ('east', 'west')",
    "lat BETWEEN 47 AND 55 AND lon BETWEEN 6 AND 15",
    "altitude < 1000",
    "altitude >= 1000 AND altitude < 5000",
    "altitude IS NULL",
    "squawk = 7700",
    "squawk IN (7500, 7600, 7700)",
    "NOT (squawk = 7000)",
    "callsign LIKE 'DLH%'",
    "callsign IS NOT NULL AND speed < 100",
    "id % 10 = 3",
    "speed * 1.852 > 1000",
    "lat > 60 OR lat < -60",
    "region <> 'north' AND speed <= 250",
    "altitude > 12000 OR squawk = 7700 OR speed > 1200",
    "NOT (region = 'north' OR altitude > 3000)",
)


def by_hand(e: Track, _header: None) -> list[int]:
    """The conditions of TEXTS as a careful programmer writes them: NULL is never TRUE, NaN is above all."""
    found = []
    speed, region, lat, lon = e.speed, e.region, e.lat, e.lon
    altitude, squawk, callsign = e.altitude, e.squawk, e.callsign
    fast = speed > 300 or speed != speed
    if fast:
        found.append(0)
        if region == "north":
            found.append(1)
    if (
        (speed > 900 or speed != speed)
        and altitude is not None
        and (altitude > 10000 or altitude != altitude)
    ):
        found.append(2)
    if region == "south":
        found.append(3)
    if region in {"east", "west"}:
        found.append(4)
    if 47 <= lat <= 55 and 6 <= lon <= 15:
        found.append(5)
    if altitude is not None:
        if altitude < 1000:
            found.append(6)
        if 1000 <= altitude < 5000:
            found.append(7)
    else:
        found.append(8)
    if squawk is not None:
        if squawk == 7700:
            found.append(9)
        if squawk in {7500, 7600, 7700}:
            found.append(10)
        if squawk != 7000:
            found.append(11)
    if callsign is not None:
        if callsign.startswith("DLH"):
            found.append(12)
        if speed < 100:
            found.append(13)
    if (e.id % 10 if e.id >= 0 else -(-e.id % 10)) == 3:
        found.append(14)
    if (knots := speed * 1.852) > 1000 or knots != knots:
        found.append(15)
    if lat > 60 or lat != lat or lat < -60:
        found.append(16)
    if region != "north" and speed <= 250:
        found.append(17)
    if (
        (altitude is not None and (altitude > 12000 or altitude != altitude))
        or (squawk is not None and squawk == 7700)
        or speed > 1200
        or speed != speed
    ):
        found.append(18)
    if region != "north" and altitude is not None and altitude <= 3000:
        found.append(19)
    return found


def _tracks(size: Size) -> list[Track]:
    chance = random.Random(size.seed)

    def maybe(value: Any) -> Any:
        return value if chance.random() < 0.7 else None

    return [
        Track(
            id=chance.randrange(1_000_000),
            lat=chance.uniform(-90, 90),
            lon=chance.uniform(-180, 180),
            speed=float("nan") if chance.random() < 0.02 else chance.uniform(0, 1300),
            region=chance.choice(["north", "south", "east", "west"]),
            altitude=maybe(chance.uniform(0, 14000)),
            squawk=maybe(chance.choice([7000, 7700, 7500, 1234])),
            callsign=maybe(chance.choice(["DLH123", "AFR9", "BAW77"])),
        )
        for _ in range(200)
    ]


@benchmark("filters", "One event against 20 different subscriptions")
def filters(size: Size) -> Benchmark:
    fmt = format_of(Track)
    checked = [check(parse(text), fmt) for text in TEXTS]
    merged = compile_merged(checked)
    single = [compile_one(one) for one in checked]
    matcher: Matcher[int] = Matcher(fmt)
    for number, one in enumerate(checked):
        matcher.add(one, number)

    def one_by_one(event: Track, header: None) -> list[int]:
        return [number for number, matches in enumerate(single) if matches(event, header)]

    def interpreted(event: Track, header: None) -> list[int]:
        return [number for number, one in enumerate(checked) if evaluate(one.node, event, header) is True]

    tracks = _tracks(size)
    ways = (by_hand, merged, one_by_one, matcher.match, interpreted)
    agree = all(len({tuple(way(track, NO_HEADER)) for way in ways}) == 1 for track in tracks)
    inputs = tuple((track, NO_HEADER) for track in tracks)
    matches = sum(len(merged(track, NO_HEADER)) for track in tracks) / len(tracks)
    return Benchmark(
        cases=(
            Case("by hand", by_hand, inputs, "one function"),
            Case("heliograph merged", merged, inputs),
            Case("heliograph one by one", one_by_one, inputs, "20 generated functions"),
            Case("heliograph index", matcher.match, inputs, "meant for more than about 100"),
            Case("reference", interpreted, inputs[:20], "walks the tree"),
        ),
        baseline="by hand",
        targets=(Target("merged against by hand", "heliograph merged", "at most", 1.5, "by hand"),),
        facts=(Fact("all five give the same matches", agree),),
        note=f"{matches:.1f} of the 20 match on average; three of eight fields are optional and often NULL, "
        "2 % of the speeds are NaN.",
    )

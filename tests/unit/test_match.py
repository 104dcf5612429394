"""The index over many subscriptions: what it keeps, what it evaluates, and who sees what when."""

from __future__ import annotations

import random
import sys
import threading
from types import new_class
from typing import Any

import pytest

import heliograph as hg
from heliograph.errors import ExpressionError, FormatError
from heliograph.filters.check import check, check_value
from heliograph.filters.index import Handle, Matcher, compiled
from heliograph.filters.index.access import MAX_ENTRIES, MAX_GROUPS
from heliograph.filters.index.plan import MAX_ALTERNATIVES, alternatives
from heliograph.filters.index.ranges import CHUNK, SortedChunks
from heliograph.filters.parser import parse
from heliograph.model.event import format_of


class Track(hg.Event, name="air.track"):
    id: int
    speed: float
    region: str = "unknown"
    alt: float | None = None


FORMAT = format_of(Track)


def condition(text: str, **params: Any) -> Any:
    return check(parse(text, params), FORMAT)


def matcher_of(*texts: str) -> Matcher[str]:
    matcher: Matcher[str] = Matcher(FORMAT)
    for text in texts:
        matcher.add(condition(text), text)
    return matcher


def matched(matcher: Matcher[Any], event: Any) -> list[Any]:
    return matcher.match(event, None)  # type: ignore[arg-type]


def counting_conditions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects what is compiled from now on."""
    made: list[Any] = []
    original = compiled.condition

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(compiled, "condition", counted)
    return made


def test_tokens_come_in_the_order_in_which_subscriptions_were_added() -> None:
    texts = [
        "speed > 3",
        "id = 1",
        "TRUE",
        "id IN (0, 1)",
        "region LIKE 'n%'",
        "speed > 3 OR id = 1",
        "speed > 2",
    ]
    assert matched(matcher_of(*texts), Track(1, 4.0, "north")) == texts


def test_an_event_that_matches_several_alternatives_of_one_subscription_is_given_once() -> None:
    matcher = matcher_of("id = 1 OR speed > 3 OR region = 'north'")
    assert len(matched(matcher, Track(1, 4.0, "north"))) == 1
    assert matcher.stats().entries == 3


def test_equal_conditions_are_kept_once_and_leave_one_by_one() -> None:
    matcher: Matcher[int] = Matcher(FORMAT)
    handles = [matcher.add(condition("speed > 3 AND id + 1 > 0"), token) for token in range(3)]
    assert matcher.stats().conditions == matcher.stats().entries == 1
    assert matcher.remove(handles[1])
    assert matched(matcher, Track(1, 4.0)) == [0, 2]
    assert matcher.remove(handles[0])
    assert matcher.remove(handles[2])
    assert matched(matcher, Track(1, 4.0)) == []
    assert matcher.stats().residuals == 0


def test_removing_twice_says_so_and_changes_nothing() -> None:
    matcher: Matcher[int] = Matcher(FORMAT)
    first, _ = matcher.add(condition("id = 1"), 1), matcher.add(condition("id = 1"), 2)
    assert matcher.remove(first)
    assert not matcher.remove(first)
    assert len(matcher) == 1
    assert matched(matcher, Track(1, 0.0)) == [2]


def test_a_condition_on_another_format_is_refused() -> None:
    class Other(hg.Event):
        id: int

    matcher: Matcher[int] = Matcher(FORMAT)
    with pytest.raises(FormatError, match=r"a condition on Other .* cannot join an index over air\.track"):
        matcher.add(check(parse("id = 1"), format_of(Other)), 1)


def test_a_value_is_no_condition() -> None:
    matcher: Matcher[int] = Matcher(FORMAT)
    with pytest.raises(ExpressionError, match="needs a condition; this gives float"):
        matcher.add(check_value(parse("speed * 2"), FORMAT), 1)


def test_what_the_index_decides_is_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        "region = 'north' AND speed BETWEEN 1 AND 5",
        "id IN (1, 2) AND alt IS NULL",
        "id > 0.5",
        "speed <> 3",
    ]
    matcher = matcher_of(*texts)
    monkeypatch.setattr(compiled, "condition", lambda *_: pytest.fail("evaluated"))
    assert matched(matcher, Track(1, 4.0, "north")) == texts
    assert matcher.stats().scanned == matcher.stats().residuals == 0


def test_what_is_left_is_compiled_once_and_only_for_events_that_get_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = counting_conditions(monkeypatch)
    matcher = matcher_of("region = 'north' AND id % 2 = 0", "region = 'south' AND id % 2 = 0")
    assert matched(matcher, Track(2, 0.0, "west")) == []
    assert made == []
    for region in ("north", "south", "north"):
        assert len(matched(matcher, Track(2, 0.0, region))) == 1
        assert matched(matcher, Track(1, 0.0, region)) == []
    assert len(made) == 1


def test_adding_compiles_nothing_for_those_already_there(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = matcher_of("region = 'north' AND speed > 3 AND id % 2 = 0")
    matched(matcher, Track(2, 4.0, "north"))
    for name in ("condition", "point", "key"):
        monkeypatch.setattr(compiled, name, lambda *_: pytest.fail("compiled"))
    handle = matcher.add(condition("region = 'south' AND speed > 5"), "new")
    assert matched(matcher, Track(2, 6.0, "south")) == ["new"]
    matcher.remove(handle)


def test_a_condition_that_is_never_true_takes_no_place() -> None:
    matcher = matcher_of("id > 3 AND id < 3", "FALSE", "NULL", "speed = 1 AND speed = 2 AND id % 2 = 1")
    assert matcher.stats().entries == 0
    assert matched(matcher, Track(3, 1.0)) == []


def test_long_lists_and_many_alternatives_are_evaluated_instead_of_spread() -> None:
    many = ", ".join(str(2 * n) for n in range(MAX_ENTRIES + 1))
    wide = " OR ".join(f"(id = {n} AND speed = {n})" for n in range(MAX_ALTERNATIVES + 1))
    matcher = matcher_of(f"id IN ({many})", wide)
    assert matcher.stats().entries == 2
    assert len(matched(matcher, Track(4, 4.0))) == 2
    assert matched(matcher, Track(5, 4.0)) == []


def test_and_is_spread_over_or_only_while_that_stays_small() -> None:
    either = [f"(id > {n} OR speed > {n})" for n in range(12)]
    ways = alternatives(condition(" AND ".join(either)).node)
    assert 1 < len(ways) <= MAX_ALTERNATIVES


def test_the_narrowest_range_leads_to_a_subscription() -> None:
    matcher = matcher_of("speed BETWEEN 0 AND 1000 AND alt BETWEEN 0 AND 1000")
    wanted = condition("speed BETWEEN 5 AND 900 AND alt BETWEEN 500 AND 501")
    matcher.add(wanted, "wanted")
    columns = {column.path for column, _, _ in matcher._groups[0].buckets[()].ranged}
    assert columns == {"speed", "alt"}
    assert matched(matcher, Track(1, 6.0, alt=500.5))[-1] == "wanted"


def test_two_ranges_together_leave_few_to_evaluate(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    matcher: Matcher[int] = Matcher(FORMAT)
    text = "speed BETWEEN :a AND :A AND id BETWEEN :b AND :B AND alt BETWEEN :c AND :C"
    boxes = [[chance.randrange(1000) for _ in "abc"] for _ in range(1000)]
    for token, (a, b, c) in enumerate(boxes):
        matcher.add(condition(text, a=a, A=a + 20, b=b, B=b + 20, c=c, C=c + 20), token)
    made = counting_conditions(monkeypatch)
    wanted = boxes[500]
    assert matched(matcher, Track(wanted[1], float(wanted[0]), alt=float(wanted[2]))) == [
        token
        for token, box in enumerate(boxes)
        if all(low <= value <= low + 20 for low, value in zip(box, wanted, strict=True))
    ]
    assert 1 <= len(made) < 10


def test_more_sets_of_columns_than_groups_share_the_groups_there_are() -> None:
    names = [f"c{n}" for n in range(MAX_GROUPS + 3)]
    fields = dict.fromkeys(names, int) | {"maybe": int | None}
    wide: Any = new_class("Wide", (hg.Event,), {}, lambda body: body.update(__annotations__=fields))
    matcher: Matcher[str] = Matcher(format_of(wide))
    for name in names:
        matcher.add(check(parse(f"{name} = 1"), matcher.format), name)
    for text in ("c0 = 1 AND c1 = 1", "maybe IS NULL", "maybe IS NULL AND c0 = 1", "c0 = 1 AND c2 = 1"):
        matcher.add(check(parse(text), matcher.format), text)
    assert matcher.stats().groups <= MAX_GROUPS + 1
    values = dict.fromkeys(names, 0) | {"c0": 1, "c1": 1, names[-1]: 1}
    common = ["c0", "c1", names[-1], "c0 = 1 AND c1 = 1"]
    assert matched(matcher, wide(**values, maybe=7)) == common
    assert matched(matcher, wide(**values, maybe=None)) == [
        *common,
        "maybe IS NULL",
        "maybe IS NULL AND c0 = 1",
    ]


@pytest.mark.parametrize(
    ("text", "intervals"),
    [
        ("id NOT IN (4, 5)", ((None, 4), (6, None))),
        ("id NOT IN (4, 5) AND id > 2 AND id <= 7", ((3, 4), (6, 8))),
        ("NOT (id <= 2 OR 8 <= id)", ((3, 8),)),
    ],
)
def test_predicates_on_one_column_become_one_region(text: str, intervals: Any) -> None:
    (way,) = alternatives(condition(text).node)
    assert [made.region.intervals for made in way.constraints.values()] == [intervals]


def test_mappings_are_matched_as_objects_are() -> None:
    matcher: Matcher[int] = Matcher(FORMAT, access="item")
    matcher.add(condition("region = 'north' AND speed > 3 AND id % 2 = 0"), 1)
    assert matched(matcher, {"id": 2, "speed": 4.0, "region": "north", "alt": None}) == [1]


class Numbered:
    def __init__(self, number: int) -> None:
        self.number = number


def test_a_run_of_many_chunks_keeps_its_order_through_additions_and_removals() -> None:
    chance = random.Random(7)
    run, kept = SortedChunks(), []
    for number in range(5 * CHUNK):
        # Few keys, so that one key fills several chunks.
        key, entry = chance.randrange(4), Numbered(number)
        run.add(key, entry)
        kept.append((key, entry))
    chance.shuffle(kept)
    while kept:
        for point in (-1, 0, 2, 3):
            low: list[Numbered] = []
            high: list[Numbered] = []
            run.up_to(point, low)
            run.above(point, high)
            assert {e.number for e in low} == {e.number for k, e in kept if k <= point}
            assert {e.number for e in high} == {e.number for k, e in kept if k > point}
            assert len(low) + len(high) == len(kept)
        for _ in range(min(300, len(kept))):
            run.remove(*kept.pop())
    assert not run


def test_matching_threads_see_each_subscription_wholly_while_others_come_and_go() -> None:
    matcher: Matcher[str] = Matcher(FORMAT)
    texts = ["region = 'north' AND speed BETWEEN 1 AND 5", "speed > 2", "id = 1 OR speed < 9", "id % 2 = 1"]
    for text in texts:
        matcher.add(condition(text), text)
    passing = [condition(f"speed BETWEEN {n / 100} AND {4 + n / 100} OR id = {n}") for n in range(150)]
    wrong: list[list[str]] = []
    done = threading.Event()

    def read() -> None:
        event = Track(1, 3.0, "north")
        while not done.is_set():
            steady = [token for token in matched(matcher, event) if token != "passing"]
            if steady != texts:
                wrong.append(steady)

    readers = [threading.Thread(target=read) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for reader in readers:
            reader.start()
        for _ in range(4):
            handles: list[Handle[str]] = [matcher.add(checked, "passing") for checked in passing]
            for handle in handles:
                matcher.remove(handle)
    finally:
        done.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(interval)
    assert wrong == []
    assert len(matcher) == len(texts)

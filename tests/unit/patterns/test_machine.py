"""Patterns told as stories: what comes when, and which matches it gives."""

from __future__ import annotations

from typing import Any

from heliograph.patterns.machine import Correlator, Match
from heliograph.patterns.pattern import AllOf, Pattern, after, all_of, any_of, every, none_of

S = 1_000_000_000


class Stream:
    """Stands for a channel."""

    def as_stream(self) -> Stream:
        return self


A, B, C, X = Stream(), Stream(), Stream(), Stream()


def told(
    pattern: Pattern, *story: tuple[float, str] | float, names: str
) -> list[tuple[float, dict[str, Any]]]:
    """The matches of a story: (second, event of the leaf of its letter), or a second that passes."""
    machine = Correlator(pattern, start=0)
    return [(match.at / S, match.values) for match in _matches(machine, story, names)]


def _matches(machine: Correlator, story: tuple[Any, ...], names: str) -> list[Match]:
    found = []
    for step in story:
        if isinstance(step, tuple):
            second, event = step
            found += machine.offer(names.index(event[0]), None, event, round(second * S))
        else:
            found += machine.advance(round(step * S))
    return found


def test_a_conjunction_gives_one_match_of_all_its_events_in_any_order_and_starts_anew() -> None:
    pattern = all_of(a=A, b=B, c=C)
    story = [(1, "c1"), (2, "a1"), (3, "b1"), (4, "a2"), (5, "b2"), (6, "c2")]
    assert told(pattern, *story, names="abc") == [
        (3, {"a": "a1", "b": "b1", "c": "c1"}),
        (6, {"a": "a2", "b": "b2", "c": "c2"}),
    ]


def test_of_several_that_wait_under_one_name_the_latest_counts() -> None:
    machine = Correlator(all_of(a=A, b=B), start=0)
    found = _matches(machine, ((1, "a1"), (2, "a2"), (3, "b1"), (4, "b2")), "ab")
    assert [match.values for match in found] == [{"a": "a2", "b": "b1"}]
    assert machine.counts.superseded == 1


def test_the_latest_are_used_again_when_asked_for() -> None:
    pattern = all_of(a=A, b=B, reuse="latest")
    assert told(pattern, (1, "a1"), (2, "b1"), (3, "b2"), (4, "a2"), names="ab") == [
        (2, {"a": "a1", "b": "b1"}),
        (3, {"a": "a1", "b": "b2"}),
        (4, {"a": "a2", "b": "b2"}),
    ]


def test_events_further_apart_than_the_window_are_no_match() -> None:
    machine = Correlator(all_of(a=A, b=B, within=1.0), start=0)
    found = _matches(machine, ((1, "a1"), (2.5, "b1"), (3.5, "a2")), "ab")
    assert [(match.at / S, match.values) for match in found] == [(3.5, {"a": "a2", "b": "b1"})]
    assert machine.counts.expired == 1


def test_a_disjunction_gives_each_event_under_its_name() -> None:
    assert told(any_of(a=A, b=B), (1, "b1"), (2, "a1"), names="ab") == [(1, {"b": "b1"}), (2, {"a": "a1"})]


def test_patterns_inside_patterns_are_mappings_inside_matches() -> None:
    pattern = all_of(x=any_of(a=A, b=B), y=all_of(c=C, d=X))
    assert told(pattern, (1, "c1"), (2, "b1"), (3, "d1"), names="abcd") == [
        (3, {"x": {"b": "b1"}, "y": {"c": "c1", "d": "d1"}})
    ]


def test_an_absence_is_known_when_the_window_has_closed() -> None:
    pattern = all_of(order=A, unpaid=none_of(paid=B), within=5.0)
    assert told(pattern, (1, "a1"), (2, "a2"), 5.9, 6.0, 20, names="ab") == [
        (6, {"order": "a1"}),
        (7, {"order": "a2"}),
    ]


def test_what_must_not_come_refutes_what_waits() -> None:
    machine = Correlator(all_of(order=A, unpaid=none_of(paid=B), within=5.0), start=0)
    found = _matches(machine, ((0.5, "b0"), (1, "a1"), (3, "b1"), (4, "a2"), 30), "ab")
    assert [(match.at / S, match.values) for match in found] == [(9, {"order": "a2"})]
    assert machine.counts.refuted == 1


def test_silence_is_said_once_and_again_only_after_somebody_spoke() -> None:
    machine = Correlator(none_of(beat=A, within=2.0), start=0)
    found = _matches(machine, ((1, "a1"), (2.5, "a2"), 10, 20, (21, "a3"), 22.9, 23), "a")
    assert [(match.at / S, match.missing) for match in found] == [(4.5, ("beat",)), (23, ("beat",))]


def test_the_watchdog_names_what_was_missing_and_is_set_back_by_each_match() -> None:
    machine = Correlator(all_of(a=A, b=B, watchdog=3.0), start=0)
    found = _matches(machine, ((1, "a1"), (2, "b1"), (4, "a2"), 5, 50, (51, "b2"), 60), "ab")
    assert [(match.at / S, match.values, match.missing) for match in found] == [
        (2, {"a": "a1", "b": "b1"}, ()),
        (5, {"a": "a2"}, ("b",)),
        (51, {"a": "a2", "b": "b2"}, ()),
        (54, {}, ("a", "b")),
    ]


def test_where_the_latest_are_used_again_the_watchdog_names_what_has_not_come_since_the_last_match() -> None:
    machine = Correlator(all_of(a=A, b=B, reuse="latest", watchdog=3.0), start=0)
    found = _matches(machine, ((1, "a1"), 4, (5, "b1"), (6, "a2"), 50, (51, "b2")), "ab")
    assert [(match.at / S, match.values, match.missing) for match in found] == [
        (3, {"a": "a1"}, ("b",)),
        (5, {"a": "a1", "b": "b1"}, ()),
        (6, {"a": "a2", "b": "b1"}, ()),
        (9, {}, ("a", "b")),
        (51, {"a": "a2", "b": "b2"}, ()),
    ]


def test_a_deadline_that_is_met_again_and_again_never_fires() -> None:
    machine = Correlator(all_of(a=A, watchdog=0.080), start=0)
    found = _matches(machine, tuple((n * 0.050, f"a{n}") for n in range(1, 101)), "a")
    assert [match.missing for match in found] == [()] * 100


def test_an_interval_of_a_tenth_second_ticks_fifty_times_in_five_seconds_without_drift() -> None:
    machine = Correlator(every(0.1), start=7)
    found = machine.advance(7 + 5 * S)
    assert [match.at for match in found] == [7 + n * S // 10 for n in range(1, 51)]


def test_an_interval_and_an_event_together_give_one_match_for_each_tick() -> None:
    machine = Correlator(all_of(tick=every(0.2), a=A), start=0)
    found = _matches(machine, (*((n * 0.01, f"a{n}") for n in range(1, 501)),), "_a")
    assert len(found) == 25


def test_a_single_timeout_or_the_events_whatever_is_first() -> None:
    pattern = any_of(both=all_of(a=A, b=B), late=after(3.0))
    assert told(pattern, (1, "a1"), (2, "b1"), 10, names="ab_") == [
        (2, {"both": {"a": "a1", "b": "b1"}}),
        (3, {"late": 3 * S}),
    ]


def test_time_does_not_go_back() -> None:
    assert told(all_of(a=A, b=B, within=1.0), (5, "a1"), (3, "b1"), names="ab") == [
        (5, {"a": "a1", "b": "b1"})
    ]


def keyed(**options: Any) -> AllOf:
    return all_of(a=A, b=B, by="region", **options)


def test_each_key_has_a_set_of_its_own_and_is_forgotten_when_nothing_waits() -> None:
    machine = Correlator(keyed(), start=0)
    assert machine.offer(0, "north", "a1", 1) == []
    assert machine.offer(1, "south", "b1", 2) == []
    assert machine.keys == 2
    assert machine.offer(1, "north", "b2", 3) == [Match("north", 3, {"a": "a1", "b": "b2"}, ())]
    assert machine.keys == 1


def test_the_key_that_was_quiet_for_longest_gives_way_and_is_counted() -> None:
    machine = Correlator(keyed(keys=2), start=0)
    machine.offer(0, "north", "a1", 1)
    machine.offer(0, "south", "a2", 2)
    machine.offer(0, "north", "a3", 3)
    machine.offer(0, "west", "a4", 4)
    assert machine.counts.evicted == 1
    assert machine.offer(1, "north", "b1", 5) != []
    assert machine.offer(1, "south", "b2", 6) == []


def test_what_waits_for_windows_to_close_is_bounded() -> None:
    machine = Correlator(all_of(a=A, no=none_of(x=X), within=1.0, depth=2), start=0)
    found = _matches(machine, ((0.1, "a1"), (0.2, "a2"), (0.3, "a3"), 9), "ax")
    assert [match.values for match in found] == [{"a": "a2"}, {"a": "a3"}]
    assert machine.counts.overflowed == 1


def test_instants_that_nobody_waits_for_any_more_do_not_pile_up_behind_a_quiet_key() -> None:
    machine = Correlator(all_of(a=A, b=B, by="id", watchdog=3600.0), start=0)
    machine.offer(0, "quiet", "a", 1)
    for at in range(2, 2_000):
        machine.offer(0, "busy", "a", at)
        machine.offer(1, "busy", "b", at)
    assert len(machine._wakes) < 100
    (missed,) = machine.advance(3_600 * S + 1)
    assert missed.key == "quiet"


def test_the_machine_says_when_it_wants_to_be_asked_again() -> None:
    machine = Correlator(keyed(watchdog=3.0), start=0)
    assert (machine.due, machine.keys) == (None, 0)
    machine.offer(0, "north", "a1", 1 * S)
    machine.offer(0, "south", "a2", 2 * S)
    assert machine.due == 4 * S
    assert [match.key for match in machine.advance(4 * S)] == ["north"]
    assert machine.due == 5 * S

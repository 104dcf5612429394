"""When a watchdog asks, ends and begins a service."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.delivery.watchdog import FIRST_WAIT, LONGEST_WAIT, EndService, Ping, Start, WatchdogMachine
from tests.support import examples

SECOND = 1_000_000_000


def test_a_service_that_ends_is_begun_again_within_a_ping_period() -> None:
    machine = WatchdogMachine(ping=1.0, now=0)
    assert machine.due(0) == [Start()]
    machine.started(0)
    machine.answered(9 * SECOND)
    machine.ended(10 * SECOND)
    assert machine.due(10 * SECOND) == []
    assert machine.due(10 * SECOND + FIRST_WAIT) == [Start()]


def test_one_that_answers_is_asked_and_left_alone_and_one_that_hangs_is_ended_once() -> None:
    machine = WatchdogMachine(ping=1.0, now=0)
    machine.due(0)
    machine.started(0)
    for second in range(1, 20):
        assert machine.due(second * SECOND) == [Ping()]
        machine.answered(second * SECOND)
    assert machine.due(21 * SECOND) == [EndService()]
    assert machine.due(22 * SECOND) == []
    machine.ended(23 * SECOND)
    assert machine.due(24 * SECOND) == [Start()]


def test_one_that_cannot_begin_is_tried_less_often() -> None:
    machine = WatchdogMachine(ping=1.0, now=0)
    now, waits = 0, []
    for _ in range(12):
        begun = next(
            at for at in range(now, now + 2 * LONGEST_WAIT, FIRST_WAIT) if Start() in machine.due(at)
        )
        waits.append(begun - now)
        machine.started(begun)
        now = begun + 1
        machine.ended(now)
    assert waits == sorted(waits)
    assert waits[-1] >= LONGEST_WAIT


def test_one_that_has_answered_is_begun_again_at_once_however_often_it_is_killed() -> None:
    machine = WatchdogMachine(ping=1.0, now=0)
    machine.due(0)
    now = 0
    for _ in range(20):
        machine.started(now)
        machine.answered(now + SECOND // 10)
        machine.ended(now + SECOND // 5)
        now += SECOND // 5 + FIRST_WAIT
        assert machine.due(now) == [Start()]


@given(st.lists(st.tuples(st.integers(1, SECOND), st.sampled_from(["", "answer", "die"])), max_size=60))
@settings(max_examples=examples(100), deadline=None)
def test_whatever_happens_it_is_begun_once_at_a_time_and_never_ended_while_it_answers(
    steps: list[tuple[int, str]],
) -> None:
    machine, now, running, heard = WatchdogMachine(ping=1.0, now=0), 0, False, 0
    for passed, what in steps:
        now += passed
        if running and what == "answer":
            heard = now
            machine.answered(now)
        elif running and what == "die":
            running = False
            machine.ended(now)
        for action in machine.due(now):
            if isinstance(action, Start):
                assert not running
                running, heard = True, now
                machine.started(now)
            else:
                assert running
                assert isinstance(action, Ping) or now - heard >= 2 * SECOND

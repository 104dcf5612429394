"""Timers in a simulated world, where time is exact, and under real threads."""

from __future__ import annotations

import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import Closed, TooManyTimers
from heliograph.runtime.ports import SystemClock, ThreadTasks
from heliograph.runtime.timers import Timer, Timers
from heliograph.sim import Simulation
from heliograph.testing import JumpingClock
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000_000


def simulated(story: Callable[[Simulation, Timers], None], seed: int = 7) -> None:
    simulation = Simulation(seed=seed)

    def main() -> None:
        timers = Timers(simulation.clock, simulation.tasks)
        story(simulation, timers)
        timers.close()

    simulation.run(main)


def test_timers_ring_in_the_order_of_their_instants() -> None:
    def story(simulation: Simulation, timers: Timers) -> None:
        rung: list[str] = []
        for seconds in (0.3, 0.1, 0.2):
            timers.after(seconds, lambda s=seconds: rung.append(f"{s}"))  # type: ignore[misc]  # bound now
        simulation.tasks.sleep(1)
        assert rung == ["0.1", "0.2", "0.3"]
        assert len(timers) == 0

    simulated(story)


def test_an_interval_keeps_to_its_grid_though_its_calls_take_long() -> None:
    def story(simulation: Simulation, timers: Timers) -> None:
        start = simulation.clock.monotonic_ns()
        rung: list[int] = []

        def ring() -> None:
            rung.append((simulation.clock.monotonic_ns() - start) // MS)
            simulation.tasks.sleep(0.030)

        timers.every(0.1, ring)
        simulation.tasks.sleep(1.05)
        assert rung == [100 * n for n in range(1, 11)]

    simulated(story)


def test_what_an_interval_missed_is_skipped() -> None:
    clock = JumpingClock()
    timers = Timers(clock, ByHand())
    rung: list[int] = []
    timer = timers.every(10.0, lambda: rung.append(1))
    clock.advance(35)
    timers.run_due()
    clock.advance(4)
    timers.run_due()
    assert len(rung) == 1
    clock.advance(1)
    timers.run_due()
    assert len(rung) == 2
    assert timer.cancel()
    timers.close()


def test_a_cancelled_timer_does_not_ring_and_one_that_rang_cannot_be_cancelled() -> None:
    def story(simulation: Simulation, timers: Timers) -> None:
        rung: list[str] = []
        one = timers.after(0.1, lambda: rung.append("one"))
        two = timers.after(0.2, lambda: rung.append("two"))
        assert one.cancel()
        assert not one.cancel()
        simulation.tasks.sleep(1)
        assert rung == ["two"]
        assert not two.cancel()

    simulated(story)


def test_an_interval_may_end_itself_and_a_call_may_set_timers() -> None:
    def story(simulation: Simulation, timers: Timers) -> None:
        rung: list[str] = []

        def ring() -> None:
            rung.append("interval")
            if len(rung) == 2:
                interval.cancel()
                timers.after(0.5, lambda: rung.append("last"))

        interval = timers.every(0.1, ring)
        simulation.tasks.sleep(2)
        assert rung == ["interval", "interval", "last"]

    simulated(story)


def test_an_earlier_timer_is_not_kept_waiting_by_a_later_one() -> None:
    """The task sleeps for the later one already."""

    def story(simulation: Simulation, timers: Timers) -> None:
        rung: list[str] = []
        timers.after(100, lambda: rung.append("late"))
        simulation.tasks.sleep(0.1)
        timers.after(0.1, lambda: rung.append("early"))
        simulation.tasks.sleep(0.2)
        assert rung == ["early"]

    simulated(story)


def test_a_call_that_raises_is_logged_and_the_next_one_rings(caplog: pytest.LogCaptureFixture) -> None:
    rung = threading.Event()
    timers = Timers(SystemClock(), ThreadTasks())
    timers.after(0, lambda: 1 / 0)
    timers.after(0.001, rung.set)
    assert rung.wait(10)
    assert "ZeroDivisionError" in caplog.text
    timers.close()


def test_more_timers_than_there_is_room_for_are_refused() -> None:
    timers = Timers(JumpingClock(), ThreadTasks(), limit=2)
    first = timers.after(10, lambda: None)
    timers.after(10, lambda: None)
    with pytest.raises(TooManyTimers) as caught:
        timers.after(10, lambda: None)
    assert caught.value.retriable
    first.cancel()
    timers.after(10, lambda: None)
    timers.close()
    with pytest.raises(Closed):
        timers.after(10, lambda: None)


def test_scheduling_and_cancelling_leave_no_memory_behind() -> None:
    timers = Timers(JumpingClock(), ThreadTasks())

    def churn() -> None:
        for _ in range(100_000):
            timers.after(1000, print).cancel()

    kept = timers.after(2000, print)
    churn()
    tracemalloc.start()
    try:
        churn()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 64_000, "a few places wait to be cleared away, not 100,000"
    assert kept.cancel()
    timers.close()


class ByHand(ThreadTasks):
    """Starts nothing: only the test calls what is due."""

    def spawn(self, name: str, run: Callable[[], object]) -> Any:
        """See the class."""


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("pass"), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=examples(300))
def test_exactly_the_live_timers_ring_when_their_time_has_come(steps: list[tuple[str, int]]) -> None:
    clock = JumpingClock()
    timers = Timers(clock, ByHand())
    now = 0
    waiting: dict[int, int] = {}
    rung: list[int] = []
    expected: list[int] = []
    made: list[Timer] = []
    for kind, number in steps:
        if kind == "set":
            name = len(made)
            made.append(timers.after(number, lambda n=name: rung.append(n)))  # type: ignore[misc]  # bound now
            waiting[name] = now + number
        elif kind == "cancel" and made:
            name = number % len(made)
            assert made[name].cancel() == (waiting.pop(name, None) is not None)
        elif kind == "pass":
            now += number
            clock.advance(number)
            timers.run_due()
            due = sorted((due, name) for name, due in waiting.items() if due <= now)
            expected += [name for _, name in due]
            for _, name in due:
                del waiting[name]
            assert rung == expected
    timers.close()

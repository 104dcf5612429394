"""A pool of tasks: what runs at once, what waits, and who is left when there is nothing to do."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from heliograph.errors import Closed, NoThreadLeft
from heliograph.runtime.ports import ThreadTasks
from heliograph.runtime.task_pool import TaskPool
from heliograph.sim import Simulation
from tests.support import ScarceTasks


@pytest.mark.parametrize("limit", [1, 3])
def test_calls_beyond_the_limit_wait_in_their_order(limit: int) -> None:
    simulation = Simulation(seed=1)
    running: list[int] = []
    most: list[int] = []
    begun: list[int] = []

    def main() -> None:
        pool = TaskPool(simulation.tasks, "pool", limit=limit)

        def work(n: int) -> None:
            begun.append(n)
            running.append(n)
            most.append(len(running))
            simulation.tasks.sleep(1.0)
            running.remove(n)

        for n in range(10):
            pool.submit(partial(work, n))
        pool.close()

    simulation.run(main)
    assert sorted(begun) == list(range(10))
    assert max(most) == limit
    if limit == 1:  # others begin at the same instant
        assert begun == sorted(begun)


def test_a_task_without_work_ends_but_for_the_resident_ones() -> None:
    simulation = Simulation(seed=2)

    def main() -> tuple[int, int]:
        pool = TaskPool(simulation.tasks, "pool", limit=4, resident=1, idle_seconds=1.0)
        for _ in range(4):
            pool.submit(partial(simulation.tasks.sleep, 0.5))
        simulation.tasks.sleep(0.1)
        busy = len(pool)
        simulation.tasks.sleep(60.0)
        left = len(pool)
        pool.close()
        return busy, left

    assert simulation.run(main) == (4, 1)


@pytest.mark.parametrize("seed", range(10))
def test_calls_that_wait_for_each_other_step_aside_and_leave_room(seed: int) -> None:
    simulation = Simulation(seed=seed)

    def main() -> bool:
        pool = TaskPool(simulation.tasks, "pool", limit=1)
        done = simulation.tasks.event()

        def waits() -> None:
            pool.step_aside()
            try:
                done.wait()
            finally:
                pool.step_back()

        for _ in range(3):
            pool.submit(waits)
        pool.submit(done.set)
        found = done.wait(10.0)
        pool.close()
        return found

    assert simulation.run(main)


def test_what_a_call_raises_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    pool = TaskPool(ThreadTasks(), "pool", limit=1)
    called = threading.Event()
    pool.submit(lambda: 1 / 0)
    pool.submit(called.set)
    assert called.wait(10.0)
    pool.close()
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_calls_that_wait_are_served_though_the_task_has_been_ended() -> None:
    pool = TaskPool(ThreadTasks(), "pool", limit=1)
    called, go_on = threading.Event(), threading.Event()

    def ends() -> None:
        assert go_on.wait(10.0)
        raise SystemExit

    pool.submit(ends)
    pool.submit(called.set)
    go_on.set()
    assert called.wait(10.0)
    pool.close()


def test_where_no_task_can_be_started_the_call_waits_for_one_that_is_there() -> None:
    tasks = ScarceTasks()
    pool = TaskPool(tasks, "pool", limit=2)
    go_on, called = threading.Event(), threading.Event()
    pool.submit(lambda: go_on.wait(10.0))
    tasks.left = 0
    pool.submit(called.set)
    assert not called.is_set()
    go_on.set()
    assert called.wait(10.0)
    pool.close()


def test_where_no_task_can_be_started_at_all_the_call_is_run_when_one_can() -> None:
    tasks = ScarceTasks()
    tasks.prepare()
    pool = TaskPool(tasks, "pool", limit=1)
    called: list[int] = []
    both = threading.Event()
    tasks.left = 0
    pool.submit(partial(called.append, 1))
    pool.submit(partial(called.append, 2))
    pool.submit(both.set)
    assert not called
    tasks.left = 1
    assert both.wait(10.0)
    assert called == [1, 2], "the first that was submitted goes first"
    assert tasks.stalls.counts == {"pool": 1}
    pool.close()


def test_a_pool_that_never_had_a_task_has_run_what_was_submitted_when_it_is_closed() -> None:
    tasks = ScarceTasks()
    tasks.prepare()
    pool = TaskPool(tasks, "pool", limit=2)
    called: list[int] = []
    tasks.left = 0
    pool.submit(partial(called.append, 1))
    pool.close()
    assert called == [1]


def test_a_pool_that_is_started_needs_no_other_thread() -> None:
    tasks = ScarceTasks()
    pool = TaskPool(tasks, "pool", limit=2, resident=1)
    tasks.left = 0
    with pytest.raises(NoThreadLeft):
        pool.start()
    tasks.left = 1
    pool.start()
    pool.start()
    called: list[int] = []
    for n in range(20):
        pool.submit(partial(called.append, n))
    pool.close()
    assert called == list(range(20))


def test_a_closed_pool_has_run_what_was_submitted_and_takes_no_more() -> None:
    pool = TaskPool(ThreadTasks(), "pool", limit=2)
    called: list[int] = []
    for n in range(20):
        pool.submit(partial(called.append, n))
    pool.close()
    assert sorted(called) == list(range(20))
    assert len(pool) == 0
    with pytest.raises(Closed):
        pool.submit(lambda: None)

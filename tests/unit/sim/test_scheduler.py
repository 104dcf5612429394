"""Turns, time and endings under a seed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import QueueClosed, SimDeadlock, SimStuck, SimTaskFailed, SimulationError
from heliograph.sim import Killed, Simulation
from heliograph.sim import scheduler as scheduler_module
from tests.conformance.ports_contract import ctrl_c_until_heard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.runtime.ports import Lock, Queue, Task

SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def busy_story(simulation: Simulation) -> list[tuple[int, int]]:
    """Writers, readers, sleeps and files enough for many interleavings."""
    tasks = simulation.tasks
    queue: Queue[tuple[int, int]] = tasks.queue("work", 2)
    received: list[tuple[int, int]] = []

    def write(writer: int) -> None:
        for i in range(5):
            queue.put((writer, i))
            tasks.sleep(simulation.random.uniform() / 100)

    def read() -> None:
        try:
            while True:
                received.extend(queue.take(2))
                with simulation.disk.open("log") as log:
                    log.append(repr(received[-1]).encode())
                    log.sync()
        except QueueClosed:
            return

    def main() -> None:
        simulation.disk.create("log").close()
        writers = [tasks.spawn("writer", lambda n=n: write(n)) for n in range(3)]  # type: ignore[misc]  # a default that binds
        readers = [tasks.spawn("reader", read) for _ in range(2)]
        for writer in writers:
            writer.join()
        queue.close()
        for reader in readers:
            reader.join()

    simulation.run(main)
    return received


@pytest.mark.parametrize("step_ns", [0, 1_000_000])
def test_the_same_seed_gives_the_same_run_call_by_call(step_ns: int) -> None:
    def record(seed: int) -> tuple[object, ...]:
        simulation = Simulation(seed, step_ns=step_ns)
        received = busy_story(simulation)
        return received, list(simulation.trace.last), simulation.trace.digest

    first = [record(seed) for seed in range(50)]
    assert first == [record(seed) for seed in range(50)]
    assert len({trace[-1] for trace in first}) == 50, "each seed took its own way"


def test_the_trace_says_who_called_which_port_when() -> None:
    simulation = Simulation(1)

    def main() -> None:
        simulation.tasks.sleep(1.5)
        simulation.disk.create("a").append(b"abc")

    simulation.run(main)
    assert [tuple(call) for call in simulation.trace.last] == [
        (0, "main", "sleep", "1.5"),
        (1_500_000_000, "main", "disk.create", "a"),
        (1_500_000_000, "main", "disk.append", "a"),
    ]
    assert simulation.trace.count == 3


def test_time_jumps_to_the_next_deadline_and_is_exact() -> None:
    simulation = Simulation(1)
    woken: list[tuple[str, int]] = []

    def sleep(name: str, seconds: float) -> None:
        simulation.tasks.sleep(seconds)
        woken.append((name, simulation.clock.monotonic_ns() - start))

    start = simulation.clock.monotonic_ns()

    def main() -> None:
        year = 365 * 86_400.0
        tasks = [
            simulation.tasks.spawn(name, lambda name=name, s=s: sleep(name, s))  # type: ignore[misc]  # a default that binds
            for name, s in (("year", year), ("hour", 3600.0), ("ns", 1e-9))
        ]
        for task in tasks:
            task.join()

    simulation.run(main)
    assert woken == [("ns", 1), ("hour", 3600 * SECOND), ("year", 365 * 86_400 * SECOND)]


def test_time_stands_still_while_anybody_can_run_unless_calls_take_time() -> None:
    def elapsed(step_ns: int) -> int:
        simulation = Simulation(1, step_ns=step_ns)
        return simulation.run(
            lambda: (
                -simulation.clock.monotonic_ns() + [simulation.clock.monotonic_ns() for _ in range(99)][-1]
            )
        )

    assert elapsed(0) == 0
    assert 0 < elapsed(1000) <= 99_000


def test_when_calls_take_time_a_time_out_can_overtake_work() -> None:
    def overtaken(seed: int) -> bool:
        simulation = Simulation(seed, step_ns=1_000_000)
        event = simulation.tasks.event("done")

        def work() -> None:
            for _ in range(10):
                simulation.clock.monotonic_ns()
            event.set()

        def main() -> bool:
            simulation.tasks.spawn("worker", work)
            return not event.wait(0.005)

        return simulation.run(main)

    assert {overtaken(seed) for seed in range(30)} == {True, False}


def test_some_seed_finds_a_race_and_the_seed_finds_it_again() -> None:
    def total(seed: int) -> int:
        simulation = Simulation(seed)
        counter = 0

        def add() -> None:
            nonlocal counter
            seen = counter
            simulation.clock.monotonic_ns()
            counter = seen + 1

        def main() -> None:
            for task in [simulation.tasks.spawn("adder", add) for _ in range(2)]:
                task.join()

        simulation.run(main)
        return counter

    totals = [total(seed) for seed in range(20)]
    assert set(totals) == {1, 2}
    assert totals == [total(seed) for seed in range(20)]


def test_some_seed_lets_another_task_in_right_after_a_lock_is_released() -> None:
    def total(seed: int) -> int:
        simulation = Simulation(seed)
        lock = simulation.tasks.lock("counter")
        counter = 0

        def add() -> None:
            nonlocal counter
            with lock:
                seen = counter
            counter = seen + 1

        def main() -> None:
            for task in [simulation.tasks.spawn("adder", add) for _ in range(2)]:
                task.join()

        simulation.run(main)
        return counter

    assert {total(seed) for seed in range(20)} == {1, 2}


def test_a_wait_that_timed_out_is_forgotten_by_what_it_waited_for() -> None:
    simulation = Simulation(1)
    event = simulation.tasks.event("late")

    def set_late() -> None:
        simulation.tasks.sleep(5)
        event.set()

    def main() -> int:
        start = simulation.clock.monotonic_ns()
        simulation.tasks.spawn("setter", set_late)
        assert not event.wait(1)
        simulation.tasks.sleep(99)
        return simulation.clock.monotonic_ns() - start

    assert simulation.run(main) == 100 * SECOND


def test_a_waiter_whose_time_runs_out_may_take_a_notification_with_it() -> None:
    def outcome(seed: int) -> tuple[bool, bool]:
        simulation = Simulation(seed)
        condition = simulation.tasks.condition(name="news")
        answers: dict[str, bool] = {}

        def wait(name: str, timeout: float) -> None:
            with condition:
                answers[name] = condition.wait(timeout)

        def main() -> None:
            hasty = simulation.tasks.spawn("hasty", lambda: wait("hasty", 1.0))
            simulation.tasks.sleep(0.5)
            patient = simulation.tasks.spawn("patient", lambda: wait("patient", 10.0))
            simulation.tasks.sleep(0.5)
            with condition:
                condition.notify()
            hasty.join()
            patient.join()

        simulation.run(main)
        return answers["hasty"], answers["patient"]

    assert {outcome(seed) for seed in range(40)} == {(False, True), (False, False)}


def test_a_lock_released_at_the_instant_of_a_time_out_is_not_lost() -> None:
    for seed in range(40):
        simulation = Simulation(seed)
        lock = simulation.tasks.lock("shared")
        taken: list[bool] = []

        def main(simulation: Simulation = simulation, lock: Lock = lock, taken: list[bool] = taken) -> None:
            def try_lock() -> None:
                if lock.acquire(timeout=1.0):
                    lock.release()

            lock.acquire()
            hasty = simulation.tasks.spawn("hasty", try_lock)
            simulation.tasks.sleep(0.5)
            patient = simulation.tasks.spawn("patient", lambda: taken.append(lock.acquire()))
            simulation.tasks.sleep(0.5)
            lock.release()
            hasty.join()
            patient.join()

        simulation.run(main)
        assert taken == [True]


def test_a_deadlock_names_each_task_and_what_it_waits_for() -> None:
    simulation = Simulation(7)
    tasks = simulation.tasks
    left, right = tasks.lock("left"), tasks.lock("right")
    queue: Queue[int] = tasks.queue("inbox", 1)

    def main() -> None:
        left.acquire()
        reader = tasks.spawn("reader", queue.get)
        crossed = tasks.spawn("crossed", left.acquire)
        tasks.spawn("finished", lambda: None).join()
        assert reader.name != crossed.name
        reader.join()
        right.acquire()

    with pytest.raises(SimDeadlock) as caught:
        simulation.run(main)
    assert caught.value.waits == {
        "main": "task 'reader'",
        "reader": "condition 'inbox'",
        "crossed": "lock 'left'",
    }
    assert caught.value.seed == 7
    assert "reader waits for condition 'inbox'" in str(caught.value)
    assert "(seed 7)" in str(caught.value)


def test_taking_a_lock_twice_is_a_deadlock() -> None:
    simulation = Simulation()
    lock = simulation.tasks.lock("own")

    def main() -> None:
        with lock, lock:
            pass

    with pytest.raises(SimDeadlock, match="main waits for lock 'own'"):
        simulation.run(main)


def test_a_deadlock_after_a_failed_task_shows_the_failure() -> None:
    simulation = Simulation()
    queue: Queue[int] = simulation.tasks.queue("q", 1)

    def fail() -> None:
        raise LookupError("no such thing")

    def main() -> None:
        simulation.tasks.spawn("feeder", fail)
        queue.get()

    with pytest.raises(SimDeadlock) as caught:
        simulation.run(main)
    assert any("'feeder' had failed: LookupError" in note for note in caught.value.__notes__)


def test_polling_without_waiting_is_told_apart_from_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "STEPS_AT_ONE_INSTANT", 500)
    simulation = Simulation(3)
    deadline = simulation.clock.monotonic_ns() + SECOND

    def poll() -> None:
        while True:
            try:
                while simulation.clock.monotonic_ns() < deadline:
                    pass
            except SimulationError:
                continue

    with pytest.raises(SimStuck, match=r"500 port calls .* task 'main'") as caught:
        simulation.run(poll)
    assert caught.value.seed == 3

    def work() -> None:
        for _ in range(10):
            for _ in range(400):
                simulation.clock.monotonic_ns()
            simulation.tasks.sleep(0.001)

    simulation.run(work)


def test_an_exception_of_the_main_task_keeps_its_type_and_tells_the_seed() -> None:
    simulation = Simulation(11)

    def main() -> None:
        simulation.clock.time_ns()
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone") as caught:
        simulation.run(main)
    assert caught.value.__notes__ == ["simulation seed 11, after 1 port calls"]


def test_an_exception_of_a_task_that_nobody_joined_is_raised_in_the_end() -> None:
    simulation = Simulation(12)

    def fail() -> None:
        raise LookupError("gone")

    def main() -> None:
        simulation.tasks.spawn("worker", fail)
        simulation.tasks.sleep(1)

    with pytest.raises(SimTaskFailed, match="task 'worker' failed: LookupError") as caught:
        simulation.run(main)
    assert isinstance(caught.value.__cause__, LookupError)
    assert (caught.value.task, caught.value.seed) == ("worker", 12)


def test_tasks_that_are_left_when_main_returns_end_with_it_and_can_do_nothing_more() -> None:
    simulation = Simulation(1)
    tasks = simulation.tasks
    lock, event = tasks.lock("held"), tasks.event("late")
    ended: list[str] = []

    def stay() -> None:
        try:
            with lock:
                tasks.sleep(1000)
        except Killed:
            ended.append("killed")
            raise
        finally:
            with pytest.raises(Killed):
                event.set()
            with pytest.raises(Killed):
                simulation.disk.create("late")

    def main() -> None:
        tasks.spawn("stayer", stay)
        tasks.spawn("second", stay)
        tasks.sleep(1)
        tasks.spawn("never started", stay)

    simulation.run(main)
    assert ended == ["killed"] * 2
    assert not simulation.run(event.is_set)
    assert simulation.disk.list() == ()


def test_a_simulation_can_run_again_and_time_goes_on() -> None:
    simulation = Simulation(1)
    simulation.run(lambda: simulation.tasks.sleep(5))
    before = simulation.clock.monotonic_ns()
    assert simulation.run(lambda: "result") == "result"
    simulation.run(lambda: simulation.tasks.sleep(2))
    assert simulation.clock.monotonic_ns() - before == 2 * SECOND


def test_what_is_prepared_before_a_run_is_there_in_it() -> None:
    simulation = Simulation(1)
    queue: Queue[int] = simulation.tasks.queue("q", 3)
    queue.put(1)
    doubled: list[int] = []

    def double() -> None:
        item = queue.get()
        assert item is not None
        doubled.append(2 * item)

    task = simulation.tasks.spawn("doubler", double)
    simulation.run(task.join)
    assert doubled == [2]


def test_waiting_outside_of_a_run_and_running_inside_of_one_are_refused() -> None:
    simulation = Simulation(1)
    with pytest.raises(SimulationError, match="outside of run"):
        simulation.tasks.sleep(1)
    with pytest.raises(SimulationError, match="inside of a run"):
        simulation.run(lambda: simulation.run(lambda: None))


def test_a_thread_that_is_no_task_is_refused() -> None:
    simulation = Simulation(1)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            simulation.clock.time_ns()
        except SimulationError as error:
            errors.append(error)

    def main() -> None:
        stranger = threading.Thread(target=call, name="stranger")
        stranger.start()
        stranger.join()

    simulation.run(main)
    assert len(errors) == 1
    assert "'stranger'" in str(errors[0])


def test_tasks_of_one_name_get_numbers() -> None:
    simulation = Simulation(1)

    def main() -> list[str]:
        return [simulation.tasks.spawn(name, lambda: None).name for name in ("w", "w", "v", "w")]

    assert simulation.run(main) == ["w", "w#2", "v", "w#3"]


def test_a_task_cannot_join_itself() -> None:
    simulation = Simulation(1)
    handles: list[Task] = []

    def join_self() -> None:
        with pytest.raises(RuntimeError, match="cannot join"):
            handles[0].join()

    def main() -> None:
        handles.append(simulation.tasks.spawn("self", join_self))
        assert handles[0].join()

    simulation.run(main)


def test_many_waits_that_end_early_leave_no_timers_behind() -> None:
    simulation = Simulation(1)
    event = simulation.tasks.event("tick")

    def tick() -> None:
        for _ in range(3000):
            event.set()
            simulation.tasks.sleep(0)

    def main() -> None:
        ticker = simulation.tasks.spawn("ticker", tick)
        while not ticker.done():
            event.wait(3600)
            event.clear()
            simulation.tasks.sleep(0)
            longest.append(len(simulation._scheduler._timers))

    longest: list[int] = []
    simulation.run(main)
    assert len(longest) > 1500
    assert max(longest) < 1100


def test_ctrl_c_ends_a_run_and_all_of_its_tasks() -> None:
    simulation = Simulation(1)

    def work() -> None:
        while True:
            simulation.tasks.sleep(1)

    def main() -> None:
        simulation.tasks.spawn("worker", work)
        simulation.tasks.sleep(5)
        send()
        work()

    with ctrl_c_until_heard() as send, pytest.raises(KeyboardInterrupt):
        simulation.run(main)
    assert simulation.run(lambda: "usable") == "usable"

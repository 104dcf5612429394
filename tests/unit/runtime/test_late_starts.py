"""Tasks for which no thread is left: they are started later, counted, and the first of each row is told."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Never

import pytest

from heliograph.errors import NoThreadLeft
from heliograph.runtime import late_starts
from heliograph.runtime.ports import ThreadTasks
from heliograph.sim import Simulation
from tests.e2e.link_support import wait_until
from tests.support import ScarceTasks

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 10.0


def test_a_task_that_could_not_be_started_is_started_when_it_can_be() -> None:
    tasks = ScarceTasks()
    tasks.prepare()
    told: list[NoThreadLeft] = []
    tasks.stalls.tell = told.append
    ran = [threading.Event() for _ in range(3)]
    tasks.left = 0
    for number, one in enumerate(ran):
        tasks.spawn_soon(f"task {number}", one.set)
    assert not any(one.is_set() for one in ran)
    tasks.left = 3
    assert all(one.wait(LIMIT) for one in ran)
    assert tasks.stalls.counts == {"task 0": 1, "task 1": 1, "task 2": 1}
    assert [error.task for error in told] == ["task 0"], "the first of the row"
    assert wait_until(lambda: tasks.stalls.waiting == 0)
    later = threading.Event()
    tasks.left = 0
    tasks.spawn_soon("later", later.set)
    tasks.left = 1
    assert later.wait(LIMIT)
    assert [error.task for error in told] == ["task 0", "later"]


@pytest.mark.parametrize("refusal", [RuntimeError("can't start new thread"), MemoryError()])
def test_whoever_needs_a_task_now_gets_a_named_error(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    def refuse(_: threading.Thread) -> Never:
        raise refusal

    tasks = ThreadTasks()
    tasks.prepare()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(NoThreadLeft, match=r"no thread is left for 'writer': .+") as caught:
        tasks.spawn("writer", lambda: None)
    assert caught.value.retriable


def test_where_nothing_was_ever_started_the_caller_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no thread that could start it later."""

    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr("heliograph.runtime.ports.LATE_STARTS", late_starts.LateStarts())
    monkeypatch.setattr(threading, "Thread", Refused)
    for call in (ThreadTasks().prepare, lambda: ThreadTasks().spawn_soon("reports", lambda: None)):
        with pytest.raises(NoThreadLeft, match="late starts"):
            call()


def test_the_child_of_a_fork_starts_tasks_late_by_itself() -> None:
    ThreadTasks().prepare()
    child = os.fork()
    if child == 0:
        tasks = ScarceTasks()
        tasks.prepare()
        tasks.left = 0
        ran = threading.Event()
        tasks.spawn_soon("task", ran.set)
        tasks.left = 1
        os._exit(0 if ran.wait(LIMIT) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("seed", range(5))
def test_in_simulations_too(seed: int) -> None:
    simulation = Simulation(seed)
    ran: list[str] = []

    def main() -> None:
        tasks: Any = simulation.tasks
        tasks.refused = range(1, 8)
        run: Callable[[str], Callable[[], object]] = lambda name: lambda: ran.append(name)  # noqa: E731 - short
        tasks.spawn_soon("one", run("one"))
        tasks.spawn_soon("two", run("two"))
        with pytest.raises(NoThreadLeft):
            tasks.spawn("three", run("three"))
        tasks.sleep(LIMIT)

    simulation.run(main)
    assert sorted(ran) == ["one", "two"]
    assert simulation.tasks.stalls.counts == {"one": 1, "two": 1}

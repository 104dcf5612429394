"""What the contract of `Tasks` promises, on the machine and in simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from heliograph.errors import QueueClosed
from tests.conformance.ports_contract import WORLDS, World, make_world

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.runtime.ports import Queue

SOON = 0.005
"""Long enough to tell a time-out from none, short enough to wait for in real time."""

NEVER = 60.0
"""A time-out that only a bug lets run out."""


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return make_world(request.param, tmp_path)


def test_a_spawned_task_runs_under_its_name_and_can_be_joined_twice(world: World) -> None:
    ran: list[str] = []

    def story() -> None:
        task = world.tasks.spawn("worker", lambda: ran.append("worker"))
        assert task.name == "worker"
        assert task.join(NEVER)
        assert task.join(0)
        assert task.done()

    world.run(story)
    assert ran == ["worker"]


def test_joining_a_task_raises_what_ended_it_each_time(world: World) -> None:
    def fail() -> None:
        raise LookupError("gone")

    def story() -> None:
        task = world.tasks.spawn("worker", fail)
        for _ in range(2):
            with pytest.raises(LookupError, match="gone"):
                task.join(NEVER)
        assert task.done()

    world.run(story)


def test_joining_gives_up_when_the_time_runs_out(world: World) -> None:
    def story() -> None:
        stop = world.tasks.event("stop")
        task = world.tasks.spawn("worker", lambda: stop.wait(NEVER))
        assert not task.join(SOON)
        assert not task.join(0)
        assert not task.join(-1)
        assert not task.done()
        stop.set()
        assert task.join(NEVER)

    world.run(story)


def test_sleeping_no_time_returns(world: World) -> None:
    returned = []

    def story() -> None:
        world.tasks.sleep(0)
        world.tasks.sleep(-1)
        returned.append(True)

    world.run(story)
    assert returned


def test_a_lock_excludes(world: World) -> None:
    inside = worst = total = 0
    lock = world.tasks.lock("counter")

    def work() -> None:
        nonlocal inside, worst, total
        for _ in range(50):
            with lock:
                inside += 1
                worst = max(worst, inside)
                world.clock.monotonic_ns()
                total += 1
                inside -= 1

    def story() -> None:
        for task in [world.tasks.spawn("worker", work) for _ in range(4)]:
            assert task.join(NEVER)

    world.run(story)
    assert (worst, total) == (1, 200)


def test_a_lock_that_another_task_has_cannot_be_released(world: World) -> None:
    refused: list[RuntimeError] = []

    def story() -> None:
        lock = world.tasks.lock()

        def other_releases() -> None:
            with pytest.raises(RuntimeError) as caught:
                lock.release()
            refused.append(caught.value)

        with lock:
            assert world.tasks.spawn("another", other_releases).join(NEVER)
            assert lock.mine()
        assert not lock.locked()

    world.run(story)
    assert len(refused) == 1


def test_a_lock_can_be_tried_and_waited_for_with_a_time_out(world: World) -> None:
    def story() -> None:
        lock = world.tasks.lock()
        tried: list[bool] = []

        def others_try() -> None:
            tried.extend([lock.mine(), lock.acquire(blocking=False), lock.acquire(timeout=SOON)])

        assert lock.acquire()
        assert lock.locked()
        assert lock.mine()
        assert world.tasks.spawn("another", others_try).join(NEVER)
        assert tried == [False, False, False]
        lock.release()
        assert not lock.locked()
        assert not lock.mine()
        assert lock.acquire(timeout=NEVER)
        lock.release()
        with pytest.raises(RuntimeError):
            lock.release()

    world.run(story)


def test_an_event_releases_all_waiters_and_stays_set(world: World) -> None:
    def story() -> None:
        event = world.tasks.event("go")
        assert not event.is_set()
        assert not event.wait(SOON)
        assert not event.wait(0)
        heard: list[bool] = []
        waiters = [world.tasks.spawn("waiter", lambda: heard.append(event.wait(NEVER))) for _ in range(3)]
        event.set()
        for task in waiters:
            assert task.join(NEVER)
        assert heard == [True] * 3
        assert event.wait(0)
        event.clear()
        assert not event.is_set()

    world.run(story)


def test_a_condition_waits_until_its_predicate_holds(world: World) -> None:
    def story() -> None:
        condition = world.tasks.condition(name="level")
        level = 0

        def rise() -> None:
            nonlocal level
            for _ in range(3):
                with condition:
                    level += 1
                    condition.notify_all()

        with condition:
            assert not condition.wait_for(lambda: level >= 3, SOON)
        task = world.tasks.spawn("riser", rise)
        with condition:
            assert condition.wait_for(lambda: level >= 3, NEVER)
        assert task.join(NEVER)

    world.run(story)


def test_a_condition_wakes_as_many_as_it_is_told(world: World) -> None:
    def story() -> None:
        lock = world.tasks.lock("shared")
        condition = world.tasks.condition(lock)
        waiting = tokens = 0
        all_wait = world.tasks.condition(lock)

        def wait() -> None:
            nonlocal waiting, tokens
            with condition:
                waiting += 1
                all_wait.notify()
                condition.wait_for(lambda: tokens, NEVER)
                tokens -= 1

        tasks = [world.tasks.spawn("waiter", wait) for _ in range(3)]
        with lock:
            assert all_wait.wait_for(lambda: waiting == 3, NEVER)
            tokens = 3
            condition.notify()
            condition.notify(2)
        for task in tasks:
            assert task.join(NEVER)
        assert tokens == 0

    world.run(story)


def test_a_condition_insists_on_its_lock(world: World) -> None:
    def story() -> None:
        condition = world.tasks.condition()
        with pytest.raises(RuntimeError):
            condition.wait(0)
        with pytest.raises(RuntimeError):
            condition.notify()
        with condition:
            assert not condition.wait(SOON)

    world.run(story)


def test_a_signal_is_remembered_and_several_rings_are_one(world: World) -> None:
    def story() -> None:
        signal = world.tasks.signal("bell")
        assert not signal.wait(SOON)
        assert not signal.wait(0)
        signal.notify()
        signal.notify()
        assert signal.wait(0)
        assert not signal.wait(0)

    world.run(story)


def test_a_signal_wakes_the_one_who_watches_several_sources(world: World) -> None:
    def story() -> None:
        signal = world.tasks.signal("bell")
        inboxes: list[list[int]] = [[], []]
        seen = 0

        def produce(inbox: list[int]) -> None:
            for i in range(40):
                inbox.append(i)
                signal.notify()

        producers = [world.tasks.spawn("producer", lambda inbox=i: produce(inbox)) for i in inboxes]  # type: ignore[misc]  # a default that binds
        while seen < 80:
            assert signal.wait(NEVER)
            for inbox in inboxes:
                while inbox:
                    inbox.pop(0)
                    seen += 1
        for task in producers:
            assert task.join(NEVER)

    world.run(story)


def test_a_queue_is_first_in_first_out(world: World) -> None:
    def story() -> None:
        queue: Queue[int] = world.tasks.queue("q", 10)
        for i in range(5):
            assert queue.put(i)
        assert len(queue) == 5
        assert [queue.get() for _ in range(5)] == [0, 1, 2, 3, 4]

    world.run(story)


def test_a_full_queue_refuses_after_the_time_out_and_takes_again_when_there_is_room(world: World) -> None:
    def story() -> None:
        queue: Queue[str] = world.tasks.queue("q", 2)
        assert queue.put("a")
        assert queue.put("b")
        assert not queue.put("c", 0)
        assert not queue.put("c", SOON)
        assert queue.get() == "a"
        assert queue.put("d", 0)
        assert queue.take(10) == ["b", "d"]

    world.run(story)


def test_an_empty_queue_gives_nothing_after_the_time_out(world: World) -> None:
    def story() -> None:
        queue: Queue[str] = world.tasks.queue("q", 2)
        assert queue.get(0) is None
        assert queue.get(SOON) is None
        assert queue.take(5, 0) == []
        assert queue.take(5, SOON) == []

    world.run(story)


def test_a_queue_needs_room_and_items_that_are_not_none(world: World) -> None:
    with pytest.raises(ValueError, match="at least one"):
        world.tasks.queue("q", 0)
    queue: Queue[str | None] = world.tasks.queue("q", 1)
    for put in (queue.put, queue.put_evicting):
        with pytest.raises(TypeError, match="None"):
            put(None)
    assert len(queue) == 0


def test_items_that_are_false_are_items(world: World) -> None:
    def story() -> None:
        queue: Queue[int] = world.tasks.queue("q", 4)
        reader = world.tasks.spawn("reader", lambda: taken.append(queue.get(NEVER)))
        assert queue.put(0)
        assert reader.join(NEVER)

    taken: list[int | None] = []
    world.run(story)
    assert taken == [0]


def test_taking_stops_at_the_limit(world: World) -> None:
    def story() -> None:
        queue: Queue[int] = world.tasks.queue("q", 10)
        for i in range(5):
            queue.put(i)
        assert queue.take(2) == [0, 1]
        assert queue.take(1) == [2]
        assert queue.take(100) == [3, 4]

    world.run(story)


def test_getting_one_makes_room_for_one_who_waits(world: World) -> None:
    def story() -> None:
        queue: Queue[int] = world.tasks.queue("q", 1)
        queue.put(1)
        writer = world.tasks.spawn("writer", lambda: queue.put(2, NEVER))
        world.tasks.sleep(SOON)  # in a simulation the writer waits now
        assert queue.get() == 1
        assert writer.join(NEVER / 2)
        assert queue.get(0) == 2

    world.run(story)


def test_taking_several_makes_room_for_as_many_who_wait(world: World) -> None:
    def story() -> None:
        queue: Queue[int] = world.tasks.queue("q", 2)
        queue.put(1)
        queue.put(2)
        writers = [world.tasks.spawn("writer", lambda: queue.put(3, NEVER)) for _ in range(2)]
        world.tasks.sleep(SOON)  # in a simulation both writers wait now
        assert queue.take(2) == [1, 2]
        for writer in writers:
            assert writer.join(NEVER / 2)
        assert len(queue) == 2

    world.run(story)


def test_evicting_drops_the_oldest_and_returns_it(world: World) -> None:
    def story() -> None:
        queue: Queue[int] = world.tasks.queue("q", 2)
        assert queue.put_evicting(1) is None
        assert queue.put_evicting(2) is None
        assert queue.put_evicting(3) == 1
        assert queue.take(10) == [2, 3]

    world.run(story)


def test_a_closed_queue_gives_what_is_inside_and_then_says_so(world: World) -> None:
    def story() -> None:
        queue: Queue[int] = world.tasks.queue("inbox", 3)
        queue.put(1)
        queue.put(2)
        queue.close()
        queue.close()
        for put in (queue.put, queue.put_evicting):
            with pytest.raises(QueueClosed, match="inbox"):
                put(3)
        assert queue.get() == 1
        assert queue.take(5) == [2]
        for _ in range(2):
            with pytest.raises(QueueClosed, match="inbox"):
                queue.get(0)
            with pytest.raises(QueueClosed):
                queue.take(5)

    world.run(story)


def test_closing_wakes_everybody_who_waits(world: World) -> None:
    def story() -> None:
        empty: Queue[int] = world.tasks.queue("empty", 1)
        full: Queue[int] = world.tasks.queue("full", 1)
        full.put(0)
        tasks = [
            world.tasks.spawn("waiter", use)
            for use in (
                lambda: empty.get(NEVER),
                lambda: empty.take(3, NEVER),
                lambda: full.put(1, NEVER),
                lambda: full.put(2, NEVER),
            )
        ]
        empty.close()
        full.close()
        for task in tasks:
            with pytest.raises(QueueClosed):
                task.join(NEVER)

    world.run(story)


@pytest.mark.parametrize("limit", [1, 3, 1000])
@pytest.mark.parametrize("batch", [1, 4])
def test_many_writers_and_readers_lose_nothing_and_keep_each_writers_order(
    world: World, limit: int, batch: int
) -> None:
    queue: Queue[tuple[int, int]] = world.tasks.queue("q", limit)
    received: list[list[tuple[int, int]]] = [[], []]
    longest = 0

    def write(writer: int) -> None:
        nonlocal longest
        for i in range(40):
            assert queue.put((writer, i), NEVER)
            longest = max(longest, len(queue))

    def read(into: list[tuple[int, int]]) -> None:
        try:
            while True:
                into.extend(queue.take(batch, NEVER))
        except QueueClosed:
            return

    def story() -> None:
        readers = [world.tasks.spawn("reader", lambda into=into: read(into)) for into in received]  # type: ignore[misc]  # a default that binds
        writers = [world.tasks.spawn("writer", lambda n=n: write(n)) for n in range(3)]  # type: ignore[misc]  # likewise
        for writer in writers:
            assert writer.join(NEVER)
        queue.close()
        for reader in readers:
            assert reader.join(NEVER)

    world.run(story)
    assert sorted(received[0] + received[1]) == [(w, i) for w in range(3) for i in range(40)]
    assert 1 <= longest <= limit
    for taken in received:
        for writer in range(3):
            own = [i for w, i in taken if w == writer]
            assert own == sorted(own)

"""The lock-order checker: two kinds of lock in both orders are found, although no deadlock happens."""

from __future__ import annotations

import threading

import pytest

from heliograph.runtime import lock_order
from heliograph.runtime.ports import Lock, ThreadLock, ThreadTasks


def outer_lock(tasks: ThreadTasks) -> Lock:
    return tasks.lock("outer")


def inner_lock(tasks: ThreadTasks) -> Lock:
    return tasks.lock("inner")


def test_both_orders_are_an_inversion_also_in_other_threads_and_at_other_times() -> None:
    order = lock_order.LockOrder()
    with lock_order.checking(order):
        tasks = ThreadTasks()
        outer, inner = outer_lock(tasks), inner_lock(tasks)
        with outer, inner:
            assert not order.inversions

        def backwards() -> None:
            with inner, outer:
                pass

        other = threading.Thread(target=backwards)
        other.start()
        other.join(10)
    (told,) = order.inversions
    assert "outer_lock (outer) is taken while" in told
    assert "backwards" in told
    assert "test_both_orders" in told


def test_an_order_over_three_kinds_is_followed() -> None:
    order = lock_order.LockOrder()
    with lock_order.checking(order):
        tasks = ThreadTasks()
        first, second, third = outer_lock(tasks), inner_lock(tasks), tasks.lock("third")
        with first, second:
            pass
        with second, third:
            pass
        assert not order.inversions
        with third, first:
            pass
    (told,) = order.inversions
    assert "outer_lock (outer) -> " in told


def test_another_lock_of_the_same_kind_counts_as_that_kind() -> None:
    order = lock_order.LockOrder()
    with lock_order.checking(order):
        tasks = ThreadTasks()
        with outer_lock(tasks), inner_lock(tasks):
            pass
        with inner_lock(tasks), outer_lock(tasks):
            pass
    assert len(order.inversions) == 1


def test_two_locks_of_one_kind_are_compared_one_by_one() -> None:
    order = lock_order.LockOrder()
    with lock_order.checking(order):
        tasks = ThreadTasks()
        one, other, third = (inner_lock(tasks) for _ in range(3))
        with one, other:
            pass
        with other, third:
            pass
        assert not order.inversions
        with other, one:
            pass
    assert len(order.inversions) == 1


@pytest.mark.parametrize("arguments", [(False,), (True, 1.0)])
def test_a_wait_that_ends_by_itself_is_no_inversion(arguments: tuple[bool, float]) -> None:
    order = lock_order.LockOrder()
    with lock_order.checking(order):
        tasks = ThreadTasks()
        outer, inner = outer_lock(tasks), inner_lock(tasks)
        with outer, inner:
            pass
        with inner:
            assert outer.acquire(*arguments)
            outer.release()
    assert not order.inversions


def test_a_condition_lets_go_of_its_lock_while_it_waits() -> None:
    order = lock_order.LockOrder()
    with lock_order.checking(order):
        tasks = ThreadTasks()
        lock = outer_lock(tasks)
        changed = tasks.condition(lock)
        with changed:
            changed.wait(0.01)
            assert lock.locked()
            with inner_lock(tasks):
                pass
        assert not lock.locked()
        assert order.held() == []
    assert not order.inversions


def test_a_lock_that_is_taken_again_by_its_holder_is_held_until_the_last_release() -> None:
    order = lock_order.LockOrder()
    with lock_order.checking(order):
        lock = outer_lock(ThreadTasks())
        with lock:
            with lock:
                pass
            assert order.held() == [lock]
        assert order.held() == []
    assert not order.inversions


@pytest.mark.plain_locks
def test_locks_are_plain_where_nobody_checks() -> None:
    assert type(ThreadTasks().lock("plain")) is ThreadLock

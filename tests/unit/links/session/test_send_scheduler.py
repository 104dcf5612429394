"""Who sends: the thread that pushes, or a task of the link's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.links.session.send_scheduler import BURST, SendScheduler


class Sending:
    """A scheduler that counts who was asked to send."""

    def __init__(self) -> None:
        self.sent = self.woken = 0
        self.is_quiet = True
        self.fails = False
        wake: Any = SimpleNamespace(notify=self._notify)
        self.scheduler = SendScheduler(wake, lambda: self.is_quiet, self._send)

    def _notify(self) -> None:
        if self.fails:
            raise KeyboardInterrupt
        self.woken += 1

    def _send(self) -> None:
        self.sent += 1


def gateway(waiting: int = 1) -> Any:
    rests: list[int] = []
    queue = SimpleNamespace(waiting=waiting, rest=rests.append, rests=rests)
    return SimpleNamespace(queue=queue, bypassed=queue, listed=False, burst_at=0)


def test_what_comes_after_a_while_is_sent_by_the_thread_that_pushes() -> None:
    sending, one = Sending(), gateway()
    sending.scheduler.ready(one)
    assert (sending.sent, sending.woken, list(sending.scheduler.listed)) == (1, 0, [one])


def test_a_burst_wakes_the_task_once_and_is_sent_whenever_many_wait() -> None:
    sending, one = Sending(), gateway()
    sending.is_quiet = False
    for waiting in (1, BURST - 1):
        one.queue.waiting = waiting
        sending.scheduler.ready(one)
    assert (sending.sent, sending.woken, len(sending.scheduler.listed)) == (0, 1, 1)
    one.queue.waiting = BURST
    sending.scheduler.ready(one)
    assert sending.sent == 1
    assert one.queue.rests[-1] == 2 * BURST


def test_a_queue_that_reads_a_history_is_not_told_when_to_call_again() -> None:
    sending, one = Sending(), gateway()
    one.bypassed = None
    sending.scheduler.ready(one)
    assert sending.sent == 1
    assert one.queue.rests == []


def test_an_interrupt_while_the_task_is_woken_leaves_that_to_the_next() -> None:
    sending = Sending()
    sending.fails = True
    with pytest.raises(KeyboardInterrupt):
        sending.scheduler.arm()
    sending.fails = False
    sending.scheduler.arm()
    assert sending.woken == 1

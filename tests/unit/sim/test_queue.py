"""The bounded queue against a plain model, and under interleavings that chance and the seed choose."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from heliograph.errors import QueueClosed
from heliograph.runtime.ports import ThreadTasks
from heliograph.sim import Simulation
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.runtime.ports import Queue

LIMIT = 3


class QueueModel(RuleBasedStateMachine):
    """One task, no waiting: every answer is known."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: Queue[int] = ThreadTasks().queue("q", LIMIT)
        self.model: deque[int] = deque()
        self.closed = False

    @rule(item=st.integers())
    def put(self, item: int) -> None:
        if self.closed:
            with pytest.raises(QueueClosed):
                self.queue.put(item, 0)
            return
        fits = len(self.model) < LIMIT
        assert self.queue.put(item, 0) is fits
        if fits:
            self.model.append(item)

    @rule(item=st.integers())
    def put_evicting(self, item: int) -> None:
        if self.closed:
            with pytest.raises(QueueClosed):
                self.queue.put_evicting(item)
            return
        expected = self.model.popleft() if len(self.model) == LIMIT else None
        assert self.queue.put_evicting(item) == expected
        self.model.append(item)

    @rule()
    def get(self) -> None:
        if self.closed and not self.model:
            with pytest.raises(QueueClosed):
                self.queue.get(0)
            return
        assert self.queue.get(0) == (self.model.popleft() if self.model else None)

    @rule(limit=st.integers(1, LIMIT + 1))
    def take(self, limit: int) -> None:
        if self.closed and not self.model:
            with pytest.raises(QueueClosed):
                self.queue.take(limit, 0)
            return
        expected = [self.model.popleft() for _ in range(min(limit, len(self.model)))]
        assert self.queue.take(limit, 0) == expected

    @rule()
    def close(self) -> None:
        self.queue.close()
        self.closed = True

    @invariant()
    def lengths_agree(self) -> None:
        assert len(self.queue) == len(self.model)


QueueModel.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30)
TestQueueModel = QueueModel.TestCase

timeouts = st.sampled_from([None, 0.0, 0.001, 1.0])
writers = st.lists(st.lists(st.tuples(timeouts, st.booleans()), max_size=6), min_size=1, max_size=3)
readers = st.lists(st.tuples(st.integers(1, 4), timeouts), min_size=1, max_size=3)


class Traffic:
    """Some writers and readers on one queue, in a simulation; counts what went in and what came out."""

    def __init__(self, seed: int, limit: int, step_ns: int) -> None:
        self.simulation = Simulation(seed, step_ns=step_ns)
        self.queue: Queue[tuple[int, int]] = self.simulation.tasks.queue("q", limit)
        self.accepted: Counter[tuple[int, int]] = Counter()
        self.evicted: Counter[tuple[int, int]] = Counter()
        self.received: list[list[tuple[int, int]]] = []
        self.limit = limit

    def write(self, writer: int, puts: list[tuple[float | None, bool]]) -> None:
        for number, (timeout, evicting) in enumerate(puts):
            item = (writer, number)
            if evicting:
                old = self.queue.put_evicting(item)
                self.accepted[item] += 1
                if old is not None:
                    self.evicted[old] += 1
            elif self.queue.put(item, timeout):
                self.accepted[item] += 1
            assert len(self.queue) <= self.limit

    def read(self, batch: int, timeout: float | None) -> None:
        taken: list[tuple[int, int]] = []
        self.received.append(taken)
        try:
            while True:
                items = self.queue.take(batch, timeout)
                assert len(items) <= batch
                taken.extend(items)
                if not items:
                    self.simulation.tasks.sleep(0.01)
        except QueueClosed:
            return

    def main(
        self, writing: list[list[tuple[float | None, bool]]], reading: list[tuple[int, float | None]]
    ) -> None:
        spawn = self.simulation.tasks.spawn
        taking = [spawn("reader", lambda r=r: self.read(*r)) for r in reading]  # type: ignore[misc]  # a default that binds
        putting = [spawn("writer", lambda w=w: self.write(*w)) for w in enumerate(writing)]  # type: ignore[misc]  # likewise
        for task in putting:
            task.join()
        self.queue.close()
        for task in taking:
            task.join()


@given(
    seed=st.integers(0, 2**32),
    limit=st.integers(1, 3),
    step_ns=st.sampled_from([0, 1_000_000]),
    writing=writers,
    reading=readers,
)
@settings(max_examples=examples(100))
def test_under_every_interleaving_nothing_is_lost_doubled_or_reordered(
    seed: int,
    limit: int,
    step_ns: int,
    writing: list[list[tuple[float | None, bool]]],
    reading: list[tuple[int, float | None]],
) -> None:
    traffic = Traffic(seed, limit, step_ns)
    traffic.simulation.run(lambda: traffic.main(writing, reading))
    assert Counter(i for taken in traffic.received for i in taken) + traffic.evicted == traffic.accepted
    assert max(traffic.accepted.values(), default=0) <= 1
    for taken in traffic.received:
        for writer in range(len(writing)):
            own = [number for w, number in taken if w == writer]
            assert own == sorted(own)

"""Two keepers of one channel that push into it, killed with kill -9 at random instants, one or both.

Nothing that was acknowledged is lost, to a durable consumer or to a group; the order of each supplier holds;
and what is repeated was in hand, or in a batch that was not kept yet, and is marked.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

import heliograph as hg
from heliograph.channel.queueing.queue import BATCH
from heliograph.errors import CursorHeld, QueryFailed
from heliograph.links.groups.client import AT_ONCE
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until
from tests.faults.group_process import CUSTOMERS, DOMAIN, Order, opened, patiently
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

SUPPLIERS = 2
WORKERS = 2


class Done(NamedTuple):
    customer: int
    number: int
    redelivered: bool

    @property
    def order(self) -> tuple[int, int]:
        return self.customer // CUSTOMERS, self.number


class Keepers:
    """Programs that keep the channel and push into it, or only keep it."""

    def __init__(self, tmp_path: Path, stack: ExitStack) -> None:
        self._folder = tmp_path
        self._stack = stack
        self._logs = [tmp_path / f"acked-{place}" for place in range(SUPPLIERS)]
        for log in self._logs:
            log.touch()
        self._running = [self._start(place) for place in range(SUPPLIERS)]

    def acked(self) -> set[tuple[int, int]]:
        """Supplier and number of what was acknowledged."""
        return {(n, int(line)) for n, log in enumerate(self._logs) for line in log.read_text().splitlines()}

    def kill(self, places: list[int]) -> None:
        for place in places:
            self._running[place].kill()

    def start(self, places: list[int], *, pushing: bool = True) -> None:
        for place in places:
            self._running[place] = self._start(place, pushing=pushing)
        for place in places:
            self._running[place].says("keeping")

    def _start(self, place: int, *, pushing: bool = True) -> Program:
        folder = str(self._folder / f"keeper-{place}")
        arguments = ("push", folder, str(place), str(self._logs[place])) if pushing else ("keep", folder)
        program = Program(*arguments, module="tests.faults.group_process")
        self._stack.callback(program.clean_up)
        return program


class Billing:
    """A durable consumer, in a thread of its own, that is closed and opened again when it is told."""

    def __init__(self, station: hg.Station) -> None:
        self._orders = opened(station)
        self.done: list[Done] = []
        self.times = 0
        self._closing, self._ended = Event(), False
        self._thread = Thread(target=self._run)
        self._thread.start()

    def close(self) -> int:
        """Have it closed, while a keeper is away or not; how often it was opened until then."""
        self._closing.set()
        return self.times

    def was_opened_again(self, times: int) -> bool:
        return wait_until(lambda: self.times > times, 3 * LIMIT)

    def end(self) -> None:
        self._ended = True
        self._closing.set()
        self._thread.join(3 * LIMIT)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ended:
            self._closing.clear()
            consumer = patiently(self._open, QueryFailed, CursorHeld)
            self.times += 1
            while not self._closing.is_set():
                for delivery in consumer.deliveries(timeout=0.05):
                    order = delivery.event
                    self.done.append(Done(order.customer, order.number, delivery.redelivered))
                    if self._closing.is_set():
                        break
            with suppress(QueryFailed):  # a keeper is away: what it has not kept comes again
                consumer.close()

    def _open(self) -> hg.Consumer[Order]:
        return self._orders.consumer(name="billing", start="earliest")


def worked(log: Path) -> list[Done]:
    """What the workers have written down."""
    lines = map(str.split, log.read_text().splitlines())
    return [Done(int(customer), int(number), again == "1") for customer, number, again in lines]


def gets_through(left: Callable[[], set[tuple[int, int]]]) -> set[tuple[int, int]]:
    """What is left when it gets no less any more: however much there was, it is waited for until then."""
    before, now = len(left()) + 1, left()
    while now and len(now) < before:
        before = len(now)
        wait_until(lambda: len(left()) < before, 3 * LIMIT)  # noqa: B023 - waited for at once
        now = left()
    return now


def check(done: list[Done], acked: set[tuple[int, int]], most_repeats: int) -> None:
    counts = Counter(one.order for one in done)
    assert acked <= counts.keys(), f"lost: {sorted(acked - counts.keys())[:5]}"
    seen: set[tuple[int, int]] = set()
    turns: defaultdict[int, list[int]] = defaultdict(list)
    for one in done:
        if one.order in seen:
            assert one.redelivered, f"{one} came twice without a mark"
        else:
            turns[one.customer].append(one.number)
        seen.add(one.order)
    assert all(turn == sorted(turn) for turn in turns.values()), "in the order of each supplier"
    repeats = len(done) - len(counts)
    assert repeats <= most_repeats, f"{repeats} repeats"


def test_both_keepers_killed_at_random_lose_nothing_that_was_acknowledged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    chance, rounds = random.Random(20_262), examples(3)
    log = tmp_path / "done"
    log.touch()
    with ExitStack() as programs:
        keepers = Keepers(tmp_path, programs)
        for place in range(WORKERS):
            worker = Program("work", str(log), f"worker-{place}", module="tests.faults.group_process")
            programs.callback(worker.clean_up)
            worker.says("working")
        with hg.Station(domain=DOMAIN, on_error=lambda *_: None) as station:
            billing = Billing(station)
            try:
                for _ in range(rounds):
                    time.sleep(chance.random() * 0.5)
                    places = chance.choice([[0], [1], [0, 1]])
                    keepers.kill(places)
                    times = billing.close() if chance.random() < 0.5 else 0
                    keepers.start(places)
                    assert billing.was_opened_again(times)
                keepers.kill([0, 1])
                keepers.start([0, 1], pushing=False)
                acked = keepers.acked()

                assert gets_through(lambda: acked - {one.order for one in list(billing.done)}) == set()
                assert gets_through(lambda: acked - {one.order for one in worked(log)}) == set()
            finally:
                billing.end()
    kills = rounds + 1
    check(billing.done, acked, kills * SUPPLIERS * BATCH)
    check(worked(log), acked, kills * WORKERS * (AT_ONCE + 1))

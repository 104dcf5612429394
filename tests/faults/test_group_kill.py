"""Members of a group in processes of their own, killed with kill -9 again and again; so is their keeper."""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.links.groups.client import AT_ONCE
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until
from tests.faults.group_process import CHANNEL, CUSTOMERS, DOMAIN, GROUP, PERSISTENT, Order, do_orders
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKERS = 3
SEED = 20_261


class Crew:
    """Workers that write what they do into one file."""

    def __init__(self, log: Path) -> None:
        self._log = log
        log.touch()
        self.workers: list[Program] = []
        self._stack = ExitStack()

    def hire(self) -> None:
        name = f"worker-{len(self.workers)}"
        program = Program("work", str(self._log), name, module="tests.faults.group_process")
        self._stack.callback(program.clean_up)
        self.workers.append(program)

    def at_work(self) -> list[Program]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    def done(self) -> list[tuple[int, int, bool]]:
        """Customer, number and whether it was marked, in the order in which it was done."""
        lines = self._log.read_text().splitlines()
        return [(int(c), int(n), again == "1") for c, n, again in map(str.split, lines)]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Crew]:
    own_meeting_folder(monkeypatch, tmp_path)
    crew = Crew(tmp_path / "done")
    yield crew
    crew.close()


def orders_of(numbers: range) -> list[Order]:
    return [Order(n % CUSTOMERS, n) for n in numbers]


def is_linked(station: hg.Station, pid: int) -> bool:
    assert station.mesh is not None
    return pid in {other.pid for other in station.mesh.stations()}


def is_left_by(station: hg.Station, pid: int) -> bool:
    return not is_linked(station, pid)


def check(done: list[tuple[int, int, bool]], total: int, *, is_in_order: bool) -> int:
    """Everything was done, what was repeated was marked, and each customer's orders in turn; the repeats."""
    seen: set[int] = set()
    turns: defaultdict[int, list[int]] = defaultdict(list)
    for customer, number, is_marked in done:
        assert is_marked or number not in seen, f"{number} came twice without a mark"
        if is_in_order or number not in seen:
            turns[customer].append(number)
        seen.add(number)
    assert seen == set(range(total))
    assert all(turn == sorted(turn) for turn in turns.values())
    return len(done) - total


def test_what_killed_members_held_goes_to_the_others_marked_and_in_order(crew: Crew, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    total = 0
    with hg.Station(tmp_path / "data", domain=DOMAIN) as keeper:
        orders = keeper.channel(CHANNEL, Order, qos=PERSISTENT)
        orders.consumer(group=GROUP, ack="manual", order="key", lease=60.0, start="earliest").close()
        for _ in range(WORKERS):
            crew.hire()
        for _ in range(examples(6)):
            for worker in crew.at_work():
                worker.says("working")
            orders.push_many(orders_of(range(total, total + 200)))
            total += 200
            time.sleep(chance.random() * 0.1)
            chance.choice(crew.at_work()).kill()
            crew.hire()
        assert wait_until(lambda: len({number for _, number, _ in crew.done()}) == total, 3 * LIMIT)
        crew.close()
        assert wait_until(lambda: not orders.stats().consumers), "the last member has left"
        with orders.consumer(group=GROUP, until="now") as last:
            assert len([order.number for order in last]) <= WORKERS, "what each had in hand"
        assert orders.stats().balanced
    check(crew.done(), total, is_in_order=True)


def test_members_go_on_though_their_keeper_is_killed(crew: Crew, tmp_path: Path) -> None:
    """Who had an event when the keeper died may still do it while another one is given it: it is marked."""
    chance = random.Random(SEED)
    total, folder = 0, str(tmp_path / "data")
    with ExitStack() as stack:

        def keep() -> Program:
            keeper = Program("keep", folder, module="tests.faults.group_process")
            stack.callback(keeper.clean_up)
            keeper.says("keeping")
            return keeper

        keeper = keep()
        pusher = stack.enter_context(hg.Station(domain=DOMAIN))
        orders = pusher.channel(CHANNEL, Order, qos=PERSISTENT)
        for _ in range(WORKERS):
            crew.hire()
        for worker in crew.workers:
            worker.says("working")
        for _ in range(examples(3)):
            orders.push_many(orders_of(range(total, total + 300)))
            total += 300
            time.sleep(chance.random() * 0.2)
            keeper.kill()
            # Else a push may still go to the dead one, and raise that nobody knows whether it was kept.
            assert wait_until(partial(is_left_by, pusher, keeper.process.pid))
            keeper = keep()
            assert wait_until(partial(is_linked, pusher, keeper.process.pid))
        assert wait_until(lambda: len({number for _, number, _ in crew.done()}) == total, 3 * LIMIT), (
            crew.done()[-5:]
        )
        assert len(crew.at_work()) == WORKERS
    check(crew.done(), total, is_in_order=False)


def folders_in_order(tmp_path: Path) -> list[Path]:
    """Folders of two keepers; a group meets at the desk of the first."""
    folders = [tmp_path / "one", tmp_path / "two"]
    partitions: dict[str, Path] = {}
    for folder in folders:
        with hg.Station(folder) as station:
            store = station.channel(CHANNEL, Order, qos=PERSISTENT).store
            assert store is not None
            partitions[store.partition] = folder
    return [folder for _, folder in sorted(partitions.items())]


@pytest.mark.parametrize("seed", range(examples(2)))
def test_members_meet_at_another_keeper_when_the_one_that_handed_out_is_gone(
    crew: Crew, tmp_path: Path, seed: int
) -> None:
    """And at one desk, with all partitions, when it is back."""
    chance = random.Random(SEED + seed)
    first, own = folders_in_order(tmp_path)
    with ExitStack() as programs, ExitStack() as stack:

        def start(number: int) -> Program:
            program = Program("supply", str(first), str(number), "300", module="tests.faults.group_process")
            programs.callback(program.clean_up)
            program.says("keeping")
            return program

        host = start(0)
        station = stack.enter_context(hg.Station(own, domain=DOMAIN, on_error=lambda *_: None))
        orders = station.channel(CHANNEL, Order, qos=PERSISTENT)
        assert wait_until(lambda: len(orders.neighbours.partitions_within_reach()) == 2)
        mine = stack.enter_context(member_here(orders, tmp_path / "done"))
        for _ in range(WORKERS):
            crew.hire()
        for worker in crew.workers:
            worker.says("working")
        assert GROUP not in orders.asking._groups
        orders.push_many(orders_of(range(300, 600)))
        time.sleep(chance.random() * 0.1)
        host.kill()
        orders.push_many(orders_of(range(600, 900)))

        def numbers() -> set[int]:
            return {number for _, number, _ in crew.done()}

        assert wait_until(lambda: numbers() >= set(range(300, 900)), 3 * LIMIT), len(numbers())
        start(900)
        assert wait_until(lambda: numbers() == set(range(1_200)), 3 * LIMIT), len(numbers())
        group = orders.asking._groups[GROUP]
        assert wait_until(lambda: len(group.desk.members()) == WORKERS + 1), "all at one desk"
        assert mine.is_alive()
        check_marks(crew.done())
        # What a member had fetched or had in hand, and could not acknowledge.
        assert len(crew.done()) - 1_200 <= (WORKERS + 1) * (AT_ONCE + 1)


def check_marks(done: list[tuple[int, int, bool]]) -> None:
    seen: set[int] = set()
    for _, number, is_marked in done:
        assert is_marked or number not in seen, f"{number} came twice without a mark"
        seen.add(number)


@contextmanager
def member_here(orders: hg.Channel[Order], log: Path) -> Iterator[Thread]:
    """A member in this process, which writes down what it does as workers do."""
    member = orders.consumer(group=GROUP, ack="manual", order="key", lease=60.0)
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    thread = Thread(target=do_orders, args=(member, file))
    thread.start()
    yield thread
    member.close()
    thread.join(LIMIT)
    os.close(file)

"""A keeper's folder is replaced by an older copy of itself: readers elsewhere are told, and skip nothing."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import HistoryReset
from heliograph.journal.format.identity import PARTITION
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until
from tests.faults.group_process import CHANNEL, DOMAIN, GROUP, PERSISTENT, Order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COPIED, MORE, AFTER = 40, 60, 50
"""Orders up to the copy, after it, and after it was put back."""


class Restored:
    """A keeper in a process of its own, whose folder is copied, and put back later."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._copy = folder / "keeper", folder / "copy"
        self._program: Program | None = None

    def supply(self, first: int, orders: int) -> None:
        """Start it, with further orders."""
        self._program = Program(
            "supply", str(self._folder), str(first), str(orders), module="tests.faults.group_process"
        )
        self._program.says("keeping")

    def copy(self) -> None:
        self.kill()
        shutil.copytree(self._folder, self._copy)

    def put_back(self) -> None:
        self.kill()
        shutil.rmtree(self._folder)
        shutil.copytree(self._copy, self._folder)

    def kill(self) -> None:
        if self._program is not None:
            self._program.kill()
            self._program.clean_up()
            self._program = None


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Restored]:
    own_meeting_folder(monkeypatch, tmp_path)
    keeper = Restored(tmp_path)
    yield keeper
    keeper.kill()


class Reader:
    """Takes what there is, noting what it is told."""

    def __init__(self, consumer: hg.Consumer[Order]) -> None:
        self.consumer = consumer
        self.got: list[int] = []

    def takes(self, number: int) -> bool:
        def has() -> bool:
            while (order := self.consumer.pull(0)) is not None:
                self.got.append(order.number)
            return len(self.got) >= number

        return wait_until(has, 2 * LIMIT)


def taken(member: hg.Consumer[Order], number: int) -> list[hg.Delivery[Order]]:
    """So many deliveries, none of which is acknowledged."""
    got: list[hg.Delivery[Order]] = []
    for delivery in member.deliveries(timeout=LIMIT):
        got.append(delivery)
        if len(got) == number:
            break
    return got


@pytest.mark.parametrize("overtakes", [False, True])
def test_readers_elsewhere_get_what_a_restored_keeper_has_and_are_told_the_range(
    keeper: Restored, overtakes: bool
) -> None:
    """Whether the restored history is shorter than what was read when it is met again, or longer already."""
    keeper.supply(0, COPIED)
    keeper.copy()
    keeper.supply(1_000, MORE)
    told: list[BaseException] = []
    with hg.Station(domain=DOMAIN, on_error=lambda _, __, error: told.append(error)) as station:
        orders = station.channel(CHANNEL, Order, qos=PERSISTENT)
        live = Reader(orders.consumer(start="earliest"))
        durable = Reader(orders.consumer(name="billing", start="earliest"))
        assert live.takes(COPIED + MORE)
        assert durable.takes(COPIED + MORE)
        durable.consumer.pull(0)
        partition = next(iter(orders._journal.feed.partitions))  # type: ignore[union-attr]  # it is persistent
        keeper.put_back()
        after = AFTER if not overtakes else 3 * AFTER
        live.got.clear()
        durable.got.clear()
        keeper.supply(2_000, after)
        new = list(range(2_000, 2_000 + after))
        assert live.takes(after)
        assert live.got == new
        # The keeper has no cursor of it: that was opened after the copy was made.
        assert durable.takes(COPIED + after)
        assert sorted(durable.got) == [*range(COPIED), *new]
        resets = [error for error in told if isinstance(error, HistoryReset)]
        assert [error.ranges for error in resets] == [{partition: (COPIED, COPIED + MORE)}] * 2
        assert orders.stats().balanced
        # It is live again: what is pushed now comes without being read.
        orders.push(Order(1, 5_000))
        assert live.takes(after + 1)
        assert durable.takes(COPIED + after + 1)
        live.consumer.close()
        durable.consumer.close()
        with orders.consumer(name="billing", until="now") as again:
            assert list(again) == []


def test_a_keeper_that_is_only_started_again_tells_nobody_of_anything(keeper: Restored) -> None:
    keeper.supply(0, COPIED)
    told: list[BaseException] = []
    with hg.Station(domain=DOMAIN, on_error=lambda _, __, error: told.append(error)) as station:
        orders = station.channel(CHANNEL, Order, qos=PERSISTENT)
        live = Reader(orders.consumer(start="earliest"))
        durable = Reader(orders.consumer(name="billing", start="earliest"))
        for life in range(1, 3):
            assert live.takes(life * COPIED)
            assert durable.takes(life * COPIED)
            keeper.kill()
            keeper.supply(life * COPIED, COPIED)
        assert live.takes(3 * COPIED)
        assert durable.takes(3 * COPIED)
        assert live.got == durable.got == list(range(3 * COPIED))
        assert told == []
        live.consumer.close()
        durable.consumer.close()


@pytest.mark.parametrize("coordinates", [False, True], ids=["elsewhere", "here"])
def test_an_ack_that_a_member_holds_for_an_offset_of_before_settles_nothing_that_has_it_now(
    keeper: Restored, tmp_path: Path, coordinates: bool
) -> None:
    """Whether the group's coordinator began anew with the restored keeper, or stayed where the member is."""
    keeper.supply(0, COPIED)
    keeper.copy()
    keeper.supply(1_000, MORE)
    folder = tmp_path / "0" if coordinates else None
    if folder is not None:  # of several keepers the one whose partition comes first opens the group
        folder.mkdir()
        (folder / PARTITION).write_text(f"{1:016x}")
    with hg.Station(folder, domain=DOMAIN, on_error=lambda *_: None) as station:
        orders = station.channel(CHANNEL, Order, qos=PERSISTENT)
        if coordinates:
            assert wait_until(lambda: len(orders._journal.feed.partitions) == 2)  # type: ignore[union-attr]  # it is persistent
        options: dict[str, Any] = {"group": GROUP, "ack": "manual", "max_in_flight": 1_000}
        with orders.consumer(start="earliest", **options) as member:
            assert (GROUP in orders.asking._groups) == coordinates
            held = {one.event.number: one for one in taken(member, COPIED + MORE)}
            keeper.put_back()
            keeper.supply(2_000, AFTER)
            new = set(range(2_000, 2_000 + AFTER))
            again = {one.event.number: one for one in taken(member, COPIED + AFTER)}
            assert again.keys() == {*range(COPIED), *new}
            assert [held[number].ack() for number in range(1_000, 1_000 + MORE)] == [False] * MORE
            for number in range(COPIED):
                again[number].ack()
        with orders.consumer(**options) as other:
            assert {one.event.number for one in taken(other, AFTER)} == new

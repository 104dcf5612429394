"""A class is upgraded while processes are killed: what could not be read was not acknowledged."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.e2e.event_versions import ExtendedNew, ExtendedOld, NewMode, OldMode
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, TRANSPORT, own_meeting_folder, transport, wait_until
from tests.faults.upgrade_process import CHANNEL, DOMAIN, KEPT, STOP
from tests.ring_support import needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOME = 30
"""Events of the older version before the one that it cannot read, and behind it."""


class Upgrade:
    """A keeper with one version of the class, and whoever is the durable consumer just now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "log"
        self._log.touch()
        self._programs: list[Program] = []
        self.keeper_has = "old"
        self.keeper = self._start_keeper()

    def done(self) -> list[tuple[str, str]]:
        """What consumers have done, by version: the number of an event, or that they had to stop."""
        lines = [line.split() for line in self._log.read_text().splitlines()]
        return [(version, what) for version, what in lines]

    def has_done(self, version: str, number: int) -> bool:
        return (version, str(number)) in self.done()

    def start(self, version: str) -> Program:
        return self._run("work", str(self._log), version)

    def kill_keeper(self, next_has: str) -> None:
        """It is killed, and the next one on its folder may have been upgraded."""
        self.keeper.kill()
        self.keeper_has = next_has
        self.keeper = self._start_keeper()

    def kill_after(self, worker: Program, events: int) -> None:
        """Kill a consumer when so many more events are done, or it has to stop; it may be amid the next."""
        until = len(self.done()) + events
        assert wait_until(lambda: len(self.done()) >= until or worker.said[-1:] == ["stopped"])
        worker.kill()

    def end(self) -> None:
        for program in self._programs:
            program.clean_up()

    def _start_keeper(self) -> Program:
        keeper = self._run("keep", str(self._folder / "data"), self.keeper_has)
        keeper.says("keeping")
        return keeper

    def _run(self, *arguments: str) -> Program:
        self._programs.append(Program(*arguments, module="tests.faults.upgrade_process"))
        return self._programs[-1]


@pytest.fixture
def upgrade(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Upgrade]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(TRANSPORT, request.param)
    started = Upgrade(tmp_path)
    yield started
    started.end()


def push_some(first: int) -> tuple[int, int]:
    """The number of the one that the older version cannot read, and of the next to be pushed."""
    stop, end = first + SOME, first + 2 * SOME + 1
    with (
        hg.Station(domain=DOMAIN, transport=transport()) as one,
        hg.Station(domain=DOMAIN, transport=transport()) as other,
    ):
        old = one.channel(CHANNEL, ExtendedOld, qos=KEPT)
        new = other.channel(CHANNEL, ExtendedNew, qos=KEPT)
        for number in range(first, stop):
            assert old.push(ExtendedOld(number, OldMode.A))
        assert new.push(ExtendedNew(stop, NewMode.B))
        for number in range(stop + 1, end):
            assert old.push(ExtendedOld(number, OldMode.A))
    return stop, end


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("upgrade", "keeper_is"),
    [("socket", "old"), pytest.param("ring", "new", marks=needs_rings)],
    indirect=["upgrade"],
)
def test_a_killed_consumer_stops_where_it_cannot_read_and_the_upgraded_one_goes_on_there(
    upgrade: Upgrade, keeper_is: str
) -> None:
    chance = random.Random(keeper_is)
    first = 0
    for _ in range(examples(1)):
        stop, end = push_some(first)
        kill_amid = [chance.randrange(1, SOME // 2) for _ in range(2)]
        upgrade.kill_after(upgrade.start("old"), kill_amid[0])
        worker = upgrade.start("old")
        worker.says("working")
        upgrade.kill_keeper(keeper_is)
        worker.says("stopped")
        worker.kill()
        # Whoever comes next in that version is told the same, and gets nothing.
        before = upgrade.done()
        worker = upgrade.start("old")
        worker.says("stopped")
        assert upgrade.done() == [*before, ("old", STOP)]
        worker.kill()

        upgrade.kill_after(upgrade.start("new"), kill_amid[1])
        worker = upgrade.start("new")
        assert wait_until(partial(upgrade.has_done, "new", end - 1), 2 * LIMIT), upgrade.done()[-3:]
        worker.kill()
        check(upgrade.done(), first, stop, end)
        first = end


def check(done: list[tuple[str, str]], first: int, stop: int, end: int) -> None:
    """In order, none left out, and again only what a killed consumer had not acknowledged."""
    round_of = [(version, int(what)) for version, what in done if what != STOP and int(what) >= first]
    reached = first - 1
    for version, number in round_of:
        assert number in (reached, reached + 1), f"{number} came behind {reached}"
        assert version == "new" or number < stop, "what could not be read"
        reached = max(reached, number)
    assert reached == end - 1

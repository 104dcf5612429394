"""kill -9 at random instants while members join, leave, push and acknowledge, and owners administer."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, wait_until
from tests.faults.manager_process import FILTERS, WING, Drawing
from tests.manager_model import Model, Operation, shown
from tests.support import examples

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 4
COMPACTED = 1
"""The life after which the log is compacted; the programs do so themselves, as far as they live."""
ENOUGH = 60
"""Things that were asked for before the first kill."""
LONGEST = 0.2
NUMBERS = 1_000_000
"""Numbers of events that each life may use."""


class UnackedLog:
    """What the programs were promised: the members, what each of them is still to get, and all events."""

    def __init__(self) -> None:
        self.model = Model()
        self.owed: dict[str, list[int]] = {}
        self.pushed: list[int] = []
        self.done = 0

    def enter(self, what: str) -> None:
        """Something that was done."""
        kind, user, access, last = what.split()
        self.done += 1
        if kind == "pushed":
            self._push(part=access, number=int(last))
        elif kind == "acked":
            self.owed[user].remove(int(last))
        else:
            self.model.do(Operation(kind, WING, user, access, last))
            if kind in ("created", "joined") and access != "supply":
                self.owed[user] = []
            elif kind == "left":
                self.owed.pop(user, None)

    def _push(self, part: str, number: int) -> None:
        self.pushed.append(number)
        for user, owed in self.owed.items():
            if f"'{part}'" in FILTERS.get(user, f"'{part}'"):
                owed.append(number)

    def settle(self, under_way: str, station: hg.Station) -> str:
        """What was under way has come about or not; what cannot be seen yet is returned."""
        kind, _, _, last = under_way.split()
        if kind == "pushed":
            if int(last) in history(station):
                self.enter(under_way)
        elif kind == "acked":
            return under_way
        elif shown(station.manager.channels()) != self.model.shown():
            self.enter(under_way)
        return ""


def history(station: hg.Station) -> list[int]:
    if not station.manager.channels():
        return []
    with station.manager.find(WING, Drawing).consumer(start="earliest", until="now") as consumer:
        return [drawing.number for drawing in consumer]


def check(book: UnackedLog, folder: Path, under_way: str) -> None:
    """Members are as they were promised, every acknowledged event is there, and all that is owed comes."""
    with hg.Station(folder) as station:
        doubt = book.settle(under_way, station) if under_way else ""
        assert shown(station.manager.channels()) == book.model.shown(), under_way
        assert history(station) == book.pushed
        for user, owed in book.owed.items():
            with station.manager.member(WING, user).consumer(until="now") as consumer:
                got = [drawing.number for drawing in consumer]
            if doubt.startswith(f"acked {user} ") and got != owed:
                owed.remove(int(doubt.split()[-1]))
            assert got == owed, f"{user}, with {under_way!r} under way"
            owed.clear()


def has_lines(log: Path, lines: int) -> bool:
    return log.read_text().count("\n") >= lines


@pytest.mark.timeout(examples(300))
def test_exactly_those_are_members_who_were_told_so_and_they_get_what_they_lack(tmp_path: Path) -> None:
    chance = random.Random(20_261)
    book, folder = UnackedLog(), tmp_path / "data"
    for life in range(examples(KILLS)):
        log = tmp_path / f"log-{life}"
        arguments = (str(folder), str(log), str(life), str(life * NUMBERS))
        program = Program(*arguments, module="tests.faults.manager_process")
        try:
            program.says("playing", 6 * LIMIT)
            if not life:
                assert wait_until(partial(has_lines, log, ENOUGH), 6 * LIMIT)
            time.sleep(chance.uniform(0, LONGEST))
            program.kill()
        finally:
            program.clean_up()
        *lines, under_way = log.read_text().split("\n") if log.exists() else [""]
        for line in lines:
            what, _, outcome = line.rpartition(" ")
            if outcome == "done":
                book.enter(what)
        # Of its end no more may be there than that it was done.
        check(book, folder, under_way.removesuffix(" done"))
        if life == COMPACTED:
            with hg.Station(folder) as station:
                station.manager.compact()  # from here on the log begins with that
                assert shown(station.manager.channels()) == book.model.shown()
    assert book.done >= ENOUGH // 2
    assert book.pushed

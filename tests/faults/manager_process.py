"""A program that tests kill: it joins, leaves, suspends, transfers, pushes and acknowledges, and notes it.

Before it asks for something it writes what into a file, and behind that, when it has come about, `done`, or
`refused`. Whatever instant it is killed at, all that stands there as done was acknowledged to it, and at most
one thing was under way.
"""

from __future__ import annotations

import os
import random
import sys
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import heliograph as hg
from heliograph.errors import ChannelError
from heliograph.manager import manager as managers

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.manager import Manager

T = TypeVar("T")

WING = "project.wing"
USERS = ("anna", "bert", "carl", "dora")
FILTERS = {"bert": "part = 'flap'", "dora": "part = 'rudder'"}
KINDS = ("joined", "joined", "left", "suspended", "restarted", "restarted", "transferred")


class Drawing(hg.Event, name="kill.drawing"):
    part: str
    number: int


class Player:
    """Does one thing after another, by chance."""

    def __init__(self, manager: Manager, log: str, seed: int, first: int) -> None:
        self._manager = manager
        self._file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._chance = random.Random(seed)
        self._numbers = count(first)
        self._suppliers: dict[str, Any] = {}
        self._consumers: dict[str, Any] = {}

    def begin(self) -> None:
        if self._manager.channels():
            self._manager.find(WING, Drawing)
        else:
            self._ask("created anna both -", lambda: self._manager.create(WING, Drawing, owner="anna"))

    def step(self) -> None:
        user = self._chance.choice(USERS)
        chosen = self._chance.random()
        if chosen < 0.4:
            self._push(user)
        elif chosen < 0.8:
            self._acknowledge(user)
        else:
            self._administer(user)

    def _push(self, user: str) -> None:
        member = self._manager.find_managed(WING).members.get(user)
        if member is None or not member.supplies:
            return
        if user not in self._suppliers:
            self._suppliers[user] = self._manager.member(WING, user).supplier()
        drawing = Drawing(self._chance.choice(("flap", "rudder")), next(self._numbers))
        self._ask(
            f"pushed {user} {drawing.part} {drawing.number}", lambda: self._suppliers[user].push(drawing)
        )

    def _acknowledge(self, user: str) -> None:
        member = self._manager.find_managed(WING).members.get(user)
        if member is None or not member.consumes:
            return
        if user not in self._consumers:
            self._consumers[user] = self._manager.member(WING, user).consumer(ack="manual")
        for delivery in self._consumers[user].deliveries(timeout=0):
            self._ask(f"acked {user} - {delivery.event.number}", delivery.ack)
            break

    def _administer(self, user: str) -> None:
        kind = self._chance.choice(KINDS)
        access: Any = self._chance.choice(("both", "both", "consume", "supply"))
        to = self._chance.choice(USERS)
        asked = f"{kind} {user} {access} {to}"
        match kind:
            case "joined":
                where = None if access == "supply" else FILTERS.get(user)
                self._ask(asked, lambda: self._manager.join(WING, user, access=access, where=where))
            case "left":
                if self._ask(asked, lambda: self._manager.leave(WING, user)):
                    self._suppliers.pop(user, None)
                    self._consumers.pop(user, None)
            case "suspended":
                self._ask(asked, lambda: self._manager.suspend(WING, by=user))
            case "restarted":
                self._ask(asked, lambda: self._manager.restart(WING, by=user))
            case "transferred":
                self._ask(asked, lambda: self._manager.transfer(WING, by=user, to=to))

    def _ask(self, what: str, call: Callable[[], object]) -> bool:
        os.write(self._file, what.encode())
        try:
            call()
        except ChannelError:
            os.write(self._file, b" refused\n")
            return False
        os.write(self._file, b" done\n")
        return True


def play(folder: str, log: str, seed: str, first: str) -> None:
    with hg.Station(folder, on_error=lambda *_: None) as station:
        managers.COMPACT_RECORDS = 12  # type: ignore[misc]  # so that kills come in the midst of compactions
        player = Player(station.manager, log, int(seed), int(first))
        player.begin()
        print("playing", flush=True)
        while True:
            player.step()


if __name__ == "__main__":
    play(*sys.argv[1:])

"""Questions are answered in their order, and that a station has gone is heard after the last of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import msgspec

from heliograph.link import messages as m
from heliograph.link.questions import WAITING, Questions
from heliograph.ports import system_ports
from tests.e2e.link_support import LIMIT, wait_until

if TYPE_CHECKING:
    from heliograph.link.link import Link

STATION = 7


class FakeLink:
    """A link over which nothing goes."""

    station = STATION
    closed = False

    def post(self, *posted: m.Message) -> None: ...


class Host:
    """Seats who asks, when it is let; and lets go of who has left."""

    def __init__(self) -> None:
        self.link = FakeLink()
        self.heard: list[str] = []
        self.seated: set[int] = set()
        self.may_answer = threading.Event()
        self.questions = Questions(system_ports())
        self.questions.answer("join", self._join)
        self.questions.on_left(self._left)

    def ask(self, times: int = 1) -> None:
        for number in range(times):
            self.questions.on_ask(cast("Link", self.link), m.Ask(number, "join", msgspec.Raw(b"\xc0")))

    def leave(self) -> None:
        self.link.closed = True
        self.questions.station_left(cast("Link", self.link))

    def _join(self, station: int, _: msgspec.Raw, reply: Any) -> None:
        self.may_answer.wait(LIMIT)
        self.heard.append("join")
        self.seated.add(station)
        reply(None)

    def _left(self, station: int) -> None:
        self.heard.append("left")
        self.seated.discard(station)


def test_who_has_gone_while_its_questions_were_in_line_holds_nothing() -> None:
    host = Host()
    host.ask(2)
    host.leave()
    host.ask()
    host.may_answer.set()
    assert wait_until(lambda: "left" in host.heard)
    host.questions.close()
    assert (host.heard, host.seated) == (["join", "join", "left"], set())


def test_so_it_is_when_no_more_questions_can_wait() -> None:
    host = Host()
    host.ask(WAITING + 2)
    host.leave()
    host.may_answer.set()
    assert wait_until(lambda: "left" in host.heard)
    host.questions.close()
    assert (host.heard[-1], host.seated) == ("left", set())


def test_when_this_station_closes_it_hears_at_once() -> None:
    host = Host()
    host.may_answer.set()
    host.ask()
    assert wait_until(lambda: host.seated)
    host.questions.close()
    host.leave()
    assert (host.heard, host.seated) == (["join", "left"], set())

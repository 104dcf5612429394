"""Questions are answered in their order, and that a station has gone is heard after the last of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from heliograph.errors import NoThreadLeft, QueryFailed
from heliograph.links.session import messages as m
from heliograph.links.session.rpc import WAITING, Rpc
from heliograph.runtime.ports import ThreadTasks, system_ports
from tests.e2e.link_support import LIMIT, wait_until

if TYPE_CHECKING:
    from heliograph.links.session.link import Link

STATION = 7


class FakeLink:
    """A link over which nothing goes."""

    station = STATION
    name = called = f"{STATION:016x}"
    closed = False

    def post(self, *posted: m.Message) -> None: ...


class Host:
    """Seats who asks, when it is let; and lets go of who has left."""

    def __init__(self) -> None:
        self.link = FakeLink()
        self.heard: list[str] = []
        self.seated: set[int] = set()
        self.may_answer = threading.Event()
        self.questions = Rpc(system_ports())
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


def test_a_station_that_hangs_is_waited_for_once() -> None:
    """Until it answers anything: then it has all the time again."""
    questions, link = Rpc(system_ports()), cast("Link", FakeLink())
    with pytest.raises(QueryFailed, match="has not answered"):
        questions.ask(link, "here", None, 0.2)
    assert questions.patience(STATION, 0.2) == 0.0
    assert 0.0 < questions.patience(STATION, 60.0) < 60.0
    assert questions.patience(STATION + 1, 0.2) == 0.2
    questions.on_answer(link, m.Answer(1, msgspec.Raw(b"\xc0")))
    assert questions.patience(STATION, 0.2) == 0.2


def test_a_station_that_is_linked_anew_before_it_is_struck_off_still_answers() -> None:
    questions = Rpc(system_ports())
    old, new = (cast("Link", FakeLink()) for _ in range(2))
    answers: dict[str, Any] = {}
    first = questions.ask_later(old, "double", 21, lambda answer: answers.update(old=answer))
    second = questions.ask_later(new, "double", 21, lambda answer: answers.update(new=answer))
    questions.on_answer(new, m.Answer(first, msgspec.Raw(b"\xc0")))
    questions.station_left(old)
    assert isinstance(answers.pop("old"), QueryFailed)
    questions.on_answer(new, m.Answer(second, msgspec.Raw(b"\x2a")))
    assert bytes(answers.pop("new")) == b"\x2a"


def test_a_question_for_which_no_thread_was_left_is_answered_when_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host()
    host.may_answer.set()
    ThreadTasks().prepare()
    with monkeypatch.context() as starved:
        starved.setattr(ThreadTasks, "spawn", no_thread)
        host.ask()
        assert host.heard == []
    assert wait_until(lambda: host.heard == ["join"])
    host.questions.close()


def no_thread(_: object, name: str, __: object) -> None:
    raise NoThreadLeft(name, "can't start new thread")

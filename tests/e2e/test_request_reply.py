"""Questions between processes: answers, failures, kills, and nothing left behind."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.testing import CliRunner

import heliograph as hg
from heliograph.cli import app
from heliograph.errors import QueryFailed
from heliograph.links.session import rpc
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until
from tests.e2e.request_process import Ask, Price

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@contextmanager
def answerers(number: int = 1) -> Iterator[list[Program]]:
    with ExitStack() as stack:
        programs = [Program(module="tests.e2e.request_process") for _ in range(number)]
        for program in programs:
            stack.callback(program.clean_up)
            program.says("answers")
        yield programs


@contextmanager
def asking() -> Iterator[hg.Channel[Any]]:
    with hg.Station(domain="e2e") as station:
        channel: hg.Channel[Any] = station.channel("prices", Ask, Price)
        yield channel
        assert channel.requests.asked == 0
        assert station.mesh is not None
        assert station.mesh.questions_asked == 0


def test_a_process_answers_refuses_and_is_asked_by_hand() -> None:
    with answerers() as (program,), asking() as prices:
        assert prices.ask(Ask("bolt"), LIMIT) == Price("bolt", program.process.pid)
        with pytest.raises(hg.AnswerFailed, match="'quote' raised LookupError: no such part"):
            prices.ask(Ask("bad"), LIMIT)
        arguments = ["ask", "prices", '{"part": "nut"}', "--type", "price.ask", "--domain", "e2e", "--json"]
        result = CliRunner().invoke(app, arguments)
        assert msgspec.json.decode(result.stdout)["answer"] == {"part": "nut", "pid": program.process.pid}


def test_questions_of_many_threads_go_round_the_answerers_and_each_is_answered_as_asked() -> None:
    answers: list[Price | None] = []

    def ask_some(prices: hg.Channel[Any], first: int) -> None:
        answers.extend(prices.ask(Ask(str(i)), LIMIT) for i in range(first, first + 25))

    with answerers(2) as programs, asking() as prices:
        assert wait_until(lambda: len(prices.requests.candidates()) == 2)
        threads = [Thread(target=ask_some, args=(prices, 25 * n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * LIMIT)
        assert sorted(int(answer.part) for answer in answers if answer is not None) == list(range(100))
        assert {answer.pid for answer in answers if answer} == {p.process.pid for p in programs}
        asked = [line for program in programs for line in program.said if line.startswith("asked")]
        assert len(asked) == 100  # each once


def test_an_answerer_that_is_killed_is_named_and_the_next_question_goes_to_another() -> None:
    errors: list[hg.HeliographError] = []

    def ask_slow(prices: hg.Channel[Any]) -> None:
        try:
            prices.ask(Ask("slow"), 2 * LIMIT)
        except hg.AnswererLost as error:
            errors.append(error)

    with answerers() as (victim,), asking() as prices:
        assert prices.ask(Ask("bolt"), LIMIT) is not None
        asker = Thread(target=ask_slow, args=(prices,))
        asker.start()
        victim.says("asked slow")
        victim.kill()
        asker.join(2 * LIMIT)
        (lost,) = errors
        assert lost.retriable
        with pytest.raises(hg.NoAnswerer):
            prices.ask(Ask("bolt"), LIMIT)
        with answerers() as (heir,):
            assert prices.ask(Ask("bolt"), LIMIT) == Price("bolt", heir.process.pid)


def test_an_answerer_that_is_stopped_costs_no_more_than_the_time_given() -> None:
    with answerers() as (program,), asking() as prices:
        assert prices.ask(Ask("bolt"), LIMIT) is not None
        program.stop()
        with pytest.raises((hg.AnswerTimeout, hg.AnswererLost)):
            prices.ask(Ask("nut"), 0.2)
        program.go_on()

        def answered() -> bool:
            try:
                return prices.ask(Ask("again"), 1.0) is not None
            except hg.ChannelError:
                return False

        assert wait_until(answered)


def test_what_no_frame_can_carry_is_refused_and_the_link_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_BODY", 10_000)
    with hg.Station(domain="e2e") as other, asking() as prices:
        other.channel("prices", Ask, Price).answer(lambda ask: Price(ask.part * 1_000, 1))
        with pytest.raises(QueryFailed, match=r"the answer has 20,[0-9]+ bytes; at most 10,000 cross"):
            prices.ask(Ask("x" * 20), LIMIT)
        with pytest.raises(QueryFailed, match=r"the question has 20,[0-9]+ bytes; at most 10,000 cross"):
            prices.ask(Ask("x" * 20_000), LIMIT)
        assert prices.ask(Ask("x"), LIMIT) == Price("x" * 1_000, 1)

"""Questions that are asked and answered inside one station."""

from __future__ import annotations

import asyncio
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel import request_reply
from tests.e2e.link_support import LIMIT, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Ask(hg.Event, name="price.ask", key="part"):
    part: str


class Price(hg.Event, name="price.price"):
    part: str
    cents: int


class Other(hg.Event):
    pass


@pytest.fixture
def station() -> Iterator[hg.Station]:
    with hg.Station(on_error=lambda *_: None) as opened:
        yield opened


@pytest.fixture
def prices(station: hg.Station) -> hg.Channel[Any]:
    return station.channel("prices", Ask, Price)


def test_a_question_is_answered_and_no_subscriber_sees_it(prices: hg.Channel[Any]) -> None:
    seen: list[object] = []
    prices.subscribe(seen.append)
    prices.answer(lambda ask: Price(ask.part, 7))
    assert prices.ask(Ask("bolt"), timeout=LIMIT) == Price("bolt", 7)
    assert prices.stats().pushed == 0
    assert seen == []


def test_each_question_has_an_id_of_its_own_which_the_answerer_is_told(prices: hg.Channel[Any]) -> None:
    headers: list[hg.Header] = []

    @prices.answer
    def quote(ask: Ask, header: hg.Header) -> None:
        headers.append(header)

    assert prices.ask(Ask("bolt"), LIMIT) is None
    assert prices.ask(Ask("nut"), LIMIT) is None
    assert len({header.correlation_id for header in headers}) == 2
    assert [header.key for header in headers] == [("bolt",), ("nut",)]
    assert all(header.correlation_id == str(header.id) for header in headers)


def test_nobody_answers(prices: hg.Channel[Any]) -> None:
    with pytest.raises(hg.NoAnswerer, match=r"channel\.answer\(function\)"):
        prices.ask(Ask("bolt"))


def test_an_answerer_that_raises_is_named_with_what_it_raised(prices: hg.Channel[Any]) -> None:
    @prices.answer
    def quote(ask: Ask) -> Price:
        raise LookupError(f"no {ask.part}")

    with pytest.raises(hg.AnswerFailed, match="'quote' raised LookupError: no bolt"):
        prices.ask(Ask("bolt"), LIMIT)
    assert prices.requests.answerers[0].failed == 1


def test_an_answer_that_the_channel_does_not_carry_is_a_failure_of_the_answerer(
    prices: hg.Channel[Any],
) -> None:
    prices.answer(lambda _: 7)
    with pytest.raises(hg.AnswerFailed, match="WrongEventType"):
        prices.ask(Ask("bolt"), LIMIT)


def test_an_answer_that_does_not_come_in_time_leaves_nothing_behind(prices: hg.Channel[Any]) -> None:
    go_on = Event()
    prices.answer(lambda ask: Price(ask.part, 7) if go_on.wait(LIMIT) else None)
    with pytest.raises(hg.AnswerTimeout) as caught:
        prices.ask(Ask("bolt"), 0.01)
    assert caught.value.retriable
    assert caught.value.question
    assert prices.requests.asked == 0
    go_on.set()
    assert prices.ask(Ask("nut"), LIMIT) == Price("nut", 7)


def test_a_question_whose_time_is_over_is_not_asked_any_more(prices: hg.Channel[Any]) -> None:
    asked: list[str] = []
    begun, go_on = Event(), Event()

    @prices.answer
    def quote(ask: Ask) -> None:
        asked.append(ask.part)
        begun.set()
        go_on.wait(LIMIT)

    first = Thread(target=lambda: prices.ask(Ask("slow"), LIMIT))
    first.start()
    assert begun.wait(LIMIT)
    with pytest.raises(hg.AnswerTimeout):
        prices.ask(Ask("late"), 0.01)
    go_on.set()
    first.join(LIMIT)
    prices.ask(Ask("last"), LIMIT)
    assert asked == ["slow", "last"]


def test_several_answerers_share_the_questions(prices: hg.Channel[Any]) -> None:
    def one(ask: Ask) -> Price:
        return Price(ask.part, 1)

    def two(ask: Ask) -> Price:
        return Price(ask.part, 2)

    prices.answer(one)
    prices.answer(two)
    assert {prices.ask(Ask("bolt"), LIMIT).cents for _ in range(4)} == {1, 2}
    prices.unanswer(one)
    assert {prices.ask(Ask("bolt"), LIMIT).cents for _ in range(4)} == {2}
    with pytest.raises(hg.NotPossible, match="answers nothing here"):
        prices.unanswer(one)


def test_more_than_may_wait_are_refused_and_what_waits_is_answered(
    prices: hg.Channel[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_reply, "MAX_QUESTIONS", 1)
    begun, go_on = Event(), Event()

    @prices.answer
    def quote(ask: Ask) -> Price:
        begun.set()
        go_on.wait(LIMIT)
        return Price(ask.part, 7)

    answers: list[object] = []
    askers = [Thread(target=lambda: answers.append(prices.ask(Ask("bolt"), LIMIT))) for _ in range(2)]
    askers[0].start()
    assert begun.wait(LIMIT)
    askers[1].start()
    assert wait_until(lambda: prices.requests.answerers[0].waiting == 1)
    with pytest.raises(hg.AnswererBusy):
        prices.ask(Ask("bolt"), LIMIT)
    go_on.set()
    for asker in askers:
        asker.join(LIMIT)
    assert answers == [Price("bolt", 7)] * 2


def test_async_functions_answer_and_async_programs_ask(prices: hg.Channel[Any]) -> None:
    @prices.answer
    async def quote(ask: Ask) -> Price:
        await asyncio.sleep(0)
        return Price(ask.part, 7)

    async def program() -> list[Any]:
        return list(await asyncio.gather(*(prices.aask(Ask(str(i)), LIMIT) for i in range(5))))

    assert asyncio.run(program()) == [Price(str(i), 7) for i in range(5)]


def test_an_async_program_does_not_wait_for_longer_than_it_may(prices: hg.Channel[Any]) -> None:
    go_on = Event()
    prices.answer(lambda _: go_on.wait(LIMIT) and None)
    with pytest.raises(hg.AnswerTimeout):
        asyncio.run(prices.aask(Ask("bolt"), 0.01))
    go_on.set()


def test_what_cannot_be_asked_is_refused_before_anybody_is_asked(
    station: hg.Station, prices: hg.Channel[Any]
) -> None:
    asked: list[object] = []
    prices.answer(asked.append)
    with pytest.raises(hg.WrongEventType, match="carries"):
        prices.ask(Other())
    with pytest.raises(hg.InvalidEvent):
        prices.ask(Ask(7))  # type: ignore[arg-type]  # that is the point
    with pytest.raises(hg.NotPossible, match="timeout="):
        prices.ask(Ask("bolt"), -1.0)
    with pytest.raises(TypeError, match="cannot be called"):
        prices.answer(7)  # type: ignore[type-var]  # that is the point
    assert asked == []


def test_who_only_consumes_does_not_ask_and_who_only_supplies_does_not_answer(station: hg.Station) -> None:
    with pytest.raises(hg.NotPossible, match="only consumes"):
        station.channel("in", Ask, access="consume").ask(Ask("bolt"))
    with pytest.raises(hg.NotPossible, match="only supplies"):
        station.channel("out", Ask, access="supply").answer(lambda _: None)


def test_a_suspended_channel_takes_no_questions(tmp_path: Any) -> None:
    with hg.Station(tmp_path) as station:
        prices: hg.Channel[Any] = station.manager.create("prices", Ask, owner="anna")
        prices.answer(lambda _: None)
        station.manager.suspend("prices", by="anna")
        with pytest.raises(hg.Suspended):
            prices.ask(Ask("bolt"), LIMIT)
        station.manager.restart("prices", by="anna")
        assert prices.ask(Ask("bolt"), LIMIT) is None


def test_a_channel_that_is_closed_lets_go_of_who_asks(prices: hg.Channel[Any]) -> None:
    begun, go_on, ends = Event(), Event(), []

    @prices.answer
    def quote(ask: Ask) -> None:
        begun.set()
        go_on.wait(LIMIT)

    def ask() -> None:
        try:
            prices.ask(Ask("bolt"), LIMIT)
        except hg.Closed as error:
            ends.append(error)

    asker = Thread(target=ask)
    asker.start()
    assert begun.wait(LIMIT)
    prices.close()
    asker.join(LIMIT)
    go_on.set()
    assert len(ends) == 1
    with pytest.raises(hg.Closed):
        prices.ask(Ask("bolt"))


def test_an_answerer_that_exits_fails_at_that_question_and_answers_the_next(prices: hg.Channel[Any]) -> None:
    @prices.answer
    def quote(ask: Ask) -> Price:
        if ask.part == "bad":
            raise SystemExit(3)
        return Price(ask.part, 7)

    with pytest.raises(hg.AnswerFailed, match="SystemExit"):
        prices.ask(Ask("bad"), LIMIT)
    assert prices.ask(Ask("bolt"), LIMIT) == Price("bolt", 7)


def test_an_answer_that_cannot_be_told_does_not_hold_up_the_next(prices: hg.Channel[Any]) -> None:
    prices.answer(lambda ask: Price(ask.part, 7))
    header = hg.Header("prices", "price.ask", "me", 1, 1, 0, b"")

    def told(_: object) -> None:
        raise OSError("whoever asked is gone")

    prices.requests.put(Ask("bad"), header, LIMIT, told)
    assert prices.ask(Ask("bolt"), LIMIT) == Price("bolt", 7)


def test_an_async_answerer_that_is_too_late_is_cancelled(prices: hg.Channel[Any]) -> None:
    ended = Event()

    @prices.answer
    async def quote(ask: Ask) -> None:
        try:
            await asyncio.sleep(LIMIT)
        finally:
            ended.set()

    with pytest.raises((hg.AnswerTimeout, hg.AnswerFailed)):  # of two limits that end together
        prices.ask(Ask("bolt"), 0.1)
    assert ended.wait(LIMIT / 2)

"""The answerers of linked stations: both sides of a question that crosses a link.

A question and its answer are pages of one event each, so that both sides may have other versions of a class.
What is left of the time to answer goes with the question, for the clocks of stations have nothing in common.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from heliograph.errors import (
    AnswererBusy,
    AnswererLost,
    AnswerFailed,
    HeliographError,
    NoAnswerer,
    QueryFailed,
    UnknownFormat,
)
from heliograph.links.history.pages import Page, PageReader, to_page
from heliograph.links.session import messages as m
from heliograph.links.session.rpc import GONE
from heliograph.model.event import Header, Name, info_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.request_reply import Outcome
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.session.rpc import Reply
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.model.event import Event

TOPIC: Final = "ask"

Text = Annotated[str, Meta(max_length=600)]


class AnswererQuestion(msgspec.Struct, array_like=True):
    channel: Name
    seconds: Annotated[float, Meta(ge=0, le=1e9)]
    """What is left of the time to answer it."""
    page: Page


class Answered(msgspec.Struct, array_like=True):
    """One of the three: an answer, why the answerer failed, or that nobody has begun with it."""

    page: Page
    failure: tuple[Text, Text, Text] | None = None
    """The answerer's name, the class of what it raised, and what that said."""
    busy: int = -1
    """How many questions wait already; 0: nobody answers; -1: it was asked."""


_question: Final = msgspec.msgpack.Decoder(AnswererQuestion).decode
_answered: Final = msgspec.msgpack.Decoder(Answered).decode


class LinkedAnswerers:
    """See the module.

    Args:
        mesh: the linked stations.
        channel: a channel of this station by its name, or None.
        writer: makes events into bytes.
    """

    def __init__(
        self, mesh: Mesh, channel: Callable[[str], Channel[Any] | None], writer: EventWriter
    ) -> None:
        self._mesh = mesh
        self._channel = channel
        self._writer = writer
        mesh.answer(TOPIC, self._answer)

    # In the station that asks

    def stations(self, channel: str) -> list[int]:
        return [
            other.station
            for other in self._mesh.stations()
            if any(state.name == channel and state.answerers for state in other.channels)
        ]

    def meet(self, timeout: float) -> None:
        self._mesh.meet_all(timeout)

    def ask(
        self,
        station: int,
        channel: Channel[Any],
        question: tuple[Event, Header],
        seconds: float,
        told: Outcome,
    ) -> Callable[[], object]:
        body = AnswererQuestion(channel.name, seconds, to_page(self._writer, [(*question, 0)]))
        text, question_id = f"{station:016x}", question[1].correlation_id or ""

        def hear(answer: msgspec.Raw | HeliographError) -> None:
            told(self._read(channel, text, question_id, answer))

        return self._mesh.ask_later(station, TOPIC, body, hear)

    def _read(
        self,
        channel: Channel[Any],
        station: str,
        question: str,
        answer: msgspec.Raw | HeliographError,
    ) -> Event | HeliographError | None:
        if isinstance(answer, QueryFailed) and answer.reason == GONE:
            return AnswererLost(channel.name, station, question)
        if isinstance(answer, HeliographError):
            return answer
        try:
            found = m.decoded(_answered, answer, station)
            if found.busy >= 0:
                return AnswererBusy(channel.name, found.busy) if found.busy else NoAnswerer(channel.name)
            if found.failure is not None:
                return AnswerFailed(channel.name, *found.failure)
            return self._event(channel, found.page, station)[0]
        except HeliographError as error:
            return error

    # In the station that answers

    def _answer(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        question = m.decoded(_question, body, f"{station:016x}")
        channel = self._channel(question.channel)
        nobody = Answered(Page([]), busy=0)
        if channel is None or channel.closed:
            reply(nobody)
            return
        if channel.suspended is not None:
            raise channel.suspended()
        event, header = self._event(channel, question.page, f"{station:016x}")
        if event is None or header is None:
            raise NoAnswerer(channel.name)
        try:
            channel.requests.put(event, header, question.seconds, partial(self._told, channel, header, reply))
        except NoAnswerer:
            reply(nobody)
        except AnswererBusy as busy:
            reply(Answered(Page([]), busy=busy.waiting))

    def _told(
        self,
        channel: Channel[Any],
        question: Header,
        reply: Reply,
        answer: Event | HeliographError | None,
    ) -> None:
        if isinstance(answer, AnswerFailed):
            reply(Answered(Page([]), (answer.answerer[:500], answer.error[:500], answer.text[:500])))
        elif isinstance(answer, NoAnswerer):
            reply(Answered(Page([]), busy=0))
        elif isinstance(answer, HeliographError):
            reply(answer)
        elif answer is None:
            reply(Answered(Page([])))
        else:
            reply(Answered(to_page(self._writer, [(answer, _answer_header(channel, question, answer), 0)])))

    def _event(self, channel: Channel[Any], page: Page, peer: str) -> tuple[Event | None, Header | None]:
        if not page.runs:
            return None, None
        reader = PageReader(channel.name, self._writer.clock, channel.qos.missing)
        found = reader.read(page, channel.types, peer)
        if found.refused:
            raise found.refused[0].error
        if not found.items:
            wire = reader.wire_of(page.runs[0])
            raise UnknownFormat(wire.id)
        event, header, _ = found.items[0]
        return event, header


def _answer_header(channel: Channel[Any], question: Header, answer: Event) -> Header:
    info = info_of(type(answer))
    return Header(
        channel.name,
        info.name,
        question.supplier,
        question.epoch,
        question.sequence,
        channel.ports.clock.time_ns(),
        info.format.id,
        key=tuple(getattr(answer, name) for name in info.key),
        correlation_id=question.correlation_id,
    )

"""Requests and replies between stations: history, cursors, appends, groups.

    questions.answer("double", lambda station, body, reply: reply(2 * msgspec.msgpack.decode(body)))
    body = questions.ask(link, "double", 21, timeout=1.0)

A question goes over the control lane, after everything said there before it: who asks for history after
telling what it wants has it known there first. Answers are worked out in one task per station, so that a
reader never waits for a disk; an answer may also come later, when a disk has synced. In the same task, after
its last question, who answers hears that a station has gone (`on_left`) and lets go of what it holds for it.

An error in place of an answer is raised here as it was there, if it is one of
`heliograph.links.session.remote_errors`; else it is QueryFailed.

A station that hangs is waited for once: after a question that was not answered in time, limits count from
when that was asked, until something is heard of the station. Whoever asks next does not wait all over again.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from heliograph.errors import HeliographError, QueryFailed, QueueClosed
from heliograph.links.contract import MAX_FRAME
from heliograph.links.session import messages as m
from heliograph.links.session.remote_errors import error_of, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links.session.link import Link
    from heliograph.runtime.ports import Ports, Queue, Tasks

log = logging.getLogger(__name__)

WAITING: Final = 10_000
"""Questions that may wait for an answer here; more are turned down."""

MAX_BODY: Final = MAX_FRAME - (1 << 20)
"""Bytes of a question or an answer: a frame that no peer reads would be sent to it again and again."""

GONE: Final = "has gone"
"""Why there is no answer of a station whose process has ended: what it did with the question is unknown."""

SILENT: Final = "has not answered"
"""How the reason begins where a station took too long: what it did with the question is unknown, too."""

GRACE: Final = 0.05
"""Seconds that an answer is waited for in any case: a station that was silent may just be back."""

Reply: TypeAlias = "Callable[[Any], None]"
Responder: TypeAlias = "Callable[[int, msgspec.Raw, Reply], None]"
"""Answers a question of (station, body) by calling its third argument, now or later, with the answer or with
an error; or raises."""
Outcome: TypeAlias = "Callable[[msgspec.Raw | HeliographError], None]"
"""Told the answer's body, or why there is none."""


def reply_apart(tasks: Tasks, name: str, reply: Reply, work: Callable[[], Any]) -> None:
    """Answer in a task of its own: the work may wait for a disk or a push, and other questions do not wait.

    Args:
        tasks: makes the task.
        name: of the task.
        reply: told what the work returns, or what it refuses; a HeliographError is raised where it was asked.
        work: finds the answer.
    """

    def answer() -> None:
        try:
            answered = work()
        except HeliographError as error:
            answered = error
        reply(answered)

    tasks.spawn_soon(name, answer)


class Rpc:
    """What this station has asked and what it answers."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._lock = ports.tasks.lock("questions")
        self._numbers = count(1)
        self._asked: dict[int, tuple[Link, Outcome]] = {}
        """By the link they went over: one that is closed may have a successor to the same station already."""
        self._silent: dict[int, int] = {}
        """Since when a station has answered nothing, if that was too long for somebody."""
        self._heard: dict[int, int] = {}
        """When a station has last answered anything."""
        self._responders: dict[str, Responder] = {}
        # A link without a question has been closed.
        self._waiting: Queue[tuple[Link, m.Ask | None]] = ports.tasks.queue("questions", WAITING)
        self._hear_of_leaving: list[Callable[[int], object]] = []
        self._answering = False

    def answer(self, topic: str, responder: Responder) -> None:
        """Answer questions of a topic."""
        self._responders[topic] = responder

    def on_left(self, hear: Callable[[int], object]) -> None:
        """Have this called with a station that will ask nothing more."""
        self._hear_of_leaving.append(hear)

    def ask(self, link: Link, topic: str, body: Any, timeout: float) -> msgspec.Raw:
        """Ask and wait for the answer; QueryFailed when there is none, or not in time."""
        since = self._ports.clock.monotonic_ns()
        done = self._ports.tasks.event("answer")
        outcome: list[msgspec.Raw | HeliographError] = []

        def came(answer: msgspec.Raw | HeliographError) -> None:
            outcome.append(answer)
            done.set()

        number = self.ask_later(link, topic, body, came)
        if not done.wait(max(min(GRACE, timeout), self.patience(link.station, timeout))):
            self._take(number, link)
            self.missed(link.station, since)
            raise QueryFailed(f"station {link.called}", f"{SILENT} within {timeout:g} s")
        (answer,) = outcome
        if isinstance(answer, HeliographError):
            raise answer
        return answer

    def patience(self, station: int, timeout: float) -> float:
        """What is left of a time-out for a station that was silent for a part of it, or for all."""
        now = self._ports.clock.monotonic_ns()
        return max(0.0, timeout - (now - self._silent.get(station, now)) / 1e9)

    def missed(self, station: int, since: int) -> None:
        """A station that was asked at an instant has answered nothing for too long."""
        with self._lock:
            self._silent.setdefault(station, max(since, self._heard.get(station, since)))

    def ask_later(self, link: Link, topic: str, body: Any, outcome: Outcome) -> int:
        """Ask, and be called with the answer, in the task that reads the link."""
        number = next(self._numbers)
        encoded = m.encode(body)
        if len(encoded) > MAX_BODY:
            raise QueryFailed(f"station {link.called}", _too_large("question", encoded))
        with self._lock:
            self._asked[number] = (link, outcome)
        link.post(m.Ask(number, topic, msgspec.Raw(encoded)))
        if link.closed:
            self._fail_all(link)
        return number

    @property
    def asked(self) -> int:
        """Questions that wait for an answer."""
        return len(self._asked)

    def forget(self, number: int) -> None:
        """Nobody waits for this answer any more."""
        with self._lock:
            self._asked.pop(number, None)

    def _fail_all(self, link: Link) -> None:
        """Nothing more is answered over a link."""
        with self._lock:
            numbers = [number for number, (asked, _) in self._asked.items() if asked is link]
            failed = [self._asked.pop(number)[1] for number in numbers]
            self._silent.pop(link.station, None)
            self._heard.pop(link.station, None)
        for outcome in failed:
            outcome(QueryFailed(f"station {link.called}", GONE))

    def station_left(self, link: Link) -> None:
        """A link has been closed: nothing is answered over it, and no question of it comes any more."""
        self._fail_all(link)
        with self._lock:
            answering = self._answering
        try:
            if not answering:
                self._let_go(link.station)
            elif not self._waiting.put((link, None), 0):
                self._ports.tasks.spawn_soon(
                    "a station that has gone", lambda: self._waiting.put((link, None))
                )
        except QueueClosed:
            self._let_go(link.station)

    def close(self) -> None:
        self._waiting.close()

    # What arrives

    def on_answer(self, link: Link, answer: m.Answer) -> None:
        self._heard[link.station] = self._ports.clock.monotonic_ns()
        self._silent.pop(link.station, None)
        outcome = self._take(answer.id, link)
        if outcome is not None and answer.problem is None:
            outcome(answer.body)
        elif outcome is not None:
            problem = QueryFailed(f"station {link.called}", answer.problem or "")
            outcome(error_of(answer.refusal) or problem)

    def on_ask(self, link: Link, ask: m.Ask) -> None:
        try:
            # Under the lock: nothing gets in line behind the word that its link is closed.
            with self._lock:
                if link.closed:
                    return
                start, self._answering = not self._answering, True
                is_full = not self._waiting.put((link, ask), 0)
        except QueueClosed:
            self._turn_down(link, ask, "is closing")
            return
        if start:
            self._ports.tasks.spawn_soon("answers", self._answer_all)
        if is_full:
            self._turn_down(link, ask, "too many questions wait already")

    def _answer_all(self) -> None:
        while True:
            try:
                waiting = self._waiting.get()
            except QueueClosed:
                return
            if waiting is None:
                continue
            link, ask = waiting
            if ask is None:
                self._let_go(link.station)
            else:
                self._answer_one(link, ask)

    def _let_go(self, station: int) -> None:
        for hear in self._hear_of_leaving:
            try:
                hear(station)
            except Exception:
                log.exception("what was held for station %016x is not let go", station)

    def _answer_one(self, link: Link, ask: m.Ask) -> None:
        responder = self._responders.get(ask.topic)
        if responder is None:
            self._turn_down(link, ask, f"nobody answers {ask.topic[:40]!r} there")
            return

        def reply(value: Any) -> None:
            if isinstance(value, BaseException):
                self._turn_down(link, ask, value)
                return
            encoded = m.encode(value)
            if len(encoded) > MAX_BODY:
                self._turn_down(link, ask, _too_large("answer", encoded))
            else:
                link.post(m.Answer(ask.id, msgspec.Raw(encoded)))

        try:
            responder(link.station, ask.body, reply)
        except Exception as error:  # noqa: BLE001 - whatever went wrong is for the one who asked
            self._turn_down(link, ask, error)

    def _turn_down(self, link: Link, ask: m.Ask, problem: BaseException | str) -> None:
        refusal = refusal_of(problem) if isinstance(problem, BaseException) else None
        link.post(m.Answer(ask.id, msgspec.Raw(m.encode(None)), str(problem)[: m.MAX_REASON], refusal))

    def _take(self, number: int, link: Link) -> Outcome | None:
        """The one who waits for an answer over this link, once."""
        with self._lock:
            asked = self._asked.get(number)
            if asked is None or asked[0] is not link:
                return None
            del self._asked[number]
            return asked[1]


def _too_large(what: str, encoded: bytes) -> str:
    return f"the {what} has {len(encoded):,} bytes; at most {MAX_BODY:,} cross a link"

"""Request and reply: a question goes to one answerer of a channel, here or in a linked station.

    @prices.answer
    def quote(question: Ask) -> Price: ...

    price = prices.ask(Ask("bolt"), timeout=1.0)

A question is no event of the channel's stream: it is not kept, not filtered, and no subscriber sees it. It
has an id, which its answer carries as `correlation_id`. Questions and answers cross links by the stations'
own requests, so there is no channel for replies that somebody would have to open, or could forget.

An answerer answers one question at a time, in a task of its own; others wait for it in a bounded queue. A
question whose time is over before its turn comes is not asked any more.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from heliograph.channel.receive.subscription import takes_header
from heliograph.channel.registry import not_allowed
from heliograph.channel.selection import check_name
from heliograph.codec.validate import validate
from heliograph.errors import (
    AnswererBusy,
    AnswerFailed,
    AnswerTimeout,
    Closed,
    HeliographError,
    NoAnswerer,
    WrongEventType,
)
from heliograph.model.event import Event, Header, info_of
from heliograph.runtime.ports import seconds_until
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.context import ChannelContext

T = TypeVar("T", bound=Event)

ANSWER_TIMEOUT: Final = 5.0
"""Seconds that `ask` waits unless it is told how long."""
MAX_QUESTIONS: Final = 1_000
"""Questions that wait for one answerer."""
MAX_ASKED: Final = 10_000
"""Questions of one channel of this station that wait for an answer."""
IDLE_SECONDS: Final = 1.0
"""How long the task of an answerer waits for another question before it ends: starting one costs 0.1 ms."""

Outcome: TypeAlias = "Callable[[Event | HeliographError | None], None]"
"""Told the answer of a question, or why there is none; once."""


class RemoteAnswerers(Protocol):
    """The answerers of linked stations."""

    def stations(self, channel: str) -> list[int]:
        """The linked stations that answer questions of a channel, in a fixed order."""
        ...

    def meet(self, timeout: float) -> None:
        """Wait until the stations that are there have said what they answer."""
        ...

    def ask(
        self,
        station: int,
        channel: Channel[Any],
        question: tuple[Event, Header],
        seconds: float,
        told: Outcome,
    ) -> Callable[[], object]:
        """Ask one of them; what is returned gives the question up."""
        ...


class Answerer:
    """A function that answers the questions of a channel; see `Channel.answer`.

    Args:
        channel: whose.
        function: takes (question) or (question, header); may be `async def`.
        name: in errors.
    """

    def __init__(
        self, channel: Channel[Any], function: Callable[..., Any], name: str, services: ChannelContext
    ) -> None:
        self.name = name
        self.function = function
        self._channel = channel
        self._services = services
        self._takes_header = takes_header(function)
        self._is_async = inspect.iscoroutinefunction(function)
        tasks = channel.ports.tasks
        self._lock = tasks.lock(f"answerer {name}")
        self._changed = tasks.condition(self._lock, f"answerer {name}")
        self._waiting: deque[tuple[Event, Header, int, Outcome]] = deque()
        self._has_task = False
        self.is_closed = False
        self.answered = 0
        """Questions that it has answered."""
        self.failed = 0
        """Questions at which it raised."""

    @property
    def waiting(self) -> int:
        """Questions that wait for it."""
        return len(self._waiting)

    def put(self, event: Event, header: Header, deadline: int, told: Outcome) -> bool:
        """Have it answer a question by an instant; False when it is closed or too many wait already."""
        with self._lock:
            if self.is_closed or len(self._waiting) >= MAX_QUESTIONS:
                return False
            self._waiting.append((event, header, deadline, told))
            starts, self._has_task = not self._has_task, True
            self._changed.notify()
        if starts:
            self._channel.ports.tasks.spawn_soon(f"answerer {self.name}", self._answer_all)
        return True

    def close(self) -> None:
        """Answer nothing more: what waits is refused, and asked of another answerer if there is one."""
        with self._lock:
            self.is_closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify()
        for _, _, _, told in waiting:
            told(NoAnswerer(self._channel.name))

    def _answer_all(self) -> None:
        while True:
            with self._lock:
                if not self._waiting and not self.is_closed:
                    self._changed.wait(IDLE_SECONDS)
                if not self._waiting:
                    self._has_task = False
                    return
                event, header, deadline, told = self._waiting.popleft()
            if self._channel.ports.clock.monotonic_ns() >= deadline:
                continue  # nobody waits for it any more
            answer = self._answer(event, header, deadline)
            try:
                told(answer)
            except Exception as error:  # noqa: BLE001 - the next question is answered whatever became of this one
                self._channel.report(f"answerer {self.name}", header, error)

    def _answer(self, event: Event, header: Header, deadline: int) -> Event | HeliographError | None:
        channel = self._channel
        try:
            answer: Event | None
            said: Any = self.function(event, header) if self._takes_header else self.function(event)
            if self._is_async:
                future = asyncio.run_coroutine_threadsafe(said, self._services.loop())
                try:
                    said = future.result(max(0.0, seconds_until(channel.ports.clock, deadline)))
                finally:
                    future.cancel()  # one question at a time: what has not ended in time does not go on
            answer = said
            if answer is not None:
                check_event(channel, answer)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raised is for the one who asked
            self.failed += 1
            channel.report(f"answerer {self.name}", header, error)
            return AnswerFailed(channel.name, self.name, type(error).__name__, str(error)[:500])
        self.answered += 1
        return answer


def check_event(channel: Channel[Any], event: Any) -> None:
    """Raise unless an event may be asked or answered on a channel."""
    if type(event) not in channel.types:
        given = info_of(type(event)).name if isinstance(event, Event) else f"{event!r:.60}"
        raise WrongEventType(channel.name, given, channel.type_names)
    validate(event)


class Requests(Generic[T]):
    """What a channel asks and answers; made when it first does."""

    def __init__(self, channel: Channel[T], services: ChannelContext) -> None:
        self._channel = channel
        self._services = services
        self._lock = channel.ports.tasks.lock(f"answerers of {channel.name}")
        self._answerers: tuple[Answerer, ...] = ()
        self._turn = count()
        self._numbers = count(1)
        self._supplier = services.new_supplier_name()
        self._open: set[_Question] = set()

    # Answering

    def answer(self, function: Callable[..., Any], name: str | None) -> Answerer:
        check_name(self._channel.name, "name", name)
        if self._channel.access == "supply":
            raise not_allowed(self._channel.name, self._channel.access)
        if not callable(function):
            raise TypeError(f"{function!r} cannot be called; give the function that answers")
        own_name = name or str(getattr(function, "__name__", type(function).__name__))
        answerer = Answerer(self._channel, function, own_name, self._services)
        with self._lock:
            if self._channel.closed:
                raise Closed(f"channel {self._channel.name}")
            self._answerers = (*self._answerers, answerer)
        self._services.changed(self._channel)
        return answerer

    def remove(self, answerer: Answerer) -> None:
        with self._lock:
            self._answerers = tuple(one for one in self._answerers if one is not answerer)
        answerer.close()
        self._services.changed(self._channel)

    @property
    def answerers(self) -> tuple[Answerer, ...]:
        return self._answerers

    @property
    def asked(self) -> int:
        """Questions that wait for an answer."""
        return len(self._open)

    def put(self, event: Event, header: Header, seconds: float, told: Outcome) -> None:
        """Have an answerer of this station answer a question; NoAnswerer, AnswererBusy when none can."""
        answerers = self._answerers
        deadline = self._channel.ports.clock.monotonic_ns() + round(seconds * 1e9)
        first = next(self._turn)
        for i in range(len(answerers)):
            if answerers[(first + i) % len(answerers)].put(event, header, deadline, told):
                return
        if answerers:
            raise AnswererBusy(self._channel.name, MAX_QUESTIONS)
        raise NoAnswerer(self._channel.name)

    # Asking

    def ask(self, event: Event, timeout: float) -> Event | None:
        question = self._begin(event, timeout)
        done = self._channel.ports.tasks.event("answer")
        question.on_done = done.set
        try:
            self._open.add(question)
            question.go_on()
            if not done.wait(timeout):
                question.end(AnswerTimeout(self._channel.name, question.id, timeout))
        finally:
            question.give_up()
            self._open.discard(question)
        return question.result()

    async def ask_async(self, event: Event, timeout: float) -> Event | None:  # noqa: ASYNC109 - as `ask`
        loop = asyncio.get_running_loop()
        question = await loop.run_in_executor(None, self._begin, event, timeout)
        done = asyncio.Event()

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(done.set)
            except RuntimeError:
                return  # the loop has ended, and with it the one who asked

        question.on_done = tell
        try:
            self._open.add(question)
            question.go_on()
            async with asyncio.timeout(timeout):
                await done.wait()
        except TimeoutError:
            question.end(AnswerTimeout(self._channel.name, question.id, timeout))
        finally:
            question.give_up()
            self._open.discard(question)
        return question.result()

    def close(self) -> None:
        """Nothing more is answered, and what was asked has no answer."""
        with self._lock:
            answerers, self._answerers = self._answerers, ()
        for answerer in answerers:
            answerer.close()
        for question in tuple(self._open):
            question.end(Closed(f"channel {self._channel.name}"))

    def _begin(self, event: Event, timeout: float) -> _Question:
        channel = self._channel
        check_timeout(channel.name, timeout, ends=True)
        if channel.closed:
            raise Closed(f"channel {channel.name}")
        if channel.access == "consume":
            raise not_allowed(channel.name, channel.access)
        if channel.suspended is not None:
            raise channel.suspended()
        check_event(channel, event)
        if len(self._open) >= MAX_ASKED:
            raise AnswererBusy(channel.name, MAX_ASKED)
        remote = self._services.remote_answerers
        if not self._answerers and remote is not None and not remote.stations(channel.name):
            remote.meet(timeout)  # one may be there that is not linked yet
        return _Question(self, event, self._header(event), timeout)

    def _header(self, event: Event) -> Header:
        info = info_of(type(event))
        number = next(self._numbers)
        return Header(
            self._channel.name,
            info.name,
            self._supplier,
            1,
            number,
            self._channel.ports.clock.time_ns(),
            info.format.id,
            key=tuple(getattr(event, name) for name in info.key),
            correlation_id=f"{self._supplier}:1:{number}",
        )

    def candidates(self) -> list[int | None]:
        """Who may be asked, in this order: this station (None), then linked ones in turn."""
        remote = self._services.remote_answerers
        stations = [] if remote is None else remote.stations(self._channel.name)
        first = next(self._turn) % len(stations) if stations else 0
        own: list[int | None] = [None] if self._answerers else []
        return [*own, *stations[first:], *stations[:first]]

    def send(self, question: _Question, station: int | None, seconds: float) -> Callable[[], object]:
        if station is None:
            self.put(question.event, question.header, seconds, question.hear)
            return lambda: None
        remote = self._services.remote_answerers
        assert remote is not None
        return remote.ask(station, self._channel, (question.event, question.header), seconds, question.hear)

    @property
    def clock_ns(self) -> int:
        return self._channel.ports.clock.monotonic_ns()

    @property
    def name(self) -> str:
        return self._channel.name


class _Question:
    """One question on its way: it goes to the next answerer as long as none has begun with it."""

    def __init__(self, requests: Requests[Any], event: Event, header: Header, timeout: float) -> None:
        self.event = event
        self.header = header
        self.on_done: Callable[[], object] = lambda: None
        self._requests = requests
        self._deadline = requests.clock_ns + round(timeout * 1e9)
        self._candidates = iter(requests.candidates())
        self._outcome: list[Event | HeliographError | None] = []
        self._cancel: Callable[[], object] = lambda: None
        self._refusal: HeliographError = NoAnswerer(requests.name)

    @property
    def id(self) -> str:
        return self.header.correlation_id or ""

    def go_on(self) -> None:
        """Ask the next one that may be asked; when there is none, that is the outcome."""
        for station in self._candidates:
            seconds = max(0.0, (self._deadline - self._requests.clock_ns) / 1e9)
            try:
                self._cancel = self._requests.send(self, station, seconds)
            except (NoAnswerer, AnswererBusy) as refusal:
                self._refusal = refusal
            except HeliographError as error:
                self.end(error)
                return
            else:
                return
        self.end(self._refusal)

    def hear(self, answer: Event | HeliographError | None) -> None:
        """Told by an answerer, or for it."""
        if isinstance(answer, NoAnswerer | AnswererBusy):  # it has not begun with it
            self._refusal = answer
            self.go_on()
        else:
            self.end(answer)

    def end(self, outcome: Event | HeliographError | None) -> None:
        """The first outcome counts."""
        self._outcome.append(outcome)
        self.on_done()

    def give_up(self) -> None:
        self._cancel()

    def result(self) -> Event | None:
        outcome = self._outcome[0]
        if isinstance(outcome, HeliographError):
            raise outcome
        return outcome

"""Compiles routes: one function per event type evaluates every receiver's filter, shared parts once.

`build_route` makes, for one event class of a channel, what a push of such an event needs. Nothing about
configuration is asked while an event passes: a stage that is not configured is not in the code.

    find(event, known)       the queues of all receivers that want it; of a group, that of one member
    inline(event, header)    calls every inline callback that wants it, and counts what they did

`find` is for a push that holds no lock yet: a filter may take long, and others push meanwhile. `known` is a
header that says what is known by then: not when and as which event of its supplier and station it is taken
in, nor where it is kept. The few filters that ask for that are split: what can be decided before is, and the
rest is a condition of the receiver's own queue (`Route.at_entry`), which its events meet as they enter it.

The source holds only names made here; callbacks, queues and sources are bound as values. See
`heliograph.filters.python_codegen` for how conditions become code.
"""

from __future__ import annotations

from functools import cached_property
from itertools import count, islice, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from heliograph.channel.publish.codegen import STAYS, Stamping, WayIn, compile_push
from heliograph.channel.routing.conditions import AnyCondition, ReceiverCondition, entering
from heliograph.codec.validate import validator
from heliograph.model.event import Event, Header, info_of
from heliograph.runtime.codegen import define

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from heliograph.channel.inline_counters import InlineTally, InlineTarget
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.channel.routing.filter_index import Index
    from heliograph.channel.routing.groups import Group
    from heliograph.qos.policies import QoS
    from heliograph.runtime.codegen import CodeBuilder

Find: TypeAlias = "Callable[[Any, Header], list[EventQueue]]"
"""Of an event and what is known of its header, the queues that it is for."""
Holds: TypeAlias = "Callable[[Any, Header], bool]"

CallMany: TypeAlias = "Callable[[list[Any], Iterable[int], Header, Callable[[int], Header]], int]"
"""Of events of one supplier, how many of them are next at each turn, the header of one of them, and what
makes that of the event at a place. Returns how many there were before the last turn, or before there were
other routes."""


CallOne: TypeAlias = "Callable[[Any, Callable[[Any], Header], Any], bool]"
"""Of an event, what makes its header, and of what: False when somebody else has to see to the event."""


class Target(msgspec.Struct, frozen=True):
    """Where events go: exactly one of a queue, a group and an inline subscription."""

    conditions: Mapping[type[Event], ReceiverCondition | AnyCondition]
    queue: EventQueue | None = None
    group: Group | None = None
    inline: InlineTarget | None = None

    @property
    def queues(self) -> tuple[EventQueue, ...]:
        """The queues behind it."""
        if self.group is not None:
            return self.group.queues
        return () if self.queue is None else (self.queue,)


class MatchedQueues(NamedTuple):
    """The queues that events are for, as found by one set of routes and one state of their index."""

    routes: Mapping[type, Route]
    changes: int
    queues: Sequence[Sequence[EventQueue]]
    """Of each event, as far as that can be decided before it has its place."""

    def hold(self, routes: Mapping[type, Route]) -> bool:
        """Whether the same queues would be found now, by these routes."""
        return self.routes is routes and self.changes == changes_of(routes)


def match(routes: Mapping[type, Route], events: Sequence[Any], known: Header) -> MatchedQueues:
    """What `Route.find` finds for each event of one class, of which the same is known."""
    changes = changes_of(routes)  # first: a change that is half done when the index is asked counts later
    route = routes[events[0].__class__]
    if route.always is not None:
        return MatchedQueues(routes, changes, [route.always] * len(events))
    return MatchedQueues(routes, changes, list(map(route.find, events, repeat(known))))


def changes_of(routes: Mapping[type, Route]) -> int:
    """Counts the changes of the index of many filters: what was found before one may be found no longer."""
    for route in routes.values():
        if route.crowd is not None:
            return route.crowd.changes
    return 0


class Route(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What a push of one event type needs, decided beforehand."""

    cls: type[Event]
    lifetime_ns: int | None
    validate: Callable[[Any], None]
    stamping: Stamping
    queued_targets: tuple[tuple[Target, ReceiverCondition | AnyCondition], ...]
    crowd: Index | None
    """Finds further queues."""
    has_queue: bool
    """Whether an event may be queued, or kept."""
    always: tuple[EventQueue, ...] | None
    """What `find` would always give, when that is known and nothing is asked at entry."""
    inline: Callable[[Any, Header], None] | None
    sole_inline: InlineTally | None
    """The tally of the only inline subscription, when it has no condition: `inline` then only calls it."""
    keep: Callable[[Item], None] | None
    """Remembers the event for late joiners, when the channel does."""
    sole: tuple[EventQueue, ReceiverCondition | AnyCondition] | None
    """The queue that is the only target, and when it wants an event. What is pushed together goes there
    without a header for each event."""
    inline_targets: tuple[tuple[InlineTarget, ReceiverCondition | AnyCondition], ...] = ()
    tally: InlineTally | None = None
    is_only: bool = False
    """Whether the channel carries no other type, whose events would have to keep in step with these."""

    @cached_property
    def find(self) -> Find:
        """The queues that an event is for, as far as filters can be decided before it has its place."""
        return _find_function(self.cls, self.queued_targets, self.crowd)

    @cached_property
    def find_needs_header(self) -> bool:
        """Whether `find` looks at what is known of the header."""
        asked = (condition.split[0] for _, condition in self.queued_targets)
        return self.crowd is not None or any(condition.needs_header for condition in asked)

    @cached_property
    def at_entry(self) -> Mapping[EventQueue, Holds]:
        """What else must hold, by queue, for an event that has its place; most queues have no such filter."""
        late = [(target, _test_function(condition.split[1])) for target, condition in self.queued_targets]
        return {queue: holds for target, holds in late if holds is not None for queue in target.queues}

    def entered(self, queues: Sequence[EventQueue], event: Any, header: Header) -> Sequence[EventQueue]:
        """Those of the queues that `find` has found which the event enters: see `at_entry`."""
        return entering(self.at_entry, queues, event, header) if self.at_entry else queues

    def queues(self, event: Any, header: Header) -> Sequence[EventQueue]:
        """The queues of an event that has its place."""
        if self.always is not None:
            return self.always
        return self.entered(self.find(event, header), event, header)

    @cached_property
    def stamp(self) -> Callable[[Any, str, int, int, int, int], Header]:
        """Makes a header: of (event, supplier, epoch, sequence, source_ts, station_seq)."""
        return self.stamping.function()

    @cached_property
    def compile_push(self) -> WayIn:
        """The generated push. Made when the first event comes: routes that change before cost nothing."""
        return compile_push(self)

    @cached_property
    def wants(self) -> Holds | None:
        """Whether the sole queue's receiver wants an event, as `find` says it; None: always."""
        assert self.sole is not None
        return _test_function(self.sole[1].split[0])

    def test_in(self, source: CodeBuilder, depth: int) -> str:
        """A test, in another function in the making, of whether the sole queue wants `event`; empty: always.

        Only for a filter that asks for nothing of the header.
        """
        assert self.sole is not None
        function = _Function()
        test = function.test(self.sole[1])
        function.write_into(source, depth)
        return " and ".join(map(str, test))

    def expire(self, event: Any, header: Header) -> None:
        """Count an event that came too late for the inline callbacks that it was for."""
        assert self.tally is not None
        outcome = 0
        for place, (subscription, condition) in enumerate(self.inline_targets):
            if condition.holds(event, header):
                outcome |= self.tally.expired(place)
                subscription.is_late(header)
        if outcome:
            self.tally.tick(outcome)()

    @property
    def goes_in_rows(self) -> bool:
        """Whether a push that says nothing of its own needs no header; see
        `heliograph.channel.publish.fast_path`."""
        if self.sole is None or self.lifetime_ns is not None:
            return False
        queue, condition = self.sole
        return queue.takes_rows and self.is_only and not condition.needs_header

    @cached_property
    def choose(self) -> Callable[[Sequence[Any], Any], Sequence[int]] | None:
        """The places of those events, out of many of one supplier, that the sole queue wants.

        None where there is no such queue, or where its filter wants the header of each event.
        """
        if self.sole is None or self.sole[1].needs_each_header:
            return None
        return _choosing_function(self.sole[1])

    @cached_property
    def call_one(self) -> CallOne | None:
        """As `inline`, of what other stations push: nothing that is raised is for the thread that calls.

        Of (event, what makes its header, of what); the header is made if a callback or filter asks for it.
        """
        if self.tally is None:
            return None
        return _call_one_function(self.inline_targets, self.tally, with_header=self.calls_need_header)

    @cached_property
    def call_many(self) -> CallMany | None:
        """The same for many events; None where callbacks or filters want the header of each of them."""
        if self.tally is None or any(i.with_header or c.needs_each_header for i, c in self.inline_targets):
            return None
        return _call_many_function(self.inline_targets, self.tally)

    @property
    def shows(self) -> bool:
        """Whether nobody may keep an event, whose arrays hold during the call only: all asked for views."""
        inline = self.inline_targets
        return bool(inline) and not self.has_queue and all(i.views for i, _ in inline)

    @cached_property
    def calls_need_header(self) -> bool:
        """Whether a callback or a filter of one asks for the header."""
        return any(i.with_header or condition.needs_header for i, condition in self.inline_targets)


def build_route(
    channel: str,
    cls: type[Event],
    qos: QoS,
    targets: Sequence[Target],
    *,
    new_tally: Callable[[tuple[InlineTarget, ...]], InlineTally],
    keep: Callable[[Item], None] | None,
    crowd: Index | None = None,
    is_only: bool = False,
) -> Route:
    """The route of one event class to these targets, and to the queues that `crowd` finds."""
    wanted = [(target, target.conditions[cls]) for target in targets if cls in target.conditions]
    inline = [(t.inline, c) for t, c in wanted if t.inline is not None]
    tally = new_tally(tuple(subscription for subscription, _ in inline)) if inline else None
    queued = [(t, c) for t, c in wanted if t.inline is None]
    lifetime_ns = None if qos.lifespan is None else round(qos.lifespan * 1e9)
    sole = None
    if len(queued) == 1 and queued[0][0].queue is not None and not (inline or keep or crowd):
        sole = (queued[0][0].queue, queued[0][1])
    return Route(
        cls,
        lifetime_ns,
        validator(cls),
        Stamping(channel, info_of(cls), qos.priority, lifetime_ns),
        tuple(queued),
        crowd,
        bool(queued) or keep is not None or crowd is not None,
        _always(queued) if crowd is None else None,
        None if tally is None else _inline_function(inline, tally),
        tally if len(inline) == 1 and inline[0][1].is_open else None,
        keep,
        sole,
        tuple(inline),
        tally,
        is_only,
    )


Shape: TypeAlias = "Callable[[list[str]], list[str]]"
"""Makes a function `route` of the lines for one event."""


class _Function:
    """A function in the making: conditions first, then what happens when they hold."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._tests: list[Any] = []
        self._emitter: Any = None

    def bind(self, value: Any) -> str:
        name = f"bound_{len(self._values)}"
        self._values[name] = value
        return name

    def test(self, condition: ReceiverCondition | AnyCondition) -> tuple[Any, ...]:
        """Pieces of a test, to be joined by `and` once the code is known; empty when it always holds."""
        if isinstance(condition, AnyCondition):
            tests = [self.test(alternative) for alternative in condition.alternatives]
            return (_Either(tests),) if all(tests) else ()
        pieces: list[Any] = []
        if condition.sources is not None:
            pieces.append(f"header.supplier in {self.bind(condition.sources)}")
        if condition.checked is not None:
            pieces.append(self._emit().add(condition.checked.node))
        return tuple(pieces)

    def compile(self, body: Callable[[], list[str]], shape: Shape | None = None) -> Callable[..., Any]:
        """A function `route(event, header)` of these lines, or one of another shape around them."""
        function: Callable[..., Any]
        shaped = _route if shape is None else shape
        if self._emitter is None:
            # Not among its own globals, so that it is gone with the last who has it, and not in a circle.
            function = define(shaped(body()), dict(self._values), {}).pop("route")
        else:
            self._emitter.finish()
            source = shaped([*self._emitter.lines, *body()])
            function = self._emitter.function("route", source, self._values)
        return function

    def write_into(self, source: CodeBuilder, depth: int) -> None:
        """Add what tests need to another function in the making, where `event` and `header` are known."""
        source.include(self._values, {})
        if self._emitter is not None:
            self._emitter.finish()
            self._emitter.write_into(source, depth)

    def _emit(self) -> Any:
        if self._emitter is None:
            from heliograph.filters.python_codegen import Emitter  # noqa: PLC0415 - only channels with filters load it

            self._emitter = Emitter()
        return self._emitter


class _Either:
    """Tests of which one must hold, as text once the code of all of them is known."""

    def __init__(self, tests: list[tuple[Any, ...]]) -> None:
        self._tests = tests

    def __str__(self) -> str:
        return f"({' or '.join('(' + ' and '.join(map(str, test)) + ')' for test in self._tests)})"


def _route(body: list[str]) -> list[str]:
    return ["def route(event, header):", *(f"    {line}" for line in body)]


def _loop(head: str, each: str, begin: list[str], end: str) -> Shape:
    """Of the lines for one event, a function over many."""
    return lambda body: [
        head,
        *(f"    {line}" for line in begin),
        f"    {each}",
        *(f"        {line}" for line in body),
        f"    {end}",
    ]


def _if(test: tuple[Any, ...], action: str) -> str:
    return f"if {' and '.join(map(str, test))}: {action}" if test else action


def _always(
    targets: Sequence[tuple[Target, ReceiverCondition | AnyCondition]],
) -> tuple[EventQueue, ...] | None:
    """The queues of these targets if each takes every event; None when an event decides."""
    queues = tuple(t.queue for t, condition in targets if t.queue is not None and condition.is_open)
    return queues if len(queues) == len(targets) else None


def _find_function(
    cls: type[Event], targets: Sequence[tuple[Target, ReceiverCondition | AnyCondition]], crowd: Index | None
) -> Find:
    """See `Route.find`."""
    function = _Function()
    always: list[EventQueue] = []
    steps: list[tuple[tuple[Any, ...], str]] = []
    key = None
    for target, condition in targets:
        test = function.test(condition.split[0])
        if target.group is not None:
            key = key or function.bind(info_of(cls).key_of)
            steps.append((test, f"found.append({function.bind(target.group.choose)}({key}(event)))"))
        elif test:
            steps.append((test, f"found.append({function.bind(target.queue)})"))
        else:
            assert target.queue is not None
            always.append(target.queue)
    begin = f"found = [*{function.bind(tuple(always))}]" if always else "found = []"
    rest = [] if crowd is None else [f"found += {function.bind(crowd.match)}(event, header)"]
    return function.compile(
        lambda: [begin, *(_if(test, action) for test, action in steps), *rest, "return found"]
    )


def _test_function(condition: ReceiverCondition | AnyCondition) -> Callable[[Any, Header], bool] | None:
    if condition.is_open:
        return None
    function = _Function()
    test = function.test(condition)
    return function.compile(lambda: [f"return {' and '.join(map(str, test))}"])


def _inline_function(
    targets: Sequence[tuple[InlineTarget, ReceiverCondition | AnyCondition]], tally: InlineTally
) -> Callable[[Any, Header], None]:
    """Calls what wants an event; of what that raises, `STAYS` is reported and stays with it."""
    function = _Function()
    steps: list[tuple[tuple[Any, ...], str, str]] = []
    for inline, condition in targets:
        arguments = "event, header" if inline.with_header else "event"
        call = f"{function.bind(inline.call)}({arguments})"
        steps.append((function.test(condition), call, function.bind(inline.raised)))
    exception, known, tick = function.bind(STAYS), function.bind(tally.known), function.bind(tally.tick)

    def body() -> list[str]:
        lines = ["outcome = 0"]
        for place, (test, call, report) in enumerate(steps):
            lines += [
                f"if {' and '.join(map(str, test)) or 'True'}:",
                "    try:",
                f"        {call}",
                f"    except {exception} as error:",
                f"        outcome |= {tally.outcome(place, raised=True)}",
                f"        {report}(header, error)",
                f"    outcome |= {tally.outcome(place)}",
            ]
        return [*lines, f"({known}(outcome) or {tick}(outcome))()"]

    return function.compile(body)


def _choosing_function(
    condition: ReceiverCondition | AnyCondition,
) -> Callable[[Sequence[Any], Any], Sequence[int]]:
    if condition.is_open:
        return lambda events, _: range(len(events))
    function = _Function()
    test = function.test(condition)
    each = f"for place, event in {function.bind(enumerate)}(events):"
    return function.compile(
        lambda: [_if(test, "found.append(place)")],
        _loop("def route(events, header):", each, ["found = []"], "return found"),
    )


def _call_many_function(
    targets: Sequence[tuple[InlineTarget, ReceiverCondition | AnyCondition]], tally: InlineTally
) -> CallMany:
    function = _Function()
    given = f"{function.bind(_given)}(events, left)"
    begin = f"left = {function.bind(iter)}(events)"
    each = f"for event in {function.bind(islice)}(left, some):"

    def shape(body: list[str]) -> list[str]:
        return [
            "def route(events, turns, header, header_of):",
            f"    {begin}",
            "    for some in turns:",
            f"        {each}",
            *(f"            {line}" for line in body),
            f"    return {given}",
        ]

    # When there are other routes by now, the rest is for those.
    leave = f"if {function.bind(tally)}.retired: return {given} - 1"
    return function.compile(_calls(function, targets, tally, leave, f"header_of({given} - 1)"), shape)


def _given(events: list[Any], left: Iterator[Any]) -> int:
    """How many of a list an iterator has given: to ask when that matters costs less than to count each."""
    return len(events) - length_hint(left)


def _call_one_function(
    targets: Sequence[tuple[InlineTarget, ReceiverCondition | AnyCondition]],
    tally: InlineTally,
    *,
    with_header: bool,
) -> CallOne:
    function = _Function()
    function.bind(tally)  # as long as it is held, what is counted is added up

    def shape(body: list[str]) -> list[str]:
        return ["def route(event, header_of, said):", *(f"    {line}" for line in (*body, "return True"))]

    if with_header:
        return function.compile(_calls(function, targets, tally, "header = header_of(said)", "header"), shape)
    return function.compile(_calls(function, targets, tally, "", "header_of(said)"), shape)


def _calls(
    function: _Function,
    targets: Sequence[tuple[InlineTarget, ReceiverCondition | AnyCondition]],
    tally: InlineTally,
    begin: str,
    header: str,
) -> Callable[[], list[str]]:
    """The lines that call what wants `event`, behind a first one; `header` is how its header is come by.

    For what other stations push: nothing that is raised is for the thread that calls.
    """
    tests = [function.test(condition) for _, condition in targets]
    exception = function.bind(BaseException)
    steps = [
        (
            f"{function.bind(i.call)}({'event, header' if i.with_header else 'event'})",
            function.bind(i.raised),
            *_ticks(function, tally, number),
        )
        for number, (i, _) in enumerate(targets)
    ]

    def body() -> list[str]:
        lines = [begin] if begin else []
        for test, (call, report, called, raised) in zip(tests, steps, strict=True):
            lines += [
                f"if {' and '.join(map(str, test)) or 'True'}:",
                "    try:",
                f"        {call}",
                f"    except {exception} as error:",
                f"        {report}({header}, error)",
                f"        {raised}",
                "    else:",
                f"        {called}",
            ]
        return lines

    return body


def _ticks(function: _Function, tally: InlineTally, number: int) -> Iterator[str]:
    """The lines that count that a callback was called, and that it raised."""
    for raised in (False, True):
        tick = tally.tick(tally.outcome(number, raised=raised))
        counter = getattr(tick, "__self__", None)
        if isinstance(counter, count):  # `next` of it is called faster than its `__next__`
            yield f"{function.bind(next)}({function.bind(counter)})"
        else:
            yield f"{function.bind(tick)}()"

"""Compiles routes: one function per event type evaluates every receiver's filter, shared parts once.

`build_route` makes, for one event class of a channel, what a push of such an event needs. Nothing about
configuration is asked while an event passes: a stage that is not configured is not in the code.

    early(event, known)      who may want it, asked before it has its place: lanes and groups
    late(event, header, found)   the lanes, of what `early` has found and of all others
    queued(event, header)    both in one; a group gives the member whose turn it is
    inline(event, header)    calls every inline callback that wants it, and counts what they did

`early` is for a push that holds no lock yet: a filter may take long, and others push meanwhile. `known` is a
header that says what is known by then: not when and as which event of its supplier and station it is taken
in, nor where it is kept. What asks for that is left to `late`; of filters that hold when all of several
conditions do, only those conditions that ask for it.

The source holds only names made here; callbacks, lanes and sources are bound as values. See
`heliograph.filters.python_codegen` for how conditions become code.
"""

from __future__ import annotations

from functools import cached_property
from itertools import count, islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from heliograph.channel.publish.codegen import STAYS, Stamping, WayIn, compile_push
from heliograph.channel.queueing.queue import Lane
from heliograph.channel.routing.conditions import AnyOf, Condition
from heliograph.channel.routing.filter_index import Index, Some
from heliograph.channel.routing.groups import Group
from heliograph.codec.validate import validator
from heliograph.model.event import Event, Header, info_of
from heliograph.runtime.codegen import define

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from heliograph.channel.inline_counters import InlineTally
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.receive.subscription import InlineSubscription
    from heliograph.qos.policies import QoS
    from heliograph.runtime.codegen import Source

Found: TypeAlias = "list[Lane | Group | Half | Some]"
"""Who may want an event, of those who can be asked before it has its place."""
ConsumerRequest: TypeAlias = "tuple[Route, Found | None]"
"""The route of an event, and what `Route.early` has found by it."""
Answers: TypeAlias = "tuple[Mapping[type, Route], Sequence[Found | None]]"
"""The routes of a channel, and of each of several events what `Route.early` has found by them."""

InlineMany: TypeAlias = "Callable[[list[Any], Iterable[int], Header, Callable[[int], Header]], int]"
"""Of events of one supplier, how many of them are next at each turn, the header of one of them, and what
makes that of the event at a place. Returns how many there were before the last turn, or before there were
other routes."""


CallOne: TypeAlias = "Callable[[Any, Callable[[Any], Header], Any], bool]"
"""Of an event, what makes its header, and of what: False when somebody else has to see to the event."""


class Target(msgspec.Struct, frozen=True):
    """Where events go: exactly one of a lane, a group and an inline subscription."""

    conditions: Mapping[type[Event], Condition | AnyOf]
    lane: Lane | None = None
    group: Group | None = None
    inline: InlineSubscription | None = None


class Half:
    """A lane or group whose filter holds as far as it could be asked, with the rest of it."""

    __slots__ = ("holds", "of")

    def __init__(self, of: Lane | Group, rest: Condition | AnyOf) -> None:
        self.of = of
        self.holds = rest.holds


class Route(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What a push of one event type needs, decided beforehand."""

    cls: type[Event]
    lifetime_ns: int | None
    validate: Callable[[Any], None]
    stamping: Stamping
    queued_targets: tuple[tuple[Target, Condition | AnyOf], ...]
    crowd: Index | None
    """Finds further lanes."""
    has_queue: bool
    """Whether an event may be queued, or kept."""
    always: tuple[Lane, ...] | None
    """What `queued` would always give, when that is known."""
    inline: Callable[[Any, Header], None] | None
    sole_inline: InlineTally | None
    """The tally of the only inline subscription, when it has no condition: `inline` then only calls it."""
    keep: Callable[[Item], None] | None
    """Remembers the event for late joiners, when the channel does."""
    sole: tuple[Lane, Condition | AnyOf] | None
    """The lane that is the only target, and when it wants an event. What is pushed together goes there
    without a header for each event."""
    inline_targets: tuple[tuple[InlineSubscription, Condition | AnyOf], ...] = ()
    tally: InlineTally | None = None
    is_only: bool = False
    """Whether the channel carries no other type, whose events would have to keep in step with these."""

    @cached_property
    def queued(self) -> Callable[[Any, Header], Sequence[Lane]] | None:
        """The lanes that an event is for; None when none is queued or kept."""
        return _queued_function(self.queued_targets, self.crowd) if self.has_queue else None

    @cached_property
    def early(self) -> Callable[[Any, Header], Found] | None:
        """Who may want an event, of those who can be asked before it has its place; None: there is nobody."""
        split = [(target, *condition.split) for target, condition in self.queued_targets]
        if self.crowd is None and all(before.is_open for _, before, _ in split):
            return None
        return _early_function([one for one in split if not _is_late(*one)], self.crowd)

    @cached_property
    def early_needs_header(self) -> bool:
        """Whether `early` looks at what is known of the header."""
        asked = (condition.split[0] for _, condition in self.queued_targets)
        return self.crowd is not None or any(condition.needs_header for condition in asked)

    @cached_property
    def late(self) -> Callable[[Any, Header, Found], Sequence[Lane]] | None:
        """The lanes that an event is for, of what `early` has found; None when that is all of them."""
        split = [(target, *condition.split) for target, condition in self.queued_targets]
        if self.crowd is None and all(after.is_open and t.group is None for t, _, after in split):
            return None
        return _late_function([(one[0], one[2]) for one in split if _is_late(*one)])

    def lanes(self, event: Any, header: Header, found: Found | None) -> Sequence[Lane]:
        """The same as `queued`, of what `early` has found; None when nobody was asked."""
        if found is None:
            return () if self.queued is None else self.queued(event, header)
        return cast("list[Lane]", found) if self.late is None else self.late(event, header, found)

    def lanes_without_place(self, found: Found | None) -> Sequence[Lane] | None:
        """The same where that is known before an event has its place; else None."""
        if self.always is not None:
            return self.always
        return cast("list[Lane]", found) if found is not None and self.late is None else None

    @cached_property
    def stamp(self) -> Callable[[Any, str, int, int, int, int], Header]:
        """Makes a header: of (event, supplier, epoch, sequence, source_ts, station_seq)."""
        return self.stamping.function()

    @cached_property
    def compile_push(self) -> WayIn:
        """The generated push. Made when the first event comes: routes that change before cost nothing."""
        return compile_push(self)

    @cached_property
    def wants(self) -> tuple[Callable[[Any, Header], bool] | None, Callable[[Any, Header], bool] | None]:
        """Whether the sole lane wants an event: as far as can be asked before it has its place, and the rest.

        None: that is always so.
        """
        assert self.sole is not None
        before, after = self.sole[1].split
        return _test_function(before), _test_function(after)

    def test_in(self, source: Source, depth: int) -> str:
        """A test, in another function in the making, of whether the sole lane wants `event`; empty: always.

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
        lane, condition = self.sole
        return lane.takes_rows and self.is_only and not condition.needs_header

    @cached_property
    def choose(self) -> Callable[[Sequence[Any], Any], Sequence[int]] | None:
        """The places of those events, out of many of one supplier, that the sole lane wants.

        None where there is no such lane, or where its filter wants the header of each event.
        """
        if self.sole is None or self.sole[1].needs_each_header:
            return None
        return _choosing_function(self.sole[1])

    @cached_property
    def inline_of_others(self) -> Callable[[Any, Header], None] | None:
        """As `inline`, of what other stations push: nothing that is raised is for the thread that calls."""
        if self.tally is None:
            return None
        return _inline_function(self.inline_targets, self.tally, BaseException)

    @cached_property
    def inline_many(self) -> InlineMany | None:
        """As `inline` for many events; None where callbacks or filters want the header of each of them."""
        if self.tally is None or any(i.with_header or c.needs_each_header for i, c in self.inline_targets):
            return None
        return _inline_many_function(self.inline_targets, self.tally)

    @cached_property
    def inline_one(self) -> CallOne | None:
        """As `inline` for one event whose header need not be made: of (event, what makes it, of what).

        False when there are other routes by now. None where callbacks or filters want a header.
        """
        if self.tally is None or any(i.with_header or c.needs_header for i, c in self.inline_targets):
            return None
        return _inline_one_function(self.inline_targets, self.tally)

    @cached_property
    def shows(self) -> CallOne | None:
        """As `inline_one`, for an event whose arrays hold during the call only; also with a header.

        None where somebody may keep the event: who is queued, or did not ask for views.
        """
        inline, tally = self.inline_of_others, self.tally
        if (
            inline is None
            or tally is None
            or self.has_queue
            or not all(i.views for i, _ in self.inline_targets)
        ):
            return None
        return self.inline_one or _inline_with_header_function(inline, tally)


def build_route(
    channel: str,
    cls: type[Event],
    qos: QoS,
    targets: Sequence[Target],
    *,
    new_tally: Callable[[tuple[InlineSubscription, ...]], InlineTally],
    keep: Callable[[Item], None] | None,
    crowd: Index | None = None,
    is_only: bool = False,
) -> Route:
    """The route of one event class to these targets, and to the lanes that `crowd` finds."""
    wanted = [(target, target.conditions[cls]) for target in targets if cls in target.conditions]
    inline = [(t.inline, c) for t, c in wanted if t.inline is not None]
    tally = new_tally(tuple(subscription for subscription, _ in inline)) if inline else None
    queued = [(t, c) for t, c in wanted if t.inline is None]
    lifetime_ns = None if qos.lifespan is None else round(qos.lifespan * 1e9)
    sole = None
    if len(queued) == 1 and queued[0][0].lane is not None and not (inline or keep or crowd):
        sole = (queued[0][0].lane, queued[0][1])
    return Route(
        cls,
        lifetime_ns,
        validator(cls),
        Stamping(channel, info_of(cls), qos.priority, lifetime_ns),
        tuple(queued),
        crowd,
        bool(queued) or keep is not None or crowd is not None,
        _always(queued) if crowd is None else None,
        None if tally is None else _inline_function(inline, tally, STAYS),
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

    def test(self, condition: Condition | AnyOf) -> tuple[Any, ...]:
        """Pieces of a test, to be joined by `and` once the code is known; empty when it always holds."""
        if isinstance(condition, AnyOf):
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

    def write_into(self, source: Source, depth: int) -> None:
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


def _always(targets: Sequence[tuple[Target, Condition | AnyOf]]) -> tuple[Lane, ...] | None:
    """The lanes of these targets if each takes every event; None when an event decides."""
    lanes = tuple(t.lane for t, condition in targets if t.lane is not None and condition.is_open)
    return lanes if len(lanes) == len(targets) else None


def _is_late(_: Target, before: Condition | AnyOf, after: Condition | AnyOf) -> bool:
    """Whether nothing can be asked of a filter before an event has its place."""
    return before.is_open and not after.is_open


def _early_function(
    split: Sequence[tuple[Target, Condition | AnyOf, Condition | AnyOf]], crowd: Index | None
) -> Callable[[Any, Header], Found]:
    """Of targets, with what can be asked of each before an event has its place, and the rest."""
    function = _Function()
    always: list[Lane] = []
    steps: list[tuple[tuple[Any, ...], str]] = []
    for target, before, after in split:
        test = function.test(before)
        of = target.lane if target.group is None else target.group
        assert of is not None
        if not test and target.lane is not None:
            always.append(target.lane)
        else:
            found = function.bind(of if after.is_open else Half(of, after))
            steps.append((test, f"found.append({found})"))
    rest = [] if crowd is None else [f"found.append({function.bind(crowd.ask)}(event, header))"]
    return function.compile(_finding(function, always, steps, rest))


def _late_function(
    targets: Sequence[tuple[Target, Condition | AnyOf]],
) -> Callable[[Any, Header, Found], list[Lane]]:
    others = _queued_function(targets, None)

    def late(event: Any, header: Header, found: Found) -> list[Lane]:
        lanes = others(event, header)
        for one in found:
            if isinstance(one, Lane):  # most are
                lanes.append(one)
            elif isinstance(one, Some):
                lanes += one.of.settled(one, event, header)
            elif isinstance(one, Group):
                lanes.append(one.choose(header))
            elif one.holds(event, header):
                lanes.append(one.of.choose(header) if isinstance(one.of, Group) else one.of)
        return lanes

    return late


def _queued_function(
    targets: Sequence[tuple[Target, Condition | AnyOf]], crowd: Index | None
) -> Callable[[Any, Header], list[Lane]]:
    """See `Route.queued`."""
    function = _Function()
    always: list[Lane] = []
    steps: list[tuple[tuple[Any, ...], str]] = []
    for target, condition in targets:
        test = function.test(condition)
        if target.group is not None:
            steps.append((test, f"found.append({function.bind(target.group.choose)}(header))"))
        elif test:
            steps.append((test, f"found.append({function.bind(target.lane)})"))
        else:
            assert target.lane is not None
            always.append(target.lane)
    rest = [] if crowd is None else [f"found += {function.bind(crowd.match)}(event, header)"]
    return function.compile(_finding(function, always, steps, rest))


def _finding(
    function: _Function,
    always: Sequence[Lane],
    steps: Sequence[tuple[tuple[Any, ...], str]],
    rest: Sequence[str] = (),
) -> Callable[[], list[str]]:
    """The lines that give these lanes, with what steps add to them where their tests hold."""
    begin = f"found = [*{function.bind(tuple(always))}]" if always else "found = []"
    return lambda: [begin, *(_if(test, action) for test, action in steps), *rest, "return found"]


def _test_function(condition: Condition | AnyOf) -> Callable[[Any, Header], bool] | None:
    if condition.is_open:
        return None
    function = _Function()
    test = function.test(condition)
    return function.compile(lambda: [f"return {' and '.join(map(str, test))}"])


def _inline_function(
    targets: Sequence[tuple[InlineSubscription, Condition | AnyOf]], tally: InlineTally, stays: Any
) -> Callable[[Any, Header], None]:
    """Calls what wants an event; of what that raises, those classes are reported and stay with it."""
    function = _Function()
    steps: list[tuple[tuple[Any, ...], str, str]] = []
    for inline, condition in targets:
        arguments = "event, header" if inline.with_header else "event"
        call = f"{function.bind(inline.call)}({arguments})"
        steps.append((function.test(condition), call, function.bind(inline.raised)))
    exception, known, tick = function.bind(stays), function.bind(tally.known), function.bind(tally.tick)

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


def _choosing_function(condition: Condition | AnyOf) -> Callable[[Sequence[Any], Any], Sequence[int]]:
    if condition.is_open:
        return lambda events, _: range(len(events))
    function = _Function()
    test = function.test(condition)
    each = f"for place, event in {function.bind(enumerate)}(events):"
    return function.compile(
        lambda: [_if(test, "found.append(place)")],
        _loop("def route(events, header):", each, ["found = []"], "return found"),
    )


def _inline_many_function(
    targets: Sequence[tuple[InlineSubscription, Condition | AnyOf]], tally: InlineTally
) -> InlineMany:
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

    return function.compile(_calls(function, targets, tally, place=f"{given} - 1"), shape)


def _given(events: list[Any], left: Iterator[Any]) -> int:
    """How many of a list an iterator has given: to ask when that matters costs less than to count each."""
    return len(events) - length_hint(left)


def _inline_one_function(
    targets: Sequence[tuple[InlineSubscription, Condition | AnyOf]], tally: InlineTally
) -> CallOne:
    function = _Function()

    def shape(body: list[str]) -> list[str]:
        return ["def route(event, header_of, said):", *(f"    {line}" for line in (*body, "return True"))]

    return function.compile(_calls(function, targets, tally, place="False", header="said"), shape)


def _inline_with_header_function(inline: Callable[[Any, Header], None], tally: InlineTally) -> CallOne:
    def call(event: Any, header_of: Callable[[Any], Header], said: Any) -> bool:
        if tally.retired:
            return False
        inline(event, header_of(said))
        return True

    return call


def _calls(
    function: _Function,
    targets: Sequence[tuple[InlineSubscription, Condition | AnyOf]],
    tally: InlineTally,
    *,
    place: str,
    header: str | None = None,
) -> Callable[[], list[str]]:
    """The lines that call what wants `event`, or return its place when there are other routes by now.

    Its header is that of its place, unless it is made of something else.

    For what other stations push: nothing that is raised is for the thread that calls.
    """
    tests = [function.test(condition) for _, condition in targets]
    exception, bound = function.bind(BaseException), function.bind(tally)
    steps = [
        (function.bind(i.call), function.bind(i.raised), *_ticks(function, tally, number))
        for number, (i, _) in enumerate(targets)
    ]

    def body() -> list[str]:
        lines = [f"if {bound}.retired: return {place}"]
        for test, (call, report, called, raised) in zip(tests, steps, strict=True):
            lines += [
                f"if {' and '.join(map(str, test)) or 'True'}:",
                "    try:",
                f"        {call}(event)",
                f"    except {exception} as error:",
                f"        {report}(header_of({header or place}), error)",
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

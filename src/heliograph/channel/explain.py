"""`channel.explain(event)`: which receivers would get an event, and which filter stops it for the others.

    print(radar.explain(Track(7, speed=200.0)))

    supplier filter                  let through
    supplier admin filter            let through
    lookup                  display  found
    consumer admin filter   display  let through
    consumer filter         display  stopped
    lookup                  log      found
    dispatch                log      queued at priority 3

A push takes these steps in one generated function; here they are taken one by one, and nothing is pushed. A
filter that is not there is no step. Behind the step that stops an event there is none, for that receiver or,
when its supplier stops it, for all.

    print(radar.explain(code=True))         # push, routes, filters, codecs, under their names in tracebacks
"""

from __future__ import annotations

import re
import reprlib
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from heliograph.channel.publish.host import OF_SUPPLIER, OF_SUPPLIER_ADMIN
from heliograph.channel.receive.subscription import InlineSubscription, Receiver
from heliograph.channel.routing.conditions import AnyCondition, for_source
from heliograph.codec import decoder, encoder
from heliograph.model.event import info_of
from heliograph.runtime.codegen import GENERATED, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from heliograph.channel.publish.supplier import Supplier
    from heliograph.channel.routing.compiler import Route
    from heliograph.channel.routing.conditions import ReceiverCondition
    from heliograph.model.event import Event, Header

KINDS: Final = (
    OF_SUPPLIER,
    OF_SUPPLIER_ADMIN,
    "lookup",
    "consumer admin filter",
    "consumer filter",
    "dispatch",
)
"""What a step can be, in the order in which an event takes them."""
AT_CONSUMERS: Final = KINDS[3:5]


class EventStep(NamedTuple):
    """One step of an event."""

    kind: str
    """One of `KINDS`."""
    receiver: str
    """The receiver that the step is about; empty where it is about all."""
    passed: bool
    detail: str


class EventExplanation(msgspec.Struct, frozen=True):
    """The steps of one event, in their order."""

    steps: tuple[EventStep, ...]

    @property
    def reaches(self) -> tuple[str, ...]:
        """The names of those who would get it; of a group one will, and `separation=` may leave some out."""
        return tuple(step.receiver for step in self.steps if step.kind == "dispatch")

    def __str__(self) -> str:
        kind = max((len(step.kind) for step in self.steps), default=0)
        name = max((len(step.receiver) for step in self.steps), default=0)
        return "\n".join(f"{s.kind:{kind}}  {s.receiver:{name}}  {s.detail}" for s in self.steps)


def explain(supplier: Supplier[Any], receivers: tuple[Receiver, ...], event: Event) -> EventExplanation:
    """See the module. Raises what a push of it would raise at once."""
    header = supplier.next_header(event)
    steps: list[EventStep] = []
    for kind, point in sorted(supplier.points, key=_by_order):
        passed = point.lets_through(event)
        if not getattr(point, "is_open", False):
            steps.append(_filtered(kind, "", passed=passed))
        if not passed:
            return EventExplanation(tuple(steps))
    for receiver in receivers:
        steps += _until_stopped(receiver, event, header)
    return EventExplanation(tuple(steps))


def _by_order(point: tuple[str, object]) -> int:
    """Filters of admins stand behind a supplier's own, whichever was there first."""
    return KINDS.index(point[0])


def _until_stopped(receiver: Receiver, event: Event, header: Header) -> Iterator[EventStep]:
    for step in steps_of(receiver, event, header):
        yield step
        if not step.passed:
            return


def steps_of(receiver: Receiver, event: Event, header: Header) -> Iterator[EventStep]:
    """The steps at one receiver; those behind one that stops the event are of no account."""
    name, wanted = receiver.name, receiver.selection
    condition = wanted.conditions.get(event.__class__)
    if condition is None:
        yield EventStep("lookup", name, passed=False, detail="wants no events of this type")
        return
    if for_source(condition, header.supplier) is None:
        yield EventStep("lookup", name, passed=False, detail="listens to other suppliers")
        return
    yield EventStep("lookup", name, passed=True, detail="found")
    for kind, part in zip(AT_CONSUMERS, receiver.points or (None, wanted), strict=True):
        if part is not None and not (own := part.conditions[event.__class__]).is_open:
            yield _filtered(kind, name, passed=own.holds(event, header))
    yield EventStep("dispatch", name, passed=True, detail=_dispatched(receiver, header))


def _dispatched(receiver: Receiver, header: Header) -> str:
    if isinstance(receiver, InlineSubscription):
        return "inside push"
    wanted = receiver.selection
    said = f"queued at priority {wanted.priority or header.priority}"
    if receiver.group is not None:
        said += f", or another of group {receiver.group!r}"
    if wanted.separation is not None:
        said += f", unless another came within {wanted.separation:g} s"
    return said


def _filtered(kind: str, receiver: str, *, passed: bool) -> EventStep:
    return EventStep(kind, receiver, passed, "let through" if passed else "stopped")


Verdict: TypeAlias = Literal[
    "delivered",
    "failed",
    "expired",
    "dropped",
    "acknowledged",
    "not acknowledged",
    "waiting",
    "before its start",
    "not wanted",
    "stopped",
    "would be delivered",
    "not recorded",
    "no such receiver",
]
"""What became of an event for a receiver, as far as anybody knows."""


class Why(msgspec.Struct, frozen=True):
    """The answer."""

    channel: str
    event: str
    """Its id; empty for one that was never pushed."""
    receiver: str
    station: str
    """Of the receiver."""
    verdict: Verdict
    stage: str
    """Where it was decided: link, lookup, derivation, filter, history, queue, cursor or delivery."""
    rule: str
    """What decided, in words."""
    values: dict[str, str] = {}
    """What it was decided by: fields of the event, offsets, counts."""
    remedy: str = ""
    steps: tuple[str, ...] = ()
    """What was looked at before."""
    at_ns: int | None = None
    """When, where that is written down."""
    receivers: tuple[str, ...] = ()
    """Those that there are, in place of one that is not."""
    is_away: bool = False
    """Whether the receiver is not open in the station that answers, which has only what is kept of it."""
    kept_as: str = ""
    """Of a receiver of a derivation: the name of its cursor in the history of the original."""

    def __str__(self) -> str:
        event = f"event {self.event}" if self.event else "such an event"
        lines = [
            f"{self.channel}: {event} and {self.receiver}: {self.verdict}",
            f"  {self.stage}: {self.rule}",
        ]
        lines += [f"    {name} = {value}" for name, value in self.values.items()]
        lines += [f"  before that: {step}" for step in self.steps]
        if self.remedy:
            lines.append(f"  try: {self.remedy}")
        return "\n".join(lines)


class GeneratedFunction(NamedTuple):
    """A function that was generated for a channel, with those that were made with it."""

    kind: str
    """What it is for: "push", "route", "check", "encode", "decode", or whose filter it is."""
    event_type: str
    """The event type that it was made for."""
    file: str
    """Its file name in tracebacks, profilers and debuggers, such as `<heliograph way 12>`."""
    text: str
    values: dict[str, str]
    """What the names stand for that are none of its own: literals, classes, other functions."""

    def __str__(self) -> str:
        values = "".join(f"# {name} = {value}\n" for name, value in self.values.items())
        return f"# {self.event_type}, {self.kind}: {self.file}\n{values}{self.text}"


class GeneratedCode(msgspec.Struct, frozen=True):
    """The functions that were generated for the event types of a channel."""

    functions: tuple[GeneratedFunction, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.functions))


def show_code(
    routes: Mapping[type[Event], Route], receivers: tuple[Receiver, ...], types: Iterable[type[Event]]
) -> GeneratedCode:
    """The code of these event types, as a push into the channel runs it now: other receivers, other code."""
    functions: dict[tuple[str, str], GeneratedFunction] = {}
    for cls in types:
        name = info_of(cls).name
        for kind, root in _roots(cls, routes[cls], receivers):
            for function in _generated(root):
                file, text = function.__code__.co_filename, text_of(function)
                values = {
                    known: _said(value)
                    for known, value in function.__globals__.items()
                    if re.search(rf"\b{known}\b", text) and not known.startswith("__")
                }
                functions.setdefault((name, file), GeneratedFunction(kind, name, file, text, values))
                kind = "route" if kind == "push" else kind  # noqa: PLW2901 - what a push calls is its route
    return GeneratedCode(tuple(functions.values()))


def _roots(cls: type[Event], route: Route, receivers: tuple[Receiver, ...]) -> Iterator[tuple[str, object]]:
    yield "push", route.compile_push
    yield "route", route.find
    yield "route", route.inline
    for receiver in receivers:
        for condition in _alternatives(receiver.selection.conditions.get(cls)):
            if condition.checked is not None:
                yield f"filter of {receiver.name}", condition.evaluate
    yield "check", route.validate
    yield "encode", encoder(cls).encode
    yield "decode", decoder(info_of(cls).format, cls)


def _alternatives(condition: ReceiverCondition | AnyCondition | None) -> tuple[ReceiverCondition, ...]:
    if condition is None:
        return ()
    return condition.alternatives if isinstance(condition, AnyCondition) else (condition,)


def _said(value: object) -> str:
    if isinstance(value, FunctionType) and value.__code__.co_filename.startswith(GENERATED):
        return value.__code__.co_filename
    return getattr(value, "__qualname__", None) or reprlib.repr(value)


def _generated(root: object) -> Iterator[FunctionType]:
    """A generated function, and those that it calls."""
    waiting, seen = [root], set()
    while waiting:
        function = getattr(waiting[0], "__func__", waiting[0])
        del waiting[0]
        if not isinstance(function, FunctionType) or not function.__code__.co_filename.startswith(GENERATED):
            continue
        if function.__code__.co_filename not in seen:
            seen.add(function.__code__.co_filename)
            yield function
            waiting += function.__globals__.values()

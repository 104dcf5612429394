"""Traces of OpenTelemetry through channels: a span for each push, and one for each call with an event.

    tracks = traced(station.channel("air.tracks", Track))
    tracks.push(Track(7, 410.0))                 # span "push air.tracks"; the event carries its traceparent

    @tracks.subscribe(where="speed > 300")
    def on_fast(track: Track) -> None: ...       # span "process air.tracks", linked to the span of its push

    for delivery in consumer.deliveries():
        with processing(delivery.header): ...    # the same for consumers that pull

The context of a trace travels as W3C `traceparent` and `tracestate` in the headers of an event: over links,
through histories, and through Spark, where it is in the column `headers` of source and sink. One push may
have many receivers, now or years later, so a receiver's span begins a trace with a link to the push, as
OpenTelemetry advises for messages; `processing(header, join=True)` continues the trace of the push instead.
Names of spans and attributes follow the semantic conventions for messaging.

Which spans are exported, and where to, is a matter of the program's TracerProvider. Without the SDK of
OpenTelemetry nothing is recorded, and a context that a program was given is handed on all the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from heliograph._version import __version__
from heliograph.channel.receive.subscription import takes_header
from heliograph.channel.receive.subscription_factory import DECORATES, decorator
from heliograph.errors import MissingExtra
from heliograph.model.event import Event

try:
    from opentelemetry import trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as missing:  # pragma: no cover - shown by a test in an interpreter without it
    raise MissingExtra("heliograph.interchange.opentelemetry", "opentelemetry-api", "otel") from missing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from opentelemetry.trace import Span, Tracer, TracerProvider

    from heliograph.channel.channel import Channel
    from heliograph.channel.publish.acks import Receipt
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.model.event import Header

T = TypeVar("T", bound=Event)
Function = TypeVar("Function", bound="Callable[..., object]")

SYSTEM: Final = "heliograph"
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def inject(headers: Mapping[str, str] | None = None) -> dict[str, str]:
    """The headers for a push, with the context of the current span; as they are where there is none."""
    carrier = dict(headers or {})
    _PROPAGATOR.inject(carrier)
    return carrier


def links_of(*headers: Header) -> list[Link]:
    """A link to the push of each event that carries a context; others have none."""
    found = []
    for header in headers:
        context = trace.get_current_span(_PROPAGATOR.extract(header.headers or {})).get_span_context()
        if context.is_valid:
            found.append(Link(context))
    return found


@contextmanager
def processing(
    *headers: Header,
    receiver: str | None = None,
    group: str | None = None,
    join: bool = False,
    tracer_provider: TracerProvider | None = None,
) -> Iterator[Span]:
    """A span around the work on one event, or on a batch of them, with a link to the push of each.

    Args:
        *headers: of the events, as in `delivery.header`; at least one.
        receiver: its name, for the span.
        group: of consumers, likewise.
        join: continue the trace of the push, rather than linking to it; of one event only.
        tracer_provider: else the program's own.
    """
    if not headers:
        raise ValueError("processing() takes the header of at least one event")
    if join and len(headers) > 1:
        raise ValueError("join=True continues one trace, and a batch has several: leave it out to link them")
    first = headers[0]
    attributes = _attributes(first.channel, "process", "process")
    if len(headers) == 1:
        attributes["messaging.message.id"] = str(first.id)
        if first.offset is not None:
            attributes["messaging.heliograph.partition"] = str(first.partition)
            attributes["messaging.heliograph.offset"] = first.offset
    else:
        attributes["messaging.batch.message_count"] = len(headers)
    if receiver is not None:
        attributes["messaging.client.id"] = receiver
    if group is not None:
        attributes["messaging.consumer.group.name"] = group
    with _tracer(tracer_provider).start_as_current_span(
        f"process {first.channel}",
        context=_PROPAGATOR.extract(first.headers or {}) if join else None,
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=None if join else links_of(*headers),
    ) as span:
        yield span


class TracedChannel(Generic[T]):
    """A channel whose pushes and callbacks have spans; see the module. Made by `traced`.

    What is not listed here is the channel's own: `consumer`, `stats`, `wait_matched` and so on.
    """

    def __init__(self, channel: Channel[T], *, join: bool, tracer_provider: TracerProvider | None) -> None:
        self.channel = channel
        self._join = join
        self._provider = tracer_provider
        self._tracer = _tracer(tracer_provider)
        self._wrapped: list[tuple[Callable[..., Any], Callable[..., Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.channel, name)

    def __repr__(self) -> str:
        return f"traced({self.channel!r})"

    def push(self, event: T, *, headers: Mapping[str, str] | None = None, **said: Any) -> bool:
        with self._pushing() as span:
            return _told(span, self.channel.push(event, headers=inject(headers), **said))

    def push_nowait(self, event: T, *, headers: Mapping[str, str] | None = None, **said: Any) -> Receipt:
        """As `channel.push_nowait`; its span ends when the event was handed over, not with the receipt."""
        with self._pushing():
            return self.channel.push_nowait(event, headers=inject(headers), **said)

    async def apush(self, event: T, *, headers: Mapping[str, str] | None = None, **said: Any) -> bool:
        with self._pushing() as span:
            return _told(span, await self.channel.apush(event, headers=inject(headers), **said))

    def push_many(self, events: Iterable[T] | Mapping[str, Any] | Any, **said: Any) -> bool:
        """As `channel.push_many`, with one span. Events of a batch carry no context."""
        with self._pushing() as span:
            if isinstance(events, Sized):
                span.set_attribute("messaging.batch.message_count", len(events))
            return _told(span, self.channel.push_many(events, **said))

    @overload
    def subscribe(self, callback: Function, **options: Any) -> Receiver: ...
    @overload
    def subscribe(self, **options: Any) -> Callable[[Function], Function]: ...
    def subscribe(self, callback: Any = DECORATES, **options: Any) -> Any:
        """As `channel.subscribe`; each call has a span."""
        if callback is DECORATES:
            return decorator(self.subscribe, **options)
        if not callable(callback):
            return self.channel.subscribe(callback, **options)  # which says what is wrong
        name = options.get("name") or getattr(callback, "__name__", type(callback).__name__)
        wrapped = self._with_span(callback, str(name), options.get("group"))
        receiver: Receiver = self.channel.subscribe(wrapped, **options)
        self._wrapped.append((callback, wrapped))
        return receiver

    def unsubscribe(self, callback: Callable[..., object]) -> None:
        """Close every subscription of a function, as `channel.unsubscribe`."""
        ours = [pair for pair in self._wrapped if pair[0] == callback]
        if not ours:
            self.channel.unsubscribe(callback)
        for pair in ours:
            self._wrapped.remove(pair)
            self.channel.unsubscribe(pair[1])

    def _pushing(self) -> Any:
        return self._tracer.start_as_current_span(
            f"push {self.channel.name}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes(self.channel.name, "push", "send"),
        )

    def _with_span(self, callback: Callable[..., Any], name: str, group: str | None) -> Callable[..., Any]:
        wants_header = takes_header(callback)

        def around(header: Header) -> Any:
            return processing(
                header, receiver=name, group=group, join=self._join, tracer_provider=self._provider
            )

        if inspect.iscoroutinefunction(callback):

            async def awaited(event: T, header: Header) -> None:
                with around(header):
                    call: Awaitable[Any] = callback(event, header) if wants_header else callback(event)
                    await call

            return _named(awaited, name)

        def called(event: T, header: Header) -> None:
            with around(header):
                callback(event, header) if wants_header else callback(event)

        return _named(called, name)


def traced(
    channel: Channel[T], *, join: bool = False, tracer_provider: TracerProvider | None = None
) -> TracedChannel[T]:
    """The channel with a span for each push and each call of a callback; see the module.

    Args:
        channel: stays usable without spans.
        join: callbacks continue the trace of the push, rather than linking to it.
        tracer_provider: else the program's own.
    """
    return TracedChannel(channel, join=join, tracer_provider=tracer_provider)


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("heliograph", __version__, provider)


def _attributes(channel: str, operation: str, kind: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": channel,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    # Not functools.wraps: the signature must stay (event, header).
    function.__name__ = name
    return function


def _told(span: Span, is_met: bool) -> bool:
    if not is_met:
        span.set_status(Status(StatusCode.ERROR, "not every receiver has acknowledged"))
    return is_met

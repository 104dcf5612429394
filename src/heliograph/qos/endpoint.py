"""Quality of service of one endpoint: what a receiver, a supplier or a single push may say for itself.

    tracks.subscribe(on_track, where="speed > 300", priority=5, queue=1_000)      # ReceiverOptions
    tracks.consumer(name="billing", ack="manual", lease=10.0)                     # and Acking
    tracks.push(track, priority=5, deliver_after=2.0)                             # PushOptions

Each option is one row, as in `heliograph.qos.policies`, where the policies of whole channels are. What a
receiver says takes the place of the channel's policy of that name, for this receiver alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence  # noqa: TC003 - rows are made of the types
from datetime import datetime  # noqa: TC003 - likewise
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict

from heliograph.model import field_types as ft
from heliograph.model.event import Event  # noqa: TC001 - rows are made of the types
from heliograph.model.formats import MAX_NAME
from heliograph.qos.dispatch_order import MAX_SUB_PRIORITY, Order, OrderName, why_not
from heliograph.qos.policies import LONGEST_LATENCY, PRIORITY
from heliograph.runtime.declared_options import Object, Option, Text, levels, seconds, whole

QueueOverflow: TypeAlias = Literal["block", "drop_oldest", "drop_soonest", "drop_newest", "coalesce"]
ConsumerAck: TypeAlias = Literal["auto", "manual", "before"]
HandOut: TypeAlias = Literal["arrival", "key"]

MOST: Final = 1 << 31
"""The highest count that an option can say."""
MAX_DELAY: Final = 1e9
"""Seconds that a delivery can be put off: about 31 years."""
LEASE_SECONDS: Final = 30.0
"""How long a consumer may keep an event, where an acknowledgement is waited for."""
IN_FLIGHT: Final = 1_000
"""Events that one consumer may hold."""

_ORDER: Final = Object("one of strict, ranked, aged, deadline, or an object with `by` and `first`", why_not)
_SUB_PRIORITY: Final = levels(0, MAX_SUB_PRIORITY)
_LATENCY: Final = seconds(0, LONGEST_LATENCY)


_INSTANT: Final = "nanoseconds since 1970 as a 64-bit integer"


def _no_instant(value: Any) -> str | None:
    low, high = ft.INTEGER_RANGES["i64"]
    return None if type(value) is int and low <= value <= high else _INSTANT


class Wanted(TypedDict, total=False):
    """Which events a receiver wants."""

    where: Annotated[
        Any, Option("only events that meet this filter", Object("a filter, as text or built with hg.col"))
    ]
    params: Annotated[
        Mapping[str, Any] | Sequence[Any] | None,
        Option("values of the filter's parameters", Object("a mapping for `:name`, a sequence for `%0`")),
    ]
    types: Annotated[
        Iterable[type[Event]] | None,
        Option("only events of these types; None: all, also those to come", Object("event classes")),
    ]
    sources: Annotated[
        Iterable[str] | None,
        Option("only events of these suppliers; None: all", Object("names of suppliers")),
    ]


class ReceiverOptions(Wanted, total=False):
    """What a receiver may ask for."""

    priority: Annotated[int | None, Option("takes the place of the events' own", PRIORITY)]
    dispatch: Annotated[
        OrderName | Order | None,
        Option("which waiting event comes next; None: as the channel has it", _ORDER),
    ]
    sub_priority: Annotated[
        int | None, Option('takes the place of the events\' own, with `dispatch="ranked"`', _SUB_PRIORITY)
    ]
    latency: Annotated[
        float | None, Option('takes the place of the events\' own, with `dispatch="deadline"`', _LATENCY)
    ]
    group: Annotated[
        str | None,
        Option("receivers of one group share the stream", Text(MAX_NAME, "a group's name", is_name=True)),
    ]
    queue: Annotated[int | None, Option("events that may wait; None: as the channel has it", whole(1, MOST))]
    queue_bytes: Annotated[
        int | None, Option("bytes of events that may wait; None: as the channel has it", whole(1, 1 << 50))
    ]
    overflow: Annotated[QueueOverflow | None, Option("what a full queue does; None: as the channel has it")]
    separation: Annotated[
        float | None,
        Option("between two events of one key at least", seconds(0, LONGEST_LATENCY, above=True)),
    ]


class Acking(TypedDict, total=False):
    """What a consumer may say about acknowledging."""

    ack: Annotated[
        ConsumerAck,
        Option(
            "when an event is done: `auto` when the next one is asked for, `manual` when `Delivery.ack` is "
            "called, `before` when it is handed out"
        ),
    ]
    lease: Annotated[
        float | None,
        Option(
            "after which an event that is not acknowledged is handed out again; None: "
            f"{LEASE_SECONDS:g} in groups and with `manual`, else never",
            seconds(1e-6, 1e9),
        ),
    ]
    max_in_flight: Annotated[int, Option("events that this consumer may hold", whole(1, MOST))]
    max_deliveries: Annotated[
        int | None,
        Option("how often an event is handed out before it is a dead letter; None: for ever", whole(1, MOST)),
    ]
    dead_letter: Annotated[
        str | None, Option("the channel that gets dead letters", Object("the name of another channel"))
    ]
    order: Annotated[
        HandOut,
        Option("`key` hands out one event of a key at a time: later ones wait for its acknowledgement"),
    ]


class PushOptions(TypedDict, total=False):
    """What a push may say."""

    priority: Annotated[int | None, Option("of this event; None: the channel's", PRIORITY)]
    source_ts: Annotated[int | None, Option("when it happened; None: now", Object(_INSTANT, _no_instant))]
    correlation_id: Annotated[str | None, Option("what the event belongs to", Text(MAX_NAME))]
    headers: Annotated[
        Mapping[str, str] | None, Option("free text by name", Object("a mapping of text to text"))
    ]
    id: Annotated[
        str | None,
        Option(
            "names the push, which may then be repeated without a duplicate",
            Text(MAX_NAME),
        ),
    ]
    sub_priority: Annotated[int | None, Option("within one priority, for `ranked`", _SUB_PRIORITY)]
    latency: Annotated[float | None, Option("that it may wait for a receiver, for `deadline`", _LATENCY)]
    deliver_at: Annotated[
        datetime | None, Option("no receiver gets it before", Object("a datetime with a time zone"))
    ]
    deliver_after: Annotated[
        float | None, Option("no receiver gets it before, counted from now", seconds(0, MAX_DELAY))
    ]

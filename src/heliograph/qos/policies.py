"""Quality of service of a channel: its policies, declared once.

    hg.QoS(durability="persistent", lifespan=60.0)

A `QoS` is frozen and checked when it is made: a value that no channel could honour is refused there, with
what is allowed. Each field is one row (`heliograph.runtime.declared_options`): name, type, default, allowed
values and a line of documentation. `Policy` beside it says whether the policy can change while events flow,
how an offer meets a request, and which stations have to agree on it. `RULES` are the policies that have to go
together. Checks, the configuration file and the tables of docs/reference/options.md are made from these rows;
so a policy is added by adding a field.

What a receiver or a push may say for itself is in `heliograph.qos.endpoint`, whether an offer meets a request
in `heliograph.qos.matching`.

Defaults: reliable, keep all within the limits, volatile, never a silent drop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec

from heliograph.errors import InvalidQoS
from heliograph.qos.dispatch_order import Order, OrderName, uses, why_not
from heliograph.qos.threads import Threads
from heliograph.runtime.declared_options import (
    NumberRange,
    Object,
    Option,
    Rule,
    beside,
    levels,
    refusals,
    rows_of,
    seconds,
    whole,
)
from heliograph.runtime.option_names import NamesOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

Reliability: TypeAlias = Literal["best-effort", "reliable"]
Durability: TypeAlias = Literal["volatile", "transient-local", "transient", "persistent"]
Ack: TypeAlias = Literal["memory", "journal", "synced", "delivered"]
Compaction: TypeAlias = Literal["none", "key"]
Missing: TypeAlias = Literal["default", "refuse"]
DeliveryRecords: TypeAlias = Literal["off", "sampled", "all"]
Overflow: TypeAlias = Literal["block", "drop_oldest", "drop_soonest", "drop_newest", "coalesce", "journal"]

LOWEST_PRIORITY: Final = 1
HIGHEST_PRIORITY: Final = 5
DEFAULT_QUEUE: Final = 100_000
"""Events that wait for one consumer before its overflow policy acts."""
DEFAULT_QUEUE_BYTES: Final = 64 << 20
"""Bytes of events that wait for one consumer before its overflow policy acts."""
DEFAULT_MAX_BLOCKING: Final = 1.0
"""Seconds a push waits for space in a full queue: longer than a pause of the collector."""
DEFAULT_ACK_TIMEOUT: Final = 1.0
"""Seconds: a consumer that is alive has taken an event and dealt with it by then, or is worth a reminder."""
DEFAULT_RESENDS: Final = 3
LONGEST_LATENCY: Final = 1e9
"""Seconds."""

PRIORITY: Final = levels(LOWEST_PRIORITY, HIGHEST_PRIORITY)


def _no_threads(value: Any) -> str | None:
    return None if isinstance(value, Threads) else "hg.Threads(...)"


class Policy(msgspec.Struct, frozen=True):
    """What a row of `QoS` says beside its `Option`."""

    changeable: bool = False
    """Whether `channel.reconfigure` can change it while events flow."""
    rule: Literal["offered at least requested"] | None = None
    """How an offer meets a request; None: the two sides need not agree."""
    shared: bool = False
    """Whether all stations of a history have it alike: what one promises to keep, another must not lose."""
    local: bool = False
    """Whether it is about this process only: it is neither written down nor told to other stations."""


AT_LEAST: Final = "offered at least requested"
_SPREAD: Final = Policy()
_LOCAL: Final = Policy(changeable=True, local=True)


class QoS(msgspec.Struct, frozen=True, kw_only=True, metaclass=NamesOptions):
    """The policies of a channel."""

    reliability: Annotated[
        Reliability,
        Option("whether every event reaches every matching receiver, or may be dropped"),
        Policy(rule=AT_LEAST, shared=True),
    ] = "reliable"
    durability: Annotated[
        Durability,
        Option("which events a late joiner gets, and what survives the process"),
        Policy(rule=AT_LEAST, shared=True),
    ] = "volatile"
    history: Annotated[
        int | None,
        Option("events per key that a late joiner gets; None: all that are kept", whole(1, 1 << 31)),
        _SPREAD,
    ] = None
    lifespan: Annotated[
        float | None,
        Option("an older event is not delivered; None: it never expires", seconds(1e-6, 1e9)),
        _SPREAD,
    ] = None
    priority: Annotated[int, Option("of events that are pushed without one", PRIORITY), _SPREAD] = 3
    dispatch: Annotated[
        OrderName | Order,
        Option(
            "which waiting event comes next",
            Object("one of strict, ranked, aged, deadline, or an object with `by` and `first`", why_not),
        ),
        _LOCAL,
    ] = "strict"
    latency: Annotated[
        float | None,
        Option("within which an event should be delivered, for `deadline`", seconds(0, LONGEST_LATENCY)),
        _LOCAL,
    ] = None
    threads: Annotated[
        Threads,
        Option(
            "the threads in which callbacks are called",
            Object("hg.Threads(...)", _no_threads),
        ),
        _LOCAL,
    ] = Threads()
    ack: Annotated[
        Ack | None,
        Option("what `push` waits for; None: `synced` on persistent channels, else `memory`"),
        _SPREAD,
    ] = None
    max_blocking: Annotated[
        float,
        Option("that `push` waits for space in a queue before it raises QueueFull", seconds(0, 1e6)),
        _SPREAD,
    ] = DEFAULT_MAX_BLOCKING
    queue: Annotated[int, Option("events that may wait for one receiver", whole(1, 1 << 31)), _SPREAD] = (
        DEFAULT_QUEUE
    )
    queue_bytes: Annotated[
        int,
        Option(
            "bytes of events that may wait for one receiver, and of those a history in memory keeps",
            whole(1, 1 << 50),
        ),
        _SPREAD,
    ] = DEFAULT_QUEUE_BYTES
    overflow: Annotated[
        Overflow | None,
        Option(
            "what a full queue does; None: `journal` on persistent channels, `block` on other reliable ones, "
            "`drop_oldest` on best-effort ones"
        ),
        _SPREAD,
    ] = None
    ack_timeout: Annotated[
        float,
        Option(
            'with `ack="delivered"`: for all acknowledgements, before the event is sent again',
            seconds(1e-3, 1e6),
        ),
        _SPREAD,
    ] = DEFAULT_ACK_TIMEOUT
    resends: Annotated[
        int,
        Option(
            "how often it is sent again to receivers that lack it, before `push` returns False",
            whole(0, 1000),
        ),
        _SPREAD,
    ] = DEFAULT_RESENDS
    dead_letter: Annotated[
        str | None,
        Option(
            "the channel that gets what could not be delivered; None: `on_error` is told",
            Object("the name of a channel, with ack='delivered'"),
        ),
        _SPREAD,
    ] = None
    compaction: Annotated[
        Compaction,
        Option("what is kept of a sealed history: every event, or the last of each key"),
        Policy(shared=True),
    ] = "none"
    tombstones: Annotated[
        float,
        Option("for which a compacted history remembers that a key was forgotten", seconds(0, 1e9)),
        _SPREAD,
    ] = 86_400.0
    missing: Annotated[
        Missing,
        Option(
            "what a receiver gets of an older event that lacks a field of its class: the field's default, "
            "or, with `refuse`, no such event (a history ends there with the reason, a link logs it)"
        ),
        _SPREAD,
    ] = "default"
    delivery_records: Annotated[
        DeliveryRecords,
        Option("whether `_helio.deliveries` tells what became of each event for each receiver"),
        _SPREAD,
    ] = "off"
    delivery_rate: Annotated[
        float,
        Option("with `sampled`: the part of the events that is recorded", NumberRange(1e-9, 1)),
        _SPREAD,
    ] = 0.01
    ledger_interval: Annotated[
        float,
        Option("between two rows of a recorded channel in `_helio.ledger`", seconds(0.01, 1e9)),
        _SPREAD,
    ] = 10.0

    def __post_init__(self) -> None:
        for name, allowed in refusals(self, rows_of(QoS), RULES):
            raise InvalidQoS(name, getattr(self, name), allowed)

    @property
    def journalled(self) -> bool:
        return self.durability == "persistent"

    @property
    def ack_level(self) -> Ack:
        return self.ack or ("synced" if self.journalled else "memory")

    @property
    def overflow_policy(self) -> Overflow:
        if self.overflow is not None:
            return self.overflow
        if self.journalled:
            return "journal"
        return "block" if self.reliability == "reliable" else "drop_oldest"


RULES: Final = (
    Rule(
        "threads",
        "`bands`",
        lambda qos: qos.threads.kind == "bands" and qos.dispatch != "strict",
        "hg.Threads('pool') unless dispatch='strict'",
    ),
    Rule(
        "threads",
        "`inline`",
        lambda qos: qos.threads.kind == "inline" and (qos.journalled or qos.ack == "delivered"),
        "'pool' or 'bands' where push waits for disk or consumers",
    ),
    Rule(
        "latency",
        "any",
        lambda qos: qos.latency is not None and not uses(qos.dispatch, "latency"),
        "None unless dispatch='deadline', or an order of your own",
    ),
    Rule(
        "ack",
        "`delivered`",
        lambda qos: qos.ack == "delivered" and qos.reliability != "reliable",
        "another level, or this one with reliability='reliable'",
    ),
    Rule(
        "dead_letter",
        "any",
        lambda qos: (
            qos.dead_letter is not None and (qos.ack != "delivered" or type(qos.dead_letter) is not str)
        ),
        "the name of a channel, with ack='delivered'",
    ),
    Rule(
        "ack",
        "`journal`, `synced`",
        lambda qos: qos.ack in ("journal", "synced") and not qos.journalled,
        "'memory' unless durability='persistent'",
    ),
    Rule(
        "overflow",
        "`journal`",
        lambda qos: qos.overflow == "journal" and not qos.journalled,
        "another policy, or this one with durability='persistent'",
    ),
    Rule(
        "overflow",
        "all but `journal`",
        lambda qos: qos.journalled and qos.overflow not in (None, "journal"),
        "'journal' on a persistent channel: there no consumer blocks a supplier or loses events",
    ),
    Rule(
        "overflow",
        "`drop_soonest`",
        lambda qos: qos.overflow == "drop_soonest" and qos.dispatch != "deadline",
        "another policy, or this one with dispatch='deadline'",
    ),
    Rule(
        "overflow",
        "`block`",
        lambda qos: qos.reliability == "best-effort" and qos.overflow == "block",
        "a drop policy with reliability='best-effort', which never blocks",
    ),
    Rule(
        "compaction",
        "`key`",
        lambda qos: qos.compaction != "none" and not qos.journalled,
        "'none' unless durability='persistent'",
    ),
    Rule(
        "history",
        "any",
        lambda qos: qos.history is not None and qos.journalled,
        "None with durability='persistent': such a channel keeps what the station's journal limits say",
    ),
    Rule(
        "history",
        "any",
        lambda qos: qos.history is not None and qos.durability == "volatile",
        "None unless durability keeps events (transient-local or more)",
    ),
)
"""Policies that contradict each other are refused where both are written."""


def policies() -> Mapping[str, Policy]:
    """What each field of `QoS` says beside its allowed values."""
    return beside(QoS, Policy)


def policies_of(qos: QoS) -> dict[str, Any]:
    """Those that are not the default: how a QoS is written down, and told to other stations."""
    plain = QoS()
    given = {name: getattr(qos, name) for name, policy in policies().items() if not policy.local}
    return {name: value for name, value in given.items() if value != getattr(plain, name)}


def qos_of(policies: Mapping[str, Any]) -> QoS:
    """The QoS of which `policies_of` made that; InvalidQoS when there can be none."""
    unknown = sorted(policies.keys() - set(QoS.__struct_fields__))
    if unknown:
        raise InvalidQoS(unknown[0], policies[unknown[0]], "a policy that this program knows; is it older?")
    return QoS(**policies)

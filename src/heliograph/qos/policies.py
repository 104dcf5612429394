"""Quality of service: what a channel offers, what a consumer asks for, and whether the two go together.

    hg.QoS(durability="persistent", lifespan=60.0)

A `QoS` is frozen and checked when it is written: a value that no channel could honour is refused there, with
what is allowed. Each policy is one row of `POLICIES`, which says who may set it, whether it can change while
events flow, and how an offer meets a request; `mismatches` walks that table and is empty when the two are
compatible. Policies are added by adding a field and a row.

Defaults: reliable, keep all within the limits, volatile, never a silent drop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec

from heliograph.errors import InvalidQoS
from heliograph.qos.dispatch_order import Order, OrderName, uses, why_not
from heliograph.qos.threads import Threads
from heliograph.runtime.option_names import NamesOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
DEFAULT_MAX_BLOCKING: Final = 1.0
"""Seconds a push waits for room in a full queue: longer than a pause of the collector."""
DEFAULT_ACK_TIMEOUT: Final = 1.0
"""Seconds: a consumer that is alive has taken an event and dealt with it by then, or is worth a reminder."""
DEFAULT_RESENDS: Final = 3
LONGEST_LATENCY: Final = 1e9
"""Seconds."""


class QoS(msgspec.Struct, frozen=True, kw_only=True, metaclass=NamesOptions):
    """The policies of a channel."""

    reliability: Reliability = "reliable"
    durability: Durability = "volatile"
    history: int | None = None
    """How many events per key a late joiner gets (with a durability that keeps any); None: all kept ones."""
    lifespan: float | None = None
    """Seconds after which an event is no longer delivered; None: never expires."""
    priority: int = 3
    """Of events pushed without one: 1 (low) to 5 (high)."""
    dispatch: OrderName | Order = "strict"
    """Which of the events that wait comes next: `strict`, `ranked`, `aged`, `deadline`, or an order of one's
    own; see `heliograph.qos.dispatch_order`."""
    latency: float | None = None
    """Seconds within which an event should be delivered, for `deadline` and orders of one's own."""
    threads: Threads = Threads()
    """In which threads callbacks are called; see `heliograph.qos.threads`."""
    ack: Ack | None = None
    """What `push` waits for; None: `synced` on persistent channels, else `memory`."""
    max_blocking: float = DEFAULT_MAX_BLOCKING
    """Seconds that `push` waits for room before it raises QueueFull."""
    queue: int = DEFAULT_QUEUE
    """Events that may wait for one consumer."""
    overflow: Overflow | None = None
    """What happens when they do; None: `journal` on persistent channels, `block` on other reliable ones,
    `drop_oldest` on best-effort ones."""
    ack_timeout: float = DEFAULT_ACK_TIMEOUT
    """With `ack="delivered"`: seconds for all acknowledgements of an event before it is sent again."""
    resends: int = DEFAULT_RESENDS
    """How often it is sent again, to those who lack it, before `push` returns False."""
    dead_letter: str | None = None
    """The channel that gets what could not be delivered; None: it is reported to `on_error`."""
    compaction: Compaction = "none"
    """What of a sealed history is kept within the station's limits: every event, or the last of each key."""
    tombstones: float = 86_400.0
    """Seconds for which a compacted history remembers that a key was forgotten."""
    missing: Missing = "default"
    """What a receiver gets of an event that lacks a field of its class, written by an older one: the field's
    default, or, with `refuse`, no such event: histories end there with the reason, links log it."""
    delivery_records: DeliveryRecords = "off"
    """Whether the channel `_helio.deliveries` tells what became of each event for each receiver."""
    delivery_rate: float = 0.01
    """With `sampled`: the part of the events that is recorded."""
    ledger_interval: float = 10.0
    """Seconds between two rows of a recorded channel in `_helio.ledger`."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise InvalidQoS(name, value, "one of " + ", ".join(str(choice) for choice in allowed))
        for name, low, high in _RANGES:
            _check_range(self, name, low, high)
        _check_together(self)

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


_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "reliability": get_args(Reliability),
    "durability": get_args(Durability),
    "ack": (None, *get_args(Ack)),
    "overflow": (None, *get_args(Overflow)),
    "compaction": get_args(Compaction),
    "missing": get_args(Missing),
    "delivery_records": get_args(DeliveryRecords),
}
_RANGES: Final = (
    ("history", 1, 1 << 31),
    ("lifespan", 1e-6, 1e9),
    ("priority", LOWEST_PRIORITY, HIGHEST_PRIORITY),
    ("latency", 0, LONGEST_LATENCY),
    ("max_blocking", 0, 1e6),
    ("queue", 1, 1 << 31),
    ("ack_timeout", 1e-3, 1e6),
    ("resends", 0, 1000),
    ("tombstones", 0, 1e9),
    ("delivery_rate", 1e-9, 1),
    ("ledger_interval", 0.01, 1e9),
)
_OPTIONAL: Final = frozenset({"history", "lifespan", "latency"})
_WHOLE: Final = frozenset({"history", "priority", "queue", "resends"})


def _check_range(qos: QoS, name: str, low: float, high: float) -> None:
    value = getattr(qos, name)
    if value is None and name in _OPTIONAL:
        return
    kinds = (int,) if name in _WHOLE else (int, float)
    if type(value) not in kinds or not low <= value <= high:
        what = "a whole number" if name in _WHOLE else "a number" if name == "delivery_rate" else "seconds"
        raise InvalidQoS(
            name,
            value,
            f"{what} from {low:,.15g} to {high:,.15g}" + (" or None" if name in _OPTIONAL else ""),
        )


def _check_together(qos: QoS) -> None:
    """Policies that contradict each other are refused here, where both are written."""
    if not isinstance(qos.threads, Threads):
        raise InvalidQoS("threads", qos.threads, "hg.Threads(...)")
    if qos.threads.kind == "bands" and qos.dispatch != "strict":
        raise InvalidQoS("threads", qos.threads, "hg.Threads('pool') unless dispatch='strict'")
    if qos.threads.kind == "inline" and (qos.journalled or qos.ack == "delivered"):
        raise InvalidQoS("threads", qos.threads, "'pool' or 'bands' where push waits for disk or consumers")
    reason = why_not(qos.dispatch)
    if reason is not None:
        raise InvalidQoS("dispatch", qos.dispatch, reason)
    if qos.latency is not None and not uses(qos.dispatch, "latency"):
        raise InvalidQoS("latency", qos.latency, "None unless dispatch='deadline', or an order of your own")
    if qos.ack == "delivered" and qos.reliability != "reliable":
        raise InvalidQoS("ack", qos.ack, "another level, or this one with reliability='reliable'")
    if qos.dead_letter is not None and (qos.ack != "delivered" or type(qos.dead_letter) is not str):
        raise InvalidQoS("dead_letter", qos.dead_letter, "the name of a channel, with ack='delivered'")
    if qos.ack in ("journal", "synced") and not qos.journalled:
        raise InvalidQoS("ack", qos.ack, "'memory' unless durability='persistent'")
    if qos.overflow == "journal" and not qos.journalled:
        raise InvalidQoS("overflow", qos.overflow, "another policy, or this one with durability='persistent'")
    if qos.journalled and qos.overflow not in (None, "journal"):
        raise InvalidQoS(
            "overflow",
            qos.overflow,
            "'journal': on a persistent channel no consumer blocks a supplier or loses events",
        )
    if qos.overflow == "drop_soonest" and qos.dispatch != "deadline":
        raise InvalidQoS("overflow", qos.overflow, "another policy, or this one with dispatch='deadline'")
    if qos.reliability == "best-effort" and qos.overflow == "block":
        raise InvalidQoS("overflow", qos.overflow, "a drop policy: best effort never blocks")
    if qos.compaction != "none" and not qos.journalled:
        raise InvalidQoS("compaction", qos.compaction, "'none' unless durability='persistent'")
    if qos.history is not None and qos.journalled:
        allowed = "None: a persistent channel keeps what the station's journal limits say"
        raise InvalidQoS("history", qos.history, allowed)
    if qos.history is not None and qos.durability == "volatile":
        raise InvalidQoS(
            "history", qos.history, "None unless durability keeps events (transient-local or more)"
        )


class Mismatch(msgspec.Struct, frozen=True):
    """One policy where an offer does not meet a request."""

    policy: str
    offered: Any
    requested: Any

    def __str__(self) -> str:
        return f"{self.policy}: offered {self.offered!r}, requested {self.requested!r}"


class Policy(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes:
        field: its name in `QoS`.
        changeable: whether it may change while events flow.
        meets: whether an offer is good enough for a request; None when the two sides need not agree.
    """

    field: str
    changeable: bool
    meets: Callable[[Any, Any], bool] | None = None


SHARED: Final = ("reliability", "durability", "compaction")
"""Policies that all stations of a history have alike: what one promises to keep, another must not lose."""


def _at_least(order: tuple[Any, ...]) -> Callable[[Any, Any], bool]:
    rank = {value: i for i, value in enumerate(order)}
    return lambda offered, requested: rank[offered] >= rank[requested]


POLICIES: Final = (
    Policy("reliability", changeable=False, meets=_at_least(get_args(Reliability))),
    Policy("durability", changeable=False, meets=_at_least(get_args(Durability))),
    Policy("history", changeable=False),
    Policy("lifespan", changeable=True),
    Policy("priority", changeable=True),
    Policy("dispatch", changeable=True),
    Policy("latency", changeable=True),
    Policy("threads", changeable=True),
    Policy("ack", changeable=False),
    Policy("max_blocking", changeable=True),
    Policy("queue", changeable=False),
    Policy("overflow", changeable=False),
    Policy("ack_timeout", changeable=False),
    Policy("resends", changeable=False),
    Policy("dead_letter", changeable=False),
    Policy("compaction", changeable=False),
    Policy("tombstones", changeable=False),
    Policy("missing", changeable=False),
    Policy("delivery_records", changeable=False),
    Policy("delivery_rate", changeable=False),
    Policy("ledger_interval", changeable=False),
)


LOCAL: Final = frozenset({"dispatch", "latency", "threads"})
"""How a process calls its callbacks is its own affair: neither written down nor told to others."""


def policies_of(qos: QoS) -> dict[str, Any]:
    """Those that are not the default: how a QoS is written down, and told to other stations."""
    plain = QoS()
    given = {field: getattr(qos, field) for field in QoS.__struct_fields__ if field not in LOCAL}
    return {field: value for field, value in given.items() if value != getattr(plain, field)}


def qos_of(policies: Mapping[str, Any]) -> QoS:
    """The QoS of which `policies_of` made that; InvalidQoS when there can be none."""
    unknown = sorted(policies.keys() - set(QoS.__struct_fields__))
    if unknown:
        raise InvalidQoS(unknown[0], policies[unknown[0]], "a policy that this program knows; is it older?")
    return QoS(**policies)


def conflicts(kept: QoS, asked: QoS) -> tuple[Mismatch, ...]:
    """Policies in which stations that share a history must not differ; empty when they do not."""
    rows = [(field, getattr(kept, field), getattr(asked, field)) for field in SHARED]
    waits = [qos.ack_level == "delivered" for qos in (kept, asked)]
    if waits[0] != waits[1]:
        rows.append(("ack", kept.ack_level, asked.ack_level))
    return tuple(Mismatch(*row) for row in rows if row[1] != row[2])


def differences(offered: QoS, requested: QoS) -> tuple[Mismatch, ...]:
    """Every policy in which the two are not equal."""
    rows = [(field, getattr(offered, field), getattr(requested, field)) for field in QoS.__struct_fields__]
    return tuple(Mismatch(*row) for row in rows if row[1] != row[2])


def mismatches(offered: QoS, requested: QoS) -> tuple[Mismatch, ...]:
    """Every policy that keeps the two apart, in the order of the table; empty when they go together."""
    found = []
    for policy in POLICIES:
        ours, theirs = getattr(offered, policy.field), getattr(requested, policy.field)
        if policy.meets is not None and not policy.meets(ours, theirs):
            found.append(Mismatch(policy.field, ours, theirs))
    return tuple(found)

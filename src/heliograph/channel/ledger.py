"""The ledger: snapshots of what queues and inline counters have counted of every match, which balance.

A push adds the number of consumers that its event matched to `matched`. Independently each consumer's queue
counts what it did with the events it was given. A snapshot is taken while no push is half done, so

    matched == sum over queues of delivered + failed + expired + dropped + pending

holds in every snapshot, under load. Queues that have been closed go on counting in `departed`.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads annotations at run time
from typing import Final

import msgspec

NONE_DROPPED: Final[Mapping[str, int]] = {}


class QueueCounts(msgspec.Struct, frozen=True):
    """What one consumer's queue did with the events that matched."""

    delivered: int = 0
    failed: int = 0
    """The callback raised."""
    expired: int = 0
    """Their lifespan ended while they waited."""
    dropped: Mapping[str, int] = NONE_DROPPED
    """By reason: `oldest`, `soonest`, `newest`, `coalesced`, `separated`, `closed`, `stuck`, `suspended`,
    `unreadable`; of what is broadcast, `overtaken`: a station that stood still did not get it."""
    pending: int = 0
    """Waiting, or being delivered right now."""
    from_history: int = 0
    """How many of these the consumer found in the journal itself; `matched` includes them."""
    waiting_bytes: int = 0
    """What the events that wait take, as `heliograph.codec.sizes` estimates it."""

    @property
    def total(self) -> int:
        return self.delivered + self.failed + self.expired + sum(self.dropped.values()) + self.pending

    def __add__(self, other: QueueCounts) -> QueueCounts:
        reasons = {**self.dropped}
        for reason, n in other.dropped.items():
            reasons[reason] = reasons.get(reason, 0) + n
        return QueueCounts(
            self.delivered + other.delivered,
            self.failed + other.failed,
            self.expired + other.expired,
            reasons,
            self.pending + other.pending,
            self.from_history + other.from_history,
            self.waiting_bytes + other.waiting_bytes,
        )


class ChannelStats(msgspec.Struct, frozen=True):
    """One channel at one instant."""

    channel: str
    pushed: int
    """Events taken in."""
    matched: int
    """Pairs of (event, consumer that wants it)."""
    suppliers: int
    consumers: Mapping[str, QueueCounts]
    departed: QueueCounts
    """What consumers that have been closed had counted."""
    delayed: int = 0
    """Events that wait for their instant; whom they are for is decided then."""
    groups_apart: Mapping[str, tuple[str, ...]] = {}
    """Groups here whose name linked stations have, too, and which: without a journal the members of each
    station are a group by themselves, and each group gets every event."""
    unmatched: Mapping[str, tuple[str, ...]] = {}
    """Linked stations to or from which events of this channel do not go, and why: see `NotMatched`."""
    kept: int = 0
    """Events that the history in memory has for late joiners."""
    kept_bytes: int = 0
    """What they take, as `heliograph.codec.sizes` estimates it."""
    forgotten: int = 0
    """Events that it kept no longer because of `queue_bytes`."""

    @property
    def total(self) -> QueueCounts:
        return sum(self.consumers.values(), self.departed)

    @property
    def balanced(self) -> bool:
        """Always true; a test or an audit may look."""
        return self.matched == self.total.total

    def _repr_html_(self) -> str:
        from heliograph.runtime.notebook import html_table  # noqa: PLC0415 - for notebooks

        queues = {**self.consumers, "(departed)": self.departed, "(all)": self.total}
        names = ("consumer", "delivered", "failed", "expired", "dropped", "pending")
        rows = [
            (
                name,
                n.delivered,
                n.failed,
                n.expired,
                ", ".join(f"{k} {v}" for k, v in n.dropped.items()),
                n.pending,
            )
            for name, n in queues.items()
        ]
        return html_table(f"{self.channel}: {self.pushed} pushed, {self.matched} matched", names, rows)
